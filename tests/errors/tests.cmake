# One test per user mistake: the message names the argument, what it got and what it takes.
flashspan_add_tests(errors LINK flashspan)
