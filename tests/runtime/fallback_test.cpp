// fallback_test.cpp -- kernels that do not fit their registers, by the real compiler, without a GPU. Skipped where
// there is no NVRTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel/tile_config.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/attention_op.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/cuda/cuda_backend.hpp"
#include "runtime/cuda/nvrtc_library.hpp"

namespace flashspan::testing {
namespace {

constexpr Arch hopper{90, 'a'};
constexpr Device gpu{DeviceKind::cuda, 0};

std::shared_ptr<backend::Backend> compile_only() {
  return cuda::make_compile_only_backend(hopper, api::nvrtc_search(api::settings()));
}

/// Many conditions on looked-up values: more than the registers that products of wgmma leave.
Mask many_conditions(std::vector<std::int32_t>& bounds) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    const auto number = [](int value) { return std::to_string(value); };
    text += (i == 0 ? "" : " & ") + ("(t" + number(i % 12) + "[q] + k * " + number(i + 3)) + " >= t" +
            number((i + 5) % 12) + "[k] - q * " + number(i + 1) + ")";
  }
  std::vector<NamedTensor> tensors;
  const auto length = static_cast<std::int64_t>(bounds.size());
  for (int i = 0; i < 12; ++i) {
    tensors.push_back({"t" + std::to_string(i), TensorView::contiguous(bounds.data(), DType::i32, {length}, gpu)});
  }
  auto mask = Mask::parse(text, tensors);
  EXPECT_TRUE(mask.has_value()) << mask.error().message();
  return *mask;
}

TEST(Fallback, AMaskThatTakesTooManyRegistersIsServedByTheMmaFamily) {
  if (!cuda::open_nvrtc(api::nvrtc_search(api::settings()))) GTEST_SKIP() << "no NVRTC";
  std::vector<std::int32_t> bounds(64);
  const Mask mask = many_conditions(bounds);
  attention::SpecChoice choice;
  choice.target = {DeviceKind::cuda, hopper};
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 128;
  const auto spec = attention::choose_spec(choice, mask.state(), nullptr);
  ASSERT_TRUE(spec.has_value());
  ASSERT_EQ(spec->family, kernel::KernelFamily::hopper);
  std::vector<std::string> warnings;
  const LogSink log = [&warnings](LogLevel level, std::string_view line) {
    if (level >= LogLevel::warning) warnings.emplace_back(line);
  };
  attention::KernelProvider provider(compile_only(), std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log),
                                     {{}, log});
  const auto built = provider.build(*spec, {&mask.state().program.source(), nullptr});
  ASSERT_TRUE(built.has_value()) << built.error().message();
  EXPECT_EQ(built->spec.family, kernel::KernelFamily::mma);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings.front().find("bytes of spills"), std::string::npos) << warnings.front();
}

/// A rotation of part of a head's columns: eight lookups a pair, which the compiler reads ahead for all pairs of a
/// tile.
TEST(Fallback, AScoreThatTakesTooManyRegistersIsServedByASmallTile) {
  if (!cuda::open_nvrtc(api::nvrtc_search(api::settings()))) GTEST_SKIP() << "no NVRTC";
  std::vector<float> columns(std::size_t{4} * 64 * 4);
  const auto queries = TensorView::contiguous(columns.data(), DType::f32, {1, 4, 64, 4}, gpu);
  const auto keys = TensorView::contiguous(columns.data(), DType::f32, {1, 2, 64, 4}, gpu);
  std::string products = "0";
  for (int column = 0; column < 4; ++column) {
    const std::string at = std::to_string(column) + "]";
    products += " + queries[b, h, q, " + at + " * keys[b, h // 2, k, " + at;
  }
  const auto score = Score::parse("score + 0.5 * (" + products + ")", {{"queries", queries}, {"keys", keys}});
  ASSERT_TRUE(score.has_value()) << score.error().message();
  attention::SpecChoice choice;
  choice.target = {DeviceKind::cuda, hopper};
  choice.dtype = DType::f16;
  choice.head_dim_qk = choice.head_dim_v = 16;
  choice.aligned = false;
  const Mask full = Mask::full();
  const auto spec = attention::choose_spec(choice, full.state(), &score->state());
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  const LogSink log = [](LogLevel, std::string_view) {};
  attention::KernelProvider provider(compile_only(), std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log),
                                     {{}, log});
  const auto built = provider.build(*spec, {&full.state().program.source(), &score->state().program.source()});
  ASSERT_TRUE(built.has_value()) << built.error().message();
  EXPECT_NE(built->spec.tile, spec->tile) << "the usual tile has registers for it: a heavier score is wanted here";
}

TEST(Fallback, AWorkspaceIsLargeEnoughForEveryKernelThatMayServe) {
  const std::shared_ptr<backend::Backend> backend = compile_only();
  const LogSink log = [](LogLevel, std::string_view) {};
  const attention::AttentionOp op(backend,
                                  std::make_shared<attention::KernelProvider>(
                                      backend, std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log),
                                      attention::ProviderOptions{{}, log}));
  const Mask causal = Mask::causal();
  std::vector<std::uint64_t> memory(2);
  const auto address = (reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 * 16;
  attention::AttentionCall call;
  call.query = call.key = call.value = call.out =
      TensorView::contiguous(reinterpret_cast<void*>(address), DType::bf16, {1, 1, 4096, 64}, gpu);
  call.mask = &causal.state();
  const auto bytes = op.workspace_bytes(call);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message();

  attention::SpecChoice choice;
  choice.target = backend->facts().target;
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 64;
  backend::LaunchArgs args;
  args.shape = {1, 1, 1, 4096, 4096, 64, 64};
  choice.few_rows = kernel::worth_splitting(args.shape);
  const auto spec = attention::choose_spec(choice, causal.state(), nullptr);
  ASSERT_EQ(spec->family, kernel::KernelFamily::hopper);
  EXPECT_TRUE(spec->split_rows);
  const auto fallback = kernel::fallback_of(*spec);
  EXPECT_EQ(fallback->family, kernel::KernelFamily::mma);
  EXPECT_FALSE(fallback->split_rows) << "mma kernels do not split";
  args.mask_program = &causal.state().program;
  const std::int64_t own = backend->workspace_bytes(*spec, args);
  const std::int64_t other = backend->workspace_bytes(*fallback, args);
  EXPECT_NE(own, other);
  EXPECT_EQ(*bytes, std::max(own, other));
}

}  // namespace
}  // namespace flashspan::testing
