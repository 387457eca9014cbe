# The cache's tests, and the small programs that they run as other processes.
add_executable(cache_worker cache/worker/cache_worker.cpp)
target_link_libraries(cache_worker PRIVATE flashspan_options flashspan_cache flashspan_core Threads::Threads)
# It makes and compares entries by the thousand, of which each byte would be a few calls.
target_compile_options(cache_worker PRIVATE -O2)
add_library(fail_file_calls MODULE cache/worker/fail_file_calls.cpp)
target_link_libraries(fail_file_calls PRIVATE flashspan_options ${CMAKE_DL_LIBS})
add_library(jump_clock MODULE cache/worker/jump_clock.cpp)
target_link_libraries(jump_clock PRIVATE flashspan_options)
# A sanitizer's runtime looks at the clock before its own code may be run.
target_compile_options(jump_clock PRIVATE -fno-sanitize=all)
target_link_options(jump_clock PRIVATE -fno-sanitize=all)

flashspan_add_tests(cache LINK flashspan_cache flashspan_core Threads::Threads)
target_include_directories(test_cache SYSTEM PRIVATE "${FLASHSPAN_XXHASH_INCLUDE_DIR}")
target_compile_definitions(test_cache PRIVATE
  FLASHSPAN_CACHE_WORKER="$<TARGET_FILE:cache_worker>" FLASHSPAN_FAIL_FILE_CALLS="$<TARGET_FILE:fail_file_calls>"
  FLASHSPAN_JUMP_CLOCK="$<TARGET_FILE:jump_clock>")
add_dependencies(test_cache cache_worker fail_file_calls jump_clock)
