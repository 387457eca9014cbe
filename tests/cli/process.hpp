// process.hpp -- runs a program to its end and keeps what it printed; a scratch folder for its files.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace cli_test {

struct Outcome {
  int exit_code = -1;  ///< 128 + the signal's number if one ended the program
  std::string out, err;
  /// `out` as JSON; discarded if it is not.
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
  /// The lines of `err` that begin with "flashspan: ".
  [[nodiscard]] std::vector<std::string> error_lines() const;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Runs `arguments` with this process's environment and `environment` on top of it.
[[nodiscard]] Outcome run_program(const std::vector<std::string>& arguments, const Environment& environment = {});

/// A folder of the test's own, removed with what it holds.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace cli_test
