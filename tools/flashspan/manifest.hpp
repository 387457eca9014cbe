// manifest.hpp -- a list of kernels to compile ahead of time, as a JSON file says it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/mask.hpp"
#include "tools/flashspan/mask_source.hpp"

namespace flashspan::tool {

/// One entry of a manifest, its lists multiplied out: a CompileRequest without architectures and cache.
struct ManifestKernel {
  std::shared_ptr<MaskSource> source;  ///< of a mask file, whose arrays the mask looks into; null else
  std::shared_ptr<Mask> mask;
  std::shared_ptr<Score> score;  ///< null: none
  std::string label;             ///< the mask's text
  CompileRequest request;        ///< points to mask and score
};

/// {"kernels": [{
///   "mask": a name, an expression, or a mask file (*.json) beside the manifest,
///   "tensors": {"doc": "i32[2]"}   dtype and rank of what mask and score look up; no data is needed
///   "scalars": {"left": "int", "cap": "real"},
///   "score": an expression,
///   "dtype": "bf16" or a list, "head_dim": 128 or a list, "head_dim_v": a number,
///   "direction": "forward", "backward" or "both",
///   "unaligned", "few_rows", "deterministic": true or false,
///   "interpreted": true: also the kernel that stands in for every mask of these head dims}]}
/// Everything but "mask" may be left out. Error: io_error; bad_argument, which names the kernel's number and the field;
/// and those of the masks.
[[nodiscard]] Result<std::vector<ManifestKernel>> read_manifest(const std::string& path);

}  // namespace flashspan::tool
