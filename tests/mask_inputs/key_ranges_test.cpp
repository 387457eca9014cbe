// Key ranges per query, dense and in CSR form, against loops over the ranges.
#include "tests/mask_inputs/dense_mask.hpp"

namespace flashspan::testing {
namespace {

/// Ranges within [0, length], some empty, in no order.
IntTensor random_ranges(std::vector<std::int64_t> shape, std::int64_t length, unsigned seed) {
  shape.push_back(2);
  auto tensor = random_tensor(shape, 0, static_cast<int>(length), seed);
  for (std::size_t item = 0; item + 1 < tensor.values.size(); item += 2) {
    const bool keep_inverted = item % 14 == 0;  // an inverted range is an empty one
    if (!keep_inverted && tensor.values[item] > tensor.values[item + 1]) {
      std::swap(tensor.values[item], tensor.values[item + 1]);
    }
  }
  return tensor;
}

TEST(KeyRanges, ARowSeesTheUnionOfItsRanges) {
  unsigned seed = 1;
  for (const AttentionShape& shape : {sizes(2, 4, 2, 13, 19), sizes(1, 2, 1, 19, 6)}) {
    for (std::int64_t count : {0, 1, 3}) {
      auto tensor = random_ranges({shape.batch, 1, shape.q_len, count}, shape.kv_len, seed++);
      expect_visible(Mask::key_ranges(shape, tensor.view()), shape, [&](auto b, auto, auto q, auto k) {
        for (std::int64_t r = 0; r < count; ++r) {
          if (tensor.at({b, 0, q, r, 0}) <= k && k < tensor.at({b, 0, q, r, 1})) return true;
        }
        return false;
      });
    }
  }
}

TEST(KeyRanges, BatchAndHeadsBroadcast) {
  const AttentionShape shape = sizes(3, 6, 2, 7, 9);
  for (std::int64_t batch : {1, 3}) {
    for (std::int64_t heads : {1, 2, 6}) {
      auto tensor = random_ranges({batch, heads, 7, 2}, 9, static_cast<unsigned>(7 * batch + heads));
      expect_visible(Mask::key_ranges(shape, tensor.view()), shape, [&](auto b, auto h, auto q, auto k) {
        const auto mb = batch_of(batch, b);
        const auto mh = head_of(heads, h, shape);
        for (std::int64_t r = 0; r < 2; ++r) {
          if (tensor.at({mb, mh, q, r, 0}) <= k && k < tensor.at({mb, mh, q, r, 1})) return true;
        }
        return false;
      });
    }
  }
}

// Field case F022, as masks: one layout under four shapes.
TEST(KeyRanges, TheFourBroadcastFormsOfOneLayoutAreOneMask) {
  const AttentionShape shape = sizes(2, 4, 2, 5, 12);
  auto one = random_ranges({1, 1, 5, 2}, 12, 4);
  const auto expected = [&](auto, auto, auto q, auto k) {
    for (std::int64_t r = 0; r < 2; ++r) {
      if (one.at({0, 0, q, r, 0}) <= k && k < one.at({0, 0, q, r, 1})) return true;
    }
    return false;
  };
  for (std::int64_t batch : {1, 2}) {
    for (std::int64_t heads : {1, 4}) {
      IntTensor repeated({batch, heads, 5, 2, 2});
      for (std::size_t index = 0; index < repeated.values.size(); ++index) {
        repeated.values[index] = one.values[index % one.values.size()];
      }
      expect_visible(Mask::key_ranges(shape, repeated.view()), shape, expected);
    }
  }
}

// Field case F036, as masks: blocks of 64 keys with few valid ones.
TEST(KeyRanges, BlocksOfVeryDifferentFillingKeepTheirPadsOut) {
  const AttentionShape shape = sizes(1, 1, 1, 4, 256);
  const std::int64_t filled[] = {1, 64, 7, 33};
  IntTensor tensor({1, 1, 4, 4, 2});
  for (std::int64_t q = 0; q < 4; ++q) {
    for (std::int64_t block = 0; block < 4; ++block) {
      tensor.at({0, 0, q, block, 0}) = static_cast<std::int32_t>(64 * block);
      tensor.at({0, 0, q, block, 1}) = static_cast<std::int32_t>(64 * block + filled[block]);
    }
  }
  expect_visible(Mask::key_ranges(shape, tensor.view()), shape,
                 [&](auto, auto, auto, auto k) { return k % 64 < filled[k / 64]; });
}

TEST(KeyRangesCsr, RowsSeeTheirOwnStretchOfTheList) {
  const AttentionShape shape = sizes(2, 4, 2, 6, 15);
  for (std::int64_t heads : {1, 2, 4}) {
    const std::int64_t rows = 2 * heads * 6;
    std::vector<std::int32_t> lengths = random_tensor({rows}, 0, 3, static_cast<unsigned>(heads)).values;
    IntTensor offsets({2, heads, 7});
    std::int32_t total = 0;
    for (std::int64_t group = 0; group < 2 * heads; ++group) {
      for (std::int64_t q = 0; q <= 6; ++q) {
        offsets.values[static_cast<std::size_t>(group * 7 + q)] = total;
        if (q < 6) total += lengths[static_cast<std::size_t>(group * 6 + q)];
      }
    }
    auto ranges = random_ranges({total}, 15, static_cast<unsigned>(100 + heads));
    expect_visible(Mask::key_ranges_csr(shape, offsets.view(), ranges.view()), shape,
                   [&](auto b, auto h, auto q, auto k) {
                     const auto mh = head_of(heads, h, shape);
                     for (auto r = offsets.at({b, mh, q}); r < offsets.at({b, mh, q + 1}); ++r) {
                       if (ranges.at({r, 0}) <= k && k < ranges.at({r, 1})) return true;
                     }
                     return false;
                   });
  }
}

// Field case F058, as masks: on a device values are not read beforehand, so any value has to be harmless.
TEST(KeyRanges, ValuesThatChangeLaterToNonsenseShowNothingOutsideTheKeys) {
  const AttentionShape shape = sizes(1, 1, 1, 5, 8);
  IntTensor tensor({1, 1, 5, 1, 2});
  const auto mask = Mask::key_ranges(shape, tensor.view());
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  tensor.values = {-1, -1, 8, huge, 15, huge, -huge, 3, 6, huge};
  expect_visible(mask, shape, [&](auto, auto, auto q, auto k) { return (q == 3 && k < 3) || (q == 4 && k >= 6); });
}

TEST(KeyRangesCsr, OffsetsThatChangeLaterToNonsenseStayWithinTheList) {
  const AttentionShape shape = sizes(1, 1, 1, 3, 8);
  IntTensor offsets({1, 1, 4}, {0, 1, 1, 2});
  IntTensor ranges({2, 2}, {0, 2, 4, 6});
  const auto mask = Mask::key_ranges_csr(shape, offsets.view(), ranges.view());
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  offsets.values = {-huge, 1, huge, 0};
  expect_visible(mask, shape,
                 [&](auto, auto, auto q, auto k) { return (q == 0 && k < 2) || (q == 1 && 4 <= k && k < 6); });
}

}  // namespace
}  // namespace flashspan::testing
