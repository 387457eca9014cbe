# Options that every target of ours is built with, as one interface library.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# Sanitizers need every object of a program: they are set for all targets, ours and not ours, in one place.
set(FLASHSPAN_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
if(FLASHSPAN_SANITIZE)
  add_compile_options(-fsanitize=${FLASHSPAN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # Sanitizers call dlopen for us, and a run path of the new kind counts for calls of its own object only.
  add_link_options(-fsanitize=${FLASHSPAN_SANITIZE} LINKER:--disable-new-dtags)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND FLASHSPAN_SANITIZE MATCHES "undefined")
    # LLVM is built without type information, and functions that are looked up or made at run time carry no type.
    add_compile_options(-fno-sanitize=vptr,function)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # GCC says in its manual: false positives with sanitizers
  endif()
endif()

option(FLASHSPAN_BUILD_FUZZERS "Build tests/fuzz as libFuzzer targets (needs Clang)" OFF)
if(FLASHSPAN_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

add_library(flashspan_options INTERFACE)
target_compile_options(flashspan_options INTERFACE -Wall -Wextra -Wpedantic -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Optimising, g++ 12 sees overlapping copies in `"text" + std::string` (GCC bug 105651).
  target_compile_options(flashspan_options INTERFACE -Wno-restrict)
endif()
target_include_directories(flashspan_options INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include")

# One object library per folder: its objects go into the library, the CPU plug-in and the tests alike.
function(flashspan_add_objects name)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  add_library(${name} OBJECT ${sources})
  target_link_libraries(${name} PRIVATE flashspan_options ${ARGN})
  if(FLASHSPAN_SANITIZE)
    # Tests of masks and plans do much arithmetic in it; the rest takes longer to optimise than to run.
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()
