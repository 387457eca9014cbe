// program_binding.hpp -- a program's bindings in the layout that emitted code reads.
#pragma once

#include <vector>

#include "codegen/mask/bindings.hpp"
#include "runtime/cpu/tile_functions.hpp"

namespace flashspan::cpu {

/// Owns the arrays that data() points to; must outlive every use of it. Tensors stay borrowed.
class ProgramBinding {
 public:
  /// Null bindings give a program without data.
  ProgramBinding(const mask::Bindings* bindings, std::int64_t q_len, std::int64_t kv_len);
  ProgramBinding(const ProgramBinding&) = delete;
  ProgramBinding& operator=(const ProgramBinding&) = delete;

  [[nodiscard]] const ProgramData* data() const { return &data_; }

 private:
  std::vector<LookupTensor> tensors_;
  std::vector<std::int64_t> integers_;
  std::vector<float> reals_;
  ProgramData data_{};
};

}  // namespace flashspan::cpu
