// mask_slices.cpp -- unions of rectangles, each full or cut along a diagonal, as a program.
#include <cstdint>
#include <optional>
#include <string>

#include "flashspan/mask.hpp"
#include "runtime/api/mask_tensors.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

constexpr const char* slices_text =
    "any(q_ranges[s, 0] <= q < q_ranges[s, 1] and k_ranges[s, 0] <= k < k_ranges[s, 1]"
    " and (types[s] == 0 or types[s] == 2 or k - q <= k_ranges[s, 1] - q_ranges[s, 1])"
    " and (types[s] == 0 or types[s] == 1 or k - q >= k_ranges[s, 0] - q_ranges[s, 0])"
    " for s in range(0, slice_count))";

api::ValueRule type_rule() {
  return {"types", "0 (full), 1 (causal), 2 (inverse causal) or 3 (both)", 1,
          [](const std::int32_t* type) -> std::optional<std::string> {
            if (*type >= 0 && *type <= static_cast<std::int32_t>(SliceType::bi_causal)) return std::nullopt;
            return std::to_string(*type);
          }};
}

}  // namespace

Result<Mask> Mask::slices(const AttentionShape& shape, const TensorView& q_ranges, const TensorView& k_ranges,
                          const TensorView& types) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const attention::AxisLengths any_count = attention::any_length("N");
  const attention::TensorRule q_rule{"q_ranges", DType::i32, {any_count, attention::one_of({2})}};
  if (auto checked = attention::check_tensor(q_rule, q_ranges); !checked) return checked.error();
  const attention::AxisLengths count = attention::exactly("N", q_ranges.shape[0]);
  const attention::TensorRule k_rule{"k_ranges", DType::i32, {count, attention::one_of({2})}};
  if (auto checked = attention::check_tensor(k_rule, k_ranges); !checked) return checked.error();
  const attention::TensorRule types_rule{"types", DType::i32, {count}};
  if (auto checked = attention::check_tensor(types_rule, types); !checked) return checked.error();
  if (auto values = api::check_values(api::range_rule("q_ranges", q_ranges, shape.q_len), q_ranges); !values) {
    return values.error();
  }
  if (auto values = api::check_values(api::range_rule("k_ranges", k_ranges, shape.kv_len), k_ranges); !values) {
    return values.error();
  }
  if (auto values = api::check_values(type_rule(), types); !values) return values.error();
  const api::NamedData data{{{"q_ranges", q_ranges}, {"k_ranges", k_ranges}, {"types", types}},
                            {{"slice_count", q_ranges.shape[0]}}};
  return api::build_mask(slices_text, data, shape);
}

}  // namespace flashspan
