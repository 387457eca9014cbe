# Configures the source tree afresh and checks what is said. Usage: cmake -DSOURCE= -DWORK= -DGENERATOR= -DCOMPILER=
# -DOPTIONS=a;b -DEXPECT_SUCCESS=ON|OFF -DEXPECT_TEXT=regex -P configure.cmake
file(REMOVE_RECURSE "${WORK}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" ${OPTIONS}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(EXPECT_SUCCESS AND NOT result EQUAL 0)
  message(FATAL_ERROR "configuring failed:\n${output}")
elseif(NOT EXPECT_SUCCESS AND result EQUAL 0)
  message(FATAL_ERROR "configuring should have failed:\n${output}")
endif()
string(REGEX REPLACE "[ \n]+" " " line "${output}")  # CMake wraps error messages
if(NOT line MATCHES "${EXPECT_TEXT}")
  message(FATAL_ERROR "\"${EXPECT_TEXT}\" is not in:\n${output}")
endif()
file(REMOVE_RECURSE "${WORK}")
