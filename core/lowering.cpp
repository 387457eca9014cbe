#include "flashspan/core/lowering.hpp"

namespace flashspan {

const char* to_string(LoweringKind kind) {
  switch (kind) {
    case LoweringKind::none:
      return "none";
    case LoweringKind::row_ranges:
      return "row_ranges";
    case LoweringKind::column_bounds:
      return "column_bounds";
    case LoweringKind::bit_tiles:
      return "bit_tiles";
    case LoweringKind::expression:
      return "expression";
    case LoweringKind::interpreted:
      return "interpreted";
  }
  return "unknown";
}

std::optional<LoweringKind> lowering_from_string(std::string_view text) {
  for (LoweringKind kind : {LoweringKind::none, LoweringKind::row_ranges, LoweringKind::column_bounds,
                            LoweringKind::bit_tiles, LoweringKind::expression, LoweringKind::interpreted}) {
    if (text == to_string(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace flashspan
