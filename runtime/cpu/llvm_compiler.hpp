// llvm_compiler.hpp -- LLVM, all of it: IR text to a relocatable object for this machine, and objects into memory.
// No other file of the project includes an LLVM header.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::cpu {

/// The machine that objects are made for.
struct HostMachine {
  std::string cpu;       ///< LLVM's name, "znver5"
  std::string features;  ///< "+avx512f,-amx-tile,...", sorted
  std::string triple;
  int vector_lanes = 4;  ///< fp32 lanes of the widest register
};
[[nodiscard]] const HostMachine& host_machine();

/// "19.1.7"
[[nodiscard]] std::string llvm_version();

/// Parses, verifies, optimises (O3) and compiles `text`. Thread-safe: each call has a context of its own.
/// Error: compile_failed with LLVM's message.
[[nodiscard]] Result<std::vector<std::byte>> compile_ir(const std::string& text);

/// An object's code in executable memory; freed on destruction.
class LoadedObject {
 public:
  /// Error: device_error if the bytes are no object for this machine or need an unknown symbol.
  static Result<LoadedObject> load(const std::vector<std::byte>& object);
  LoadedObject(LoadedObject&&) noexcept;
  LoadedObject& operator=(LoadedObject&&) noexcept;
  ~LoadedObject();

  /// Address of a function, or null.
  [[nodiscard]] void* address(const std::string& name) const;

 private:
  struct State;
  explicit LoadedObject(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace flashspan::cpu
