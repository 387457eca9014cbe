// The kernels' by-value arguments, and the limits that are named before a launch.
#include "runtime/cuda/launch_arguments.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/cuda/call_fixture.hpp"

namespace flashspan::cuda {
namespace {

flashspan_device::AttentionParameters parameters_of(const SmallCall& call) {
  const PlanSize size = plan_size(call.spec, call.args);
  return attention_parameters(call.spec, call.args, size, workspace_layout(call.spec, call.args.shape, size));
}

TEST(AttentionParametersOf, ACallCarryPointersStridesAndSizes) {
  SmallCall call(Direction::backward);
  call.args.query = call.args.query.with_axes_swapped(1, 2);
  call.args.scale = 0.125F;
  const auto parameters = parameters_of(call);
  EXPECT_EQ(parameters.query.data, call.args.query.data);
  EXPECT_EQ(parameters.query.stride_batch, 6 * 100 * 64);
  EXPECT_EQ(parameters.query.stride_head, 64);
  EXPECT_EQ(parameters.query.stride_row, 100 * 64);
  EXPECT_EQ(parameters.value.stride_row, 32);
  EXPECT_EQ(parameters.lse.stride_batch, 6 * 100);
  EXPECT_EQ(parameters.lse.stride_head, 100);
  EXPECT_EQ(parameters.lse.stride_row, 1);
  EXPECT_EQ(parameters.lse_gradient.data, nullptr) << "not given";
  EXPECT_EQ(parameters.sink.data, nullptr) << "not given";
  EXPECT_EQ(parameters.sink_gradient.data, nullptr) << "not given";
  EXPECT_EQ(parameters.key_gradient.data, call.args.key_gradient.data);
  EXPECT_EQ(parameters.batch, 2);
  EXPECT_EQ(parameters.query_heads, 6);
  EXPECT_EQ(parameters.kv_heads, 3);
  EXPECT_EQ(parameters.q_len, 100);
  EXPECT_EQ(parameters.kv_len, 200);
  EXPECT_EQ(parameters.scale, 0.125F);
}

TEST(AttentionParametersOf, ACallWithASinkCarryItsStrideOverTheHeads) {
  SmallCall call(Direction::backward);
  call.args.sink = TensorView::contiguous(made_up_address(0xa00), DType::f32, {6});
  call.args.sink.strides[0] = 5;
  call.args.sink_gradient = TensorView::contiguous(made_up_address(0xb00), DType::f32, {6});
  const auto parameters = parameters_of(call);
  EXPECT_EQ(parameters.sink.data, call.args.sink.data);
  EXPECT_EQ(parameters.sink.stride_head, 5);
  EXPECT_EQ(parameters.sink.stride_batch, 0);
  EXPECT_EQ(parameters.sink.stride_row, 0);
  EXPECT_EQ(parameters.sink_gradient.data, call.args.sink_gradient.data);
  EXPECT_EQ(parameters.sink_gradient.stride_head, 1);
}

TEST(AttentionParametersOf, ABackwardFindBothListsAndDeltaInTheWorkspace) {
  SmallCall call(Direction::backward, document_program(mask::Variable::b));
  call.spec.lowering = mask::LoweringKind::bit_tiles;
  const PlanSize size = plan_size(call.spec, call.args);
  const WorkspaceLayout layout = workspace_layout(call.spec, call.args.shape, size);
  const auto parameters = parameters_of(call);
  const auto at = [&](const WorkspacePart& part) { return part_address(call.args.workspace, part); };
  EXPECT_EQ(parameters.delta, at(layout.delta));
  EXPECT_EQ(parameters.by_query.counts, at(layout.by_query.counts));
  EXPECT_EQ(parameters.by_query.entries, at(layout.by_query.entries));
  EXPECT_EQ(parameters.by_query.order, at(layout.by_query.order));
  EXPECT_EQ(parameters.by_query.bit_slots, 2 * 2 * 2);
  EXPECT_EQ(parameters.by_key.counts, at(layout.by_key.counts));
  EXPECT_EQ(parameters.by_key.entries, at(layout.by_key.entries));
  EXPECT_EQ(parameters.by_key.order, at(layout.by_key.order));
  EXPECT_EQ(parameters.by_key.bits, at(layout.key_bits));
  EXPECT_EQ(parameters.by_key.bit_slots, parameters.by_query.bit_slots) << "one slot for both lists";
  EXPECT_EQ(parameters.by_key.plan_batch, 2);
  EXPECT_EQ(parameters.by_key.plan_heads, 1);
  EXPECT_EQ(parameters.scratch.undecided, at(layout.undecided));
  EXPECT_EQ(parameters.scratch.shares, at(layout.shares));
  // next_item, slots_taken, groups_listed of 2 lists in 2 directions, and open_tiles of a group by query and one by
  // key.
  EXPECT_EQ(parameters.next_item, at(layout.counters));
  EXPECT_EQ(parameters.scratch.counters, at(layout.counters));
  EXPECT_EQ(parameters.scratch.counter_count, 2 + 2 * 2 + 2 * 2);
  EXPECT_EQ(parameters.scratch.slots_taken, static_cast<int*>(at(layout.counters)) + 1);
  EXPECT_EQ(parameters.scratch.groups_listed, static_cast<int*>(at(layout.counters)) + 2);
  EXPECT_EQ(parameters.scratch.open_tiles, static_cast<int*>(at(layout.counters)) + 2 + 2 * 2);
  EXPECT_EQ(layout.counters.bytes, (2 + 2 * 2 + 2 * 2) * 4);
}

TEST(AttentionParametersOf, AForwardHaveNoListsOfKeysAndNoDelta) {
  const SmallCall call(Direction::forward);
  const auto parameters = parameters_of(call);
  EXPECT_EQ(parameters.by_key.entries, nullptr) << "the planner takes it for a backward otherwise";
  EXPECT_EQ(parameters.delta, nullptr);
}

TEST(ProgramArgumentsOf, NoProgramAreZero) {
  const auto arguments = program_arguments("score", nullptr, nullptr);
  ASSERT_TRUE(arguments);
  EXPECT_EQ(arguments->tensors[0].data, nullptr);
  EXPECT_EQ(arguments->integers[11], 0);
}

TEST(ProgramArgumentsOf, AProgramFollowTheOrderOfItsDeclarations) {
  mask::Program program({{"left", mask::ValueType::integer}, {"slope", mask::ValueType::real}},
                        {{"doc", DType::i32, 2}, {"bias", DType::f32, 1}});
  std::array<std::int32_t, 6> doc{};
  std::array<float, 3> bias{};
  mask::Bindings bindings;
  bindings.scalars = {{-5, 0}, {0, 0.5F}};
  bindings.tensors = {TensorView::contiguous(doc.data(), DType::i32, {2, 3}),
                      TensorView::contiguous(bias.data(), DType::f32, {3})};
  bindings.tensors[0].strides[0] = 0;  // broadcast
  const auto arguments = program_arguments("mask", &program, &bindings);
  ASSERT_TRUE(arguments);
  EXPECT_EQ(arguments->tensors[0].data, doc.data());
  EXPECT_EQ(arguments->tensors[0].extent[0], 2);
  EXPECT_EQ(arguments->tensors[0].extent[1], 3);
  EXPECT_EQ(arguments->tensors[0].extent[2], 0);
  EXPECT_EQ(arguments->tensors[0].stride[0], 0);
  EXPECT_EQ(arguments->tensors[0].stride[1], 1);
  EXPECT_EQ(arguments->tensors[1].data, bias.data());
  EXPECT_EQ(arguments->integers[0], -5);
  EXPECT_EQ(arguments->reals[1], 0.5F);
}

TEST(ProgramArgumentsOf, MoreThanTwelveTensorsOrScalarsAreRefusedByName) {
  mask::Bindings bindings;
  bindings.tensors.resize(13);
  const mask::Program many_tensors({}, std::vector<mask::TensorDeclaration>(13));
  const auto tensors = program_arguments("mask", &many_tensors, &bindings);
  ASSERT_FALSE(tensors);
  EXPECT_EQ(tensors.error().code, ErrorCode::unsupported);
  EXPECT_EQ(tensors.error().argument, "mask tensors");
  EXPECT_EQ(tensors.error().got, "13");

  bindings = {};
  bindings.scalars.resize(13);
  const mask::Program many_scalars(std::vector<mask::ScalarDeclaration>(13), {});
  const auto scalars = program_arguments("score", &many_scalars, &bindings);
  ASSERT_FALSE(scalars);
  EXPECT_EQ(scalars.error().argument, "score scalars");
}

TEST(ProgramArgumentsOf, TwelveTensorsAndScalarsAreTaken) {
  mask::Bindings bindings;
  bindings.tensors.resize(12);
  bindings.scalars.resize(12);
  const mask::Program program(std::vector<mask::ScalarDeclaration>(12), std::vector<mask::TensorDeclaration>(12));
  EXPECT_TRUE(program_arguments("mask", &program, &bindings));
}

TEST(ProgramArgumentsOf, AnExtentPast32BitsIsRefusedByTheTensorsName) {
  const mask::Program program({}, {{"doc", DType::i32, 1}});
  mask::Bindings bindings;
  int value = 0;
  bindings.tensors = {TensorView::contiguous(&value, DType::i32, {std::int64_t{1} << 31})};
  const auto arguments = program_arguments("mask", &program, &bindings);
  ASSERT_FALSE(arguments);
  EXPECT_EQ(arguments.error().code, ErrorCode::unsupported);
  EXPECT_EQ(arguments.error().argument, "doc");
}

TEST(ScoreGradientArgumentsOf, ACallAreItsResultsAndTheirSumsOneBehindTheOther) {
  SmallCall call(Direction::backward);
  const mask::Program score({}, {{"bias", DType::f32, 2}, {"slope", DType::f32, 1}});
  call.args.score_program = &score;
  TensorView bias = TensorView::contiguous(made_up_address(0xa00), DType::f32, {6, 300});
  bias.strides = {1, 6};
  call.args.score_gradients = {bias, TensorView::contiguous(made_up_address(0xb00), DType::f32, {7})};
  const auto arguments_of = [&call] {
    const PlanSize size = plan_size(call.spec, call.args);
    return score_gradient_arguments(call.args,
                                    workspace_layout(call.spec, call.args.shape, size, score_sums(call.args)));
  };
  const auto usual = arguments_of();
  ASSERT_EQ(usual.count, 2);
  EXPECT_EQ(usual.of[0].result, made_up_address<float*>(0xa00));
  EXPECT_EQ(usual.of[0].elements, 1800);
  EXPECT_EQ(usual.of[0].rank, 2);
  EXPECT_EQ(usual.of[0].extent[1], 300);
  EXPECT_EQ(usual.of[0].stride[1], 6);
  EXPECT_EQ(usual.of[1].elements, 7);
  EXPECT_EQ(usual.of[0].sums, nullptr);
  call.args.deterministic = true;
  const auto deterministic = arguments_of();
  EXPECT_EQ(deterministic.of[1].sums - deterministic.of[0].sums, 1800);
}

TEST(ScoreGradientArgumentsOf, AnyCallLeaveRoomForASumOfAsManyOfTheLargestAddendAsItHasPairs) {
  SmallCall call(Direction::backward);
  const mask::Program score = causal_program();  // three nodes, so fewer than four lookups
  call.args.score_program = &score;
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1, 1, 1, 64, 32}, {2, 6, 3, 100, 200, 64, 32}, {4, 32, 8, 8192, 8192, 64, 32}}) {
    call.set_shape(shape);
    const auto arguments = score_gradient_arguments(call.args, {});
    const double pairs = static_cast<double>(shape.batch * shape.query_heads * shape.q_len * shape.kv_len);
    EXPECT_LE(std::log2(pairs * 3) + arguments.sum_bits, 62.0);
    EXPECT_GE(std::log2(pairs * 3) + arguments.sum_bits, 57.0) << "and hardly more";
  }
}

TEST(ProgramArgumentsOf, BindingsOfAnotherProgramAreRefused) {
  const mask::Program program = document_program(mask::Variable::b);
  const auto arguments = program_arguments("mask", &program, nullptr);
  ASSERT_FALSE(arguments);
  EXPECT_EQ(arguments.error().argument, "mask bindings");
}

}  // namespace
}  // namespace flashspan::cuda
