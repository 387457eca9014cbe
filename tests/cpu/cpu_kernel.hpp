// cpu_kernel.hpp -- a spec compiled and loaded for the tests, and programs and bindings from text.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel/emit_llvm.hpp"
#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/mask/bindings.hpp"
#include "codegen/mask/program.hpp"
#include "runtime/cpu/cpu_backend.hpp"

namespace flashspan::cpu_test {

/// The value of `result`; an error is thrown.
template <typename Value>
Value take(Result<Value> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

/// The one back end of the test process.
cpu::CpuBackend& cpu_backend();

/// A program with its data. The memory that `bindings` names must outlive it.
struct BoundProgram {
  mask::Program program;
  mask::Bindings bindings;
};
struct NamedData {
  std::string name;
  TensorView view;
};
struct NamedNumber {
  std::string name;
  std::int64_t value = 0;
};
BoundProgram bound_program(const std::string& text, bool is_mask, const std::vector<NamedData>& tensors = {},
                           const std::vector<NamedNumber>& numbers = {});

kernel::KernelSpec spec_of(Direction direction, DType dtype, int head_dim_qk, int head_dim_v, const BoundProgram* mask,
                           const BoundProgram* score, int block_m = 64, int block_n = 64);

/// Emitted, compiled and loaded; kernels are kept, so that tests of one spec share one compile.
std::shared_ptr<cpu::CpuKernel> kernel_of(const kernel::KernelSpec& spec);

}  // namespace flashspan::cpu_test
