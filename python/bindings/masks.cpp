// masks.cpp -- Mask and Score. They borrow the tensors they are given: the package keeps those alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "flashspan/mask.hpp"
#include "python/bindings/errors.hpp"
#include "python/bindings/parts.hpp"
#include "python/bindings/tensors.hpp"

namespace flashspan::python {

namespace {

using Tensors = std::vector<std::pair<std::string, TensorTuple>>;
using Scalars = std::map<std::string, std::variant<std::int64_t, double>>;

std::vector<NamedTensor> named_tensors(const Tensors& tensors) {
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, view_of(tensor, name.c_str())});
  return named;
}

std::vector<NamedScalar> named_scalars(const Scalars& scalars) {
  std::vector<NamedScalar> named;
  for (const auto& [name, value] : scalars) named.push_back({name, value});
  return named;
}

template <typename Program>
Program parse(const std::string& text, const Tensors& tensors, const Scalars& scalars) {
  return value_of(Program::parse(text, named_tensors(tensors), named_scalars(scalars)));
}

void bind_builders(nanobind::class_<Mask>& mask) {
  mask.def_static("flashmask", [](const ShapeTuple& shape, const TensorTuple& rows, bool causal) {
    return value_of(Mask::flashmask(shape_of(shape), view_of(rows, "startend_row_indices"), causal));
  });
  mask.def_static("key_ranges", [](const ShapeTuple& shape, const TensorTuple& ranges) {
    return value_of(Mask::key_ranges(shape_of(shape), view_of(ranges, "ranges")));
  });
  mask.def_static("key_ranges_csr", [](const ShapeTuple& shape, const TensorTuple& offsets, const TensorTuple& ranges) {
    return value_of(Mask::key_ranges_csr(shape_of(shape), view_of(offsets, "offsets"), view_of(ranges, "ranges")));
  });
  mask.def_static("slices", [](const ShapeTuple& shape, const TensorTuple& q_ranges, const TensorTuple& k_ranges,
                               const TensorTuple& types) {
    return value_of(Mask::slices(shape_of(shape), view_of(q_ranges, "q_ranges"), view_of(k_ranges, "k_ranges"),
                                 view_of(types, "types")));
  });
  mask.def_static(
      "scfa_index", [](const ShapeTuple& shape, const TensorTuple& q_idx, const TensorTuple& k_idx, bool strict) {
        return value_of(Mask::scfa_index(shape_of(shape), view_of(q_idx, "q_idx"), view_of(k_idx, "k_idx"), strict));
      });
  mask.def_static("scfa_hash", [](const ShapeTuple& shape, const TensorTuple& q_idx, const TensorTuple& k_idx,
                                  const TensorTuple& q_hash, const TensorTuple& k_hash, bool strict) {
    return value_of(Mask::scfa_hash(shape_of(shape), view_of(q_idx, "q_idx"), view_of(k_idx, "k_idx"),
                                    view_of(q_hash, "q_hash"), view_of(k_hash, "k_hash"), strict));
  });
  mask.def_static(
      "block_list",
      [](const ShapeTuple& shape, const TensorTuple& counts, const TensorTuple& indices, std::int64_t block_q,
         std::int64_t block_k, const Mask* predicate) {
        return value_of(Mask::block_list(shape_of(shape), view_of(counts, "counts"), view_of(indices, "indices"),
                                         block_q, block_k, predicate));
      },
      nanobind::arg(), nanobind::arg(), nanobind::arg(), nanobind::arg(), nanobind::arg(), nanobind::arg().none());
}

}  // namespace

void bind_masks(nanobind::module_& module) {
  nanobind::class_<Mask> mask(module, "Mask");
  mask.def_static("parse", &parse<Mask>);
  bind_builders(mask);
  mask.def("both", [](const Mask& left, const Mask& right) { return left & right; });
  mask.def("either", [](const Mask& left, const Mask& right) { return left | right; });
  mask.def("inverse", [](const Mask& mask) { return ~mask; });
  mask.def("text", &Mask::text);

  nanobind::class_<Score> score(module, "Score");
  score.def_static("parse", &parse<Score>);
  score.def("text", &Score::text);

  module.def("named_mask_help", &named_mask_help);
}

}  // namespace flashspan::python
