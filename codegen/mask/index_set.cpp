// index_set.cpp -- see index_set.hpp. Ranges are kept few: those that are provably empty go, those that share an end
// become one, and a set with a hole is kept as the hole.
#include "codegen/mask/index_set.hpp"

#include <algorithm>
#include <utility>

namespace flashspan::mask {

IndexSets::IndexSets(RangedNodes& nodes, Variable axis)
    : nodes_(nodes),
      zero_(nodes.integer(0)),
      length_(nodes.variable(axis == Variable::q ? Variable::q_len : Variable::kv_len)) {}

IndexSet IndexSets::all_if(NodeId condition) {
  return tidy({.ranges = {{zero_, nodes_.select(condition, length_, zero_)}}, .inverted = false});
}

IndexSet IndexSets::below(NodeId end) { return tidy({.ranges = {{zero_, end}}, .inverted = false}); }

IndexSet IndexSets::between(NodeId begin, NodeId end) { return tidy({.ranges = {{begin, end}}, .inverted = false}); }

IndexSet IndexSets::complement(IndexSet set) {
  set.inverted = !set.inverted;
  return set;
}

IndexSet IndexSets::intersection(const IndexSet& left, const IndexSet& right) {
  if (left.inverted && right.inverted) {  // what neither hides
    return complement(unite(complement(left), complement(right)));
  }
  const IndexSet a = plain(left);
  const IndexSet b = plain(right);
  IndexSet result;
  for (const IndexRange& range : a.ranges) {
    for (const IndexRange& other : b.ranges) {
      result.ranges.push_back({later(range.begin, other.begin), earlier(range.end, other.end)});
    }
  }
  return tidy(std::move(result));
}

IndexSet IndexSets::unite(const IndexSet& left, const IndexSet& right) {
  IndexSet result = plain(left);
  const IndexSet other = plain(right);
  result.ranges.insert(result.ranges.end(), other.ranges.begin(), other.ranges.end());
  return tidy(std::move(result));
}

// End by end; the shorter list is filled up with empty ranges.
IndexSet IndexSets::choose(NodeId condition, const IndexSet& if_true, const IndexSet& if_false) {
  if (nodes_.is_true(condition)) return if_true;
  if (nodes_.is_false(condition)) return if_false;
  const bool alike = if_true.inverted && if_false.inverted;
  IndexSet a = alike ? if_true : plain(if_true);
  IndexSet b = alike ? if_false : plain(if_false);
  const std::size_t count = std::max(a.ranges.size(), b.ranges.size());
  a.ranges.resize(count, {zero_, zero_});
  b.ranges.resize(count, {zero_, zero_});
  IndexSet result{.ranges = {}, .inverted = alike};
  for (std::size_t place = 0; place < count; ++place) {
    result.ranges.push_back({nodes_.select(condition, a.ranges[place].begin, b.ranges[place].begin),
                             nodes_.select(condition, a.ranges[place].end, b.ranges[place].end)});
  }
  return tidy(std::move(result));
}

IndexSet IndexSets::plain(const IndexSet& set) {
  if (!set.inverted) return set;
  return {.ranges = reduced(gaps(set.ranges)), .inverted = false};
}

NodeId IndexSets::later(NodeId left, NodeId right) {
  if (left == zero_ || right == zero_) return left == zero_ ? right : left;
  return nodes_.maximum(left, right);
}

NodeId IndexSets::earlier(NodeId left, NodeId right) {
  if (left == length_ || right == length_) return left == length_ ? right : left;
  return nodes_.minimum(left, right);
}

// A range that begins at 0 or ends at the length bounds the others' gaps; the rest are put in the order of their
// beginnings. An empty range splits a gap without hiding anything: the two parts then touch or overlap.
std::vector<IndexRange> IndexSets::gaps(const std::vector<IndexRange>& ranges) {
  NodeId first = zero_;
  NodeId last = length_;
  std::vector<IndexRange> inner;
  for (const IndexRange& range : ranges) {
    if (range.begin == zero_) {
      first = range.end;  // at most one of each, as those that share an end are joined
    } else if (range.end == length_) {
      last = range.begin;
    } else {
      inner.push_back(range);
    }
  }
  for (std::size_t pass = 1; pass < inner.size(); ++pass) {
    for (std::size_t place = 0; place + pass < inner.size(); ++place) {
      IndexRange& a = inner[place];
      IndexRange& b = inner[place + 1];
      const NodeId exchange = nodes_.less(b.begin, a.begin);
      const IndexRange lower{nodes_.minimum(a.begin, b.begin), nodes_.select(exchange, b.end, a.end)};
      const IndexRange upper{nodes_.maximum(a.begin, b.begin), nodes_.select(exchange, a.end, b.end)};
      a = lower;
      b = upper;
    }
  }
  std::vector<IndexRange> result;
  NodeId begin = first;
  for (const IndexRange& range : inner) {
    result.push_back({begin, earlier(range.begin, last)});
    begin = later(begin, range.end);
  }
  result.push_back({begin, last});
  return result;
}

bool IndexSets::is_empty(const IndexRange& range) const {
  return range.begin == range.end || nodes_.range(range.begin).lo >= nodes_.range(range.end).hi;
}

// Ends that lie outside the axis for every input become its own.
IndexRange IndexSets::snapped(IndexRange range) {
  if (nodes_.range(range.begin).hi <= 0) range.begin = zero_;
  if (nodes_.range(range.end).hi <= 0) range.end = zero_;
  if (nodes_.range(range.begin).lo >= max_sequence_length) range.begin = length_;
  if (nodes_.range(range.end).lo >= max_sequence_length) range.end = length_;
  return range;
}

// [a, x) and [a, y) are [a, max(x, y)), also if one is empty; and so at the other end.
bool IndexSets::join(IndexRange& range, const IndexRange& other) {
  if (range.begin == other.begin) {
    const bool to_the_end = range.end == length_ || other.end == length_;
    range.end = to_the_end ? length_ : nodes_.maximum(range.end, other.end);
    return true;
  }
  if (range.end != other.end) return false;
  range.begin = range.begin == zero_ || other.begin == zero_ ? zero_ : nodes_.minimum(range.begin, other.begin);
  return true;
}

std::vector<IndexRange> IndexSets::reduced(const std::vector<IndexRange>& ranges) {
  std::vector<IndexRange> kept;
  for (IndexRange range : ranges) {
    range = snapped(range);
    if (is_empty(range)) continue;
    const auto joins = [&](IndexRange& other) { return join(other, range); };
    if (std::none_of(kept.begin(), kept.end(), joins)) kept.push_back(range);
  }
  return kept.size() < ranges.size() ? reduced(kept) : kept;  // a joined range may join others
}

IndexSet IndexSets::tidy(IndexSet set) {
  set.ranges = reduced(set.ranges);
  for (const IndexRange& range : set.ranges) {
    if (range.begin == zero_ && range.end == length_) return {.ranges = {}, .inverted = !set.inverted};
  }
  if (set.ranges.size() != 2) return set;
  IndexRange first = set.ranges[0];
  IndexRange rest = set.ranges[1];
  if (first.begin != zero_) std::swap(first, rest);
  if (first.begin != zero_ || rest.end != length_) return set;
  // A beginning and a rest are everything but the hole between them.
  return {.ranges = {{first.end, rest.begin}}, .inverted = !set.inverted};
}

}  // namespace flashspan::mask
