# The oracle is always optimised, and without sanitizers: it is most of the suite's work in a debug build. Its own tests have it
# as they are compiled themselves.
set(oracle_sources oracle/formats.cpp oracle/random_numbers.cpp oracle/reference_attention.cpp oracle/plain_attention.cpp
                   oracle/pass_rule.cpp)
add_library(flashspan_oracle STATIC ${oracle_sources})
target_compile_options(flashspan_oracle PRIVATE -O2 -fno-sanitize=all)
target_include_directories(flashspan_oracle INTERFACE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(flashspan_oracle PRIVATE flashspan_options PUBLIC GTest::gtest)

add_executable(test_oracle oracle/oracle_test.cpp ${oracle_sources})
target_include_directories(test_oracle PRIVATE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(test_oracle PRIVATE flashspan_options GTest::gtest_main)
gtest_discover_tests(test_oracle TEST_PREFIX "oracle." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS oracle)
