// mask_key_ranges.cpp -- key ranges per query, dense and in CSR form, as programs.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/mask/visible_ranges.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/mask_tensors.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

/// Neighbours along the last axis must ascend and stay within the list of ranges.
api::ValueRule offset_rule(const TensorView& offsets, std::int64_t range_count) {
  const std::int64_t entries = offsets.shape[2];
  const std::int64_t stride = offsets.strides[2];
  const std::string takes = "ascending positions within [0, N = " + std::to_string(range_count) + "]";
  return {"offsets", takes, 2, [=](const std::int32_t* first) -> std::optional<std::string> {
            std::int64_t previous = 0;
            for (std::int64_t entry = 0; entry < entries; ++entry) {
              const std::int32_t position = first[entry * stride];
              if (position < previous || position > range_count) {
                return std::to_string(position) + " at entry " + std::to_string(entry) +
                       (position < previous ? " after " + std::to_string(previous) : "");
              }
              previous = position;
            }
            return std::nullopt;
          }};
}

}  // namespace

Result<Mask> Mask::key_ranges(const AttentionShape& shape, const TensorView& ranges) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const attention::TensorRule rule{
      "ranges",
      DType::i32,
      {attention::mask_batch(shape), attention::mask_heads(shape), attention::exactly("Sq", shape.q_len),
       attention::any_length("R"), attention::one_of({2})}};
  if (auto checked = attention::check_tensor(rule, ranges); !checked) return checked.error();
  if (auto values = api::check_values(api::range_rule("ranges", ranges, shape.kv_len), ranges); !values) {
    return values.error();
  }
  const api::HeadedTensor headed = api::read_headed("ranges", ranges, shape);
  const std::string row = "ranges[" + headed.batch_and_head + ", q, r, ";
  const std::int64_t count = ranges.shape[3];
  // Kernels can take a few ranges as such if they know how many; of more, a new number compiles nothing.
  const bool few = count <= static_cast<std::int64_t>(mask::max_visible_ranges);
  std::vector<NamedScalar> scalars;
  if (!few) scalars.push_back({"range_count", count});
  return api::build_mask("any(" + row + "0] <= k < " + row + "1] for r in range(0, " +
                             (few ? std::to_string(count) : "range_count") + "))",
                         api::data_of({headed}, scalars, shape), shape);
}

Result<Mask> Mask::key_ranges_csr(const AttentionShape& shape, const TensorView& offsets, const TensorView& ranges) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const attention::TensorRule offsets_rule{
      "offsets",
      DType::i32,
      {attention::mask_batch(shape), attention::mask_heads(shape), attention::exactly("Sq + 1", shape.q_len + 1)}};
  const attention::TensorRule ranges_rule{"ranges", DType::i32, {attention::any_length("N"), attention::one_of({2})}};
  if (auto checked = attention::check_tensor(offsets_rule, offsets); !checked) return checked.error();
  if (auto checked = attention::check_tensor(ranges_rule, ranges); !checked) return checked.error();
  if (auto values = api::check_values(offset_rule(offsets, ranges.shape[0]), offsets); !values) return values.error();
  if (auto values = api::check_values(api::range_rule("ranges", ranges, shape.kv_len), ranges); !values) {
    return values.error();
  }
  const api::HeadedTensor headed = api::read_headed("offsets", offsets, shape);
  const std::string row = "offsets[" + headed.batch_and_head;
  api::NamedData data = api::data_of({headed}, {}, shape);
  data.tensors.push_back({"ranges", ranges});
  // An offset that leads outside `ranges` finds the empty range [0, 0) there; the bounds of the loop keep it short.
  data.scalars.push_back({"range_count", ranges.shape[0]});
  return api::build_mask("any(ranges[r, 0] <= k < ranges[r, 1] for r in range(max(" + row + ", q], 0), min(" + row +
                             ", q + 1], range_count)))",
                         data, shape);
}

}  // namespace flashspan
