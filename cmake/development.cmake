# What our own tests, examples and benchmarks are built with. Included only when one of them is, and never exported.

option(TESSERA_NATIVE "Compile the tests, examples and benchmarks for this machine's processor" OFF)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(TESSERA_CCACHE ccache)
  mark_as_advanced(TESSERA_CCACHE)
  if(TESSERA_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    # The sloppiness is what ccache asks for to cache units that use a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TESSERA_CCACHE})
  endif()
endif()

set(CMAKE_CXX_EXTENSIONS OFF)

add_library(tessera_development INTERFACE)
target_compile_options(tessera_development INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow
  # g++ 12 sees overflows in std::string and in its own intrinsics that are not there: shown, never an error.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-error=stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-error=stringop-overread>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-error=restrict> $<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-error=free-nonheap-object>
  $<$<BOOL:${TESSERA_NATIVE}>:-march=native>
  # Without it clang writes the time into a precompiled header, and ccache never sees the same one twice.
  $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)

# The benchmarks, the examples and the tests use the compiled library, which is built as they are.
target_link_libraries(tessera_compiled PRIVATE $<BUILD_INTERFACE:tessera_development>)
# In a build of the tests each program and its plan are verified before the first run, optimised or not.
if(TESSERA_BUILD_TESTS AND NOT TESSERA_INSTALL_COMPILED)
  target_compile_definitions(tessera_compiled PRIVATE $<$<NOT:$<CONFIG:Debug>>:TESSERA_VERIFY>)
endif()

foreach(component IN LISTS tessera_bridges)
  if(NOT TARGET tessera::${component})
    message(FATAL_ERROR "tessera: ${tessera_library_of_${component}} was not found, which tests, examples and benchmarks need. "
      "tools/setup installs it")
  endif()
endforeach()
