include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(tessera_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/tessera)

install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Two export sets, so that a user of the static component needs none of the dependencies.
install(TARGETS tessera_static EXPORT tesseraStaticTargets)
install(TARGETS tessera EXPORT tesseraTargets)
install(EXPORT tesseraStaticTargets NAMESPACE tessera:: DESTINATION ${tessera_package_dir})
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${tessera_package_dir})

configure_package_config_file(cmake/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${tessera_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
  cmake/providers.cmake
  DESTINATION ${tessera_package_dir})

# range-v3 ships no pkg-config file, so its include path is written out; pkg-config drops it where it is a system path.
get_target_property(tessera_range_v3_include range-v3 INTERFACE_INCLUDE_DIRECTORIES)
configure_file(cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
