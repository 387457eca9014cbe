# The CPU back end's objects, LLVM included, are linked into the test: emitted functions are called one by one.
if(FLASHSPAN_BUILD_CPU)
  file(GLOB cpu_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cpu/*.cpp")
  list(FILTER cpu_tests EXCLUDE REGEX "/plugin_test\\.cpp$")
  add_executable(test_cpu ${cpu_tests})
  target_link_libraries(test_cpu PRIVATE flashspan_options flashspan_core flashspan_codegen_mask
                                         flashspan_codegen_kernel flashspan_runtime_cpu flashspan_cpu_requirements
                                         flashspan_oracle GTest::gtest_main GTest::gmock)
  gtest_discover_tests(test_cpu TEST_PREFIX "cpu." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS cpu)

  # The plug-in as a process sees it.
  add_executable(test_cpu_plugin cpu/plugin_test.cpp)
  target_link_libraries(test_cpu_plugin PRIVATE flashspan_options flashspan::flashspan GTest::gtest_main GTest::gmock
                                                ${CMAKE_DL_LIBS})
  target_compile_definitions(test_cpu_plugin PRIVATE FLASHSPAN_CPU_PLUGIN="$<TARGET_FILE:flashspan_cpu>"
                                                     FLASHSPAN_NM="${CMAKE_NM}")
  add_dependencies(test_cpu_plugin flashspan_cpu)
  gtest_discover_tests(test_cpu_plugin TEST_PREFIX "cpu." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS cpu)
endif()
