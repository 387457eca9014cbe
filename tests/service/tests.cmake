# The compile service without a network: requests, jobs, what a server answers and what a client makes of it.
flashspan_add_tests(service LINK flashspan)
