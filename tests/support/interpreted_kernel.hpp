#ifndef TESSERA_TESTS_SUPPORT_INTERPRETED_KERNEL_HPP
#define TESSERA_TESTS_SUPPORT_INTERPRETED_KERNEL_HPP

#include <vector>

#include <tessera/graph/fuse/fused.hpp>

namespace oracle {

/// Carries out one call of a fused kernel, instruction by instruction and element by element, in double.
void interpret(const tessera::Fused& fused, const tessera::FusedCall& call);

/// Stands in for the machine code of kernels that are known only when the test runs: one function for each kernel, as
/// the executor calls them. A kernel is a plain function without context, so the kernels are those of one program at a
/// time. Throws for more than max_kernels.
class InterpretedKernels {
 public:
  static constexpr int max_kernels = 96;
  InterpretedKernels(const tessera::Fused* kernels, int count);
  ~InterpretedKernels();
  InterpretedKernels(const InterpretedKernels&) = delete;
  InterpretedKernels& operator=(const InterpretedKernels&) = delete;

  const tessera::FusedKernel* code() const { return code_.data(); }

 private:
  std::vector<tessera::FusedKernel> code_;
};

}  // namespace oracle

#endif
