// kernel_key.hpp -- KernelKey: XXH3-128 over everything that decides a compiler's output. Inputs only, never
// compiler output; no path, time or pointer may be a part.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace flashspan::cache {

struct KernelKey {
  std::array<std::uint8_t, 16> bytes{};
  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;

  /// 32 hexadecimal digits.
  [[nodiscard]] std::string to_text() const;
  static std::optional<KernelKey> from_text(std::string_view text);
  /// Hash of a list of parts. Each part is hashed with its length, so no two lists run together.
  static KernelKey of(std::span<const std::string_view> parts);
};

struct KernelKeyHash {
  [[nodiscard]] std::size_t operator()(const KernelKey& key) const noexcept;
};

}  // namespace flashspan::cache
