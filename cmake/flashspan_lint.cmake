# Targets `format` (rewrites), `format_check` and `lint` (clang-tidy on every source that this build compiles).
find_program(FLASHSPAN_CLANG_FORMAT NAMES clang-format-19)
find_program(FLASHSPAN_CLANG_TIDY NAMES clang-tidy-19)
find_package(Python3 COMPONENTS Interpreter)

if(Python3_FOUND AND FLASHSPAN_CLANG_FORMAT)
  set(format_command "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/format.py" "${FLASHSPAN_CLANG_FORMAT}")
  add_custom_target(format COMMAND ${format_command} --write VERBATIM USES_TERMINAL)
  add_custom_target(format_check COMMAND ${format_command} VERBATIM USES_TERMINAL)
endif()
if(Python3_FOUND AND FLASHSPAN_CLANG_TIDY)
  add_custom_target(lint COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/lint.py"
                                 "${FLASHSPAN_CLANG_TIDY}" "${PROJECT_BINARY_DIR}" VERBATIM USES_TERMINAL)
endif()
