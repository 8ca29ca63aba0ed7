# tessera::compiled: tessera::tessera with all that does not depend on a program compiled once, by the project that uses
# it: with its flags, and only when something links it. Included by this project and by the installed package.
add_library(tessera_compiled STATIC EXCLUDE_FROM_ALL
  ${CMAKE_CURRENT_LIST_DIR}/definitions.cpp ${CMAKE_CURRENT_LIST_DIR}/kernel_definitions.cpp)
add_library(tessera::compiled ALIAS tessera_compiled)
target_compile_definitions(tessera_compiled PUBLIC TESSERA_COMPILED)
# In debug builds each program and its plan are verified before the first run.
target_compile_definitions(tessera_compiled PRIVATE $<$<CONFIG:Debug>:TESSERA_VERIFY>)
target_link_libraries(tessera_compiled PUBLIC tessera::tessera)
