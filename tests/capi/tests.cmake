# A C program that uses every function of the C interface, and the list of what the library exports.
if(NOT TARGET flashspan_c)
  return()
endif()
# The C compiler beside the C++ one: sanitizers are of one make in a program.
if(NOT CMAKE_C_COMPILER)
  get_filename_component(cxx_folder "${CMAKE_CXX_COMPILER}" DIRECTORY)
  get_filename_component(cxx_name "${CMAKE_CXX_COMPILER}" NAME)
  string(REPLACE "clang++" "clang" c_name "${cxx_name}")
  string(REPLACE "g++" "gcc" c_name "${c_name}")
  if(c_name STREQUAL "c++")
    set(c_name cc)
  endif()
  set(CMAKE_C_COMPILER "${cxx_folder}/${c_name}")
endif()
enable_language(C)

add_executable(test_capi capi/check.c capi/tensors.c capi/problem.c capi/masks.c capi/attention.c capi/errors.c capi/main.c)
set_target_properties(test_capi PROPERTIES UNITY_BUILD OFF C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF LINKER_LANGUAGE CXX)
target_compile_options(test_capi PRIVATE -Wall -Wextra -Werror -pedantic)
target_link_libraries(test_capi PRIVATE flashspan_c m)
if(TARGET flashspan_cpu)
  add_dependencies(test_capi flashspan_cpu)
  target_compile_definitions(test_capi PRIVATE EXPECT_CPU)
endif()
if(TARGET flashspan_network)
  add_dependencies(test_capi flashspan_network)
  target_compile_definitions(test_capi PRIVATE EXPECT_NETWORK)
endif()
add_test(NAME capi.ACProgramUsesEveryFunction COMMAND test_capi)
add_test(NAME capi.ExportsExactlyTheListedSymbolsAndTheProgramUsesThemAll
         COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/capi/check_symbols.py"
                 "${CMAKE_CURRENT_SOURCE_DIR}/capi/symbols.txt" "${PROJECT_SOURCE_DIR}/include/flashspan/flashspan.h"
                 "$<TARGET_FILE:flashspan_c>" "$<TARGET_FILE:test_capi>")
set_tests_properties(capi.ACProgramUsesEveryFunction capi.ExportsExactlyTheListedSymbolsAndTheProgramUsesThemAll
                     PROPERTIES LABELS capi)
