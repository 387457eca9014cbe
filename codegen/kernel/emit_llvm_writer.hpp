// emit_llvm_writer.hpp -- IrWriter: writes one LLVM IR function in SSA form; values are named by the writer, and
// structured control flow (counted loops, two-way branches) takes the place of hand-written phi nodes.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace flashspan::kernel {

/// Lanes of every vector in the emitted text. Hosts with narrower registers split them.
inline constexpr int ir_lanes = 16;
inline constexpr const char* ir_floats = "<16 x float>";
inline constexpr const char* ir_ints = "<16 x i32>";
inline constexpr const char* ir_longs = "<16 x i64>";
inline constexpr const char* ir_bools = "<16 x i1>";

/// Its arguments, texts and integers, one after the other, as text.
template <typename... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::string text;
  const auto append = [&text](const auto& part) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (append(parts), ...);
  return text;
}

/// `value`, exactly a binary32, as an LLVM constant ("0x3FF0000000000000").
[[nodiscard]] std::string float_literal(double value);
/// A vector constant of ir_lanes equal floats or 32-bit integers, without its type.
[[nodiscard]] std::string float_splat(double value);
[[nodiscard]] std::string int_splat(long long value);
/// The vector constant 0, 1, ... ir_lanes - 1 of 32-bit integers.
[[nodiscard]] std::string lane_numbers();

/// An LLVM value with its type.
struct TypedValue {
  std::string type;
  std::string value;
};

class IrWriter {
 public:
  using Values = std::vector<std::string>;

  /// `head` is everything up to the opening brace: "define void @f(ptr %a)".
  explicit IrWriter(const std::string& head);
  /// The whole function. `result` is the operand of the final `ret`.
  [[nodiscard]] std::string finish(const std::string& result = "void");

  void line(const std::string& instruction);
  /// Emits "%name = instruction" and returns the name.
  std::string define(const std::string& instruction);

  // Short forms of define() for the commonest instructions.
  std::string binary(const char* operation, const char* type, const std::string& left, const std::string& right);
  std::string element_pointer(const char* type, const std::string& base, const std::string& index);
  std::string load(const char* type, const std::string& pointer, int align);
  void store(const char* type, const std::string& value, const std::string& pointer, int align);
  std::string splat(const char* scalar_type, const std::string& scalar);
  /// floats: a * b + c in one rounding.
  std::string fused(const std::string& a, const std::string& b, const std::string& c);

  /// for (index = begin; index < end; index += step), i64; `carried` go in with their first values and `body` returns
  /// their next ones. Returns the values after the loop.
  Values loop(const std::string& begin, const std::string& end, int step, const std::vector<TypedValue>& carried,
              const std::function<Values(const std::string& index, const Values& carried)>& body);
  /// while (condition(carried)) carried = body(carried).
  Values loop_while(const std::vector<TypedValue>& carried, const std::function<std::string(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body);
  /// condition ? if_true() : if_false(), both returning values of `types`.
  Values branch(const std::string& condition, const std::vector<std::string>& types,
                const std::function<Values()>& if_true, const std::function<Values()>& if_false);

 private:
  std::string fresh_label();
  void begin_block(const std::string& label);

  std::string text_;
  std::string block_ = "entry";
  int next_value_ = 0;
  int next_label_ = 0;
};

}  // namespace flashspan::kernel
