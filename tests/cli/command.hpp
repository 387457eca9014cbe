// command.hpp -- runs the flashspan command that this build made.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "process.hpp"

namespace cli_test {

[[nodiscard]] inline Outcome run_command(std::vector<std::string> arguments, const Environment& environment = {}) {
  arguments.insert(arguments.begin(), FLASHSPAN_COMMAND);
  return run_program(arguments, environment);
}

}  // namespace cli_test
