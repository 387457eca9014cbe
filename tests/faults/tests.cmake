# Load and faults: many processes on one cold cache and one service, killed at random points, on disks that are full, read
# only or fail. A short run is a test; docs/reliability.md has the figures of a long one, and its command.
# Sanitizers do not bear libraries that are preloaded, nor tell more about processes that are killed.
if(NOT TARGET flashspan_network OR NOT TARGET flashspan_command OR FLASHSPAN_SANITIZE)
  return()
endif()
add_executable(kernel_client faults/kernel_client.cpp)
target_link_libraries(kernel_client PRIVATE flashspan_options flashspan::flashspan)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME faults.NoKernelIsWrongOrLostWhateverIsKilledOrBroken
         COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/faults/run.py" "--build=${PROJECT_BINARY_DIR}"
                 --processes=3 --kernels=2 --kills=3)
set_tests_properties(faults.NoKernelIsWrongOrLostWhateverIsKilledOrBroken
                     PROPERTIES LABELS faults SKIP_RETURN_CODE 77 TIMEOUT 600 COST 50)
