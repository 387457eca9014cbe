# The path from a call to its launch over a fake back end, what the environment decides, and the CPU end to end.
flashspan_add_tests(runtime LINK flashspan)
if(TARGET flashspan_cpu)
  add_dependencies(test_runtime flashspan_cpu)
endif()
