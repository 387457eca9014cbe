// attention_bench.cpp -- times forward and backward on the CPU through the public API, either for one case with
// tensors from files (`case`, used by compare_torch.py), or over masks of falling density (`sparsity`).
#include <tbb/global_control.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/inspect.hpp"

namespace {

using namespace flashspan;

struct Case {
  AttentionShape shape{1, 4, 4, 2048, 2048, 64, 64};
  std::string dtype = "f32";
  std::string mask = "full";        ///< text, or documents: causal documents of q_len / document_count
  std::int64_t document_count = 0;  ///< > 0: tensor doc is bound
  int repetitions = 5;
  bool backward = true;
};

template <typename Value>
Value take(Result<Value> result) {
  if (result) return std::move(*result);
  std::cerr << result.error().message() << "\n";
  std::exit(1);
}
void take(const Result<void>& result) {
  if (result) return;
  std::cerr << result.error().message() << "\n";
  std::exit(1);
}

struct HostTensor {
  std::vector<char> bytes;
  TensorView view;
  HostTensor(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    bytes.resize(static_cast<std::size_t>(count * size_in_bytes(dtype)));
    view = TensorView::contiguous(bytes.data(), dtype, shape);
  }
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// All tensors of one case, and its mask.
class Run {
 public:
  explicit Run(const Case& one)
      : case_(one),
        dtype_(dtype_from_string(one.dtype).value_or(DType::f32)),
        query(dtype_, {one.shape.batch, one.shape.query_heads, one.shape.q_len, one.shape.head_dim_qk}),
        key(dtype_, {one.shape.batch, one.shape.kv_heads, one.shape.kv_len, one.shape.head_dim_qk}),
        value(dtype_, {one.shape.batch, one.shape.kv_heads, one.shape.kv_len, one.shape.head_dim_v}),
        out(dtype_, {one.shape.batch, one.shape.query_heads, one.shape.q_len, one.shape.head_dim_v}),
        out_gradient(dtype_, {one.shape.batch, one.shape.query_heads, one.shape.q_len, one.shape.head_dim_v}),
        query_gradient(dtype_, {one.shape.batch, one.shape.query_heads, one.shape.q_len, one.shape.head_dim_qk}),
        key_gradient(dtype_, {one.shape.batch, one.shape.kv_heads, one.shape.kv_len, one.shape.head_dim_qk}),
        value_gradient(dtype_, {one.shape.batch, one.shape.kv_heads, one.shape.kv_len, one.shape.head_dim_v}),
        lse(DType::f32, {one.shape.batch, one.shape.query_heads, one.shape.q_len}),
        documents_(static_cast<std::size_t>(std::max(one.shape.q_len, one.shape.kv_len))),
        mask_(make_mask()),
        attention_(take(Attention::open(Device{}))) {}

  void fill_with_noise() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (HostTensor* tensor : {&query, &key, &value, &out_gradient}) {
      auto* elements = reinterpret_cast<float*>(tensor->bytes.data());
      for (std::size_t i = 0; i < tensor->bytes.size() / sizeof(float); ++i) elements[i] = normal(random);
    }
  }

  /// Best wall-clock time of the repetitions after one that is not counted, in milliseconds.
  double time_forward() {
    ForwardCall call;
    set_tensors(call);
    std::vector<char> workspace(static_cast<std::size_t>(take(attention_.workspace_bytes(call))));
    call.workspace = workspace.data();
    call.workspace_bytes = static_cast<std::int64_t>(workspace.size());
    return best_of([&] { take(attention_.forward(call)); });
  }
  double time_backward() {
    BackwardCall call;
    set_tensors(call);
    call.out_gradient = out_gradient.view;
    call.query_gradient = query_gradient.view;
    call.key_gradient = key_gradient.view;
    call.value_gradient = value_gradient.view;
    std::vector<char> workspace(static_cast<std::size_t>(take(attention_.workspace_bytes(call))));
    call.workspace = workspace.data();
    call.workspace_bytes = static_cast<std::int64_t>(workspace.size());
    return best_of([&] { take(attention_.backward(call)); });
  }

  [[nodiscard]] const Mask& mask() const { return mask_; }

 private:
  template <typename Call>
  void set_tensors(Call& call) const {
    call.query = query.view;
    call.key = key.view;
    call.value = value.view;
    call.out = out.view;
    call.lse = lse.view;
    call.mask = &mask_;
  }

  Mask make_mask() {
    const std::int64_t length =
        std::max<std::int64_t>(1, case_.shape.q_len / std::max<std::int64_t>(1, case_.document_count));
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      documents_[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / length);
    }
    if (case_.document_count == 0) return case_.mask == "full" ? Mask::full() : take(Mask::parse(case_.mask));
    const auto count = static_cast<std::int64_t>(documents_.size());
    return take(Mask::parse("(q >= k) & (doc[q] == doc[k])",
                            {{"doc", TensorView::contiguous(documents_.data(), DType::i32, {count})}}));
  }

  double best_of(const std::function<void()>& work) const {
    work();
    double best = seconds_of(work);
    for (int i = 1; i < case_.repetitions; ++i) best = std::min(best, seconds_of(work));
    return best * 1e3;
  }

  Case case_;
  DType dtype_;

 public:
  HostTensor query, key, value, out, out_gradient, query_gradient, key_gradient, value_gradient, lse;

 private:
  std::vector<std::int32_t> documents_;
  Mask mask_;
  Attention attention_;
};

void read_file(const std::filesystem::path& path, HostTensor& tensor) {
  std::ifstream file(path, std::ios::binary);
  if (!file.read(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()))) {
    std::cerr << path << ": shorter than the case\n";
    std::exit(1);
  }
}

void write_file(const std::filesystem::path& path, const HostTensor& tensor) {
  std::ofstream(path, std::ios::binary).write(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
}

void run_case(const Case& one, const std::filesystem::path& folder) {
  Run run(one);
  read_file(folder / "query.bin", run.query);
  read_file(folder / "key.bin", run.key);
  read_file(folder / "value.bin", run.value);
  read_file(folder / "out_gradient.bin", run.out_gradient);
  const double forward = run.time_forward();
  write_file(folder / "out.bin", run.out);
  double backward = 0;
  if (one.backward) {
    backward = run.time_backward();
    write_file(folder / "query_gradient.bin", run.query_gradient);
    write_file(folder / "key_gradient.bin", run.key_gradient);
    write_file(folder / "value_gradient.bin", run.value_gradient);
  }
  std::printf("{\"forward_ms\": %.4f, \"backward_ms\": %.4f}\n", forward, backward);
}

void run_sparsity(Case one) {
  std::printf(
      "| mask | visited tiles | of all | forward ms | per tile and head us | backward ms | per tile and head us |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  struct Row {
    const char* name;
    const char* text;
    std::int64_t documents;
  };
  for (const Row& row : {Row{"full", "full", 0}, Row{"causal", "causal", 0},
                         Row{"window of S/8", "window(left=255, right=0)", 0}, Row{"causal documents of S/4", "", 4},
                         Row{"causal documents of S/16", "", 16}, Row{"causal documents of S/32", "", 32}}) {
    one.mask = row.text;
    one.document_count = row.documents;
    Run run(one);
    run.fill_with_noise();
    const TileMap map = take(tile_map(run.mask(), one.shape, 0, 0, 64, 64));
    const std::int64_t visited = map.full + map.partial;
    const double heads = static_cast<double>(one.shape.batch * one.shape.query_heads);
    const double forward = run.time_forward();
    const double backward = run.time_backward();
    const auto per_tile = [&](double ms) { return ms * 1e3 / (static_cast<double>(visited) * heads); };
    std::printf("| %s | %lld | %.1f %% | %.2f | %.2f | %.2f | %.2f |\n", row.name, static_cast<long long>(visited),
                100.0 * static_cast<double>(visited) / static_cast<double>(map.rows * map.columns), forward,
                per_tile(forward), backward, per_tile(backward));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times attention on the CPU.");
  Case one;
  std::string folder;
  std::size_t threads = 2;
  app.add_option("--batch", one.shape.batch);
  app.add_option("--query-heads", one.shape.query_heads);
  app.add_option("--kv-heads", one.shape.kv_heads);
  app.add_option("--q-len", one.shape.q_len);
  app.add_option("--kv-len", one.shape.kv_len);
  app.add_option("--head-dim", one.shape.head_dim_qk);
  app.add_option("--repetitions", one.repetitions);
  app.add_option("--threads", threads);
  CLI::App* single = app.add_subcommand("case", "one case, tensors from and to files of a folder");
  single->add_option("folder", folder)->required();
  single->add_option("--dtype", one.dtype);
  single->add_option("--mask", one.mask);
  single->add_option("--documents", one.document_count);
  single->add_flag("!--forward-only", one.backward);
  CLI::App* sparsity = app.add_subcommand("sparsity", "time against visited tiles, f32");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  one.shape.head_dim_v = one.shape.head_dim_qk;
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  if (*single) run_case(one, folder);
  if (*sparsity) run_sparsity(one);
  return 0;
}
