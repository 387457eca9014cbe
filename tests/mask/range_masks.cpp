// range_masks.cpp -- see range_masks.hpp.
#include "tests/mask/range_masks.hpp"

#include <utility>

#include "tests/mask/random_choice.hpp"

namespace flashspan::mask::test {
namespace {

class ConditionGenerator {
 public:
  ConditionGenerator(Random& random, Variable axis)
      : random_(random), axis_(to_string(axis)), other_(axis == Variable::k ? "q" : "k") {}

  std::string condition(int depth) {
    if (depth <= 0) return comparison(2);
    switch (pick(random_, 8)) {
      case 0:
        return "not (" + condition(depth - 1) + ")";
      case 1:
      case 2:
        return "(" + condition(depth - 1) + ") and (" + condition(depth - 1) + ")";
      case 3:
      case 4:
        return "(" + condition(depth - 1) + ") or (" + condition(depth - 1) + ")";
      case 5:
        return "where(" + condition(depth - 1) + ", " + condition(depth - 1) + ", " + condition(depth - 1) + ")";
      case 6:
        return loop(depth);
      default:
        return comparison(3);
    }
  }

 private:
  std::string loop(int depth) {
    if (in_loop_) return comparison(3);
    in_loop_ = true;
    const std::string body = condition(depth - 1);
    in_loop_ = false;
    return "any(" + body + " for r in range(" + std::to_string(1 + pick(random_, 3)) + "))";
  }

  std::string comparison(int depth) {
    static const char* const symbols[] = {" < ", " <= ", " > ", " >= ", " == ", " != "};
    std::string left = pick(random_, 8) == 0 ? free_number(2) : along_axis(depth);
    std::string right = free_number(2);
    if (pick(random_, 2) == 0) std::swap(left, right);
    return left + symbols[pick(random_, 6)] + right;
  }

  std::string along_axis(int depth) {
    if (depth <= 0 || pick(random_, 4) == 0) return axis_;
    const std::string inner = along_axis(depth - 1);
    switch (pick(random_, 10)) {
      case 0:
        return "(" + inner + " + " + free_number(1) + ")";
      case 1:
        return "(" + inner + " - " + free_number(1) + ")";
      case 2:
        return "(" + free_number(1) + " - " + inner + ")";
      case 3:
        return "(-" + inner + ")";
      case 4:
      case 5:
        return "(" + inner + " // " + free_number(1) + ")";
      case 6:
        return "(" + inner + " * " + free_number(0) + ")";
      case 7:
        return "abs(" + inner + ")";
      case 8:
        return std::string(pick(random_, 2) == 0 ? "min(" : "max(") + inner + ", " + free_number(1) + ")";
      default:
        return "where(" + axis_ + " < " + free_number(1) + ", " + inner + ", " + free_number(1) + ")";
    }
  }

  std::string free_number(int depth) {
    if (depth <= 0 || pick(random_, 2) == 0) return free_leaf();
    static const char* const symbols[] = {" + ", " - ", " * ", " // "};
    return "(" + free_number(depth - 1) + symbols[pick(random_, 4)] + free_number(depth - 1) + ")";
  }

  std::string free_leaf() {
    if (in_loop_ && pick(random_, 2) == 0) return "table[r, " + other_ + "]";
    const std::string leaves[] = {other_,
                                  "h",
                                  "left",
                                  "huge",
                                  "q_len",
                                  "kv_len",
                                  "doc[" + other_ + "]",
                                  std::to_string(pick(random_, 6)),
                                  "(-" + std::to_string(pick(random_, 4)) + ")",
                                  pick(random_, 2) == 0 ? "9223372036854775807" : "-9223372036854775808"};
    return leaves[pick(random_, 10)];
  }

  Random& random_;
  const std::string axis_, other_;
  bool in_loop_ = false;
};

}  // namespace

std::string random_range_mask(std::mt19937_64& random, Variable axis, int depth) {
  return ConditionGenerator(random, axis).condition(depth);
}

}  // namespace flashspan::mask::test
