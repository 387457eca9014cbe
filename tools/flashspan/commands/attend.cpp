// attend.cpp -- `flashspan attend`: attention of arrays in files, forward and, with --do, backward.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/device_tensor.hpp"
#include "tools/flashspan/mask_source.hpp"
#include "tools/flashspan/npz.hpp"

namespace flashspan::tool {
namespace {

struct AttendOptions {
  MaskOptions mask;
  std::string query, key, value, sink, out_gradient, out;
  std::vector<std::string> score_gradients;
  std::string dtype, layout = "bshd", device = "auto";
  std::optional<float> scale;
  std::optional<std::string> cache_dir;
  bool deterministic = false;
  bool json = false;
};

/// The files' arrays, in the call's dtype and the layout they came in.
struct Inputs {
  HostArray query, key, value;
  std::optional<HostArray> sink;  ///< f32
  std::optional<HostArray> out_gradient;
  /// Of the tensors whose gradients are asked for.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> looked_up_shapes;
  AttentionShape shape;
};

Result<HostArray> read_reals(const std::string& option, const std::string& path) {
  auto array = read_array(path, option);
  if (!array) return array;
  if (array->dtype == DType::i32) {
    return Error{ErrorCode::bad_argument, option, "integers in " + path, "an array of f4 or f2", ""};
  }
  return array;
}

/// Reads one array of reals of rank 4.
Result<HostArray> read_input(const std::string& option, const std::string& path) {
  auto array = read_reals(option, path);
  if (!array) return array;
  if (array->shape.size() != 4) {
    return Error{
        ErrorCode::bad_argument, option, to_string(*array) + " (rank " + std::to_string(array->shape.size()) + ")",
        "rank 4: batch, sequence, heads, head dim (--layout bshd) or batch, heads, sequence, head dim (bhsd)", ""};
  }
  return array;
}

/// Checks the arrays against one another, so that a message names the option and the file's shape.
Result<AttentionShape> shape_of(const Inputs& inputs, const std::string& layout) {
  const std::size_t sequence = layout == "bshd" ? 1 : 2, heads = layout == "bshd" ? 2 : 1;
  const auto& q = inputs.query.shape;
  const auto& k = inputs.key.shape;
  const auto& v = inputs.value.shape;
  const auto mismatch = [](const std::string& option, const HostArray& array, const std::string& takes) {
    return Error{ErrorCode::bad_argument, option, to_string(array), takes, ""};
  };
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  if (k[0] != q[0]) return mismatch("--k", inputs.key, "batch " + number(q[0]) + " as --q");
  if (k[3] != q[3]) return mismatch("--k", inputs.key, "head dim " + number(q[3]) + " as --q");
  if (v[0] != q[0]) return mismatch("--v", inputs.value, "batch " + number(q[0]) + " as --q");
  if (v[sequence] != k[sequence]) return mismatch("--v", inputs.value, "length " + number(k[sequence]) + " as --k");
  if (v[heads] != k[heads]) return mismatch("--v", inputs.value, number(k[heads]) + " heads as --k");
  if (k[heads] == 0 ? q[heads] != 0 : q[heads] % k[heads] != 0) {
    return mismatch("--q", inputs.query, "a multiple of the " + number(k[heads]) + " heads of --k");
  }
  if (inputs.sink && inputs.sink->shape != std::vector<std::int64_t>{q[heads]}) {
    return mismatch("--sink", *inputs.sink, "one number for each of the " + number(q[heads]) + " heads of --q");
  }
  if (inputs.out_gradient) {
    auto expected = q;
    expected[3] = v[3];
    if (inputs.out_gradient->shape != expected) {
      return mismatch("--do", *inputs.out_gradient, to_string(HostArray{inputs.out_gradient->dtype, expected, {}}));
    }
  }
  return AttentionShape{q[0], q[heads], k[heads], q[sequence], k[sequence], q[3], v[3]};
}

Result<Inputs> read_inputs(const AttendOptions& options) {
  Inputs inputs;
  for (auto [option, path, target] : {std::tuple{"--q", &options.query, &inputs.query},
                                      {"--k", &options.key, &inputs.key},
                                      {"--v", &options.value, &inputs.value}}) {
    auto array = read_input(option, *path);
    if (!array) return array.error();
    *target = std::move(*array);
  }
  if (!options.sink.empty()) {
    auto array = read_reals("--sink", options.sink);
    if (!array) return array.error();
    inputs.sink = converted(std::move(*array), DType::f32);
  }
  if (!options.out_gradient.empty()) {
    auto array = read_input("--do", options.out_gradient);
    if (!array) return array.error();
    inputs.out_gradient = std::move(*array);
  }
  auto shape = shape_of(inputs, options.layout);
  if (!shape) return shape.error();
  inputs.shape = *shape;
  DType dtype = inputs.query.dtype;
  if (!options.dtype.empty()) {
    const auto asked = float_dtype(options.dtype);
    if (!asked) return asked.error();
    dtype = *asked;
  }
  for (HostArray* array : {&inputs.query, &inputs.key, &inputs.value}) *array = converted(std::move(*array), dtype);
  if (inputs.out_gradient) inputs.out_gradient = converted(std::move(*inputs.out_gradient), dtype);
  return inputs;
}

/// One attention on one device: owns the tensors and runs both directions.
class Run {
 public:
  Run(Attention attention, const Mask& mask, const std::optional<Score>& score, const AttendOptions& options)
      : attention_(std::move(attention)),
        mask_(mask),
        score_(score ? &*score : nullptr),
        scale_(options.scale),
        deterministic_(options.deterministic),
        swapped_(options.layout == "bshd") {}

  Result<void> upload(const Inputs& inputs) {
    const Device device = attention_.device();
    const DType dtype = inputs.query.dtype;
    auto out_shape = inputs.query.shape;
    out_shape[3] = inputs.shape.head_dim_v;
    const AttentionShape& shape = inputs.shape;
    Result<void> status;
    const auto keep = [&status](DeviceTensor& target, Result<DeviceTensor> tensor) {
      if (!status) return;
      if (!tensor) {
        status = tensor.error();
      } else {
        target = std::move(*tensor);
      }
    };
    keep(query_, DeviceTensor::from_host(device, inputs.query));
    keep(key_, DeviceTensor::from_host(device, inputs.key));
    keep(value_, DeviceTensor::from_host(device, inputs.value));
    if (inputs.sink) keep(sink_, DeviceTensor::from_host(device, *inputs.sink));
    keep(out_, DeviceTensor::allocate(device, dtype, out_shape));
    keep(lse_, DeviceTensor::allocate(device, DType::f32, {shape.batch, shape.query_heads, shape.q_len}));
    if (inputs.out_gradient) {
      keep(out_gradient_, DeviceTensor::from_host(device, *inputs.out_gradient));
      keep(query_gradient_, DeviceTensor::allocate(device, dtype, inputs.query.shape));
      keep(key_gradient_, DeviceTensor::allocate(device, dtype, inputs.key.shape));
      keep(value_gradient_, DeviceTensor::allocate(device, dtype, inputs.value.shape));
      if (inputs.sink) keep(sink_gradient_, DeviceTensor::allocate(device, DType::f32, inputs.sink->shape));
      for (const auto& [name, looked_up] : inputs.looked_up_shapes) {
        score_gradients_.emplace_back(name, DeviceTensor());
        keep(score_gradients_.back().second, DeviceTensor::allocate(device, DType::f32, looked_up));
      }
    }
    return status;
  }

  /// Prepares, launches and waits; the report holds the kernel's record and the milliseconds of the launch.
  Result<Json> forward() {
    ForwardCall call;
    call.query = heads_first(query_);
    call.key = heads_first(key_);
    call.value = heads_first(value_);
    call.out = heads_first(out_);
    call.lse = lse_.view();
    return launch(call, [this](const ForwardCall& ready) { return attention_.forward(ready); });
  }

  Result<Json> backward() {
    BackwardCall call;
    call.query = heads_first(query_);
    call.key = heads_first(key_);
    call.value = heads_first(value_);
    call.out = heads_first(out_);
    call.lse = lse_.view();
    call.out_gradient = heads_first(out_gradient_);
    call.query_gradient = heads_first(query_gradient_);
    call.key_gradient = heads_first(key_gradient_);
    call.value_gradient = heads_first(value_gradient_);
    call.sink_gradient = sink_gradient_.view();
    for (const auto& [name, gradient] : score_gradients_) call.score_gradients.push_back({name, gradient.view()});
    call.deterministic = deterministic_;
    return launch(call, [this](const BackwardCall& ready) { return attention_.backward(ready); });
  }

  /// The results in f32: out and lse, and the gradients, those of a sink and of the score's too, if there was an
  /// out_gradient.
  Result<NamedArrays> results() const {
    std::vector<std::pair<std::string, const DeviceTensor*>> wanted{{"out", &out_}, {"lse", &lse_}};
    if (out_gradient_.view().given()) {
      wanted.insert(wanted.end(), {{"dq", &query_gradient_}, {"dk", &key_gradient_}, {"dv", &value_gradient_}});
      if (sink_.view().given()) wanted.emplace_back("dsink", &sink_gradient_);
      for (const auto& [name, gradient] : score_gradients_) wanted.emplace_back("d" + name, &gradient);
    }
    NamedArrays arrays;
    for (const auto& [name, tensor] : wanted) {
      auto array = tensor->to_host();
      if (!array) return array.error();
      arrays.emplace_back(name, converted(std::move(*array), DType::f32));
    }
    return arrays;
  }

 private:
  [[nodiscard]] TensorView heads_first(const DeviceTensor& tensor) const {
    return swapped_ ? tensor.view().with_axes_swapped(1, 2) : tensor.view();
  }

  template <typename Call, typename Launch>
  Result<Json> launch(Call& call, const Launch& start) {
    call.mask = &mask_;
    call.score = score_;
    call.scale = scale_;
    call.sink = sink_.view();
    const auto record = attention_.prepare(call);
    if (!record) return record.error();
    const auto bytes = attention_.workspace_bytes(call);
    if (!bytes) return bytes.error();
    auto workspace = DeviceTensor::allocate(attention_.device(), DType::i32, {(*bytes + 3) / 4});
    if (!workspace) return workspace.error();
    call.workspace = workspace->view().data;
    call.workspace_bytes = *bytes;
    const auto begin = std::chrono::steady_clock::now();
    if (auto started = start(call); !started) return started.error();
    if (auto finished = synchronize(attention_.device()); !finished) return finished.error();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    Json report = to_json(*record);
    report["run_ms"] = elapsed.count();
    return report;
  }

  Attention attention_;
  const Mask& mask_;
  const Score* score_;
  std::optional<float> scale_;
  bool deterministic_;
  bool swapped_;
  DeviceTensor query_, key_, value_, sink_, out_, lse_;
  DeviceTensor out_gradient_, query_gradient_, key_gradient_, value_gradient_, sink_gradient_;
  std::vector<std::pair<std::string, DeviceTensor>> score_gradients_;
};

void print_direction(const char* name, const Json& report) {
  std::printf("%-9s lowering %s, compile %.1f ms (%s), %d registers, run %.3f ms\n", name,
              report["lowering"].get<std::string>().c_str(), report["compile_ms"].get<double>(),
              report["outcome"].get<std::string>().c_str(), report["registers"].get<int>(),
              report["run_ms"].get<double>());
}

void print_report(const Json& report) {
  std::printf("device    %s, %s\n", report["device"].get<std::string>().c_str(),
              report["dtype"].get<std::string>().c_str());
  std::printf("mask      %s\n", report["mask"].get<std::string>().c_str());
  print_direction("forward", report["forward"]);
  if (report.contains("backward")) print_direction("backward", report["backward"]);
  std::printf("wrote     %s\n", report["out"].get<std::string>().c_str());
}

/// Mask and score with their arrays on `device`.
struct PlacedMask {
  Mask mask;
  std::optional<Score> score;
};

Result<PlacedMask> place_mask(const MaskSource& source, const AttentionShape& shape, Device device) {
  auto mask = source.mask(shape);
  if (!mask) return mask.error();
  auto score = source.score();
  if (!score) return score.error();
  if (device.kind == DeviceKind::cpu) return PlacedMask{std::move(*mask), std::move(*score)};
  auto placed = mask->to(device);
  if (!placed) return placed.error();
  if (!*score) return PlacedMask{std::move(*placed), std::nullopt};
  auto placed_score = (*score)->to(device);
  if (!placed_score) return placed_score.error();
  return PlacedMask{std::move(*placed), std::move(*placed_score)};
}

/// Error: bad_argument for a gradient of no --tensor, or without --do.
Result<void> name_score_gradients(const AttendOptions& options, const MaskSource& source, Inputs& inputs) {
  for (const std::string& name : options.score_gradients) {
    const auto refused = [&name](const std::string& takes) {
      return Error{ErrorCode::bad_argument, "--score-gradient", name, takes, ""};
    };
    if (!inputs.out_gradient) return refused("a run of the backward: with --do");
    const std::vector<std::int64_t> shape = source.tensor_shape(name);
    if (shape.empty()) return refused("the name of a --tensor that --score looks up");
    constexpr std::array names_of_inputs{"q", "k", "v", "sink"};
    if (std::ranges::find(names_of_inputs, name) != names_of_inputs.end()) {
      return refused("another name for that --tensor: d" + name + " is the gradient of --" + name);
    }
    inputs.looked_up_shapes.emplace_back(name, shape);
  }
  return {};
}

Result<Json> attend(const AttendOptions& options) {
  const bool backward = !options.out_gradient.empty();
  Progress progress(backward ? 4 : 3, options.json);
  progress.step("reading arrays");
  auto inputs = read_inputs(options);
  if (!inputs) return inputs.error();
  const auto source = MaskSource::read(options.mask);
  if (!source) return source.error();
  if (auto known = name_score_gradients(options, *source, *inputs); !known) return known.error();
  const auto device = device_from_string(options.device);
  if (!device) return device.error();
  const auto placed = place_mask(*source, inputs->shape, *device);
  if (!placed) return placed.error();
  AttentionOptions opening;
  opening.cache_dir = options.cache_dir;
  auto attention = Attention::open(*device, opening);
  if (!attention) return attention.error();

  Run run(std::move(*attention), placed->mask, placed->score, options);
  if (auto uploaded = run.upload(*inputs); !uploaded) return uploaded.error();
  Json report{{"device", to_string(*device)},           {"dtype", to_string(inputs->query.dtype)},
              {"batch", inputs->shape.batch},           {"query_heads", inputs->shape.query_heads},
              {"kv_heads", inputs->shape.kv_heads},     {"q_len", inputs->shape.q_len},
              {"kv_len", inputs->shape.kv_len},         {"head_dim_qk", inputs->shape.head_dim_qk},
              {"head_dim_v", inputs->shape.head_dim_v}, {"mask", placed->mask.text()}};
  if (placed->score) report["score"] = placed->score->text();
  progress.step("forward");
  auto forward = run.forward();
  if (!forward) return forward.error();
  report["forward"] = std::move(*forward);
  if (backward) {
    progress.step("backward");
    auto report_backward = run.backward();
    if (!report_backward) return report_backward.error();
    report["backward"] = std::move(*report_backward);
  }
  progress.step("writing " + options.out);
  const auto results = run.results();
  if (!results) return results.error();
  if (auto written = write_npz(options.out, "--out", *results); !written) return written.error();
  report["out"] = options.out;
  return report;
}

}  // namespace

void add_attend(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command = application.add_subcommand("attend", "Attention of arrays in .npy or .npz files");
  auto options = std::make_shared<AttendOptions>();
  add_mask_options(*command, options->mask, true);
  add_lowering_option(*command, options->mask);
  command->add_option("--q", options->query, "Queries, f4 or f2")->required()->type_name("FILE");
  command->add_option("--k", options->key, "Keys")->required()->type_name("FILE");
  command->add_option("--v", options->value, "Values")->required()->type_name("FILE");
  command->add_option("--sink", options->sink, "Sink logits [heads], f4 or f2: one more column in the softmax")
      ->type_name("FILE");
  command->add_option("--do", options->out_gradient, "Gradient of out; runs the backward too")->type_name("FILE");
  add_score_gradient_option(*command, options->score_gradients);
  command
      ->add_option("--out", options->out,
                   "Results: out, lse [batch, heads, queries] and dq, dk, dv, dsink and a dNAME for each "
                   "--score-gradient, all f4")
      ->required()
      ->type_name("FILE.npz");
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16 (default: that of --q; CUDA takes f16 and bf16)");
  command->add_option("--scale", options->scale, "Factor of the scores (default: 1 / sqrt(head dim))");
  command->add_flag("--deterministic", options->deterministic, "The same bits every time, in the backward too");
  command->add_option("--layout", options->layout, "Order of axes in the files: bshd or bhsd")
      ->check(CLI::IsMember({"bshd", "bhsd"}))
      ->capture_default_str();
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  add_cache_dir_option(*command, options->cache_dir);
  add_json_option(*command, options->json);
  command->callback([options, &chosen] {
    chosen = [options] {
      const auto report = attend(*options);
      if (!report) return report_error(report.error(), options->json);
      if (options->json) {
        print_json(*report);
      } else {
        print_report(*report);
      }
      return ExitCode::ok;
    };
  });
}

}  // namespace flashspan::tool
