// Real kernels on the CPU: how many are in memory is bounded, whatever is asked for. Field case F087.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "flashspan/mask.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/attention_op.hpp"

namespace flashspan::testing {
namespace {

class LoadedCpuKernels : public ::testing::Test {
 protected:
  static constexpr std::size_t limit = 8;
  static constexpr std::int64_t longest = 64;
  static constexpr std::int64_t head_dim = 16;

  void SetUp() override {
    auto backend = api::open_cpu_backend(api::settings());
    if (!backend) GTEST_SKIP() << backend.error().message();
    auto cache =
        std::make_shared<cache::KernelCache>(std::nullopt, 1 << 24, LogSink{[](LogLevel, std::string_view) {}});
    kernels_ = std::make_shared<attention::KernelProvider>(
        *backend, std::move(cache), attention::ProviderOptions{{}, [](LogLevel, std::string_view) {}, limit});
    op_ = std::make_unique<attention::AttentionOp>(std::move(*backend), kernels_);
  }

  /// Runs a forward of `length` queries and keys, and notes the kernel it took.
  void run(const Mask& mask, std::int64_t length) {
    attention::AttentionCall call;
    call.query = call.key = call.value = TensorView::contiguous(inputs_.data(), DType::f32, {1, 1, length, head_dim});
    call.out = TensorView::contiguous(out_.data(), DType::f32, {1, 1, length, head_dim});
    call.mask = &mask.state();
    const auto bytes = op_->workspace_bytes(call);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
    workspace_.resize(static_cast<std::size_t>(*bytes));
    call.workspace = workspace_.data();
    call.workspace_bytes = *bytes;
    const auto done = op_->run(call);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    const auto provided = op_->prepare(call);
    ASSERT_TRUE(provided.has_value()) << provided.error().message();
    if (!provided->warm) ++cold_;
    seen_.emplace_back(provided->ready->kernel);
  }

  /// Distinct kernels that are still in memory.
  [[nodiscard]] std::size_t live() const {
    std::vector<const backend::LoadedKernel*> kernels;
    for (const auto& kernel : seen_) {
      if (const auto alive = kernel.lock()) kernels.push_back(alive.get());
    }
    std::ranges::sort(kernels);
    return static_cast<std::size_t>(std::unique(kernels.begin(), kernels.end()) - kernels.begin());
  }

  std::shared_ptr<attention::KernelProvider> kernels_;
  std::unique_ptr<attention::AttentionOp> op_;
  std::vector<std::weak_ptr<backend::LoadedKernel>> seen_;
  int cold_ = 0;  ///< calls that had just run, and whose kernel was gone
  std::vector<float> inputs_ = std::vector<float>(longest * head_dim, 0.5F);
  std::vector<float> out_ = std::vector<float>(longest * head_dim);
  std::vector<std::byte> workspace_;
};

TEST_F(LoadedCpuKernels, ManyExpressionsReachAPlateauAtTheLimit) {
  std::vector<std::size_t> counts;
  for (int number = 1; number <= 20; ++number) {
    const auto mask = Mask::parse("k * " + std::to_string(number) + " <= q * 3");
    ASSERT_TRUE(mask.has_value());
    run(*mask, longest);
    counts.push_back(live());
  }
  for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i], std::min(i + 1, limit)) << i;
  EXPECT_EQ(cold_, 0);
  op_.reset();
  kernels_.reset();
  EXPECT_EQ(live(), 0U);
}

TEST_F(LoadedCpuKernels, LengthsAloneLoadNothing) {
  for (std::int64_t length = 1; length <= longest; ++length) run(Mask::causal(), length);
  EXPECT_EQ(live(), 1U);
}

}  // namespace
}  // namespace flashspan::testing
