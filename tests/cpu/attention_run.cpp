#include "attention_run.hpp"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/cpu/call_sizes.hpp"
#include "runtime/cpu/tile_lists.hpp"
#include "runtime/cpu/tile_planner.hpp"

namespace flashspan::cpu_test {
namespace {

// A tensor in memory of the tested dtype and layout.
class Storage {
 public:
  Storage(const oracle::Tensor& shape, DType dtype, const RunOptions& options) : dtype_(dtype) {
    const std::int64_t row_stride = shape.columns + (options.head_inside ? 3 : 0);
    const std::int64_t elements = shape.batch * shape.heads * shape.rows * row_stride;
    memory_.resize(static_cast<std::size_t>((elements + 1) * size_in_bytes(dtype)));
    view_ = TensorView::contiguous(memory_.data(), dtype, {shape.batch, shape.heads, shape.rows, shape.columns});
    if (options.head_inside) {
      view_.strides = {shape.rows * shape.heads * row_stride, row_stride, shape.heads * row_stride, 1, 0};
    }
  }

  void write(const oracle::Tensor& values) {
    each(values,
         [&](std::byte* place, double value) { oracle::store(format_of(dtype_), static_cast<float>(value), place); });
  }
  oracle::Tensor read(oracle::Tensor shape) {
    each(shape, [&](std::byte* place, double& value) { value = oracle::load(format_of(dtype_), place); });
    return shape;
  }
  void fill_with_nan() { std::memset(memory_.data(), 0xFF, memory_.size()); }
  [[nodiscard]] TensorView view() const { return view_; }
  /// Without the last axis, of one element.
  [[nodiscard]] TensorView row_view() const {
    TensorView view = view_;
    view.rank = 3;
    return view;
  }

 private:
  template <typename Tensor, typename Body>
  void each(Tensor& tensor, const Body& body) {
    for (std::int64_t b = 0; b < tensor.batch; ++b) {
      for (std::int64_t h = 0; h < tensor.heads; ++h) {
        for (std::int64_t s = 0; s < tensor.rows; ++s) {
          for (std::int64_t d = 0; d < tensor.columns; ++d) {
            const std::int64_t offset = b * view_.strides[0] + h * view_.strides[1] + s * view_.strides[2] + d;
            body(memory_.data() + offset * size_in_bytes(dtype_), tensor.row(b, h, s)[d]);
          }
        }
      }
    }
  }

  DType dtype_;
  std::vector<std::byte> memory_;
  TensorView view_;
};

AttentionShape shape_of(const oracle::Problem& problem) {
  return {problem.query.batch, problem.query.heads,   problem.key.heads,    problem.query.rows,
          problem.key.rows,    problem.query.columns, problem.value.columns};
}

void set_programs(backend::LaunchArgs& args, const BoundProgram* mask, const BoundProgram* score) {
  if (mask != nullptr) {
    args.mask_program = &mask->program;
    args.mask_bindings = &mask->bindings;
  }
  if (score != nullptr) {
    args.score_program = &score->program;
    args.score_bindings = &score->bindings;
  }
}

// run(), with a workspace of exactly the promised size.
void run_direction(Direction direction, backend::LaunchArgs args, const BoundProgram* mask, const BoundProgram* score,
                   const RunOptions& options) {
  const kernel::KernelSpec spec =
      spec_of(direction, options.dtype, static_cast<int>(args.shape.head_dim_qk),
              static_cast<int>(args.shape.head_dim_v), mask, score, options.block_m, options.block_n);
  set_programs(args, mask, score);
  const std::shared_ptr<cpu::CpuKernel> kernel = kernel_of(spec);
  args.workspace_bytes = cpu_backend().workspace_bytes(spec, args);
  std::vector<unsigned char> workspace(static_cast<std::size_t>(args.workspace_bytes), 0xFF);
  args.workspace = workspace.data();
  if (options.plan_first && mask != nullptr) {
    const cpu::CallSizes sizes(spec, args);
    cpu::plan_tiles(kernel->functions(), mask->program, mask->bindings, sizes,
                    cpu::lay_out(direction, sizes, workspace.data()));
    args.planned = true;
  }
  const auto work = [&] {
    const Result<void> done = cpu_backend().run(*kernel, spec, args);
    if (!done) throw std::runtime_error(done.error().message());
  };
  if (options.threads == 0) {
    work();
  } else {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                    static_cast<std::size_t>(options.threads));
    tbb::task_arena(options.threads).execute(work);
  }
}

}  // namespace

oracle::Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return oracle::Format::f16;
    case DType::bf16:
      return oracle::Format::bf16;
    case DType::f32:
    case DType::i32:
      return oracle::Format::f32;
  }
  return oracle::Format::f32;
}

oracle::Answer run_attention(const oracle::Problem& problem, const BoundProgram* mask, const BoundProgram* score,
                             const RunOptions& options) {
  oracle::Answer answer;
  answer.out = oracle::Tensor(problem.query.batch, problem.query.heads, problem.query.rows, problem.value.columns);
  answer.lse = oracle::Tensor(problem.query.batch, problem.query.heads, problem.query.rows, 1);
  Storage query(problem.query, options.dtype, options);
  Storage key(problem.key, options.dtype, options);
  Storage value(problem.value, options.dtype, options);
  Storage out(answer.out, options.dtype, options);
  Storage lse(answer.lse, DType::f32, options);
  query.write(problem.query);
  key.write(problem.key);
  value.write(problem.value);
  out.fill_with_nan();
  lse.fill_with_nan();
  backend::LaunchArgs args;
  args.shape = shape_of(problem);
  args.scale = static_cast<float>(problem.scale);
  args.query = query.view();
  args.key = key.view();
  args.value = value.view();
  args.out = out.view();
  if (options.give_lse) args.lse = lse.row_view();
  run_direction(Direction::forward, args, mask, score, options);
  answer.out = out.read(answer.out);
  answer.lse = lse.read(answer.lse);
  if (!problem.out_gradient || !options.give_lse) return answer;

  Storage out_gradient(*problem.out_gradient, options.dtype, options);
  Storage lse_gradient(answer.lse, DType::f32, options);
  Storage query_gradient(problem.query, options.dtype, options);
  Storage key_gradient(problem.key, options.dtype, options);
  Storage value_gradient(problem.value, options.dtype, options);
  out_gradient.write(*problem.out_gradient);
  args.out_gradient = out_gradient.view();
  if (problem.lse_gradient) {
    lse_gradient.write(*problem.lse_gradient);
    args.lse_gradient = lse_gradient.row_view();
  }
  for (Storage* result : {&query_gradient, &key_gradient, &value_gradient}) result->fill_with_nan();
  args.query_gradient = query_gradient.view();
  args.key_gradient = key_gradient.view();
  args.value_gradient = value_gradient.view();
  run_direction(Direction::backward, args, mask, score, options);
  answer.query_gradient = query_gradient.read(problem.query);
  answer.key_gradient = key_gradient.read(problem.key);
  answer.value_gradient = value_gradient.read(problem.value);
  return answer;
}

VisitedTiles count_visited_tiles(const AttentionShape& shape, const BoundProgram& mask, Direction direction,
                                 const RunOptions& options) {
  const kernel::KernelSpec spec =
      spec_of(direction, options.dtype, static_cast<int>(shape.head_dim_qk), static_cast<int>(shape.head_dim_v), &mask,
              nullptr, options.block_m, options.block_n);
  backend::LaunchArgs args;
  args.shape = shape;
  set_programs(args, &mask, nullptr);
  args.workspace_bytes = cpu_backend().workspace_bytes(spec, args);
  std::vector<unsigned char> workspace(static_cast<std::size_t>(args.workspace_bytes), 0xFF);
  args.workspace = workspace.data();
  const cpu::CallSizes sizes(spec, args);
  const cpu::Workspace parts = cpu::lay_out(direction, sizes, workspace.data());
  cpu::plan_tiles(kernel_of(spec)->functions(), mask.program, mask.bindings, sizes, parts);
  const cpu::TileLists by_query(parts.by_query_counts, parts.by_query_tiles, sizes.q_tiles, sizes.k_tiles);
  const cpu::TileLists by_key(parts.by_key_counts, parts.by_key_tiles, sizes.k_tiles, sizes.q_tiles);
  VisitedTiles tiles;
  const bool backward = direction == Direction::backward;
  const cpu::TileLists& lists = backward ? by_key : by_query;
  for (std::int64_t plan_row = 0; plan_row < sizes.plan_batch * sizes.plan_heads; ++plan_row) {
    for (std::int64_t row = 0; row < (backward ? sizes.k_tiles : sizes.q_tiles); ++row) {
      for (std::int64_t i = 0; i < lists.count(plan_row, row); ++i) {
        ++tiles.visited;
        tiles.partial += lists.entry(plan_row, row, i).partial ? 1 : 0;
      }
    }
  }
  return tiles;
}

}  // namespace flashspan::cpu_test
