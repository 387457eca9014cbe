// tile_mask.hpp -- the mask of a call as its tiles ask for it: by the compiled function, or node by node where the
// kernel was compiled without one (lowering `interpreted`).
#pragma once

#include <cstdint>

#include "codegen/mask/bindings.hpp"
#include "runtime/cpu/call_sizes.hpp"
#include "runtime/cpu/program_binding.hpp"
#include "runtime/cpu/tile_functions.hpp"

namespace flashspan::cpu {

/// Borrows everything.
class TileMask {
 public:
  /// `binding` is that of `program`.
  TileMask(const TileFunctions& functions, const mask::Program* program, const mask::Bindings* bindings,
           const CallSizes& sizes, const ProgramBinding& binding)
      : functions_(functions), program_(program), bindings_(bindings), sizes_(sizes), data_(binding.data()) {}

  /// As TileFunctions::mask_tile.
  std::int64_t evaluate(std::int64_t b, std::int64_t h, std::int64_t q_begin, std::int64_t k_begin, std::int64_t rows,
                        std::int64_t cols, std::uint16_t* words) const {
    if (functions_.mask_tile == nullptr) return interpret(b, h, q_begin, k_begin, rows, cols, words);
    return functions_.mask_tile(data_, b, h, q_begin, k_begin, rows, cols, words);
  }

 private:
  std::int64_t interpret(std::int64_t b, std::int64_t h, std::int64_t q_begin, std::int64_t k_begin, std::int64_t rows,
                         std::int64_t cols, std::uint16_t* words) const;

  const TileFunctions& functions_;
  const mask::Program* program_;
  const mask::Bindings* bindings_;
  const CallSizes& sizes_;
  const ProgramData* data_;
};

}  // namespace flashspan::cpu
