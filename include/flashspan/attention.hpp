// attention.hpp -- forward and backward attention under a mask.
//
//   out = softmax over visible keys of score(scale * query . key) applied to value;  lse = natural-log sum-exp.
// A row that sees nothing gives out = 0 and lse = -inf and takes no gradient; a key nobody sees gets zero
// gradients, written. Masked or out-of-length memory never influences a result; a visible NaN propagates.
// A sink is one more column in the softmax of every row of its head, visible to all and without a value:
//   out = sum of exp(score_k) value_k / (exp(sink) + sum of exp(score_k));  lse = log(exp(sink) + sum of exp(score_k)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "flashspan/core/compile_hooks.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"
#include "flashspan/core/miss_policy.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/tile_plan.hpp"
#include "flashspan/core/types.hpp"
#include "flashspan/mask.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// Tensors of a forward call, all on one device:
///   query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv], out [B, Hq, Sq, Dv]: one dtype of f32 (CPU
///   only), f16, bf16; lse [B, Hq, Sq] f32, or not given. Strides are free except that the last axis is contiguous.
///   sink [Hq] f32 of any stride, or not given: natural-log logits, which neither `scale` nor `score` changes. -inf is
///   no sink; a row that sees nothing gives out = 0 and lse = sink.
///   D and Dv are 16 to 256 in steps of 8 on CUDA, 1 to 256 on the CPU. Hq is a multiple of Hkv.
///   (A [B, S, H, D] tensor is passed as view.with_axes_swapped(1, 2).)
struct ForwardCall {
  TensorView query, key, value, sink, out, lse;
  const Mask* mask = nullptr;    ///< null: every key is visible
  const Score* score = nullptr;  ///< null: scores are used as they are
  std::optional<float> scale;    ///< default 1 / sqrt(D)
  void* workspace = nullptr;     ///< at least workspace_bytes(call) bytes on the device, whatever they hold; of one
                                 ///< call at a time: calls that may run together need one each
  std::int64_t workspace_bytes = 0;
  TilePlan* plan = nullptr;        ///< null: every call plans its tiles; else see TilePlan
  std::optional<TileConfig> tile;  ///< default: a tuned one (tuning.hpp), else that of the built-in table
  Stream stream;
};

/// Tensors of a backward call: those of the forward with their results (lse is required), the incoming gradients
/// out_gradient (as out) and optionally lse_gradient (as lse), and the results query_gradient, key_gradient,
/// value_gradient (as query, key, value), which are overwritten. A sink is needed for its own gradient only, the result
/// sink_gradient [Hq] f32, which may be left out; what the others need to know of it is in lse.
///   score_gradients are results too: of tensors that `score` looks up, by their names in its text, d loss / d element
///   = the sum over visible pairs of dS d score / d element, where dS is the gradient of the modified score. Each is
///   f32 whatever the tensor's dtype, of the tensor's shape (an axis that the tensor has with stride 0 too), of any
///   strides that keep its elements apart. Lookups outside the tensor take no gradient, nor do indices and comparisons.
struct BackwardCall {
  TensorView query, key, value, sink, out, lse;
  TensorView out_gradient, lse_gradient;
  TensorView query_gradient, key_gradient, value_gradient, sink_gradient;
  std::vector<NamedTensor> score_gradients;
  const Mask* mask = nullptr;
  const Score* score = nullptr;
  std::optional<float> scale;
  /// True: the same call gives the same bits, every time. False: kernels may add up dQ and score_gradients in the order
  /// in which tiles get done, which is faster. (A forward, and the CPU, are always deterministic.)
  bool deterministic = false;
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
  TilePlan* plan = nullptr;        ///< as in ForwardCall; not the forward's
  std::optional<TileConfig> tile;  ///< as in ForwardCall
  Stream stream;
};

/// What is known about one compiled kernel.
struct KernelRecord {
  std::string spec;     ///< one line
  std::string key;      ///< 32 hexadecimal digits
  std::string outcome;  ///< "loaded" (already on the device), "memory", "disk", "layer", "shared", "service" or "built"
  std::string lowering;   ///< how the mask is applied
  double compile_ms = 0;  ///< of the original build
  int registers = 0;      ///< largest over the module's entry points
  std::int64_t shared_bytes = 0;
  std::int64_t spill_bytes = 0;
};

struct TuneOptions;  // tuning.hpp
struct TuneReport;
struct TileResources;

using AnyCall = std::variant<ForwardCall, BackwardCall>;

struct PrepareOptions {
  /// Most seconds that a call waits for its kernel, counted from the start of the compile; 0: as long as it takes. A
  /// compiler cannot be stopped, so the compile goes on in the background, and its kernel is kept.
  double time_out_seconds = 0;
  /// Called by the thread that waits, once per call, in the order in which they are done: the call's place, and result.
  std::function<void(std::size_t, const Result<KernelRecord>&)> progress;
};

struct AttentionOptions {
  LogSink log;                           ///< default: spdlog to standard error, level from FLASHSPAN_LOG
  std::optional<std::string> cache_dir;  ///< default: FLASHSPAN_CACHE_DIR, XDG cache, private temp; "" : memory only
  /// Folders and bundles below the cache, ':' between them, asked in this order and never written; default:
  /// FLASHSPAN_CACHE_PATH.
  std::optional<std::string> cache_path;
  /// Whether a kernel of a bundle or a compile service serves that another version of NVRTC compiled than the one that
  /// is here, or if none is here; default: FLASHSPAN_ACCEPT_OTHER_NVRTC, else false.
  std::optional<bool> accept_other_nvrtc;
  /// Kernels compiled at a time in prepare_all(); 0: one a core. Fewer, but one at least, where memory is short.
  int compile_threads = 0;
  CompileHooks hooks;  ///< told of every compile of this Attention's kernels
  /// CUDA: a compile service that is asked before anything is compiled here: "unix:/path" or "http://host:port"
  /// (service.hpp); and what it takes to be let in. If it does not serve, this process compiles. Defaults:
  /// FLASHSPAN_SERVICE, FLASHSPAN_SERVICE_TOKEN; "": nobody is asked.
  std::optional<std::string> service, service_token;
  /// A store of many machines, below the cache and its layers: "redis://[[user:]password@]host[:port][/database]",
  /// "redis+unix:///path", or "http(s)://[user:password@]host[:port][/path]" that takes PUT and GET; in
  /// user and password, "%2F" stands for '/'. Default: FLASHSPAN_SHARED_STORE; "": none. One that does not answer is
  /// done without.
  std::optional<std::string> shared_store;
  /// A file with a secret of the machines that share: what comes from a service or a shared store without their
  /// signature is refused. Default: FLASHSPAN_SIGNING_KEY_FILE; "": nothing is signed.
  std::optional<std::string> signing_key_file;
  /// File of tuned tiles (tuning.hpp), beside those of the layers of the cache; default: FLASHSPAN_TUNING_FILE, else
  /// tuning.jsonl in the cache's folder; "": none, not even the layers'.
  std::optional<std::string> tuning_file;
};

/// Attention on one device. Thread-safe; copies share one state. Compiles and loads kernels on first use. The last copy
/// must outlive the work it queued, and the CUDA graphs that captured it.
class Attention {
 public:
  /// Error: no_device, missing_component (with the command that installs it), bad_argument (of the environment too),
  /// io_error (the signing key file).
  static Result<Attention> open(Device device, const AttentionOptions& options = {});

  [[nodiscard]] Device device() const;

  /// Bytes of workspace that the call takes; depends on shapes and on the mask's program, not on data.
  [[nodiscard]] Result<std::int64_t> workspace_bytes(const ForwardCall& call) const;
  [[nodiscard]] Result<std::int64_t> workspace_bytes(const BackwardCall& call) const;

  /// Compiles and loads the kernel that the call would use, without launching. After it, the call neither
  /// compiles nor allocates nor synchronises, and may be captured in a CUDA graph. (Of an Attention that has more than
  /// FLASHSPAN_MAX_LOADED_KERNELS kernels, default 1024, the least recently used are unloaded, never captured ones.)
  Result<KernelRecord> prepare(const ForwardCall& call);
  Result<KernelRecord> prepare(const BackwardCall& call);

  /// prepare() of many calls, several at a time; calls that share a kernel compile it once. The results stand in the
  /// order of the calls. Of a call's tensors none is read: any address of the right alignment does.
  /// Error of each: as prepare(), and timed_out. The last copy of the Attention waits for compiles that go on.
  std::vector<Result<KernelRecord>> prepare_all(const std::vector<AnyCall>& calls, const PrepareOptions& options = {});

  /// The tiles that the call's kernel may have, best first by the resource model. Of its tensors none is read.
  /// Error: as prepare(), before anything is compiled.
  [[nodiscard]] Result<std::vector<TileResources>> tiles(const AnyCall& call) const;

  /// Measures the tiles that the call's kernel may have, with its own tensors, mask and plan, and remembers the fastest
  /// whose results agree with the default's; see tuning.hpp. The call's results are overwritten, and in the end are
  /// those of the best tile. Its workspace is not used. Nothing else in Flashspan tunes.
  Result<TuneReport> tune(const AnyCall& call, const TuneOptions& options);

  /// From now on, what forward() and backward() do about a kernel that they would have to compile. One that is in the
  /// cache on disk is still loaded. prepare() and prepare_all() compile as before. freeze(MissPolicy::compile) thaws.
  ///
  /// MissPolicy::interpret first makes the kernels that stand in: one for each direction, dtype and pair of head dims
  /// among the kernels prepared so far; the calls of others are refused, as are calls with a score, which no such
  /// kernel can take. A stand-in gives the same results up to the rounding of another order of sums, and takes a
  /// workspace of its own size: ask workspace_bytes() after freeze(). A TilePlan that a stand-in made goes on with it.
  /// Error: as prepare(), for a kernel that stands in; the policy is then as before.
  Result<void> freeze(MissPolicy on_miss = MissPolicy::refuse);

  /// Checks every argument, then queues the work on call.stream (CUDA) or does it (CPU).
  /// Error, before any launch: bad_argument, unsupported, workspace_too_small, compile_failed, kernel_spills,
  /// not_prepared. A call on a stream that is being captured is refused if its kernel is not loaded; the capture goes
  /// on.
  Result<void> forward(const ForwardCall& call);
  Result<void> backward(const BackwardCall& call);

 private:
  struct State;
  explicit Attention(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace flashspan
#pragma GCC visibility pop
