# What holds for the tree and the build themselves: include rules, layout, options, the installed package. Nothing of it is
# another thing under sanitizers.
if(FLASHSPAN_SANITIZE)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(build_tests "${CMAKE_CURRENT_SOURCE_DIR}/build")
set(scratch "${CMAKE_CURRENT_BINARY_DIR}/scratch")

add_test(NAME build.IncludeRulesHold COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/check_includes.py")
add_test(NAME build.IncludeCheckerFindsFaults COMMAND "${Python3_EXECUTABLE}" "${build_tests}/check_includes_test.py")
if(FLASHSPAN_CLANG_FORMAT)
  add_test(NAME build.SourcesAreFormatted
           COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/format.py" "${FLASHSPAN_CLANG_FORMAT}")
endif()

# Usage: add_configure_test(Name ON "text that is printed" -DOPTION=...)
function(add_configure_test name succeeds text)
  add_test(NAME build.${name}
           COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DWORK=${scratch}/${name}"
                   "-DGENERATOR=${CMAKE_GENERATOR}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DOPTIONS=${ARGN}"
                   "-DEXPECT_SUCCESS=${succeeds}" "-DEXPECT_TEXT=${text}" -P "${build_tests}/configure.cmake")
endfunction()
add_configure_test(ConfiguresWithoutTheCpuBackEnd ON "not built .FLASHSPAN_BUILD_CPU=OFF" -DFLASHSPAN_BUILD_CPU=OFF)
add_configure_test(ConfiguresWhereLlvmIsMissing ON "not built, needs LLVM >= 19" -DCMAKE_DISABLE_FIND_PACKAGE_LLVM=ON)
add_configure_test(RefusesAMissingLlvmWhenAskedFor OFF "FLASHSPAN_BUILD_CPU=ON needs LLVM >= 19"
                   -DCMAKE_DISABLE_FIND_PACKAGE_LLVM=ON -DFLASHSPAN_BUILD_CPU=ON)
add_configure_test(ConfiguresWithoutTheNetwork ON "shared stores: not built .FLASHSPAN_BUILD_NETWORK=OFF"
                   -DFLASHSPAN_BUILD_NETWORK=OFF)
add_configure_test(ConfiguresWhereTheNetworksLibrariesAreMissing ON "shared stores: not built, need libcurl"
                   -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON -DFLASHSPAN_BUILD_CPU=OFF)
add_configure_test(RefusesAMissingNetworkWhenAskedFor OFF "FLASHSPAN_BUILD_NETWORK=ON needs libcurl"
                   -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON -DFLASHSPAN_BUILD_CPU=OFF -DFLASHSPAN_BUILD_NETWORK=ON)

# The library as a shared object, from the same objects: everything that the public headers declare is exported.
find_package(spdlog REQUIRED)
find_package(Threads REQUIRED)
get_target_property(library_objects flashspan SOURCES)
get_target_property(library_requirements flashspan LINK_LIBRARIES)
add_library(flashspan_as_shared SHARED ${library_objects})
target_link_libraries(flashspan_as_shared PRIVATE ${library_requirements})
add_executable(consumer_of_shared consumer/main.cpp)
target_link_libraries(consumer_of_shared PRIVATE flashspan_options flashspan_as_shared)
if(FLASHSPAN_BUILD_CPU)
  target_compile_definitions(consumer_of_shared PRIVATE EXPECT_CPU)
endif()
add_test(NAME build.SharedLibraryExportsTheInterface COMMAND consumer_of_shared)

add_test(NAME build.InstalledPackageWorksAndMoves
         COMMAND "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}" "-DSOURCE=${PROJECT_SOURCE_DIR}"
                 "-DWORK=${scratch}/install" "-DGENERATOR=${CMAKE_GENERATOR}" "-DCOMPILER=${CMAKE_CXX_COMPILER}"
                 -P "${build_tests}/install_and_consume.cmake")
set_tests_properties(
  build.IncludeRulesHold build.IncludeCheckerFindsFaults build.ConfiguresWithoutTheCpuBackEnd
  build.ConfiguresWhereLlvmIsMissing build.RefusesAMissingLlvmWhenAskedFor build.ConfiguresWithoutTheNetwork
  build.ConfiguresWhereTheNetworksLibrariesAreMissing build.RefusesAMissingNetworkWhenAskedFor build.InstalledPackageWorksAndMoves
  build.SharedLibraryExportsTheInterface
  PROPERTIES LABELS build)
