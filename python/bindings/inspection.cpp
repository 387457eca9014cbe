// inspection.cpp -- explanations, tile maps, the machine, metrics. Results are plain dictionaries that the package
// gives a form, or text.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "flashspan/inspect.hpp"
#include "flashspan/metrics.hpp"
#include "python/bindings/errors.hpp"
#include "python/bindings/parts.hpp"
#include "python/bindings/tensors.hpp"

namespace flashspan::python {

namespace {

nanobind::dict dictionary_of(const TileMap& tiles) {
  nanobind::dict fields;
  fields["block_m"] = tiles.block_m;
  fields["block_n"] = tiles.block_n;
  fields["rows"] = tiles.rows;
  fields["columns"] = tiles.columns;
  fields["kinds"] = nanobind::bytes(tiles.kinds.data(), tiles.kinds.size());
  fields["empty"] = tiles.empty;
  fields["full"] = tiles.full;
  fields["partial"] = tiles.partial;
  fields["visible_pairs"] = tiles.visible_pairs;
  fields["undecided_by_analysis"] = tiles.undecided_by_analysis;
  return fields;
}

nanobind::dict dictionary_of(const DirectionPlan& plan) {
  nanobind::dict fields;
  fields["direction"] = to_string(plan.direction);
  fields["lowering"] = plan.lowering;
  fields["lowering_reason"] = plan.lowering_reason;
  fields["kernel_family"] = plan.kernel_family;
  fields["kernel_family_reason"] = plan.kernel_family_reason;
  fields["tile"] = plan.tile;
  fields["tile_reason"] = plan.tile_reason;
  fields["spec"] = plan.spec;
  fields["block_m"] = plan.block_m;
  fields["block_n"] = plan.block_n;
  fields["flops"] = plan.flops;
  return fields;
}

nanobind::dict dictionary_of(const Explanation& explanation) {
  nanobind::list directions;
  for (const DirectionPlan& plan : explanation.directions) directions.append(dictionary_of(plan));
  nanobind::dict fields;
  fields["program"] = explanation.program;
  fields["score"] = explanation.score;
  fields["score_derivative"] = explanation.score_derivative;
  fields["depends_on"] = explanation.depends_on;
  fields["tiles"] = dictionary_of(explanation.tiles);
  fields["density"] = explanation.density;
  fields["directions"] = directions;
  return fields;
}

nanobind::dict explain_mask(const Mask& mask, const Score* score, const ShapeTuple& shape, const std::string& dtype,
                            const std::optional<std::string>& arch) {
  std::optional<Arch> target;
  if (arch) {
    target = arch_from_string(*arch);
    if (!target) throw Failure({ErrorCode::bad_argument, "arch", *arch, "a name such as sm_80 or sm_90a", ""});
  }
  return dictionary_of(value_of(explain(mask, score, shape_of(shape), dtype_of(dtype), target)));
}

nanobind::dict tile_map_of(const Mask& mask, const ShapeTuple& shape, std::int64_t batch, std::int64_t head,
                           std::int64_t block_m, std::int64_t block_n) {
  return dictionary_of(value_of(tile_map(mask, shape_of(shape), batch, head, block_m, block_n)));
}

nanobind::list findings(const std::optional<std::string>& cache_dir) {
  nanobind::list found;
  for (const Finding& finding : examine_machine(cache_dir)) {
    nanobind::dict fields;
    fields["subject"] = finding.subject;
    fields["ok"] = finding.ok;
    fields["detail"] = finding.detail;
    fields["remedy"] = finding.remedy;
    found.append(fields);
  }
  return found;
}

}  // namespace

void bind_inspection(nanobind::module_& module) {
  using nanobind::arg;
  module.def("explain", &explain_mask, arg("mask"), arg("score").none(), arg("shape"), arg("dtype"),
             arg("arch").none());
  module.def("tile_map", &tile_map_of);
  module.def("metrics", &metrics_text);
  module.def("findings", &findings, arg("cache_dir").none());
}

}  // namespace flashspan::python
