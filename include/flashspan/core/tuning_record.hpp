// tuning_record.hpp -- TuningRecord: which tile was the fastest for a kernel, on which machine, for which sizes.
#pragma once

#include <string>

#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// One line of a tuning file.
struct TuningRecord {
  std::string spec;  ///< KernelSpec text with the best tile: kernel, mask and score programs
  AttentionShape shape;
  std::string device;  ///< its name
  int processors = 0;  ///< its multiprocessors, or the threads that a CPU's tiles are spread over
  std::string compiler;
  std::string driver;
  TileConfig tile;
  double milliseconds = 0;
  TileConfig default_tile;
  double default_milliseconds = 0;
  int candidates = 0;  ///< that were measured
  std::string date;    ///< UTC, "2026-11-30T08:15:00Z"
};

}  // namespace flashspan
#pragma GCC visibility pop
