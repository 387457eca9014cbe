# What `cmake --install` installs: library, headers, CPU plug-in and a package for find_package(flashspan). The
# command installs itself in tools/.
include(CMakePackageConfigHelpers)
set(flashspan_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/flashspan")

install(TARGETS flashspan EXPORT flashspanTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(FLASHSPAN_BUILD_CPU)
  install(TARGETS flashspan_cpu EXPORT flashspanTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET flashspan_network)
  install(TARGETS flashspan_network EXPORT flashspanTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET flashspan_c)
  install(TARGETS flashspan_c EXPORT flashspanTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(DIRECTORY include/flashspan DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")

install(EXPORT flashspanTargets NAMESPACE flashspan:: DESTINATION "${flashspan_package_dir}")
get_target_property(flashspan_library_type flashspan TYPE)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/flashspanConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/flashspanConfig.cmake"
                              INSTALL_DESTINATION "${flashspan_package_dir}" PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/flashspanConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/flashspanConfig.cmake" "${PROJECT_BINARY_DIR}/flashspanConfigVersion.cmake"
        DESTINATION "${flashspan_package_dir}")
