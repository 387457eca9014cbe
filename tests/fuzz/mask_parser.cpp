// mask_parser.cpp -- any text is refused or a program whose canonical text reads back as the same program.
#include <cstddef>
#include <cstdint>
#include <string>

#include "codegen/mask/parser.hpp"
#include "codegen/mask/program.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using flashspan::fuzz::require;
  using flashspan::mask::Program;
  const std::string text(reinterpret_cast<const char*>(bytes), count);
  const auto program = Program::from_signature(text);
  if (!program) {
    require(!program.error().message().empty(), "an error has a message");
    return 0;
  }
  const std::string signature = program->to_signature();
  const auto again = Program::from_signature(signature);
  require(again.has_value(), "canonical text reads");
  require(again->to_signature() == signature, "canonical text is a fixed point");
  return 0;
}
