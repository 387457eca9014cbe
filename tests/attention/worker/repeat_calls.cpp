// repeat_calls.cpp -- the calls of F037 in a process of its own: repeat_calls DEVICE DTYPE CACHE_DIR RESULT THREADS.
// Writes the bits of every result to the file RESULT, and prints where each kernel came from. THREADS: processors that
// the process may use; 0: all.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

/// Leaves the process the first `count` of the processors it may use. Before any thread is started.
void use_processors(int count) {
  cpu_set_t all;
  cpu_set_t kept;
  CPU_ZERO(&kept);
  sched_getaffinity(0, sizeof(all), &all);
  for (int processor = 0; processor < CPU_SETSIZE && CPU_COUNT(&kept) < count; ++processor) {
    if (CPU_ISSET(processor, &all)) CPU_SET(processor, &kept);
  }
  sched_setaffinity(0, sizeof(kept), &kept);
}

Scenario causal(const AttentionShape& shape) {
  return {.shape = shape, .mask = Mask::causal(), .lse_gradient = true, .deterministic = true};
}

Scenario flashmask_documents(const AttentionShape& shape) {
  Integers starts;
  for (Index k = 0; k < shape.kv_len; ++k) {
    starts.push_back(static_cast<std::int32_t>(std::min(shape.q_len, (k / 90 + 1) * 90)));
  }
  const Mask mask = expect_value(Mask::flashmask(shape, view_of(starts, {1, 1, shape.kv_len, 1}), true));
  return {.shape = shape, .mask = expect_value(mask.to(Device{})), .deterministic = true};
}

Scenario overlapping_ranges(const AttentionShape& shape) {
  Integers ranges = random_integers(static_cast<std::size_t>(shape.q_len * 3 * 2), 0, shape.kv_len, 5);
  const Mask mask = expect_value(Mask::key_ranges(shape, view_of(ranges, {1, 1, shape.q_len, 3, 2})));
  return {.shape = shape, .mask = expect_value(mask.to(Device{})), .deterministic = true};
}

Inputs inputs_of(const AttentionShape& s, oracle::Format format) {
  return {oracle::random_tensor(s.batch, s.query_heads, s.q_len, s.head_dim_qk, format, 1),
          oracle::random_tensor(s.batch, s.kv_heads, s.kv_len, s.head_dim_qk, format, 2),
          oracle::random_tensor(s.batch, s.kv_heads, s.kv_len, s.head_dim_v, format, 3),
          oracle::random_tensor(s.batch, s.query_heads, s.q_len, s.head_dim_v, format, 4),
          oracle::random_tensor(s.batch, s.query_heads, s.q_len, 1, oracle::Format::f32, 5),
          {}};
}

void write(std::ofstream& file, const oracle::Answer& answer) {
  for (const oracle::Tensor* result :
       {&answer.out, &answer.lse, &answer.query_gradient, &answer.key_gradient, &answer.value_gradient}) {
    file.write(reinterpret_cast<const char*>(result->values.data()),
               static_cast<std::streamsize>(result->values.size() * sizeof(double)));
  }
}

int run(const std::vector<std::string>& arguments) {
  if (const int processors = std::stoi(arguments.at(4)); processors > 0) use_processors(processors);
  const Device device = expect_value(device_from_string(arguments.at(0)));
  const DType dtype = arguments.at(1) == "f32" ? DType::f32 : DType::bf16;
  AttentionOptions options;
  options.cache_dir = arguments.at(2);
  Attention attention = expect_value(Attention::open(device, options));
  std::ofstream file(arguments.at(3), std::ios::binary);
  const bool large = device.kind == DeviceKind::cuda;
  const AttentionShape shape = large ? shape_of(1, 8, 8, 1024, 1024, 128) : shape_of(1, 6, 3, 300, 300, 64);
  // One head: too few tasks for two threads, so that the CPU divides the work in another way than for one. On a GPU
  // both shapes have so few rows that a forward cuts them into portions: one kernel serves both.
  const Index length = large ? 1100 : 300;
  const AttentionShape one_head = shape_of(1, 1, 1, length, length, shape.head_dim_qk);
  for (const Scenario& scenario :
       {causal(one_head), causal(shape), flashmask_documents(shape), overlapping_ranges(shape)}) {
    PlacedCall call(scenario, inputs_of(scenario.shape, format_of(dtype)), device, dtype);
    std::printf("%s\n", expect_value(attention.prepare(call.forward_call())).outcome.c_str());
    std::printf("%s\n", expect_value(attention.prepare(call.backward_call())).outcome.c_str());
    expect_value(call.run(attention));
    write(file, call.read());
  }
  file.close();
  return file ? 0 : 1;
}

}  // namespace
}  // namespace flashspan::tests

int main(int count, char** arguments) { return flashspan::tests::run({arguments + 1, arguments + count}); }
