#include "runtime/api/triton_types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <regex>
#include <type_traits>
#include <utility>

#include "runtime/attention/tensor_rule.hpp"

namespace flashspan::api {
namespace {

using attention::bad_argument;

constexpr int pointer_bytes = 8;

struct NamedType {
  std::string_view name;
  int bytes;
};
constexpr std::array scalar_types{
    NamedType{"i1", 1},   NamedType{"i8", 1},   NamedType{"i16", 2},  NamedType{"i32", 4},
    NamedType{"i64", 8},  NamedType{"u1", 1},   NamedType{"u8", 1},   NamedType{"u16", 2},
    NamedType{"u32", 4},  NamedType{"u64", 8},  NamedType{"fp16", 2}, NamedType{"bf16", 2},
    NamedType{"fp32", 4}, NamedType{"fp64", 8}, NamedType{"f32", 4},  NamedType{"nvTmaDesc", 128}};

std::string trimmed(std::string text) {
  const auto is_space = [](char letter) { return letter == ' ' || letter == '\t' || letter == '\n'; };
  text.erase(text.begin(), std::ranges::find_if_not(text, is_space));
  while (!text.empty() && is_space(text.back())) text.pop_back();
  return text;
}

bool is_number(const std::string& text) {
  static const std::regex number(R"([-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?)");
  return std::regex_match(text, number);
}

/// Of MLIR: "!tt.ptr<f32>" is "*fp32", "f32" is "fp32". Nothing for others.
std::optional<std::string> type_of_mlir(const std::string& text) {
  constexpr std::string_view pointer = "!tt.ptr<";
  if (text.starts_with(pointer)) {
    const std::string element = text.substr(pointer.size(), text.find_first_of(",>", pointer.size()) - pointer.size());
    return "*" + type_of_mlir(element).value_or(element);
  }
  for (const auto& [mlir, name] : {std::pair{"f16", "fp16"}, std::pair{"f32", "fp32"}, std::pair{"f64", "fp64"}}) {
    if (text == mlir) return name;
  }
  if (text == "bf16" || size_of_triton_type(text)) return text;
  return std::nullopt;
}

/// The text between the bracket at `open` and the one that closes it.
std::optional<std::string_view> within_brackets(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')' && --depth == 0) return text.substr(open + 1, at - open - 1);
  }
  return std::nullopt;
}

/// Split at commas outside all kinds of brackets and quotes.
std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  bool quoted = false;
  std::string part;
  for (const char letter : text) {
    if (letter == '"') quoted = !quoted;
    if (!quoted && (letter == '(' || letter == '{' || letter == '<' || letter == '[')) ++depth;
    if (!quoted && (letter == ')' || letter == '}' || letter == '>' || letter == ']')) --depth;
    if (letter == ',' && depth == 0 && !quoted) {
      parts.push_back(trimmed(std::exchange(part, {})));
    } else {
      part += letter;
    }
  }
  if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

template <typename T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), static_cast<const void*>(&value), sizeof(T));
  return bytes;
}

/// The nearest binary16, of two the even one.
std::uint16_t half_of(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00U);
  const int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  // With the hidden bit counted in, a carry goes into the exponent as it should.
  const auto bits = static_cast<unsigned>(units) + (static_cast<unsigned>(exponent + 14) << 10);
  return static_cast<std::uint16_t>(sign | bits);
}

std::uint16_t bfloat_of(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

template <typename Integer>
std::optional<std::vector<std::byte>> integer_bytes(std::int64_t value) {
  // The largest of u64 come as negative numbers.
  constexpr bool fits_all = sizeof(Integer) == sizeof(std::int64_t);
  if (!fits_all && !std::in_range<Integer>(value)) return std::nullopt;
  return bytes_of(static_cast<Integer>(value));
}

std::optional<std::vector<std::byte>> packed_integer(std::string_view type, std::int64_t value) {
  if (type == "i1" || type == "u1") {
    if (value != 0 && value != 1) return std::nullopt;
    return bytes_of(static_cast<std::uint8_t>(value));
  }
  if (type == "i8") return integer_bytes<std::int8_t>(value);
  if (type == "i16") return integer_bytes<std::int16_t>(value);
  if (type == "i32") return integer_bytes<std::int32_t>(value);
  if (type == "i64") return integer_bytes<std::int64_t>(value);
  if (type == "u8") return integer_bytes<std::uint8_t>(value);
  if (type == "u16") return integer_bytes<std::uint16_t>(value);
  if (type == "u32") return integer_bytes<std::uint32_t>(value);
  if (type == "u64") return integer_bytes<std::uint64_t>(value);
  return std::nullopt;
}

std::optional<std::vector<std::byte>> packed_real(std::string_view type, double value) {
  if (type == "fp16") return bytes_of(half_of(value));
  if (type == "bf16") return bytes_of(bfloat_of(value));
  if (type == "fp32" || type == "f32") return bytes_of(static_cast<float>(value));
  if (type == "fp64") return bytes_of(value);
  return std::nullopt;
}

std::optional<std::vector<std::byte>> packed(std::string_view type, const TritonArgument& argument) {
  if (const auto* const address = std::get_if<const void*>(&argument)) {
    if (!type.starts_with('*')) return std::nullopt;
    return bytes_of(*address);
  }
  if (const auto* const whole = std::get_if<std::int64_t>(&argument)) return packed_integer(type, *whole);
  if (const auto* const real = std::get_if<double>(&argument)) return packed_real(type, *real);
  const auto& map = std::get<std::array<std::byte, 128>>(argument);
  if (type != "nvTmaDesc") return std::nullopt;
  return std::vector<std::byte>(map.begin(), map.end());
}

std::string text_of(const TritonArgument& argument) {
  if (std::holds_alternative<const void*>(argument)) return "an address";
  if (const auto* const whole = std::get_if<std::int64_t>(&argument))
    return "the whole number " + std::to_string(*whole);
  if (const auto* const real = std::get_if<double>(&argument)) return "the number " + std::to_string(*real);
  return "a tensor map";
}

}  // namespace

std::optional<int> size_of_triton_type(std::string_view type) {
  if (type.starts_with('*')) return pointer_bytes;
  const auto* const found = std::ranges::find(scalar_types, type, &NamedType::name);
  if (found == scalar_types.end()) return std::nullopt;
  return found->bytes;
}

Result<std::vector<TritonParameter>> parameters_of_signature(const std::string& signature) {
  std::vector<TritonParameter> parameters;
  for (const std::string& part : split_arguments(signature)) {
    const std::string type = trimmed(part.substr(0, part.find(':')));
    const bool is_one = part.ends_with(":1");  // of that value by its hint: a constexpr too
    if (is_number(type) || type == "constexpr" || is_one) continue;
    const auto bytes = size_of_triton_type(type);
    if (!bytes) return bad_argument("signature", part, "Triton's types, such as *fp32, i32, fp32, with commas between");
    parameters.push_back({"arg" + std::to_string(parameters.size()), type, *bytes});
  }
  return parameters;
}

std::optional<std::vector<TritonParameter>> parameters_of_ttir(const std::string& ttir, const std::string& kernel) {
  const std::size_t at = ttir.find("tt.func public @" + kernel + "(");
  if (at == std::string::npos) return std::nullopt;
  const auto arguments = within_brackets(ttir, ttir.find('(', at));
  if (!arguments) return std::nullopt;
  std::vector<TritonParameter> parameters;
  for (const std::string& argument : split_arguments(*arguments)) {
    // %name: type {attributes} loc(...)
    const std::size_t colon = argument.find(':');
    if (!argument.starts_with('%') || colon == std::string::npos) return std::nullopt;
    const std::string rest = trimmed(argument.substr(colon + 1));
    const auto type = type_of_mlir(rest.substr(0, rest.find(' ')));
    if (!type) return std::nullopt;
    parameters.push_back({argument.substr(1, colon - 1), *type, size_of_triton_type(*type).value_or(0)});
  }
  return parameters;
}

std::optional<std::vector<TritonParameter>> parameters_of_ptx(const std::string& ptx, const std::string& kernel) {
  const std::size_t at = ptx.find(".entry " + kernel + "(");
  if (at == std::string::npos) return std::nullopt;
  const auto arguments = within_brackets(ptx, ptx.find('(', at));
  if (!arguments) return std::nullopt;
  std::vector<TritonParameter> parameters;
  for (const std::string& argument : split_arguments(*arguments)) {
    // .param .u64 .ptr .global .align 1 name; .param .f32 name; .param .align 64 .b8 name[128]
    std::string type;
    if (argument.find(" .ptr") != std::string::npos) type = "*i8";
    for (const auto& [directive, name] :
         {std::pair{" .u64", "i64"}, std::pair{" .u32", "i32"}, std::pair{" .u16", "i16"}, std::pair{" .u8", "i8"},
          std::pair{" .b64", "i64"}, std::pair{" .b32", "i32"}, std::pair{" .b16", "i16"}, std::pair{" .f64", "fp64"},
          std::pair{" .f32", "fp32"}}) {
      if (type.empty() && argument.find(directive) != std::string::npos) type = name;
    }
    if (argument.find(" .b8") != std::string::npos && argument.ends_with("[128]")) type = "nvTmaDesc";
    if (type.empty()) return std::nullopt;
    parameters.push_back({"arg" + std::to_string(parameters.size()), type, size_of_triton_type(type).value_or(0)});
  }
  return parameters;
}

Result<std::vector<std::byte>> pack(const TritonParameter& parameter, const TritonArgument& argument) {
  if (auto bytes = packed(parameter.type, argument)) return *std::move(bytes);
  return bad_argument("argument " + parameter.name, text_of(argument), "a value of " + parameter.type);
}

}  // namespace flashspan::api
