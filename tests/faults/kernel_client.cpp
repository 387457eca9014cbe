// kernel_client.cpp -- one process of the load and fault tests: has kernels made in an order of its own, and prints a
// line for each: number, key, where it came from, hash of its binary; or number, "failed" and the message.
//   kernel_client CACHE_DIRECTORY KERNELS SEED
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cache/disk_store.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/mask.hpp"

namespace {

using namespace flashspan;

/// Kernels that differ in a number of their mask; small, so that many are compiled in a minute.
Result<CompiledKernel> make(int number, const std::string& cache_dir) {
  const auto mask = Mask::parse("(q >= k) & (q - k != " + std::to_string(number) + ")");
  if (!mask) return mask.error();
  CompileRequest request;
  request.mask = &*mask;
  request.archs = {Arch{80, 0}};
  request.directions = {Direction::forward};
  request.head_dim_qk = request.head_dim_v = 16;
  request.cache_dir = cache_dir;
  auto compiled = compile_ahead(request, 1, nullptr);
  if (!compiled) return compiled.error();
  if (compiled->front().error) return *compiled->front().error;
  return std::move(compiled->front());
}

/// Of the entry that is on disk now; "none" where the disk took none.
std::string hash_on_disk(const std::string& cache_dir, const std::string& key_text) {
  const auto key = *cache::KernelKey::from_text(key_text);
  const auto entry = cache::DiskStore(cache_dir, {}).read(key);
  if (!entry) return "none";
  const std::string_view bytes(reinterpret_cast<const char*>(entry->artifact.data()), entry->artifact.size());
  return cache::KernelKey::of(std::span(&bytes, 1)).to_text();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string cache_dir = argv[1];
  std::vector<int> order(static_cast<std::size_t>(std::atoi(argv[2])));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(std::atoi(argv[3]))));
  int failures = 0;
  for (const int number : order) {
    const auto kernel = make(number, cache_dir);
    if (!kernel) {
      std::printf("%d failed %s\n", number, kernel.error().message().c_str());
      ++failures;
    } else {
      const KernelRecord& record = kernel->record;
      std::printf("%d %s %s %s\n", number, record.key.c_str(), record.outcome.c_str(),
                  hash_on_disk(cache_dir, record.key).c_str());
    }
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}
