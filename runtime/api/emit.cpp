// emit.cpp -- calls recorded on a driver without a device, and written down.
#include "flashspan/emit.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel/emit_cuda.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/c_program.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/provider_options.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/api/triton_ptx.hpp"
#include "runtime/attention/attention_op.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/cuda/cuda_backend.hpp"
#include "runtime/cuda/launch_recorder.hpp"
#include "runtime/cuda/nvrtc_compiler.hpp"

namespace flashspan {

namespace {

using api::CArgument;
using attention::AttentionCall;
using attention::bad_argument;

constexpr Device recorded_device{DeviceKind::cuda, 0};

Result<void> check_request(const EmitRequest& request) {
  const auto is_letter = [](char letter) {
    return std::isalpha(static_cast<unsigned char>(letter)) != 0 || letter == '_';
  };
  const auto in_name = [&](char letter) {
    return is_letter(letter) || std::isdigit(static_cast<unsigned char>(letter)) != 0;
  };
  if (request.name.empty() || !is_letter(request.name.front()) || !std::ranges::all_of(request.name, in_name)) {
    return bad_argument("name", request.name, "an identifier of C");
  }
  if (request.archs.empty()) return bad_argument("archs", "none", "one architecture at least");
  for (const Arch arch : request.archs) {
    const auto served = cuda::arch_for({arch.number / 10, arch.number % 10});
    if (served && *served == arch) continue;
    return Error{ErrorCode::unsupported, "arch", to_string(arch),
                 served ? to_string(*served) + ", which its devices run" : "sm_80, sm_86, sm_89, sm_90a, sm_100, ...",
                 ""};
  }
  return {};
}

/// The function's arguments, and the call that their addresses make.
class ArgumentList {
 public:
  TensorView tensor(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape) {
    TensorView view;
    view.data = address(name, text_of(dtype, shape));
    view.dtype = dtype;
    view.rank = static_cast<int>(shape.size());
    view.device = recorded_device;
    std::int64_t stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      view.shape[axis] = shape[axis];
      view.strides[axis] = stride;
      stride *= shape[axis];
    }
    return view;
  }
  /// Of a program's data: tensors take addresses of ours, and scalars places. `parameter`: of every launch.
  void add_program(const std::string& prefix, attention::BoundProgram& program, int parameter) {
    const auto& tensors = program.program.tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TensorView& view = program.bindings.tensors[i];
      std::vector<std::int64_t> strides(view.strides.begin(), view.strides.begin() + view.rank);
      const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
      view.data =
          address(prefix + c_name(tensors[i].name), text_of(view.dtype, shape) + ", strides " + joined(strides));
      view.device = recorded_device;
    }
    const auto& scalars = program.program.scalars();
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      const bool real = scalars[i].type == mask::ValueType::real;
      add({real ? CArgument::Kind::real : CArgument::Kind::integer, prefix + c_name(scalars[i].name),
           real ? "a real number" : "a whole number", parameter,
           real ? cuda::offset_of_real(i) : cuda::offset_of_integer(i)});
    }
  }
  void* address(const std::string& name, const std::string& comment) {
    add({CArgument::Kind::memory, name, comment, 0, 0});
    return reinterpret_cast<void*>(api::recorded_address(all_.size() - 1));  // NOLINT(performance-no-int-to-ptr)
  }
  void add(CArgument argument) { all_.push_back(std::move(argument)); }
  [[nodiscard]] const std::vector<CArgument>& all() const { return all_; }

 private:
  static std::string joined(const std::vector<std::int64_t>& numbers) {
    std::string text;
    for (const std::int64_t value : numbers) text += (text.empty() ? "" : ", ") + std::to_string(value);
    return text;
  }
  static std::string text_of(DType dtype, const std::vector<std::int64_t>& shape) {
    return std::string(to_string(dtype)) + "[" + joined(shape) + "]";
  }
  static std::string c_name(std::string name) {
    for (char& letter : name) {
      if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    }
    return name;
  }

  std::vector<CArgument> all_;
};

/// A call whose memory is the function's arguments.
struct RecordedCall {
  MaskState mask;
  std::optional<ScoreState> score;
  AttentionCall call;
  ArgumentList arguments;
};

void describe(const EmitRequest& request, RecordedCall& recorded) {
  const AttentionShape& shape = request.shape;
  const std::vector<std::int64_t> of_query{shape.batch, shape.query_heads, shape.q_len, shape.head_dim_qk};
  const std::vector<std::int64_t> of_key{shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim_qk};
  const std::vector<std::int64_t> of_value{shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim_v};
  const std::vector<std::int64_t> of_out{shape.batch, shape.query_heads, shape.q_len, shape.head_dim_v};
  AttentionCall& call = recorded.call;
  ArgumentList& list = recorded.arguments;
  call.direction = request.direction;
  call.deterministic = request.deterministic;
  call.tile = request.tile;
  call.query = list.tensor("query", request.dtype, of_query);
  call.key = list.tensor("key", request.dtype, of_key);
  call.value = list.tensor("value", request.dtype, of_value);
  call.out = list.tensor("out", request.dtype, of_out);
  call.lse = list.tensor("lse", DType::f32, {shape.batch, shape.query_heads, shape.q_len});
  if (request.direction == Direction::backward) {
    call.out_gradient = list.tensor("out_gradient", request.dtype, of_out);
    call.query_gradient = list.tensor("query_gradient", request.dtype, of_query);
    call.key_gradient = list.tensor("key_gradient", request.dtype, of_key);
    call.value_gradient = list.tensor("value_gradient", request.dtype, of_value);
  }
  list.add_program("mask_", recorded.mask, 1);
  if (recorded.score) list.add_program("score_", *recorded.score, 2);
  list.add({CArgument::Kind::real, "scale", "factor of the scores, 1 / sqrt(head dim) as a rule", 0,
            cuda::offset_of_scale()});
  call.mask = &recorded.mask;
  call.score = recorded.score ? &*recorded.score : nullptr;
  call.workspace = list.address("workspace", "so many bytes as _workspace_bytes() says, at a multiple of 256");
}

std::vector<std::string> persistent_entries(const kernel::KernelSpec& spec) {
  if (spec.family != kernel::KernelFamily::hopper) return {};
  std::vector<std::string> entries{kernel::entry_forward, kernel::entry_backward_tiles};
  if (spec.two_passes) entries.emplace_back(kernel::entry_backward_query_gradient);
  return entries;
}

/// The call on one architecture.
Result<api::CImage> image_of(const EmitRequest& request, AttentionCall call, Arch arch) {
  const api::Settings& settings = api::settings();
  const LogSink log = api::standard_log(settings.log);
  cuda::LaunchRecorder recorder(arch);
  const auto device = cuda::CudaDevice::open(recorder.api(), 0);
  if (!device) return device.error();
  auto made = cuda::make_cuda_backend(*device, api::nvrtc_search(settings));
  if (!made) return made.error();
  std::shared_ptr<backend::Backend> backend = *std::move(made);
  const auto folder = api::cache_folder(settings, request.cache_dir);
  auto kernels = std::make_shared<attention::KernelProvider>(
      backend, api::open_kernel_cache(folder, api::cache_layers(settings, std::nullopt), log, nullptr),
      api::provider_options(settings, folder, log));
  attention::AttentionOp op(backend, kernels);
  api::CImage image;
  image.arch = arch;
  const auto bytes = op.workspace_bytes(call);
  if (!bytes) return bytes.error();
  image.workspace_bytes = call.workspace_bytes = *bytes;
  const auto spec = op.spec_of(call);
  if (!spec) return spec.error();
  if (spec->lowering == mask::LoweringKind::interpreted) {
    return Error{ErrorCode::unsupported, "mask", "lowering interpreted", "a mask that is compiled into its kernels",
                 ""};
  }
  const auto built = kernels->build(*spec, attention::user_text(call));
  if (!built) return built.error();
  image.persistent_entries = persistent_entries(built->spec);
  if (auto queued = op.run(call); !queued) return queued.error();
  image.modules = recorder.modules();
  image.recording = recorder.take();
  return image;
}

std::string about(const EmitRequest& request, const RecordedCall& recorded) {
  const AttentionShape& shape = request.shape;
  std::string text = std::string("The ") + to_string(request.direction) + " of attention under the mask\n  " +
                     recorded.mask.program.to_text() + "\n";
  if (recorded.score) text += "with scores\n  " + recorded.score->program.to_text() + "\n";
  text += "of " + std::to_string(shape.batch) + " x " + std::to_string(shape.query_heads) + " query heads (" +
          std::to_string(shape.kv_heads) + " of keys), " + std::to_string(shape.q_len) + " queries, " +
          std::to_string(shape.kv_len) + " keys; row-major, for";
  for (const Arch arch : request.archs) text += " " + to_string(arch);
  return text + "\n";
}

RecordedCall recorded_of(const EmitRequest& request) {
  RecordedCall recorded;
  recorded.mask = request.mask != nullptr ? request.mask->state() : Mask::full().state();
  if (request.score != nullptr) recorded.score = request.score->state();
  return recorded;
}

}  // namespace

Result<EmittedProgram> emit_c(const EmitRequest& request) {
  if (auto checked = check_request(request); !checked) return checked.error();
  RecordedCall recorded = recorded_of(request);
  describe(request, recorded);
  api::CProgramDescription program;
  program.name = request.name;
  program.about = about(request, recorded);
  program.arguments = recorded.arguments.all();
  for (const Arch arch : request.archs) {
    auto image = image_of(request, recorded.call, arch);
    if (!image) return image.error();
    program.images.push_back(*std::move(image));
  }
  return api::write_c_program(program);
}

Result<std::vector<std::string>> emit_ptx(const EmitRequest& request) {
  if (request.archs.empty()) return bad_argument("archs", "none", "one architecture at least");
  const auto compiler = cuda::NvrtcCompiler::open(api::nvrtc_search(api::settings()));
  if (!compiler) return compiler.error();
  RecordedCall recorded = recorded_of(request);
  describe(request, recorded);
  std::vector<std::string> texts;
  for (const Arch arch : request.archs) {
    attention::SpecChoice choice;
    choice.direction = request.direction;
    choice.target = {DeviceKind::cuda, arch};
    choice.dtype = request.dtype;
    choice.head_dim_qk = static_cast<int>(request.shape.head_dim_qk);
    choice.head_dim_v = static_cast<int>(request.shape.head_dim_v);
    choice.few_rows = kernel::worth_splitting(request.shape);
    choice.needs.deterministic = request.deterministic;
    choice.tile = request.tile;
    const auto spec = attention::choose_spec(choice, recorded.mask, recorded.score ? &*recorded.score : nullptr);
    if (!spec) return spec.error();
    const auto source = kernel::emit_cuda(*spec);
    if (!source) return source.error();
    auto ptx = (*compiler)->ptx(*source, arch);
    if (ptx && request.for_triton) {
      const auto image = image_of(request, recorded.call, arch);
      if (!image) return image.error();
      ptx = api::write_triton_ptx(*std::move(ptx), *image, recorded.arguments.all());
    }
    if (!ptx) return ptx.error();
    texts.push_back(*std::move(ptx));
  }
  return texts;
}

}  // namespace flashspan
