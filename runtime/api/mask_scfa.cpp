// mask_scfa.cpp -- the index and hash forms of SCFA (arXiv 2306.01160) as programs. No order of the lists is assumed.
#include <string>

#include "flashspan/mask.hpp"
#include "runtime/api/mask_tensors.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

Result<api::HeadedTensor> read_positions(const char* argument, const AttentionShape& shape, const TensorView& view,
                                         const attention::AxisLengths& length) {
  const attention::TensorRule rule{
      argument, DType::i32, {attention::mask_batch(shape), attention::mask_heads(shape), length}};
  if (auto checked = attention::check_tensor(rule, view); !checked) return checked.error();
  return api::read_headed(argument, view, shape);
}

std::string at(const api::HeadedTensor& tensor, const char* index) {
  return tensor.name + "[" + tensor.batch_and_head + ", " + index + "]";
}

/// A query of negative position is below every k_idx >= 0, so padding on either side fails one of the comparisons.
std::string order_text(const api::HeadedTensor& q_idx, const api::HeadedTensor& k_idx, bool strict) {
  return "0 <= " + at(k_idx, "k") + (strict ? " < " : " <= ") + at(q_idx, "q");
}

}  // namespace

Result<Mask> Mask::scfa_index(const AttentionShape& shape, const TensorView& q_idx, const TensorView& k_idx,
                              bool strict) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const auto queries = read_positions("q_idx", shape, q_idx, attention::exactly("Sq", shape.q_len));
  if (!queries) return queries.error();
  const auto keys = read_positions("k_idx", shape, k_idx, attention::exactly("Sk", shape.kv_len));
  if (!keys) return keys.error();
  return api::build_mask(order_text(*queries, *keys, strict), api::data_of({*queries, *keys}, {}, shape), shape);
}

Result<Mask> Mask::scfa_hash(const AttentionShape& shape, const TensorView& q_idx, const TensorView& k_idx,
                             const TensorView& q_hash, const TensorView& k_hash, bool strict) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const attention::AxisLengths q_axis = attention::exactly("Sq", shape.q_len);
  const attention::AxisLengths k_axis = attention::exactly("Sk", shape.kv_len);
  const auto queries = read_positions("q_idx", shape, q_idx, q_axis);
  if (!queries) return queries.error();
  const auto keys = read_positions("k_idx", shape, k_idx, k_axis);
  if (!keys) return keys.error();
  const auto query_buckets = read_positions("q_hash", shape, q_hash, q_axis);
  if (!query_buckets) return query_buckets.error();
  const auto key_buckets = read_positions("k_hash", shape, k_hash, k_axis);
  if (!key_buckets) return key_buckets.error();
  const std::string text =
      at(*query_buckets, "q") + " == " + at(*key_buckets, "k") + " and " + order_text(*queries, *keys, strict);
  return api::build_mask(text, api::data_of({*queries, *keys, *query_buckets, *key_buckets}, {}, shape), shape);
}

}  // namespace flashspan
