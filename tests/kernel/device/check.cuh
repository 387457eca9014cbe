// check.cuh -- EXPECT for device code: counts checks and failures, and keeps the line of the first failure.
#pragma once

struct Checks {
  int count;
  int failures;
  int first_line;
};

#define EXPECT(condition) expect(checks, (condition), __LINE__)

__device__ inline void expect(Checks* checks, bool holds, int line) {
  atomicAdd(&checks->count, 1);
  if (holds) return;
  atomicAdd(&checks->failures, 1);
  atomicCAS(&checks->first_line, 0, line);
}
