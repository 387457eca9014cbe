# From spec to source text, and the emitted kernels themselves, run by the emulator in kernel/emulator.
file(GLOB kernel_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/kernel/*.cpp"
     "${CMAKE_CURRENT_SOURCE_DIR}/kernel/emulator/*.cpp")
add_executable(test_kernel ${kernel_tests} mask/random_programs.cpp mask/random_environment.cpp mask/range_masks.cpp)
target_link_libraries(test_kernel PRIVATE flashspan_options flashspan_core flashspan_codegen_mask
                                          flashspan_codegen_kernel flashspan_runtime_cuda flashspan_oracle
                                          GTest::gtest_main GTest::gmock ${CMAKE_DL_LIBS})
target_compile_definitions(test_kernel PRIVATE FLASHSPAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                               FLASHSPAN_HOST_COMPILER="${CMAKE_CXX_COMPILER}")
gtest_discover_tests(test_kernel TEST_PREFIX "kernel." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS kernel)

# Every template alone under clang and clang-tidy, where both are installed; no CUDA toolkit is needed.
find_program(FLASHSPAN_TEMPLATE_CLANG clang++-19)
find_program(FLASHSPAN_TEMPLATE_TIDY clang-tidy-19)
if(FLASHSPAN_TEMPLATE_CLANG AND FLASHSPAN_TEMPLATE_TIDY)
  add_test(NAME kernel.TemplatesReadAloneWithoutFindings COMMAND "${PROJECT_SOURCE_DIR}/tools/lint_templates.sh")
  # The longest of all: with a cost it begins first.
  set_tests_properties(kernel.TemplatesReadAloneWithoutFindings PROPERTIES LABELS kernel COST 100)
endif()
