# One suite for every back end, through the public API; CUDA-only tests reach for the driver.
find_package(nlohmann_json REQUIRED)
# What looks at every element of every tensor of every test, optimised as the oracle is.
set(fixture_sources attention_fixture.cpp placed_tensor.cpp)
list(TRANSFORM fixture_sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/attention/")
add_library(flashspan_attention_fixture STATIC ${fixture_sources})
target_compile_options(flashspan_attention_fixture PRIVATE -O2)
target_link_libraries(flashspan_attention_fixture PRIVATE flashspan_options PUBLIC flashspan flashspan_oracle)

add_executable(repeat_calls attention/worker/repeat_calls.cpp)
target_link_libraries(repeat_calls PRIVATE flashspan_options flashspan_attention_fixture)

flashspan_add_tests(attention WITHOUT ${fixture_sources} LINK flashspan_attention_fixture nlohmann_json::nlohmann_json)
target_sources(test_attention PRIVATE cli/process.cpp)
target_compile_definitions(test_attention PRIVATE FLASHSPAN_REPEAT_CALLS="$<TARGET_FILE:repeat_calls>")
add_dependencies(test_attention repeat_calls)
if(TARGET flashspan_cpu)
  target_compile_definitions(flashspan_attention_fixture PUBLIC FLASHSPAN_TESTS_EXPECT_CPU)
  add_dependencies(test_attention flashspan_cpu)
endif()

# When the driver loads a module is a setting of the process: captures are tested under both.
foreach(loading EAGER LAZY)
  string(TOLOWER ${loading} name)
  gtest_discover_tests(test_attention TEST_PREFIX "attention.${name}_loading." TEST_FILTER "*CudaCapture*"
                       TEST_LIST test_attention_${name}_loading DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS attention ENVIRONMENT CUDA_MODULE_LOADING=${loading})
endforeach()
