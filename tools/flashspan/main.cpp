// main.cpp -- the flashspan command: parses the command line and runs the chosen command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "flashspan/mask.hpp"
#include "tools/flashspan/commands/commands.hpp"

namespace {

using flashspan::tool::ChosenCommand;
using flashspan::tool::ExitCode;

/// The command line as the library reports its errors: one line.
ExitCode report_usage_error(const CLI::ParseError& error) {
  std::string text = error.what();
  text.erase(text.find_last_not_of('\n') + 1);
  for (char& letter : text) {
    if (letter == '\n') letter = ' ';
  }
  std::fprintf(stderr, "flashspan: %s (flashspan COMMAND --help tells more)\n", text.c_str());
  return ExitCode::bad_input;
}

ExitCode run(int argc, char** argv) {
  CLI::App application("Attention under any mask: run it, explain it, draw it, compile it.", "flashspan");
  application.require_subcommand(0, 1);
  bool list_masks = false;
  application.add_flag("--list-masks", list_masks, "List the named masks and exit");
  ChosenCommand chosen;
  flashspan::tool::add_attend(application, chosen);
  flashspan::tool::add_explain(application, chosen);
  flashspan::tool::add_picture(application, chosen);
  flashspan::tool::add_compile(application, chosen);
  flashspan::tool::add_tune(application, chosen);
  flashspan::tool::add_cache(application, chosen);
  flashspan::tool::add_bundle(application, chosen);
  flashspan::tool::add_serve(application, chosen);
  flashspan::tool::add_doctor(application, chosen);
  application.footer("Exit codes: 0 ok, 2 bad input, 3 no device or missing component, 4 compile failure.");
  try {
    application.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return static_cast<ExitCode>(application.exit(success));
  } catch (const CLI::ParseError& error) {
    return report_usage_error(error);
  }
  if (list_masks) {
    std::printf("%s", flashspan::named_mask_help().c_str());
    return ExitCode::ok;
  }
  if (!chosen) {
    std::fprintf(stderr, "%s", application.help().c_str());
    return ExitCode::bad_input;
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(run(argc, argv));
  } catch (const std::exception& error) {  // out of memory, and what a library below throws
    std::fprintf(stderr, "flashspan: %s\n", error.what());
    return static_cast<int>(ExitCode::bad_input);
  }
}
