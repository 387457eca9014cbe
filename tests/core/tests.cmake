add_executable(test_core core/types_test.cpp)
target_link_libraries(test_core PRIVATE flashspan_options flashspan_core GTest::gtest_main)
gtest_discover_tests(test_core TEST_PREFIX "core." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS core)
