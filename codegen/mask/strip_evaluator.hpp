// strip_evaluator.hpp -- evaluates a program for a strip of consecutive keys of one query, node by node.
#pragma once

#include <span>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/schedule.hpp"

namespace flashspan::mask {

/// Made once per program and bindings; then nothing is allocated. What does not change from strip to strip (the
/// query's part, the head's part) is not computed again.
class StripEvaluator {
 public:
  /// `program` and `bindings` must outlive this. At most `width` keys are evaluated at once.
  StripEvaluator(const Program& program, const Bindings& bindings, int width);

  void set_head(std::int64_t b, std::int64_t h, std::int64_t q_len, std::int64_t kv_len);
  /// After set_head().
  void set_query(std::int64_t q);
  /// After set_query(): keys k, k + 1, ... k + count - 1. For a score program `scores` holds one score per key.
  void evaluate(std::int64_t k, int count, std::span<const float> scores = {});

  /// Results of the last evaluate(), for the key at `place` in the strip.
  [[nodiscard]] bool visible(int place) const { return integers_[result(place)] != 0; }
  [[nodiscard]] float score(int place) const { return reals_[result(place)]; }

 private:
  /// What a node's value changes with. A node of stage `strip` has a lane per key, any other has one lane.
  enum class Stage { head, query, strip };

  [[nodiscard]] Stage stage(NodeId node) const { return stages_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] bool is_wide(NodeId node) const { return stage(node) == Stage::strip; }
  [[nodiscard]] std::size_t first_lane(NodeId node) const { return static_cast<std::size_t>(node) * width_; }
  [[nodiscard]] std::size_t result(int place) const {
    return first_lane(program_.root()) + (is_wide(program_.root()) ? static_cast<std::size_t>(place) : 0);
  }
  [[nodiscard]] std::size_t lanes(NodeId node) const { return is_wide(node) ? count_ : 1; }

  /// What an `any` holds for a lane while it is neither true nor false there.
  static constexpr std::int64_t open_lane = 2;

  /// Integers or booleans of a node, whether it has one lane or many.
  struct Lanes {
    const std::int64_t* first;
    std::size_t step;
    [[nodiscard]] std::int64_t at(std::size_t lane) const { return first[lane * step]; }
  };
  [[nodiscard]] Lanes operand_lanes(const Node& node, std::size_t place) const {
    const NodeId operand = node.operands[place];
    return {integers_.data() + first_lane(operand), is_wide(operand) ? std::size_t{1} : 0};
  }

  void find_stages();
  /// Whether it had to be raised.
  bool raise_stage(NodeId node, Stage at_least);
  void run(const std::vector<NodeId>& list);
  void compute(NodeId node);
  void compute_integer(NodeId id, const Node& node);
  void compute_real(NodeId id, const Node& node);
  void compute_boolean(NodeId id, const Node& node);
  void compute_variable(NodeId id, Variable variable);
  void compute_lookup(NodeId id, const Node& node);
  void compute_any(NodeId id, const Node& node);
  // Parts of compute_any(). Both counts are of the lanes that are open then.
  std::size_t open_lanes(NodeId id, const Node& node, NodeId around);
  void set_loop_variable(const Node& node, std::int64_t turn);
  std::size_t still_open_lanes(NodeId id, const Node& node, std::int64_t turn);
  template <typename Result, typename Operand, typename Function>
  void unary(NodeId id, const Node& node, Function function);
  template <typename Result, typename Operand, typename Function>
  void binary(NodeId id, const Node& node, Function function);
  template <typename Value>
  void choose(NodeId id, const Node& node);
  template <typename Value>
  [[nodiscard]] std::vector<Value>& lanes_of();

  const Program& program_;
  const Bindings& bindings_;
  std::size_t width_;
  std::size_t count_ = 1;
  std::vector<Stage> stages_;
  std::vector<NodeId> by_stage_[3];  // the nodes outside all loops, by stage
  Schedule schedule_;
  std::vector<std::int64_t> integers_;  // integers and booleans, `width` lanes a node
  std::vector<float> reals_;
  std::vector<int> loop_nodes_;  // loop number -> node of its variable, -1 if the body does not use it
  NodeId around_ = -1;           // the `any` whose body is computed now, -1 outside all loops
  std::int64_t b_ = 0, h_ = 0, q_ = 0, k_ = 0, q_len_ = 0, kv_len_ = 0;
  std::span<const float> scores_;
};

}  // namespace flashspan::mask
