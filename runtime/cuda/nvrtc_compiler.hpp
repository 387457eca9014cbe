// nvrtc_compiler.hpp -- NvrtcCompiler: CUDA SourceText to cubin, in memory, with the compiler's report.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel/source_text.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/nvrtc_library.hpp"

namespace flashspan::cuda {

/// Thread-safe: compiles run at the same time, one thread a program. Never touches the driver, writes no file, reads no
/// header from disk and leaves the process's limits alone (see options()).
class NvrtcCompiler {
 public:
  explicit NvrtcCompiler(NvrtcLibrary library) : library_(std::move(library)) {}
  /// Error: missing_component.
  static Result<std::shared_ptr<const NvrtcCompiler>> open(const NvrtcSearch& search);

  [[nodiscard]] const NvrtcLibrary& library() const { return library_; }
  [[nodiscard]] std::string identity() const { return library_.identity(); }
  /// For people: "nvrtc 13.0 build 65be0db3...".
  [[nodiscard]] std::string description() const;
  /// What compile() passes.
  [[nodiscard]] std::vector<std::string> options(Arch arch) const {
    return options(library_.major, library_.minor, arch);
  }
  /// Those of them that every NVRTC gets, and that its output depends on.
  [[nodiscard]] static std::vector<std::string> options_of_output(Arch arch);
  /// What it passes to NVRTC `major`.`minor`.
  [[nodiscard]] static std::vector<std::string> options(int major, int minor, Arch arch);

  /// The programs of `source` at the same time. Error, of the first program that has one: unsupported if this NVRTC
  /// does not know `arch`; compile_failed with the log in `detail`, also if an entry point is missing; kernel_spills if
  /// an entry uses local memory that it is not meant to, or ptxas serialised its products.
  [[nodiscard]] Result<backend::Binary> compile(const kernel::SourceText& source, Arch arch) const;

  /// PTX of all programs of `source`, as one module. Error: as compile(), but for what only the cubin shows.
  [[nodiscard]] Result<std::string> ptx(const kernel::SourceText& source, Arch arch) const;

 private:
  /// Error: unsupported, bad_argument.
  [[nodiscard]] Result<void> check(const kernel::SourceText& source, Arch arch) const;

  NvrtcLibrary library_;
};

/// An NvrtcCompiler that is opened when it is first needed: a process that only loads cached kernels can do without the
/// 100 MB library. Thread-safe. A failure is not remembered, so NVRTC may be installed while the process runs.
class NvrtcOnDemand {
 public:
  explicit NvrtcOnDemand(NvrtcSearch search) : search_(std::move(search)) {}
  /// Error: missing_component.
  [[nodiscard]] Result<std::shared_ptr<const NvrtcCompiler>> get();
  /// NvrtcCompiler::identity(), without opening it where its files tell; get() then opens that very file, whatever else
  /// the process may have loaded meanwhile. If it cannot be opened, the identity is from then on that of the one which
  /// is opened in its place. Error: missing_component.
  [[nodiscard]] Result<std::string> identity();

 private:
  /// `mutex_` is held.
  [[nodiscard]] Result<std::shared_ptr<const NvrtcCompiler>> open();

  NvrtcSearch search_;
  std::mutex mutex_;
  std::optional<std::string> named_;  ///< the identity of search_.first
  std::shared_ptr<const NvrtcCompiler> compiler_;
};

}  // namespace flashspan::cuda
