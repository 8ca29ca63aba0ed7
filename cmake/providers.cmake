# Libraries that can multiply matrices for Tessera, for who wants them: tessera_find_provider(blas) and
# tessera_find_provider(onednn) define tessera::blas and tessera::onednn where the library is found.
# kernels/gemm/blas_provider.hpp and kernels/gemm/onednn_provider.hpp need them.
function(tessera_find_provider name)
  if(TARGET tessera::${name})
    return()
  endif()
  if(name STREQUAL "blas")
    set(header cblas.h)
    find_package(BLAS QUIET)
    set(library ${BLAS_LIBRARIES})
  elseif(name STREQUAL "onednn")
    set(header dnnl.h)
    # Its own package file asks for OpenCL even where oneDNN is built without it.
    find_library(TESSERA_ONEDNN_LIBRARY dnnl)
    mark_as_advanced(TESSERA_ONEDNN_LIBRARY)
    set(library ${TESSERA_ONEDNN_LIBRARY})
  else()
    message(FATAL_ERROR "tessera: no provider of matrix products is called ${name}: blas or onednn")
  endif()
  string(TOUPPER TESSERA_${name}_INCLUDE_DIR folder)
  find_path(${folder} ${header} PATH_SUFFIXES openblas)
  mark_as_advanced(${folder})
  if(NOT library OR NOT ${folder})
    return()
  endif()
  add_library(tessera::${name} INTERFACE IMPORTED GLOBAL)
  set_target_properties(tessera::${name} PROPERTIES
    INTERFACE_LINK_LIBRARIES "tessera::tessera;${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${${folder}}")
endfunction()
