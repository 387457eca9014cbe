// attention_bench.cpp -- flashspan_bench_gpu: times one attention problem and prints one JSON line.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench_case.hpp"

namespace {

using namespace flashspan;

constexpr int exit_bad_input = 2;

int fail(const Error& error) {
  std::cerr << error.message() << "\n";
  return exit_bad_input;
}

nlohmann::ordered_json describe(const KernelRecord& record, double cold_ms) {
  return {{"spec", record.spec},
          {"outcome", record.outcome},
          {"lowering", record.lowering},
          {"cold_ms", cold_ms},
          {"registers", record.registers},
          {"shared_bytes", record.shared_bytes},
          {"spill_bytes", record.spill_bytes}};
}

/// prepare() with the milliseconds it took.
template <typename Prepare>
Result<nlohmann::ordered_json> timed(const Prepare& prepare) {
  const auto start = std::chrono::steady_clock::now();
  const auto record = prepare();
  if (!record) return record.error();
  return describe(*record, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
}

/// What to measure of a case, beside compiling and running it once.
struct Measurements {
  int rounds = 7;
  int plan_rounds = 0;
  int host_rounds = 0;
  bool serve = false;
};

constexpr int host_launches = 200;

nlohmann::ordered_json describe(const Device& device, const bench::CaseOptions& options) {
  return {{"engine", "flashspan"},
          {"device", to_string(device)},
          {"mask", options.mask},
          {"dtype", to_string(options.dtype)},
          {"batch", options.shape.batch},
          {"heads", options.shape.query_heads},
          {"kv_heads", options.shape.kv_heads},
          {"length", options.shape.q_len},
          {"head_dim", options.shape.head_dim_qk}};
}

/// Adds the figures that are asked for to the line.
Result<void> measure(bench::Case& one, const Measurements& what, bool backward, nlohmann::ordered_json& line) {
  const auto add = [&line](const char* name, const Result<double>& value) -> Result<void> {
    if (!value) return value.error();
    line[name] = *value;
    return {};
  };
  if (what.rounds > 0) {
    if (auto added = add("forward_ms", one.median_ms(Direction::forward, what.rounds)); !added) return added.error();
  }
  if (what.rounds > 0 && backward) {
    if (auto added = add("backward_ms", one.median_ms(Direction::backward, what.rounds)); !added) return added.error();
  }
  if (what.plan_rounds > 0) {
    if (auto added = add("plan_us", one.time_planning(what.plan_rounds)); !added) return added.error();
  }
  if (what.host_rounds == 0) return {};
  if (auto added = add("host_us", one.host_microseconds(what.host_rounds, host_launches, false)); !added) {
    return added.error();
  }
  return add("host_shared_plan_us", one.host_microseconds(what.host_rounds, host_launches, true));
}

/// Nothing of no numbers.
std::optional<TileConfig> tile_of(const std::vector<int>& numbers) {
  if (numbers.empty()) return std::nullopt;
  return TileConfig{numbers[0], numbers[1], numbers[2], numbers[3]};
}

/// Answers each line "forward N" or "backward N" with the milliseconds a launch of a round of N, until the input ends.
Result<void> serve(bench::Case& one) {
  std::string direction;
  int launches = 0;
  while (std::cin >> direction >> launches) {
    const auto ms = one.round_ms(direction == "forward" ? Direction::forward : Direction::backward, launches);
    if (!ms) return ms.error();
    std::cout << nlohmann::json{{"ms", *ms}}.dump() << std::endl;  // flushed: the other side waits for it
  }
  return {};
}

int run(const std::string& device_text, const bench::CaseOptions& options, const Measurements& what, bool cache) {
  const auto device = device_from_string(device_text);
  if (!device) return fail(device.error());
  AttentionOptions attention_options;
  if (!cache) attention_options.cache_dir = "";
  const auto attention = Attention::open(*device, attention_options);
  if (!attention) return fail(attention.error());
  const auto created = bench::Case::create(*attention, options);
  if (!created) return fail(created.error());
  bench::Case& one = **created;
  nlohmann::ordered_json line = describe(*device, options);
  const auto forward = timed([&] { return one.prepare_forward(); });
  if (!forward) return fail(forward.error());
  line["forward"] = *forward;
  if (options.backward) {
    const auto backward = timed([&] { return one.prepare_backward(); });
    if (!backward) return fail(backward.error());
    line["backward"] = *backward;
  }
  if (auto ran = one.run(); !ran) return fail(ran.error());
  if (options.results) {
    if (auto written = one.write_results(*options.results); !written) return fail(written.error());
  }
  if (auto measured = measure(one, what, options.backward, line); !measured) return fail(measured.error());
  std::cout << line.dump() << std::endl;
  if (!what.serve) return 0;
  const auto served = serve(one);
  return served ? 0 : fail(served.error());
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Times forward and backward attention on one device; prints one JSON line.");
  std::string device = "cuda";
  std::string dtype = "bf16";
  std::string inputs;
  std::string results;
  bench::CaseOptions options;
  AttentionShape& shape = options.shape;
  shape = {4, 32, 0, 8192, 8192, 128, 128};
  Measurements what;
  bool forward_only = false;
  bool cache = false;
  app.add_option("--device", device, "auto, cpu, cuda, cuda:N")->capture_default_str();
  app.add_option("--mask", options.mask, "named mask or expression")->capture_default_str();
  app.add_option("--tensor", options.tensors, "NAME=FILE: a rank-1 i32 tensor of the mask, raw");
  app.add_option("--scalar", options.scalars, "NAME=INTEGER: a scalar of the mask");
  app.add_option("--batch", shape.batch)->capture_default_str();
  app.add_option("--heads", shape.query_heads)->capture_default_str();
  app.add_option("--kv-heads", shape.kv_heads, "default: as heads");
  app.add_option("--length", shape.q_len, "queries and keys")->capture_default_str();
  app.add_option("--head-dim", shape.head_dim_qk)->capture_default_str();
  app.add_option("--dtype", dtype, "bf16, f16, or f32 on the CPU")->capture_default_str();
  app.add_option("--rounds", what.rounds, "timed rounds; 0: run once, do not time")->capture_default_str();
  app.add_option("--plan-rounds", what.plan_rounds,
                 "rounds that time the planning of a forward alone, on CUDA; 0: do not")
      ->capture_default_str();
  app.add_option("--host-rounds", what.host_rounds,
                 "rounds that time what the host spends in a forward; needs a small problem; 0: do not")
      ->capture_default_str();
  app.add_flag("--serve", what.serve, "then answer lines 'forward N' and 'backward N' with a round's {\"ms\": ..}");
  app.add_flag("--deterministic", options.deterministic, "a backward that gives the same bits every time");
  app.add_flag("--forward-only", forward_only, "no backward: neither compiled nor run");
  std::vector<int> forward_tile;
  std::vector<int> backward_tile;
  for (const auto& [name, tile] : {std::pair{"--forward-tile", &forward_tile}, {"--backward-tile", &backward_tile}}) {
    app.add_option(name, *tile, "block_m block_n num_warps num_stages, instead of the chosen ones")->expected(4);
  }
  app.add_option("--inputs", inputs, "folder with q, k, v, do as raw files instead of random numbers");
  app.add_option("--results", results, "folder that gets out, lse, dq, dk, dv as raw files");
  app.add_flag("--cache", cache, "use the kernel cache; else every kernel is built anew");
  CLI11_PARSE(app, count, arguments);
  if (shape.kv_heads == 0) shape.kv_heads = shape.query_heads;
  shape.kv_len = shape.q_len;
  shape.head_dim_v = shape.head_dim_qk;
  const auto element = dtype_from_string(dtype);
  if (!element) return fail({ErrorCode::bad_argument, "--dtype", dtype, "bf16, f16 or f32", ""});
  options.dtype = *element;
  options.backward = !forward_only;
  options.forward_tile = tile_of(forward_tile);
  options.backward_tile = tile_of(backward_tile);
  if (!inputs.empty()) options.inputs = inputs;
  if (!results.empty()) options.results = results;
  return run(device, options, what, cache);
}
