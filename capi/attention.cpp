// attention.cpp -- opening, preparing and running attention.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/handles.hpp"
#include "capi/json.hpp"
#include "capi/tensors.hpp"

namespace flashspan::capi {
namespace {

TileConfig tile_of(const flashspan_tile& tile) { return {tile.block_m, tile.block_n, tile.num_warps, tile.num_stages}; }

/// What both directions have.
template <typename From, typename To>
void read_common(const From& from, TensorReader& reader, To& to) {
  to.query = reader.read("query", from.query);
  to.key = reader.read("key", from.key);
  to.value = reader.read("value", from.value);
  to.sink = reader.read("sink", from.sink);
  to.out = reader.read("out", from.out);
  to.lse = reader.read("lse", from.lse);
  to.mask = from.mask != nullptr ? &from.mask->value : nullptr;
  to.score = from.score != nullptr ? &from.score->value : nullptr;
  if (from.scale != nullptr) to.scale = *from.scale;
  to.workspace = from.workspace;
  to.workspace_bytes = from.workspace_bytes;
  to.plan = from.plan != nullptr ? &from.plan->value : nullptr;
  to.stream.handle = from.stream;
  if (from.tile != nullptr) to.tile = tile_of(*from.tile);
}

Result<ForwardCall> call_of(const flashspan_forward_call* given) {
  const auto read = read_structure("call", given);
  if (!read) return read.error();
  ForwardCall call;
  TensorReader reader;
  read_common(*read, reader, call);
  if (!reader.done()) return reader.done().error();
  return call;
}

Result<BackwardCall> call_of(const flashspan_backward_call* given) {
  const auto read = read_structure("call", given);
  if (!read) return read.error();
  BackwardCall call;
  TensorReader reader;
  read_common(*read, reader, call);
  call.out_gradient = reader.read("out_gradient", read->out_gradient);
  call.lse_gradient = reader.read("lse_gradient", read->lse_gradient);
  call.query_gradient = reader.read("query_gradient", read->query_gradient);
  call.key_gradient = reader.read("key_gradient", read->key_gradient);
  call.value_gradient = reader.read("value_gradient", read->value_gradient);
  call.sink_gradient = reader.read("sink_gradient", read->sink_gradient);
  call.deterministic = read->deterministic != 0;
  if (!reader.done()) return reader.done().error();
  auto gradients = named_tensors("score_gradients", read->score_gradients, read->score_gradient_count);
  if (!gradients) return gradients.error();
  call.score_gradients = *std::move(gradients);
  return call;
}

Result<AttentionOptions> options_of(const flashspan_options* given) {
  AttentionOptions options;
  if (given == nullptr) return options;
  const auto read = read_structure("options", given);
  if (!read) return read.error();
  if (read->log != nullptr) {
    options.log = [log = read->log, user = read->log_user](LogLevel level, std::string_view line) {
      log(user, static_cast<flashspan_log_level>(level), std::string(line).c_str());
    };
  }
  if (read->cache_dir != nullptr) options.cache_dir = read->cache_dir;
  options.compile_threads = read->compile_threads;
  if (read->service != nullptr) options.service = read->service;
  if (read->service_token != nullptr) options.service_token = read->service_token;
  if (read->shared_store != nullptr) options.shared_store = read->shared_store;
  if (read->signing_key_file != nullptr) options.signing_key_file = read->signing_key_file;
  if (read->before_compile != nullptr) {
    options.hooks.before = [before = read->before_compile, user = read->compile_user](const CompileEvent& event) {
      before(user, event.spec.c_str(), event.key.c_str());
    };
  }
  if (read->after_compile != nullptr) {
    options.hooks.after = [after = read->after_compile, user = read->compile_user](const CompileEvent& event) {
      after(user, event.spec.c_str(), event.key.c_str(), event.milliseconds,
            event.error ? status_of(event.error->code) : FLASHSPAN_OK);
    };
  }
  if (read->tuning_file != nullptr) options.tuning_file = read->tuning_file;
  if (read->cache_path != nullptr) options.cache_path = read->cache_path;
  if (read->accept_other_nvrtc != 0) options.accept_other_nvrtc = read->accept_other_nvrtc > 0;
  return options;
}

/// Reads the call and hands it to `use(attention, call)`.
template <typename Handle, typename Call, typename Use>
flashspan_status with_call(Handle* attention, const Call* given, const Use& use) {
  return guarded([&]() -> Result<void> {
    if (attention == nullptr) return null_argument("attention");
    const auto call = call_of(given);
    if (!call) return call.error();
    return use(attention->value, *call);
  });
}

template <typename Call>
flashspan_status query_workspace(const flashspan_attention* attention, const Call* given, int64_t* bytes) {
  return with_call(attention, given, [bytes](const Attention& opened, const auto& call) -> Result<void> {
    if (bytes == nullptr) return null_argument("bytes");
    const auto needed = opened.workspace_bytes(call);
    if (!needed) return needed.error();
    *bytes = *needed;
    return {};
  });
}

template <typename Call>
flashspan_status prepare(flashspan_attention* attention, const Call* given, char** record) {
  return with_call(attention, given, [record](Attention& opened, const auto& call) -> Result<void> {
    const auto prepared = opened.prepare(call);
    if (!prepared) return prepared.error();
    return record == nullptr ? Result<void>() : give_text(record, json_of(*prepared));
  });
}

Result<TuneOptions> options_of(const flashspan_tune_options* given) {
  TuneOptions options;
  if (given == nullptr) return options;
  const auto read = read_structure("options", given);
  if (!read) return read.error();
  if (read->tiles == nullptr && read->tile_count != 0) return null_argument("options->tiles");
  for (std::size_t i = 0; i < read->tile_count; ++i) options.tiles.push_back(tile_of(read->tiles[i]));
  options.most_candidates = read->most_candidates;
  if (read->time_limit_seconds != 0) options.time_limit_seconds = read->time_limit_seconds;
  if (read->candidate_milliseconds != 0) options.candidate_milliseconds = read->candidate_milliseconds;
  options.remember = read->forget == 0;
  if (read->progress != nullptr) {
    options.progress = [progress = read->progress, user = read->progress_user](int done, int all,
                                                                               const TunedCandidate& candidate) {
      progress(user, done, all, json_of(candidate).c_str());
    };
  }
  return options;
}

template <typename Call>
flashspan_status tune(flashspan_attention* attention, const Call* given, const flashspan_tune_options* options,
                      char** report) {
  return with_call(attention, given, [options, report](Attention& opened, const auto& call) -> Result<void> {
    const auto read = options_of(options);
    if (!read) return read.error();
    const auto tuned = opened.tune(call, *read);
    if (!tuned) return tuned.error();
    return report == nullptr ? Result<void>() : give_text(report, json_of(*tuned));
  });
}

template <typename Call>
Result<void> read_calls(const Call* const* given, std::size_t count, std::vector<AnyCall>& calls) {
  if (given == nullptr && count != 0) return null_argument("calls");
  for (std::size_t i = 0; i < count; ++i) {
    auto call = call_of(given[i]);
    if (!call) return call.error();
    calls.emplace_back(*std::move(call));
  }
  return {};
}

}  // namespace
}  // namespace flashspan::capi

using namespace flashspan;
using namespace flashspan::capi;

flashspan_status flashspan_attention_open(DLDevice device, const flashspan_options* options,
                                          flashspan_attention** attention) {
  return guarded([&]() -> Result<void> {
    const auto place = device_of("device", device);
    if (!place) return place.error();
    const auto read = options_of(options);
    if (!read) return read.error();
    return give(attention, Attention::open(*place, *read));
  });
}

void flashspan_attention_close(flashspan_attention* attention) { delete attention; }

flashspan_status flashspan_forward_workspace_bytes(const flashspan_attention* attention,
                                                   const flashspan_forward_call* call, int64_t* bytes) {
  return query_workspace(attention, call, bytes);
}

flashspan_status flashspan_backward_workspace_bytes(const flashspan_attention* attention,
                                                    const flashspan_backward_call* call, int64_t* bytes) {
  return query_workspace(attention, call, bytes);
}

flashspan_status flashspan_prepare_forward(flashspan_attention* attention, const flashspan_forward_call* call,
                                           char** record) {
  return prepare(attention, call, record);
}

flashspan_status flashspan_prepare_backward(flashspan_attention* attention, const flashspan_backward_call* call,
                                            char** record) {
  return prepare(attention, call, record);
}

flashspan_status flashspan_prepare_all(flashspan_attention* attention,
                                       const flashspan_forward_call* const* forward_calls, size_t forward_count,
                                       const flashspan_backward_call* const* backward_calls, size_t backward_count,
                                       double time_out_seconds, flashspan_status* statuses) {
  return guarded([&]() -> Result<void> {
    if (attention == nullptr) return null_argument("attention");
    std::vector<AnyCall> calls;
    if (auto read = read_calls(forward_calls, forward_count, calls); !read) return read;
    if (auto read = read_calls(backward_calls, backward_count, calls); !read) return read;
    PrepareOptions options;
    options.time_out_seconds = time_out_seconds;
    Result<void> first;
    const auto records = attention->value.prepare_all(calls, options);
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (!records[i] && first) first = records[i].error();
      if (statuses != nullptr) statuses[i] = records[i] ? FLASHSPAN_OK : failed(records[i].error());
    }
    return first;
  });
}

flashspan_status flashspan_tune_forward(flashspan_attention* attention, const flashspan_forward_call* call,
                                        const flashspan_tune_options* options, char** report) {
  return tune(attention, call, options, report);
}

flashspan_status flashspan_tune_backward(flashspan_attention* attention, const flashspan_backward_call* call,
                                         const flashspan_tune_options* options, char** report) {
  return tune(attention, call, options, report);
}

flashspan_status flashspan_freeze(flashspan_attention* attention, flashspan_miss_policy on_miss) {
  return guarded([&]() -> Result<void> {
    if (attention == nullptr) return null_argument("attention");
    const int number = on_miss;
    if (number < FLASHSPAN_ON_MISS_COMPILE || number > FLASHSPAN_ON_MISS_INTERPRET) {
      return Error{ErrorCode::bad_argument, "on_miss", std::to_string(number), "a flashspan_miss_policy", ""};
    }
    return attention->value.freeze(static_cast<MissPolicy>(number));
  });
}

flashspan_status flashspan_forward(flashspan_attention* attention, const flashspan_forward_call* call) {
  return with_call(attention, call, [](Attention& opened, const ForwardCall& read) { return opened.forward(read); });
}

flashspan_status flashspan_backward(flashspan_attention* attention, const flashspan_backward_call* call) {
  return with_call(attention, call, [](Attention& opened, const BackwardCall& read) { return opened.backward(read); });
}

flashspan_status flashspan_tile_plan_create(flashspan_tile_plan** plan) {
  return guarded([&] { return give(plan, Result<TilePlan>(TilePlan{})); });
}

void flashspan_tile_plan_reset(flashspan_tile_plan* plan) {
  if (plan != nullptr) plan->value = {};
}

int flashspan_tile_plan_is_made(const flashspan_tile_plan* plan) { return plan != nullptr && plan->value.made ? 1 : 0; }

void flashspan_tile_plan_free(flashspan_tile_plan* plan) { delete plan; }
