// mask_block_list.cpp -- FlexAttention's block lists as a program: a pair is visible if its key block is in the list of
// its query block. An entry that is no block of this call equals no k // block_k, and so needs no test of its own.
#include <optional>
#include <string>

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
