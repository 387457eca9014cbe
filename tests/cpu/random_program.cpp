#include "random_program.hpp"

#include <array>
#include <bit>
#include <limits>

namespace flashspan::cpu_test {

using mask::NodeId;
using mask::Op;
using mask::ValueType;

namespace {

constexpr std::array<std::int64_t, 14> edge_integers{0,
                                                     1,
                                                     -1,
                                                     2,
                                                     3,
                                                     -3,
                                                     4,
                                                     7,
                                                     64,
                                                     1000000007,
                                                     std::numeric_limits<std::int32_t>::max(),
                                                     std::numeric_limits<std::int32_t>::min(),
                                                     std::numeric_limits<std::int64_t>::max(),
                                                     std::numeric_limits<std::int64_t>::min()};
constexpr std::array<float, 8> edge_reals{0.0F, -0.0F, 1.0F, -2.5F, 1e30F, 3e-39F, 0.125F, -7.0F};

template <typename Value, std::size_t count>
Value pick(oracle::RandomNumbers& random, const std::array<Value, count>& values) {
  return values[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(count) - 1))];
}

}  // namespace

RandomProgram::RandomProgram(std::uint64_t seed, bool with_score)
    : random_(seed),
      with_score_(with_score),
      program_({{"n", ValueType::integer}, {"m", ValueType::integer}, {"x", ValueType::real}}, {{"a", DType::i32, 1},
                                                                                                {"c", DType::i32, 2},
                                                                                                {"f", DType::f32, 1},
                                                                                                {"g", DType::f16, 2},
                                                                                                {"e", DType::bf16, 1},
                                                                                                {"z", DType::i32, 1}}) {
  declare_data();
  program_.set_root(with_score ? real(4) : boolean(5));
}

void RandomProgram::declare_data() {
  bindings_.scalars = {
      {pick(random_, edge_integers), 0}, {random_.integer(-20, 20), 0}, {0, pick(random_, edge_reals)}};
  for (const mask::TensorDeclaration& declaration : program_.tensors()) {
    std::vector<std::int32_t>& memory = words_.emplace_back(4096);
    for (std::int32_t& word : memory) {
      switch (declaration.dtype) {
        case DType::i32:
          word =
              static_cast<std::int32_t>(random_.chance(0.1) ? pick(random_, edge_integers) : random_.integer(-5, 90));
          break;
        case DType::f32:
          word = std::bit_cast<std::int32_t>(static_cast<float>(random_.normal()));
          break;
        case DType::f16:
        case DType::bf16:
          word = static_cast<std::int32_t>(random_.bits());
          break;
      }
    }
    TensorView view = declaration.rank == 1 ? TensorView::contiguous(memory.data(), declaration.dtype, {70})
                                            : TensorView::contiguous(memory.data(), declaration.dtype, {3, 50});
    if (random_.chance(0.3)) view.strides[0] = 2 * view.strides[0];
    if (random_.chance(0.2)) view.strides[static_cast<std::size_t>(view.rank - 1)] = 0;
    if (declaration.name == "z") {  // an empty tensor has no memory at all
      view.shape[0] = 0;
      view.data = nullptr;
    }
    bindings_.tensors.push_back(view);
  }
}

NodeId RandomProgram::integer_leaf() {
  constexpr std::array<mask::Variable, 6> variables{mask::Variable::b, mask::Variable::h,     mask::Variable::q,
                                                    mask::Variable::k, mask::Variable::q_len, mask::Variable::kv_len};
  switch (random_.integer(0, 5)) {
    case 0:
      return program_.integer(pick(random_, edge_integers));
    case 1: {
      mask::Node node{Op::scalar, ValueType::integer, {}, 0, 0, static_cast<int>(random_.integer(0, 1))};
      return program_.add(node);
    }
    case 2:
      if (!open_loops_.empty()) {
        const auto which =
            static_cast<std::size_t>(random_.integer(0, static_cast<std::int64_t>(open_loops_.size()) - 1));
        return program_.add({Op::loop_variable, ValueType::integer, {}, 0, 0, open_loops_[which]});
      }
      return program_.variable(mask::Variable::k);
    case 3:
      return program_.variable(random_.chance(0.5) ? mask::Variable::q : mask::Variable::k);
    default:
      return program_.variable(pick(random_, variables));
  }
}

NodeId RandomProgram::lookup(int tensor, int depth) {
  const mask::TensorDeclaration& declaration = program_.tensors()[static_cast<std::size_t>(tensor)];
  const ValueType type = declaration.dtype == DType::i32 ? ValueType::integer : ValueType::real;
  std::vector<NodeId> operands;
  for (int axis = 0; axis < declaration.rank; ++axis) operands.push_back(integer(depth - 1));
  return program_.add({Op::lookup, type, operands, 0, 0, tensor});
}

NodeId RandomProgram::integer(int depth) {
  if (depth <= 0) return integer_leaf();
  constexpr std::array<Op, 7> binary{Op::add,     Op::subtract,     Op::multiply, Op::minimum,
                                     Op::maximum, Op::floor_divide, Op::modulo};
  switch (random_.integer(0, 9)) {
    case 0:
      return integer_leaf();
    case 1:
      return program_.unary(random_.chance(0.5) ? Op::negate : Op::absolute, integer(depth - 1));
    case 2:
      return program_.select(boolean(depth - 1), integer(depth - 1), integer(depth - 1));
    case 3:
      return lookup(static_cast<int>(pick(random_, std::array{0, 1, 5})), depth);
    default:
      return program_.binary(pick(random_, binary), integer(depth - 1), integer(depth - 1));
  }
}

NodeId RandomProgram::real(int depth) {
  if (depth <= 0) {
    if (with_score_ && random_.chance(0.5)) return program_.variable(mask::Variable::score);
    if (random_.chance(0.3)) return program_.add({Op::scalar, ValueType::real, {}, 0, 0, 2});
    return program_.real(pick(random_, edge_reals));
  }
  constexpr std::array<Op, 6> binary{Op::add, Op::subtract, Op::multiply, Op::minimum, Op::maximum, Op::divide};
  switch (random_.integer(0, 8)) {
    case 0:
      return program_.unary(Op::to_real, integer(depth - 1));
    case 1:
      return lookup(static_cast<int>(random_.integer(2, 4)), depth);
    case 2:
      return program_.select(boolean(depth - 1), real(depth - 1), real(depth - 1));
    case 3:
      return program_.unary(random_.chance(0.5) ? Op::negate : Op::absolute, real(depth - 1));
    case 4:
      return program_.unary(Op::sqrt, real(depth - 1));
    default:
      return program_.binary(pick(random_, binary), real(depth - 1), real(depth - 1));
  }
}

NodeId RandomProgram::any(int depth) {
  // Bounds are kept small by a modulo, so that every loop is short.
  const NodeId begin = program_.binary(Op::modulo, integer(depth - 1), program_.integer(4));
  const NodeId end = program_.binary(Op::modulo, integer(depth - 1), program_.integer(7));
  static int next_loop = 1000;
  const int loop = next_loop++;
  open_loops_.push_back(loop);
  const NodeId body = boolean(depth - 1);
  open_loops_.pop_back();
  return program_.add({Op::any, ValueType::boolean, {begin, end, body}, 0, 0, loop});
}

NodeId RandomProgram::boolean(int depth) {
  if (depth <= 0) return program_.boolean(random_.chance(0.5));
  constexpr std::array<Op, 4> comparisons{Op::less, Op::less_equal, Op::equal, Op::not_equal};
  const Op comparison = pick(random_, comparisons);
  switch (random_.integer(0, 9)) {
    case 0:
      return any(depth);
    case 1:
      return program_.binary(comparison, real(depth - 1), real(depth - 1));
    case 2:
      return program_.unary(Op::logical_not, boolean(depth - 1));
    case 3:
    case 4:
      return program_.binary(Op::logical_and, boolean(depth - 1), boolean(depth - 1));
    case 5:
      return program_.binary(Op::logical_or, boolean(depth - 1), boolean(depth - 1));
    case 6:
      return program_.select(boolean(depth - 1), boolean(depth - 1), boolean(depth - 1));
    default:
      return program_.binary(comparison, integer(depth - 1), integer(depth - 1));
  }
}

}  // namespace flashspan::cpu_test
