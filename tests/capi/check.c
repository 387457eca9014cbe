#include "check.h"

#include <stdio.h>

static int failed = 0;

void check(int holds, const char* what, const char* file, int line) {
  if (holds) return;
  ++failed;
  printf("%s:%d: not so: %s\n", file, line, what);
}

void check_status(flashspan_status got, flashspan_status expected, const char* what, const char* file, int line) {
  if (got == expected) return;
  ++failed;
  printf("%s:%d: %s gives %s: %s\n", file, line, what, flashspan_status_name(got), flashspan_last_error());
}

int failures(void) { return failed; }
