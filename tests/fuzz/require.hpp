// require.hpp -- what must hold for every input; a fault ends the process, which is what a fuzzer sees.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace flashspan::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace flashspan::fuzz
