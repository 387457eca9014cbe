// attention.cpp -- Attention, and calls of it that are described once and run with new addresses.
#include "flashspan/attention.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "flashspan/tuning.hpp"
#include "python/bindings/errors.hpp"
#include "python/bindings/parts.hpp"
#include "python/bindings/receivers.hpp"
#include "python/bindings/tensors.hpp"
#include "reports/json.hpp"

namespace flashspan::python {

namespace {

using OptionalTensor = std::optional<TensorTuple>;
using Address = std::uintptr_t;

Attention open_attention(int cuda_device, nanobind::object log, nanobind::object before_compile,
                         nanobind::object after_compile, std::optional<std::string> cache_dir) {
  AttentionOptions options;
  options.log = log_of(std::move(log));
  options.hooks = hooks_of(std::move(before_compile), std::move(after_compile));
  options.cache_dir = std::move(cache_dir);
  const nanobind::gil_scoped_release released;
  return value_of(Attention::open(device_of(cuda_device), options));
}

nanobind::dict dictionary_of(const KernelRecord& record) {
  nanobind::dict fields;
  fields["spec"] = record.spec;
  fields["key"] = record.key;
  fields["outcome"] = record.outcome;
  fields["lowering"] = record.lowering;
  fields["compile_ms"] = record.compile_ms;
  fields["registers"] = record.registers;
  fields["shared_bytes"] = record.shared_bytes;
  fields["spill_bytes"] = record.spill_bytes;
  return fields;
}

/// The tensors of a call, in the order in which Python passes them.
template <typename Call>
struct Argument {
  const char* name;
  TensorView Call::* view;
};

template <typename Call>
struct Arguments;

template <>
struct Arguments<ForwardCall> {
  static constexpr std::array<Argument<ForwardCall>, 6> all{{{"query", &ForwardCall::query},
                                                             {"key", &ForwardCall::key},
                                                             {"value", &ForwardCall::value},
                                                             {"sink", &ForwardCall::sink},
                                                             {"out", &ForwardCall::out},
                                                             {"lse", &ForwardCall::lse}}};
};

template <>
struct Arguments<BackwardCall> {
  static constexpr std::array<Argument<BackwardCall>, 12> all{{{"query", &BackwardCall::query},
                                                               {"key", &BackwardCall::key},
                                                               {"value", &BackwardCall::value},
                                                               {"sink", &BackwardCall::sink},
                                                               {"out", &BackwardCall::out},
                                                               {"lse", &BackwardCall::lse},
                                                               {"out_gradient", &BackwardCall::out_gradient},
                                                               {"lse_gradient", &BackwardCall::lse_gradient},
                                                               {"query_gradient", &BackwardCall::query_gradient},
                                                               {"key_gradient", &BackwardCall::key_gradient},
                                                               {"value_gradient", &BackwardCall::value_gradient},
                                                               {"sink_gradient", &BackwardCall::sink_gradient}}};
};

/// Gradients of looked-up tensors, by their names in the score's text.
using NamedTensors = std::vector<std::pair<std::string, TensorTuple>>;

/// (block_m, block_n, num_warps, num_stages).
using Tile = std::array<int, 4>;

TileConfig tile_of(const Tile& tile) { return {tile[0], tile[1], tile[2], tile[3]}; }

/// What a call computes, but for its tensors, and with which tile.
struct Programs {
  std::optional<Mask> mask;
  std::optional<Score> score;
  std::optional<float> scale;
  bool deterministic = false;
  std::optional<Tile> tile;
};

/// A call whose tensors were described once. The addresses of the description are not used: run() brings those.
template <typename Call>
class DescribedCall {
 public:
  using Tensors = std::array<OptionalTensor, Arguments<Call>::all.size()>;
  using Addresses = std::array<Address, Arguments<Call>::all.size()>;

  DescribedCall(Attention attention, Programs programs, const Tensors& tensors, const NamedTensors& score_gradients)
      : attention_(std::move(attention)), programs_(std::move(programs)) {
    for (std::size_t place = 0; place < tensors.size(); ++place) {
      const Argument<Call>& argument = Arguments<Call>::all[place];
      described_.*argument.view = view_of(tensors[place], argument.name);
    }
    described_.mask = programs_.mask ? &*programs_.mask : nullptr;
    described_.score = programs_.score ? &*programs_.score : nullptr;
    described_.scale = programs_.scale;
    if (programs_.tile) described_.tile = tile_of(*programs_.tile);
    if constexpr (backward) {
      described_.deterministic = programs_.deterministic;
      for (const auto& [name, tensor] : score_gradients) {
        described_.score_gradients.push_back({name, view_of(tensor, name.c_str())});
      }
    }
    workspace_bytes_ = value_of(attention_.workspace_bytes(described_));
  }
  DescribedCall(const DescribedCall&) = delete;
  DescribedCall& operator=(const DescribedCall&) = delete;

  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }

  /// Of the tensors' addresses none is meant to be read.
  [[nodiscard]] const Call& described() const { return described_; }

  [[nodiscard]] Attention& attention() { return attention_; }

  /// The call with its tensors at these addresses, without a workspace.
  [[nodiscard]] Call placed(const Addresses& addresses, Address stream,
                            const std::vector<Address>& score_gradients) const {
    Call call = described_;
    for (std::size_t place = 0; place < addresses.size(); ++place) {
      TensorView& view = call.*Arguments<Call>::all[place].view;
      if (view.given()) view.data = address_of(addresses[place]);
    }
    if constexpr (backward) {
      for (std::size_t place = 0; place < score_gradients.size(); ++place) {
        call.score_gradients.at(place).view.data = address_of(score_gradients[place]);
      }
    }
    call.stream = {pointer_of(stream)};
    return call;
  }

  /// With `plan`, a workspace that holds a plan of tiles already is not planned in again: see TilePlan.
  void run(const Addresses& addresses, Address workspace, Address stream, const std::vector<Address>& score_gradients,
           TilePlan* plan) {
    Call call = placed(addresses, stream, score_gradients);
    call.workspace = pointer_of(workspace);
    call.workspace_bytes = workspace_bytes_;
    call.plan = plan;
    const nanobind::gil_scoped_release released;
    if constexpr (backward) {
      value_of(attention_.backward(call));
    } else {
      value_of(attention_.forward(call));
    }
  }

 private:
  static constexpr bool backward = std::is_same_v<Call, BackwardCall>;

  Attention attention_;
  Programs programs_;
  Call described_;
  std::int64_t workspace_bytes_ = 0;
};

/// What Attention::tune() found, as JSON. `progress(done, all, candidate as JSON)`.
template <typename Call>
std::string tune(DescribedCall<Call>& described, const typename DescribedCall<Call>::Addresses& addresses,
                 Address stream, const std::vector<Address>& score_gradients, const std::vector<Tile>& tiles,
                 int most_candidates, double time_limit_seconds, bool remember, const nanobind::object& progress) {
  TuneOptions options;
  for (const Tile& tile : tiles) options.tiles.push_back(tile_of(tile));
  options.most_candidates = most_candidates;
  options.time_limit_seconds = time_limit_seconds;
  options.remember = remember;
  if (!progress.is_none()) {
    options.progress = [&progress](int done, int all, const TunedCandidate& candidate) {
      const nanobind::gil_scoped_acquire locked;
      progress(done, all, reports::to_json(candidate).dump());
    };
  }
  const Call call = described.placed(addresses, stream, score_gradients);
  const nanobind::gil_scoped_release released;
  return reports::to_json(value_of(described.attention().tune(call, options))).dump();
}

/// The tiles that the call's kernel may have, as JSON.
template <typename Call>
std::string tiles_of(DescribedCall<Call>& described) {
  reports::Json tiles = reports::Json::array();
  for (const TileResources& resources : value_of(described.attention().tiles(described.described()))) {
    tiles.push_back(reports::to_json(resources));
  }
  return tiles.dump();
}

template <typename Call>
void bind_call(nanobind::module_& module, const char* name) {
  using nanobind::arg;
  using Described = DescribedCall<Call>;
  nanobind::class_<Described> described(module, name);
  described.def(
      "__init__",
      [](Described* made, Attention attention, std::optional<Mask> mask, std::optional<Score> score,
         std::optional<float> scale, bool deterministic, const typename Described::Tensors& tensors,
         const NamedTensors& score_gradients, std::optional<Tile> tile) {
        new (made) Described(std::move(attention), {std::move(mask), std::move(score), scale, deterministic, tile},
                             tensors, score_gradients);
      },
      arg("attention"), arg("mask").none(), arg("score").none(), arg("scale").none(), arg("deterministic"),
      arg("tensors"), arg("score_gradients") = NamedTensors{}, arg("tile").none() = nanobind::none());
  described.def_prop_ro("workspace_bytes", &Described::workspace_bytes);
  described.def("run", &Described::run, arg("addresses"), arg("workspace"), arg("stream"),
                arg("score_gradients") = std::vector<Address>{}, arg("plan").none() = nanobind::none());
  described.def("tune", &tune<Call>, arg("addresses"), arg("stream"), arg("score_gradients"), arg("tiles"),
                arg("most_candidates"), arg("time_limit_seconds"), arg("remember"), arg("progress").none());
  described.def("tiles", &tiles_of<Call>);
}

using Forward = DescribedCall<ForwardCall>;
using Backward = DescribedCall<BackwardCall>;

/// Records of the calls' kernels, in their order; throws the first error once all are done.
nanobind::list prepare_all(Attention& attention, const std::vector<std::variant<Forward*, Backward*>>& described,
                           double time_out_seconds) {
  std::vector<AnyCall> calls;
  for (const auto& call : described) {
    std::visit([&](const auto* one) { calls.emplace_back(one->described()); }, call);
  }
  std::vector<Result<KernelRecord>> prepared;
  {
    const nanobind::gil_scoped_release released;
    PrepareOptions options;
    options.time_out_seconds = time_out_seconds;
    prepared = attention.prepare_all(calls, options);
  }
  nanobind::list records;
  for (Result<KernelRecord>& record : prepared) records.append(dictionary_of(value_of(std::move(record))));
  return records;
}

void freeze(Attention& attention, const std::string& on_miss) {
  const auto policy = miss_policy_from_string(on_miss);
  if (!policy) {
    throw Failure({ErrorCode::bad_argument, "on_miss", on_miss, "compile, warn, refuse or interpret", ""});
  }
  const nanobind::gil_scoped_release released;
  value_of(attention.freeze(*policy));
}

}  // namespace

void bind_attention(nanobind::module_& module) {
  using nanobind::arg;
  nanobind::class_<Attention> attention(module, "Attention");
  attention.def_static("open", &open_attention, arg("cuda_device"), arg("log"), arg("before_compile"),
                       arg("after_compile"), arg("cache_dir").none());
  attention.def("freeze", &freeze);
  nanobind::class_<TilePlan>(module, "TilePlan").def(nanobind::init<>()).def_ro("made", &TilePlan::made);
  bind_call<ForwardCall>(module, "Forward");
  bind_call<BackwardCall>(module, "Backward");
  attention.def("prepare_all", &prepare_all);
  module.def("close_receivers", &close_receivers);
}

}  // namespace flashspan::python
