// Kernels that Triton compiled are read from its files, and on a GPU launched with bitwise the same results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/bundle.hpp"
#include "flashspan/device.hpp"
#include "flashspan/emit.hpp"
#include "flashspan/triton.hpp"
#include "runtime/api/triton_entry.hpp"
#include "runtime/api/triton_types.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/driver_api.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Exit status of tests/triton/<script>.py with a folder for an argument, and maybe more of them; nothing if there is
/// no Python for it.
std::optional<int> run_script(const std::string& script, const fs::path& folder, const std::string& more = "") {
  const fs::path python = fs::path(FLASHSPAN_SOURCE_DIR) / "build/python/bin/python3";
  if (!fs::exists(python)) return std::nullopt;
  const fs::path path = fs::path(FLASHSPAN_SOURCE_DIR) / "tests/triton" / script;
  const std::string command = python.string() + " " + path.string() + " " + folder.string() + more + " > " +
                              (folder / "log").string() + " 2>&1";
  return WEXITSTATUS(std::system(command.c_str()));
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> types_of(const TritonKernelFile& kernel) {
  std::vector<std::string> types;
  for (const TritonParameter& parameter : kernel.parameters) types.push_back(parameter.type);
  return types;
}

/// Entries of the Triton that is here, compiled once.
class TritonEntries : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new PrivateFolder;
    status_ = run_script("make_entries.py", folder_->path());
  }
  static void TearDownTestSuite() { delete folder_; }
  void SetUp() override {
    if (!status_) GTEST_SKIP() << "no build/python: tools/setup.sh";
    const std::string log = text_of(folder_->path() / "log");
    if (log.find("No module named 'triton'") != std::string::npos) GTEST_SKIP() << "no Triton in build/python";
    ASSERT_EQ(*status_, 0) << log;
  }

  [[nodiscard]] static fs::path entry(const std::string& name) { return folder_->path() / name; }
  [[nodiscard]] static fs::path file_in(const fs::path& folder, const std::string& extension) {
    for (const auto& item : fs::directory_iterator(folder)) {
      if (item.path().extension() == extension) return item.path();
    }
    return {};
  }
  static TritonKernelFile read(const std::string& name, const TritonReadOptions& options = {}) {
    const auto kernel = read_triton_kernel(entry(name).string(), options);
    EXPECT_TRUE(kernel) << kernel.error().message();
    return kernel ? *kernel : TritonKernelFile{};
  }
  /// A copy of the entry without the files of these extensions, and with `change` applied to its metadata.
  static fs::path changed(const std::string& name, const fs::path& to, const std::vector<std::string>& without,
                          const std::function<void(json&)>& change = {}) {
    fs::copy(entry(name), to);
    for (const std::string& extension : without) fs::remove(file_in(to, extension));
    if (change) {
      const fs::path metadata = file_in(to, ".json");
      json parsed = json::parse(text_of(metadata));
      change(parsed);
      std::ofstream(metadata) << parsed.dump();
    }
    return to;
  }

 private:
  inline static PrivateFolder* folder_ = nullptr;
  inline static std::optional<int> status_;
};

TEST_F(TritonEntries, TellNamesTypesAndWhatALaunchTakes) {
  const TritonKernelFile kernel = read("add");
  EXPECT_EQ(kernel.name, "add_kernel");
  EXPECT_THAT(types_of(kernel), ElementsAre("*fp32", "*fp32", "*fp32", "i32", "fp32"));
  EXPECT_EQ(kernel.parameters[4].name, "alpha");
  EXPECT_EQ(kernel.hidden_parameters, 2) << kernel.version;
  EXPECT_EQ(kernel.num_warps, 4);
  EXPECT_EQ(kernel.shared_bytes, 0);
  EXPECT_EQ(to_string(kernel.arch), "sm_90a");
  EXPECT_FALSE(kernel.programmatic_launch);
  EXPECT_GE(read("matmul").shared_bytes, 16384);
  EXPECT_EQ(read("cluster").cluster, (std::array{2, 1, 1}));
  EXPECT_TRUE(read("dependent").programmatic_launch);
  EXPECT_THAT(types_of(read("scale")), ElementsAre("*bf16", "bf16", "fp16", "i64"));
}

TEST_F(TritonEntries, AreFoundByTheirFolderMetadataOrCode) {
  const std::string name = read("add").name;
  for (const char* extension : {".json", ".cubin"}) {
    const auto kernel = read_triton_kernel(file_in(entry("add"), extension).string());
    ASSERT_TRUE(kernel) << kernel.error().message();
    EXPECT_EQ(kernel->name, name);
  }
  const auto other = read_triton_kernel(file_in(entry("add"), ".ttgir").string());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().argument, "path");
}

TEST_F(TritonEntries, WithoutTtirHaveTheTypesOfTheirPtx) {
  const PrivateFolder folder;
  const auto kernel = read_triton_kernel(changed("add", folder.path() / "add", {".ttir"}).string());
  ASSERT_TRUE(kernel) << kernel.error().message();
  EXPECT_THAT(types_of(*kernel), ElementsAre("*i8", "*i8", "*i8", "i32", "fp32"));
}

TEST_F(TritonEntries, OfBinariesAloneNeedASignature) {
  const PrivateFolder folder;
  const std::string path = changed("add", folder.path() / "add", {".ttir", ".ptx"}).string();
  const auto refused = read_triton_kernel(path);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().got, HasSubstr("no types of its parameters"));
  TritonReadOptions options;
  options.signature = "*fp32:16, *fp32:16, *fp32:16, i32, fp32, 256";
  const auto kernel = read_triton_kernel(path, options);
  ASSERT_TRUE(kernel) << kernel.error().message();
  EXPECT_EQ(kernel->parameters.size(), 5U);
  options.signature = "*fp32, *fp32, *fp32, i32, fp64";
  const auto wrong = read_triton_kernel(path, options);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().got, HasSubstr("8, 8, 8, 4, 4, 8, 8 bytes"));
  EXPECT_THAT(wrong.error().takes, HasSubstr("8, 8, 8, 4, 8, 8, 8 bytes"));
}

TEST_F(TritonEntries, OfVersionsThatNobodyKnowsAreRefused) {
  const PrivateFolder folder;
  const std::string path =
      changed("add", folder.path() / "add", {}, [](json& metadata) { metadata["triton_version"] = "4.0.0"; }).string();
  const auto refused = read_triton_kernel(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().got, "4.0.0");
  TritonReadOptions options;
  options.version = "3.6.0";
  EXPECT_TRUE(read_triton_kernel(path, options));
  options.version = "3.2.0";
  const auto wrong = read_triton_kernel(path, options);
  ASSERT_FALSE(wrong) << "of which it has no hidden parameters";
  EXPECT_THAT(wrong.error().takes, HasSubstr("0 of them hidden in Triton 3.2.0"));
}

TEST_F(TritonEntries, ForTheProfilerOrAnotherTargetAreRefused) {
  const PrivateFolder folder;
  const auto profiled = read_triton_kernel(changed("add", folder.path() / "profiled", {}, [](json& metadata) {
                                             metadata["profile_scratch_size"] = 64;
                                           }).string());
  ASSERT_FALSE(profiled);
  EXPECT_THAT(profiled.error().got, HasSubstr("64 bytes of scratch memory for a profiler"));
  const auto hip = read_triton_kernel(changed("add", folder.path() / "hip", {}, [](json& metadata) {
                                        metadata["target"]["backend"] = "hip";
                                      }).string());
  ASSERT_FALSE(hip);
  EXPECT_EQ(hip.error().got, "target hip");
  const auto warps = read_triton_kernel(
      changed("add", folder.path() / "warps", {}, [](json& metadata) { metadata["num_warps"] = 8; }).string());
  ASSERT_FALSE(warps);
  EXPECT_THAT(warps.error().got, HasSubstr("blocks of 128 threads"));
}

TEST_F(TritonEntries, ThatAreDamagedAreNamed) {
  const PrivateFolder folder;
  const fs::path path = changed("add", folder.path() / "add", {});
  fs::resize_file(file_in(path, ".cubin"), 1000);
  const auto cut = read_triton_kernel(path.string());
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().got, HasSubstr("no whole cubin with a kernel add_kernel"));
  std::ofstream(file_in(path, ".json")) << "{";
  EXPECT_FALSE(read_triton_kernel(path.string()));
  const auto missing = read_triton_kernel((folder.path() / "none.json").string());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::io_error);
}

TEST_F(TritonEntries, OfTheAheadOfTimeToolHaveRealsOfTheSizeThatTheCubinReads) {
  const fs::path source = file_in(entry("aot"), ".c");
  EXPECT_THAT(text_of(source), HasSubstr("double alpha")) << "what the tool declares";
  const auto kernel = read_triton_kernel(source.string());
  ASSERT_TRUE(kernel) << kernel.error().message();
  EXPECT_EQ(kernel->name, "add_kernel");
  EXPECT_THAT(types_of(*kernel), ElementsAre("*i8", "*i8", "*i8", "i32", "fp32"));
  EXPECT_EQ(kernel->num_warps, 4);
  EXPECT_EQ(kernel->hidden_parameters, 2);
  EXPECT_EQ(kernel->cubin, read("add").cubin);
}

TEST_F(TritonEntries, GoThroughTheCacheAndBundles) {
  const PrivateFolder folder;
  const std::string cache = (folder.path() / "cache").string(), other = (folder.path() / "other").string();
  const TritonKernelFile kernel = read("cluster");
  const auto key = add_to_cache(kernel, cache);
  ASSERT_TRUE(key) << key.error().message();
  const std::string bundle = (folder.path() / "kernels.fsb").string();
  ASSERT_TRUE(export_cache(cache, {}, bundle));
  ASSERT_TRUE(import_bundle(bundle, other));
  const auto found = triton_kernel_in_cache(*key, other);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->cubin, kernel.cubin);
  EXPECT_EQ(found->name, kernel.name);
  EXPECT_EQ(found->cluster, kernel.cluster);
  EXPECT_EQ(types_of(*found), types_of(kernel));
  EXPECT_EQ(found->hidden_parameters, kernel.hidden_parameters);
  const auto none = triton_kernel_in_cache(std::string(32, '0'), other);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().argument, "key");
}

TEST(TritonVersions, AppendOneScratchPointerSince33AndTwoSince35) {
  const auto hidden = api::hidden_parameters_of;
  EXPECT_EQ(hidden("3.2.0"), 0);
  EXPECT_EQ(hidden("3.3.1"), 1);
  EXPECT_EQ(hidden("3.4.0"), 1);
  EXPECT_EQ(hidden("3.5.0"), 2);
  EXPECT_EQ(hidden("3.6.0+git1234"), 2);
  EXPECT_EQ(hidden("3.8"), 2);
  for (const char* unknown : {"", "3", "2.1.0", "3.1.0", "3.9.0", "4.0", "main"})
    EXPECT_FALSE(hidden(unknown)) << unknown;
}

TEST(TritonSignatures, LeaveConstantsOut) {
  const auto parameters = api::parameters_of_signature("*fp16:16, i32:16, 64, i32:1, 1e-5, constexpr, fp32");
  ASSERT_TRUE(parameters) << parameters.error().message();
  ASSERT_EQ(parameters->size(), 3U);
  EXPECT_EQ((*parameters)[1].type, "i32");
  EXPECT_EQ((*parameters)[2].bytes, 4);
  const auto refused = api::parameters_of_signature("*fp16, int");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().got, "int");
}

TEST(TritonArguments, ArePackedAsTheirTypes) {
  const auto packed = [](const char* type, const TritonArgument& argument) {
    const auto bytes = api::pack({"x", type, 0}, argument);
    std::string text;
    if (!bytes) return text;
    for (const std::byte byte : *bytes) {
      constexpr const char* digits = "0123456789abcdef";
      text = digits[std::to_integer<int>(byte) >> 4] + (digits[std::to_integer<int>(byte) & 15] + text);
    }
    return text;
  };
  EXPECT_EQ(packed("i32", std::int64_t{-2}), "fffffffe");
  EXPECT_EQ(packed("u8", std::int64_t{200}), "c8");
  EXPECT_EQ(packed("i8", std::int64_t{200}), "") << "out of range";
  EXPECT_EQ(packed("i1", std::int64_t{1}), "01");
  EXPECT_EQ(packed("i1", std::int64_t{2}), "");
  EXPECT_EQ(packed("u64", std::int64_t{-1}), "ffffffffffffffff");
  EXPECT_EQ(packed("fp32", 0.3), "3e99999a");
  EXPECT_EQ(packed("fp64", 0.5), "3fe0000000000000");
  EXPECT_EQ(packed("fp16", 1.0), "3c00");
  EXPECT_EQ(packed("fp16", -65504.0), "fbff");
  EXPECT_EQ(packed("fp16", 65520.0), "7c00");
  EXPECT_EQ(packed("fp16", 0x1p-24), "0001");
  EXPECT_EQ(packed("fp16", 0x1.ffcp-15), "0400") << "rounded up to the smallest normal";
  EXPECT_EQ(packed("bf16", 1.0 + 0x1p-8), "3f80") << "a tie, to even";
  EXPECT_EQ(packed("bf16", 1.0 + 0x3p-8), "3f82");
  EXPECT_EQ(packed("*fp16", static_cast<const void*>(nullptr)), "0000000000000000");
  EXPECT_EQ(packed("*fp16", 1.0), "");
  EXPECT_EQ(packed("i32", 1.0), "");
  EXPECT_EQ(packed("fp32", std::int64_t{1}), "") << "a whole number is no real: the caller means something else";
  const auto refused = api::pack({"alpha", "fp32", 4}, std::int64_t{3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "argument alpha: got the whole number 3; takes a value of fp32");
}

/// What record_launches.py wrote down on a GPU.
TEST(TritonKernels, GiveTheSameBitsAsTritonsOwnLaunches) {
  const auto device = device_from_string("cuda");
  if (!device) GTEST_SKIP() << device.error().message();
  const PrivateFolder folder;
  const auto status = run_script("record_launches.py", folder.path());
  if (!status || *status == 77) GTEST_SKIP() << "no build/python, or no GPU for it";
  ASSERT_EQ(*status, 0) << text_of(folder.path() / "log");
  const json recorded = json::parse(text_of(folder.path() / "launches.json"));
  ASSERT_EQ(recorded["launches"].size(), 3U);
  for (const json& launch : recorded["launches"]) {
    const auto file = read_triton_kernel(launch["entry"].get<std::string>());
    ASSERT_TRUE(file) << file.error().message();
    const auto kernel = TritonKernel::load(*device, *file);
    ASSERT_TRUE(kernel) << kernel.error().message();
    std::vector<TritonArgument> arguments;
    std::vector<std::pair<std::string, Buffer>> memory;
    for (const json& argument : launch["arguments"]) {
      if (argument.contains("whole")) arguments.emplace_back(argument["whole"].get<std::int64_t>());
      if (argument.contains("real")) arguments.emplace_back(argument["real"].get<double>());
      if (!argument.contains("memory")) continue;
      const std::string stem = (folder.path() / argument["memory"].get<std::string>()).string();
      const std::string before = text_of(stem + ".before");
      auto buffer = Buffer::allocate(*device, static_cast<std::int64_t>(before.size()));
      ASSERT_TRUE(buffer) << buffer.error().message();
      ASSERT_TRUE(buffer->copy_from_host(before.data(), static_cast<std::int64_t>(before.size())));
      arguments.emplace_back(static_cast<const void*>(buffer->data()));
      memory.emplace_back(stem, *std::move(buffer));
    }
    const TritonGrid grid{launch["grid"][0], launch["grid"][1], launch["grid"][2]};
    ASSERT_EQ(kernel->scratch_bytes(grid), 0);
    const auto launched = kernel->launch(grid, arguments);
    ASSERT_TRUE(launched) << file->name << ": " << launched.error().message();
    ASSERT_TRUE(synchronize(*device));
    for (const auto& [stem, buffer] : memory) {
      const std::string wanted = text_of(stem + ".after");
      std::string got(wanted.size(), '\0');
      ASSERT_TRUE(buffer.copy_to_host(got.data(), static_cast<std::int64_t>(got.size())));
      EXPECT_EQ(got == wanted, true) << file->name << ", " << stem;
    }
  }
}

/// Compute capability of the first GPU, times ten; 80 where there is none.
int capability_of_gpu() {
  const auto driver = cuda::system_driver();
  if (!driver) return 80;
  const auto device = cuda::CudaDevice::open(**driver, 0);
  return device ? device->facts().value().target.arch.number : 80;
}

/// A kernel of ours that Triton has taken for its own by ir_override.
class OverriddenKernel : public ::testing::Test {
 protected:
  static constexpr std::int64_t heads = 3, length = 100, dim = 64, rows = 64;

  void SetUp() override {
    EmitRequest request;
    request.shape = {1, heads, heads, length, length, dim, dim};
    request.archs = {{80, 0}};  // whose PTX every later GPU takes
    request.tile = TileConfig{static_cast<int>(rows), 32, 4, 1};
    request.cache_dir = "";
    request.for_triton = true;
    const auto texts = emit_ptx(request);
    if (!texts && texts.error().code == ErrorCode::missing_component) GTEST_SKIP() << "no NVRTC";
    ASSERT_TRUE(texts) << texts.error().message();
    std::ofstream(folder_.path() / "attention_forward.ptx") << texts->front();
    EXPECT_THAT(
        texts->front(),
        ::testing::StartsWith("// For Triton's ir_override: attention_forward(query, key, value, out, lse, scale) "
                              "with num_warps=4 and a grid of (6, 1, 1).\n"));
    const auto status = run_script("override.py", folder_.path(), " " + std::to_string(capability_of_gpu()));
    const std::string log = text_of(folder_.path() / "log");
    if (!status || log.find("No module named 'triton'") != std::string::npos)
      GTEST_SKIP() << "no Triton in build/python";
    ASSERT_EQ(*status, 0) << log;
    const auto read = read_triton_kernel((folder_.path() / "override/attention_forward.json").string());
    ASSERT_TRUE(read) << read.error().message();
    kernel_ = *read;
  }

  PrivateFolder folder_;
  TritonKernelFile kernel_;
};

TEST_F(OverriddenKernel, HasTheParametersAndThreadsThatTritonLaunchesItWith) {
  EXPECT_EQ(kernel_.name, "attention_forward");
  EXPECT_THAT(types_of(kernel_), ElementsAre("*bf16", "*bf16", "*bf16", "*bf16", "*fp32", "fp32"));
  const std::string ptx = text_of(folder_.path() / "override/attention_forward.ptx");
  EXPECT_EQ(ptx, text_of(folder_.path() / "attention_forward.ptx"));
}

TEST_F(OverriddenKernel, ComputesAttentionOnAGpu) {
  const auto device = device_from_string("cuda");
  if (!device) GTEST_SKIP() << device.error().message();
  const auto kernel = TritonKernel::load(*device, kernel_);
  ASSERT_TRUE(kernel) << kernel.error().message();
  const std::int64_t elements = heads * length * dim, bytes = elements * 2, lse_bytes = heads * length * 4;
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(0x3e00 + i * 37 % 512);
  std::vector<Buffer> memory;
  for (int i = 0; i < 5; ++i) {
    memory.push_back(Buffer::allocate(*device, i == 4 ? lse_bytes : bytes).value());
    if (i == 3 || i == 4) continue;  // results
    ASSERT_TRUE(memory.back().copy_from_host(numbers.data(), bytes));
  }
  const auto results = [&] {
    std::string text(static_cast<std::size_t>(bytes + lse_bytes), '\0');
    EXPECT_TRUE(memory[3].copy_to_host(text.data(), bytes));
    EXPECT_TRUE(memory[4].copy_to_host(text.data() + bytes, lse_bytes));
    return text;
  };
  std::vector<TritonArgument> arguments;
  for (const Buffer& buffer : memory) arguments.emplace_back(static_cast<const void*>(buffer.data()));
  arguments.emplace_back(0.125);
  const auto launched = kernel->launch({.x = heads * ((length + rows - 1) / rows)}, arguments);
  ASSERT_TRUE(launched) << launched.error().message();
  ASSERT_TRUE(synchronize(*device));
  const std::string by_triton = results();

  auto attention = Attention::open(*device);
  ASSERT_TRUE(attention) << attention.error().message();
  const auto view = [&](int place) {
    return TensorView::contiguous(memory[place].data(), DType::bf16, {1, heads, length, dim}, *device);
  };
  ForwardCall call;
  call.query = view(0);
  call.key = view(1);
  call.value = view(2);
  call.out = view(3);
  call.lse = TensorView::contiguous(memory[4].data(), DType::f32, {1, heads, length}, *device);
  call.scale = 0.125F;
  const Buffer workspace = Buffer::allocate(*device, attention->workspace_bytes(call).value()).value();
  call.workspace = workspace.data();
  call.workspace_bytes = attention->workspace_bytes(call).value();
  ASSERT_TRUE(attention->forward(call));
  ASSERT_TRUE(synchronize(*device));
  const std::string by_us = results();
  const auto number = [](const std::string& text, std::int64_t place) {
    std::uint16_t half = 0;
    std::memcpy(&half, text.data() + place * 2, sizeof(half));
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  };
  // Another tile, and on sm_90 another family: the sums are in another order.
  for (std::int64_t i = 0; i < elements; ++i) ASSERT_NEAR(number(by_triton, i), number(by_us, i), 2e-2) << i;
}

TEST(KernelsForTriton, AreThoseThatOneLaunchOfTritonsCanRun) {
  const auto refusal = [](const Mask* mask, Arch arch, std::optional<TileConfig> tile) {
    EmitRequest request;
    request.mask = mask;
    request.shape = {1, 2, 2, 256, 256, 64, 64};
    request.archs = {arch};
    request.tile = tile;
    request.cache_dir = "";
    request.for_triton = true;
    const auto texts = emit_ptx(request);
    return texts ? Error{} : texts.error();
  };
  const Mask causal = Mask::causal();
  const Error several = refusal(&causal, {80, 0}, std::nullopt);
  if (several.code == ErrorCode::missing_component) GTEST_SKIP() << "no NVRTC";
  EXPECT_EQ(several.argument, "mask");
  EXPECT_EQ(refusal(nullptr, {90, 'a'}, std::nullopt).argument, "arch");
  const Error large = refusal(nullptr, {80, 0}, TileConfig{128, 64, 8, 2});
  EXPECT_EQ(large.argument, "tile");
  EXPECT_EQ(large.code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace flashspan::testing
