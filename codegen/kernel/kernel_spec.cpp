// kernel_spec.cpp -- KernelSpec as text and back, and its hash.
#include "codegen/kernel/kernel_spec.hpp"

#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

namespace flashspan::kernel {
namespace {

constexpr std::string_view separator = " = ";

/// Signatures are single lines already; anything else would break the one-line-a-field form.
void put(std::string& text, std::string_view name, std::string_view value) {
  text += name;
  text += separator;
  text += value;
  text += '\n';
}

Error malformed(const std::string& field, const std::string& got, const std::string& takes) {
  return Error{ErrorCode::bad_argument, "kernel spec field '" + field + "'", got.empty() ? "nothing" : got, takes, ""};
}

using Fields = std::map<std::string, std::string, std::less<>>;

Result<Fields> split_fields(const std::string& text) {
  Fields fields;
  std::size_t start = 0;
  while (start < text.size()) {
    std::size_t end = text.find('\n', start);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(start, end - start);
    const std::size_t middle = line.find(separator);
    if (middle == std::string::npos) return malformed(line, line, "lines of the form 'name = value'");
    if (!fields.emplace(line.substr(0, middle), line.substr(middle + separator.size())).second) {
      return malformed(line.substr(0, middle), "the field twice", "each field once");
    }
    start = end + 1;
  }
  return fields;
}

/// Takes fields out one by one; the first that is missing or malformed is the error.
class FieldReader {
 public:
  explicit FieldReader(Fields fields) : fields_(std::move(fields)) {}

  std::string text(const std::string& name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) {
      fail(malformed(name, "", "every field of a spec"));
      return {};
    }
    std::string value = std::move(found->second);
    fields_.erase(found);
    return value;
  }

  std::string text_if_any(const std::string& name) { return fields_.contains(name) ? text(name) : ""; }

  int number(const std::string& name) {
    const std::string value = text(name);
    int number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc{} || end != value.data() + value.size()) fail(malformed(name, value, "an integer"));
    return number;
  }

  template <typename T>
  T one_of(const std::string& name, const std::string& takes,
           const std::function<std::optional<T>(std::string_view)>& read) {
    const std::string value = text(name);
    const std::optional<T> read_value = read(value);
    if (!read_value) fail(malformed(name, value, takes));
    return read_value.value_or(T{});
  }

  [[nodiscard]] const std::optional<Error>& error() {
    if (!error_ && !fields_.empty())
      fail(malformed(fields_.begin()->first, "an unknown field", "the fields of a spec"));
    return error_;
  }

 private:
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  Fields fields_;
  std::optional<Error> error_;
};

std::optional<Direction> direction_from_string(std::string_view text) {
  for (Direction direction : {Direction::forward, Direction::backward}) {
    if (text == to_string(direction)) return direction;
  }
  return std::nullopt;
}

std::optional<KernelFamily> family_from_string(std::string_view text) {
  for (KernelFamily family : {KernelFamily::mma, KernelFamily::hopper}) {
    if (text == to_string(family)) return family;
  }
  return std::nullopt;
}

std::optional<Target> target_from_string(std::string_view text) {
  if (text == "cpu") return Target{};
  const auto arch = arch_from_string(text);
  if (!arch) return std::nullopt;
  return Target{DeviceKind::cuda, *arch};
}

std::optional<bool> bool_from_string(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

}  // namespace

const char* to_string(KernelFamily family) {
  switch (family) {
    case KernelFamily::mma:
      return "mma";
    case KernelFamily::hopper:
      return "hopper";
  }
  return "unknown";
}

std::string to_string(const Target& target) {
  return target.kind == DeviceKind::cpu ? "cpu" : flashspan::to_string(target.arch);
}

std::string KernelSpec::to_text() const {
  std::string text;
  put(text, "direction", to_string(direction));
  put(text, "target", to_string(target));
  put(text, "family", to_string(family));
  put(text, "dtype", to_string(dtype));
  put(text, "head_dim_qk", std::to_string(head_dim_qk));
  put(text, "head_dim_v", std::to_string(head_dim_v));
  put(text, "lowering", to_string(lowering));
  put(text, "mask", mask);
  put(text, "score", score);
  if (!score_gradients.empty()) put(text, "score_gradients", score_gradients);
  put(text, "aligned", aligned ? "true" : "false");
  put(text, "split_rows", split_rows ? "true" : "false");
  put(text, "two_passes", two_passes ? "true" : "false");
  put(text, "block_m", std::to_string(tile.block_m));
  put(text, "block_n", std::to_string(tile.block_n));
  put(text, "num_warps", std::to_string(tile.num_warps));
  put(text, "num_stages", std::to_string(tile.num_stages));
  return text;
}

Result<KernelSpec> KernelSpec::from_text(const std::string& text) {
  auto fields = split_fields(text);
  if (!fields) return fields.error();
  FieldReader reader(*std::move(fields));
  KernelSpec spec;
  spec.direction = reader.one_of<Direction>("direction", "forward or backward", direction_from_string);
  spec.target = reader.one_of<Target>("target", "cpu or an architecture such as sm_90", target_from_string);
  spec.family = reader.one_of<KernelFamily>("family", "mma or hopper", family_from_string);
  spec.dtype = reader.one_of<DType>("dtype", "f32, f16, bf16 or i32", dtype_from_string);
  spec.head_dim_qk = reader.number("head_dim_qk");
  spec.head_dim_v = reader.number("head_dim_v");
  spec.lowering = reader.one_of<LoweringKind>(
      "lowering", "none, row_ranges, column_bounds, bit_tiles, expression or interpreted", lowering_from_string);
  spec.mask = reader.text("mask");
  spec.score = reader.text("score");
  spec.score_gradients = reader.text_if_any("score_gradients");
  spec.aligned = reader.one_of<bool>("aligned", "true or false", bool_from_string);
  spec.split_rows = reader.one_of<bool>("split_rows", "true or false", bool_from_string);
  spec.two_passes = reader.one_of<bool>("two_passes", "true or false", bool_from_string);
  spec.tile.block_m = reader.number("block_m");
  spec.tile.block_n = reader.number("block_n");
  spec.tile.num_warps = reader.number("num_warps");
  spec.tile.num_stages = reader.number("num_stages");
  if (reader.error()) return *reader.error();
  return spec;
}

std::string KernelSpec::summary() const {
  std::string text = to_string(direction);
  text += " " + to_string(target);
  if (family != KernelFamily::mma) text += std::string(" ") + to_string(family);
  text += std::string(" ") + to_string(dtype) + " d" + std::to_string(head_dim_qk);
  if (head_dim_v != head_dim_qk) text += "/" + std::to_string(head_dim_v);
  text += " " + std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n);
  text += std::string(" ") + to_string(lowering);
  if (!score.empty()) text += " score";
  if (!score_gradients.empty()) text += " gradients of " + score_gradients;
  if (!aligned) text += " unaligned";
  if (split_rows) text += " split";
  if (two_passes) text += " two-pass";
  return text;
}

std::size_t KernelSpecHash::operator()(const KernelSpec& spec) const noexcept {
  std::size_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](std::size_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  mix(static_cast<std::size_t>(spec.direction));
  mix(static_cast<std::size_t>(spec.target.kind));
  mix(static_cast<std::size_t>(spec.target.arch.number) * 256 + static_cast<unsigned char>(spec.target.arch.suffix));
  mix(static_cast<std::size_t>(spec.family));
  mix(static_cast<std::size_t>(spec.dtype));
  mix(static_cast<std::size_t>(spec.head_dim_qk));
  mix(static_cast<std::size_t>(spec.head_dim_v));
  mix(static_cast<std::size_t>(spec.lowering));
  mix(std::hash<std::string>{}(spec.mask));
  mix(std::hash<std::string>{}(spec.score));
  mix(std::hash<std::string>{}(spec.score_gradients));
  mix(spec.aligned ? 1 : 0);
  mix(spec.split_rows ? 1 : 0);
  mix(spec.two_passes ? 1 : 0);
  mix(static_cast<std::size_t>(spec.tile.block_m));
  mix(static_cast<std::size_t>(spec.tile.block_n));
  mix(static_cast<std::size_t>(spec.tile.num_warps));
  mix(static_cast<std::size_t>(spec.tile.num_stages));
  return hash;
}

}  // namespace flashspan::kernel
