// triton_entry.hpp -- what the versions of Triton leave behind, brought into one form.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cache/entry_file.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/triton.hpp"

namespace flashspan::api {

/// Pointers to scratch memory that a version of Triton appends to every kernel's parameters. Nothing for a version that
/// we do not know.
[[nodiscard]] std::optional<int> hidden_parameters_of(const std::string& version);

/// A kernel of Triton's cache by its .json, with the files of the same stem beside it.
[[nodiscard]] Result<TritonKernelFile> read_triton_cache_entry(const std::filesystem::path& json,
                                                               const TritonReadOptions& options);
/// A kernel by the .c of triton.tools.compile.
[[nodiscard]] Result<TritonKernelFile> read_triton_compile_product(const std::filesystem::path& source,
                                                                   const TritonReadOptions& options);

/// Of the cubin: that it has the kernel, with parameters of the sizes of ours and the hidden ones, in blocks of ours.
/// Types that the source of the file leaves open (reals of an ahead-of-time product) are settled by their sizes.
/// Error: bad_argument.
[[nodiscard]] Result<void> settle_by_cubin(TritonKernelFile& kernel, const std::string& path);

[[nodiscard]] Result<std::string> text_of_file(const std::filesystem::path& path);

/// A kernel as an entry of our cache, and back. Nothing for another entry.
[[nodiscard]] cache::Entry entry_of(const TritonKernelFile& kernel);
[[nodiscard]] std::optional<TritonKernelFile> triton_kernel_of(const cache::Entry& entry);

}  // namespace flashspan::api
