#include "runtime/api/c_program.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <variant>

#include "runtime/api/replaced.hpp"

namespace flashspan::api {
namespace {

constexpr std::uintptr_t first_address = std::uintptr_t{0xa5a5} << 48;
constexpr int reach_bits = 40;

/// What all programs have in common; the tables above it are of this one. Names begin with NAME_ where they are not
/// static.
constexpr const char* executor = R"(
struct patch {
  int parameter; /* of the launch */
  unsigned offset; /* in it */
  int argument; /* whose address is written there, ... */
  unsigned long long addend; /* ... so many bytes on */
};
struct map_patch {
  int parameter;
  unsigned offset;
  int map;
};
struct number_patch {
  int parameter;
  unsigned offset;
  int argument;
  unsigned bytes;
};
struct parameter {
  const unsigned char* bytes;
  unsigned size;
};
struct step {
  int kernel; /* -1: memory is set */
  unsigned blocks, threads, shared_bytes;
  int persistent; /* no more blocks than multiprocessors */
  int parameter_count, patch_count, map_patch_count, number_patch_count;
  const struct parameter* parameters;
  const struct patch* patches;
  const struct map_patch* map_patches;
  const struct number_patch* number_patches;
  int argument; /* of memory that is set */
  unsigned long long addend, bytes;
  unsigned char value;
};
struct map {
  int data_type, rank, interleave, swizzle, promotion, fill;
  int argument;
  unsigned long long addend;
  cuuint64_t extents[5], strides[4];
  cuuint32_t box[5], element_strides[5];
};
struct kernel {
  const char* name;
  int module;
  unsigned shared_bytes;
};
struct image {
  int capability; /* 10 * major + minor */
  int exact; /* runs on that alone; else on later ones of its major version too */
  int module_count, step_count, kernel_count, map_count;
  const unsigned char* const* modules;
  const struct step* steps;
  const struct map* maps;
  const struct kernel* kernels;
};
union value {
  CUdeviceptr address;
  long long integer;
  float real;
};

@TABLES@

enum { image_count = sizeof images / sizeof images[0], most_devices = 64 };
struct loaded_image {
  int whole;
  CUlibrary libraries[@MOST_MODULES@]; /* NULL behind the last that is loaded */
  CUkernel kernels[@MOST_KERNELS@];
  unsigned char ready[most_devices]; /* devices whose shared memory has been asked for */
};
static struct loaded_image loaded[image_count];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult image_of_device(CUdevice device, int* found) {
  int major = 0, minor = 0;
  CUresult code = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (code == CUDA_SUCCESS) code = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (code != CUDA_SUCCESS) return code;
  *found = -1;
  for (int i = 0; i < image_count; ++i) {
    const int capability = images[i].capability;
    const int runs = images[i].exact ? capability == 10 * major + minor
                                     : capability / 10 == major && capability % 10 <= minor;
    if (runs && (*found < 0 || capability > images[*found].capability)) *found = i;
  }
  return *found < 0 ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

/* With the lock held, as what follows. The first error, but for those of a driver that has ended. */
static CUresult unload_image(struct loaded_image* image) {
  CUresult first = CUDA_SUCCESS;
  for (int i = 0; i < @MOST_MODULES@ && image->libraries[i] != NULL; ++i) {
    const CUresult code = cuLibraryUnload(image->libraries[i]);
    if (first == CUDA_SUCCESS && code != CUDA_ERROR_DEINITIALIZED) first = code;
  }
  memset(image, 0, sizeof *image);
  return first;
}

static CUresult load_image(const struct image* image, struct loaded_image* to) {
  CUresult code = CUDA_SUCCESS;
  for (int i = 0; code == CUDA_SUCCESS && i < image->module_count; ++i) {
    code = cuLibraryLoadData(&to->libraries[i], image->modules[i], NULL, NULL, 0, NULL, NULL, 0);
    if (code != CUDA_SUCCESS) to->libraries[i] = NULL;
  }
  for (int i = 0; code == CUDA_SUCCESS && i < image->kernel_count; ++i) {
    const struct kernel* const kernel = &image->kernels[i];
    code = cuLibraryGetKernel(&to->kernels[i], to->libraries[kernel->module], kernel->name);
  }
  if (code != CUDA_SUCCESS) unload_image(to);
  to->whole = code == CUDA_SUCCESS;
  return code;
}

static CUresult load_on(const struct image* image, struct loaded_image* to, CUdevice device) {
  CUresult code = to->whole ? CUDA_SUCCESS : load_image(image, to);
  if (code != CUDA_SUCCESS) return code;
  const int known = device < most_devices;
  if (known && to->ready[device]) return CUDA_SUCCESS;
  for (int i = 0; code == CUDA_SUCCESS && i < image->kernel_count; ++i) {
    CUfunction function = NULL; /* loads it now rather than at the first launch */
    const int shared_bytes = (int)image->kernels[i].shared_bytes;
    if (shared_bytes > 0) {
      code = cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes, to->kernels[i], device);
    }
    if (code == CUDA_SUCCESS) code = cuKernelGetFunction(&function, to->kernels[i]);
  }
  if (code == CUDA_SUCCESS && known) to->ready[device] = 1;
  return code;
}

static CUresult ready_image(int* number, CUdevice* device) {
  CUresult code = cuCtxGetDevice(device);
  if (code == CUDA_SUCCESS) code = image_of_device(*device, number);
  if (code != CUDA_SUCCESS) return code;
  pthread_mutex_lock(&lock);
  code = load_on(&images[*number], &loaded[*number], *device);
  pthread_mutex_unlock(&lock);
  return code;
}

static CUresult run_step(const struct step* step, const CUkernel* kernels, int processors, const union value* values,
                         const CUtensorMap* maps, CUstream stream) {
  if (step->kernel < 0) {
    return cuMemsetD8Async(values[step->argument].address + step->addend, step->value, step->bytes, stream);
  }
  _Alignas(128) unsigned char memory[@MOST_PARAMETERS@][@MOST_PARAMETER_BYTES@];
  void* parameters[@MOST_PARAMETERS@];
  for (int i = 0; i < step->parameter_count; ++i) {
    memcpy(memory[i], step->parameters[i].bytes, step->parameters[i].size);
    parameters[i] = memory[i];
  }
  for (int i = 0; i < step->patch_count; ++i) {
    const struct patch* const patch = &step->patches[i];
    const CUdeviceptr address = values[patch->argument].address;
    const CUdeviceptr at = address == 0 ? 0 : address + patch->addend; /* 0: not given */
    memcpy(memory[patch->parameter] + patch->offset, &at, sizeof at);
  }
  for (int i = 0; i < step->number_patch_count; ++i) {
    const struct number_patch* const patch = &step->number_patches[i];
    memcpy(memory[patch->parameter] + patch->offset, &values[patch->argument], patch->bytes);
  }
  for (int i = 0; i < step->map_patch_count; ++i) {
    const struct map_patch* const patch = &step->map_patches[i];
    memcpy(memory[patch->parameter] + patch->offset, &maps[patch->map], sizeof(CUtensorMap));
  }
  unsigned blocks = step->blocks;
  if (step->persistent && blocks > (unsigned)processors) blocks = (unsigned)processors;
  return cuLaunchKernel((CUfunction)kernels[step->kernel], blocks, 1, 1, step->threads, 1, 1, step->shared_bytes, stream,
                        parameters, NULL);
}

static CUresult run(CUstream stream, const union value* values) {
  int number = 0, processors = 0;
  CUdevice device = 0;
  CUresult code = ready_image(&number, &device);
  if (code == CUDA_SUCCESS) code = cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  if (code != CUDA_SUCCESS) return code;
  const struct image* const image = &images[number];
  CUtensorMap maps[@MOST_MAPS@];
  for (int i = 0; i < image->map_count; ++i) {
    const struct map* const map = &image->maps[i];
    code = cuTensorMapEncodeTiled(&maps[i], (CUtensorMapDataType)map->data_type, (cuuint32_t)map->rank,
                                  (void*)(values[map->argument].address + map->addend), map->extents, map->strides,
                                  map->box, map->element_strides, (CUtensorMapInterleave)map->interleave,
                                  (CUtensorMapSwizzle)map->swizzle, (CUtensorMapL2promotion)map->promotion,
                                  (CUtensorMapFloatOOBfill)map->fill);
    if (code != CUDA_SUCCESS) return code;
  }
  for (int i = 0; code == CUDA_SUCCESS && i < image->step_count; ++i) {
    code = run_step(&image->steps[i], loaded[number].kernels, processors, values, maps, stream);
  }
  return code;
}

CUresult @NAME@_load(void) {
  int number = 0;
  CUdevice device = 0;
  return ready_image(&number, &device);
}

CUresult @NAME@_unload(void) {
  CUresult first = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < image_count; ++i) {
    const CUresult code = unload_image(&loaded[i]);
    if (first == CUDA_SUCCESS) first = code;
  }
  pthread_mutex_unlock(&lock);
  return first;
}
)";

std::string number(std::uint64_t value) { return std::to_string(value) + (value > 0x7fffffff ? "ull" : ""); }

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

template <typename Values, typename Write>
std::string listed(const Values& values, const Write& write) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + write(value);
  return text;
}

/// An array of bytes, a hundred a line; never empty, as C wants it.
std::string byte_array(const std::string& name, const std::vector<std::byte>& bytes) {
  std::string text = "static const unsigned char " + name + "[] __attribute__((aligned(128))) = {";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    constexpr std::size_t in_a_line = 30;
    text += (i % in_a_line == 0 ? "\n  " : "") + std::to_string(std::to_integer<int>(bytes[i])) + ",";
  }
  return text + (bytes.empty() ? "0" : "") + "};\n";
}

/// One image's tables.
class ImageWriter {
 public:
  ImageWriter(const CProgramDescription& program, const CImage& image, std::string prefix)
      : program_(program), image_(image), prefix_(std::move(prefix)) {}

  std::string tables() {
    std::string text, modules, steps;
    for (std::size_t i = 0; i < image_.modules.size(); ++i) {
      const std::string name = prefix_ + "m" + std::to_string(i);
      text += byte_array(name, image_.modules[i]);
      modules += (modules.empty() ? "" : ", ") + name;
    }
    text += "static const unsigned char* const " + prefix_ + "modules[] = {" + modules + "};\n";
    std::size_t number_of_step = 0;
    for (const auto& step : image_.recording.steps) {
      const std::string name = prefix_ + "s" + std::to_string(number_of_step++) + "_";
      if (const auto* const launch = std::get_if<cuda::RecordedLaunch>(&step)) {
        steps += "  " + launch_row(*launch, name, text) + ",\n";
      } else {
        steps += "  " + memset_row(std::get<cuda::RecordedMemset>(step)) + ",\n";
      }
    }
    text += "static const struct step " + prefix_ + "steps[] = {\n" + steps + "};\n";
    text += "static const struct map " + prefix_ + "maps[] = {\n";
    for (const cuda::RecordedTensorMap& map : image_.recording.maps) text += "  " + map_row(map) + ",\n";
    if (image_.recording.maps.empty()) text += "  {0}\n";
    text += "};\n";
    text += "static const struct kernel " + prefix_ + "kernels[] = {" + listed(kernels_, kernel_row) + "};\n\n";
    return text;
  }

  [[nodiscard]] std::string row() const {
    const int capability = image_.arch.number;
    std::string row = "{" + std::to_string(capability) + ", " + (image_.arch.suffix != 0 ? "1" : "0");
    for (const std::size_t count :
         {image_.modules.size(), image_.recording.steps.size(), kernels_.size(), image_.recording.maps.size()}) {
      row += ", " + std::to_string(count);
    }
    for (const char* const table : {"modules", "steps", "maps", "kernels"}) row += ", " + prefix_ + table;
    return row + "}";
  }
  [[nodiscard]] std::size_t kernel_count() const { return kernels_.size(); }

 private:
  struct LaunchedKernel {
    cuda::RecordedKernel kernel;
    int shared_bytes = 0;
  };

  std::size_t kernel_of(const cuda::RecordedLaunch& launch) {
    const auto known = std::ranges::find(kernels_, launch.kernel, &LaunchedKernel::kernel);
    if (known != kernels_.end()) return static_cast<std::size_t>(known - kernels_.begin());
    kernels_.push_back({launch.kernel, launch.dynamic_shared_bytes});
    return kernels_.size() - 1;
  }

  static std::string kernel_row(const LaunchedKernel& launched) {
    return "{" + quoted(launched.kernel.name) + ", " + std::to_string(launched.kernel.module) + ", " +
           std::to_string(launched.shared_bytes) + "}";
  }

  std::string launch_row(const cuda::RecordedLaunch& launch, const std::string& name, std::string& tables) {
    std::vector<std::string> parameters, patches, map_patches, number_patches;
    for (std::size_t i = 0; i < launch.parameters.size(); ++i) {
      std::vector<std::byte> bytes = launch.parameters[i];
      find_words(i, bytes, patches, map_patches);
      for (std::size_t a = 0; a < program_.arguments.size(); ++a) {
        const CArgument& argument = program_.arguments[a];
        if (argument.kind == CArgument::Kind::memory || argument.parameter != static_cast<int>(i)) continue;
        const std::size_t size = argument.kind == CArgument::Kind::integer ? sizeof(std::int64_t) : sizeof(float);
        number_patches.push_back("{" + std::to_string(i) + ", " + std::to_string(argument.offset) + ", " +
                                 std::to_string(a) + ", " + std::to_string(size) + "}");
      }
      tables += byte_array(name + "p" + std::to_string(i), bytes);
      parameters.push_back("{" + name + "p" + std::to_string(i) + ", " + std::to_string(bytes.size()) + "}");
    }
    const auto table = [&](const char* type, const char* suffix, const std::vector<std::string>& rows) {
      const auto same = [](const std::string& row) { return row; };
      tables += std::string("static const struct ") + type + " " + name + suffix + "[] = {" +
                (rows.empty() ? "{0}" : listed(rows, same)) + "};\n";
    };
    table("parameter", "parameters", parameters);
    table("patch", "patches", patches);
    table("map_patch", "map_patches", map_patches);
    table("number_patch", "number_patches", number_patches);
    const bool persistent =
        std::ranges::find(image_.persistent_entries, launch.kernel.name) != image_.persistent_entries.end();
    std::string row = "{" + std::to_string(kernel_of(launch));
    for (const std::uint64_t value :
         {static_cast<std::uint64_t>(launch.blocks), static_cast<std::uint64_t>(launch.threads),
          static_cast<std::uint64_t>(launch.dynamic_shared_bytes), std::uint64_t{persistent ? 1U : 0U},
          std::uint64_t{parameters.size()}, std::uint64_t{patches.size()}, std::uint64_t{map_patches.size()},
          std::uint64_t{number_patches.size()}}) {
      row += ", " + number(value);
    }
    return row + ", " + name + "parameters, " + name + "patches, " + name + "map_patches, " + name +
           "number_patches, 0, 0, 0, 0}";
  }

  /// Takes addresses and maps out of a parameter's bytes and says where they stood.
  void find_words(std::size_t parameter, std::vector<std::byte>& bytes, std::vector<std::string>& patches,
                  std::vector<std::string>& map_patches) const {
    const std::string start = "{" + std::to_string(parameter) + ", ";
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if (const auto place = place_of(word, program_.arguments.size())) {
        patches.push_back(start + std::to_string(at) + ", " + std::to_string(place->argument) + ", " +
                          number(place->addend) + "}");
        std::memset(bytes.data() + at, 0, sizeof(word));
      }
      constexpr std::size_t map_bytes = 128;
      for (std::size_t map = 0; map < image_.recording.maps.size(); ++map) {
        if (word != cuda::map_mark(map) || at + map_bytes > bytes.size()) continue;
        map_patches.push_back(start + std::to_string(at) + ", " + std::to_string(map) + "}");
        std::memset(bytes.data() + at, 0, map_bytes);
      }
    }
  }

  [[nodiscard]] std::string memset_row(const cuda::RecordedMemset& memset) const {
    const RecordedPlace place = place_of(memset.address, program_.arguments.size()).value_or(RecordedPlace{0, 0});
    return "{-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, " + std::to_string(place.argument) + ", " + number(place.addend) +
           ", " + number(static_cast<std::uint64_t>(memset.bytes)) + ", " + std::to_string(memset.value) + "}";
  }

  [[nodiscard]] std::string map_row(const cuda::RecordedTensorMap& map) const {
    const RecordedPlace place = place_of(map.address, program_.arguments.size()).value_or(RecordedPlace{0, 0});
    const auto plain = [](std::uint64_t value) { return number(value); };
    return "{" + std::to_string(map.data_type) + ", " + std::to_string(map.extents.size()) + ", " +
           std::to_string(map.interleave) + ", " + std::to_string(map.swizzle) + ", " +
           std::to_string(map.l2_promotion) + ", " + std::to_string(map.fill) + ", " + std::to_string(place.argument) +
           ", " + number(place.addend) + ", {" + listed(map.extents, plain) + "}, {" + listed(map.strides, plain) +
           "}, {" + listed(map.box, plain) + "}, {" + listed(map.element_strides, plain) + "}}";
  }

  const CProgramDescription& program_;
  const CImage& image_;
  std::string prefix_;
  std::vector<LaunchedKernel> kernels_;
};

const char* c_type(CArgument::Kind kind) {
  switch (kind) {
    case CArgument::Kind::memory:
      return "CUdeviceptr";
    case CArgument::Kind::integer:
      return "long long";
    case CArgument::Kind::real:
      return "float";
  }
  return "";
}

std::string declaration(const CProgramDescription& program) {
  std::string text = "CUresult " + program.name + "(CUstream stream";
  for (const CArgument& argument : program.arguments)
    text += std::string(", ") + c_type(argument.kind) + " " + argument.name;
  return text + ")";
}

std::string comment_lines(const std::string& text) {
  std::string lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += " * " + replaced(text.substr(begin, end - begin), "*/", "* /") + "\n";
    begin = end + 1;
  }
  return lines;
}

std::string header_of(const CProgramDescription& program) {
  std::string guard = program.name + "_H_";
  std::string about = program.about;
  for (const CArgument& argument : program.arguments) about += "  " + argument.name + ": " + argument.comment + "\n";
  return "/* " + program.name + ".h -- generated by Flashspan.\n" + comment_lines(about) +
         " * Memory is on the current context's device. A function returns the first error of the driver;\n"
         " * CUDA_ERROR_NO_BINARY_FOR_GPU on a device that none of the architectures fits. Compile as C11, link libcuda. */\n"
         "#ifndef " +
         guard + "\n#define " + guard +
         "\n\n#include <cuda.h>\n#include <stddef.h>\n\n"
         "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
         "/* Queues the work on the stream. Loads the kernels first, if " +
         program.name + "_load() has not. */\n" + declaration(program) +
         ";\n"
         "/* Of the argument `workspace`. */\nsize_t " +
         program.name +
         "_workspace_bytes(void);\n"
         "/* Makes the kernels ready on the current context's device, so that calls can be captured in a CUDA graph. */\n"
         "CUresult " +
         program.name +
         "_load(void);\n"
         "/* After all work is done; of all devices. A later call loads anew. */\n"
         "CUresult " +
         program.name +
         "_unload(void);\n\n"
         "#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
}

}  // namespace

std::uintptr_t recorded_address(std::size_t argument) {
  return first_address + (static_cast<std::uintptr_t>(argument) << reach_bits);
}

std::optional<RecordedPlace> place_of(std::uint64_t word, std::size_t arguments) {
  if (word < first_address) return std::nullopt;
  const std::uint64_t argument = (word - first_address) >> reach_bits;
  if (argument >= arguments) return std::nullopt;
  const std::uint64_t addend = (word - first_address) & ((std::uint64_t{1} << reach_bits) - 1);
  return RecordedPlace{static_cast<std::size_t>(argument), addend};
}

EmittedProgram write_c_program(const CProgramDescription& program) {
  std::string tables, rows;
  std::size_t most_modules = 1, most_kernels = 1, most_parameters = 1, most_bytes = 1, most_maps = 1;
  std::int64_t workspace_bytes = 0;
  for (std::size_t i = 0; i < program.images.size(); ++i) {
    const CImage& image = program.images[i];
    ImageWriter writer(program, image, "image" + std::to_string(i) + "_");
    tables += "/* " + to_string(image.arch) + " */\n" + writer.tables();
    rows += "  " + writer.row() + ",\n";
    most_modules = std::max(most_modules, image.modules.size());
    most_kernels = std::max(most_kernels, writer.kernel_count());
    most_maps = std::max(most_maps, image.recording.maps.size());
    workspace_bytes = std::max(workspace_bytes, image.workspace_bytes);
    for (const auto& step : image.recording.steps) {
      const auto* const launch = std::get_if<cuda::RecordedLaunch>(&step);
      if (launch == nullptr) continue;
      most_parameters = std::max(most_parameters, launch->parameters.size());
      for (const auto& bytes : launch->parameters) most_bytes = std::max(most_bytes, (bytes.size() + 127) / 128 * 128);
    }
  }
  tables += "static const struct image images[] = {\n" + rows + "};";
  std::string source = executor;
  for (const auto& [what, by] : {std::pair<const char*, std::string>{"@TABLES@", tables},
                                 {"@NAME@", program.name},
                                 {"@MOST_MODULES@", std::to_string(most_modules)},
                                 {"@MOST_KERNELS@", std::to_string(most_kernels)},
                                 {"@MOST_PARAMETERS@", std::to_string(most_parameters)},
                                 {"@MOST_PARAMETER_BYTES@", std::to_string(most_bytes)},
                                 {"@MOST_MAPS@", std::to_string(most_maps)}}) {
    source = replaced(std::move(source), what, by);
  }
  source = "/* " + program.name + ".c -- generated by Flashspan; " + program.name +
           ".h tells what for. */\n#include \"" + program.name + ".h\"\n\n#include <pthread.h>\n#include <string.h>\n" +
           source;
  source += "\nsize_t " + program.name + "_workspace_bytes(void) { return " +
            number(static_cast<std::uint64_t>(workspace_bytes)) + "; }\n\n" + declaration(program) +
            " {\n  union value values[" + std::to_string(program.arguments.size()) + "];\n";
  for (std::size_t i = 0; i < program.arguments.size(); ++i) {
    const CArgument& argument = program.arguments[i];
    const char* const member = argument.kind == CArgument::Kind::memory    ? "address"
                               : argument.kind == CArgument::Kind::integer ? "integer"
                                                                           : "real";
    source += "  values[" + std::to_string(i) + "]." + member + " = " + argument.name + ";\n";
  }
  source += "  return run(stream, values);\n}\n";
  return {header_of(program), source};
}

}  // namespace flashspan::api
