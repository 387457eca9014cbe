# The command's readers and writers of NumPy files, called directly: sanitizers see them without the command.
if(NOT TARGET flashspan_tool_parts)
  return()
endif()
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
flashspan_add_tests(numpy LINK flashspan_tool_parts flashspan_oracle nlohmann_json::nlohmann_json ZLIB::ZLIB)
target_sources(test_numpy PRIVATE cli/numpy_files.cpp cli/process.cpp)
