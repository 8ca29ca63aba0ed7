# Parts of the library that need another library beside the core's TBB and xsimd. tessera_find_component(eigen) defines
# tessera::eigen where Eigen is found, and nothing where it is not. Projects that add this one call it for blas, onednn, mpi;
# the others are looked for anyway.
#   eigen, xtensor, ranges  bridges to Eigen, xtensor and range-v3: tessera/interop/
#   blas, onednn            what multiplies matrices instead of our own kernels: tessera/kernels/gemm/*_provider.hpp
#   mpi                     a program in several processes: tessera/interop/mpi.hpp
function(tessera_find_component name)
  if(TARGET tessera::${name})
    return()
  endif()
  set(folder)
  if(name STREQUAL "eigen")
    if(NOT TARGET Eigen3::Eigen)
      find_package(Eigen3 3.4 QUIET)
    endif()
    set(library Eigen3::Eigen)
  elseif(name STREQUAL "xtensor")
    # Its package asks the compiler about -march=native and caches the answer in the project that finds it. Knowing the
    # answer beforehand avoids that; xtensor::optimize, its one target with the flag, is never linked.
    if(NOT DEFINED arch_native_supported)
      set(arch_native_supported TRUE)
    endif()
    if(NOT TARGET xtensor)
      find_package(xtensor 0.24 QUIET)
    endif()
    set(library xtensor)
  elseif(name STREQUAL "ranges")
    if(NOT TARGET range-v3::range-v3)
      find_package(range-v3 QUIET)
    endif()
    set(library range-v3::range-v3)
  elseif(name STREQUAL "blas")
    find_package(BLAS QUIET)
    set(library ${BLAS_LIBRARIES})
    set(header cblas.h)
  elseif(name STREQUAL "onednn")
    # Its own package file asks for OpenCL even where oneDNN is built without it.
    find_library(TESSERA_ONEDNN_LIBRARY dnnl)
    mark_as_advanced(TESSERA_ONEDNN_LIBRARY)
    set(library ${TESSERA_ONEDNN_LIBRARY})
    set(header dnnl.h)
  elseif(name STREQUAL "mpi")
    if(NOT TARGET MPI::MPI_CXX)
      set(MPI_CXX_SKIP_MPICXX TRUE) # the C++ functions of MPI 2, which are gone from the standard
      find_package(MPI QUIET COMPONENTS CXX)
    endif()
    set(library MPI::MPI_CXX)
  else()
    message(FATAL_ERROR "tessera: no component that needs another library is called ${name}: eigen, xtensor, ranges, blas, "
      "onednn, mpi")
  endif()
  if(header)
    string(TOUPPER TESSERA_${name}_INCLUDE_DIR variable)
    find_path(${variable} ${header} PATH_SUFFIXES openblas)
    mark_as_advanced(${variable})
    set(folder ${${variable}})
    if(NOT library OR NOT folder)
      return()
    endif()
  elseif(NOT TARGET ${library})
    return()
  endif()
  add_library(tessera::${name} INTERFACE IMPORTED GLOBAL)
  set_target_properties(tessera::${name} PROPERTIES
    INTERFACE_LINK_LIBRARIES "tessera::core;${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${folder}")
endfunction()

# Those that tessera::tessera consists of beside the core, where their libraries are found.
set(tessera_bridges eigen xtensor ranges)

# What messages call the library that a component needs.
set(tessera_library_of_eigen "Eigen 3.4")
set(tessera_library_of_xtensor "xtensor 0.24")
set(tessera_library_of_ranges "range-v3")
set(tessera_library_of_blas "a BLAS library with cblas.h")
set(tessera_library_of_onednn "oneDNN")
set(tessera_library_of_mpi "an implementation of MPI 3")
