# Installs a build into a fresh prefix, builds and runs tests/consumer against it, then moves the prefix and does so
# again. Usage: cmake -DBUILD= -DSOURCE= -DWORK= -DGENERATOR= -DCOMPILER= -P install_and_consume.cmake
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(consume prefix)
  set(consumer "${prefix}-consumer")
  run("${CMAKE_COMMAND}" -S "${SOURCE}/tests/consumer" -B "${consumer}" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${prefix}"
      "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
  run("${CMAKE_COMMAND}" --build "${consumer}")
  # What is used comes from the prefix, not from the build tree.
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env "FLASHSPAN_CACHE_DIR=${prefix}-cache" "${consumer}/consumer"
                  COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  if(output MATCHES "plug-in:" AND NOT output MATCHES "plug-in: ${prefix}/")
    message(FATAL_ERROR "the consumer loaded another ${output}")
  endif()
  file(STRINGS "${consumer}/CMakeCache.txt" found REGEX "^flashspan_DIR:")
  if(NOT found MATCHES "=${prefix}/")
    message(FATAL_ERROR "the consumer used ${found}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/first")
file(GLOB_RECURSE installed RELATIVE "${WORK}/first" "${WORK}/first/*")
foreach(path IN LISTS installed)
  if(path MATCHES "\\.(hpp|h|cuh)$" AND NOT path MATCHES "^include/flashspan/")
    message(FATAL_ERROR "a private header is installed: ${path}")
  endif()
endforeach()
if(EXISTS "${WORK}/first/bin/flashspan")
  run("${WORK}/first/bin/flashspan" --help)
endif()
consume("${WORK}/first")
file(RENAME "${WORK}/first" "${WORK}/moved")
consume("${WORK}/moved")
file(REMOVE_RECURSE "${WORK}")
