// mask_source.cpp -- reads the JSON mask files and the arrays they name, and builds the mask.
#include "tools/flashspan/mask_source.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <set>
#include <utility>
#include <variant>

#include "tools/flashspan/files.hpp"
#include "tools/flashspan/npz.hpp"

namespace flashspan::tool {
namespace {

constexpr std::int64_t default_length = 8192;
constexpr const char* known_forms =
    "one of {expr, tensors?, scalars?}, {flashmask, causal}, {ranges, offsets?}, {q_idx, k_idx, q_hash?, k_hash?, "
    "strict?}, {q_ranges, k_ranges, types}";

Error bad(const std::string& argument, const std::string& got, const std::string& takes) {
  return {ErrorCode::bad_argument, argument, got, takes, ""};
}

/// "name=value" taken apart; both sides non-empty.
Result<std::pair<std::string, std::string>> split_assignment(const std::string& option, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return bad(option, text, option == "--tensor" ? "name=file.npy" : "name=number");
  }
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

/// An integer stays one; anything else must be a whole real number text.
Result<NamedScalar> scalar_from_text(const std::string& name, const std::string& text) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  std::int64_t integer = 0;
  if (const auto [stop, status] = std::from_chars(begin, end, integer); status == std::errc() && stop == end) {
    return NamedScalar{name, integer};
  }
  double real = 0;
  if (const auto [stop, status] = std::from_chars(begin, end, real); status == std::errc() && stop == end) {
    return NamedScalar{name, real};
  }
  return bad("--scalar", name + "=" + text, "name=number");
}

/// Position of a flat index, as "[0, 3, 1]".
std::string position_text(std::int64_t flat, const std::vector<std::int64_t>& shape) {
  std::string text = "]";
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    text.insert(0, (axis > 0 ? ", " : "[") + std::to_string(flat % shape[axis]));
    flat /= shape[axis];
  }
  return text;
}

/// None of a text that is no expression: whoever parses it says what is wrong with it.
std::set<std::string> used_names(const std::string& text) {
  const auto names = names_in(text);
  if (!names) return {};
  return {names->begin(), names->end()};
}

/// Index arrays hold integers; a NaN among reals is named, since it is the likeliest cause of a real array.
Result<void> require_integers(const std::string& name, const std::string& file, const HostArray& array) {
  if (array.dtype == DType::i32) return {};
  const HostArray reals = converted(array, DType::f32);
  const float* values = reals.data<float>();
  const float* end = values + reals.element_count();
  const float* found = std::find_if(values, end, [](float value) { return std::isnan(value); });
  const std::string where = found == end ? "" : "NaN at " + position_text(found - values, reals.shape) + " of ";
  return bad(name, where + to_string(array) + " in " + file, "int32 or int64 indices");
}

/// Every key of `object` is one of `required` or `optional`, and every required one is there.
bool has_exactly(const nlohmann::json& object, std::initializer_list<const char*> required,
                 std::initializer_list<const char*> optional = {}) {
  const auto is = [](const std::string& key) { return [&key](const char* name) { return key == name; }; };
  for (const auto& item : object.items()) {
    if (std::none_of(required.begin(), required.end(), is(item.key())) &&
        std::none_of(optional.begin(), optional.end(), is(item.key()))) {
      return false;
    }
  }
  return std::all_of(required.begin(), required.end(), [&](const char* name) { return object.contains(name); });
}

std::string keys_text(const nlohmann::json& object) {
  std::string text;
  for (const auto& item : object.items()) text += (text.empty() ? "" : ", ") + item.key();
  return "{" + text + "}";
}

/// Text names in a JSON file that are paths, resolved against the file's folder.
std::string resolved(const std::string& path, const std::string& folder) {
  return (std::filesystem::path(folder) / path).string();
}

Result<std::variant<std::int64_t, double>> number_from_json(const std::string& name, const nlohmann::json& value) {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > largest) {
    return bad("scalars." + name, value.dump(), "a number of 64 bits with sign");
  }
  if (value.is_number_integer()) return std::variant<std::int64_t, double>(value.get<std::int64_t>());
  if (value.is_number_float()) return std::variant<std::int64_t, double>(value.get<double>());
  return bad("scalars." + name, value.dump(), "a number");
}

}  // namespace

Result<MaskSource> MaskSource::read(const MaskOptions& options) {
  MaskSource source;
  source.text_ = options.mask;
  source.score_text_ = options.score;
  if (!options.lowering.empty()) {
    source.lowering_ = lowering_from_string(options.lowering);
    if (!source.lowering_) {
      return bad("--lowering", options.lowering,
                 "none, row_ranges, column_bounds, bit_tiles, expression or interpreted");
    }
  }
  if (auto read = source.read_named_options(options); !read) return read.error();
  if (options.mask.ends_with(".json")) {
    if (auto read = source.read_json(options.mask); !read) return read.error();
  }
  if (auto used = source.require_used(); !used) return used.error();
  return source;
}

Result<void> MaskSource::read_named_options(const MaskOptions& options) {
  for (const std::string& text : options.tensors) {
    const auto assignment = split_assignment("--tensor", text);
    if (!assignment) return assignment.error();
    auto array = read_array(assignment->second, "--tensor " + assignment->first);
    if (!array) return array.error();
    if (!tensors_.emplace(assignment->first, std::move(*array)).second) {
      return bad("--tensor", assignment->first + " twice", "each name once");
    }
  }
  for (const std::string& text : options.scalars) {
    const auto assignment = split_assignment("--scalar", text);
    if (!assignment) return assignment.error();
    auto scalar = scalar_from_text(assignment->first, assignment->second);
    if (!scalar) return scalar.error();
    scalars_.push_back(std::move(*scalar));
  }
  return {};
}

Result<void> MaskSource::read_json(const std::string& path) {
  const auto bytes = read_file(path, "--mask");
  if (!bytes) return bytes.error();
  const auto* text = reinterpret_cast<const char*>(bytes->data());
  const nlohmann::json object = nlohmann::json::parse(text, text + bytes->size(), nullptr, false);
  if (object.is_discarded()) return bad("--mask", path + ", which is not JSON", known_forms);
  if (!object.is_object()) return bad("--mask", std::string(object.type_name()) + " in " + path, known_forms);

  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::map<std::string, std::string> files;
  if (has_exactly(object, {"expr"}, {"tensors", "scalars"})) {
    return read_expression(object["expr"], object.value("tensors", nlohmann::json::object()),
                           object.value("scalars", nlohmann::json::object()), folder);
  }
  if (has_exactly(object, {"flashmask", "causal"})) {
    form_ = Form::flashmask;
  } else if (has_exactly(object, {"ranges"})) {
    form_ = Form::key_ranges;
  } else if (has_exactly(object, {"ranges", "offsets"})) {
    form_ = Form::key_ranges_csr;
  } else if (has_exactly(object, {"q_idx", "k_idx"}, {"q_hash", "k_hash", "strict"})) {
    form_ = Form::scfa;
    if (object.contains("q_hash") != object.contains("k_hash")) {
      return bad("--mask", keys_text(object) + " in " + path, "q_hash and k_hash together");
    }
  } else if (has_exactly(object, {"q_ranges", "k_ranges", "types"})) {
    form_ = Form::slices;
  } else {
    return bad("--mask", keys_text(object) + " in " + path, known_forms);
  }
  for (const auto& item : object.items()) {
    const bool flag = item.key() == "causal" || item.key() == "strict";
    if (flag && !item.value().is_boolean()) return bad(item.key(), item.value().dump(), "true or false");
    if (!flag && !item.value().is_string()) return bad(item.key(), item.value().dump(), "a path");
    if (!flag) files[item.key()] = item.value().get<std::string>();
  }
  causal_ = object.value("causal", false);
  strict_ = object.value("strict", false);
  return read_arrays(files, folder);
}

Result<void> MaskSource::read_expression(const nlohmann::json& text, const nlohmann::json& tensors,
                                         const nlohmann::json& scalars, const std::string& folder) {
  if (!text.is_string()) return bad("expr", text.dump(), "text");
  if (!tensors.is_object()) return bad("tensors", tensors.dump(), "an object of name: path");
  if (!scalars.is_object()) return bad("scalars", scalars.dump(), "an object of name: number");
  text_ = text.get<std::string>();
  for (const auto& item : tensors.items()) {
    if (!item.value().is_string()) return bad("tensors." + item.key(), item.value().dump(), "a path");
    auto array = read_array(resolved(item.value().get<std::string>(), folder), "tensors." + item.key());
    if (!array) return array.error();
    tensors_.insert_or_assign(item.key(), std::move(*array));
  }
  for (const auto& item : scalars.items()) {
    const auto value = number_from_json(item.key(), item.value());
    if (!value) return value.error();
    scalars_.push_back({item.key(), *value});
  }
  return {};
}

Result<void> MaskSource::read_arrays(const std::map<std::string, std::string>& files, const std::string& folder) {
  for (const auto& [name, path] : files) {
    const std::string file = resolved(path, folder);
    auto array = read_array(file, name);
    if (!array) return array.error();
    if (auto integers = require_integers(name, file, *array); !integers) return integers;
    arrays_.emplace(name, std::move(*array));
  }
  return {};
}

std::optional<std::int64_t> MaskSource::length_of(const std::string& name, std::size_t rank, std::size_t axis) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end() || found->second.shape.size() != rank) return std::nullopt;
  return found->second.shape[axis];
}

std::optional<std::int64_t> MaskSource::largest_value(const std::string& name) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end() || found->second.element_count() == 0) return std::nullopt;
  const auto* values = found->second.data<std::int32_t>();
  return std::max<std::int64_t>(0, *std::max_element(values, values + found->second.element_count()));
}

MaskSource::ArraySizes MaskSource::array_sizes() const {
  ArraySizes sizes;
  switch (form_) {
    case Form::text:
      break;
    case Form::flashmask:
      sizes = {length_of("flashmask", 4, 0), length_of("flashmask", 4, 1), {}, length_of("flashmask", 4, 2)};
      break;
    case Form::key_ranges:
      sizes = {length_of("ranges", 5, 0), length_of("ranges", 5, 1), length_of("ranges", 5, 2),
               largest_value("ranges")};
      break;
    case Form::key_ranges_csr:
      sizes = {length_of("offsets", 3, 0), length_of("offsets", 3, 1), length_of("offsets", 3, 2),
               largest_value("ranges")};
      if (sizes.q_len) sizes.q_len = std::max<std::int64_t>(0, *sizes.q_len - 1);
      break;
    case Form::scfa:
      sizes = {length_of("q_idx", 3, 0), length_of("q_idx", 3, 1), length_of("q_idx", 3, 2), length_of("k_idx", 3, 2)};
      break;
    case Form::slices:
      sizes = {{}, {}, largest_value("q_ranges"), largest_value("k_ranges")};
      break;
  }
  return sizes;
}

AttentionShape MaskSource::shape(const ShapeOptions& options) const {
  const ArraySizes sizes = array_sizes();
  const auto first_of = [](auto... candidates) {
    std::optional<std::int64_t> result;
    ((result = result ? result : candidates), ...);
    return result;
  };
  AttentionShape shape;
  shape.batch = first_of(options.batch, sizes.batch).value_or(1);
  shape.query_heads = first_of(options.query_heads, options.kv_heads, sizes.heads).value_or(1);
  shape.kv_heads = options.kv_heads.value_or(shape.query_heads);
  shape.q_len = first_of(options.q_len, sizes.q_len, options.kv_len, sizes.kv_len).value_or(default_length);
  shape.kv_len = first_of(options.kv_len, sizes.kv_len).value_or(shape.q_len);
  shape.head_dim_qk = options.head_dim_qk;
  shape.head_dim_v = options.head_dim_v.value_or(options.head_dim_qk);
  return shape;
}

template <typename Predicate>
MaskSource::NamedData MaskSource::data_where(const Predicate& wanted) const {
  NamedData data;
  for (const auto& [name, array] : tensors_) {
    if (wanted(name)) data.tensors.push_back({name, array.view()});
  }
  std::ranges::copy_if(scalars_, std::back_inserter(data.scalars), wanted, &NamedScalar::name);
  return data;
}

MaskSource::NamedData MaskSource::data_of_mask() const {
  return data_where([mine = used_names(text_), of_score = used_names(score_text_)](const std::string& name) {
    return mine.contains(name) || !of_score.contains(name);
  });
}

MaskSource::NamedData MaskSource::data_of_score() const {
  return data_where([mine = used_names(score_text_)](const std::string& name) { return mine.contains(name); });
}

Result<void> MaskSource::require_used() const {
  if (form_ == Form::text) return {};
  const auto used = used_names(score_text_);
  for (const auto& item : tensors_) {
    if (!used.contains(item.first)) return bad("--tensor", item.first, "a name that the score uses");
  }
  for (const NamedScalar& scalar : scalars_) {
    if (!used.contains(scalar.name)) return bad("--scalar", scalar.name, "a name that the score uses");
  }
  return {};
}

TensorView MaskSource::array(const std::string& name) const { return arrays_.at(name).view(); }

Result<Mask> MaskSource::mask(const AttentionShape& shape) const {
  auto mask = built(shape);
  if (!mask || !lowering_) return mask;
  return mask->with_lowering(Direction::forward, *lowering_);
}

Result<Mask> MaskSource::built(const AttentionShape& shape) const {
  switch (form_) {
    case Form::text: {
      const NamedData data = data_of_mask();
      return Mask::parse(text_, data.tensors, data.scalars);
    }
    case Form::flashmask:
      return Mask::flashmask(shape, array("flashmask"), causal_);
    case Form::key_ranges:
      return Mask::key_ranges(shape, array("ranges"));
    case Form::key_ranges_csr:
      return Mask::key_ranges_csr(shape, array("offsets"), array("ranges"));
    case Form::scfa:
      if (!arrays_.contains("q_hash")) return Mask::scfa_index(shape, array("q_idx"), array("k_idx"), strict_);
      return Mask::scfa_hash(shape, array("q_idx"), array("k_idx"), array("q_hash"), array("k_hash"), strict_);
    case Form::slices:
      return Mask::slices(shape, array("q_ranges"), array("k_ranges"), array("types"));
  }
  return bad("--mask", text_, known_forms);
}

std::vector<std::int64_t> MaskSource::tensor_shape(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? std::vector<std::int64_t>() : found->second.shape;
}

Result<std::optional<Score>> MaskSource::score() const {
  if (score_text_.empty()) return std::optional<Score>();
  const NamedData data = data_of_score();
  auto score = Score::parse(score_text_, data.tensors, data.scalars);
  if (!score) return score.error();
  return std::optional<Score>(std::move(*score));
}

}  // namespace flashspan::tool
