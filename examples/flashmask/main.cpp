// main.cpp -- runs the mask families of the FlashMask paper forward and backward, and prints what they are and how
// exact.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/flashmask/document_lists.hpp"
#include "examples/flashmask/families.hpp"
#include "examples/flashmask/family_run.hpp"
#include "flashspan/device.hpp"
#include "flashspan/inspect.hpp"
#include "tools/flashspan/files.hpp"
#include "tools/flashspan/mask_picture.hpp"
#include "tools/flashspan/npy.hpp"
#include "tools/flashspan/report.hpp"

namespace {

using namespace flashspan;
using flashmask::Family;
using flashmask::FamilyMask;
using flashmask::FamilyRun;
using tool::ExitCode;
using tool::Json;

constexpr std::int64_t tile = 128;  // the paper counts tiles of 128 x 128

struct Options {
  std::int64_t length = 8192, heads = 32, head_dim = 128;
  std::string dtype = "bf16", device = "auto", lists = FLASHSPAN_DOCUMENT_LISTS, pictures, save, family;
  int repeats = 3;
  bool only_count = false, json = false;
};

/// Tiles and pairs of head 0, summed over the samples.
struct Counts {
  std::int64_t empty = 0, full = 0, partial = 0, visible_pairs = 0, pairs = 0;
  [[nodiscard]] double sparsity() const {
    return static_cast<double>(empty) / static_cast<double>(empty + full + partial);
  }
  [[nodiscard]] double density() const { return static_cast<double>(visible_pairs) / static_cast<double>(pairs); }
};

Result<Counts> count_tiles(const Mask& mask, const AttentionShape& shape) {
  Counts counts;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const auto tiles = tile_map(mask, shape, batch, 0, tile, tile);
    if (!tiles) return tiles.error();
    counts.empty += tiles->empty;
    counts.full += tiles->full;
    counts.partial += tiles->partial;
    counts.visible_pairs += tiles->visible_pairs;
    counts.pairs += shape.q_len * shape.kv_len;
  }
  return counts;
}

/// Of sample 0 and head 0, at most 128 squares wide so that the small structure shows.
Result<void> write_picture(const std::string& folder, const char* name, const Mask& mask, const AttentionShape& shape) {
  const std::int64_t side = std::max<std::int64_t>(1, shape.q_len / 128);
  const auto tiles = tile_map(mask, shape, 0, 0, side, side);
  if (!tiles) return tiles.error();
  const std::string path = (std::filesystem::path(folder) / name).string() + ".png";
  return tool::write_png(path, "--pictures", tool::draw_tiles(*tiles, nullptr));
}

/// NAME.json and its arrays, in the form that `flashspan --mask NAME.json` takes.
Result<void> save_mask(const std::string& folder, const FamilyMask& family) {
  const std::string name = to_string(family.family);
  const std::filesystem::path base = std::filesystem::path(folder) / name;
  Json description = Json::object();
  for (const auto& [part, array] : family.arrays) {
    std::string file = name;
    file.append("_").append(part).append(".npy");
    description[part] = file;
    const std::string header = tool::npy_header(array);
    auto written = tool::write_file_atomically((std::filesystem::path(folder) / file).string(), "--save",
                                               [&](const tool::ByteSink& sink) {
                                                 sink(header.data(), header.size());
                                                 sink(array.bytes.data(), static_cast<std::size_t>(array.byte_count()));
                                               });
    if (!written) return written;
  }
  if (family.arrays.contains("flashmask")) description["causal"] = family.causal;
  if (family.arrays.empty()) description["expr"] = family.causal ? "q >= k" : "True";
  const std::string text = description.dump(2) + "\n";
  return tool::write_file_atomically(base.string() + ".json", "--save",
                                     [&](const tool::ByteSink& sink) { sink(text.data(), text.size()); });
}

/// Everything known of one family; `run` only if it was run.
struct Row {
  Family family = Family::full;
  Counts counts;
  std::optional<double> paper;
  std::optional<FamilyRun> run;
};

Json to_json(const flashmask::DirectionRun& run) {
  Json json = tool::to_json(run.record);
  json["run_ms"] = run.milliseconds;
  return json;
}

Json to_json(const Row& row) {
  Json json{{"family", to_string(row.family)},
            {"density", row.counts.density()},
            {"empty", row.counts.empty},
            {"full", row.counts.full},
            {"partial", row.counts.partial},
            {"sparsity", row.counts.sparsity()},
            {"paper_sparsity", row.paper ? Json(*row.paper) : Json(nullptr)}};
  if (!row.run) return json;
  const flashmask::Differences& differences = row.run->differences;
  json["forward"] = to_json(row.run->forward);
  json["backward"] = to_json(row.run->backward);
  json["largest_error"] = {{"out", differences.out.error},
                           {"lse", differences.lse.error},
                           {"dq", differences.query_gradient.error},
                           {"dk", differences.key_gradient.error},
                           {"dv", differences.value_gradient.error}};
  json["accurate"] = row.run->accurate;
  return json;
}

void print_counts(const std::vector<Row>& rows) {
  tool::Table table({"family", "density", "empty", "full", "partial", "sparsity", "paper"});
  for (const Row& row : rows) {
    table.add({to_string(row.family), tool::fixed(row.counts.density(), 4), std::to_string(row.counts.empty),
               std::to_string(row.counts.full), std::to_string(row.counts.partial),
               tool::fixed(row.counts.sparsity(), 3), row.paper ? tool::fixed(*row.paper, 2) : "-"});
  }
  table.print();
}

void print_runs(const std::vector<Row>& rows) {
  tool::Table table({"family", "lowering", "compile ms", "", "registers", "", "run ms", "", "error out", "lse", "dq",
                     "dk", "dv", "check"});
  for (const Row& row : rows) {
    const FamilyRun& run = *row.run;
    const flashmask::Differences& differences = run.differences;
    table.add({to_string(row.family), run.forward.record.lowering, tool::fixed(run.forward.record.compile_ms, 0),
               tool::fixed(run.backward.record.compile_ms, 0), std::to_string(run.forward.record.registers),
               std::to_string(run.backward.record.registers), tool::fixed(run.forward.milliseconds, 2),
               tool::fixed(run.backward.milliseconds, 2), tool::short_number(differences.out.error),
               tool::short_number(differences.lse.error), tool::short_number(differences.query_gradient.error),
               tool::short_number(differences.key_gradient.error), tool::short_number(differences.value_gradient.error),
               run.accurate ? "ok" : "WRONG"});
  }
  table.print();
}

Result<void> make_folders(const Options& options) {
  for (const std::string& folder : {options.pictures, options.save}) {
    std::error_code failure;
    if (!folder.empty()) std::filesystem::create_directories(folder, failure);
    if (failure) return Error{ErrorCode::io_error, folder, failure.message(), "a folder that can be made", ""};
  }
  return {};
}

Result<std::vector<Family>> chosen_families(const Options& options) {
  if (options.family.empty()) return flashmask::all_families();
  std::string names;
  for (const Family family : flashmask::all_families()) {
    if (options.family == to_string(family)) return std::vector<Family>{family};
    names += (names.empty() ? "" : ", ") + std::string(to_string(family));
  }
  return Error{ErrorCode::bad_argument, "--family", options.family, "one of " + names, ""};
}

/// `runner` is null when tiles are only counted.
Result<Row> measure(Family family, const Options& options, const std::vector<flashmask::Sample>& samples,
                    const AttentionShape& shape, flashmask::FamilyRunner* runner) {
  const FamilyMask family_mask = flashmask::build_family(family, samples, shape.query_heads);
  const auto mask = family_mask.mask(shape);
  if (!mask) return mask.error();
  auto counts = count_tiles(*mask, shape);
  if (!counts) return counts.error();
  Row row{family, *counts, flashmask::paper_sparsity(family, options.length), {}};
  if (!options.pictures.empty()) {
    if (auto written = write_picture(options.pictures, to_string(family), *mask, shape); !written)
      return written.error();
  }
  if (!options.save.empty()) {
    if (auto saved = save_mask(options.save, family_mask); !saved) return saved.error();
  }
  if (runner == nullptr) return row;
  auto run = runner->run(family_mask, options.repeats, static_cast<std::int64_t>(family));
  if (!run) return run.error();
  row.run = std::move(*run);
  return row;
}

Result<std::vector<Row>> measure_all(const Options& options, std::string& device_name) {
  const auto dtype = dtype_from_string(options.dtype);
  if (!dtype || *dtype == DType::i32) {
    return Error{ErrorCode::bad_argument, "--dtype", options.dtype, "f32, f16 or bf16", ""};
  }
  const auto families = chosen_families(options);
  if (!families) return families.error();
  const auto samples = flashmask::read_document_lists(options.lists, options.length);
  if (!samples) return samples.error();
  if (auto made = make_folders(options); !made) return made.error();
  const AttentionShape shape{static_cast<std::int64_t>(samples->size()),
                             options.heads,
                             options.heads,
                             options.length,
                             options.length,
                             options.head_dim,
                             options.head_dim};
  std::optional<flashmask::FamilyRunner> runner;
  if (!options.only_count) {
    const auto device = device_from_string(options.device);
    if (!device) return device.error();
    device_name = to_string(*device);
    auto created = flashmask::FamilyRunner::create(*device, *dtype, shape);
    if (!created) return created.error();
    runner.emplace(std::move(*created));
  }
  std::vector<Row> rows;
  tool::Progress progress(static_cast<int>(families->size()), options.json);
  for (const Family family : *families) {
    progress.step(to_string(family));
    auto row = measure(family, options, *samples, shape, runner ? &*runner : nullptr);
    if (!row) return row.error();
    rows.push_back(std::move(*row));
  }
  return rows;
}

ExitCode run(const Options& options) {
  std::string device = "none";
  const auto rows = measure_all(options, device);
  if (!rows) return tool::report_error(rows.error(), options.json);
  bool accurate = true;
  for (const Row& row : *rows) accurate = accurate && (!row.run || row.run->accurate);
  if (options.json) {
    Json report{{"length", options.length}, {"heads", options.heads}, {"head_dim", options.head_dim},
                {"dtype", options.dtype},   {"device", device},       {"families", Json::array()}};
    for (const Row& row : *rows) report["families"].push_back(to_json(row));
    tool::print_json(report);
  } else {
    std::printf("%lld tokens, five samples; tiles of 128 x 128 of head 0, sparsity = share of empty tiles\n",
                static_cast<long long>(options.length));
    print_counts(*rows);
    if (!options.only_count) {
      std::printf("\n%s, %s, batch 5, %lld heads, head dim %lld; forward and backward; errors against binary64\n",
                  device.c_str(), options.dtype.c_str(), static_cast<long long>(options.heads),
                  static_cast<long long>(options.head_dim));
      print_runs(*rows);
    }
  }
  if (accurate) return ExitCode::ok;
  std::fprintf(stderr, "flashmask_families: an error is larger than rounding explains\n");
  return ExitCode::bad_input;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App application("The mask families of the FlashMask paper, forward and backward.", "flashmask_families");
  application.add_option("--length", options.length, "Tokens: 8192, 32768 and 131072 are the paper's lists")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  application.add_option("--heads", options.heads, "Heads")->check(CLI::Range(1, 1024))->capture_default_str();
  application.add_option("--head-dim", options.head_dim, "Head dimension")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  application.add_option("--dtype", options.dtype, "f32 (CPU only), f16 or bf16")->capture_default_str();
  application.add_option("--device", options.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  application.add_option("--repeats", options.repeats, "Timed launches")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  application.add_option("--family", options.family, "Only this family");
  application.add_option("--lists", options.lists, "Document lists (JSON)");
  application.add_option("--pictures", options.pictures, "Write a PNG of every mask into this folder");
  application.add_option("--save", options.save, "Write every mask as JSON and .npy for flashspan --mask");
  application.add_flag("--only-count", options.only_count, "Count tiles; run nothing");
  application.add_flag("--json", options.json, "Report as JSON");
  try {
    application.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return application.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "flashmask_families: %s\n", error.what());
    return static_cast<int>(ExitCode::bad_input);
  }
  return static_cast<int>(run(options));
}
