// random_environment.cpp -- random scalars and tensors for random programs; see random_programs.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/mask/random_choice.hpp"
#include "tests/mask/random_programs.hpp"

namespace flashspan::mask::test {
namespace {

double decoded_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double decoded_bf16(std::uint16_t bits) {
  const int exponent = (bits >> 7) & 255;
  const int fraction = bits & 127;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Bytes of a random element of `dtype`, finite, and what it is worth.
double random_element(Random& random, DType dtype, unsigned char* bytes) {
  if (dtype == DType::i32) {
    const auto value =
        static_cast<std::int32_t>(chance(random, 5) ? pick(random, INT32_MIN, INT32_MAX) : pick(random, -2, 5));
    std::memcpy(bytes, &value, sizeof value);
    return value;
  }
  if (dtype == DType::f32) {
    const auto value = static_cast<float>(pick(random, -40, 40)) / 8.0f;
    std::memcpy(bytes, &value, sizeof value);
    return value;
  }
  const int exponent_bits = dtype == DType::f16 ? 5 : 8;
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::int64_t exponent = chance(random, 10) ? 0 : bias + pick(random, -3, 3);
  const auto bits = static_cast<std::uint16_t>((pick(random, 0, 1) << 15) | (exponent << fraction_bits) |
                                               pick(random, 0, (1 << fraction_bits) - 1));
  std::memcpy(bytes, &bits, sizeof bits);
  return dtype == DType::f16 ? decoded_f16(bits) : decoded_bf16(bits);
}

// Strides are a random permutation of axes, sometimes with gaps; a broadcast axis has stride 0.
Table random_table(Random& random, const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  Table table;
  table.declaration = {.name = name, .dtype = dtype, .rank = static_cast<int>(shape.size())};
  table.shape = std::move(shape);
  std::vector<std::size_t> axes(table.shape.size());
  for (std::size_t axis = 0; axis < axes.size(); ++axis) axes[axis] = axis;
  std::shuffle(axes.begin(), axes.end(), random);
  table.strides.assign(axes.size(), 0);
  std::int64_t next = pick(random, 1, 2);
  for (const std::size_t axis : axes) {
    if (axes.size() > 1 && chance(random, 20)) continue;
    table.strides[axis] = next;
    next *= table.shape[axis] + pick(random, 0, 1);
  }
  const auto size = static_cast<std::size_t>(size_in_bytes(dtype));
  table.memory.resize(static_cast<std::size_t>(next) * size + size);
  std::vector<double> worth(static_cast<std::size_t>(next) + 1);
  for (std::size_t place = 0; place < worth.size(); ++place) {
    worth[place] = random_element(random, dtype, table.memory.data() + place * size);
  }
  std::int64_t count = 1;
  for (const std::int64_t extent : table.shape) count *= extent;
  for (std::int64_t element = 0; element < count; ++element) {
    std::int64_t rest = element;
    std::int64_t offset = 0;
    for (std::size_t axis = table.shape.size(); axis-- > 0; rest /= table.shape[axis]) {
      offset += rest % table.shape[axis] * table.strides[axis];
    }
    table.elements.push_back(worth[static_cast<std::size_t>(offset)]);
  }
  return table;
}

}  // namespace

double Table::at(const std::vector<std::int64_t>& index) const {
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (index[axis] < 0 || index[axis] >= shape[axis]) return 0;
    place = place * shape[axis] + index[axis];
  }
  return elements[static_cast<std::size_t>(place)];
}

TensorView Table::view() {
  TensorView result;
  result.data = memory.data();
  result.dtype = declaration.dtype;
  result.rank = declaration.rank;
  std::copy(shape.begin(), shape.end(), result.shape.begin());
  std::copy(strides.begin(), strides.end(), result.strides.begin());
  return result;
}

Environment random_environment(std::mt19937_64& random) {
  Environment environment;
  environment.q_len = pick(random, 1, 7);
  environment.kv_len = pick(random, 1, 7);
  environment.b = pick(random, 0, 2);
  environment.h = pick(random, 0, 2);
  environment.integers["left"] = pick(random, -1, 6);
  environment.integers["huge"] = chance(random, 50) ? INT64_MAX - pick(random, 0, 2) : INT64_MIN + pick(random, 0, 2);
  environment.reals["slope"] = static_cast<float>(pick(random, -12, 12)) / 4.0f;
  const auto add = [&](const char* name, DType dtype, std::vector<std::int64_t> shape) {
    environment.tables.emplace(name, random_table(random, name, dtype, std::move(shape)));
  };
  add("doc", DType::i32, {pick(random, 1, 7)});
  add("table", DType::i32, {pick(random, 1, 3), pick(random, 1, 6)});
  add("cube", DType::i32, {pick(random, 1, 3), pick(random, 1, 3), pick(random, 1, 5)});
  add("bias", DType::f32, {pick(random, 1, 4), pick(random, 1, 4)});
  add("half", DType::f16, {pick(random, 1, 6)});
  add("brain", DType::bf16, {pick(random, 1, 3), pick(random, 1, 4)});
  return environment;
}

std::vector<ScalarDeclaration> scalar_declarations(const Environment& environment) {
  std::vector<ScalarDeclaration> declarations;
  for (const auto& [name, value] : environment.integers) {
    if (!name.starts_with("r_")) declarations.push_back({.name = name, .type = ValueType::integer});
  }
  for (const auto& [name, value] : environment.reals) declarations.push_back({.name = name, .type = ValueType::real});
  return declarations;
}

std::vector<TensorDeclaration> tensor_declarations(const Environment& environment) {
  std::vector<TensorDeclaration> declarations;
  declarations.reserve(environment.tables.size());
  for (const auto& [name, table] : environment.tables) declarations.push_back(table.declaration);
  return declarations;
}

Bindings bindings_for(const Program& program, Environment& environment) {
  Bindings bindings;
  for (const ScalarDeclaration& scalar : program.scalars()) {
    const bool real = scalar.type == ValueType::real;
    bindings.scalars.push_back({.integer = real ? 0 : environment.integers.at(scalar.name),
                                .real = real ? environment.reals.at(scalar.name) : 0});
  }
  for (const TensorDeclaration& tensor : program.tensors()) {
    bindings.tensors.push_back(environment.tables.at(tensor.name).view());
  }
  return bindings;
}

}  // namespace flashspan::mask::test
