# Programs that the library writes, compiled by the machine's C compiler against a driver that only keeps what it is asked.
flashspan_add_tests(emit LINK flashspan ${CMAKE_DL_LIBS})
target_compile_definitions(test_emit PRIVATE FLASHSPAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
