/* check.h -- what the C tests say when something is not as it should be. */
#ifndef FLASHSPAN_TESTS_CAPI_CHECK_H_
#define FLASHSPAN_TESTS_CAPI_CHECK_H_

#include <flashspan/flashspan.h>

/* Both count a failure and go on. */
#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
#define CHECK_OK(call) check_status((call), FLASHSPAN_OK, #call, __FILE__, __LINE__)
#define CHECK_STATUS(expected, call) check_status((call), (expected), #call, __FILE__, __LINE__)

void check(int holds, const char* what, const char* file, int line);
void check_status(flashspan_status got, flashspan_status expected, const char* what, const char* file, int line);
int failures(void);

#endif
