// The public API end to end on the CPU, and when its plug-in (and with it LLVM) comes into the process.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"
#include "flashspan/inspect.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

bool mapped(const std::string& part_of_name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(part_of_name) != std::string::npos) return true;
  }
  return false;
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

constexpr std::int64_t q_len = 37;
constexpr std::int64_t kv_len = 53;
constexpr std::int64_t head_dim = 24;

/// One head of attention by the definition.
std::vector<double> reference(const std::vector<float>& query, const std::vector<float>& key,
                              const std::vector<float>& value, std::int64_t left) {
  std::vector<double> out(static_cast<std::size_t>(q_len * head_dim));
  const auto at = [](std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(row * head_dim + column);
  };
  for (std::int64_t q = 0; q < q_len; ++q) {
    double sum = 0;
    for (std::int64_t k = 0; k < kv_len; ++k) {
      const std::int64_t position = q + kv_len - q_len;
      if (k > position || k < position - left) continue;
      double score = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) score += static_cast<double>(query[at(q, d)]) * key[at(k, d)];
      const double weight = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
      sum += weight;
      for (std::int64_t d = 0; d < head_dim; ++d) out[at(q, d)] += weight * value[at(k, d)];
    }
    for (std::int64_t d = 0; d < head_dim; ++d) out[at(q, d)] /= sum;
  }
  return out;
}

TEST(CpuAttention, LlvmIsLoadedWithTheFirstUseOfTheCpuAndTheResultIsRight) {
  // What a process does that only uses a GPU: masks, devices, tile maps.
  const auto window = Mask::window(9, 0);
  ASSERT_TRUE(window.has_value());
  ASSERT_TRUE(tile_map(*window, {1, 1, 1, q_len, kv_len, head_dim, head_dim}, 0, 0, 16, 16).has_value());
  EXPECT_TRUE(device_from_string("cpu").has_value());
  EXPECT_FALSE(mapped("LLVM"));
  EXPECT_FALSE(mapped("flashspan_cpu"));

  PrivateFolder folder;
  AttentionOptions options;
  options.cache_dir = folder.path().string();
  auto attention = Attention::open(Device{}, options);
  if (!attention && attention.error().code == ErrorCode::missing_component) GTEST_SKIP() << attention.error().message();
  ASSERT_TRUE(attention.has_value()) << attention.error().message();
  EXPECT_TRUE(mapped("flashspan_cpu"));

  auto query = random_values(q_len * head_dim, 1);
  auto key = random_values(kv_len * head_dim, 2);
  auto value = random_values(kv_len * head_dim, 3);
  std::vector<float> out(q_len * head_dim, std::numeric_limits<float>::quiet_NaN());
  ForwardCall call;
  call.query = TensorView::contiguous(query.data(), DType::f32, {1, 1, q_len, head_dim});
  call.key = TensorView::contiguous(key.data(), DType::f32, {1, 1, kv_len, head_dim});
  call.value = TensorView::contiguous(value.data(), DType::f32, {1, 1, kv_len, head_dim});
  call.out = TensorView::contiguous(out.data(), DType::f32, {1, 1, q_len, head_dim});
  call.mask = &*window;
  const auto bytes = attention->workspace_bytes(call);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
  std::vector<std::byte> workspace(static_cast<std::size_t>(*bytes));
  call.workspace = workspace.data();
  call.workspace_bytes = *bytes;
  const auto done = attention->forward(call);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  const auto expected = reference(query, key, value, 9);
  for (std::size_t index = 0; index < out.size(); ++index) EXPECT_NEAR(out[index], expected[index], 2e-6) << index;

  const auto record = attention->prepare(call);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->outcome, "loaded");
  const auto entries = list_cache(options.cache_dir);
  ASSERT_TRUE(entries.has_value());
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().key, record->key);
  EXPECT_EQ(entries->front().spec, record->spec);
  EXPECT_TRUE(entries->front().valid);

  auto second = Attention::open(Device{}, options);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->prepare(call)->outcome, "disk");
  ASSERT_TRUE(prune_cache(options.cache_dir, 0, std::nullopt).has_value());
  EXPECT_TRUE(list_cache(options.cache_dir)->empty());
}

}  // namespace
}  // namespace flashspan::testing
