// mask_block_list.cpp -- FlexAttention's block lists as a program: a pair is visible if its key block is in the list of
// its query block. An entry that is no block of this call equals no k // block_k, and so needs no test of its own.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flashspan/mask.hpp"
#include "runtime/api/mask_tensors.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

Result<void> check_block(const char* argument, std::int64_t size) {
  if (size >= 1 && size <= max_sequence_length) return {};
  return attention::bad_argument(argument, std::to_string(size), "1 to " + std::to_string(max_sequence_length));
}

/// Where entry `entry` of a block row stands in `indices`: "indices[0, 1, 5, 2]".
std::string place_text(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t entry) {
  return "indices[" + std::to_string(b) + ", " + std::to_string(h) + ", " + std::to_string(row) + ", " +
         std::to_string(entry) + "]";
}

/// The first entry among the first `count` of a block row that an earlier one equals, with that earlier one. Entries
/// that are no block are padding, and may be repeated.
std::optional<std::pair<std::int64_t, std::int64_t>> repeated_entry(const TensorView& indices, std::int64_t b,
                                                                    std::int64_t h, std::int64_t row,
                                                                    std::int64_t count, std::int64_t blocks) {
  std::vector<std::pair<std::int32_t, std::int64_t>> listed;
  for (std::int64_t entry = 0; entry < count; ++entry) {
    const std::int32_t block = api::element(indices, {b, h, row, entry});
    if (block >= 0 && block < blocks) listed.emplace_back(block, entry);
  }
  std::ranges::sort(listed);
  std::optional<std::pair<std::int64_t, std::int64_t>> first;
  for (std::size_t i = 1; i < listed.size(); ++i) {
    if (listed[i].first != listed[i - 1].first) continue;
    if (!first || listed[i].second < first->second) first = {listed[i - 1].second, listed[i].second};
  }
  return first;
}

/// No block twice in a row. Which of `counts` and `indices` has the longer axis does not matter: the other is
/// broadcast.
Result<void> check_repeats(const TensorView& counts, const TensorView& indices, std::int64_t blocks) {
  if (!api::readable(counts) || !api::readable(indices)) return {};
  if (counts.element_count() == 0 || indices.element_count() == 0) return {};
  const std::int64_t batch = std::max(counts.shape[0], indices.shape[0]);
  const std::int64_t heads = std::max(counts.shape[1], indices.shape[1]);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t list_b = b * indices.shape[0] / batch;
      const std::int64_t list_h = h * indices.shape[1] / heads;
      for (std::int64_t row = 0; row < counts.shape[2]; ++row) {
        const std::int64_t count =
            api::element(counts, {b * counts.shape[0] / batch, h * counts.shape[1] / heads, row});
        const auto repeated = repeated_entry(indices, list_b, list_h, row, count, blocks);
        if (!repeated) continue;
        const auto [earlier, entry] = *repeated;
        const std::int32_t block = api::element(indices, {list_b, list_h, row, entry});
        return attention::bad_argument(
            place_text(list_b, list_h, row, entry),
            "block " + std::to_string(block) + ", which entry " + std::to_string(earlier) + " of the row lists already",
            "each key block once a row");
      }
    }
  }
  return {};
}

}  // namespace

Result<Mask> Mask::block_list(const AttentionShape& shape, const TensorView& counts, const TensorView& indices,
                              std::int64_t block_q, std::int64_t block_k, const Mask* predicate) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  if (auto block = check_block("block_q", block_q); !block) return block.error();
  if (auto block = check_block("block_k", block_k); !block) return block.error();
  const attention::AxisLengths rows = attention::exactly("ceil(Sq / block_q)", (shape.q_len + block_q - 1) / block_q);
  const attention::TensorRule counts_rule{
      "counts", DType::i32, {attention::mask_batch(shape), attention::mask_heads(shape), rows}};
  const attention::TensorRule indices_rule{
      "indices",
      DType::i32,
      {attention::mask_batch(shape), attention::mask_heads(shape), rows, attention::any_length("N")}};
  if (auto checked = attention::check_tensor(counts_rule, counts); !checked) return checked.error();
  if (auto checked = attention::check_tensor(indices_rule, indices); !checked) return checked.error();
  const std::int64_t capacity = indices.shape[3];
  const api::ValueRule values{"counts", "0 to N = " + std::to_string(capacity), 3,
                              [capacity](const std::int32_t* count) -> std::optional<std::string> {
                                if (*count >= 0 && *count <= capacity) return std::nullopt;
                                return std::to_string(*count);
                              }};
  if (auto checked = api::check_values(values, counts); !checked) return checked.error();
  const std::int64_t blocks = (shape.kv_len + block_k - 1) / block_k;
  if (auto checked = check_repeats(counts, indices, blocks); !checked) return checked.error();

  const api::HeadedTensor count = api::read_headed("counts", counts, shape);
  const api::HeadedTensor list = api::read_headed("indices", indices, shape);
  const std::string text = "any(indices[" + list.batch_and_head +
                           ", q // block_q, r] == k // block_k for r in range(0, min(counts[" + count.batch_and_head +
                           ", q // block_q], list_capacity)))";
  const std::vector<NamedScalar> scalars{{"block_q", block_q}, {"block_k", block_k}, {"list_capacity", capacity}};
  auto listed = api::build_mask(text, api::data_of({count, list}, scalars, shape), shape);
  if (!listed || predicate == nullptr) return listed;
  return *listed & *predicate;
}

}  // namespace flashspan
