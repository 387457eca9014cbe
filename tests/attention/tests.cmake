# One suite for every back end, through the public API; CUDA-only tests reach for the driver.
find_package(nlohmann_json REQUIRED)
add_executable(repeat_calls attention/worker/repeat_calls.cpp attention/attention_fixture.cpp
                            attention/placed_tensor.cpp)
target_link_libraries(repeat_calls PRIVATE flashspan_options flashspan flashspan_oracle)

flashspan_add_tests(attention LINK flashspan flashspan_oracle nlohmann_json::nlohmann_json)
target_sources(test_attention PRIVATE cli/process.cpp)
target_compile_definitions(test_attention PRIVATE FLASHSPAN_REPEAT_CALLS="$<TARGET_FILE:repeat_calls>")
add_dependencies(test_attention repeat_calls)
if(TARGET flashspan_cpu)
  target_compile_definitions(test_attention PRIVATE FLASHSPAN_TESTS_EXPECT_CPU)
  add_dependencies(test_attention flashspan_cpu)
endif()

# When the driver loads a module is a setting of the process: captures are tested under both.
foreach(loading EAGER LAZY)
  string(TOLOWER ${loading} name)
  gtest_discover_tests(test_attention TEST_PREFIX "attention.${name}_loading." TEST_FILTER "*CudaCapture*"
                       TEST_LIST test_attention_${name}_loading DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS attention ENVIRONMENT CUDA_MODULE_LOADING=${loading})
endforeach()
