/* flashspan.h -- the C interface: what attention.hpp, mask.hpp, device.hpp and inspect.hpp offer, for other languages.
 *
 * Link libflashspan_c. C99 and later. The interface only grows: functions and values of enumerations are not changed or
 * taken back, and structures grow at their end.
 *
 *   Errors      A function that can fail returns a status. What went wrong is told by flashspan_last_error(), to the
 *               thread that called. No exception leaves the library, and on failure no result is written.
 *   Structures  Set struct_size to sizeof the structure, and what you do not use to zero. A library that is older than
 *               its caller refuses fields that it does not know, unless they are zero.
 *   Handles     Opaque. Whatever made one has a function that frees it, which takes NULL. Masks and scores are not
 *               changed by use, and may be used by several threads at a time; so may an attention. A tile plan may not.
 *   Tensors     DLTensor, borrowed: the structure for the duration of the call, its memory as long as work that uses it
 *               is queued; of a mask's or score's tensors, as long as that lives. NULL strides mean row-major. Devices
 *               kDLCPU and kDLCUDA; dtypes float32, float16, bfloat16, int32 of one lane; at most five axes.
 *   Texts       UTF-8, ended by a zero byte. Those that the library returns by `char**` are freed by
 *               flashspan_free_text().
 */
#ifndef FLASHSPAN_FLASHSPAN_H_
#define FLASHSPAN_FLASHSPAN_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#define FLASHSPAN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Any int may come in for an enumeration, and is refused by value: in C++ that takes a fixed underlying type. */
#ifdef __cplusplus
#define FLASHSPAN_OF_INT : int
#else
#define FLASHSPAN_OF_INT
#endif

/* As flashspan::ErrorCode, in its order. */
typedef enum flashspan_status FLASHSPAN_OF_INT {
  FLASHSPAN_OK = 0,
  FLASHSPAN_BAD_ARGUMENT = 1,
  FLASHSPAN_BAD_EXPRESSION = 2,
  FLASHSPAN_UNSUPPORTED = 3,
  FLASHSPAN_NO_DEVICE = 4,
  FLASHSPAN_MISSING_COMPONENT = 5,
  FLASHSPAN_COMPILE_FAILED = 6,
  FLASHSPAN_KERNEL_SPILLS = 7,
  FLASHSPAN_DEVICE_ERROR = 8,
  FLASHSPAN_WORKSPACE_TOO_SMALL = 9,
  FLASHSPAN_IO_ERROR = 10,
  FLASHSPAN_NOT_PREPARED = 11,
  FLASHSPAN_TIMED_OUT = 12,
  FLASHSPAN_INTERNAL = 100 /* an exception, out of memory among them */
} flashspan_status;

/* "bad_argument"; "unknown" for other numbers. Never freed. */
FLASHSPAN_API const char* flashspan_status_name(flashspan_status status);
/* The message of this thread's last function that failed: what was wrong, what it got, what it takes. Good until the
 * thread's next call; never NULL. */
FLASHSPAN_API const char* flashspan_last_error(void);
/* "0.1.0". Never freed. */
FLASHSPAN_API const char* flashspan_version(void);
FLASHSPAN_API void flashspan_free_text(char* text);

/* ---- Masks and scores: mask.hpp says what each shows and which tensors it takes. ---- */

typedef struct flashspan_mask flashspan_mask;
typedef struct flashspan_score flashspan_score;

typedef struct flashspan_named_tensor {
  const char* name;
  const DLTensor* tensor;
} flashspan_named_tensor;

typedef struct flashspan_named_scalar {
  const char* name;
  int32_t is_real; /* not 0: `real` counts, else `integer` */
  int64_t integer;
  double real;
} flashspan_named_scalar;

typedef struct flashspan_shape {
  size_t struct_size;
  int64_t batch, query_heads, kv_heads, q_len, kv_len, head_dim_qk, head_dim_v;
} flashspan_shape;

/* A name of the catalogue ("causal", "window(left=1023, right=0)", "document") or an expression. */
FLASHSPAN_API flashspan_status flashspan_mask_parse(const char* text, const flashspan_named_tensor* tensors,
                                                    size_t tensor_count, const flashspan_named_scalar* scalars,
                                                    size_t scalar_count, flashspan_mask** mask);
FLASHSPAN_API flashspan_status flashspan_mask_flashmask(const flashspan_shape* shape,
                                                        const DLTensor* startend_row_indices, int causal,
                                                        flashspan_mask** mask);
/* offsets NULL: ranges [B, H, Sq, R, 2]; else the CSR form. */
FLASHSPAN_API flashspan_status flashspan_mask_key_ranges(const flashspan_shape* shape, const DLTensor* offsets,
                                                         const DLTensor* ranges, flashspan_mask** mask);
FLASHSPAN_API flashspan_status flashspan_mask_slices(const flashspan_shape* shape, const DLTensor* q_ranges,
                                                     const DLTensor* k_ranges, const DLTensor* types,
                                                     flashspan_mask** mask);
/* SCFA. q_hash and k_hash NULL: the QK-sparse form; both given: the hash-sparse form. */
FLASHSPAN_API flashspan_status flashspan_mask_scfa(const flashspan_shape* shape, const DLTensor* q_idx,
                                                   const DLTensor* k_idx, const DLTensor* q_hash,
                                                   const DLTensor* k_hash, int strict, flashspan_mask** mask);
/* predicate: NULL or a mask that is applied inside every listed block. */
FLASHSPAN_API flashspan_status flashspan_mask_block_list(const flashspan_shape* shape, const DLTensor* counts,
                                                         const DLTensor* indices, int64_t block_q, int64_t block_k,
                                                         const flashspan_mask* predicate, flashspan_mask** mask);
FLASHSPAN_API flashspan_status flashspan_mask_and(const flashspan_mask* left, const flashspan_mask* right,
                                                  flashspan_mask** mask);
FLASHSPAN_API flashspan_status flashspan_mask_or(const flashspan_mask* left, const flashspan_mask* right,
                                                 flashspan_mask** mask);
FLASHSPAN_API flashspan_status flashspan_mask_not(const flashspan_mask* of, flashspan_mask** mask);
/* The same mask with copies of its tensors on `device`, which it owns. Waits for the copies. */
FLASHSPAN_API flashspan_status flashspan_mask_to(const flashspan_mask* of, DLDevice device, flashspan_mask** mask);
/* Canonical text of the program. */
FLASHSPAN_API flashspan_status flashspan_mask_text(const flashspan_mask* mask, char** text);
FLASHSPAN_API void flashspan_mask_free(flashspan_mask* mask);

FLASHSPAN_API flashspan_status flashspan_score_parse(const char* text, const flashspan_named_tensor* tensors,
                                                     size_t tensor_count, const flashspan_named_scalar* scalars,
                                                     size_t scalar_count, flashspan_score** score);
FLASHSPAN_API flashspan_status flashspan_score_to(const flashspan_score* of, DLDevice device, flashspan_score** score);
FLASHSPAN_API void flashspan_score_free(flashspan_score* score);

/* ---- Attention: attention.hpp says what is computed. ---- */

typedef struct flashspan_attention flashspan_attention;
typedef struct flashspan_tile_plan flashspan_tile_plan;

/* As flashspan::LogLevel and flashspan::MissPolicy, in their order. */
typedef enum flashspan_log_level FLASHSPAN_OF_INT {
  FLASHSPAN_LOG_DEBUG = 0,
  FLASHSPAN_LOG_INFO = 1,
  FLASHSPAN_LOG_WARNING = 2,
  FLASHSPAN_LOG_ERROR = 3
} flashspan_log_level;

typedef enum flashspan_miss_policy FLASHSPAN_OF_INT {
  FLASHSPAN_ON_MISS_COMPILE = 0,
  FLASHSPAN_ON_MISS_WARN = 1,
  FLASHSPAN_ON_MISS_REFUSE = 2,
  FLASHSPAN_ON_MISS_INTERPRET = 3
} flashspan_miss_policy;

typedef struct flashspan_options {
  size_t struct_size;
  /* Called from any thread, for every line. NULL: to standard error, as FLASHSPAN_LOG says. */
  void (*log)(void* log_user, flashspan_log_level level, const char* line);
  void* log_user;
  const char* cache_dir;   /* NULL: as the environment says; "": in memory only */
  int32_t compile_threads; /* 0: one a core */
  /* Called around every compile, by the thread that compiles, so from several at a time; NULL: not. spec: one line;
   * key: 32 hexadecimal digits. They must not use the attention that they are of. */
  void (*before_compile)(void* compile_user, const char* spec, const char* key);
  void (*after_compile)(void* compile_user, const char* spec, const char* key, double milliseconds,
                        flashspan_status status);
  void* compile_user;
  /* As in AttentionOptions; NULL: as the environment says; "": none. */
  const char *service, *service_token, *shared_store, *signing_key_file;
  const char* tuning_file; /* of tuned tiles (tuning.hpp); NULL: as the environment says; "": none */
  /* Folders and bundles below the cache, ':' between them; NULL: as the environment says; "": none. */
  const char* cache_path;
  /* Whether kernels of another version of NVRTC serve: above 0 yes, below 0 no, 0: as the environment says. */
  int32_t accept_other_nvrtc;
} flashspan_options;

/* As flashspan::TileConfig. */
typedef struct flashspan_tile {
  int32_t block_m, block_n, num_warps, num_stages;
} flashspan_tile;

/* Tensors as [batch, heads, sequence, head dim], of any strides but for the last axis; NULL: not given. */
typedef struct flashspan_forward_call {
  size_t struct_size;
  const DLTensor *query, *key, *value, *sink, *out, *lse;
  const flashspan_mask* mask;   /* NULL: every key is visible */
  const flashspan_score* score; /* NULL: scores as they are */
  const float* scale;           /* NULL: 1 / sqrt(head dim) */
  void* workspace;
  int64_t workspace_bytes;
  flashspan_tile_plan* plan;  /* NULL: every call plans its tiles */
  void* stream;               /* CUstream; NULL: the default stream */
  const flashspan_tile* tile; /* NULL: a tuned one, else that of the built-in table */
} flashspan_forward_call;

typedef struct flashspan_backward_call {
  size_t struct_size;
  const DLTensor *query, *key, *value, *sink, *out, *lse;
  const DLTensor *out_gradient, *lse_gradient;
  const DLTensor *query_gradient, *key_gradient, *value_gradient, *sink_gradient;
  const flashspan_mask* mask;
  const flashspan_score* score;
  const float* scale;
  int32_t deterministic; /* not 0: the same call gives the same bits */
  void* workspace;
  int64_t workspace_bytes;
  flashspan_tile_plan* plan;
  void* stream;
  const flashspan_tile* tile;
  /* Results, as of BackwardCall: gradients of tensors that the score looks up, by their names in it. */
  const flashspan_named_tensor* score_gradients;
  size_t score_gradient_count;
} flashspan_backward_call;

/* options: NULL for the defaults. */
FLASHSPAN_API flashspan_status flashspan_attention_open(DLDevice device, const flashspan_options* options,
                                                        flashspan_attention** attention);
/* After the work that it queued, and the CUDA graphs that captured it. Waits for compiles under way. */
FLASHSPAN_API void flashspan_attention_close(flashspan_attention* attention);

FLASHSPAN_API flashspan_status flashspan_forward_workspace_bytes(const flashspan_attention* attention,
                                                                 const flashspan_forward_call* call, int64_t* bytes);
FLASHSPAN_API flashspan_status flashspan_backward_workspace_bytes(const flashspan_attention* attention,
                                                                  const flashspan_backward_call* call, int64_t* bytes);
/* Compiles and loads the call's kernel. record: NULL, or where to put what is known about it, as JSON. */
FLASHSPAN_API flashspan_status flashspan_prepare_forward(flashspan_attention* attention,
                                                         const flashspan_forward_call* call, char** record);
FLASHSPAN_API flashspan_status flashspan_prepare_backward(flashspan_attention* attention,
                                                          const flashspan_backward_call* call, char** record);
/* Several at a time. statuses: forward_count, then backward_count of them, or NULL. Returns the first that is not
 * FLASHSPAN_OK, whose message flashspan_last_error() has. time_out_seconds: of a call, 0 for none. */
FLASHSPAN_API flashspan_status flashspan_prepare_all(flashspan_attention* attention,
                                                     const flashspan_forward_call* const* forward_calls,
                                                     size_t forward_count,
                                                     const flashspan_backward_call* const* backward_calls,
                                                     size_t backward_count, double time_out_seconds,
                                                     flashspan_status* statuses);
/* What calls do from now on about kernels that they would have to compile. */
FLASHSPAN_API flashspan_status flashspan_freeze(flashspan_attention* attention, flashspan_miss_policy on_miss);
FLASHSPAN_API flashspan_status flashspan_forward(flashspan_attention* attention, const flashspan_forward_call* call);
FLASHSPAN_API flashspan_status flashspan_backward(flashspan_attention* attention, const flashspan_backward_call* call);

/* As flashspan::TuneOptions. */
typedef struct flashspan_tune_options {
  size_t struct_size;
  const flashspan_tile* tiles; /* to try beside the default; NULL: those of the resource model */
  size_t tile_count;
  int32_t most_candidates;       /* of the model's; 0: all */
  double time_limit_seconds;     /* 0: a minute */
  double candidate_milliseconds; /* 0: 60 */
  int32_t forget;                /* not 0: neither writes the tuning file nor changes what later calls take */
  /* NULL, or called by the calling thread once per candidate, which is told as JSON. */
  void (*progress)(void* progress_user, int done, int all, const char* candidate);
  void* progress_user;
} flashspan_tune_options;

/* Times the tiles that the call's kernel may have, on its own tensors, and remembers the fastest (tuning.hpp). The
 * call's results are overwritten; its workspace is not used. options: NULL for the defaults. report: NULL, or where to
 * put what was found, as JSON. */
FLASHSPAN_API flashspan_status flashspan_tune_forward(flashspan_attention* attention,
                                                      const flashspan_forward_call* call,
                                                      const flashspan_tune_options* options, char** report);
FLASHSPAN_API flashspan_status flashspan_tune_backward(flashspan_attention* attention,
                                                       const flashspan_backward_call* call,
                                                       const flashspan_tune_options* options, char** report);

/* For calls that share a workspace and a mask: the first plans, the others reuse (core/tile_plan.hpp). */
FLASHSPAN_API flashspan_status flashspan_tile_plan_create(flashspan_tile_plan** plan);
/* The next call plans anew: the mask's tensors have other values. */
FLASHSPAN_API void flashspan_tile_plan_reset(flashspan_tile_plan* plan);
FLASHSPAN_API int flashspan_tile_plan_is_made(const flashspan_tile_plan* plan);
FLASHSPAN_API void flashspan_tile_plan_free(flashspan_tile_plan* plan);

/* ---- Memory on a device, for callers that bring none of their own. ---- */

typedef struct flashspan_buffer flashspan_buffer;

/* 256-byte aligned, not initialised. */
FLASHSPAN_API flashspan_status flashspan_buffer_allocate(DLDevice device, int64_t bytes, flashspan_buffer** buffer);
FLASHSPAN_API void* flashspan_buffer_data(const flashspan_buffer* buffer);
FLASHSPAN_API flashspan_status flashspan_buffer_copy_from_host(flashspan_buffer* buffer, const void* host,
                                                               int64_t bytes);
FLASHSPAN_API flashspan_status flashspan_buffer_copy_to_host(const flashspan_buffer* buffer, void* host, int64_t bytes);
FLASHSPAN_API void flashspan_buffer_free(flashspan_buffer* buffer);
/* Waits for the work on the stream; errors of that work are returned. */
FLASHSPAN_API flashspan_status flashspan_synchronize(DLDevice device, void* stream);

/* ---- What the library knows, as JSON. ---- */

/* The path from a mask, with tensors in host memory, to its kernels. arch: "sm_90a", or NULL for the CPU. */
FLASHSPAN_API flashspan_status flashspan_explain(const flashspan_mask* mask, const flashspan_score* score,
                                                 const flashspan_shape* shape, DLDataType dtype, const char* arch,
                                                 char** json);
/* Counters and histograms of everything in this process, in the text format of Prometheus (metrics.hpp). */
FLASHSPAN_API flashspan_status flashspan_metrics(char** text);
/* What this machine has, and the command that installs what is missing. cache_dir: as in flashspan_options. */
FLASHSPAN_API flashspan_status flashspan_doctor(const char* cache_dir, char** json);

#ifdef __cplusplus
}
#endif

#endif /* FLASHSPAN_FLASHSPAN_H_ */
