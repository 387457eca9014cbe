#include "runtime/api/triton_entry.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <span>
#include <utility>
#include <vector>

#include "cache/whole_file.hpp"
#include "runtime/api/triton_types.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/cuda/cubin_parameters.hpp"

namespace flashspan::api {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t largest_file_bytes = std::int64_t{256} << 20;

Result<std::vector<std::byte>> bytes_of_file(const fs::path& path) {
  cache::FileContents contents;
  constexpr std::int64_t never = -1;
  if (const int error = cache::read_file(path, largest_file_bytes, never, contents); error != 0) {
    return Error{ErrorCode::io_error, "path", path.string() + ": " + cache::error_text(error),
                 "a file that can be read", ""};
  }
  return std::move(contents.bytes);
}

Error malformed(const fs::path& path, const std::string& got, const std::string& takes) {
  return Error{ErrorCode::bad_argument, "path", path.string() + ": " + got, takes, ""};
}

/// Of a file beside the .json; nothing if it is not there.
std::optional<std::string> text_beside(const fs::path& json_path, const char* extension) {
  fs::path path = json_path;
  auto text = text_of_file(path.replace_extension(extension));
  if (!text) return std::nullopt;
  return *std::move(text);
}

/// What the .json says. Throws json::exception.
void read_metadata(const json& metadata, TritonKernelFile& kernel) {
  kernel.name = metadata.at("name");
  kernel.num_warps = metadata.at("num_warps");
  kernel.shared_bytes = metadata.at("shared");
  if (metadata.contains("triton_version")) kernel.version = metadata["triton_version"];
  const json target = metadata.value("target", json::object());
  if (target.contains("arch") && target["arch"].is_number_integer()) kernel.arch.number = target["arch"];
  // 9.0 has been compiled for as sm_90a ever since it was there; later ones are as "sm100a" or without the letter.
  if (kernel.arch.number >= 90) kernel.arch.suffix = 'a';
  kernel.cluster[0] = metadata.value("num_ctas", 1);
  if (metadata.contains("cluster_dims")) {
    for (std::size_t axis = 0; axis < kernel.cluster.size(); ++axis) {
      kernel.cluster[axis] = metadata["cluster_dims"].at(axis);
    }
  }
  kernel.cooperative = metadata.value("launch_cooperative_grid", false);
  kernel.programmatic_launch = metadata.value("launch_pdl", false);
  kernel.global_scratch_bytes = metadata.value("global_scratch_size", std::int64_t{0});
  kernel.global_scratch_alignment = metadata.value("global_scratch_align", std::int64_t{1});
}

/// What is refused by name rather than launched wrongly.
Result<void> check_metadata(const json& metadata, const TritonKernelFile& kernel) {
  const std::string backend = metadata.value("target", json::object()).value("backend", "cuda");
  if (backend != "cuda") return Error{ErrorCode::unsupported, kernel.name, "target " + backend, "target cuda", ""};
  if (const auto bytes = metadata.value("profile_scratch_size", std::int64_t{0}); bytes != 0) {
    return Error{ErrorCode::unsupported, kernel.name, std::to_string(bytes) + " bytes of scratch memory for a profiler",
                 "kernels that were compiled without instrumentation", ""};
  }
  return {};
}

Result<void> set_version(TritonKernelFile& kernel, const TritonReadOptions& options) {
  if (options.version) kernel.version = *options.version;
  const auto hidden = hidden_parameters_of(kernel.version);
  if (!hidden) {
    return Error{ErrorCode::unsupported, "Triton's version", kernel.version.empty() ? "none" : kernel.version,
                 "3.2 to 3.8: what a launch passes beside the arguments differs (TritonReadOptions::version)", ""};
  }
  kernel.hidden_parameters = *hidden;
  return {};
}

/// From what is given, else from the .ttir, which has names, else from the .ptx, whose last ones are hidden.
Result<std::vector<TritonParameter>> parameters_of(const fs::path& json_path, const TritonKernelFile& kernel,
                                                   const TritonReadOptions& options) {
  if (options.signature) return parameters_of_signature(*options.signature);
  if (const auto ttir = text_beside(json_path, ".ttir")) {
    if (auto parameters = parameters_of_ttir(*ttir, kernel.name)) return *std::move(parameters);
  }
  if (const auto ptx = text_beside(json_path, ".ptx")) {
    auto parameters = parameters_of_ptx(*ptx, kernel.name);
    const auto hidden = static_cast<std::size_t>(kernel.hidden_parameters);
    if (parameters && parameters->size() >= hidden) {
      parameters->resize(parameters->size() - hidden);
      return *std::move(parameters);
    }
  }
  return malformed(json_path, "no types of its parameters: neither .ttir nor .ptx of " + kernel.name + " beside it",
                   "these files, or TritonReadOptions::signature");
}

/// First group of the first match.
std::optional<std::string> matched(const std::string& text, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_search(text, match, std::regex(pattern))) return std::nullopt;
  return match[1].str();
}

int number_in(const std::optional<std::string>& text) {
  int number = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

/// "0x7f, 0x45, ..." up to the closing brace.
std::vector<std::byte> bytes_of_initializer(const std::string& source, std::size_t at) {
  std::vector<std::byte> bytes;
  const std::size_t end = std::min(source.find('}', at), source.size());
  while ((at = source.find("0x", at)) < end) {
    unsigned value = 0;
    const auto [stop, status] = std::from_chars(source.data() + at + 2, source.data() + end, value, 16);
    if (status != std::errc{} || value > 255) return {};
    bytes.push_back(static_cast<std::byte>(value));
    at = static_cast<std::size_t>(stop - source.data());
  }
  return bytes;
}

/// A type whose size only the cubin tells: since 3.4 all reals are declared as double, whatever the kernel reads.
constexpr const char* any_real = "real";

std::optional<std::string> type_of_c(const std::string& type) {
  for (const auto& [c, name] :
       {std::pair{"CUdeviceptr", "*i8"}, std::pair{"int8_t", "i8"}, std::pair{"int16_t", "i16"},
        std::pair{"int32_t", "i32"}, std::pair{"int64_t", "i64"}, std::pair{"uint8_t", "u8"},
        std::pair{"uint16_t", "u16"}, std::pair{"uint32_t", "u32"}, std::pair{"uint64_t", "u64"},
        std::pair{"float", any_real}, std::pair{"double", any_real}, std::pair{"CUtensorMap", "nvTmaDesc"}}) {
    if (type == c) return name;
  }
  return std::nullopt;
}

/// "CUdeviceptr x, int32_t n".
std::optional<std::vector<TritonParameter>> parameters_of_c(const std::string& text) {
  std::vector<TritonParameter> parameters;
  static const std::regex declaration(R"(\s*([A-Za-z0-9_]+)\s+([A-Za-z0-9_]+)\s*(,|$))");
  for (auto match = std::sregex_iterator(text.begin(), text.end(), declaration); match != std::sregex_iterator();
       ++match) {
    const auto type = type_of_c((*match)[1].str());
    if (!type) return std::nullopt;
    parameters.push_back({(*match)[2].str(), *type, size_of_triton_type(*type).value_or(0)});
  }
  return parameters;
}

std::string sizes_text(const std::vector<int>& sizes) {
  std::string text;
  for (const int bytes : sizes) text += (text.empty() ? "" : ", ") + std::to_string(bytes);
  return text;
}

}  // namespace

std::optional<int> hidden_parameters_of(const std::string& version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, status] = std::from_chars(version.data(), end, major);
  if (status != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc{} || major != 3) return std::nullopt;
  if (minor < 2 || minor > 8) return std::nullopt;
  if (minor == 2) return 0;
  return minor < 5 ? 1 : 2;  // global scratch since 3.3, the profiler's since 3.5
}

Result<std::string> text_of_file(const fs::path& path) {
  const auto bytes = bytes_of_file(path);
  if (!bytes) return bytes.error();
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

Result<TritonKernelFile> read_triton_cache_entry(const fs::path& json_path, const TritonReadOptions& options) {
  const auto text = text_of_file(json_path);
  if (!text) return text.error();
  TritonKernelFile kernel;
  try {
    const json metadata = json::parse(*text);
    read_metadata(metadata, kernel);
    if (auto served = check_metadata(metadata, kernel); !served) return served.error();
  } catch (const json::exception& error) {
    return malformed(json_path, error.what(), "the .json of a kernel in Triton's cache");
  }
  if (auto known = set_version(kernel, options); !known) return known.error();
  fs::path beside = json_path;
  auto cubin = bytes_of_file(beside.replace_extension(".cubin"));
  if (!cubin) return cubin.error();
  kernel.cubin = *std::move(cubin);
  auto parameters = parameters_of(json_path, kernel, options);
  if (!parameters) return parameters.error();
  kernel.parameters = *std::move(parameters);
  if (auto settled = settle_by_cubin(kernel, json_path.string()); !settled) return settled.error();
  return kernel;
}

Result<TritonKernelFile> read_triton_compile_product(const fs::path& path, const TritonReadOptions& options) {
  const char* const takes = "the .c that triton.tools.compile wrote";
  const auto source = text_of_file(path);
  if (!source) return source.error();
  TritonKernelFile kernel;
  const auto name = matched(*source, R"(cuModuleGetFunction\([^;]*"([^"]+)\"\))");
  const auto declared = matched(*source, R"(CUresult\s+[A-Za-z0-9_]+\(CUstream stream,([^)]*)\))");
  const auto launch = matched(*source, R"(cuLaunchKernel\(([^;]*)\);)");
  const std::size_t code = source->find("unsigned char CUBIN_NAME[");
  if (!name || !declared || !launch || code == std::string::npos) {
    return malformed(path, "no kernel with its code and launch", takes);
  }
  kernel.name = *name;
  kernel.cubin = bytes_of_initializer(*source, source->find('{', code));
  kernel.shared_bytes = number_in(matched(*source, R"(int shared = ([0-9]+);)"));
  kernel.num_warps = number_in(matched(*launch, R"(,\s*([0-9]+) \* 32,)"));
  // The pointers that the launch appends tell the version; any of those that append as many does.
  const bool global = source->find("&global_scratch") != std::string::npos;
  const bool profile = source->find("&profile_scratch") != std::string::npos;
  kernel.version = profile ? "3.5" : global ? "3.3" : "3.2";
  if (auto known = set_version(kernel, options); !known) return known.error();
  auto parameters = parameters_of_c(*declared);
  if (options.signature) {
    auto given = parameters_of_signature(*options.signature);
    if (!given) return given.error();
    parameters = *std::move(given);
  }
  if (!parameters) return malformed(path, "parameters " + *declared, takes);
  kernel.parameters = *std::move(parameters);
  if (auto settled = settle_by_cubin(kernel, path.string()); !settled) return settled.error();
  return kernel;
}

Result<void> settle_by_cubin(TritonKernelFile& kernel, const std::string& path) {
  const auto found = cuda::cubin_kernel(kernel.cubin, kernel.name);
  if (!found)
    return malformed(path, "no whole cubin with a kernel " + kernel.name, "a kernel of Triton's with its cubin");
  std::vector<int> in_cubin, ours;
  for (const cuda::KernelParameter& parameter : found->parameters) in_cubin.push_back(parameter.bytes);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    TritonParameter& parameter = kernel.parameters[i];
    if (parameter.type == any_real && i < in_cubin.size()) {
      if (in_cubin[i] == 2) {
        return malformed(path, "parameter " + parameter.name + ", which may be fp16 or bf16",
                         "TritonReadOptions::signature");
      }
      parameter.type = in_cubin[i] == 4 ? "fp32" : "fp64";
      parameter.bytes = in_cubin[i];
    }
    ours.push_back(parameter.bytes);
  }
  constexpr int pointer_bytes = 8;
  ours.insert(ours.end(), static_cast<std::size_t>(kernel.hidden_parameters), pointer_bytes);
  if (ours != in_cubin) {
    return malformed(path, "a cubin whose parameters take " + sizes_text(in_cubin) + " bytes",
                     "parameters of " + sizes_text(ours) + " bytes, " + std::to_string(kernel.hidden_parameters) +
                         " of them hidden in Triton " + kernel.version);
  }
  const int threads = kernel.num_warps * 32;
  if (found->required_block && *found->required_block != std::array{threads, 1, 1}) {
    return malformed(path, "a cubin for blocks of " + std::to_string((*found->required_block)[0]) + " threads",
                     std::to_string(threads) + ", as num_warps says");
  }
  return {};
}

cache::Entry entry_of(const TritonKernelFile& kernel) {
  json parameters = json::array();
  for (const TritonParameter& parameter : kernel.parameters) {
    parameters.push_back({{"name", parameter.name}, {"type", parameter.type}, {"bytes", parameter.bytes}});
  }
  const json metadata{{"content", "triton kernel"},
                      {"name", kernel.name},
                      {"version", kernel.version},
                      {"arch", to_string(kernel.arch)},
                      {"parameters", parameters},
                      {"hidden_parameters", kernel.hidden_parameters},
                      {"num_warps", kernel.num_warps},
                      {"shared_bytes", kernel.shared_bytes},
                      {"cluster", kernel.cluster},
                      {"cooperative", kernel.cooperative},
                      {"programmatic_launch", kernel.programmatic_launch},
                      {"global_scratch_bytes", kernel.global_scratch_bytes},
                      {"global_scratch_alignment", kernel.global_scratch_alignment}};
  return {metadata.dump(-1, ' ', false, json::error_handler_t::replace), kernel.cubin};
}

std::optional<TritonKernelFile> triton_kernel_of(const cache::Entry& entry) {
  try {
    const json metadata = json::parse(entry.metadata);
    if (metadata.value("content", "") != "triton kernel") return std::nullopt;
    TritonKernelFile kernel;
    kernel.name = metadata.at("name");
    kernel.version = metadata.at("version");
    kernel.arch = arch_from_string(metadata.at("arch").get<std::string>()).value_or(Arch{});
    for (const json& parameter : metadata.at("parameters")) {
      kernel.parameters.push_back({parameter.at("name"), parameter.at("type"), parameter.at("bytes")});
    }
    kernel.hidden_parameters = metadata.at("hidden_parameters");
    kernel.num_warps = metadata.at("num_warps");
    kernel.shared_bytes = metadata.at("shared_bytes");
    kernel.cluster = metadata.at("cluster");
    kernel.cooperative = metadata.at("cooperative");
    kernel.programmatic_launch = metadata.at("programmatic_launch");
    kernel.global_scratch_bytes = metadata.at("global_scratch_bytes");
    kernel.global_scratch_alignment = metadata.at("global_scratch_alignment");
    kernel.cubin = entry.artifact;
    return kernel;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace flashspan::api
