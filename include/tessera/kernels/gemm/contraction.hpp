#ifndef TESSERA_KERNELS_GEMM_CONTRACTION_HPP
#define TESSERA_KERNELS_GEMM_CONTRACTION_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/contraction_loops.hpp>
#include <tessera/kernels/gemm/contraction_plan.hpp>
#include <tessera/kernels/gemm/contraction_provider.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/loop_gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/gemm/sum_of_products.hpp>
#include <tessera/kernels/isa.hpp>

// Execution of a ContractionPlan: packing, matrix products, plain loops.
namespace tessera::kernels::inline TESSERA_ISA {

template <class T> std::int64_t ContractionPlan::packed_size() const {
  if constexpr (is_floating_v<T>) {
    if (shares_packing()) return col_.blocks() * packed_room<T>(packed_layout_of<T>(0));
  }
  return 0;
}

template <class T> void ContractionPlan::pack(std::int64_t part, const T* a, const T* b, T* packed) const {
  static_assert(is_floating_v<T>, "integers are multiplied by plain loops, packed_size() is zero");
  if (swapped_) std::swap(a, b);
  const std::int64_t parts = pack_parts<T>(), block = part / parts;
  const PackedLayout layout = packed_layout_of<T>(block);
  const std::int64_t first = layout.panels() * (part % parts) / parts;
  const std::int64_t end = layout.panels() * (part % parts + 1) / parts;
  if (first == end) return;
  const Dim col = col_.fused();
  b += col_.range(block).begin * col.b;
  packed += block * packed_room<T>(packed_layout_of<T>(0));
  if constexpr (is_half_v<T>)
    pack_halves(layout, b, k_.b, col.b, first, end - first, packed);
  else
    pack_matrix(layout, b, k_.b, col.b, first, end - first, packed);
}

template <class T>
void ContractionPlan::run(std::int64_t item, const T* a, const T* b, product_t<T>* out, bool accumulate,
                          product_t<T> alpha, const T* packed, FinishedBox finished,
                          const RoundedResult<T>& rounded) const {
  if (swapped_) std::swap(a, b);
  const Item ranges = ranges_of(item);
  if (as_loops_) {
    run_loops(ranges, a, b, out, accumulate, alpha);
    if (finished.call) finished.call(finished.context, rows_of(item));
    return;
  }
  const detail::ContractionDim row = row_.fused(), col = col_.fused();
  Gemm<T> g{ranges.row.count, ranges.col.count, k_.extent, nullptr,    row.a, k_.a, nullptr, k_.b, col.b,
            nullptr,          row.out,          col.out,   accumulate, alpha};
  a += ranges.row.begin * row.a;
  b += ranges.col.begin * col.b;
  const std::int64_t corner = ranges.row.begin * row.out + ranges.col.begin * col.out;
  out += rounded ? 0 : corner;

  struct Parts {
    const ContractionPlan& plan;
    const Item& item;
    FinishedBox finished;
    std::int64_t loop;
  } parts{*this, ranges, finished, ranges.loop.begin};
  const FinishedPart tell_part{[](const void* context, const PartOfC& part) {
                                 const Parts& of = *static_cast<const Parts*>(context);
                                 of.plan.tell(of.item, of.loop, part, of.finished);
                               },
                               &parts, 0, finished.beside};
  detail::DimCounter position(loop_.dims, ranges.loop.begin);
  const auto multiply = [&](FinishedPart then) {
    if constexpr (is_half_v<T>) {  // only this library's kernels multiply bf16 and f16
      const std::int64_t block = item / row_.blocks() % col_.blocks();
      RoundedResult<T> to = rounded;
      if (to) to.data += corner + position.out;
      if (to.bias) to.bias += ranges.col.begin;
      if (packed)
        half_gemm(g, packed_layout_of<T>(block), packed + block * packed_room<T>(packed_layout_of<T>(0)), then,
                  product_level<T>(), to);
      else
        half_gemm(g, then, product_level<T>(), to);
    } else if constexpr (is_floating_v<T>) {
      if (packed && !chosen_contraction_provider().load(std::memory_order_acquire)) {
        const std::int64_t block = item / row_.blocks() % col_.blocks();
        packed_gemm(g, packed_layout_of<T>(block), packed + block * packed_room<T>(packed_layout_of<T>(0)), then);
      } else {
        provided_gemm(g, then);
      }
    } else {
      loop_gemm(g);
      then({0, g.m, 0, g.n});
    }
  };
  const bool long_sums = has_long_sums<T>() && !rounded;
  for (; parts.loop < ranges.loop.begin + ranges.loop.count; ++parts.loop, position.next()) {
    g.c = rounded ? nullptr : out + position.out;
    g.accumulate = accumulate;
    if (long_sums) {
      if constexpr (std::is_same_v<T, float>) {
        const auto multiply_blocks = [&](std::int64_t first, std::int64_t count, const Gemm<T>& part) {
          multiply_range(first, count, part, a + position.a, b + position.b, packed, item);
        };
        detail::add_products(g, sum_blocks<T>(), multiply_blocks);
        if (finished.call) tell_part({0, g.m, 0, g.n});
      }
      continue;
    }
    detail::DimCounter sum(k_loops_, 0);
    for (std::int64_t s = depth_ / k_.extent; s > 0; --s, sum.next()) {
      g.a = a + position.a + sum.a;
      g.b = b + position.b + sum.b;
      multiply(s == 1 && finished.call ? tell_part : FinishedPart{});
      g.accumulate = true;
    }
  }
}

/// Adds the products of blocks [first, first + count) of the contracted dims to part.c, in this order.
template <class T>
void ContractionPlan::multiply_range(std::int64_t first, std::int64_t count, Gemm<T> part, const T* a, const T* b,
                                     const T* packed, std::int64_t item) const {
  const std::int64_t depth = block_depth<T>(), each = (k_.extent + depth - 1) / depth;  // number of blocks of k
  while (count > 0) {
    const std::int64_t begin = first % each, taken = std::min(count, each - begin);
    const detail::DimCounter sum(k_loops_, first / each);
    part.k = std::min(taken * depth, k_.extent - begin * depth);
    part.a = a + sum.a + begin * depth * part.a_col;
    part.b = b + sum.b + begin * depth * part.b_row;
    if (packed && !chosen_contraction_provider().load(std::memory_order_acquire)) {
      const std::int64_t col_block = item / row_.blocks() % col_.blocks();
      PackedLayout layout = packed_layout_of<T>(col_block);
      const T* const panels = packed + col_block * packed_room<T>(packed_layout_of<T>(0)) + layout.offset(begin, 0);
      layout.rows = part.k;
      packed_gemm(part, layout, panels);
    } else {
      provided_gemm(part, {});
    }
    part.accumulate = true;
    first += taken, count -= taken;
  }
}

template <class T>
void ContractionPlan::run_loops(const Item& item, const T* a, const T* b, product_t<T>* out, bool accumulate,
                                product_t<T> alpha) const {
  detail::ContractionDims dims;
  const auto add_range = [&](const Axis& axis, Axis::Range range) {
    axis.for_each_dim(range, [&](detail::ContractionDim dim, std::int64_t begin, std::int64_t count) {
      a += begin * dim.a;
      b += begin * dim.b;
      out += begin * dim.out;
      dim.extent = count;
      dims.push_back(dim);
    });
  };
  add_range(loop_, item.loop);
  add_range(row_, item.row);
  add_range(col_, item.col);
  if (depth_ != 1) {
    if (!accumulate) detail::contraction_zero(dims, out);
    accumulate = true;
    dims.push_back(k_);
    for (const detail::ContractionDim& dim : k_loops_) dims.push_back(dim);
  }
  detail::contraction_loops(dims, a, b, out, accumulate, alpha);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
