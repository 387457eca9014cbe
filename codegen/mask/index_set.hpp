// index_set.hpp -- sets of indices along one axis, as few ranges whose ends are nodes of a program: what the set
// algebra of a mask becomes when everything but one index is fixed.
#pragma once

#include <vector>

#include "codegen/mask/ranged_nodes.hpp"

namespace flashspan::mask {

/// Indices x of the axis with begin <= x < end; the ends are integer nodes and may lie outside the axis.
struct IndexRange {
  NodeId begin = 0;
  NodeId end = 0;
};

/// The union of the ranges, which may overlap; or, if `inverted`, everything else on the axis.
struct IndexSet {
  std::vector<IndexRange> ranges;
  bool inverted = false;
};

class IndexSets {
 public:
  /// `axis` is q or k; its indices run from 0 to q_len or kv_len.
  IndexSets(RangedNodes& nodes, Variable axis);

  [[nodiscard]] IndexSet all() const { return {.ranges = {}, .inverted = true}; }
  /// Everything if `condition` holds, else nothing.
  IndexSet all_if(NodeId condition);
  IndexSet below(NodeId end);
  IndexSet between(NodeId begin, NodeId end);
  static IndexSet complement(IndexSet set);
  IndexSet intersection(const IndexSet& left, const IndexSet& right);
  IndexSet unite(const IndexSet& left, const IndexSet& right);
  IndexSet choose(NodeId condition, const IndexSet& if_true, const IndexSet& if_false);
  /// As a plain union; possibly of more ranges.
  IndexSet plain(const IndexSet& set);

 private:
  [[nodiscard]] bool is_empty(const IndexRange& range) const;
  IndexRange snapped(IndexRange range);
  bool join(IndexRange& range, const IndexRange& other);
  std::vector<IndexRange> reduced(const std::vector<IndexRange>& ranges);
  IndexSet tidy(IndexSet set);
  NodeId later(NodeId left, NodeId right);
  NodeId earlier(NodeId left, NodeId right);
  std::vector<IndexRange> gaps(const std::vector<IndexRange>& ranges);

  RangedNodes& nodes_;
  NodeId zero_;
  NodeId length_;
};

}  // namespace flashspan::mask
