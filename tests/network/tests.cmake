# Addresses, HTTP over both kinds of sockets, and stores over real servers: redis-server where it is installed.
if(NOT TARGET flashspan_network)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(FLASHSPAN_REDIS_SERVER NAMES redis-server valkey-server)
flashspan_add_tests(network LINK flashspan_network_objects flashspan_cache flashspan_core
                                 PkgConfig::FLASHSPAN_NETWORK_REQUIREMENTS Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(test_network PRIVATE FLASHSPAN_NETWORK_PLUGIN="$<TARGET_FILE:flashspan_network>"
                                                FLASHSPAN_REDIS_SERVER="${FLASHSPAN_REDIS_SERVER}"
                                                FLASHSPAN_NM="${CMAKE_NM}" FLASHSPAN_PYTHON="${Python3_EXECUTABLE}"
  FLASHSPAN_PUT_GET_SERVER="${CMAKE_CURRENT_SOURCE_DIR}/network/put_get_server.py")
add_dependencies(test_network flashspan_network)
