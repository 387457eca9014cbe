// process.cpp -- posix_spawn with standard output and error in files.
#include "process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace cli_test {

std::vector<std::string> Outcome::error_lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("flashspan: ")) lines.push_back(line);
  }
  return lines;
}

Outcome run_program(const std::vector<std::string>& arguments, const Environment& environment) {
  const Folder folder;
  const std::string out = folder / "out", err = folder / "err";
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    bool replaced = false;
    for (const auto& [name, value] : environment) replaced = replaced || text.starts_with(name + "=");
    if (!replaced) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(std::string(name).append("=").append(value));

  std::vector<char*> argument_pointers, variable_pointers;
  for (const std::string& argument : arguments) argument_pointers.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : variables) variable_pointers.push_back(const_cast<char*>(variable.c_str()));
  argument_pointers.push_back(nullptr);
  variable_pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int write_flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), write_flags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), write_flags, 0600);
  pid_t child = 0;
  Outcome outcome;
  const int failure = ::posix_spawn(&child, arguments.front().c_str(), &actions, nullptr, argument_pointers.data(),
                                    variable_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return outcome;
  int status = 0;
  ::waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(out);
  outcome.err = read_text(err);
  return outcome;
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "flashspan-cli-XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
}

}  // namespace cli_test
