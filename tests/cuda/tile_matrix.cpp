// tile_matrix.cpp -- compiles every tile that the resource model offers, in two threads and without a GPU, and prints
// what it expected beside what the compiler says: what the model's numbers are taken from. Exit status 1 if a cubin
// takes more than the model allows. With an argument: only specs whose line contains it.
//
//   tile_matrix ["forward sm_80"]
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "codegen/kernel/arch_limits.hpp"
#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/resource_model.hpp"
#include "tests/cuda/kernel_specs.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

struct TileEntry {
  kernel::KernelSpec spec;
  kernel::ModelledTile modelled;
  std::string line;
};

void add(std::vector<TileEntry>& entries, const SpecRequest& request) {
  const auto spec = make_spec(request);
  const auto mask = mask_program_of(request);
  if (!spec || !mask) return;
  for (const kernel::ModelledTile& modelled : kernel::modelled_tiles(*spec, mask::evaluates_in_few_registers(*mask))) {
    kernel::KernelSpec tiled = *spec;
    tiled.tile = modelled.tile;
    entries.push_back({tiled, modelled, tiled.summary() + ", " + to_string(modelled.tile)});
  }
}

std::vector<TileEntry> all_entries() {
  std::vector<TileEntry> entries;
  for (const Arch arch : {Arch{80, 0}, Arch{90, 'a'}, Arch{120, 0}}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const int head_dim : {64, 96, 128, 256}) {
        for (const ProgramText* mask : {&causal, &causal_documents}) {
          SpecRequest request{.arch = arch, .direction = direction, .mask = mask};
          request.head_dim_qk = request.head_dim_v = head_dim;
          add(entries, request);
        }
      }
    }
  }
  return entries;
}

/// Of the kernels that the tile decides.
int registers_of(const backend::CompileReport& report) {
  int registers = 0;
  for (const backend::EntryReport& entry : report.entries) {
    const bool computes = entry.name == kernel::entry_forward || entry.name == kernel::entry_backward_dq ||
                          entry.name == kernel::entry_backward_dkdv || entry.name == kernel::entry_backward_tiles;
    if (computes) registers = std::max(registers, entry.registers);
  }
  return registers;
}

/// The line to print; `passed` tells whether the model was right.
std::string compile_entry(const NvrtcCompiler& compiler, const TileEntry& entry, bool& passed) {
  passed = false;
  const auto source = kernel::emit_cuda(entry.spec);
  if (!source) return "FAILED  " + entry.line + "\n" + source.error().message();
  const auto binary = compiler.compile(*source, entry.spec.target.arch);
  const kernel::Resources& expected = entry.modelled.resources;
  if (!binary) {
    // Registers of the hopper family are moved between warpgroups: that it spills is all that the compiler says.
    passed = binary.error().code == ErrorCode::kernel_spills && entry.spec.family == kernel::KernelFamily::hopper;
    return "SPILLS  " + entry.line + ", expected " + std::to_string(expected.registers) + " of " +
           std::to_string(expected.register_limit) + ": " + binary.error().got;
  }
  const int registers = registers_of(binary->report);
  passed = kernel::is_launchable(entry.spec, registers);
  std::array<char, 160> numbers{};
  std::snprintf(numbers.data(), numbers.size(), "%4d registers, expected %4d, accumulators %4d, %d blocks, cost %.3f  ",
                registers, expected.registers, expected.accumulators, expected.blocks, entry.modelled.cost);
  return std::string(passed ? "" : "CANNOT LAUNCH  ") + numbers.data() + entry.line;
}

int run(const std::string& wanted) {
  const auto compiler = NvrtcCompiler::open(machine_search());
  if (!compiler) {
    std::fprintf(stderr, "%s\n", compiler.error().message().c_str());
    return 1;
  }
  std::vector<TileEntry> entries = all_entries();
  std::erase_if(entries, [&](const TileEntry& entry) { return entry.line.find(wanted) == std::string::npos; });
  std::atomic<std::size_t> next = 0;
  std::mutex printing;
  int wrong = 0;
  const auto work = [&] {
    for (std::size_t index = next++; index < entries.size(); index = next++) {
      bool passed = false;
      const std::string line = compile_entry(**compiler, entries[index], passed);
      const std::lock_guard lock(printing);
      if (!passed) ++wrong;
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
  };
  std::thread second(work);
  work();
  second.join();
  std::printf("%zu tiles, %d against the model\n", entries.size(), wrong);
  return wrong == 0 && !entries.empty() ? 0 : 1;
}

}  // namespace
}  // namespace flashspan::cuda

int main(int argc, char** argv) { return flashspan::cuda::run(argc > 1 ? argv[1] : ""); }
