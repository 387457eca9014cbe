/* errors.c -- what is refused at the border: NULL, structures of other sizes, what DLPack can say and we cannot take.
 */
#include <string.h>

#include "check.h"
#include "problem.h"

static void test_structures(flashspan_attention* attention) {
  static problem p;
  make_problem(&p);
  int64_t bytes = -1;
  flashspan_forward_call call = forward_of(&p);
  call.struct_size = 0;
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_forward_workspace_bytes(attention, &call, &bytes));
  CHECK(strstr(flashspan_last_error(), "struct_size") != NULL);
  CHECK(bytes == -1);

  /* A caller of a version that knows more fields: fine as long as they are zero. */
  struct {
    flashspan_forward_call known;
    int64_t unknown;
  } newer;
  memset(&newer, 0, sizeof newer);
  newer.known = forward_of(&p);
  newer.known.struct_size = sizeof newer;
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &newer.known, &bytes));
  newer.unknown = 1;
  CHECK_STATUS(FLASHSPAN_UNSUPPORTED, flashspan_forward_workspace_bytes(attention, &newer.known, &bytes));

  /* One of a version that knew fewer: what it does not have is zero, whatever stands in memory behind it. */
  flashspan_forward_call older = forward_of(&p);
  older.struct_size = offsetof(flashspan_forward_call, plan);
  older.plan = (flashspan_tile_plan*)&p;
  CHECK_OK(flashspan_forward_workspace_bytes(attention, &older, &bytes));
}

static void test_sharing(void) {
#ifdef EXPECT_NETWORK
  flashspan_attention* attention = NULL;
  flashspan_options options = {.struct_size = sizeof options, .cache_dir = "", .shared_store = "ftp://host"};
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_attention_open(cpu, &options, &attention));
  CHECK(strstr(flashspan_last_error(), "shared store: got ftp://host") != NULL);
  options.shared_store = "redis://127.0.0.1:1"; /* nobody there: no error */
  options.signing_key_file = "/no/such/file";
  CHECK_STATUS(FLASHSPAN_IO_ERROR, flashspan_attention_open(cpu, &options, &attention));
  CHECK(attention == NULL);
  options.signing_key_file = "";
  CHECK_OK(flashspan_attention_open(cpu, &options, &attention));
  flashspan_attention_close(attention);
#endif
}

/* A layer that cannot be opened is told of and done without. */
static int warnings = 0;
static void count_warning(void* user, flashspan_log_level level, const char* line) {
  if (level == FLASHSPAN_LOG_WARNING && strstr(line, "/no/such.fsb") != NULL) ++*(int*)user;
}
static void test_layers(void) {
  flashspan_attention* attention = NULL;
  const flashspan_options options = {.struct_size = sizeof options,
                                     .log = count_warning,
                                     .log_user = &warnings,
                                     .cache_dir = "",
                                     .cache_path = "/no/such.fsb",
                                     .accept_other_nvrtc = 1};
  CHECK_OK(flashspan_attention_open(cpu, &options, &attention));
  CHECK(warnings == 1);
  flashspan_attention_close(attention);
}

static void test_null(flashspan_attention* attention) {
  flashspan_mask* mask = NULL;
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_mask_parse(NULL, NULL, 0, NULL, 0, &mask));
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_mask_parse("causal", NULL, 0, NULL, 0, NULL));
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_mask_parse("causal", NULL, 1, NULL, 0, &mask));
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_mask_flashmask(NULL, NULL, 1, &mask));
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_mask_and(NULL, NULL, &mask));
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_forward(NULL, NULL));
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_forward(attention, NULL));
  CHECK(mask == NULL);
  flashspan_mask_free(NULL);
  flashspan_score_free(NULL);
  flashspan_attention_close(NULL);
  flashspan_tile_plan_free(NULL);
  flashspan_buffer_free(NULL);
  flashspan_free_text(NULL);
}

static void test_messages(flashspan_attention* attention) {
  flashspan_mask* mask = NULL;
  CHECK_STATUS(FLASHSPAN_BAD_EXPRESSION, flashspan_mask_parse("q >= ", NULL, 0, NULL, 0, &mask));
  CHECK(strchr(flashspan_last_error(), '^') != NULL);
  CHECK(mask == NULL);
  static problem p;
  make_problem(&p);
  flashspan_forward_call call = forward_of(&p);
  CHECK_STATUS(FLASHSPAN_WORKSPACE_TOO_SMALL, flashspan_forward(attention, &call));
  const DLDevice vulkan = {kDLVulkan, 0};
  p.key_t.dl.device = vulkan;
  CHECK_STATUS(FLASHSPAN_UNSUPPORTED, flashspan_forward(attention, &call));
  CHECK(strstr(flashspan_last_error(), "key") != NULL);
  make_problem(&p);
  p.value_t.dl.dtype.lanes = 4;
  CHECK_STATUS(FLASHSPAN_UNSUPPORTED, flashspan_forward(attention, &call));
  CHECK(strstr(flashspan_last_error(), "value") != NULL);
  make_problem(&p);
  p.query_t.dl.ndim = 6;
  CHECK_STATUS(FLASHSPAN_UNSUPPORTED, flashspan_forward(attention, &call));
  make_problem(&p);
  for (int axis = 0; axis < 4; ++axis) p.query_t.dl.shape[axis] = INT64_MAX / 3;  // row-major strides past 64 bits
  p.query_t.dl.strides = NULL;
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_forward(attention, &call));
  CHECK(strstr(flashspan_last_error(), "batch") != NULL);
}

void test_errors(flashspan_attention* attention) {
  test_structures(attention);
  test_sharing();
  test_layers();
  test_null(attention);
  test_messages(attention);
}
