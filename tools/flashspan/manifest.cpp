#include "tools/flashspan/manifest.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/flashspan/files.hpp"

namespace flashspan::tool {
namespace {

/// A number in an error that the file may hold, "kernels[3].dtype".
std::string field_name(std::size_t kernel, const std::string& field) {
  return "kernels[" + std::to_string(kernel) + "]." + field;
}

Error bad(const std::string& argument, const nlohmann::json& got, const std::string& takes) {
  return {ErrorCode::bad_argument, argument, got.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), takes,
          ""};
}

/// "i32[2]": a tensor of that dtype and rank with one element, for a program to be bound to.
std::optional<TensorView> declared_tensor(const std::string& text) {
  static std::array<std::int32_t, 1> element{};
  const std::size_t bracket = text.find('[');
  if (bracket == std::string::npos || text.size() != bracket + 3 || text.back() != ']') return std::nullopt;
  const auto dtype = dtype_from_string(text.substr(0, bracket));
  const int rank = text[bracket + 1] - '0';
  if (!dtype || rank < 1 || rank > max_tensor_rank) return std::nullopt;
  TensorView view;
  view.data = element.data();
  view.dtype = *dtype;
  view.rank = rank;
  view.shape.fill(1);
  view.strides.fill(1);
  return view;
}

/// Reads the fields of one kernel; the first that is wrong is the error.
class KernelReader {
 public:
  KernelReader(const nlohmann::json& object, std::size_t number, std::string folder)
      : object_(object), number_(number), folder_(std::move(folder)) {}

  Result<std::vector<ManifestKernel>> read() {
    if (!object_.is_object()) return bad(field_name(number_, "*"), object_, "an object");
    for (const auto& item : object_.items()) {
      if (!known(item.key())) return bad(field_name(number_, item.key()), item.key(), "a field of the manifest");
    }
    if (auto made = read_programs(); !made) return made.error();
    const auto dtypes = read_dtypes();
    if (!dtypes) return dtypes.error();
    const auto head_dims = read_head_dims();
    if (!head_dims) return head_dims.error();
    if (auto done = read_flags(); !done) return done.error();
    std::vector<ManifestKernel> kernels;
    for (const DType dtype : *dtypes) {
      for (const int head_dim : *head_dims) add(dtype, head_dim, kernels);
    }
    return kernels;
  }

 private:
  static bool known(const std::string& field) {
    constexpr std::array fields{"mask",       "tensors",   "scalars",   "score",    "dtype",         "head_dim",
                                "head_dim_v", "direction", "unaligned", "few_rows", "deterministic", "interpreted"};
    return std::ranges::find(fields, field) != fields.end();
  }

  Result<void> read_programs() {
    const auto text = read_text("mask");
    if (!text) return text.error();
    prototype_.label = *text;
    if (auto data = read_data(); !data) return data;
    auto mask =
        text->ends_with(".json") ? read_mask_file(*text) : Mask::parse(*text, used_by(*text), scalars_of(*text));
    if (!mask) return mask.error();
    prototype_.mask = std::make_shared<Mask>(*std::move(mask));
    if (!object_.contains("score")) return {};
    const auto score_text = read_text("score");
    if (!score_text) return score_text.error();
    auto score = Score::parse(*score_text, used_by(*score_text), scalars_of(*score_text));
    if (!score) return score.error();
    prototype_.score = std::make_shared<Score>(*std::move(score));
    return {};
  }

  Result<Mask> read_mask_file(const std::string& name) {
    MaskOptions options;
    options.mask = (std::filesystem::path(folder_) / name).string();
    auto source = MaskSource::read(options);
    if (!source) return source.error();
    prototype_.source = std::make_shared<MaskSource>(*std::move(source));
    return prototype_.source->mask(prototype_.source->shape({}));
  }

  Result<void> read_data() {
    const nlohmann::json tensors = object_.value("tensors", nlohmann::json::object());
    const nlohmann::json scalars = object_.value("scalars", nlohmann::json::object());
    for (const auto& item : tensors.items()) {
      const auto view = item.value().is_string() ? declared_tensor(item.value().get<std::string>()) : std::nullopt;
      if (!view) return bad(field_name(number_, "tensors." + item.key()), item.value(), "dtype and rank, as i32[2]");
      tensors_.push_back({item.key(), *view});
    }
    for (const auto& item : scalars.items()) {
      if (item.value() != "int" && item.value() != "real") {
        return bad(field_name(number_, "scalars." + item.key()), item.value(), "\"int\" or \"real\"");
      }
      if (item.value() == "int") scalars_.push_back({item.key(), std::int64_t{1}});
      if (item.value() == "real") scalars_.push_back({item.key(), 1.0});
    }
    return {};
  }

  /// Mask and score share one list of names, and each takes those that it uses. What neither uses is the mask's, which
  /// says so; a named mask does not tell its tensors.
  [[nodiscard]] bool is_for(const std::string& text, const std::string& name) const {
    const auto uses = [&name](const std::string& expression) {
      const auto names = names_in(expression);
      return names && std::ranges::find(*names, name) != names->end();
    };
    if (uses(text)) return true;
    const bool of_score =
        object_.contains("score") && object_["score"].is_string() && uses(object_["score"].get<std::string>());
    return text == prototype_.label && !of_score;
  }
  [[nodiscard]] std::vector<NamedTensor> used_by(const std::string& text) const {
    std::vector<NamedTensor> used;
    for (const NamedTensor& tensor : tensors_) {
      if (is_for(text, tensor.name)) used.push_back(tensor);
    }
    return used;
  }
  [[nodiscard]] std::vector<NamedScalar> scalars_of(const std::string& text) const {
    std::vector<NamedScalar> used;
    for (const NamedScalar& scalar : scalars_) {
      if (is_for(text, scalar.name)) used.push_back(scalar);
    }
    return used;
  }

  [[nodiscard]] Result<std::string> read_text(const char* field) const {
    if (object_.contains(field) && object_[field].is_string()) return object_[field].get<std::string>();
    return bad(field_name(number_, field), object_.contains(field) ? object_[field] : nlohmann::json("nothing"),
               "text");
  }

  [[nodiscard]] Result<std::vector<DType>> read_dtypes() const {
    std::vector<DType> dtypes;
    const nlohmann::json given = object_.value("dtype", nlohmann::json("bf16"));
    for (const nlohmann::json& item : given.is_array() ? given : nlohmann::json::array({given})) {
      const auto dtype = item.is_string() ? dtype_from_string(item.get<std::string>()) : std::nullopt;
      if (!dtype) return bad(field_name(number_, "dtype"), item, "bf16, f16 or a list of them");
      dtypes.push_back(*dtype);
    }
    return dtypes;
  }

  [[nodiscard]] Result<std::vector<int>> read_head_dims() {
    std::vector<int> dims;
    const nlohmann::json given = object_.value("head_dim", nlohmann::json(128));
    for (const nlohmann::json& item : given.is_array() ? given : nlohmann::json::array({given})) {
      if (!item.is_number_integer()) return bad(field_name(number_, "head_dim"), item, "a number or a list of them");
      dims.push_back(item.get<int>());
    }
    if (object_.contains("head_dim_v")) {
      if (!object_["head_dim_v"].is_number_integer()) {
        return bad(field_name(number_, "head_dim_v"), object_["head_dim_v"], "a number");
      }
      head_dim_v_ = object_["head_dim_v"].get<int>();
    }
    return dims;
  }

  Result<void> read_flags() {
    CompileRequest& request = prototype_.request;
    const nlohmann::json direction = object_.value("direction", nlohmann::json("both"));
    for (const Direction candidate : {Direction::forward, Direction::backward}) {
      if (direction == "both" || direction == to_string(candidate)) request.directions.push_back(candidate);
    }
    if (request.directions.empty()) {
      return bad(field_name(number_, "direction"), direction, "forward, backward or both");
    }
    bool unaligned = false;
    const std::array flags{std::pair{"unaligned", &unaligned}, std::pair{"few_rows", &request.few_rows},
                           std::pair{"deterministic", &request.deterministic}, std::pair{"interpreted", &interpreted_}};
    for (const auto& [name, flag] : flags) {
      if (!object_.contains(name)) continue;
      if (!object_[name].is_boolean()) return bad(field_name(number_, name), object_[name], "true or false");
      *flag = object_[name].get<bool>();
    }
    request.aligned = !unaligned;
    return {};
  }

  void add(DType dtype, int head_dim, std::vector<ManifestKernel>& kernels) const {
    ManifestKernel kernel = prototype_;
    kernel.request.dtype = dtype;
    kernel.request.head_dim_qk = head_dim;
    kernel.request.head_dim_v = head_dim_v_.value_or(head_dim);
    kernel.request.mask = kernel.mask.get();
    kernel.request.score = kernel.score.get();
    kernels.push_back(kernel);
    if (!interpreted_) return;
    auto forward = kernel.mask->with_lowering(Direction::forward, LoweringKind::interpreted);
    if (!forward) return;
    auto both = forward->with_lowering(Direction::backward, LoweringKind::interpreted);
    if (!both) return;
    kernel.mask = std::make_shared<Mask>(*std::move(both));
    kernel.request.mask = kernel.mask.get();
    kernel.score = nullptr;
    kernel.request.score = nullptr;
    kernel.label = "any mask";
    kernels.push_back(std::move(kernel));
  }

  const nlohmann::json& object_;
  std::size_t number_;
  std::string folder_;
  std::vector<NamedTensor> tensors_;
  std::vector<NamedScalar> scalars_;
  std::optional<int> head_dim_v_;
  bool interpreted_ = false;
  ManifestKernel prototype_;
};

}  // namespace

Result<std::vector<ManifestKernel>> read_manifest(const std::string& path) {
  const auto bytes = read_file(path, "MANIFEST");
  if (!bytes) return bytes.error();
  const auto* text = reinterpret_cast<const char*>(bytes->data());
  const nlohmann::json manifest = nlohmann::json::parse(text, text + bytes->size(), nullptr, false);
  if (!manifest.is_object() || manifest.size() != 1 || !manifest.contains("kernels") ||
      !manifest["kernels"].is_array()) {
    return Error{ErrorCode::bad_argument, "MANIFEST", path, "JSON of the form {\"kernels\": [{\"mask\": ..}, ..]}", ""};
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::vector<ManifestKernel> kernels;
  for (std::size_t i = 0; i < manifest["kernels"].size(); ++i) {
    auto read = KernelReader(manifest["kernels"][i], i, folder).read();
    if (!read) return read.error();
    kernels.insert(kernels.end(), read->begin(), read->end());
  }
  return kernels;
}

}  // namespace flashspan::tool
