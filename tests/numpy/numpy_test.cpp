// numpy_test.cpp -- NumPy's formats as the command reads and writes them, hostile files included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "oracle/formats.hpp"
#include "oracle/random_numbers.hpp"
#include "tests/cli/numpy_files.hpp"
#include "tests/cli/process.hpp"
#include "tools/flashspan/host_array.hpp"
#include "tools/flashspan/npy.hpp"
#include "tools/flashspan/npz.hpp"

namespace {

using namespace cli_test;
using flashspan::DType;
using flashspan::Result;
using flashspan::tool::HostArray;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Result<HostArray> parsed(const std::string& text) {
  return flashspan::tool::array_from_npy(bytes_of(text), "--q", "q.npy");
}

template <typename T>
std::vector<T> elements_of(const HostArray& array) {
  return {array.data<T>(), array.data<T>() + array.element_count()};
}

TEST(Npy, EveryFormatVersionIsRead) {
  for (const int version : {1, 2, 3}) {
    const std::string elements = npy_f32({2, 3}, {1, 2, 3, 4, 5, 6});
    const auto array = parsed(npy_text("<f4", {2, 3}, elements.substr(elements.size() - 24), false, version));
    ASSERT_TRUE(array) << array.error().message();
    EXPECT_EQ(array->dtype, DType::f32);
    EXPECT_THAT(array->shape, ElementsAre(2, 3));
    EXPECT_THAT(elements_of<float>(*array), ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Npy, FortranOrderBecomesRowMajor) {
  const std::string elements = npy_i32({6}, {1, 4, 2, 5, 3, 6});
  const auto array = parsed(npy_text("<i4", {2, 3}, elements.substr(elements.size() - 24), true));
  ASSERT_TRUE(array);
  EXPECT_THAT(elements_of<std::int32_t>(*array), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Npy, FortranOrderOfRankThreeBecomesRowMajor) {
  std::string elements;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) {
        const std::int32_t value = 100 * i + 10 * j + k;
        elements.append(reinterpret_cast<const char*>(&value), 4);
      }
    }
  }
  const auto array = parsed(npy_text("<i4", {2, 3, 4}, elements, true));
  ASSERT_TRUE(array);
  for (int flat = 0; flat < 24; ++flat) {
    EXPECT_EQ(array->data<std::int32_t>()[flat], 100 * (flat / 12) + 10 * (flat / 4 % 3) + flat % 4);
  }
}

TEST(Npy, WideIntegersBecomeNarrowWhenTheyFit) {
  const auto array = parsed(npy_i64({3}, {-2147483648LL, -1, 2147483647LL}));
  ASSERT_TRUE(array);
  EXPECT_EQ(array->dtype, DType::i32);
  EXPECT_THAT(elements_of<std::int32_t>(*array), ElementsAre(-2147483647 - 1, -1, 2147483647));
}

TEST(Npy, WideIntegersThatDoNotFitAreNamed) {
  const auto array = parsed(npy_i64({3}, {0, 2147483648LL, 1}));
  ASSERT_FALSE(array);
  EXPECT_THAT(array.error().got, HasSubstr("2147483648 at flat index 1"));
}

TEST(Npy, HalfIsKeptAsHalf) {
  const auto array = parsed(npy_f16({2}, {1.5, -0.25}));
  ASSERT_TRUE(array);
  EXPECT_EQ(array->dtype, DType::f16);
  EXPECT_THAT(elements_of<std::uint16_t>(*array), ElementsAre(0x3e00, 0xb400));
}

TEST(Npy, OtherElementTypesAreRefusedByName) {
  for (const std::string descr : {"<f8", ">f4", "|b1", "<u4", "|O", "<c8"}) {
    const auto array = parsed(npy_text(descr, {1}, std::string(8, '\0')));
    ASSERT_FALSE(array) << descr;
    EXPECT_THAT(array.error().got, HasSubstr(descr));
    EXPECT_THAT(array.error().takes, HasSubstr("f4, f2, i4 or i8"));
  }
}

TEST(Npy, AnEmptyArrayAndANumberAreRead) {
  const auto empty = parsed(npy_f32({2, 0, 3}, {}));
  ASSERT_TRUE(empty);
  EXPECT_THAT(empty->shape, ElementsAre(2, 0, 3));
  EXPECT_NE(empty->view().data, nullptr);
  const auto number = parsed(npy_f32({}, {7}));
  ASSERT_TRUE(number);
  EXPECT_TRUE(number->shape.empty());
  EXPECT_EQ(number->data<float>()[0], 7);
}

TEST(Npy, EveryTruncationIsRefused) {
  const std::string whole = npy_f32({2, 3}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(parsed(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parsed(whole.substr(0, size))) << size;
  EXPECT_FALSE(parsed(whole + "x"));
}

TEST(Npy, HostileHeadersAreRefused) {
  const auto with_header = [](const std::string& header) {
    std::string text("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(header.size() & 0xffU);
    text += static_cast<char>(header.size() >> 8U);
    return text + header + std::string(16, '\0');
  };
  for (const std::string header : {
           "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 3, 0), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -1), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (4, }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 4, }",
           "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (4,), }",
           "{'descr': '<f4', 'fortran_order': False, }",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,), }",
           "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': __import__('os')}",
           "{'descr': '<f4",
           "{",
           "",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 2, 2), }",
       }) {
    EXPECT_FALSE(parsed(with_header(header))) << header;
  }
  EXPECT_TRUE(parsed(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }")));
}

TEST(Npy, RandomDamageNeverCrashes) {
  const std::string whole = npy_f32({2, 3}, {1, 2, 3, 4, 5, 6});
  oracle::RandomNumbers random(5);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string damaged = whole;
    for (int change = 0; change < 3; ++change) {
      damaged[static_cast<std::size_t>(random.integer(0, 127))] = static_cast<char>(random.integer(0, 255));
    }
    const auto array = parsed(damaged);
    if (array) {
      EXPECT_EQ(array->byte_count(), 24);
    }
  }
}

Result<HostArray> from_archive(const Folder& folder, const std::string& text, const std::string& member = "") {
  write_text(folder / "a.npz", text);
  return flashspan::tool::read_array((folder / "a.npz") + (member.empty() ? "" : ":" + member), "--q");
}

/// The member a.npy, without a file in between.
Result<HostArray> from_archive_bytes(const std::string& text) {
  auto member = flashspan::tool::archive_member(bytes_of(text), "a.npy", "--q", "a.npz");
  if (!member) return member.error();
  return flashspan::tool::array_from_npy(std::move(member->bytes), "--q", "a.npz");
}

TEST(Npz, StoredAndDeflatedMembersAreRead) {
  const Folder folder;
  for (const bool deflated : {false, true}) {
    std::vector<double> values(1000);
    for (std::size_t index = 0; index < values.size(); ++index) values[index] = static_cast<double>(index % 7);
    const std::string archive =
        npz_text({{"first.npy", npy_i32({1}, {5})}, {"second.npy", npy_f32({10, 100}, values)}}, deflated);
    const auto array = from_archive(folder, archive, "second");
    ASSERT_TRUE(array) << array.error().message();
    EXPECT_THAT(array->shape, ElementsAre(10, 100));
    for (std::size_t index = 0; index < values.size(); ++index) {
      EXPECT_EQ(static_cast<double>(array->data<float>()[index]), values[index]);
    }
  }
}

TEST(Npz, AnArchiveOfOneArrayNeedsNoName) {
  const Folder folder;
  EXPECT_TRUE(from_archive(folder, npz_text({{"only.npy", npy_i32({1}, {5})}}, true)));
  const auto two = from_archive(folder, npz_text({{"a.npy", npy_i32({1}, {5})}, {"b.npy", npy_i32({1}, {5})}}, true));
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message(), HasSubstr("2 arrays"));
}

TEST(Npz, AMissingMemberIsNamedWithThoseThatAreThere) {
  const Folder folder;
  const auto array = from_archive(folder, npz_text({{"a.npy", npy_i32({1}, {5})}}, false), "b");
  ASSERT_FALSE(array);
  EXPECT_THAT(array.error().message(), HasSubstr("b.npy"));
  EXPECT_THAT(array.error().message(), HasSubstr("one of: a.npy"));
}

TEST(Npz, EveryTruncationIsRefused) {
  for (const bool deflated : {false, true}) {
    const std::string whole = npz_text({{"a.npy", npy_f32({2, 3}, {1, 2, 3, 4, 5, 6})}}, deflated);
    ASSERT_TRUE(from_archive_bytes(whole));
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(from_archive_bytes(whole.substr(0, size))) << size;
  }
}

TEST(Npz, DamagedElementsAreRefusedByTheirChecksum) {
  const Folder folder;
  std::string text = npz_text({{"a.npy", npy_f32({4}, {1, 2, 3, 4})}}, false);
  text[30 + 5 + 128 + 2] ^= 1;  // local header, name, .npy header, third byte of the first number
  const auto array = from_archive(folder, text);
  ASSERT_FALSE(array);
  EXPECT_THAT(array.error().message(), HasSubstr("CRC"));
}

TEST(Npz, RandomDamageNeverCrashes) {
  oracle::RandomNumbers random(6);
  for (const bool deflated : {false, true}) {
    const std::string whole = npz_text({{"a.npy", npy_f32({2, 3}, {1, 2, 3, 4, 5, 6})}}, deflated);
    for (int trial = 0; trial < 20000; ++trial) {
      std::string damaged = whole;
      for (int change = 0; change < 2; ++change) {
        const auto place = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(whole.size()) - 1));
        damaged[place] = static_cast<char>(random.integer(0, 255));
      }
      const auto array = from_archive_bytes(damaged);
      if (array) {
        EXPECT_LE(array->element_count(), 6);
      }
    }
  }
}

TEST(Npz, WhatIsWrittenReadsBackByAnotherReader) {
  const Folder folder;
  HostArray first = HostArray::zeros(DType::f32, {2, 1, 3});
  for (int index = 0; index < 6; ++index) first.data<float>()[index] = 0.5F * static_cast<float>(index);
  const HostArray second = HostArray::zeros(DType::f32, {0, 4});
  ASSERT_TRUE(flashspan::tool::write_npz(folder / "o.npz", "--out", {{"one", first}, {"two", second}}));
  const auto arrays = read_npz(folder / "o.npz");
  ASSERT_EQ(arrays.size(), 2U);
  EXPECT_THAT(arrays.at("one").shape, ElementsAre(2, 1, 3));
  EXPECT_THAT(arrays.at("one").values, ElementsAre(0, 0.5, 1, 1.5, 2, 2.5));
  EXPECT_THAT(arrays.at("two").shape, ElementsAre(0, 4));
  const auto again = flashspan::tool::read_array((folder / "o.npz") + ":one", "--q");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->bytes, first.bytes);
}

TEST(Npz, AFailedWriteLeavesTheOldFileAndNoOther) {
  const Folder folder;
  const HostArray array = HostArray::zeros(DType::f32, {1});
  EXPECT_FALSE(flashspan::tool::write_npz((folder / "missing") + "/o.npz", "--out", {{"x", array}}));
  EXPECT_FALSE(std::filesystem::exists(folder / "missing"));
  std::filesystem::create_directory(folder / "o.npz");  // rename onto a folder fails
  const auto written = flashspan::tool::write_npz(folder / "o.npz", "--out", {{"x", array}});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, flashspan::ErrorCode::io_error);
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 1U);
}

TEST(Conversion, EveryHalfGoesToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = flashspan::tool::float_from_half(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(flashspan::tool::float_from_half(flashspan::tool::half_from_float(value))));
      continue;
    }
    EXPECT_EQ(flashspan::tool::half_from_float(value), half);
    const int exponent = static_cast<int>((bits >> 10U) & 31U);
    const double mantissa = static_cast<double>(bits & 1023U);
    if (exponent == 31) continue;
    const double magnitude = exponent == 0 ? mantissa * 0x1p-24 : (1024 + mantissa) * std::ldexp(1, exponent - 25);
    EXPECT_EQ(static_cast<double>(value), (bits & 0x8000U) != 0 ? -magnitude : magnitude);
  }
}

TEST(Conversion, NarrowingRoundsToNearestEven) {
  using flashspan::tool::bfloat_from_float;
  using flashspan::tool::half_from_float;
  EXPECT_EQ(half_from_float(1.0F + 0x1p-11F), 0x3c00);      // tie, to even below
  EXPECT_EQ(half_from_float(1.0F + 3 * 0x1p-11F), 0x3c02);  // tie, to even above
  EXPECT_EQ(half_from_float(65519.0F), 0x7bff);             // largest that stays finite
  EXPECT_EQ(half_from_float(65520.0F), 0x7c00);             // rounds to infinity
  EXPECT_EQ(half_from_float(0x1p-25F), 0x0000);             // half the smallest: tie, to zero
  EXPECT_EQ(half_from_float(0x1.000002p-25F), 0x0001);      // just above it
  EXPECT_EQ(half_from_float(3 * 0x1p-25F), 0x0002);         // tie between subnormals, to even
  EXPECT_EQ(half_from_float(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(bfloat_from_float(1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(bfloat_from_float(1.0F + 3 * 0x1p-8F), 0x3f82);
  EXPECT_EQ(bfloat_from_float(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bfloat_from_float(std::bit_cast<float>(0x7f800001U)), 0x7fc0);  // a NaN whose payload would be cut off
}

TEST(Conversion, RandomNumbersNarrowAsTheOracleSays) {
  oracle::RandomNumbers random(7);
  for (int trial = 0; trial < 200000; ++trial) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (std::isnan(value)) continue;
    EXPECT_EQ(flashspan::tool::half_from_float(value), oracle::to_f16(value)) << value;
    EXPECT_EQ(flashspan::tool::bfloat_from_float(value), oracle::to_bf16(value)) << value;
  }
}

}  // namespace
