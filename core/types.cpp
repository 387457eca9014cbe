#include "flashspan/core/types.hpp"

#include <charconv>

namespace flashspan {

int size_in_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f16:
      return 2;
    case DType::bf16:
      return 2;
    case DType::i32:
      return 4;
  }
  return 0;
}

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
  }
  return "unknown";
}

std::optional<DType> dtype_from_string(std::string_view text) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32}) {
    if (text == to_string(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

const char* to_string(Direction direction) { return direction == Direction::forward ? "forward" : "backward"; }

std::string to_string(Arch arch) {
  std::string text = "sm_" + std::to_string(arch.number);
  if (arch.suffix != 0) text += arch.suffix;
  return text;
}

std::optional<Arch> arch_from_string(std::string_view text) {
  constexpr std::string_view prefix = "sm_";
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  Arch arch;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), arch.number);
  if (status != std::errc{} || arch.number < 10) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (rest.size() > 1 || (rest.size() == 1 && rest[0] != 'a' && rest[0] != 'f')) return std::nullopt;
  arch.suffix = rest.empty() ? static_cast<char>(0) : rest[0];
  return arch;
}

}  // namespace flashspan
