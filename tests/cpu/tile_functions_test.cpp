// Emitted tile functions one by one: products, conversions, transposes, exponentials.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "cpu_kernel.hpp"
#include "oracle/formats.hpp"
#include "oracle/random_numbers.hpp"

namespace flashspan::cpu_test {
namespace {

const cpu::TileFunctions& functions_for(DType dtype) {
  return kernel_of(spec_of(Direction::forward, dtype, 64, 64, nullptr, nullptr))->functions();
}

std::vector<float> random_floats(std::size_t count, oracle::RandomNumbers& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

struct ProductSizes {
  std::int64_t rows, inner, cols;
};

TEST(Gemm, EqualsADirectSumForEverySizeAndStride) {
  oracle::RandomNumbers random(1);
  const cpu::TileFunctions& functions = functions_for(DType::f32);
  std::vector<ProductSizes> cases{{0, 5, 16}, {1, 0, 16}, {64, 64, 64}, {64, 128, 256}};
  for (std::int64_t rows = 1; rows <= 14; ++rows) {
    for (std::int64_t cols = 16; cols <= 128; cols += 16) cases.push_back({rows, random.integer(1, 40), cols});
  }
  for (const ProductSizes& size : cases) {
    for (const bool transposed : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const std::int64_t a_stride = (transposed ? size.rows : size.inner) + 3;
        const std::vector<float> a =
            random_floats(static_cast<std::size_t>(a_stride * (transposed ? size.inner : size.rows) + 1), random);
        const std::vector<float> b = random_floats(static_cast<std::size_t>(size.inner * (size.cols + 5) + 1), random);
        std::vector<float> c = random_floats(static_cast<std::size_t>(size.rows * (size.cols + 2) + 1), random);
        const std::vector<float> before = c;
        const std::int64_t a_row = transposed ? 1 : a_stride;
        const std::int64_t a_col = transposed ? a_stride : 1;
        functions.gemm(a.data(), a_row, a_col, b.data(), size.cols + 5, c.data(), size.cols + 2, size.rows, size.inner,
                       size.cols, accumulate ? 1 : 0);
        for (std::int64_t row = 0; row < size.rows; ++row) {
          for (std::int64_t col = 0; col < size.cols + 2; ++col) {
            const auto place = static_cast<std::size_t>(row * (size.cols + 2) + col);
            float expected = before[place];
            if (col < size.cols) {
              expected = accumulate ? expected : 0.0F;
              for (std::int64_t k = 0; k < size.inner; ++k) {
                expected = std::fma(a[static_cast<std::size_t>(row * a_row + k * a_col)],
                                    b[static_cast<std::size_t>(k * (size.cols + 5) + col)], expected);
              }
            }
            ASSERT_EQ(c[place], expected)
                << size.rows << "x" << size.inner << "x" << size.cols << " at " << row << "," << col;
          }
        }
      }
    }
  }
}

TEST(Conversion, EverySixteenBitPatternSurvivesARoundTrip) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const cpu::TileFunctions& functions = functions_for(dtype);
    std::vector<std::uint16_t> source(65536);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint16_t>(i);
    std::vector<float> values(source.size());
    functions.load_rows(source.data(), 256, 256, 256, 1.0F, values.data(), 256);
    std::vector<float> factors(256, 1.0F);
    std::vector<std::uint16_t> back(source.size());
    functions.store_rows(values.data(), 256, 256, 256, factors.data(), back.data(), 256);
    for (std::size_t i = 0; i < source.size(); ++i) {
      const float expected = dtype == DType::f16 ? oracle::from_f16(source[i]) : oracle::from_bf16(source[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[i])) << i;
        const float again = dtype == DType::f16 ? oracle::from_f16(back[i]) : oracle::from_bf16(back[i]);
        ASSERT_TRUE(std::isnan(again)) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected)) << i;
        ASSERT_EQ(back[i], source[i]) << i;
      }
    }
  }
}

TEST(Conversion, RoundsToNearestEven) {
  oracle::RandomNumbers random(2);
  constexpr std::size_t count = 65536;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Any bit pattern, and halfway cases between two bfloat16 or binary16 numbers.
    std::uint32_t bits = static_cast<std::uint32_t>(random.bits());
    if (i % 3 == 1) bits = (bits & 0xffff0000U) | 0x8000U;
    if (i % 3 == 2) bits = ((bits & 0x8fffe000U) | 0x1000U) | 0x38000000U;
    values[i] = std::bit_cast<float>(bits);
  }
  const std::vector<float> factors(256, 1.0F);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> stored(count);
    functions_for(dtype).store_rows(values.data(), 256, 256, 256, factors.data(), stored.data(), 256);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t expected = dtype == DType::f16 ? oracle::to_f16(values[i]) : oracle::to_bf16(values[i]);
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(dtype == DType::f16 ? oracle::from_f16(stored[i]) : oracle::from_bf16(stored[i])));
      } else {
        ASSERT_EQ(stored[i], expected) << values[i];
      }
    }
  }
}

TEST(Conversion, TouchesNoColumnPastTheLast) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const cpu::TileFunctions& functions = functions_for(dtype);
    for (std::int64_t cols = 1; cols <= 40; ++cols) {
      const auto bytes = static_cast<std::size_t>(cols * size_in_bytes(dtype));
      std::vector<float> values(48, 1.5F);
      const std::vector<float> factors{2.0F};
      std::vector<unsigned char> memory(bytes + 64, 0xAB);
      functions.store_rows(values.data(), 48, 1, cols, factors.data(), memory.data(), cols);
      for (std::size_t i = bytes; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xAB);
      functions.load_rows(memory.data(), cols, 1, cols, 0.5F, values.data(), 48);
      const std::int64_t written = (cols + 15) / 16 * 16;
      for (std::int64_t i = 0; i < written; ++i) {
        ASSERT_EQ(values[static_cast<std::size_t>(i)], i < cols ? 1.5F : 0.0F) << cols << " " << i;
      }
    }
  }
}

TEST(Transpose, MovesEveryElement) {
  std::vector<float> source(48 * 80);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
  std::vector<float> target(80 * 64, -1.0F);
  functions_for(DType::f32).transpose_rows(source.data(), 80, 48, 80, target.data(), 64);
  for (std::size_t row = 0; row < 48; ++row) {
    for (std::size_t col = 0; col < 80; ++col) ASSERT_EQ(target[col * 64 + row], source[row * 80 + col]);
  }
}

TEST(NonfiniteRows, FlagsRowsWithNanOrInfinity) {
  std::vector<float> values(5 * 32, 3e38F);
  values[1 * 32 + 31] = std::numeric_limits<float>::quiet_NaN();
  values[3 * 32] = -std::numeric_limits<float>::infinity();
  std::vector<std::uint8_t> flags(5, 9);
  functions_for(DType::f32).nonfinite_rows(values.data(), 32, 5, 32, flags.data());
  EXPECT_EQ(flags, (std::vector<std::uint8_t>{0, 1, 0, 1, 0}));
}

// The internal vector functions behind a wrapper that maps an array.
class Elementary {
 public:
  explicit Elementary(const std::string& function)
      : object_(load("define void @map(ptr %in, ptr %out) {\n  %x = load <16 x float>, ptr %in, align 4\n"
                     "  %y = call <16 x float> @" +
                     function + "(<16 x float> %x)\n  store <16 x float> %y, ptr %out, align 4\n  ret void\n}\n")),
        map_(reinterpret_cast<void (*)(const float*, float*)>(object_.address("map"))) {}

  void apply(const std::vector<float>& in, std::vector<float>& out) const {
    for (std::size_t i = 0; i + 16 <= in.size(); i += 16) map_(in.data() + i, out.data() + i);
  }

 private:
  static cpu::LoadedObject load(const std::string& wrapper) {
    const auto object =
        cpu::compile_ir(kernel::emit_llvm_elementary_functions() + wrapper + "attributes #0 = { nounwind }\n");
    EXPECT_TRUE(object.has_value()) << object.error().message();
    auto loaded = cpu::LoadedObject::load(*object);
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message();
    return std::move(*loaded);
  }
  cpu::LoadedObject object_;
  void (*map_)(const float*, float*);
};

double units_in_last_place(float ours, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(ours - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

std::vector<float> ramp(float low, float high, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(count - 1);
  }
  return values;
}

TEST(Exponential, OfProbabilitiesIsWithinTwoUnitsAndKnowsItsLimits) {
  const Elementary exponential("exp_probability");
  const std::vector<float> in = ramp(-87.0F, 88.0F, 1 << 18);
  std::vector<float> out(in.size());
  exponential.apply(in, out);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    worst = std::max(worst, units_in_last_place(out[i], std::exp(static_cast<double>(in[i]))));
  }
  EXPECT_LE(worst, 2.0);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> edges{
      0.0F, -0.0F, -infinity, infinity, std::nanf(""), -88.0F, 89.0F, -1e30F, 1e30F, 1e-30F, -1e-30F, 0, 0, 0, 0, 0};
  std::vector<float> results(16);
  exponential.apply(edges, results);
  EXPECT_EQ(results[0], 1.0F);
  EXPECT_EQ(results[1], 1.0F);
  EXPECT_EQ(results[2], 0.0F);
  EXPECT_EQ(results[3], infinity);
  EXPECT_TRUE(std::isnan(results[4]));
  EXPECT_EQ(results[5], 0.0F);
  EXPECT_EQ(results[6], infinity);
  EXPECT_EQ(results[7], 0.0F);
  EXPECT_EQ(results[8], infinity);
  EXPECT_EQ(results[9], 1.0F);
  EXPECT_EQ(results[10], 1.0F);
}

TEST(Exponential, OfRealsCoversSubnormalResults) {
  const Elementary exponential("exp_real");
  const std::vector<float> in = ramp(-110.0F, 95.0F, 1 << 18);
  std::vector<float> out(in.size());
  exponential.apply(in, out);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = std::exp(static_cast<double>(in[i]));
    if (exact > std::numeric_limits<float>::max()) {
      ASSERT_EQ(out[i], std::numeric_limits<float>::infinity()) << in[i];
    } else {
      ASSERT_LE(units_in_last_place(out[i], exact), 2.0) << in[i];
    }
  }
}

TEST(HyperbolicTangent, IsWithinThreeUnits) {
  const Elementary tangent("tanh_real");
  std::vector<float> in = ramp(-12.0F, 12.0F, 1 << 18);
  for (std::size_t i = 0; i < 1024; ++i) in[i] = std::ldexp(in[i], -static_cast<int>(i % 60));
  std::vector<float> out(in.size());
  tangent.apply(in, out);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    worst = std::max(worst, units_in_last_place(out[i], std::tanh(static_cast<double>(in[i]))));
  }
  EXPECT_LE(worst, 3.0);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> edges(16, 0.0F);
  edges[0] = infinity;
  edges[1] = -infinity;
  edges[2] = std::nanf("");
  std::vector<float> results(16);
  tangent.apply(edges, results);
  EXPECT_EQ(results[0], 1.0F);
  EXPECT_EQ(results[1], -1.0F);
  EXPECT_TRUE(std::isnan(results[2]));
  EXPECT_EQ(results[3], 0.0F);
}

}  // namespace
}  // namespace flashspan::cpu_test
