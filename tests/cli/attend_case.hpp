// attend_case.hpp -- one run of `flashspan attend` on the CPU: files out, results in, compared with the oracle.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "oracle/attention.hpp"
#include "process.hpp"

namespace cli_test {

struct Sizes {
  oracle::Index batch = 1, query_heads = 1, kv_heads = 1, q_len = 0, kv_len = 0, head_dim = 16, head_dim_v = 16;
};

/// Random inputs and an output gradient, exact in `format`.
[[nodiscard]] oracle::Problem random_problem(const Sizes& sizes, oracle::Format format, std::uint64_t seed);

/// Text of a .npy file of `tensor`; axes in the order of `layout` ("bshd" or "bhsd").
[[nodiscard]] std::string npy_of(const oracle::Tensor& tensor, const std::string& layout, bool as_half = false);

/// Writes q.npy, k.npy, v.npy and do.npy into `folder` and returns the arguments that name them, the device, the layout
/// and the output o.npz.
[[nodiscard]] std::vector<std::string> attend_arguments(const Folder& folder, const oracle::Problem& problem,
                                                        const std::string& layout = "bshd", bool as_half = false);

/// The command with its subcommand and arguments; caches in a folder of its own.
[[nodiscard]] Outcome flashspan_command(const std::vector<std::string>& arguments);

/// Reads o.npz back into the oracle's order of axes.
[[nodiscard]] oracle::Answer read_answer(const Folder& folder, const std::string& layout = "bshd");

/// Runs `flashspan attend` with `arguments` (options and values in turn) in place of or beside the usual ones, and
/// holds every result against the oracle.
[[nodiscard]] testing::AssertionResult attend_agrees(const oracle::Problem& problem, oracle::Format format,
                                                     const Folder& folder, const std::vector<std::string>& arguments,
                                                     const std::string& layout = "bshd", bool as_half = false);

}  // namespace cli_test
