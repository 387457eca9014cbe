// Programs that flashspan writes: they compile as C without a warning, ask of the driver what they should, and on a GPU
// give the library's own bits.
#include "flashspan/emit.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"
#include "templates/attention/parameters.cuh"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr AttentionShape shape{1, 4, 2, 300, 300, 64, 64};

/// A folder with cuda.h: a toolkit's, or a Python wheel's.
std::optional<fs::path> cuda_include() {
  std::vector<fs::path> folders{"/usr/local/cuda/include", "/usr/include"};
  if (const char* home = std::getenv("CUDA_HOME")) folders.insert(folders.begin(), fs::path(home) / "include");
  const fs::path libraries = fs::path(FLASHSPAN_SOURCE_DIR) / "build/python/lib";
  std::error_code none;
  for (const auto& python : fs::directory_iterator(libraries, none)) {
    for (const auto& version : fs::directory_iterator(python.path() / "site-packages/nvidia", none)) {
      folders.push_back(version.path() / "include");
    }
  }
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / "cuda.h", none)) return folder;
  }
  return std::nullopt;
}

class EmittedPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    request_.mask = &mask_;
    request_.shape = shape;
    request_.archs = {{80, 0}, {90, 'a'}};
    request_.name = "swa_forward";
    request_.cache_dir = (folder_.path() / "cache").string();
  }

  /// The program's files in the folder. Nothing, and the test is skipped, without NVRTC.
  [[nodiscard]] std::optional<EmittedProgram> emit() {
    auto program = emit_c(request_);
    if (!program && program.error().code == ErrorCode::missing_component) return std::nullopt;
    EXPECT_TRUE(program) << program.error().message();
    if (!program) return std::nullopt;
    std::ofstream(folder_.path() / (request_.name + ".h")) << program->header;
    std::ofstream(folder_.path() / (request_.name + ".c")) << program->source;
    return *std::move(program);
  }

  /// Runs the C compiler in the folder; its exit status, and what it said.
  [[nodiscard]] int compile(const std::string& arguments) const {
    const std::string command = "cd " + folder_.path().string() +
                                " && cc -std=c11 -Wall -Wextra -Werror -Wpedantic -I" + cuda_include()->string() +
                                " -I. -I" FLASHSPAN_SOURCE_DIR "/tests/emit " + arguments + " > log 2>&1";
    return std::system(command.c_str());
  }
  [[nodiscard]] std::string log() const {
    std::ifstream file(folder_.path() / "log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  PrivateFolder folder_;
  Mask mask_ =
      *Mask::parse("(q - k <= left) & (q - k >= right)", {}, {{"left", std::int64_t{100}}, {"right", std::int64_t{0}}});
  EmitRequest request_;
};

TEST_F(EmittedPrograms, AskOfTheDriverWhatTheLibraryWould) {
  if (!cuda_include()) GTEST_SKIP() << "no cuda.h";
  if (!emit()) GTEST_SKIP() << "no NVRTC";
  using flashspan_device::AttentionParameters;
  const auto define = [](const char* name, std::size_t value) {
    return std::string(" -D") + name + "=" + std::to_string(value);
  };
  const std::string sources = FLASHSPAN_SOURCE_DIR "/tests/emit/";
  ASSERT_EQ(compile("-o check swa_forward.c " + sources + "fake_cuda.c " + sources + "check_launches.c -lpthread" +
                    define("SCALE_OFFSET", offsetof(AttentionParameters, scale)) +
                    define("LEFT_OFFSET", offsetof(flashspan_device::ProgramArguments, integers)) +
                    define("QUERY_OFFSET", offsetof(AttentionParameters, query)) +
                    define("OUT_OFFSET", offsetof(AttentionParameters, out)) +
                    define("LSE_OFFSET", offsetof(AttentionParameters, lse))),
            0)
      << log();
  EXPECT_EQ(std::system((folder_.path() / "check > ").string().append((folder_.path() / "log").string()).c_str()), 0)
      << log();
}

TEST_F(EmittedPrograms, NameTheirArguments) {
  std::vector<std::int32_t> documents(300);
  const Mask mask =
      *Mask::parse("doc[q] == doc[k]", {{"doc", TensorView::contiguous(documents.data(), DType::i32, {300})}});
  const Score score = *Score::parse("cap * tanh(score / cap)", {}, {{"cap", 30.0}});
  request_.mask = &mask;
  request_.score = &score;
  request_.direction = Direction::backward;
  request_.archs = {{80, 0}};
  request_.name = "documents";
  const auto program = emit();
  if (!program) GTEST_SKIP() << "no NVRTC";
  EXPECT_THAT(program->header,
              HasSubstr("CUresult documents(CUstream stream, CUdeviceptr query, CUdeviceptr key, CUdeviceptr value, "
                        "CUdeviceptr out, CUdeviceptr lse, CUdeviceptr out_gradient, CUdeviceptr query_gradient, "
                        "CUdeviceptr key_gradient, CUdeviceptr value_gradient, CUdeviceptr mask_doc, float score_cap, "
                        "float scale, CUdeviceptr workspace);"));
  EXPECT_THAT(program->header, HasSubstr("mask_doc: i32[300], strides 1"));
  if (!cuda_include()) GTEST_SKIP() << "no cuda.h";
  EXPECT_EQ(compile("-c documents.c"), 0) << log();
}

TEST_F(EmittedPrograms, AreRefusedForWhatTheyCannotBe) {
  const auto refused = [this](const char* argument) {
    const auto program = emit_c(request_);
    ASSERT_FALSE(program);
    EXPECT_EQ(program.error().argument, argument);
  };
  request_.name = "1st";
  refused("name");
  request_.name = "two words";
  refused("name");
  request_.name = "fine";
  request_.archs = {};
  refused("archs");
  request_.archs = {{90, 0}};
  refused("arch");
  request_.archs = {{80, 0}};
  request_.tile = TileConfig{1, 2, 3, 4};
  refused("tile");
}

TEST_F(EmittedPrograms, HavePtxOfEveryEntry) {
  request_.archs = {{80, 0}, {90, 'a'}};
  const auto texts = emit_ptx(request_);
  if (!texts && texts.error().code == ErrorCode::missing_component) GTEST_SKIP() << "no NVRTC";
  ASSERT_TRUE(texts) << texts.error().message();
  ASSERT_EQ(texts->size(), 2U);
  EXPECT_THAT((*texts)[0], HasSubstr(".target sm_80"));
  EXPECT_THAT((*texts)[1], HasSubstr(".target sm_90a"));
  for (const std::string& text : *texts) {
    for (const char* entry : {"plan_tiles", "attention_forward"}) {
      EXPECT_THAT(text, HasSubstr(std::string(".entry ") + entry));
    }
  }
}

/// Memory on the GPU with these numbers.
Buffer placed(Device device, const std::vector<std::uint16_t>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(std::uint16_t));
  Buffer buffer = Buffer::allocate(device, bytes).value();
  EXPECT_TRUE(buffer.copy_from_host(values.data(), bytes));
  return buffer;
}

TEST_F(EmittedPrograms, GiveTheLibrarysOwnBitsOnAGpu) {
  const auto device = device_from_string("cuda");
  if (!device) GTEST_SKIP() << device.error().message();
  if (!cuda_include()) GTEST_SKIP() << "no cuda.h";
  if (!emit()) GTEST_SKIP() << "no NVRTC";
  ASSERT_EQ(compile("-shared -fPIC -o program.so swa_forward.c -l:libcuda.so.1 -lpthread"), 0) << log();
  void* const program = dlopen((folder_.path() / "program.so").c_str(), RTLD_NOW);
  ASSERT_NE(program, nullptr) << dlerror();
  using Address = unsigned long long;
  using Function = int (*)(void*, Address, Address, Address, Address, Address, long long, long long, float, Address);
  const auto run = reinterpret_cast<Function>(dlsym(program, "swa_forward"));
  const auto bytes_needed = reinterpret_cast<std::size_t (*)()>(dlsym(program, "swa_forward_workspace_bytes"));
  const auto unload = reinterpret_cast<int (*)()>(dlsym(program, "swa_forward_unload"));
  ASSERT_TRUE(run != nullptr && bytes_needed != nullptr && unload != nullptr);

  const std::size_t of_query = 4 * 300 * 64, of_key = 2 * 300 * 64;
  std::vector<std::uint16_t> numbers(of_query);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::uint16_t>(0x3e00 + i * 37 % 512);  // bf16
  Buffer query = placed(*device, numbers);
  numbers.resize(of_key);
  Buffer key = placed(*device, numbers), value = placed(*device, numbers);
  const std::int64_t out_bytes = of_query * 2, lse_bytes = 4 * 300 * 4;
  Buffer out = Buffer::allocate(*device, out_bytes).value(), lse = Buffer::allocate(*device, lse_bytes).value();
  const auto read = [](const Buffer& buffer, std::int64_t bytes) {
    std::vector<char> memory(static_cast<std::size_t>(bytes));
    EXPECT_TRUE(buffer.copy_to_host(memory.data(), bytes));
    return memory;
  };

  ForwardCall call;
  const auto view = [&](const Buffer& buffer, std::int64_t heads) {
    return TensorView::contiguous(buffer.data(), DType::bf16, {1, heads, 300, 64}, *device);
  };
  call.query = view(query, 4);
  call.key = view(key, 2);
  call.value = view(value, 2);
  call.out = view(out, 4);
  call.lse = TensorView::contiguous(lse.data(), DType::f32, {1, 4, 300}, *device);
  const Mask mask = mask_.to(*device).value();
  call.mask = &mask;
  call.scale = 0.11F;
  AttentionOptions options;
  options.cache_dir = options.tuning_file = "";
  Attention attention = Attention::open(*device, options).value();
  const std::int64_t bytes = attention.workspace_bytes(call).value();
  Buffer workspace = Buffer::allocate(*device, std::max(bytes, static_cast<std::int64_t>(bytes_needed()))).value();
  call.workspace = workspace.data();
  call.workspace_bytes = bytes;
  ASSERT_TRUE(attention.forward(call));
  ASSERT_TRUE(synchronize(*device));
  const auto wanted_out = read(out, out_bytes), wanted_lse = read(lse, lse_bytes);

  const std::vector<char> poison(static_cast<std::size_t>(out_bytes), '\xff');
  ASSERT_TRUE(out.copy_from_host(poison.data(), out_bytes));
  ASSERT_TRUE(lse.copy_from_host(poison.data(), lse_bytes));
  const auto address = [](const Buffer& buffer) { return reinterpret_cast<Address>(buffer.data()); };
  // The library's memory is in the primary context, which a program of its own makes current.
  const auto current = reinterpret_cast<int (*)(void*)>(dlsym(program, "cuCtxSetCurrent"));
  const auto retain = reinterpret_cast<int (*)(void**, int)>(dlsym(program, "cuDevicePrimaryCtxRetain"));
  void* context = nullptr;
  ASSERT_EQ(retain(&context, device->index), 0);
  ASSERT_EQ(current(context), 0);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(run(nullptr, address(query), address(key), address(value), address(out), address(lse), 100, 0, 0.11F,
                  address(workspace)),
              0);
    ASSERT_TRUE(synchronize(*device));
    EXPECT_TRUE(read(out, out_bytes) == wanted_out);
    EXPECT_TRUE(read(lse, lse_bytes) == wanted_lse);
    ASSERT_EQ(unload(), 0) << "and loaded again in the next round";
  }
}

}  // namespace
}  // namespace flashspan::testing
