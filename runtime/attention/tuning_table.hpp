// tuning_table.hpp -- results of tuning as lines of text, merged, and as the table that calls take their tiles from.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/tuning_record.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

/// Sizes that are tuned as one: the nearest powers of two.
struct ShapeClass {
  int heads = 0;  ///< log2 of batch times query heads
  int queries = 0;
  int keys = 0;
  friend bool operator==(const ShapeClass&, const ShapeClass&) = default;
};
[[nodiscard]] ShapeClass shape_class(const AttentionShape& shape);
/// Doublings and halvings from one to the other.
[[nodiscard]] int distance(const ShapeClass& a, const ShapeClass& b);

/// The spec with a tile that says nothing: what results are found by.
[[nodiscard]] kernel::KernelSpec tuned_family(kernel::KernelSpec spec);

/// One line of JSON, without its end.
[[nodiscard]] std::string to_line(const TuningRecord& record);
/// Nothing for a line of another form, or whose spec is none.
[[nodiscard]] std::optional<TuningRecord> record_from_line(const std::string& line);
[[nodiscard]] std::vector<TuningRecord> records_from_text(const std::string& text);

/// `text` and the records, a line each: of those for one kernel, mask, class of shapes, device, compiler and driver the
/// newest. Lines that are no records stay as they are, at the start.
[[nodiscard]] std::string merged_text(const std::string& text, const std::vector<TuningRecord>& records);

/// Those of a device of this name and size. `compiler`: nothing, if none can be opened; results of any then count, else
/// those of this one alone, since a tile that fits its registers may spill with another.
[[nodiscard]] std::vector<TuningRecord> records_of_device(std::vector<TuningRecord> records,
                                                          const backend::DeviceFacts& facts,
                                                          const std::optional<std::string>& compiler);

/// Never changes once it is made.
class TunedTiles {
 public:
  struct Found {
    TileConfig tile;
    bool same_class = false;  ///< of shapes; else the nearest
    TuningRecord record;
  };

  /// Records whose tile this build's kernels do not take are left out.
  explicit TunedTiles(const std::vector<TuningRecord>& records);
  [[nodiscard]] bool empty() const { return families_.empty(); }
  /// Gives the spec the tuned tile, where there is one. For the path of every call: copies nothing.
  void choose(kernel::KernelSpec& spec, const AttentionShape& shape) const;
  /// The tiles of all results for the spec's kernel, each once, whatever their sizes and devices.
  [[nodiscard]] std::vector<TileConfig> tiles_of(const kernel::KernelSpec& spec) const;
  [[nodiscard]] std::optional<Found> find(const kernel::KernelSpec& spec, const AttentionShape& shape) const;

 private:
  struct Result {
    ShapeClass sizes;
    TuningRecord record;
  };
  /// `family`: tuned_family() of a spec.
  [[nodiscard]] const Result* nearest(const kernel::KernelSpec& family, const ShapeClass& sizes) const;

  std::unordered_map<kernel::KernelSpec, std::vector<Result>, kernel::KernelSpecHash> families_;
};

}  // namespace flashspan::attention
