// random_program.hpp -- random typed programs over every operation of the language, with data at the edges.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/program.hpp"
#include "oracle/random_numbers.hpp"

namespace flashspan::cpu_test {

/// A program of random shape and bindings for it; owns the tensors' memory.
class RandomProgram {
 public:
  /// `with_score`: a real program that uses `score`, else a mask.
  RandomProgram(std::uint64_t seed, bool with_score);
  RandomProgram(const RandomProgram&) = delete;
  RandomProgram& operator=(const RandomProgram&) = delete;

  [[nodiscard]] const mask::Program& program() const { return program_; }
  [[nodiscard]] const mask::Bindings& bindings() const { return bindings_; }

 private:
  void declare_data();
  mask::NodeId boolean(int depth);
  mask::NodeId integer(int depth);
  mask::NodeId real(int depth);
  mask::NodeId integer_leaf();
  mask::NodeId lookup(int tensor, int depth);
  mask::NodeId any(int depth);

  oracle::RandomNumbers random_;
  bool with_score_;
  mask::Program program_;
  mask::Bindings bindings_;
  std::vector<std::vector<std::int32_t>> words_;
  std::vector<int> open_loops_;
};

}  // namespace flashspan::cpu_test
