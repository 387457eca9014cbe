# The path from a call to its launch over a fake back end, and what the environment decides.
flashspan_add_tests(runtime LINK flashspan)
