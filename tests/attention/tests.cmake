# One suite for every back end, through the public API; CUDA-only tests reach for the driver.
flashspan_add_tests(attention LINK flashspan flashspan_oracle)
if(TARGET flashspan_cpu)
  target_compile_definitions(test_attention PRIVATE FLASHSPAN_TESTS_EXPECT_CPU)
  add_dependencies(test_attention flashspan_cpu)
endif()
