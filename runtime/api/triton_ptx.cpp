#include "runtime/api/triton_ptx.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <variant>

#include "runtime/api/replaced.hpp"

namespace flashspan::api {
namespace {

constexpr int static_shared_limit = 48 * 1024;
// The lowest with every architecture that we serve; Triton's own ptxas (CUDA 12.8, 12.9) refuses what NVRTC 13 writes.
constexpr const char* ptx_version = ".version 8.7";

Error unsupported(const char* argument, std::string got, const char* takes) {
  return {ErrorCode::unsupported, argument, std::move(got), takes, ""};
}

/// The one launch of a call that can stand for a kernel of Triton's.
Result<const cuda::RecordedLaunch*> only_launch(const CImage& image) {
  const auto& steps = image.recording.steps;
  const auto* const launch = steps.size() == 1 ? std::get_if<cuda::RecordedLaunch>(&steps.front()) : nullptr;
  if (launch == nullptr) {
    return unsupported("mask", "a call of " + std::to_string(steps.size()) + " launches",
                       "a forward of one kernel: without a mask, of the mma family (sm_80, sm_86, sm_89, sm_100, ...)");
  }
  if (!image.recording.maps.empty()) {
    return unsupported("arch", to_string(image.arch) + ", whose kernels take tensor maps by value",
                       "one of the mma family's: sm_80, sm_86, sm_89, sm_100, ...");
  }
  if (image.workspace_bytes > 0) {
    return unsupported("mask", "a call with a workspace", "a forward without one: without a mask");
  }
  if (launch->dynamic_shared_bytes > static_shared_limit) {
    return unsupported("tile", std::to_string(launch->dynamic_shared_bytes) + " bytes of shared memory",
                       "a tile of at most 49152: Triton gives a kernel what its own code takes");
  }
  return launch;
}

const char* ptx_type(CArgument::Kind kind) {
  switch (kind) {
    case CArgument::Kind::memory:
      return "u64";
    case CArgument::Kind::integer:
      return "s64";
    case CArgument::Kind::real:
      return "f32";
  }
  return "";
}

std::string argument_name(std::size_t place) { return "triton_argument_" + std::to_string(place); }
std::string structure_name(std::size_t parameter) { return "flashspan_structure_" + std::to_string(parameter); }

std::string hexadecimal(std::uint64_t word) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(word));
  return text.data();
}

/// Arguments in place of the structures, and Triton's pointers to scratch memory.
std::string parameter_list(const std::vector<CArgument>& arguments) {
  std::string list = "(\n";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    list += std::string("\t.param .") + ptx_type(arguments[i].kind) + " " + argument_name(i) + ",\n";
  }
  return list + "\t.param .u64 triton_global_scratch,\n\t.param .u64 triton_profile_scratch\n)";
}

/// Instructions that put one structure together.
std::string filled(std::size_t parameter, const std::vector<std::byte>& bytes,
                   const std::vector<CArgument>& arguments) {
  const std::string place = structure_name(parameter);
  std::string text;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    if (const auto argument = place_of(word, arguments.size())) {
      text += "\tld.param.u64 \t%flashspan_word, [" + argument_name(argument->argument) + "];\n";
      text += "\tadd.s64 \t%flashspan_word, %flashspan_word, " + std::to_string(argument->addend) + ";\n";
    } else {
      text += "\tmov.b64 \t%flashspan_word, " + hexadecimal(word) + ";\n";
    }
    text += "\tst.local.u64 \t[" + place + "+" + std::to_string(at) + "], %flashspan_word;\n";
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const CArgument& argument = arguments[i];
    if (argument.kind == CArgument::Kind::memory || argument.parameter != static_cast<int>(parameter)) continue;
    const bool real = argument.kind == CArgument::Kind::real;
    const std::string type = real ? "f32" : "s64", value = real ? "%flashspan_real" : "%flashspan_word";
    text += "\tld.param." + type + " \t" + value + ", [" + argument_name(i) + "];\n";
    text += "\tst.local." + type + " \t[" + place + "+" + std::to_string(argument.offset) + "], " + value + ";\n";
  }
  return text;
}

/// Where the instructions of a body begin: behind its declarations.
std::size_t first_instruction(const std::string& body) {
  std::size_t line = body.find('\n') + 1;
  for (std::size_t next = line; next < body.size(); next = body.find('\n', next) + 1) {
    if (body.compare(next, 2, "\t.") != 0) break;
    line = body.find('\n', next) + 1;
  }
  return line;
}

/// The declarations, if only to be called from elsewhere, of a function of Triton's that this stands for.
std::string heading(const cuda::RecordedLaunch& launch, const std::vector<CArgument>& arguments) {
  std::string names;
  for (const CArgument& argument : arguments) names += (names.empty() ? "" : ", ") + argument.name;
  return "// For Triton's ir_override: " + launch.kernel.name + "(" + names +
         ") with num_warps=" + std::to_string(launch.threads / 32) + " and a grid of (" +
         std::to_string(launch.blocks) + ", 1, 1).\n";
}

}  // namespace

Result<std::string> write_triton_ptx(std::string ptx, const CImage& image, const std::vector<CArgument>& all) {
  const auto found = only_launch(image);
  if (!found) return found.error();
  const cuda::RecordedLaunch& launch = **found;
  const std::vector<CArgument> arguments(all.begin(), all.end() - 1);  // there is no workspace

  const std::size_t version = ptx.find(".version ");
  ptx.replace(version, ptx.find('\n', version) - version, ptx_version);
  ptx = replaced(std::move(ptx), ".extern .shared .align 16 .b8 shared[];",
                 ".shared .align 16 .b8 shared[" + std::to_string(launch.dynamic_shared_bytes) + "];");
  const std::size_t list = ptx.find('(', ptx.find(".entry " + launch.kernel.name));
  const std::size_t list_end = ptx.find(')', list) + 1;
  const std::size_t body_begin = ptx.find('{', list_end);
  std::string body = replaced(ptx.substr(body_begin), "ld.param.", "ld.local.");
  std::string declared = "\t.reg .b64 \t%flashspan_word;\n\t.reg .f32 \t%flashspan_real;\n", instructions;
  for (std::size_t i = 0; i < launch.parameters.size(); ++i) {
    const std::string name = launch.kernel.name + "_param_" + std::to_string(i);
    if (body.find(name) == std::string::npos) continue;
    body = replaced(std::move(body), name, structure_name(i));
    declared +=
        "\t.local .align 16 .b8 \t" + structure_name(i) + "[" + std::to_string(launch.parameters[i].size()) + "];\n";
    instructions += filled(i, launch.parameters[i], arguments);
  }
  body.insert(first_instruction(body), declared + instructions);
  return heading(launch, arguments) + ptx.substr(0, list) + parameter_list(arguments) +
         ptx.substr(list_end, body_begin - list_end) + body;
}

}  // namespace flashspan::api
