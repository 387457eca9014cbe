// commands.hpp -- one function per command: adds it to the command line and, when it is chosen, runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tools/flashspan/report.hpp"

namespace flashspan::tool {

/// Runs the chosen command; set while the command line is parsed, called after it.
using ChosenCommand = std::function<ExitCode()>;

void add_attend(CLI::App& application, ChosenCommand& chosen);
void add_explain(CLI::App& application, ChosenCommand& chosen);
void add_picture(CLI::App& application, ChosenCommand& chosen);
void add_compile(CLI::App& application, ChosenCommand& chosen);
void add_tune(CLI::App& application, ChosenCommand& chosen);
void add_cache(CLI::App& application, ChosenCommand& chosen);
void add_bundle(CLI::App& application, ChosenCommand& chosen);
void add_serve(CLI::App& application, ChosenCommand& chosen);
void add_doctor(CLI::App& application, ChosenCommand& chosen);

}  // namespace flashspan::tool
