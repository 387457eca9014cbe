// attend_case.cpp -- files for one run of `flashspan attend`, and the comparison of its results.
#include "attend_case.hpp"

#include <algorithm>
#include <cmath>

#include "numpy_files.hpp"
#include "oracle/pass_rule.hpp"

namespace cli_test {
namespace {

using oracle::Index;
using oracle::Tensor;

Tensor tensor_of(const ReadArray& array, const std::string& layout) {
  const bool sequence_first = layout == "bshd";
  const auto length = [&](std::size_t axis) { return array.shape.at(axis); };
  Tensor tensor(length(0), length(sequence_first ? 2 : 1), length(sequence_first ? 1 : 2), length(3));
  std::size_t next = 0;
  for (Index b = 0; b < tensor.batch; ++b) {
    for (Index outer = 0; outer < length(1); ++outer) {
      for (Index inner = 0; inner < length(2); ++inner) {
        for (Index d = 0; d < tensor.columns; ++d) {
          tensor.at(b, sequence_first ? inner : outer, sequence_first ? outer : inner, d) = array.values.at(next++);
        }
      }
    }
  }
  return tensor;
}

}  // namespace

oracle::Problem random_problem(const Sizes& sizes, oracle::Format format, std::uint64_t seed) {
  oracle::Problem problem;
  const auto random = [&](Index heads, Index rows, Index columns) {
    return oracle::random_tensor(sizes.batch, heads, rows, columns, format, ++seed);
  };
  problem.query = random(sizes.query_heads, sizes.q_len, sizes.head_dim);
  problem.key = random(sizes.kv_heads, sizes.kv_len, sizes.head_dim);
  problem.value = random(sizes.kv_heads, sizes.kv_len, sizes.head_dim_v);
  problem.out_gradient = random(sizes.query_heads, sizes.q_len, sizes.head_dim_v);
  problem.scale = 1 / std::sqrt(static_cast<double>(sizes.head_dim));
  return problem;
}

std::string npy_of(const Tensor& tensor, const std::string& layout, bool as_half) {
  const bool sequence_first = layout == "bshd";
  const Index outer_length = sequence_first ? tensor.rows : tensor.heads;
  const Index inner_length = sequence_first ? tensor.heads : tensor.rows;
  std::vector<double> values;
  for (Index b = 0; b < tensor.batch; ++b) {
    for (Index outer = 0; outer < outer_length; ++outer) {
      for (Index inner = 0; inner < inner_length; ++inner) {
        const double* row = sequence_first ? tensor.row(b, inner, outer) : tensor.row(b, outer, inner);
        values.insert(values.end(), row, row + tensor.columns);
      }
    }
  }
  const Shape shape{tensor.batch, outer_length, inner_length, tensor.columns};
  return as_half ? npy_f16(shape, values) : npy_f32(shape, values);
}

std::vector<std::string> attend_arguments(const Folder& folder, const oracle::Problem& problem,
                                          const std::string& layout, bool as_half) {
  write_text(folder / "q.npy", npy_of(problem.query, layout, as_half));
  write_text(folder / "k.npy", npy_of(problem.key, layout, as_half));
  write_text(folder / "v.npy", npy_of(problem.value, layout, as_half));
  write_text(folder / "do.npy", npy_of(*problem.out_gradient, layout, as_half));
  return {"attend",
          "--q",
          folder / "q.npy",
          "--k",
          folder / "k.npy",
          "--v",
          folder / "v.npy",
          "--do",
          folder / "do.npy",
          "--out",
          folder / "o.npz",
          "--layout",
          layout,
          "--device",
          "cpu"};
}

Outcome flashspan_command(const std::vector<std::string>& arguments) {
  static const Folder cache;
  std::vector<std::string> all{FLASHSPAN_COMMAND};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program(all, {{"FLASHSPAN_CACHE_DIR", cache.path()}, {"FLASHSPAN_LOG", "warning"}});
}

oracle::Answer read_answer(const Folder& folder, const std::string& layout) {
  const auto arrays = read_npz(folder / "o.npz");
  oracle::Answer answer;
  answer.out = tensor_of(arrays.at("out"), layout);
  ReadArray lse = arrays.at("lse");
  lse.shape.push_back(1);
  answer.lse = tensor_of(lse, "bhsd");
  if (arrays.contains("dq")) {
    answer.query_gradient = tensor_of(arrays.at("dq"), layout);
    answer.key_gradient = tensor_of(arrays.at("dk"), layout);
    answer.value_gradient = tensor_of(arrays.at("dv"), layout);
  }
  if (arrays.contains("dsink")) {
    const ReadArray& gradient = arrays.at("dsink");
    answer.sink_gradient = Tensor(1, gradient.shape.at(0), 1, 1);
    answer.sink_gradient.values = gradient.values;
  }
  return answer;
}

testing::AssertionResult attend_agrees(const oracle::Problem& problem, oracle::Format format, const Folder& folder,
                                       const std::vector<std::string>& arguments, const std::string& layout,
                                       bool as_half) {
  std::vector<std::string> all = attend_arguments(folder, problem, layout, as_half);
  for (std::size_t option = 0; option + 1 < arguments.size(); option += 2) {
    const bool may_be_repeated = arguments[option] == "--tensor" || arguments[option] == "--scalar";
    const auto usual = std::find(all.begin(), all.end(), arguments[option]);
    if (may_be_repeated || usual == all.end()) {
      all.insert(all.end(), {arguments[option], arguments[option + 1]});
    } else {
      *(usual + 1) = arguments[option + 1];
    }
  }
  const Outcome outcome = flashspan_command(all);
  if (outcome.exit_code != 0) {
    return testing::AssertionFailure() << "exit code " << outcome.exit_code << ": " << outcome.err;
  }
  return oracle::passes(read_answer(folder, layout), oracle::reference_attention(problem),
                        oracle::plain_attention(problem, format), format);
}

}  // namespace cli_test
