#ifndef TESSERA_KERNELS_FUSED_FUSED_KERNEL_HPP
#define TESSERA_KERNELS_FUSED_FUSED_KERNEL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/fused/fused_program.hpp>
#include <tessera/kernels/fused/fused_run.hpp>
#include <tessera/kernels/fused/unrolled_kernel.hpp>
#include <tessera/kernels/fused/walked_program.hpp>

// Compiles a fused kernel, a constexpr list of instructions.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {
template <const auto& Table, int I> TESSERA_FLATTEN void run_unrolled(const FusedCall& call, const void*) {
  using P = Program<Table, I>;
  alignas(64) std::byte buffer[P::shape.buffer_bytes];
  run_kernel(UnrolledKernel<P>{}, call, buffer);
}
}  // namespace detail

/// Fused kernel `Table[I]` as straight-line vector code.
template <const auto& Table, int I> inline constexpr FusedKernel unrolled_kernel{&detail::run_unrolled<Table, I>};

/// Fused kernel `Table[I]` as lists that are walked at run time: the same instructions, in more time.
template <const auto& Table, int I>
inline constexpr FusedKernel walked_kernel{&detail::run_walked<detail::Program<Table, I>::file_size>,
                                           &detail::WalkedProgram<detail::Program<Table, I>>::lists};

/// Runs fused kernel `Table[I]` on a range of rows and columns of one shard. Without optimisation both forms are slow,
/// and unrolled kernels would be a third of the compile time of a program with many kernels.
template <const auto& Table, int I>
inline constexpr const FusedKernel& fused_kernel =
#if defined(__OPTIMIZE__) && !defined(TESSERA_WALKED_KERNELS)
    unrolled_kernel<Table, I>;
#else
    walked_kernel<Table, I>;
#endif

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
