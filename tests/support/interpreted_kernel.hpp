#ifndef TESSERA_TESTS_SUPPORT_INTERPRETED_KERNEL_HPP
#define TESSERA_TESTS_SUPPORT_INTERPRETED_KERNEL_HPP

#include <vector>

#include <tessera/graph/fuse/fused.hpp>

namespace oracle {

/// Executes one call of a fused kernel, instruction by instruction and element by element, in double.
void interpret(const tessera::Fused& fused, const tessera::FusedCall& call);

/// Functions that the executor can call in place of compiled kernels, for programs that a test makes at run time. The
/// executor calls a plain function pointer without context, so this can serve only one program at a time.
/// Throws for more than max_kernels.
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
