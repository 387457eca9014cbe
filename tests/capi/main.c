/* main.c -- every function of the C interface, on the CPU; on a GPU too where there is one. */
#include <flashspan/flashspan.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "problem.h"

static void test_inspection(void) {
  CHECK(strlen(flashspan_version()) >= 5);
  CHECK(strcmp(flashspan_status_name(FLASHSPAN_NOT_PREPARED), "not_prepared") == 0);
  CHECK(strcmp(flashspan_status_name((flashspan_status)77), "unknown") == 0);
  char* text = NULL;
  CHECK_OK(flashspan_doctor("", &text));
  CHECK(strstr(text, "\"subject\":\"nvrtc\"") != NULL);
  flashspan_free_text(text);
  flashspan_mask* causal = NULL;
  CHECK_OK(flashspan_mask_parse("causal", NULL, 0, NULL, 0, &causal));
  const flashspan_shape shape = {sizeof shape, 1, 1, 1, 256, 256, 64, 64};
  const DLDataType bfloat16 = {kDLBfloat, 16, 1};
  CHECK_OK(flashspan_explain(causal, NULL, &shape, bfloat16, "sm_90a", &text));
  CHECK(strstr(text, "\"visible_pairs\":32896") != NULL);
  CHECK(strstr(text, "\"family\":\"hopper\"") != NULL);
  flashspan_free_text(text);
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_explain(causal, NULL, &shape, bfloat16, "sm_", &text));
  flashspan_mask_free(causal);
}

static int lines = 0;
static void count_line(void* user, flashspan_log_level level, const char* line) {
  if (level >= FLASHSPAN_LOG_INFO && line[0] != 0) ++*(int*)user;
}

/* A compile's `before` and `after` name the same kernel. */
static int compiles = 0;
static void before_compile(void* user, const char* spec, const char* key) {
  CHECK(spec[0] != 0 && strlen(key) == 32);
  ++*(int*)user;
}
static void after_compile(void* user, const char* spec, const char* key, double milliseconds, flashspan_status status) {
  CHECK(spec[0] != 0 && strlen(key) == 32 && milliseconds > 0 && status == FLASHSPAN_OK);
  *(int*)user += 1000;
}

static void test_metrics(void) {
  char* text = NULL;
  CHECK_OK(flashspan_metrics(&text));
  CHECK(strstr(text, "# TYPE flashspan_compiles_total counter\n") != NULL);
  CHECK(strstr(text, "flashspan_compiles_total{result=\"ok\"} 0\n") == NULL); /* some have been compiled */
  flashspan_free_text(text);
  CHECK_STATUS(FLASHSPAN_BAD_ARGUMENT, flashspan_metrics(NULL));
}

int main(void) {
  test_inspection();
  test_gpu();
  flashspan_options options = {.struct_size = sizeof options,
                               .log = count_line,
                               .log_user = &lines,
                               .cache_dir = "",
                               .compile_threads = 1,
                               .before_compile = before_compile,
                               .after_compile = after_compile,
                               .compile_user = &compiles};
  flashspan_attention* attention = NULL;
  const flashspan_status opened = flashspan_attention_open(cpu, &options, &attention);
#ifndef EXPECT_CPU
  if (opened == FLASHSPAN_MISSING_COMPONENT) {
    printf("no CPU back end: %s\n", flashspan_last_error());
    return failures() != 0;
  }
#endif
  CHECK(opened == FLASHSPAN_OK);
  if (opened != FLASHSPAN_OK) return 1;
  test_masks(attention);
  test_attention(attention);
  test_errors(attention);
  CHECK(lines > 0); /* compiles are logged */
  CHECK(compiles > 0 && compiles % 1001 == 0);
  test_metrics();
  flashspan_attention_close(attention);
  printf("%d failures\n", failures());
  return failures() != 0;
}
