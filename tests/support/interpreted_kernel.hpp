#ifndef TESSERA_TESTS_SUPPORT_INTERPRETED_KERNEL_HPP
#define TESSERA_TESTS_SUPPORT_INTERPRETED_KERNEL_HPP

#include <vector>

#include <tessera/graph/fuse/fused.hpp>

namespace oracle {

/// Executes one call of a fused kernel, instruction by instruction and element by element, in double.
void interpret(const tessera::Fused& fused, const tessera::FusedCall& call);

/// Kernels that the executor can call in place of compiled kernels, for a program that a test makes at run time. They
/// refer to `kernels`.
std::vector<tessera::FusedKernel> interpreted_kernels(const tessera::Fused* kernels, int count);

}  // namespace oracle

#endif
