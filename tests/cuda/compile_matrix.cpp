// compile_matrix.cpp -- compiles the kernel matrix through NVRTC in two threads, without a GPU, and prints one line a
// kernel: spec, ms, registers, spills. Exit status 1 if any failed. With an argument: only specs whose line contains
// it.
//
//   compile_matrix ["forward sm_90"]
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "codegen/kernel/emit_cuda.hpp"
#include "tests/cuda/kernel_specs.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

struct MatrixEntry {
  std::string line;
  SpecRequest request;
};

std::string line_of(const SpecRequest& request, const char* mask, const char* score) {
  std::string line = std::string(to_string(request.direction)) + " sm_" + std::to_string(request.arch) + " " +
                     to_string(request.dtype) + " d" + std::to_string(request.head_dim_qk);
  if (request.head_dim_v != request.head_dim_qk) line += "/" + std::to_string(request.head_dim_v);
  return line + (request.aligned ? " aligned " : " unaligned ") + mask + score;
}

/// Head dims: both ends, every padded size that a tile is chosen by, and sizes between them that are padded.
constexpr std::array head_dims{16,  24,  32,  40,  48,  64,  72,  80,  96,  104,
                               112, 128, 136, 160, 176, 192, 200, 224, 248, 256};
constexpr std::array unaligned_head_dims{24, 64, 128, 256};

std::vector<MatrixEntry> matrix() {
  std::vector<MatrixEntry> entries;
  for (const int arch : served_archs) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const auto add = [&](DType dtype, int head_dim_qk, int head_dim_v, bool aligned, const ProgramText* mask,
                           const char* mask_name, const ProgramText* score = nullptr) {
        const SpecRequest request{arch, direction, dtype, head_dim_qk, head_dim_v, aligned, mask, score};
        entries.push_back({line_of(request, mask_name, score == nullptr ? "" : " with a score"), request});
      };
      for (const DType dtype : {DType::bf16, DType::f16}) {
        for (const int head_dim : head_dims) add(dtype, head_dim, head_dim, true, &causal, "causal");
        for (const int head_dim : unaligned_head_dims) add(dtype, head_dim, head_dim, false, &causal, "causal");
        add(dtype, 192, 128, true, &causal, "causal");
        add(dtype, 64, 128, true, &causal, "causal");
      }
      for (const int head_dim : {64, 128, 256}) {
        add(DType::bf16, head_dim, head_dim, true, nullptr, "every pair");
        add(DType::bf16, head_dim, head_dim, true, &causal_documents, "documents");
        add(DType::bf16, head_dim, head_dim, true, &column_bounds, "column bounds");
        add(DType::bf16, head_dim, head_dim, true, &causal_documents, "documents", &softcap_and_alibi);
      }
    }
  }
  return entries;
}

/// The line to print; `passed` tells which kind it is.
std::string compile_entry(const NvrtcCompiler& compiler, const MatrixEntry& entry, bool& passed) {
  passed = false;
  const auto failed = [&](const Error& error) { return "FAILED  " + entry.line + "\n" + error.message(); };
  const auto spec = make_spec(entry.request);
  if (!spec) return failed(spec.error());
  const auto source = kernel::emit_cuda(*spec);
  if (!source) return failed(source.error());
  const auto binary = compiler.compile(*source, spec->target.arch);
  if (!binary) return failed(binary.error());
  int registers = 0;
  std::int64_t spills = 0;
  for (const backend::EntryReport& report : binary->report.entries) {
    registers = std::max(registers, report.registers);
    spills += report.spill_bytes;
  }
  passed = true;
  std::array<char, 160> numbers{};
  std::snprintf(numbers.data(), numbers.size(), "%7.0f ms %4d registers %4lld spilled  ", binary->report.milliseconds,
                registers, static_cast<long long>(spills));
  const kernel::TileConfig& tile = spec->tile;
  return numbers.data() + entry.line + "  " + std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n) + " w" +
         std::to_string(tile.num_warps) + " s" + std::to_string(tile.num_stages) +
         (binary->report.log.empty() ? "" : "\n" + binary->report.log);
}

int run(const std::string& wanted) {
  const auto compiler = NvrtcCompiler::open(machine_search());
  if (!compiler) {
    std::fprintf(stderr, "%s\n", compiler.error().message().c_str());
    return 1;
  }
  std::printf("%s\n", (*compiler)->identity().c_str());
  std::vector<MatrixEntry> entries = matrix();
  std::erase_if(entries, [&](const MatrixEntry& entry) { return entry.line.find(wanted) == std::string::npos; });

  std::atomic<std::size_t> next = 0;
  std::mutex printing;
  int passed_count = 0;
  int failed_count = 0;
  const auto work = [&] {
    for (std::size_t index = next++; index < entries.size(); index = next++) {
      bool passed = false;
      const std::string line = compile_entry(**compiler, entries[index], passed);
      const std::lock_guard lock(printing);
      ++(passed ? passed_count : failed_count);
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
  };
  std::thread second(work);
  work();
  second.join();
  std::printf("%d passed, %d failed\n", passed_count, failed_count);
  return failed_count == 0 && passed_count > 0 ? 0 : 1;
}

}  // namespace
}  // namespace flashspan::cuda

int main(int argc, char** argv) { return flashspan::cuda::run(argc > 1 ? argv[1] : ""); }
