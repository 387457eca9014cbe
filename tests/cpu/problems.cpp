#include "problems.hpp"

#include <cmath>

namespace flashspan::cpu_test {

oracle::Problem random_problem(const AttentionShape& shape, DType dtype, std::uint64_t seed, bool with_gradient) {
  const oracle::Format format = format_of(dtype);
  oracle::Problem problem;
  problem.query = oracle::random_tensor(shape.batch, shape.query_heads, shape.q_len, shape.head_dim_qk, format, seed);
  problem.key = oracle::random_tensor(shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim_qk, format, seed + 1);
  problem.value = oracle::random_tensor(shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim_v, format, seed + 2);
  if (with_gradient) {
    problem.out_gradient =
        oracle::random_tensor(shape.batch, shape.query_heads, shape.q_len, shape.head_dim_v, format, seed + 3);
  }
  // As the library is given it: binary32.
  problem.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim_qk)));
  return problem;
}

}  // namespace flashspan::cpu_test
