#ifndef TESSERA_KERNELS_GEMM_SUM_OF_PRODUCTS_HPP
#define TESSERA_KERNELS_GEMM_SUM_OF_PRODUCTS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>

namespace tessera::kernels::inline TESSERA_ISA::detail {

/// C (+)= the sum of `count` products, in runs of product_run whose sums are again added in runs, so that the rounding
/// error does not grow with `count`. `multiply(first, count, to)` computes the sum of a range of the products in `to`.
template <class T, class Multiply> void add_products(const Gemm<T>& g, std::int64_t count, const Multiply& multiply) {
  const auto size = static_cast<std::size_t>(g.m * g.n);
  std::size_t levels = 0;
  for (std::int64_t run = product_run; run < count; run *= product_run) ++levels;
  T* const room = thread_scratch<Scratch::partial_products, T>(levels * size);
  const auto add = [&](auto&& self, std::int64_t first, std::int64_t end, std::size_t level,
                       const Gemm<T>& to) -> void {
    if (level == 0) return multiply(first, end - first, to);
    std::int64_t step = product_run;
    for (std::size_t l = 1; l < level; ++l) step *= product_run;
    Gemm<T> part = to;
    part.c = room + (level - 1) * size;
    part.c_row = to.c_col == 1 ? to.n : 1;
    part.c_col = to.c_col == 1 ? 1 : to.m;
    part.accumulate = false;
    bool accumulate = to.accumulate;
    for (; first < end; first += step) {
      self(self, first, std::min(first + step, end), level - 1, part);
      for (std::int64_t i = 0; i < to.m; ++i)
        for (std::int64_t j = 0; j < to.n; ++j) {
          T& sum = to.c[i * to.c_row + j * to.c_col];
          const T term = part.c[i * part.c_row + j * part.c_col];
          sum = accumulate ? sum + term : term;
        }
      accumulate = true;
    }
  };
  add(add, 0, count, levels, g);
}

}  // namespace tessera::kernels::inline TESSERA_ISA::detail

#include <tessera/base/pop_macros.hpp>

#endif
