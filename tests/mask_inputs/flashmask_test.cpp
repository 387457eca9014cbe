// FlashMask's startend_row_indices: every form against the intervals written out.
#include "tests/mask_inputs/dense_mask.hpp"

namespace flashspan::testing {
namespace {

/// Visible by the definition: no interval covers row q of column k, and the causal part holds if asked for.
bool flashmask_visible(IntTensor& tensor, bool causal, const AttentionShape& shape, std::int64_t b, std::int64_t h,
                       std::int64_t q, std::int64_t k) {
  const std::int64_t mb = batch_of(tensor.shape[0], b);
  const std::int64_t mh = head_of(tensor.shape[1], h, shape);
  const auto value = [&](std::int64_t channel) { return tensor.at({mb, mh, k, channel}); };
  const auto inside = [&](std::int64_t start, std::int64_t end) { return start <= q && q < end; };
  if (causal && k > q + shape.kv_len - shape.q_len) return false;
  const std::int64_t channels = tensor.shape[3];
  if (channels == 1) return !inside(value(0), shape.q_len);
  if (channels == 2 && causal) return !inside(value(0), value(1));
  if (channels == 2) return !inside(value(0), shape.q_len) && !inside(0, value(1));
  return !inside(value(0), value(1)) && !inside(value(2), value(3));
}

struct Form {
  std::int64_t channels;
  bool causal;
};
constexpr Form forms[] = {{1, true}, {2, true}, {2, false}, {4, false}};

TEST(FlashMask, EveryFormAgreesWithItsIntervals) {
  const AttentionShape shapes[] = {sizes(2, 4, 2, 23, 23), sizes(1, 2, 2, 9, 20), sizes(1, 2, 2, 20, 9)};
  unsigned seed = 1;
  for (const AttentionShape& shape : shapes) {
    for (const Form& form : forms) {
      // Values before the first row and past the last one are legal, and so are inverted intervals.
      auto tensor =
          random_tensor({shape.batch, 1, shape.kv_len, form.channels}, -3, static_cast<int>(shape.q_len) + 4, seed++);
      expect_visible(Mask::flashmask(shape, tensor.view(), form.causal), shape, [&](auto b, auto h, auto q, auto k) {
        return flashmask_visible(tensor, form.causal, shape, b, h, q, k);
      });
    }
  }
}

TEST(FlashMask, HeadsAreSharedByOneByGroupOrByNone) {
  const AttentionShape shape = sizes(2, 6, 2, 11, 11);
  for (std::int64_t batch : {1, 2}) {
    for (std::int64_t heads : {1, 2, 6}) {
      auto tensor = random_tensor({batch, heads, 11, 2}, 0, 12, static_cast<unsigned>(10 * batch + heads));
      expect_visible(Mask::flashmask(shape, tensor.view(), true), shape, [&](auto b, auto h, auto q, auto k) {
        return flashmask_visible(tensor, true, shape, b, h, q, k);
      });
    }
  }
}

// Field case F061.
TEST(FlashMask, TwoDocumentsOfFourAreTwoCausalTriangles) {
  const AttentionShape shape = sizes(1, 1, 1, 8, 8);
  IntTensor ends({1, 1, 8, 1}, {4, 4, 4, 4, 8, 8, 8, 8});
  expect_visible(Mask::flashmask(shape, ends.view(), true), shape,
                 [](auto, auto, auto q, auto k) { return q / 4 == k / 4 && k <= q; });
}

// Field case F061: a start at or above the diagonal hides the key from every row from there on, itself included.
TEST(FlashMask, StartsAboveTheDiagonalHideTheWholeColumn) {
  const AttentionShape shape = sizes(1, 1, 1, 8, 8);
  IntTensor starts({1, 1, 8, 1}, {0, 1, 2, 1, 0, 5, 6, 3});
  expect_visible(Mask::flashmask(shape, starts.view(), true), shape,
                 [&](auto, auto, auto q, auto k) { return k <= q && !(starts.at({0, 0, k, 0}) <= q); });
}

TEST(FlashMask, OneProgramServesEveryLengthAndEveryContent) {
  auto small = random_tensor({1, 1, 16, 2}, 0, 16, 5);
  auto large = random_tensor({1, 1, 33, 2}, 0, 33, 6);
  const auto first = Mask::flashmask(sizes(1, 2, 2, 16, 16), small.view(), false);
  const auto second = Mask::flashmask(sizes(1, 8, 4, 20, 33), large.view(), false);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->text(), second->text());
}

}  // namespace
}  // namespace flashspan::testing
