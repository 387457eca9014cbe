// mask_flashmask.cpp -- FlashMask's column intervals (arXiv 2410.01359, section 4) as a program.
#include "flashspan/mask.hpp"

#include <string>

#include "runtime/api/mask_tensors.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

/// Visible rows of a column, by the tensor's last axis: lower start, lower end, upper start, upper end. Intervals
/// cover the whole column and are signed, so start <= q < end is all there is to a masked row.
std::string flashmask_text(const std::string& place, std::int64_t bounds, bool causal) {
  const auto bound = [&](int index) { return "startend[" + place + ", k, " + std::to_string(index) + "]"; };
  const auto outside = [&](int start, int end) { return "(q < " + bound(start) + " or q >= " + bound(end) + ")"; };
  // The causal part is aligned to the bottom right; the intervals are rows of this call and are never shifted.
  const std::string causal_part = " and k <= q + kv_len - q_len";
  if (bounds == 1) return "q < " + bound(0) + causal_part;
  if (bounds == 2 && causal) return outside(0, 1) + causal_part;
  if (bounds == 2) return bound(1) + " <= q < " + bound(0);
  return outside(0, 1) + " and " + outside(2, 3);
}

}  // namespace

Result<Mask> Mask::flashmask(const AttentionShape& shape, const TensorView& startend_row_indices, bool causal) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const std::string argument = std::string("startend_row_indices (") + (causal ? "causal" : "not causal") + ")";
  const attention::TensorRule rule{
      argument,
      DType::i32,
      {attention::mask_batch(shape), attention::mask_heads(shape), attention::exactly("Sk", shape.kv_len),
       causal ? attention::one_of({1, 2}) : attention::one_of({2, 4})}};
  if (auto checked = attention::check_tensor(rule, startend_row_indices); !checked) return checked.error();
  const api::HeadedTensor startend = api::read_headed("startend", startend_row_indices, shape);
  return api::build_mask(flashmask_text(startend.batch_and_head, startend_row_indices.shape[3], causal),
                         api::data_of({startend}, {}, shape), shape);
}

}  // namespace flashspan
