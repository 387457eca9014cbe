// build_turn.hpp -- BuildTurn: of the processes of a machine that want to build one key, one does, and the others wait.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "cache/file_lock.hpp"

namespace flashspan::cache {

/// Lasts as long as the object. Nothing depends on it but how often a key is built: whoever gets no turn may build all
/// the same.
class BuildTurn {
 public:
  enum class Wait { over, too_long, impossible };

  /// Waits until no other process has the turn that stands for `path`, a file that exists while somebody has it or
  /// waits; at most `longest_wait`. impossible: the file cannot be made, or its file system has no locks.
  BuildTurn(std::filesystem::path path, std::chrono::milliseconds longest_wait);
  /// Removes the file, and lets the next one have the turn.
  ~BuildTurn();
  BuildTurn(const BuildTurn&) = delete;
  BuildTurn& operator=(const BuildTurn&) = delete;

  [[nodiscard]] Wait wait() const { return wait_; }

 private:
  [[nodiscard]] Wait take(std::chrono::steady_clock::time_point deadline);

  std::filesystem::path path_;
  std::optional<FileLock> lock_;
  Wait wait_;
};

/// Removes the files of turns that nobody has; a process that was killed leaves its own.
void remove_old_turns(const std::filesystem::path& folder);

}  // namespace flashspan::cache
