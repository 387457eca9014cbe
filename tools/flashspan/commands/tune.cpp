// tune.cpp -- `flashspan tune`: the fastest tiles of a mask's kernels on this device, and tables of them put together.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/tuning.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/mask_source.hpp"
#include "tools/flashspan/tuning_problem.hpp"

namespace flashspan::tool {
namespace {

struct TuneCommandOptions {
  MaskOptions mask;
  ShapeOptions shape;
  std::vector<std::int64_t> head_dims, lengths;
  std::string dtype = "bf16", device = "auto", direction = "both", shard = "0/1";
  std::vector<std::string> tiles;
  std::optional<std::string> cache_dir;
  std::string out;
  int most_candidates = 0;
  double time_limit_seconds = 60;
  bool deterministic = false, dry_run = false, json = false;
};

struct MergeOptions {
  std::vector<std::string> files;
  std::string out;
  std::optional<std::string> cache_dir;
  bool json = false;
};

/// One kernel at one size.
struct Task {
  ShapeOptions sizes;
  Direction direction = Direction::forward;
};

struct Shard {
  std::size_t number = 0, of = 1;
};

Result<Shard> shard_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = [](std::string_view digits, std::size_t& value) {
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return status == std::errc{} && end == digits.data() + digits.size();
  };
  Shard shard;
  const std::string_view all = text;
  if (slash == std::string::npos || !number(all.substr(0, slash), shard.number) ||
      !number(all.substr(slash + 1), shard.of) || shard.number >= shard.of) {
    return Error{ErrorCode::bad_argument, "--shard", text, "I/N, the I-th of N shares, counted from 0", ""};
  }
  return shard;
}

std::vector<Task> tasks_of(const TuneCommandOptions& options, const Shard& shard) {
  const std::vector<std::int64_t> head_dims =
      options.head_dims.empty() ? std::vector{options.shape.head_dim_qk} : options.head_dims;
  std::vector<std::optional<std::int64_t>> lengths(options.lengths.begin(), options.lengths.end());
  if (lengths.empty()) lengths.emplace_back();
  std::vector<Task> tasks;
  std::size_t number = 0;
  for (const std::int64_t head_dim : head_dims) {
    for (const std::optional<std::int64_t> length : lengths) {
      for (const Direction direction : {Direction::forward, Direction::backward}) {
        if (options.direction != "both" && options.direction != to_string(direction)) continue;
        if (number++ % shard.of != shard.number) continue;
        Task task{options.shape, direction};
        task.sizes.head_dim_qk = head_dim;
        if (length) task.sizes.q_len = task.sizes.kv_len = length;
        tasks.push_back(task);
      }
    }
  }
  return tasks;
}

std::string label_of(const Task& task, const AttentionShape& shape) {
  return std::string(to_string(task.direction)) + " d" + std::to_string(shape.head_dim_qk) + " " +
         std::to_string(shape.q_len) + " x " + std::to_string(shape.kv_len);
}

std::vector<std::string> resource_cells(const TileResources& resources) {
  return {to_string(resources.tile), bytes_text(resources.shared_bytes), std::to_string(resources.registers),
          std::to_string(resources.blocks_per_multiprocessor), fixed(resources.occupancy, 2)};
}

void print_candidates(const std::string& label, const TuneReport& report) {
  std::printf("%s\n", label.c_str());
  Table table({"tile", "shared memory", "registers", "blocks", "occupancy", "ms", "outcome"});
  for (const TunedCandidate& candidate : report.candidates) {
    std::vector<std::string> row = resource_cells(candidate.resources);
    row.push_back(candidate.milliseconds > 0 ? fixed(candidate.milliseconds, 4) : "-");
    row.emplace_back(to_string(candidate.outcome));
    table.add(std::move(row));
  }
  table.print();
  for (const TunedCandidate& candidate : report.candidates) {
    const bool failed = candidate.outcome == TuneOutcome::wrong || candidate.outcome == TuneOutcome::failed;
    if (failed) std::printf("%s: %s\n", to_string(candidate.resources.tile).c_str(), candidate.note.c_str());
  }
  const TuningRecord& best = report.best;
  std::printf("best: %s, %s ms; default %s, %s ms\n\n", to_string(best.tile).c_str(),
              fixed(best.milliseconds, 4).c_str(), to_string(best.default_tile).c_str(),
              fixed(best.default_milliseconds, 4).c_str());
}

void print_resources(const std::string& label, const std::vector<TileResources>& tiles) {
  std::printf("%s\n", label.c_str());
  Table table({"tile", "shared memory", "registers", "blocks", "occupancy", "cost"});
  for (const TileResources& resources : tiles) {
    std::vector<std::string> row = resource_cells(resources);
    row.push_back(fixed(resources.predicted_cost, 3));
    table.add(std::move(row));
  }
  table.print();
  std::printf("\n");
}

/// The candidates, best first by the model; nothing is compiled.
ExitCode run_dry(const TuneCommandOptions& options, const MaskSource& source, const std::vector<Task>& tasks,
                 DType dtype) {
  std::optional<Arch> arch;
  if (options.device != "cpu") {
    const auto archs = arch_list(options.device);
    if (!archs || archs->size() != 1) {
      return report_error({ErrorCode::bad_argument, "--device", options.device,
                           "cpu or an architecture such as sm_90a with --dry-run", ""},
                          options.json);
    }
    arch = archs->front();
  }
  Json report{{"kernels", Json::array()}};
  for (const Task& task : tasks) {
    const AttentionShape shape = source.shape(task.sizes);
    const auto mask = source.mask(shape);
    if (!mask) return report_error(mask.error(), options.json);
    const auto score = source.score();
    if (!score) return report_error(score.error(), options.json);
    const auto tiles = tile_candidates(*mask, *score ? &**score : nullptr, shape, dtype, task.direction, arch);
    if (!tiles) return report_error(tiles.error(), options.json);
    if (!options.json) print_resources(label_of(task, shape), *tiles);
    Json kernel{{"kernel", label_of(task, shape)}, {"tiles", Json::array()}};
    for (const TileResources& resources : *tiles) kernel["tiles"].push_back(to_json(resources));
    report["kernels"].push_back(std::move(kernel));
  }
  if (options.json) print_json(report);
  return ExitCode::ok;
}

Result<TuneReport> tune_one(const Task& task, const MaskSource& source, Attention& attention, DType dtype,
                            const TuneCommandOptions& options, const std::vector<TileConfig>& tiles) {
  const AttentionShape shape = source.shape(task.sizes);
  auto problem = TuningProblem::make(source, shape, dtype, attention.device(), task.direction, options.deterministic);
  if (!problem) return problem.error();
  const std::string label = label_of(task, shape);
  std::optional<Progress> progress;
  TuneOptions tuning;
  tuning.tiles = tiles;
  tuning.most_candidates = options.most_candidates;
  tuning.time_limit_seconds = options.time_limit_seconds;
  tuning.progress = [&](int, int all, const TunedCandidate& candidate) {
    if (!progress) progress.emplace(all, options.json);
    progress->step(label + ", " + to_string(candidate.resources.tile) + ": " +
                   (candidate.milliseconds > 0 ? fixed(candidate.milliseconds, 4) + " ms" : candidate.note));
  };
  return (*problem)->tune(attention, tuning);
}

ExitCode run_tune(const TuneCommandOptions& options) {
  const auto shard = shard_of(options.shard);
  if (!shard) return report_error(shard.error(), options.json);
  const auto dtype = float_dtype(options.dtype);
  if (!dtype) return report_error(dtype.error(), options.json);
  std::vector<TileConfig> tiles;
  for (const std::string& text : options.tiles) {
    const auto tile = tile_config(text);
    if (!tile) return report_error(tile.error(), options.json);
    tiles.push_back(*tile);
  }
  const auto source = MaskSource::read(options.mask);
  if (!source) return report_error(source.error(), options.json);
  const std::vector<Task> tasks = tasks_of(options, *shard);
  if (options.dry_run) return run_dry(options, *source, tasks, *dtype);
  const auto device = device_from_string(options.device);
  if (!device) return report_error(device.error(), options.json);
  AttentionOptions opening;
  opening.cache_dir = options.cache_dir;
  if (!options.out.empty()) opening.tuning_file = options.out;
  auto attention = Attention::open(*device, opening);
  if (!attention) return report_error(attention.error(), options.json);
  if (!options.out.empty()) {  // of a share without kernels too: in a merge, a file that is missing is a share that is
    if (auto made = merge_tuning_records(options.out, {}); !made) return report_error(made.error(), options.json);
  }
  if (tasks.empty() && !options.json) std::printf("no kernels in share %s\n", options.shard.c_str());
  Json report{{"kernels", Json::array()}};
  ExitCode code = ExitCode::ok;
  for (const Task& task : tasks) {
    const auto tuned = tune_one(task, *source, *attention, *dtype, options, tiles);
    const std::string label = label_of(task, source->shape(task.sizes));
    if (!tuned) {  // the other kernels are still worth tuning
      std::fprintf(stderr, "flashspan: %s: %s\n", label.c_str(), tuned.error().message().c_str());
      report["kernels"].push_back({{"kernel", label}, {"error", to_json(tuned.error())}});
      code = std::max(code, exit_code_of(tuned.error().code));
      continue;
    }
    if (!options.json) print_candidates(label, *tuned);
    if (!tuned->not_remembered.empty()) std::fprintf(stderr, "flashspan: %s\n", tuned->not_remembered.c_str());
    Json kernel = to_json(*tuned);
    kernel["kernel"] = label;
    report["kernels"].push_back(std::move(kernel));
  }
  if (options.json) print_json(report);
  return code;
}

ExitCode report_records(const std::string& path, bool json) {
  const auto records = read_tuning_file(path);
  if (!records) return report_error(records.error(), json);
  if (json) {
    Json report{{"file", path}, {"records", Json::array()}};
    for (const TuningRecord& record : *records) report["records"].push_back(to_json(record));
    print_json(report);
    return ExitCode::ok;
  }
  Table table({"kernel", "sizes", "device", "tile", "ms", "default ms", "date"});
  for (const TuningRecord& record : *records) {
    const AttentionShape& shape = record.shape;
    table.add({kernel_summary(record.spec),
               std::to_string(shape.batch) + " x " + std::to_string(shape.query_heads) + " x " +
                   std::to_string(shape.q_len) + " x " + std::to_string(shape.kv_len),
               record.device, to_string(record.tile), fixed(record.milliseconds, 4),
               fixed(record.default_milliseconds, 4), record.date});
  }
  table.print();
  std::printf("%zu records in %s\n", records->size(), path.c_str());
  return ExitCode::ok;
}

/// The file that is named, or the one that an Attention would read.
Result<std::string> chosen_file(const std::string& given, const std::optional<std::string>& cache_dir) {
  if (!given.empty()) return given;
  if (auto usual = tuning_file(cache_dir)) return *std::move(usual);
  return Error{ErrorCode::io_error, "tuning file", "no cache directory", "--out FILE", ""};
}

ExitCode run_merge(const MergeOptions& options) {
  std::vector<TuningRecord> records;
  for (const std::string& file : options.files) {
    auto read = read_tuning_file(file);
    if (!read) return report_error(read.error(), options.json);
    records.insert(records.end(), read->begin(), read->end());
  }
  const auto out = chosen_file(options.out, options.cache_dir);
  if (!out) return report_error(out.error(), options.json);
  if (auto merged = merge_tuning_records(*out, records); !merged) return report_error(merged.error(), options.json);
  return report_records(*out, options.json);
}

ExitCode run_list(const MergeOptions& options) {
  const auto file = chosen_file(options.out, options.cache_dir);
  if (!file) return report_error(file.error(), options.json);
  return report_records(*file, options.json);
}

void add_merge(CLI::App& tune, ChosenCommand& chosen) {
  CLI::App* command = tune.add_subcommand("merge", "Put tuning files together; the newest result of each kernel stays");
  auto options = std::make_shared<MergeOptions>();
  command->add_option("FILES", options->files, "Tuning files")->required();
  command->add_option("-o,--out", options->out, "Where to (default: the file that programs read)");
  add_cache_dir_option(*command, options->cache_dir);
  add_json_option(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run_merge(*options); }; });
}

void add_list(CLI::App& tune, ChosenCommand& chosen) {
  CLI::App* command = tune.add_subcommand("ls", "What a tuning file holds");
  auto options = std::make_shared<MergeOptions>();
  command->add_option("FILE", options->out, "Default: the file that programs read");
  add_cache_dir_option(*command, options->cache_dir);
  add_json_option(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run_list(*options); }; });
}

}  // namespace

void add_tune(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command =
      application.add_subcommand("tune", "Time the tiles that a mask's kernels may have, and remember the fastest");
  command->require_subcommand(0, 1);
  auto options = std::make_shared<TuneCommandOptions>();
  options->mask.mask = "causal";
  add_mask_options(*command, options->mask, false);
  add_lowering_option(*command, options->mask);
  add_shape_options(*command, options->shape);
  command->add_option("--head-dims", options->head_dims, "Several head dims, one after another")->delimiter(',');
  command->add_option("--lengths", options->lengths, "Several lengths, of queries and keys alike")->delimiter(',');
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16")->capture_default_str();
  command->add_option("--device", options->device, "auto, cpu, cuda, cuda:1; with --dry-run cpu or sm_90a, ...")
      ->capture_default_str();
  command->add_option("--direction", options->direction, "forward, backward or both")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->capture_default_str();
  command->add_flag("--deterministic", options->deterministic, "Backward kernels that give the same bits every time");
  command
      ->add_option("--tile", options->tiles,
                   "A tile to try beside the default, BLOCK_MxBLOCK_N,WARPS,STAGES (default: all that fit)")
      ->type_name("TILE");
  command->add_option("--most", options->most_candidates, "Only the first so many of the model's tiles")
      ->check(CLI::Range(1, 1000));
  command->add_option("--time-limit", options->time_limit_seconds, "Seconds for each kernel")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--shard", options->shard, "I/N: the I-th of N shares of the kernels, counted from 0")
      ->capture_default_str();
  command->add_option("--out", options->out, "Tuning file to add to (default: the file that programs read)")
      ->type_name("FILE");
  command->add_flag("--dry-run", options->dry_run, "Print the candidates and what they take; measure nothing");
  add_cache_dir_option(*command, options->cache_dir);
  add_json_option(*command, options->json);
  add_merge(*command, chosen);
  add_list(*command, chosen);
  command->callback([options, command, &chosen] {
    if (command->get_subcommands().empty()) chosen = [options] { return run_tune(*options); };
  });
}

}  // namespace flashspan::tool
