# The mask language: programs, parser, simplifier, interval analysis, evaluation, derivative, named masks.
flashspan_add_tests(mask LINK flashspan_codegen_mask flashspan_core)
target_compile_definitions(test_mask PRIVATE FLASHSPAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
