// prepare_all.hpp -- the kernels of many calls, made several at a time by a queue, with a bound on the wait for each.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "flashspan/core/error.hpp"
#include "runtime/attention/attention_op.hpp"
#include "runtime/attention/compile_queue.hpp"
#include "runtime/attention/kernel_provider.hpp"

namespace flashspan::attention {

struct PrepareWait {
  double time_out_seconds = 0;  ///< from the start of a compile; 0: none
  /// Called on this thread with the place of each call, as soon as its result is there.
  std::function<void(std::size_t, const Result<KernelProvider::Provided>&)> done;
};

/// AttentionOp::prepare() of every call; calls of one spec share a task. Returns when there is a result for each.
/// What is left of a task that timed out goes on in the queue.
void prepare_all(const AttentionOp& op, CompileQueue& queue, const std::vector<AttentionCall>& calls,
                 const PrepareWait& wait);

}  // namespace flashspan::attention
