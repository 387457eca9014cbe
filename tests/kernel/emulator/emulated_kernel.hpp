// emulated_kernel.hpp -- a kernel module compiled for the host with device.hpp, ready to run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "codegen/kernel/source_text.hpp"
#include "flashspan/core/error.hpp"

namespace flashspan::test {

/// In which a grid's blocks run, one after another.
enum class BlockOrder { first_first, last_first };

class EmulatedKernel {
 public:
  /// Takes a second or two, once per text and process. Error: compile_failed with the compiler's messages.
  static Result<EmulatedKernel> compile(const kernel::SourceText& source);

  /// Runs one entry point on `blocks` blocks of `threads` threads. `arguments` as for cuLaunchKernel. "" or what went
  /// wrong.
  [[nodiscard]] std::string run(const std::string& entry, long long blocks, int threads,
                                std::span<void* const> arguments, BlockOrder order = BlockOrder::first_first) const;
  /// Extra passes over shared memory that all runs so far took.
  [[nodiscard]] long long bank_conflicts() const;

 private:
  explicit EmulatedKernel(std::shared_ptr<void> library) : library_(std::move(library)) {}

  std::shared_ptr<void> library_;
};

/// The kernel's text, flat, with the emulator's instructions in place of the device's. Stands behind device.hpp.
[[nodiscard]] std::string for_the_emulator(kernel::SourceText source);
/// C++ source, behind the header of this folder that `device` names, compiled by the build's compiler into a library
/// that is opened. On disk it is kept for other processes where FLASHSPAN_TESTS_CACHE_DIR is set, and deleted
/// otherwise. Error: compile_failed with the compiler's messages.
[[nodiscard]] Result<std::shared_ptr<void>> compile_for_host(const char* device, const std::string& source);
/// Address of an exported function; null if there is none.
[[nodiscard]] void* symbol(const std::shared_ptr<void>& library, const char* name);

}  // namespace flashspan::test
