// Kernels that come from a bundle: when one serves that another version of the compiler made.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cache/bundle_file.hpp"
#include "flashspan/bundle.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "tests/runtime/fake_backend.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

class ShippedKernels : public ::testing::Test {
 protected:
  ShippedKernels() {
    backend_->takes_binaries_of_others = true;
    attention::SpecChoice choice;
    choice.dtype = DType::f32;
    choice.head_dim_qk = choice.head_dim_v = 64;
    spec_ = *attention::choose_spec(choice, Mask::causal().state(), nullptr);
    // A machine elsewhere compiles, and ships.
    const std::string elsewhere = folder_.path() / "elsewhere";
    auto cache = std::make_shared<cache::KernelCache>(cache::DiskStore(elsewhere, log_), 1 << 20, log_);
    auto there = attention::KernelProvider(backend_, std::move(cache), {{}, log_}).get(spec_, text_);
    EXPECT_TRUE(there.has_value());
    shipped_key_ = there->ready->key;
    EXPECT_TRUE(export_cache(elsewhere, {}, bundle_.string()).has_value());
    backend_->compiles = 0;
  }

  std::unique_ptr<attention::KernelProvider> provider(bool accept_other_compilers) {
    auto cache = std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_, cache::open_layers({bundle_}, log_));
    return std::make_unique<attention::KernelProvider>(
        backend_, std::move(cache),
        attention::ProviderOptions{{}, log_, attention::default_max_loaded_kernels, accept_other_compilers});
  }

  PrivateFolder folder_;
  std::filesystem::path bundle_ = folder_.path() / "kernels.fsb";
  LogSink log_ = [](LogLevel, std::string_view) {};
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  kernel::KernelSpec spec_;
  const std::string mask_ = "causal";
  attention::UserText text_{&mask_, nullptr};
  cache::KernelKey shipped_key_;
};

TEST_F(ShippedKernels, OneOfTheSameCompilerIsLoadedAndNothingIsCompiled) {
  const auto found = provider(false)->get(spec_, text_);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->ready->outcome, cache::Outcome::layer);
  EXPECT_EQ(found->ready->key, shipped_key_);
  EXPECT_EQ(backend_->compiles, 0);
}

TEST_F(ShippedKernels, OneOfAnotherVersionServesOnlyIfThatIsAccepted) {
  backend_->compiler = "fake 2.0";
  const auto refused = provider(false)->get(spec_, text_);
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->ready->key, shipped_key_);
  EXPECT_EQ(backend_->compiles, 1);
  const auto accepted = provider(true)->get(spec_, text_);
  ASSERT_TRUE(accepted.has_value());
  EXPECT_EQ(accepted->ready->key, shipped_key_);
  EXPECT_EQ(accepted->ready->metadata.compiler, "fake 1.0");
  EXPECT_EQ(backend_->compiles, 1);
}

TEST_F(ShippedKernels, WithoutACompilerTheBundleServesIfThatIsAccepted) {
  backend_->compiler.clear();
  const auto refused = provider(false)->get(spec_, text_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::missing_component);
  EXPECT_TRUE(provider(true)->get(spec_, text_).has_value());
  EXPECT_EQ(backend_->compiles, 0);
}

TEST_F(ShippedKernels, OtherTextOrOptionsAreAnotherKernel) {
  backend_->compiler = "fake 2.0";
  backend_->options = {"-O3"};
  EXPECT_NE(provider(true)->get(spec_, text_)->ready->key, shipped_key_);
  backend_->options = {"-O2"};
  backend_->takes_binaries_of_others = false;  // binaries for one machine, as the CPU's
  EXPECT_NE(provider(true)->get(spec_, text_)->ready->key, shipped_key_);
  EXPECT_EQ(backend_->compiles, 2);
}

TEST_F(ShippedKernels, OneThatTheDeviceRefusesIsCompiledHere) {
  backend_->compiler = "fake 2.0";
  backend_->load_failures = 1;
  const auto found = provider(true)->get(spec_, text_);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_NE(found->ready->key, shipped_key_);
  EXPECT_EQ(backend_->compiles, 1);
}

}  // namespace
}  // namespace flashspan::testing
