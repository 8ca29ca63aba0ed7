// tessera::compiled: the code of walked kernels. Apart from the other definitions, so that two compilers share the
// work.
#define TESSERA_KERNEL_DEFINITIONS
#include <tessera/kernels/fused/made_kernel.hpp>
