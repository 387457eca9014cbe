// KernelProvider: one compile per spec whatever happens, and failures that say all there is to say.
#include "runtime/attention/kernel_provider.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "codegen/kernel/tile_config.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/compile_dump.hpp"
#include "tests/runtime/fake_backend.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using ::testing::HasSubstr;

class Provider : public ::testing::Test {
 protected:
  static kernel::KernelSpec spec(int head_dim = 64) {
    attention::SpecChoice choice;
    choice.dtype = DType::f32;
    choice.head_dim_qk = head_dim;
    choice.head_dim_v = head_dim;
    auto chosen = attention::choose_spec(choice, Mask::causal().state(), nullptr);
    EXPECT_TRUE(chosen.has_value());
    return *chosen;
  }

  /// As a fresh process over the same folder.
  std::unique_ptr<attention::KernelProvider> provider() {
    auto cache = std::make_shared<cache::KernelCache>(cache::DiskStore(folder_.path() / "cache", log_), 1 << 20, log_);
    return std::make_unique<attention::KernelProvider>(backend_, std::move(cache),
                                                       attention::ProviderOptions{dumps_, log_});
  }

  /// Keeps `max_loaded` kernels, and no disk.
  std::unique_ptr<attention::KernelProvider> limited_to(std::size_t max_loaded) {
    auto cache = std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_);
    return std::make_unique<attention::KernelProvider>(backend_, std::move(cache),
                                                       attention::ProviderOptions{dumps_, log_, max_loaded});
  }

  /// By their extensions.
  static std::map<std::string, std::filesystem::path> dumped_files(const std::filesystem::path& folder) {
    std::map<std::string, std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(folder)) files[file.path().extension()] = file.path();
    return files;
  }
  static std::string text_of(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::unique_ptr<attention::KernelProvider> provider_with(attention::ProviderOptions options) {
    options.log = log_;
    auto cache = std::make_shared<cache::KernelCache>(cache::DiskStore(folder_.path() / "cache", log_), 1 << 20, log_);
    return std::make_unique<attention::KernelProvider>(backend_, std::move(cache), std::move(options));
  }

  const std::string expression_ = "k <= q and the_users_own";
  attention::UserText text_{&expression_, nullptr};
  PrivateFolder folder_;
  std::vector<std::filesystem::path> dumps_{folder_.path() / "dumps"};
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::vector<std::string> lines_;
  std::mutex lines_mutex_;
  LogSink log_ = [this](LogLevel, std::string_view line) {
    const std::scoped_lock lock(lines_mutex_);
    lines_.emplace_back(line);
  };
};

TEST_F(Provider, ASpecIsCompiledOnceAndThenWarm) {
  auto kernels = provider();
  const auto first = kernels->get(spec(), text_);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_FALSE(first->warm);
  const auto second = kernels->get(spec(), text_);
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(second->warm);
  EXPECT_EQ(first->ready, second->ready);
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_EQ(backend_->loads, 1);
  ASSERT_TRUE(kernels->get(spec(128), text_).has_value());
  EXPECT_EQ(backend_->loads, 2) << "another spec is another kernel";
}

// Field case F078.
TEST_F(Provider, ASecondProcessCompilesNothing) {
  ASSERT_TRUE(provider()->get(spec(), text_).has_value());
  const auto found = provider()->get(spec(), text_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_EQ(found->ready->outcome, cache::Outcome::disk);
  EXPECT_EQ(found->ready->metadata.spec, spec().to_text());
  EXPECT_EQ(found->ready->metadata.compiler, "fake 1.0");
  EXPECT_EQ(found->ready->metadata.report.milliseconds, 12.5);
  ASSERT_EQ(found->ready->metadata.report.entries.size(), 2U);
  EXPECT_EQ(found->ready->metadata.report.entries[1].name, "second");
  EXPECT_EQ(found->ready->metadata.report.entries[1].registers, 72);
}

// Field case F076.
TEST_F(Provider, AnotherCompilerOrOptionIsAnotherKey) {
  std::set<std::string> keys;
  const auto key = [&] { return provider()->get(spec(), text_)->ready->key.to_text(); };
  keys.insert(key());
  backend_->compiler = "fake 1.1";
  keys.insert(key());
  backend_->options = {"-O3"};
  keys.insert(key());
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_EQ(backend_->compiles, 3);
  backend_->compiler = "fake 1.0";
  backend_->options = {"-O2"};
  key();
  EXPECT_EQ(backend_->compiles, 3) << "undoing the change finds the first entry again";
}

TEST_F(Provider, ThreadsThatAskForOneSpecCompileItOnce) {
  auto kernels = provider();
  backend_->compile_time = std::chrono::milliseconds(30);
  constexpr int count = 8;
  std::barrier start(count);
  std::vector<std::shared_ptr<const attention::ReadyKernel>> ready(count);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < count; ++thread) {
      threads.emplace_back([&, thread] {
        start.arrive_and_wait();
        const auto provided = kernels->get(spec(), text_);
        if (provided) ready[static_cast<std::size_t>(thread)] = provided->ready;
      });
    }
  }
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_EQ(backend_->loads, 1);
  for (const auto& kernel : ready) EXPECT_EQ(kernel, ready.front());
  EXPECT_NE(ready.front(), nullptr);
}

kernel::KernelSpec hopper_spec() {
  attention::SpecChoice choice;
  choice.target = {DeviceKind::cuda, {90, 'a'}};
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 64;
  auto chosen = attention::choose_spec(choice, Mask::causal().state(), nullptr);
  EXPECT_EQ(chosen->family, kernel::KernelFamily::hopper);
  return *chosen;
}

kernel::KernelSpec last_fallback_of(kernel::KernelSpec spec) {
  while (auto next = kernel::fallback_of(spec)) spec = *std::move(next);
  return spec;
}

TEST_F(Provider, AKernelThatDoesNotFitItsRegistersIsReplacedForGoodWithAWarningForEachThatDidNot) {
  backend_->emitted = kernel::Language::cuda;
  backend_->spilling = kernel::KernelFamily::hopper;
  auto kernels = provider();
  const auto provided = kernels->get(hopper_spec(), text_);
  ASSERT_TRUE(provided.has_value()) << provided.error().message();
  EXPECT_EQ(provided->ready->spec, last_fallback_of(hopper_spec()));
  EXPECT_EQ(provided->ready->spec.family, kernel::KernelFamily::mma);
  EXPECT_EQ(provided->ready->metadata.spec, provided->ready->spec.to_text());
  EXPECT_EQ(backend_->compiles, 3) << "of another tile, and of another family";
  const auto warnings = std::ranges::count_if(
      lines_, [](const std::string& line) { return line.find("serves in its place") != std::string::npos; });
  EXPECT_EQ(warnings, 2);
  EXPECT_TRUE(std::ranges::none_of(lines_, [](const std::string& line) { return line.starts_with("compile failed"); }));
  EXPECT_FALSE(std::filesystem::exists(dumps_.front())) << "nothing failed that its user has to see";
  const auto again = kernels->get(hopper_spec(), text_);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->warm);
  EXPECT_EQ(again->ready, provided->ready);
  EXPECT_EQ(backend_->compiles, 3);
}

TEST_F(Provider, AKernelThatDoesNotFitItsRegistersAndHasNoFallbackIsAnError) {
  backend_->spilling = kernel::KernelFamily::mma;
  const auto failed = provider()->get(spec(), text_);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::kernel_spills);
  EXPECT_THAT(failed.error().detail, HasSubstr(expression_));
  backend_->emitted = kernel::Language::cuda;
  const auto replaced = provider()->get(last_fallback_of(hopper_spec()), text_);
  EXPECT_FALSE(replaced.has_value());
}

// Field case F079.
TEST_F(Provider, AnEntryThatTheDeviceRefusesIsRebuiltOnce) {
  ASSERT_TRUE(provider()->get(spec(), text_).has_value());
  backend_->load_failures = 1;
  const auto rebuilt = provider()->get(spec(), text_);
  ASSERT_TRUE(rebuilt.has_value()) << rebuilt.error().message();
  EXPECT_EQ(rebuilt->ready->outcome, cache::Outcome::built);
  EXPECT_EQ(backend_->compiles, 2);
  EXPECT_EQ(provider()->get(spec(), text_)->ready->outcome, cache::Outcome::disk) << "the new entry was stored";
}

// Field case F079.
TEST_F(Provider, ASecondRefusalIsTheErrorAndIsNotRemembered) {
  auto kernels = provider();
  backend_->load_failures = 2;
  const auto refused = kernels->get(spec(), text_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::device_error);
  EXPECT_EQ(refused.error().argument, "cuLibraryLoadData");
  EXPECT_THAT(refused.error().detail, HasSubstr(spec().summary()));
  EXPECT_EQ(backend_->compiles, 2);
  EXPECT_TRUE(kernels->get(spec(), text_).has_value());
}

TEST_F(Provider, ALoadThatFailsForAnotherReasonThanTheBinaryLeavesTheCacheAsItIs) {
  ASSERT_TRUE(provider()->get(spec(), text_).has_value());
  backend_->out_of_memory = true;
  const auto failed = provider()->get(spec(), text_);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::device_error);
  EXPECT_EQ(failed.error().got, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(backend_->compiles, 1);
  backend_->out_of_memory = false;
  EXPECT_EQ(provider()->get(spec(), text_)->ready->outcome, cache::Outcome::disk);
}

TEST_F(Provider, ARefusalIsTheErrorWhereNothingMayBeMadeInItsPlace) {
  ASSERT_TRUE(provider()->get(spec(), text_).has_value());
  backend_->load_failures = 1;
  const auto refused = provider()->get(spec(), text_, MissPolicy::refuse);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::device_error);
  EXPECT_EQ(refused.error().got, "CUDA_ERROR_NO_BINARY_FOR_GPU");
  EXPECT_THAT(refused.error().detail, HasSubstr("not made again"));
}

TEST_F(Provider, ACompileFailureShowsExpressionSpecLogAndSource) {
  auto kernels = provider();
  backend_->compile_failures = 1;
  const auto failed = kernels->get(spec(), text_);
  ASSERT_FALSE(failed.has_value());
  const std::string message = failed.error().message();
  EXPECT_EQ(failed.error().code, ErrorCode::compile_failed);
  EXPECT_THAT(message, HasSubstr(expression_));
  EXPECT_THAT(message, HasSubstr("spec: " + spec().summary()));
  EXPECT_THAT(message, HasSubstr("line 7: no such thing"));
  const auto dumped = dumped_files(dumps_.front());
  ASSERT_EQ(dumped.size(), 3U);
  const std::filesystem::path source = dumped.at(".ll"), spec_file = dumped.at(".spec");
  EXPECT_THAT(message, HasSubstr("source: " + source.string()));
  EXPECT_THAT(message, HasSubstr("to repeat it: flashspan compile --spec '" + spec_file.string() + "'"));
  EXPECT_EQ(text_of(source), attention::emit(kernel::Language::llvm_ir, spec())->flattened());
  EXPECT_EQ(*kernel::KernelSpec::from_text(text_of(spec_file)), spec());
  EXPECT_EQ(text_of(dumped.at(".log")), "line 7: no such thing");
  EXPECT_TRUE(kernels->get(spec(), text_).has_value()) << "a failure is not remembered";
}

TEST_F(Provider, AnExceptionOfTheCompilerIsAnErrorAndLeavesNobodyWaiting) {
  auto kernels = provider();
  backend_->throws = true;
  const auto failed = kernels->get(spec(), text_);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::compile_failed);
  EXPECT_THAT(failed.error().message(), HasSubstr("thrown by the compiler"));
  backend_->throws = false;
  EXPECT_TRUE(kernels->get(spec(), text_).has_value());
}

TEST_F(Provider, AKernelOfAnotherCompilerThanWasNamedIsKeptUnderThatOnesKey) {
  backend_->on_compile = [this] { backend_->compiler = "fake 2.0"; };
  const auto made = provider()->get(spec(), text_);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made->ready->metadata.compiler, "fake 2.0");
  EXPECT_EQ(backend_->compiles, 2);
  const auto found = provider()->get(spec(), text_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ready->outcome, cache::Outcome::disk);
  EXPECT_EQ(found->ready->key, made->ready->key);
  backend_->compiler = "fake 1.0";
  backend_->on_compile = nullptr;
  EXPECT_EQ(provider()->get(spec(), text_)->ready->outcome, cache::Outcome::built) << "it was kept under a wrong key";
}

TEST_F(Provider, TheSourceGoesToTheFirstFolderThatTakesIt) {
  std::ofstream(folder_.path() / "a-file") << "in the way";
  dumps_ = {folder_.path() / "a-file", folder_.path() / "second"};
  backend_->compile_failures = 1;
  const auto failed = provider()->get(spec(), text_);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().detail, HasSubstr((folder_.path() / "second").string()));
}

TEST_F(Provider, EveryCompileIsDumpedWholeIfAskedFor) {
  attention::ProviderOptions options;
  options.dump_all = folder_.path() / "all";
  const auto made = provider_with(options)->get(spec(), text_);
  ASSERT_TRUE(made.has_value());
  auto dumped = dumped_files(folder_.path() / "all");
  ASSERT_EQ(dumped.size(), 4U);
  for (const auto& [extension, file] : dumped) EXPECT_EQ(file.stem(), made->ready->key.to_text());
  EXPECT_EQ(text_of(dumped.at(".o")), spec().summary()) << "what the back end compiled";
  std::filesystem::remove_all(folder_.path() / "all");
  ASSERT_TRUE(provider_with(options)->get(spec(), text_).has_value());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "all")) << "what a cache has is not compiled";
}

TEST_F(Provider, ModulesOfOneCompileAreDumpedUnderTheNamesOfTheirPrograms) {
  const std::vector<backend::Module> modules{{"", {std::byte{'a'}}}, {"planner", {std::byte{'p'}, std::byte{'q'}}}};
  kernel::SourceText source;
  source.programs = {{"", "first\n", {}}, {"planner", "second\n", {}}};
  const std::string log;
  const auto folder = folder_.path() / "modules";
  ASSERT_TRUE(attention::dump_compile({source, spec(), log, modules}, "key", {folder}));
  EXPECT_EQ(text_of(folder / "key.cubin"), "a");
  EXPECT_EQ(text_of(folder / "key.planner.cubin"), "pq");
  EXPECT_THAT(text_of(folder / "key.cu"), HasSubstr("first\nsecond\n"));
}

TEST_F(Provider, ADumpFolderThatCannotBeWrittenToIsOneWarning) {
  std::ofstream(folder_.path() / "a-file") << "in the way";
  attention::ProviderOptions options;
  options.dump_all = folder_.path() / "a-file";
  const auto kernels = provider_with(options);
  ASSERT_TRUE(kernels->get(spec(), text_).has_value());
  ASSERT_TRUE(kernels->get(spec(128), text_).has_value());
  EXPECT_EQ(
      std::ranges::count_if(lines_, [](const std::string& line) { return line.starts_with("FLASHSPAN_DUMP_DIR"); }), 1);
}

TEST_F(Provider, HooksAreCalledAroundEveryCompileAndNothingElse) {
  std::vector<CompileEvent> before, after;
  attention::ProviderOptions options;
  options.hooks.before = [&](const CompileEvent& event) { before.push_back(event); };
  options.hooks.after = [&](const CompileEvent& event) { after.push_back(event); };
  backend_->compile_failures = 1;
  EXPECT_FALSE(provider_with(options)->get(spec(), text_).has_value());
  const auto made = provider_with(options)->get(spec(), text_);
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE(provider_with(options)->get(spec(), text_).has_value()) << "from disk";
  ASSERT_EQ(before.size(), 2U);
  ASSERT_EQ(after.size(), 2U);
  for (const auto& events : {before, after}) {
    EXPECT_EQ(events.back().spec, spec().summary());
    EXPECT_EQ(events.back().key, made->ready->key.to_text());
    EXPECT_EQ(events.front().key, events.back().key);
  }
  ASSERT_TRUE(after.front().error.has_value());
  EXPECT_EQ(after.front().error->code, ErrorCode::compile_failed);
  EXPECT_FALSE(after.back().error.has_value());
}

TEST_F(Provider, HooksComeInPairsWhenTheCompilerThrows) {
  int open = 0, ended = 0;
  attention::ProviderOptions options;
  options.hooks.before = [&](const CompileEvent&) { ++open; };
  options.hooks.after = [&](const CompileEvent& event) { ended += event.error.has_value() ? 1 : 0; };
  backend_->throws = true;
  EXPECT_FALSE(provider_with(options)->get(spec(), text_).has_value());
  EXPECT_EQ(open, 1);
  EXPECT_EQ(ended, 1);
}

TEST_F(Provider, CountsCompilesMissesAndWhereKernelsCameFrom) {
  attention::ProviderOptions options;
  const attention::Metrics& counted = *options.metrics;
  backend_->compile_failures = 1;
  EXPECT_FALSE(provider_with(options)->get(spec(), text_).has_value());
  ASSERT_TRUE(provider_with(options)->get(spec(), text_).has_value());
  ASSERT_TRUE(provider_with(options)->get(spec(), text_).has_value());
  backend_->options = {"-O3"};
  EXPECT_FALSE(provider_with(options)->get(spec(), text_, MissPolicy::refuse).has_value());
  EXPECT_EQ(counted.failed_compiles.value(), 1U);
  EXPECT_EQ(counted.compiles.value(), 1U);
  EXPECT_EQ(counted.compile_milliseconds.count(), 2U);
  EXPECT_EQ(counted.misses.value(), 3U);
  EXPECT_EQ(counted.refused.value(), 1U);
  EXPECT_EQ(counted.kernels[cache::Outcome::built].value(), 1U);
  EXPECT_EQ(counted.kernels[cache::Outcome::disk].value(), 1U);
  EXPECT_EQ(counted.kernels[cache::Outcome::memory].value(), 0U);
  EXPECT_EQ(counted.kernel_bytes[cache::Outcome::disk].value(), counted.kernel_bytes[cache::Outcome::built].value());
  EXPECT_GT(counted.kernel_bytes[cache::Outcome::disk].value(), spec().summary().size());
  EXPECT_EQ(counted.load_milliseconds.count(), 2U);
  EXPECT_EQ(counted.provide_milliseconds.count(), 2U);
}

TEST_F(Provider, EveryCompileIsOneLogLine) {
  ASSERT_TRUE(provider()->get(spec(), text_).has_value());
  ASSERT_EQ(lines_.size(), 1U);
  const auto key = provider()->get(spec(), text_)->ready->key.to_text();
  EXPECT_EQ(lines_.front(), spec().summary() + ", key " + key + ", built, 12.5 ms, 72 registers, 8 spill bytes");
}

/// Specs that differ in their mask: "k <= q + n" for every n.
kernel::KernelSpec spec_of_mask(int number) {
  const auto mask = Mask::parse("k <= q + " + std::to_string(number));
  EXPECT_TRUE(mask.has_value());
  attention::SpecChoice choice;
  choice.dtype = DType::f32;
  choice.head_dim_qk = choice.head_dim_v = 64;
  return *attention::choose_spec(choice, mask->state(), nullptr);
}

FakeKernel& fake(const Result<attention::KernelProvider::Provided>& provided) {
  return static_cast<FakeKernel&>(*provided->ready->kernel);
}

// Field case F087.
TEST_F(Provider, TwoThousandKernelsWithALimitOf64AreNeverMoreThan64AtOnce) {
  auto kernels = limited_to(64);
  for (int number = 1; number <= 2000; ++number) ASSERT_TRUE(kernels->get(spec_of_mask(number), text_).has_value());
  EXPECT_EQ(backend_->loads, 2000);
  EXPECT_EQ(backend_->live->most, 64);
  EXPECT_EQ(backend_->live->now, 64);
  kernels.reset();
  EXPECT_EQ(backend_->live->now, 0);
}

// Field case F087.
TEST_F(Provider, TheKernelLeastRecentlyUsedIsUnloadedAndComesBackFromTheCache) {
  auto kernels = limited_to(3);
  for (int number : {1, 2, 3, 1, 3}) ASSERT_TRUE(kernels->get(spec_of_mask(number), text_).has_value());
  ASSERT_TRUE(kernels->get(spec_of_mask(4), text_).has_value());
  EXPECT_EQ(kernels->find(spec_of_mask(2)), nullptr);
  for (int number : {1, 3, 4}) EXPECT_NE(kernels->find(spec_of_mask(number)), nullptr) << number;
  EXPECT_EQ(backend_->compiles, 4);
  const auto again = kernels->get(spec_of_mask(2), text_);
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->warm);
  EXPECT_EQ(again->ready->outcome, cache::Outcome::memory);
  EXPECT_EQ(backend_->compiles, 4) << "loaded again, not compiled again";
}

// Field case F087.
TEST_F(Provider, AKernelThatSomebodyHoldsOutlivesAllThatComeAfterIt) {
  auto kernels = limited_to(4);
  auto held = kernels->get(spec_of_mask(1), text_);
  ASSERT_TRUE(held.has_value());
  for (int number = 2; number <= 50; ++number) ASSERT_TRUE(kernels->get(spec_of_mask(number), text_).has_value());
  EXPECT_EQ(kernels->find(spec_of_mask(1)), held->ready);
  EXPECT_FALSE(fake(held).text.empty());
  EXPECT_EQ(backend_->live->now, 4) << "it counts";
  *held = {};
  for (int number = 51; number <= 100; ++number) ASSERT_TRUE(kernels->get(spec_of_mask(number), text_).has_value());
  EXPECT_EQ(kernels->find(spec_of_mask(1)), nullptr);
}

// Field case F087.
TEST_F(Provider, KernelsWithPendingLaunchesStayUntilTheirDeviceCanGiveThemUp) {
  auto kernels = limited_to(2);
  std::vector<FakeKernel*> busy;
  for (int number = 1; number <= 5; ++number) {
    const auto provided = kernels->get(spec_of_mask(number), text_);
    ASSERT_TRUE(provided.has_value());
    busy.push_back(&fake(provided));
    busy.back()->busy = true;
  }
  EXPECT_EQ(backend_->live->now, 5) << "more than the limit rather than an unload under a launch";
  for (FakeKernel* kernel : busy) kernel->busy = false;
  ASSERT_TRUE(kernels->get(spec_of_mask(6), text_).has_value());
  EXPECT_EQ(backend_->live->now, 2) << "back within the limit at once";
}

TEST_F(Provider, OnlyTheSecondHalfOfTheLimitIsFollowed) {
  auto kernels = limited_to(4);
  std::vector<bool> followed;
  for (int number = 1; number <= 6; ++number)
    followed.push_back(fake(kernels->get(spec_of_mask(number), text_)).followed);
  EXPECT_EQ(followed, (std::vector<bool>{false, false, true, true, true, true}));
}

TEST_F(Provider, ThreadsThatAskForMoreKernelsThanFitAllGetTheirs) {
  auto kernels = limited_to(4);
  constexpr int count = 8;
  std::atomic<int> right = 0;
  const auto ask = [&](int thread) {
    for (int step = 0; step < 100; ++step) {
      const kernel::KernelSpec wanted = spec_of_mask(1 + (step * 7 + thread) % 12);
      const auto provided = kernels->get(wanted, text_);
      if (provided && fake(provided).text == wanted.summary()) ++right;
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(count);
  for (int thread = 0; thread < count; ++thread) threads.emplace_back(ask, thread);
  threads.clear();
  EXPECT_EQ(right, count * 100);
  ASSERT_TRUE(kernels->get(spec_of_mask(100), text_).has_value());
  EXPECT_LE(backend_->live->now, 4);
}

TEST(KernelMetadata, SurvivesARoundTripAndRefusesOtherText) {
  attention::KernelMetadata metadata;
  metadata.spec = "direction = forward\nmask = \"x\"\n";
  metadata.summary = "forward";
  metadata.target = "sm_90a";
  metadata.compiler = "nvrtc 13.0";
  metadata.options = {"-a", "-b=c d"};
  metadata.report.milliseconds = 0.1;
  metadata.report.entries = {{"entry", 255, 1 << 16, 3, 4}};
  metadata.created_unix_seconds = 1700000000;
  const std::string text = attention::to_text(metadata);
  const auto read = attention::metadata_from_text(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(attention::to_text(*read), text);
  EXPECT_EQ(read->report.entries[0].shared_bytes, 1 << 16);
  for (const char* other : {"", "{}", "[1]", "no json", R"({"spec": 3})"}) {
    EXPECT_FALSE(attention::metadata_from_text(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace flashspan::testing
