// inspect.cpp -- explanations and the state of the machine.
#include <optional>
#include <string>

#include "capi/handles.hpp"
#include "capi/json.hpp"
#include "capi/tensors.hpp"
#include "flashspan/metrics.hpp"

using namespace flashspan;
using namespace flashspan::capi;

flashspan_status flashspan_explain(const flashspan_mask* mask, const flashspan_score* score,
                                   const flashspan_shape* shape, DLDataType dtype, const char* arch, char** json) {
  return guarded([&]() -> Result<void> {
    if (mask == nullptr) return null_argument("mask");
    const auto sizes = shape_of(shape);
    if (!sizes) return sizes.error();
    const auto element = dtype_of("dtype", dtype);
    if (!element) return element.error();
    std::optional<Arch> target;
    if (arch != nullptr) {
      target = arch_from_string(arch);
      if (!target) return Error{ErrorCode::bad_argument, "arch", arch, "an architecture such as sm_90a, or NULL", ""};
    }
    const auto explanation = explain(mask->value, score != nullptr ? &score->value : nullptr, *sizes, *element, target);
    if (!explanation) return explanation.error();
    return give_text(json, json_of(*explanation));
  });
}

flashspan_status flashspan_metrics(char** text) {
  return guarded([&] { return give_text(text, metrics_text()); });
}

flashspan_status flashspan_doctor(const char* cache_dir, char** json) {
  return guarded([&] {
    return give_text(
        json, json_of(examine_machine(cache_dir != nullptr ? std::optional<std::string>(cache_dir) : std::nullopt)));
  });
}
