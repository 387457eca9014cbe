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

int main(void) {
  test_inspection();
  test_gpu();
  flashspan_options options = {sizeof options, count_line, &lines, "", 1, NULL};
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
  flashspan_attention_close(attention);
  printf("%d failures\n", failures());
  return failures() != 0;
}
