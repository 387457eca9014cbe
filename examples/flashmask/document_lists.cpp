// document_lists.cpp -- reads and scales the benchmark's document lengths.
#include "examples/flashmask/document_lists.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/flashspan/files.hpp"

namespace flashspan::flashmask {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t scaled_from = 8192;
constexpr std::int64_t shortest_length = 256;  // below it, documents of the lists vanish

Error malformed(const std::string& path) {
  return {ErrorCode::bad_argument, "document lists", path, "{\"lists\": [{\"length\", \"samples\"}]}", ""};
}

/// Scales the boundaries, not the lengths, so that the sum stays exact.
Sample scaled(const Sample& sample, std::int64_t from, std::int64_t to) {
  Sample result;
  std::int64_t begin = 0;
  for (const Document& document : sample) {
    const std::int64_t scaled_begin = begin * to / from;
    const std::int64_t scaled_end = (begin + document.length) * to / from;
    result.push_back({document.prefix * to / from, scaled_end - scaled_begin, document.dropped});
    begin += document.length;
  }
  return result;
}

/// Throws Json::exception if `samples` is anything but lists of [prefix, length, dropped].
std::vector<Sample> samples_of(const Json& samples) {
  std::vector<Sample> result;
  for (const Json& sample : samples) {
    Sample& documents = result.emplace_back();
    for (const Json& document : sample) {
      documents.push_back(
          {document.at(0).get<std::int64_t>(), document.at(1).get<std::int64_t>(), document.at(2).get<int>() != 0});
    }
  }
  return result;
}

/// True if every sample's documents are of one token or more and add up to `length`.
bool fill(const std::vector<Sample>& samples, std::int64_t length) {
  return std::all_of(samples.begin(), samples.end(), [&](const Sample& sample) {
    std::int64_t left = length;
    for (const Document& document : sample) {
      if (document.length < 1 || document.length > left || document.prefix < 0) return false;
      left -= document.length;
    }
    return left == 0;
  });
}

}  // namespace

Result<std::vector<Sample>> read_document_lists(const std::string& path, std::int64_t length) {
  if (length < shortest_length) {
    return Error{ErrorCode::bad_argument, "length", std::to_string(length),
                 std::to_string(shortest_length) + " or more", ""};
  }
  const auto bytes = tool::read_file(path, "document lists");
  if (!bytes) return bytes.error();
  const auto* text = reinterpret_cast<const char*>(bytes->data());
  const Json file = Json::parse(text, text + bytes->size(), nullptr, false);
  if (!file.is_object() || !file.contains("lists")) return malformed(path);
  try {
    std::vector<Sample> base;
    for (const Json& list : file.at("lists")) {
      const auto listed = list.at("length").get<std::int64_t>();
      if (listed != length && listed != scaled_from) continue;
      std::vector<Sample> samples = samples_of(list.at("samples"));
      if (!fill(samples, listed)) return malformed(path);
      if (listed == length) return samples;
      base = std::move(samples);
    }
    for (Sample& sample : base) sample = scaled(sample, scaled_from, length);
    if (base.empty()) return malformed(path);
    return base;
  } catch (const Json::exception&) {
    return malformed(path);
  }
}

}  // namespace flashspan::flashmask
