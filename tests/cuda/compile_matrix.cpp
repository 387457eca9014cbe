// compile_matrix.cpp -- compiles the kernel matrix through NVRTC in two threads, without a GPU, and prints one line a
// kernel: spec, ms, registers, spills. A planner that several kernels have is compiled with the first of them. Exit
// status 1 if any failed. With an argument: only specs whose line contains it.
//
//   compile_matrix ["forward sm_90a hopper"]
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/include_lines.hpp"
#include "tests/cuda/kernel_specs.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

struct MatrixEntry {
  std::string line;
  kernel::KernelSpec spec;
};

struct NamedMask {
  const char* name;
  const ProgramText* text;  ///< null: every pair is visible
};
const std::array masks{NamedMask{"every pair", nullptr}, NamedMask{"causal", &causal},
                       NamedMask{"documents", &causal_documents}, NamedMask{"column bounds", &column_bounds}};
const NamedMask& causal_mask = masks[1];

struct HeadDims {
  int qk, v;
};
/// Both ends, every padded size that a tile is chosen by, sizes between them that are padded, and unequal ones.
constexpr std::array all_head_dims{
    HeadDims{16, 16},   HeadDims{24, 24},   HeadDims{32, 32},   HeadDims{40, 40},   HeadDims{48, 48},
    HeadDims{64, 64},   HeadDims{72, 72},   HeadDims{80, 80},   HeadDims{96, 96},   HeadDims{104, 104},
    HeadDims{112, 112}, HeadDims{128, 128}, HeadDims{136, 136}, HeadDims{160, 160}, HeadDims{176, 176},
    HeadDims{192, 192}, HeadDims{200, 200}, HeadDims{224, 224}, HeadDims{248, 248}, HeadDims{256, 256},
    HeadDims{192, 128}, HeadDims{64, 128},  HeadDims{16, 192},  HeadDims{16, 224},  HeadDims{16, 256}};
/// One of each tile.
constexpr std::array usual_head_dims{HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{256, 256}};
constexpr HeadDims one_head_dim{128, 128};

/// Collects entries, each spec once.
class Matrix {
 public:
  void add(SpecRequest request, HeadDims head_dims, const NamedMask& mask, const ProgramText* score = nullptr) {
    request.head_dim_qk = head_dims.qk;
    request.head_dim_v = head_dims.v;
    request.mask = mask.text;
    request.score = score;
    const auto spec = make_spec(request);
    if (!spec) {
      if (spec.error().argument.ends_with(" lowering")) return;  // one that the mask has not
      std::fprintf(stderr, "%s: %s\n", mask.name, spec.error().message().c_str());
      ++refused_;
      return;
    }
    if (!known_.insert(spec->to_text()).second) return;
    entries_.push_back({spec->summary() + ", " + mask.name, *spec});
  }

  /// The lowering that a call chooses, and every other that the mask has.
  void add_all_lowerings(SpecRequest request, HeadDims head_dims, const NamedMask& mask,
                         const ProgramText* score = nullptr) {
    add(request, head_dims, mask, score);
    for (const auto kind : {mask::LoweringKind::row_ranges, mask::LoweringKind::column_bounds,
                            mask::LoweringKind::bit_tiles, mask::LoweringKind::expression}) {
      request.lowering = kind;
      add(request, head_dims, mask, score);
    }
  }

  [[nodiscard]] int refused() const { return refused_; }
  [[nodiscard]] std::vector<MatrixEntry> take() { return std::move(entries_); }

 private:
  std::vector<MatrixEntry> entries_;
  std::set<std::string> known_;
  int refused_ = 0;
};

constexpr std::array<const ProgramText*, 2> scores{nullptr, &softcap_and_alibi};

/// Forward kernels of sm_90a: head dims along their own axis; masks with their lowerings, and scores, at every tile,
/// where registers are short. The types differ by the name of two instructions: f16 in the lowerings that are chosen.
void add_hopper(Matrix& matrix) {
  const SpecRequest bf16{.arch = {90, 'a'}, .dtype = DType::bf16};
  const SpecRequest f16{.arch = {90, 'a'}, .dtype = DType::f16};
  for (const HeadDims head_dims : all_head_dims) matrix.add(bf16, head_dims, causal_mask);
  for (const HeadDims head_dims : usual_head_dims) {
    for (const NamedMask& mask : masks) {
      matrix.add_all_lowerings(bf16, head_dims, mask);
      matrix.add(bf16, head_dims, mask, &softcap_and_alibi);
      matrix.add(f16, head_dims, mask);
    }
  }
  for (const NamedMask& mask : masks) {
    matrix.add_all_lowerings(bf16, one_head_dim, mask, &softcap_and_alibi);
    matrix.add(f16, one_head_dim, mask, &softcap_and_alibi);
  }
}

/// Those that cut rows into portions: what the type of the elements and a score change is the same as above.
void add_hopper_portions(Matrix& matrix) {
  const SpecRequest request{.arch = {90, 'a'}, .dtype = DType::bf16, .few_rows = true};
  for (const HeadDims head_dims : usual_head_dims) {
    matrix.add(request, head_dims, causal_mask);
    matrix.add(request, head_dims, causal_mask, &softcap_and_alibi);
  }
  for (const NamedMask& mask : masks) matrix.add_all_lowerings(request, one_head_dim, mask);
}

/// Backward kernels of sm_90a that take two passes.
void add_hopper_two_passes(Matrix& matrix) {
  SpecRequest request{.arch = {90, 'a'}, .direction = Direction::backward, .dtype = DType::bf16, .deterministic = true};
  for (const HeadDims head_dims : {HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{192, 128}, HeadDims{256, 256}}) {
    for (const NamedMask& mask : masks) matrix.add(request, head_dims, mask);
    matrix.add(request, head_dims, causal_mask, &softcap_and_alibi);
  }
  for (const NamedMask& mask : masks) matrix.add_all_lowerings(request, one_head_dim, mask);
}

/// Backward kernels of sm_90a.
void add_hopper_backward(Matrix& matrix) {
  SpecRequest request{.arch = {90, 'a'}, .direction = Direction::backward, .dtype = DType::bf16};
  for (const HeadDims head_dims : all_head_dims) matrix.add(request, head_dims, causal_mask);
  for (const ProgramText* score : scores) {
    for (const NamedMask& mask : masks) {
      for (const HeadDims head_dims : {HeadDims{64, 64}, HeadDims{192, 192}, HeadDims{192, 128}}) {
        matrix.add(request, head_dims, mask, score);
      }
      for (const HeadDims head_dims : {one_head_dim, HeadDims{256, 256}}) {
        matrix.add_all_lowerings(request, head_dims, mask, score);
      }
    }
  }
  request.dtype = DType::f16;
  for (const NamedMask& mask : masks) {
    for (const HeadDims head_dims : {one_head_dim, HeadDims{192, 192}, HeadDims{256, 256}}) {
      matrix.add(request, head_dims, mask);
    }
  }
}

/// What the templates depend on once, on the oldest architecture; on the others, one kernel of each tile.
void add_mma(Matrix& matrix) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const SpecRequest oldest{.arch = served_archs.front(), .direction = direction, .dtype = DType::bf16};
    for (const HeadDims head_dims : all_head_dims) matrix.add(oldest, head_dims, causal_mask);
    for (const Arch arch : served_archs) {
      const SpecRequest bf16{.arch = arch, .direction = direction, .dtype = DType::bf16};
      SpecRequest f16 = bf16;
      f16.dtype = DType::f16;
      SpecRequest unaligned = bf16;
      unaligned.aligned = false;
      for (const HeadDims head_dims : usual_head_dims) matrix.add(bf16, head_dims, causal_mask);
      matrix.add(f16, one_head_dim, causal_mask);
      matrix.add(unaligned, one_head_dim, causal_mask);
      for (const NamedMask& mask : masks) matrix.add(bf16, one_head_dim, mask);
      matrix.add(bf16, one_head_dim, masks[2], &softcap_and_alibi);
    }
  }
}

/// With gradients of looked-up tensors, of either family.
void add_score_gradients(Matrix& matrix) {
  for (const Arch arch : {Arch{80, 0}, Arch{90, 'a'}}) {
    const SpecRequest request{
        .arch = arch, .direction = Direction::backward, .dtype = DType::bf16, .score_gradients = "bias"};
    matrix.add(request, HeadDims{64, 64}, causal_mask, &relative_bias);
  }
}

/// Kernels that serve every mask: the same mma kernels with another way to the mask, which is the same everywhere.
void add_interpreted(Matrix& matrix) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    SpecRequest request{.arch = served_archs.front(), .direction = direction, .dtype = DType::bf16};
    request.lowering = mask::LoweringKind::interpreted;
    for (const HeadDims head_dims : usual_head_dims) matrix.add(request, head_dims, causal_mask);
    request.arch = {90, 'a'};
    matrix.add(request, one_head_dim, causal_mask);
  }
}

/// Name of the constant that a line declares; empty for any other line.
std::string_view declared_constant(std::string_view line) {
  if (!line.starts_with("constexpr ")) return "";
  line = line.substr(0, line.find(" = "));
  return line.substr(line.rfind(' ') + 1);
}

/// What the program's machine code is made of: its text and that of all it includes, but for comments and constants
/// that nothing in it names. Planners do not name head dims, so that those of kernels that differ by them have one
/// text.
std::string text_that_counts(const kernel::SourceText& source, const kernel::ProgramText& program) {
  const std::string text = kernel::SourceText{.programs = {program}, .files = source.files}.flattened();
  std::string counts;
  kernel::for_each_line(text, [&](std::string_view line) {
    const std::string_view constant = declared_constant(line);
    const bool unnamed = !constant.empty() && text.find(constant) == text.rfind(constant);
    if (!unnamed && !line.starts_with("//")) counts.append(line).append("\n");
  });
  return counts;
}

/// The programs that some kernel was compiled with.
class KnownPrograms {
 public:
  void remove_from(kernel::SourceText& source, Arch arch) {
    const std::lock_guard lock(mutex_);
    std::erase_if(source.programs, [&](const kernel::ProgramText& program) {
      return !known_.insert(to_string(arch) + "\n" + text_that_counts(source, program)).second;
    });
  }

 private:
  std::mutex mutex_;
  std::set<std::string> known_;
};

/// The line to print; `passed` tells which kind it is.
std::string compile_entry(const NvrtcCompiler& compiler, const MatrixEntry& entry, KnownPrograms& known, bool& passed) {
  passed = false;
  const auto failed = [&](const Error& error) { return "FAILED  " + entry.line + "\n" + error.message(); };
  auto source = kernel::emit_cuda(entry.spec);
  if (!source) return failed(source.error());
  known.remove_from(*source, entry.spec.target.arch);
  const auto binary = compiler.compile(*source, entry.spec.target.arch);
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
  const TileConfig& tile = entry.spec.tile;
  return numbers.data() + entry.line + "  w" + std::to_string(tile.num_warps) + " s" + std::to_string(tile.num_stages) +
         (binary->report.log.empty() ? "" : "\n" + binary->report.log);
}

int run(const std::string& wanted) {
  const auto compiler = NvrtcCompiler::open(machine_search());
  if (!compiler) {
    std::fprintf(stderr, "%s\n", compiler.error().message().c_str());
    return 1;
  }
  std::printf("%s\n", (*compiler)->identity().c_str());
  Matrix matrix;
  add_hopper(matrix);
  add_hopper_portions(matrix);
  add_hopper_backward(matrix);
  add_hopper_two_passes(matrix);
  add_mma(matrix);
  add_score_gradients(matrix);
  add_interpreted(matrix);
  std::vector<MatrixEntry> entries = matrix.take();
  std::erase_if(entries, [&](const MatrixEntry& entry) { return entry.line.find(wanted) == std::string::npos; });

  KnownPrograms known;
  std::atomic<std::size_t> next = 0;
  std::mutex printing;
  int passed_count = 0;
  int failed_count = matrix.refused();
  const auto work = [&] {
    for (std::size_t index = next++; index < entries.size(); index = next++) {
      bool passed = false;
      const std::string line = compile_entry(**compiler, entries[index], known, passed);
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
