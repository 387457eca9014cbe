// attention_bench.cpp -- flashspan_bench_gpu: times one attention problem and prints one JSON line.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

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

int run(const std::string& device_text, const bench::CaseOptions& options, int rounds, bool cache) {
  const auto device = device_from_string(device_text);
  if (!device) return fail(device.error());
  AttentionOptions attention_options;
  if (!cache) attention_options.cache_dir = "";
  const auto attention = Attention::open(*device, attention_options);
  if (!attention) return fail(attention.error());
  const auto created = bench::Case::create(*attention, options);
  if (!created) return fail(created.error());
  bench::Case& one = **created;
  const auto forward = timed([&] { return one.prepare_forward(); });
  if (!forward) return fail(forward.error());
  const auto backward = timed([&] { return one.prepare_backward(); });
  if (!backward) return fail(backward.error());
  if (auto ran = one.run(); !ran) return fail(ran.error());
  if (options.results) {
    if (auto written = one.write_results(*options.results); !written) return fail(written.error());
  }
  nlohmann::ordered_json line{{"engine", "flashspan"},
                              {"device", to_string(*device)},
                              {"mask", options.mask},
                              {"dtype", to_string(options.dtype)},
                              {"batch", options.shape.batch},
                              {"heads", options.shape.query_heads},
                              {"kv_heads", options.shape.kv_heads},
                              {"length", options.shape.q_len},
                              {"head_dim", options.shape.head_dim_qk}};
  if (rounds > 0) {
    const auto times = one.time(rounds);
    if (!times) return fail(times.error());
    line["forward_ms"] = times->forward_ms;
    line["backward_ms"] = times->backward_ms;
  }
  line["forward"] = *forward;
  line["backward"] = *backward;
  std::cout << line.dump() << "\n";
  return 0;
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
  int rounds = 7;
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
  app.add_option("--rounds", rounds, "timed rounds; 0: run once, do not time")->capture_default_str();
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
  if (!inputs.empty()) options.inputs = inputs;
  if (!results.empty()) options.results = results;
  return run(device, options, rounds, cache);
}
