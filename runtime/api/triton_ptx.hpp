// triton_ptx.hpp -- the PTX of a kernel of ours, changed to take its arguments one by one as Triton passes them.
#pragma once

#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "runtime/api/c_program.hpp"

namespace flashspan::api {

/// The module of a call that was recorded for one architecture, in a form that Triton's `ir_override` takes for a
/// function of that name, those arguments and that many warps: the entry's structures, which Triton cannot pass, are
/// put together in the kernel from its arguments and from what the call has fixed, dynamic shared memory, of which
/// Triton gives as much as its own code takes, is static, and Triton's two pointers to scratch memory come last.
/// `arguments`: those of the recorded call, the workspace last. Error: unsupported, for a call of several launches, of
/// tensor maps, with a workspace, or of more shared memory than a kernel may have statically.
[[nodiscard]] Result<std::string> write_triton_ptx(std::string ptx, const CImage& image,
                                                   const std::vector<CArgument>& arguments);

}  // namespace flashspan::api
