# Headers that are parsed once a target. Off unless asked for: a source that forgets an #include then compiles all the same, and
# ccache does not keep what it compiles. It halves the time of the sanitizer builds with clang; g++ 12 gains nothing by it.
option(FLASHSPAN_PRECOMPILE_HEADERS "Parse the headers of the standard library and of others once a target" OFF)

# Usage: flashspan_precompile_headers(test_mask <gtest/gtest.h>)
function(flashspan_precompile_headers target)
  if(FLASHSPAN_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <filesystem> <functional> <map> <memory> <optional>
                              <sstream> <string> <variant> <vector> ${ARGN})
  endif()
endfunction()
