#include "cpu_kernel.hpp"

#include <map>

#include "codegen/mask/lowering.hpp"
#include "codegen/mask/parser.hpp"

namespace flashspan::cpu_test {
cpu::CpuBackend& cpu_backend() {
  static cpu::CpuBackend backend;
  return backend;
}

BoundProgram bound_program(const std::string& text, bool is_mask, const std::vector<NamedData>& tensors,
                           const std::vector<NamedNumber>& numbers) {
  std::vector<mask::TensorDeclaration> tensor_declarations;
  for (const NamedData& tensor : tensors) {
    tensor_declarations.push_back({tensor.name, tensor.view.dtype, tensor.view.rank});
  }
  std::vector<mask::ScalarDeclaration> scalar_declarations;
  for (const NamedNumber& number : numbers) scalar_declarations.push_back({number.name, mask::ValueType::integer});
  const mask::ProgramKind kind = is_mask ? mask::ProgramKind::mask : mask::ProgramKind::score;
  BoundProgram bound{take(mask::parse(text, kind, scalar_declarations, tensor_declarations)), {}};
  // The parser drops what the text does not use.
  for (const mask::TensorDeclaration& declaration : bound.program.tensors()) {
    for (const NamedData& tensor : tensors) {
      if (tensor.name == declaration.name) bound.bindings.tensors.push_back(tensor.view);
    }
  }
  for (const mask::ScalarDeclaration& declaration : bound.program.scalars()) {
    for (const NamedNumber& number : numbers) {
      if (number.name == declaration.name) bound.bindings.scalars.push_back({number.value, 0});
    }
  }
  return bound;
}

kernel::KernelSpec spec_of(Direction direction, DType dtype, int head_dim_qk, int head_dim_v, const BoundProgram* mask,
                           const BoundProgram* score, int block_m, int block_n) {
  kernel::KernelSpec spec;
  spec.direction = direction;
  spec.dtype = dtype;
  spec.head_dim_qk = head_dim_qk;
  spec.head_dim_v = head_dim_v;
  spec.lowering = mask == nullptr ? mask::LoweringKind::none : mask::lower(mask->program, direction).kind;
  if (mask != nullptr) spec.mask = mask->program.to_signature();
  if (score != nullptr) spec.score = score->program.to_signature();
  spec.tile.block_m = block_m;
  spec.tile.block_n = block_n;
  return spec;
}

std::shared_ptr<cpu::CpuKernel> kernel_of(const kernel::KernelSpec& spec) {
  static std::map<std::string, std::shared_ptr<cpu::CpuKernel>> kernels;
  const kernel::SourceText source = take(kernel::emit_llvm(spec));
  auto& kernel = kernels[source.main()];
  if (kernel == nullptr) {
    const backend::Binary binary = take(cpu_backend().compile(source, spec));
    kernel = std::static_pointer_cast<cpu::CpuKernel>(take(cpu_backend().load(binary.bytes(), spec)));
  }
  return kernel;
}

}  // namespace flashspan::cpu_test
