# Readers of what comes from outside, fed with anything. Every build replays the inputs that are kept; with Clang and
# FLASHSPAN_BUILD_FUZZERS, libFuzzer looks for new ones (tests/fuzz/run.sh).
function(flashspan_add_fuzz_test reader)
  add_executable(fuzz_${reader} fuzz/${reader}.cpp)
  target_link_libraries(fuzz_${reader} PRIVATE flashspan_options ${ARGN})
  if(FLASHSPAN_BUILD_FUZZERS)
    target_link_options(fuzz_${reader} PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  target_sources(fuzz_${reader} PRIVATE fuzz/replay.cpp)
  add_test(NAME fuzz.${reader} COMMAND fuzz_${reader} "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${reader}")
  set_tests_properties(fuzz.${reader} PROPERTIES LABELS fuzz)
endfunction()

flashspan_add_fuzz_test(mask_parser flashspan_codegen_mask flashspan_core)
flashspan_add_fuzz_test(entry_file flashspan_cache flashspan_core Threads::Threads)
flashspan_add_fuzz_test(bundle_file flashspan_cache flashspan_core Threads::Threads)
flashspan_add_fuzz_test(service_request flashspan)
