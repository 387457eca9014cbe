# Kernels of Triton's: read from entries that the Triton of build/python compiles, and launched where there is a GPU.
find_package(nlohmann_json REQUIRED)
flashspan_add_tests(triton LINK flashspan nlohmann_json::nlohmann_json)
target_compile_definitions(test_triton PRIVATE FLASHSPAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
