// c_program.hpp -- recorded calls, one for each architecture, written down as a C program of one function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "flashspan/emit.hpp"
#include "runtime/cuda/launch_recorder.hpp"

namespace flashspan::api {

/// An argument of the function. Where its value goes in a launch's parameters is found by the address that stood for
/// it, or told by its place.
struct CArgument {
  enum class Kind { memory, integer, real };
  Kind kind = Kind::memory;
  std::string name;
  std::string comment;
  /// Of a number: the parameter of every launch that takes it, and where in it.
  int parameter = 0;
  std::size_t offset = 0;
};

/// The address that stands for the argument of a place in the list while a call is recorded: no two reach one another,
/// and no other number in a launch's parameters looks like one.
[[nodiscard]] std::uintptr_t recorded_address(std::size_t argument);

/// The argument that an address stands for, and how far behind its start.
struct RecordedPlace {
  std::size_t argument;
  std::uint64_t addend;
};
/// Nothing for a word that stands for none of so many arguments.
[[nodiscard]] std::optional<RecordedPlace> place_of(std::uint64_t word, std::size_t arguments);

/// What one architecture runs.
struct CImage {
  Arch arch{};
  std::vector<std::vector<std::byte>> modules;  ///< cubins
  cuda::Recording recording;
  std::int64_t workspace_bytes = 0;
  /// Entries of which a block takes item after item: no more blocks than processors.
  std::vector<std::string> persistent_entries;
};

struct CProgramDescription {
  std::string name;
  std::string about;                 ///< lines of a comment: mask, sizes
  std::vector<CArgument> arguments;  ///< the workspace last
  std::vector<CImage> images;
};

[[nodiscard]] EmittedProgram write_c_program(const CProgramDescription& program);

}  // namespace flashspan::api
