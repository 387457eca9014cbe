// outlying_rows_test.cpp -- rows of tiles that outweigh the others, of all heads and of some: on a GPU they are taken
// before the rest, and each once.
#include <gtest/gtest.h>

#include <string>

#include "attention/attention_fixture.hpp"

namespace flashspan::tests {
namespace {

class OutlyingRows : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(OutlyingRows);

TEST_P(OutlyingRows, KeysThatEveryLaterQuerySees) {
  for (const Index head_dim : {64, 128, 256}) {
    SCOPED_TRACE(head_dim);
    expect_passes({.shape = shape_of(1, 2, 1, 450, 450, head_dim),
                   .mask = expect_value(Mask::parse("(q >= k) & ((q - k < 40) | (k < 8))")),
                   .visible = [](Index, Index, Index q, Index k) { return q >= k && (q - k < 40 || k < 8); }});
  }
}

TEST_P(OutlyingRows, KeysThatEveryQueryOfSomeHeadsSees) {
  for (const int head : {0, 1}) {
    SCOPED_TRACE(head);
    const std::string text = "(abs(q - k) < 40) | ((k < 8) & (h == " + std::to_string(head) + "))";
    expect_passes({.shape = shape_of(1, 2, 2, 450, 450, 128),
                   .mask = expect_value(Mask::parse(text)),
                   .visible = [head](Index, Index h, Index q, Index k) {
                     return (q > k ? q - k : k - q) < 40 || (k < 8 && h == head);
                   }});
  }
}

TEST_P(OutlyingRows, QueriesThatSeeEveryKey) {
  expect_passes({.shape = shape_of(1, 2, 1, 450, 450, 128),
                 .mask = expect_value(Mask::parse("(abs(q - k) < 40) | (q < 8) | ((q >= 300) & (q < 303) & (h == 1))")),
                 .visible = [](Index, Index h, Index q, Index k) {
                   return (q > k ? q - k : k - q) < 40 || q < 8 || (q >= 300 && q < 303 && h == 1);
                 }});
}

}  // namespace
}  // namespace flashspan::tests
