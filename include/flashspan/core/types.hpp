// types.hpp -- the vocabulary that every layer shares: element types, devices, architectures, shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace flashspan {

enum class DType { f32, f16, bf16, i32 };

[[nodiscard]] int size_in_bytes(DType dtype);
[[nodiscard]] const char* to_string(DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_string(std::string_view text);

enum class DeviceKind { cpu, cuda };

/// A place where tensors live and kernels run. The CPU has index 0 only.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:0".
[[nodiscard]] std::string to_string(Device device);

enum class Direction { forward, backward };
[[nodiscard]] const char* to_string(Direction direction);

/// A CUDA architecture by its compiler name: number 90 with suffix 'a' is "sm_90a". Suffix 0 means none.
struct Arch {
  int number = 80;
  char suffix = 0;
  friend bool operator==(const Arch&, const Arch&) = default;
};

[[nodiscard]] std::string to_string(Arch arch);
/// Reads "sm_80", "sm_90a"; nothing for other text.
[[nodiscard]] std::optional<Arch> arch_from_string(std::string_view text);

/// Sizes of one attention call. query_heads is a multiple of kv_heads (grouped-query attention).
struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t head_dim_qk = 0;
  std::int64_t head_dim_v = 0;
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

/// A stream handle of the device's own kind (CUstream for CUDA; ignored by the CPU). Null is the default stream.
struct Stream {
  void* handle = nullptr;
};

/// Longest sequence that index arithmetic is specified for; q, k, q_len and kv_len stay below or at it.
inline constexpr std::int64_t max_sequence_length = std::int64_t{1} << 30;

}  // namespace flashspan
#pragma GCC visibility pop
