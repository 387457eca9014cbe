# Object libraries, not the whole library: what is tested here needs neither the API nor the cache.
set(cuda_test_objects flashspan_core flashspan_codegen_mask flashspan_codegen_kernel flashspan_runtime_cuda)

file(GLOB cuda_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cuda/*_test.cpp")
add_executable(test_cuda ${cuda_tests})
target_link_libraries(test_cuda PRIVATE flashspan_options ${cuda_test_objects} GTest::gtest_main GTest::gmock
                                        ${CMAKE_DL_LIBS})
gtest_discover_tests(test_cuda TEST_PREFIX "cuda." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS cuda)

add_library(recording_libcuda MODULE cuda/recording_libcuda.cpp)
target_link_libraries(recording_libcuda PRIVATE flashspan_options)
set_target_properties(recording_libcuda PROPERTIES OUTPUT_NAME recording_cuda)
target_link_options(recording_libcuda PRIVATE LINKER:-soname,libcuda.so.1)

add_executable(test_cuda_without_driver cuda/compile_without_driver.cpp)
target_link_libraries(test_cuda_without_driver PRIVATE flashspan_options ${cuda_test_objects} GTest::gtest_main
                                                       ${CMAKE_DL_LIBS})
target_compile_definitions(test_cuda_without_driver
                           PRIVATE FLASHSPAN_RECORDING_LIBCUDA="$<TARGET_FILE:recording_libcuda>")
add_dependencies(test_cuda_without_driver recording_libcuda)
gtest_discover_tests(test_cuda_without_driver TEST_PREFIX "cuda." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS cuda)

add_executable(test_cuda_without_nvrtc cuda/name_without_opening.cpp)
target_link_libraries(test_cuda_without_nvrtc PRIVATE flashspan_options ${cuda_test_objects} GTest::gtest_main
                                                      GTest::gmock ${CMAKE_DL_LIBS})
gtest_discover_tests(test_cuda_without_nvrtc TEST_PREFIX "cuda." DISCOVERY_MODE PRE_TEST PROPERTIES LABELS cuda)

# Sanitizers see the compiler's side by the tests above.
if(FLASHSPAN_SANITIZE)
  return()
endif()
# Not a test of its own: takes minutes. CI runs it.
add_executable(compile_matrix cuda/compile_matrix.cpp)
target_link_libraries(compile_matrix PRIVATE flashspan_options ${cuda_test_objects} GTest::gtest ${CMAKE_DL_LIBS})

# Not a test either: what the resource model's registers are taken from.
add_executable(tile_matrix cuda/tile_matrix.cpp)
target_link_libraries(tile_matrix PRIVATE flashspan_options ${cuda_test_objects} GTest::gtest ${CMAKE_DL_LIBS})
