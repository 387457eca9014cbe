// emulated_attention.cpp -- see emulated_attention.hpp.
#include "tests/kernel/emulator/emulated_attention.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <span>

#include "codegen/kernel/emit_cuda.hpp"
#include "runtime/cuda/launch_arguments.hpp"
#include "runtime/cuda/launch_grids.hpp"
#include "runtime/cuda/program_code.hpp"
#include "runtime/cuda/workspace_layout.hpp"

namespace flashspan::test {
namespace {

using oracle::Index;
using oracle::Tensor;

Error failure(const std::string& what, const std::string& detail) {
  return Error{ErrorCode::device_error, what, "a failure", "a clean run", detail};
}

/// A tensor in its element format, in memory of its own with NaN around and, unless `aligned`, between its rows.
class StoredTensor {
 public:
  StoredTensor() = default;
  StoredTensor(const Tensor& tensor, DType dtype, bool aligned)
      : shape_(tensor.batch, tensor.heads, tensor.rows, tensor.columns), dtype_(dtype) {
    pitch_ = shape_.columns + (aligned ? 0 : gap);
    const Index elements = shape_.batch * shape_.heads * shape_.rows * pitch_ + 2 * guard;
    bytes_.assign(static_cast<std::size_t>(elements * element_bytes()) + alignment, std::byte{0xff});
  }
  void fill(const Tensor& tensor) {
    for_each([&](Index at, std::byte* element) {
      oracle::store(format(), static_cast<float>(tensor.values[static_cast<std::size_t>(at)]), element);
    });
  }
  [[nodiscard]] Tensor take() {
    Tensor result = shape_;
    for_each([&](Index at, const std::byte* element) {
      result.values[static_cast<std::size_t>(at)] = oracle::load(format(), element);
    });
    return result;
  }
  /// Rank 4, or 3 for one column.
  [[nodiscard]] TensorView view(int rank) {
    TensorView view;
    view.data = first();
    view.dtype = dtype_;
    view.rank = rank;
    view.shape = {shape_.batch, shape_.heads, shape_.rows, shape_.columns};
    view.strides = {shape_.heads * shape_.rows * pitch_, shape_.rows * pitch_, pitch_, 1};
    view.device = {DeviceKind::cuda, 0};
    return view;
  }
  /// [1, H, 1, 1] as [H].
  [[nodiscard]] TensorView head_view() {
    TensorView view = this->view(1);
    view.shape = {shape_.heads};
    view.strides = {pitch_};
    return view;
  }
  /// False if anything outside the tensor was written.
  [[nodiscard]] bool surroundings_are_untouched() {
    std::vector<bool> inside(bytes_.size(), false);
    for_each([&](Index, const std::byte* element) {
      const auto at = static_cast<std::size_t>(element - bytes_.data());
      for (std::size_t i = 0; i < static_cast<std::size_t>(element_bytes()); ++i) inside[at + i] = true;
    });
    for (std::size_t at = 0; at < bytes_.size(); ++at) {
      if (!inside[at] && bytes_[at] != std::byte{0xff}) return false;
    }
    return true;
  }

 private:
  static constexpr Index gap = 3;     // elements: makes rows start at odd addresses
  static constexpr Index guard = 64;  // elements before and behind
  static constexpr std::size_t alignment = 64;

  [[nodiscard]] Index element_bytes() const { return dtype_ == DType::f32 ? 4 : 2; }
  [[nodiscard]] oracle::Format format() const {
    return dtype_ == DType::f32   ? oracle::Format::f32
           : dtype_ == DType::f16 ? oracle::Format::f16
                                  : oracle::Format::bf16;
  }
  [[nodiscard]] std::byte* first() {
    std::byte* const start = bytes_.data() + guard * element_bytes();
    const auto past = reinterpret_cast<std::uintptr_t>(start) % alignment;
    return past == 0 ? start : start + (alignment - past);
  }
  template <typename Visit>
  void for_each(const Visit& visit) {
    for (Index row = 0; row < shape_.batch * shape_.heads * shape_.rows; ++row) {
      for (Index column = 0; column < shape_.columns; ++column) {
        visit(row * shape_.columns + column, first() + (row * pitch_ + column) * element_bytes());
      }
    }
  }

  Tensor shape_;
  DType dtype_ = DType::f32;
  Index pitch_ = 0;
  std::vector<std::byte> bytes_;
};

/// What the planner's blocks hand on to one another is gone when a later call reuses their plan.
void poison_scratch(const flashspan_device::AttentionParameters& parameters, const cuda::WorkspaceLayout& layout) {
  if (layout.counters.bytes == 0) return;
  const auto poison = [](void* first, std::int64_t bytes) {
    std::memset(first, 0xff, static_cast<std::size_t>(bytes));
  };
  poison(parameters.scratch.undecided, layout.undecided.bytes);
  poison(parameters.scratch.shares, layout.shares.bytes);
  poison(parameters.scratch.slots_taken, layout.counters.bytes - std::int64_t{sizeof(*parameters.next_item)});
}

/// What both directions need: the stored tensors and the programs.
struct Memory {
  StoredTensor query, key, value, sink, out, lse;
  StoredTensor out_gradient, lse_gradient, query_gradient, key_gradient, value_gradient, sink_gradient;
  std::vector<StoredTensor> score_gradients;
};

Index elements_of(const std::vector<Index>& shape) {
  return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>());
}

/// A tensor [1, 1, rows, columns] as one of `shape`, whose last axis are the columns.
TensorView in_shape(StoredTensor& tensor, const std::vector<Index>& shape) {
  TensorView view = tensor.view(static_cast<int>(shape.size()));
  std::int64_t stride = view.strides[2];
  view.shape = {};
  view.strides = {};
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const bool last = axis + 1 == shape.size();
    view.shape[axis] = shape[axis];
    view.strides[axis] = last ? 1 : stride;
    if (!last) stride *= shape[axis];
  }
  return view;
}

/// Runs entry points of a kernel with the same arguments.
struct Launcher {
  struct Step {
    const char* entry;
    long long blocks;
    int threads;
  };

  Result<void> run(std::initializer_list<Step> steps) const {
    for (const Step& step : steps) {
      if (step.blocks == 0) continue;
      const std::string wrong = kernel.run(step.entry, step.blocks, step.threads, arguments);
      if (!wrong.empty()) return failure(spec.summary() + ", " + step.entry, wrong);
    }
    return {};
  }

  const EmulatedKernel& kernel;
  const kernel::KernelSpec& spec;
  std::span<void* const> arguments;
};

class Runner {
 public:
  explicit Runner(EmulatedCall call) : call_(std::move(call)) {}

  Result<EmulatedRun> run() {
    if (auto done = store(); !done) return done.error();
    if (auto done = run_direction(Direction::forward); !done) return done.error();
    run_.answer.out = memory_.out.take();
    run_.answer.lse = memory_.lse.take();
    if (!call_.problem.out_gradient) return std::move(run_);
    if (auto done = run_direction(Direction::backward); !done) return done.error();
    run_.answer.query_gradient = memory_.query_gradient.take();
    run_.answer.key_gradient = memory_.key_gradient.take();
    run_.answer.value_gradient = memory_.value_gradient.take();
    if (call_.problem.sink) run_.answer.sink_gradient = memory_.sink_gradient.take();
    for (StoredTensor& stored : memory_.score_gradients) {
      Tensor gradient = stored.take();
      gradient.columns *= gradient.rows;  // the oracle's are one row
      gradient.rows = 1;
      run_.answer.score_gradients.push_back(std::move(gradient));
    }
    return std::move(run_);
  }

 private:
  Result<void> store() {
    const oracle::Problem& problem = call_.problem;
    const DType dtype = call_.spec.dtype;
    const auto stored = [&](const Tensor& tensor, bool filled) {
      StoredTensor result(tensor, dtype, call_.spec.aligned);
      if (filled) result.fill(tensor);
      return result;
    };
    memory_.query = stored(problem.query, true);
    memory_.key = stored(problem.key, true);
    memory_.value = stored(problem.value, true);
    const Tensor out(problem.query.batch, problem.query.heads, problem.query.rows, problem.value.columns);
    const Tensor lse(problem.query.batch, problem.query.heads, problem.query.rows, 1);
    memory_.out = stored(out, false);
    memory_.lse = StoredTensor(lse, DType::f32, true);
    if (problem.sink) {
      memory_.sink = StoredTensor(*problem.sink, DType::f32, false);
      memory_.sink.fill(*problem.sink);
      memory_.sink_gradient = StoredTensor(*problem.sink, DType::f32, false);
    }
    if (!problem.out_gradient) return {};
    memory_.out_gradient = stored(*problem.out_gradient, true);
    memory_.query_gradient = stored(problem.query, false);
    memory_.key_gradient = stored(problem.key, false);
    memory_.value_gradient = stored(problem.value, false);
    for (const std::vector<Index>& shape : call_.score_gradients) {
      const Tensor rows(1, 1, elements_of(shape) / shape.back(), shape.back());
      memory_.score_gradients.emplace_back(rows, DType::f32, call_.spec.aligned);
    }
    if (!problem.lse_gradient) return {};
    memory_.lse_gradient = StoredTensor(lse, DType::f32, true);
    memory_.lse_gradient.fill(*problem.lse_gradient);
    return {};
  }

  Result<backend::LaunchArgs> launch_args(const kernel::KernelSpec& spec) {
    const oracle::Problem& problem = call_.problem;
    backend::LaunchArgs args;
    args.shape = {problem.query.batch, problem.query.heads,   problem.key.heads,    problem.query.rows,
                  problem.key.rows,    problem.query.columns, problem.value.columns};
    args.query = memory_.query.view(4);
    args.key = memory_.key.view(4);
    args.value = memory_.value.view(4);
    args.out = memory_.out.view(4);
    args.lse = memory_.lse.view(3);
    if (problem.sink) args.sink = memory_.sink.head_view();
    if (spec.direction == Direction::backward) {
      args.out_gradient = memory_.out_gradient.view(4);
      args.query_gradient = memory_.query_gradient.view(4);
      args.key_gradient = memory_.key_gradient.view(4);
      args.value_gradient = memory_.value_gradient.view(4);
      if (problem.lse_gradient) args.lse_gradient = memory_.lse_gradient.view(3);
      if (problem.sink) args.sink_gradient = memory_.sink_gradient.head_view();
      for (std::size_t i = 0; i < call_.score_gradients.size(); ++i) {
        args.score_gradients.push_back(in_shape(memory_.score_gradients[i], call_.score_gradients[i]));
      }
      args.deterministic = call_.deterministic;
    }
    args.scale = static_cast<float>(problem.scale);
    auto mask = cuda::mask_program_of(call_.spec);
    if (!mask) return mask.error();
    mask_ = *std::move(mask);
    args.mask_program = &mask_;
    args.mask_bindings = &call_.mask_bindings;
    if (spec.score.empty()) return args;
    auto score = mask::Program::from_signature(spec.score);
    if (!score) return score.error();
    score_ = *std::move(score);
    args.score_program = &score_;
    args.score_bindings = &call_.score_bindings;
    return args;
  }

  Result<void> run_direction(Direction direction) {
    call_.spec.direction = direction;
    call_.spec.head_dim_qk = static_cast<int>(call_.problem.query.columns);
    call_.spec.head_dim_v = static_cast<int>(call_.problem.value.columns);
    const auto spec = cuda::make_spec(call_.spec);
    if (!spec) return spec.error();
    (direction == Direction::forward ? run_.forward_tile : run_.backward_tile) = spec->tile;
    const auto source = kernel::emit_cuda(*spec);
    if (!source) return source.error();
    const auto kernel = EmulatedKernel::compile(*source);
    if (!kernel) return kernel.error();
    const auto args = launch_args(*spec);
    if (!args) return args.error();
    if (auto done = launch(*kernel, *spec, *args); !done) return done.error();
    run_.bank_conflicts += kernel->bank_conflicts();
    std::vector<StoredTensor*> tensors{&memory_.out,
                                       &memory_.lse,
                                       &memory_.query_gradient,
                                       &memory_.key_gradient,
                                       &memory_.value_gradient,
                                       &memory_.sink_gradient,
                                       &memory_.query,
                                       &memory_.key,
                                       &memory_.value};
    for (StoredTensor& gradient : memory_.score_gradients) tensors.push_back(&gradient);
    for (StoredTensor* tensor : tensors) {
      if (!tensor->surroundings_are_untouched()) return failure(spec->summary(), "memory outside a tensor was written");
    }
    return {};
  }

  Result<void> launch(const EmulatedKernel& kernel, const kernel::KernelSpec& spec, const backend::LaunchArgs& args) {
    const cuda::PlanSize size = cuda::plan_size(spec, args);
    const auto grids = cuda::launch_grids(spec, args.shape, size);
    if (!grids) return grids.error();
    const cuda::WorkspaceLayout layout = cuda::workspace_layout(spec, args.shape, size, cuda::score_sums(args));
    std::vector<std::byte> workspace(static_cast<std::size_t>(layout.bytes), std::byte{0xff});
    backend::LaunchArgs placed = args;
    placed.workspace = workspace.data();
    auto parameters = cuda::attention_parameters(spec, placed, size, layout);
    auto mask = cuda::program_arguments("mask", args.mask_program, args.mask_bindings);
    if (!mask) return mask.error();
    auto score = cuda::program_arguments("score", args.score_program, args.score_bindings);
    if (!score) return score.error();

    if (spec.lowering == mask::LoweringKind::interpreted) {
      auto code = cuda::program_code(*args.mask_program);
      if (!code) return code.error();
      mask->code = cuda::code_place(workspace.data(), layout);
      const std::array<void*, 2> of_program{&*code, &*mask};
      const std::string wrong =
          kernel.run(kernel::entry_plan_program, grids->plan_program, flashspan_device::max_instructions, of_program);
      if (!wrong.empty()) return failure(spec.summary() + ", plan_program", wrong);
    }
    auto score_gradients = cuda::score_gradient_arguments(placed, layout);
    const std::array<void*, 4> arguments{&parameters, &*mask, &*score, &score_gradients};
    const int threads = spec.tile.num_warps * 32;
    const long long sink_blocks = args.sink_gradient.given() ? grids->backward_sink : 0;
    const Launcher launcher{kernel, spec, arguments};
    auto planned = launcher.run({{kernel::entry_plan_tiles, grids->plan_tiles, cuda::plan_threads}});
    if (!planned) return planned;
    poison_scratch(parameters, layout);
    auto done = launcher.run({{kernel::entry_forward, grids->forward, threads},
                              {kernel::entry_backward_delta, grids->backward_delta, cuda::delta_threads},
                              {kernel::entry_backward_sink, sink_blocks, cuda::delta_threads},
                              {kernel::entry_backward_dq, grids->backward_dq, threads},
                              {kernel::entry_backward_dkdv, grids->backward_dkdv, threads}});
    if (!done) return done;
    done = launch_score_gradients(launcher, grids->backward_score_sum, args.deterministic, score_gradients);
    if (!done) return done;
    if (spec.lowering == mask::LoweringKind::none) return {};
    (spec.direction == Direction::forward ? run_.forward_plan : run_.backward_plan) = take_plan(parameters, size, spec);
    return {};
  }

  /// As the back end does. `gradients` is among the launcher's arguments.
  static Result<void> launch_score_gradients(const Launcher& launcher, long long sum_blocks, bool deterministic,
                                             flashspan_device::ScoreGradientArguments& gradients) {
    using Run = flashspan_device::ScoreGradientRun;
    if (gradients.count == 0) return {};
    const auto over_elements = [&](const char* entry) {
      return launcher.run({{entry, cuda::score_element_blocks(gradients), flashspan_device::score_element_threads}});
    };
    const auto sum = [&](Run run) {
      gradients.run = run;
      return launcher.run({{kernel::entry_backward_score_sum, sum_blocks, cuda::score_sum_threads(launcher.spec)}});
    };
    if (auto cleared = over_elements(kernel::entry_backward_score_clear); !cleared) return cleared;
    if (!deterministic) return sum(Run::add);
    if (auto measured = sum(Run::measure); !measured) return measured;
    if (auto added = sum(Run::add_in_units); !added) return added;
    return over_elements(kernel::entry_backward_score_round);
  }

  EmulatedCall call_;
  EmulatedRun run_;
  Memory memory_;
  mask::Program mask_, score_;
};

}  // namespace

Result<EmulatedRun> run_emulated(EmulatedCall call) { return Runner(std::move(call)).run(); }

}  // namespace flashspan::test
