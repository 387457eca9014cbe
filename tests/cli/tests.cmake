# The command and the examples as other processes, and the file formats that they read and write.
if(NOT TARGET flashspan_command)
  return()
endif()
find_package(nlohmann_json REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
flashspan_add_tests(cli LINK flashspan_tool_parts flashmask_family_masks flashspan_oracle
                             nlohmann_json::nlohmann_json PNG::PNG ZLIB::ZLIB)
target_compile_definitions(test_cli PRIVATE
  FLASHSPAN_COMMAND="$<TARGET_FILE:flashspan_command>"
  FLASHSPAN_FIRST_ATTENTION="$<TARGET_FILE:first_attention>"
  FLASHSPAN_FAMILIES="$<TARGET_FILE:flashmask_families>"
  FLASHSPAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
if(NOT TARGET flashspan_network)
  set_source_files_properties(cli/serve_test.cpp PROPERTIES HEADER_FILE_ONLY ON)  # not compiled
endif()
add_dependencies(test_cli flashspan_command first_attention flashmask_families)
