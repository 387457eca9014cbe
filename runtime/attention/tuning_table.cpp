#include "runtime/attention/tuning_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>
#include <utility>

#include "codegen/kernel/resource_model.hpp"

namespace flashspan::attention {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* separator = " = ";

int nearest_power(std::int64_t size) {
  return static_cast<int>(std::lround(std::log2(static_cast<double>(std::max<std::int64_t>(size, 1)))));
}

/// A spec's text as an object of its fields.
Json json_of_spec(const std::string& text) {
  Json fields = Json::object();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t middle = line.find(separator);
    if (middle != std::string::npos)
      fields[line.substr(0, middle)] = line.substr(middle + std::string(separator).size());
  }
  return fields;
}

std::string spec_from_json(const Json& fields) {
  std::string text;
  for (const auto& [name, value] : fields.items()) text += name + separator + value.get<std::string>() + "\n";
  return text;
}

Json json_of_tile(const TileConfig& tile) {
  return {{"block_m", tile.block_m},
          {"block_n", tile.block_n},
          {"num_warps", tile.num_warps},
          {"num_stages", tile.num_stages}};
}

TileConfig tile_from_json(const Json& json) {
  return {json.at("block_m"), json.at("block_n"), json.at("num_warps"), json.at("num_stages")};
}

Json json_of_shape(const AttentionShape& shape) {
  return {{"batch", shape.batch},          {"query_heads", shape.query_heads}, {"kv_heads", shape.kv_heads},
          {"q_len", shape.q_len},          {"kv_len", shape.kv_len},           {"head_dim_qk", shape.head_dim_qk},
          {"head_dim_v", shape.head_dim_v}};
}

AttentionShape shape_from_json(const Json& json) {
  return {json.at("batch"),  json.at("query_heads"), json.at("kv_heads"),  json.at("q_len"),
          json.at("kv_len"), json.at("head_dim_qk"), json.at("head_dim_v")};
}

/// What one record stays for.
using Identity = std::tuple<std::string, int, int, int, std::string, int, std::string, std::string>;
Identity identity_of(const TuningRecord& record) {
  std::string family = record.spec;
  if (const auto spec = kernel::KernelSpec::from_text(record.spec)) family = tuned_family(*spec).to_text();
  const ShapeClass sizes = shape_class(record.shape);
  return {family,        sizes.heads,       sizes.queries,   sizes.keys,
          record.device, record.processors, record.compiler, record.driver};
}

}  // namespace

ShapeClass shape_class(const AttentionShape& shape) {
  return {nearest_power(shape.batch * shape.query_heads), nearest_power(shape.q_len), nearest_power(shape.kv_len)};
}

int distance(const ShapeClass& a, const ShapeClass& b) {
  return std::abs(a.heads - b.heads) + std::abs(a.queries - b.queries) + std::abs(a.keys - b.keys);
}

kernel::KernelSpec tuned_family(kernel::KernelSpec spec) {
  spec.tile = TileConfig{};
  return spec;
}

std::string to_line(const TuningRecord& record) {
  const Json json{{"spec", json_of_spec(record.spec)},
                  {"shape", json_of_shape(record.shape)},
                  {"device", record.device},
                  {"processors", record.processors},
                  {"compiler", record.compiler},
                  {"driver", record.driver},
                  {"milliseconds", record.milliseconds},
                  {"default_tile", json_of_tile(record.default_tile)},
                  {"default_milliseconds", record.default_milliseconds},
                  {"candidates", record.candidates},
                  {"date", record.date}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<TuningRecord> record_from_line(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    TuningRecord record;
    const auto spec = kernel::KernelSpec::from_text(spec_from_json(json.at("spec")));
    if (!spec) return std::nullopt;
    record.spec = spec->to_text();
    record.tile = spec->tile;
    record.shape = shape_from_json(json.at("shape"));
    record.device = json.at("device");
    record.processors = json.at("processors");
    record.compiler = json.at("compiler");
    record.driver = json.at("driver");
    record.milliseconds = json.at("milliseconds");
    record.default_tile = tile_from_json(json.at("default_tile"));
    record.default_milliseconds = json.at("default_milliseconds");
    record.candidates = json.at("candidates");
    record.date = json.at("date");
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<TuningRecord> records_from_text(const std::string& text) {
  std::vector<TuningRecord> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (auto record = record_from_line(line)) records.push_back(*std::move(record));
  }
  return records;
}

std::string merged_text(const std::string& text, const std::vector<TuningRecord>& records) {
  std::string merged;
  std::map<Identity, TuningRecord> newest;
  const auto keep = [&newest](TuningRecord record) {
    const auto [place, is_new] = newest.try_emplace(identity_of(record), record);
    if (!is_new && place->second.date <= record.date) place->second = std::move(record);
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (auto record = record_from_line(line)) {
      keep(*std::move(record));
    } else if (!line.empty()) {
      merged += line + "\n";  // of a later version, perhaps: not ours to lose
    }
  }
  for (const TuningRecord& record : records) keep(record);
  for (const auto& [identity, record] : newest) merged += to_line(record) + "\n";
  return merged;
}

std::vector<TuningRecord> records_of_device(std::vector<TuningRecord> records, const backend::DeviceFacts& facts,
                                            const std::optional<std::string>& compiler) {
  std::erase_if(records, [&](const TuningRecord& record) {
    return record.device != facts.name || record.processors != facts.processors ||
           (compiler && record.compiler != *compiler);
  });
  return records;
}

TunedTiles::TunedTiles(const std::vector<TuningRecord>& records) {
  for (const TuningRecord& record : records) {
    const auto spec = kernel::KernelSpec::from_text(record.spec);
    if (!spec || !kernel::check_tile(*spec)) continue;
    auto& results = families_[tuned_family(*spec)];
    // The latest first; of the same time, in their order.
    const auto place = std::ranges::upper_bound(results, record.date, std::greater<>(),
                                                [](const Result& result) { return result.record.date; });
    results.insert(place, {shape_class(record.shape), record});
  }
}

const TunedTiles::Result* TunedTiles::nearest(const kernel::KernelSpec& family, const ShapeClass& sizes) const {
  const auto results = families_.find(family);
  if (results == families_.end()) return nullptr;
  const auto found = std::ranges::min_element(results->second, {},
                                              [&sizes](const Result& result) { return distance(result.sizes, sizes); });
  return &*found;
}

void TunedTiles::choose(kernel::KernelSpec& spec, const AttentionShape& shape) const {
  const TileConfig own = std::exchange(spec.tile, TileConfig{});  // now it is its own family
  const Result* const found = nearest(spec, shape_class(shape));
  spec.tile = found != nullptr ? found->record.tile : own;
}

std::vector<TileConfig> TunedTiles::tiles_of(const kernel::KernelSpec& spec) const {
  std::vector<TileConfig> tiles;
  const auto results = families_.find(tuned_family(spec));
  if (results == families_.end()) return tiles;
  for (const Result& result : results->second) {
    if (std::ranges::find(tiles, result.record.tile) == tiles.end()) tiles.push_back(result.record.tile);
  }
  return tiles;
}

std::optional<TunedTiles::Found> TunedTiles::find(const kernel::KernelSpec& spec, const AttentionShape& shape) const {
  const ShapeClass sizes = shape_class(shape);
  const Result* const found = nearest(tuned_family(spec), sizes);
  if (found == nullptr) return std::nullopt;
  return Found{found->record.tile, found->sizes == sizes, found->record};
}

}  // namespace flashspan::attention
