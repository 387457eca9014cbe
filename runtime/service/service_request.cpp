#include "runtime/service/service_request.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runtime/attention/check_spec.hpp"

namespace flashspan::service {
namespace {

using attention::RemoteRequest;
using nlohmann::json;

constexpr double longest_time_out_seconds = 3600;
constexpr std::size_t largest_spec_bytes = std::size_t{256} << 10;

Error malformed(const std::string& field, const std::string& got, const std::string& takes) {
  return {ErrorCode::bad_argument, "request field '" + field + "'", got, takes, ""};
}

json to_json(const RemoteRequest& request) {
  const attention::UserText text = request.text.view();
  json object{{"spec", request.spec.to_text()},
              {request.by_alias ? "alias" : "key", request.key.to_text()},
              {"expression", *text.mask}};
  if (text.score != nullptr) object["score"] = *text.score;
  return object;
}

/// A user's text may hold bytes that are not UTF-8; they are replaced rather than refused.
std::string dump(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

/// For messages. (json::dump() takes stack for every array in an array, and a client may send a million.)
std::string shown(const json& value) {
  return value.is_number() ? value.dump() : std::string("of type ") + value.type_name();
}

Result<json> parse_object(std::string_view text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Error{ErrorCode::bad_argument, "request", "no JSON object", "a JSON object", ""};
  return object;
}

Result<std::string> text_in(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) return malformed(field, "no text", "a text");
  return found->get<std::string>();
}

Result<RemoteRequest> wanted_in(const json& object) {
  const auto spec_text = text_in(object, "spec");
  if (!spec_text) return spec_text.error();
  if (spec_text->size() > largest_spec_bytes) {
    return malformed("spec", std::to_string(spec_text->size()) + " bytes", "at most 262144 bytes");
  }
  const auto spec = kernel::KernelSpec::from_text(*spec_text);
  if (!spec) return spec.error();
  if (auto checked = attention::check_spec(*spec); !checked) return checked.error();
  const bool by_alias = object.contains("alias");
  const char* const name = by_alias ? "alias" : "key";
  const auto key_text = text_in(object, name);
  if (!key_text) return key_text.error();
  const auto key = cache::KernelKey::from_text(*key_text);
  if (!key) return malformed(name, *key_text, "32 hexadecimal digits");
  const auto expression = text_in(object, "expression");
  if (!expression) return expression.error();
  std::optional<std::string> score;
  if (object.contains("score")) {
    auto text = text_in(object, "score");
    if (!text) return text.error();
    score = *std::move(text);
  }
  return RemoteRequest{*spec, *key, {*expression, std::move(score)}, by_alias};
}

}  // namespace

std::string to_text(const CompileRequest& request) {
  json object = to_json(request.wanted);
  object["time_out_seconds"] = request.time_out_seconds;
  return dump(object);
}

std::string to_text(const std::vector<RemoteRequest>& prefetched) {
  json kernels = json::array();
  for (const RemoteRequest& request : prefetched) kernels.push_back(to_json(request));
  return dump({{"kernels", std::move(kernels)}});
}

Result<CompileRequest> compile_request_from_text(std::string_view text) {
  const auto object = parse_object(text);
  if (!object) return object.error();
  auto wanted = wanted_in(*object);
  if (!wanted) return wanted.error();
  const auto seconds = object->find("time_out_seconds");
  if (seconds == object->end() || !seconds->is_number() || !(seconds->get<double>() > 0) ||
      seconds->get<double>() > longest_time_out_seconds) {
    return malformed("time_out_seconds", seconds == object->end() ? "nothing" : shown(*seconds),
                     "a number above 0, and of 3600 at most");
  }
  return CompileRequest{*std::move(wanted), seconds->get<double>()};
}

Result<std::vector<Result<RemoteRequest>>> prefetch_from_text(std::string_view text) {
  const auto object = parse_object(text);
  if (!object) return object.error();
  const auto kernels = object->find("kernels");
  if (kernels == object->end() || !kernels->is_array() || kernels->size() > most_prefetched) {
    return malformed("kernels", "no list, or too long a one", "a list of at most 4096 kernels");
  }
  std::vector<Result<RemoteRequest>> wanted;
  for (const json& kernel : *kernels) {
    wanted.push_back(kernel.is_object() ? wanted_in(kernel) : malformed("kernels", shown(kernel), "objects"));
  }
  return wanted;
}

}  // namespace flashspan::service
