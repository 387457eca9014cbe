// How the blocks of a grid share work that all of them wait for: each block a thread of the host, from whatever a
// workspace may hold.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "codegen/kernel/template_library.hpp"
#include "tests/kernel/emulator/emulated_kernel.hpp"

namespace flashspan::test {
namespace {

using Word = unsigned long long;

/// WorkShares of templates/plan/work_shares.cuh, as functions of plain C.
constexpr const char* functions = R"(
#include "plan/work_shares.cuh"
using flashspan_device::WorkShares;

#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED int first_share(unsigned long long* word, int count) { return WorkShares{word, count}.first(); }
EXPORTED int next_share(unsigned long long* word, int count) { return WorkShares{word, count}.next(); }
EXPORTED void wait_for_all(unsigned long long* word, int count) { WorkShares{word, count}.wait_for_all(); }
)";

class SharedWork : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    kernel::SourceText source;
    source.programs.push_back({"", functions, {}});
    for (const kernel::TemplateFile& file : kernel::template_library()) {
      source.files.push_back({std::string(file.name), std::string(file.text)});
    }
    const auto library = compile_for_host("concurrent_device.hpp", for_the_emulator(source));
    ASSERT_TRUE(library) << library.error().message();
    library_ = *library;
  }
  static void TearDownTestSuite() { library_.reset(); }

  /// A grid of so many blocks, whose work is to count how often each share is done.
  class Grid {
   public:
    Grid(Word& word, int blocks) : word_(word), blocks_(blocks), done_(static_cast<std::size_t>(blocks)) {}

    /// Lets `count` of the blocks run, at the same time, to their ends.
    void run_blocks(int count) {
      std::vector<std::thread> running;
      std::latch all_here(count);
      for (int i = 0; i < count; ++i) {
        running.emplace_back([this, &all_here] {
          all_here.count_down();
          while (!all_here.try_wait()) std::this_thread::yield();  // asleep, they would wake one by one
          run_block();
        });
      }
      for (std::thread& block : running) block.join();
    }
    /// Of blocks that came to an end.
    [[nodiscard]] int that_found_all_done_once() const { return found_all_done_once_; }

   private:
    void run_block() {
      const auto first = reinterpret_cast<int (*)(Word*, int)>(symbol(library_, "first_share"));
      const auto next = reinterpret_cast<int (*)(Word*, int)>(symbol(library_, "next_share"));
      const auto wait = reinterpret_cast<void (*)(Word*, int)>(symbol(library_, "wait_for_all"));
      for (int share = first(&word_, blocks_); share < blocks_; share = next(&word_, blocks_)) {
        std::this_thread::yield();  // to one that may have to wait
        done_[static_cast<std::size_t>(share)].fetch_add(1, std::memory_order_relaxed);
      }
      wait(&word_, blocks_);
      bool once = true;
      for (const std::atomic<int>& times : done_) once = once && times.load(std::memory_order_relaxed) == 1;
      if (once) ++found_all_done_once_;
    }

    Word& word_;
    int blocks_;
    std::vector<std::atomic<int>> done_;
    std::atomic<int> found_all_done_once_ = 0;
  };

  /// Runs all blocks of a grid.
  static void expect_done(Word& word, int blocks) {
    Grid grid(word, blocks);
    grid.run_blocks(blocks);
    ASSERT_EQ(grid.that_found_all_done_once(), blocks);
  }

  inline static std::shared_ptr<void> library_;
};

TEST_F(SharedWork, IsDoneOnceBeforeAnyBlockGoesOnWhateverTheWordHeld) {
  std::mt19937_64 random(7);
  for (const int blocks : {1, 2, 5, 32}) {
    SCOPED_TRACE(blocks);
    std::vector<Word> held{0, ~Word{0}, 1, 0x7fffffff7fffffff, 0xffb57fad00000000};
    for (int i = 0; i < 40; ++i) held.push_back(random());
    for (Word word : held) expect_done(word, blocks);
  }
}

TEST_F(SharedWork, LeavesItsWordToGridsOfAnySize) {
  Word word = 0xffffffffffffffff;
  for (int round = 0; round < 20; ++round) {
    for (const int blocks : {32, 1, 7, 7}) expect_done(word, blocks);
  }
}

TEST_F(SharedWork, IsDoneByTheBlocksThatRunWhereOthersHaveNotStarted) {
  for (Word word : {Word{0}, ~Word{0}}) {
    Grid grid(word, 9);
    grid.run_blocks(4);
    EXPECT_EQ(grid.that_found_all_done_once(), 4);
    grid.run_blocks(1);
    grid.run_blocks(4);
    EXPECT_EQ(grid.that_found_all_done_once(), 9);
    expect_done(word, 3);
  }
}

}  // namespace
}  // namespace flashspan::test
