# The oracle is always optimised: it is most of the suite's work in a debug build.
add_library(flashspan_oracle STATIC oracle/formats.cpp oracle/random_numbers.cpp oracle/reference_attention.cpp
                                    oracle/plain_attention.cpp oracle/pass_rule.cpp)
target_compile_options(flashspan_oracle PRIVATE -O2)
target_include_directories(flashspan_oracle INTERFACE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(flashspan_oracle PRIVATE flashspan_options PUBLIC GTest::gtest)

add_executable(test_oracle oracle/oracle_test.cpp)
target_link_libraries(test_oracle PRIVATE flashspan_options flashspan_oracle GTest::gtest_main)
gtest_discover_tests(test_oracle TEST_PREFIX "oracle." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS oracle)
