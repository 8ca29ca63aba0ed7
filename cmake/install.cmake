include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(tessera_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/tessera)

install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.inc")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# An export set for each set of dependencies: a user of the static component needs none.
install(TARGETS tessera_static EXPORT tesseraStaticTargets)
install(TARGETS tessera_core tessera EXPORT tesseraTargets)
install(EXPORT tesseraStaticTargets NAMESPACE tessera:: DESTINATION ${tessera_package_dir})
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${tessera_package_dir})
set(architecture ARCH_INDEPENDENT)
if(TESSERA_INSTALL_COMPILED)
  set(architecture)
  # Position independent, since whoever finds it may link it into a shared library.
  set_target_properties(tessera_compiled PROPERTIES
    EXCLUDE_FROM_ALL OFF EXPORT_NAME compiled POSITION_INDEPENDENT_CODE ON)
  install(TARGETS tessera_compiled EXPORT tesseraCompiledTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT tesseraCompiledTargets NAMESPACE tessera:: DESTINATION ${tessera_package_dir})
endif()

configure_package_config_file(cmake/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${tessera_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion
  ${architecture})
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  cmake/components.cmake cmake/compiled.cmake cmake/definitions.cpp cmake/kernel_definitions.cpp
  DESTINATION ${tessera_package_dir})

# What pkg-config gives is header-only, with the bridges whose libraries are found. range-v3 ships no pkg-config file, so its
# include path is written out; pkg-config drops it where it is a system path.
set(tessera_requires "tbb xsimd")
set(tessera_includes)
if(TARGET tessera::eigen)
  string(APPEND tessera_requires " eigen3 >= 3.4")
endif()
if(TARGET tessera::xtensor)
  string(APPEND tessera_requires " xtensor >= 0.24")
endif()
if(TARGET tessera::ranges)
  get_target_property(tessera_range_v3_include range-v3 INTERFACE_INCLUDE_DIRECTORIES)
  set(tessera_includes " -I${tessera_range_v3_include}")
endif()
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
