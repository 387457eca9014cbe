// A program of someone else's: parses a mask, looks at its tiles and, where the CPU plug-in is installed, attends.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <flashspan/attention.hpp>
#include <flashspan/inspect.hpp>
#include <flashspan/mask.hpp>
#include <fstream>
#include <string>
#include <vector>

namespace {

using namespace flashspan;

constexpr std::int64_t length = 6;
constexpr std::int64_t dim = 16;

int fail(const char* what, const Error& error) {
  std::printf("%s: %s\n", what, error.message().c_str());
  return 1;
}

int check_tiles(const Mask& mask) {
  const AttentionShape shape{1, 1, 1, length, length, dim, dim};
  const auto map = tile_map(mask, shape, 0, 0, 3, 3);
  if (!map) return fail("tile_map", map.error());
  // Two causal documents of three: a triangle on the diagonal, nothing elsewhere.
  const bool right = map->visible_pairs == 12 && map->empty == 2 && map->partial == 2 && map->full == 0;
  if (!right) std::printf("tile_map: %lld visible pairs\n", static_cast<long long>(map->visible_pairs));
  return right ? 0 : 1;
}

int check_attention(const Mask& mask) {
  auto attention = Attention::open(Device{DeviceKind::cpu, 0});
  if (!attention) return fail("open", attention.error());
  std::vector<float> query(length * dim, 1);
  std::vector<float> key(query);
  std::vector<float> value(query);
  std::vector<float> out(query);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(i / dim);
  ForwardCall call;
  call.query = TensorView::contiguous(query.data(), DType::f32, {1, 1, length, dim});
  call.key = TensorView::contiguous(key.data(), DType::f32, {1, 1, length, dim});
  call.value = TensorView::contiguous(value.data(), DType::f32, {1, 1, length, dim});
  call.out = TensorView::contiguous(out.data(), DType::f32, {1, 1, length, dim});
  call.mask = &mask;
  const auto bytes = attention->workspace_bytes(call);
  if (!bytes) return fail("workspace_bytes", bytes.error());
  std::vector<std::byte> workspace(static_cast<std::size_t>(*bytes));
  call.workspace = workspace.data();
  call.workspace_bytes = *bytes;
  if (const auto done = attention->forward(call); !done) return fail("forward", done.error());
  // Equal scores: the mean of the visible keys' numbers.
  const float expected[length] = {0, 0.5F, 1, 3, 3.5F, 4};
  for (std::size_t q = 0; q < static_cast<std::size_t>(length); ++q) {
    if (std::abs(out[q * dim] - expected[q]) < 1e-5F) continue;
    std::printf("query %zu: got %f, expected %f\n", q, static_cast<double>(out[q * dim]),
                static_cast<double>(expected[q]));
    return 1;
  }
  return 0;
}

/// Prints the file that the plug-in was loaded from.
void print_plugin_file() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path == std::string::npos || line.find("flashspan_cpu") == std::string::npos) continue;
    std::printf("plug-in: %s\n", line.c_str() + path);
    return;
  }
}

}  // namespace

int main() {
  std::vector<std::int32_t> doc{0, 0, 0, 1, 1, 1};
  const auto mask =
      Mask::parse("(doc[q] == doc[k]) & (q >= k)", {{"doc", TensorView::contiguous(doc.data(), DType::i32, {length})}});
  if (!mask) return fail("parse", mask.error());
  if (check_tiles(*mask) != 0) return 1;
#ifdef EXPECT_CPU
  if (check_attention(*mask) != 0) return 1;
  print_plugin_file();
#else
  if (Attention::open(Device{DeviceKind::cpu, 0})) return 1;  // not installed, and says so
  static_cast<void>(check_attention);
#endif
  return 0;
}
