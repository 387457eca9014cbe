// Emitted kernels compile for every architecture that we serve, without spills, without warnings, from memory alone.
// Field case F080; compile_matrix has all of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/kernel/emit_cuda.hpp"
#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/cubin_parameters.hpp"
#include "runtime/cuda/launch_grids.hpp"
#include "tests/cuda/kernel_specs.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

class EmittedKernels : public WithNvrtc, public testing::WithParamInterface<Arch> {
 protected:
  void SetUp() override {
    WithNvrtc::SetUp();
    if (IsSkipped()) return;
    const auto& archs = compiler().library().archs;
    if (!std::binary_search(archs.begin(), archs.end(), GetParam().number)) {
      GTEST_SKIP() << compiler().identity() << " does not know " << to_string(GetParam());
    }
  }

  void expect_compiles(SpecRequest request) const {
    request.arch = GetParam();
    const auto spec = make_spec(request);
    ASSERT_TRUE(spec) << spec.error().message();
    const auto source = kernel::emit_cuda(*spec);
    ASSERT_TRUE(source) << source.error().message();
    const auto binary = compiler().compile(*source, spec->target.arch);
    ASSERT_TRUE(binary) << spec->summary() << "\n" << binary.error().message();
    EXPECT_EQ(binary->report.log, "") << spec->summary();
    ASSERT_EQ(binary->modules.size(), source->programs.size());
    std::size_t entries = 0;
    for (std::size_t i = 0; i < binary->modules.size(); ++i) {
      EXPECT_EQ(cubin_damage(binary->modules[i].bytes), std::nullopt);
      for (const std::string& name : source->programs[i].entry_points) {
        EXPECT_TRUE(cubin_kernel(binary->modules[i].bytes, name)) << name;
      }
      entries += source->programs[i].entry_points.size();
    }
    EXPECT_EQ(binary->report.entries.size(), entries);
    // most_plan_blocks is what an H200 holds.
    constexpr int registers_of_an_sm = 65536;
    for (const backend::EntryReport& entry : binary->report.entries) {
      if (entry.name != kernel::entry_plan_tiles || GetParam() != Arch{90, 'a'}) continue;
      EXPECT_LE(entry.registers, registers_of_an_sm / (4 * plan_threads))
          << spec->summary() << ": an SM holds four blocks";
    }
  }
};

TEST_P(EmittedKernels, ForwardCompiles) { expect_compiles({.direction = Direction::forward}); }

TEST_P(EmittedKernels, BackwardCompiles) { expect_compiles({.direction = Direction::backward}); }

TEST_P(EmittedKernels, WithoutAMaskCompile) {
  expect_compiles({.direction = Direction::forward, .dtype = DType::f16, .mask = nullptr});
  expect_compiles({.direction = Direction::backward, .dtype = DType::f16, .mask = nullptr});
}

TEST_P(EmittedKernels, WithTensorsAndAScoreCompile) {
  expect_compiles({.direction = Direction::forward, .mask = &causal_documents, .score = &softcap_and_alibi});
  expect_compiles({.direction = Direction::backward, .mask = &causal_documents, .score = &softcap_and_alibi});
}

TEST_P(EmittedKernels, OfEveryLoweringCompile) {
  expect_compiles({.mask = &causal, .lowering = mask::LoweringKind::row_ranges});
  expect_compiles({.mask = &column_bounds, .lowering = mask::LoweringKind::column_bounds});
  expect_compiles({.mask = &causal_documents, .lowering = mask::LoweringKind::bit_tiles});
}

TEST_P(EmittedKernels, OfUnalignedRowsAndUnequalHeadDimsCompile) {
  expect_compiles({.direction = Direction::forward, .head_dim_qk = 192, .head_dim_v = 128, .aligned = false});
}

INSTANTIATE_TEST_SUITE_P(Archs, EmittedKernels, testing::ValuesIn(served_archs),
                         [](const auto& arch) { return to_string(arch.param); });

}  // namespace
}  // namespace flashspan::cuda
