#ifndef TESSERA_KERNELS_CUMULATIVE_HPP
#define TESSERA_KERNELS_CUMULATIVE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/base/monoid.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels {

/// Lines along one dim of an array: extents and strides of the other dims, and the steps along a line. A line that is
/// walked from its end has negative steps.
struct CumulativeShape {
  Shape lines;
  Strides from, to, sums;  ///< of operand, result, and the one number a line that it starts from or adds up to
  std::int64_t count = 0, from_step = 0, to_step = 0;
};

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// What a line is accumulated in. Of f32, sums are kept in runs; products in f64, which has room for those of which one
/// factor is large and the next is small.
template <class M, class T>
using cumulative_t = std::conditional_t<std::is_same_v<M, monoids::Product>, long_sum_t<T>, T>;

struct CumulativeSteps {
  std::int64_t count, from_step, to_step, from_lane, to_lane, sum_lane;
};

/// `Width` lines side by side, each in its order. Of f32, runs are summed up on their own: to the sum of those before,
/// which is kept in f64.
template <class M, int Width, class T>
void cumulative_side_by_side(const CumulativeSteps& s, const T* from, T* to, const T* start, T* total, bool exclusive) {
  using Wide = cumulative_t<M, T>;
  constexpr bool by_runs = std::is_same_v<M, monoids::Sum> && !std::is_same_v<T, long_sum_t<T>>;
  constexpr Wide first = M::template identity<Wide>();
  Wide sums[Width], before[Width];
  long_sum_t<Wide> long_sums[Width];
  for (int l = 0; l < Width; ++l) {
    before[l] = start == nullptr ? first : static_cast<Wide>(start[l * s.sum_lane]);
    long_sums[l] = before[l];
    sums[l] = by_runs ? first : before[l];
  }
  const auto value = [&](int l) {
    return static_cast<T>(by_runs ? monoids::combined<M>(before[l], sums[l]) : sums[l]);
  };
  const auto store = [&](std::int64_t i) {
    T* const own = to + i * s.to_step;
    if (s.to_lane == 1)
      for (int l = 0; l < Width; ++l) own[l] = value(l);
    else
      for (int l = 0; l < Width; ++l) own[l * s.to_lane] = value(l);
  };
  for (std::int64_t i = 0; i < s.count; ++i) {
    if constexpr (by_runs)
      if (i % sum_run == 0)
        for (int l = 0; l < Width; ++l) {
          long_sums[l] += sums[l];
          before[l] = static_cast<Wide>(long_sums[l]);
          sums[l] = first;
        }
    const T* const own = from + i * s.from_step;
    Wide terms[Width];  // read before the result is written, which may be where the operand is
    if (s.from_lane == 1)
      for (int l = 0; l < Width; ++l) terms[l] = static_cast<Wide>(own[l]);
    else
      for (int l = 0; l < Width; ++l) terms[l] = static_cast<Wide>(own[l * s.from_lane]);
    if (exclusive && to != nullptr) store(i);
    for (int l = 0; l < Width; ++l) M::join(sums[l], terms[l]);
    if (!exclusive && to != nullptr) store(i);
  }
  for (int l = 0; l < Width && total != nullptr; ++l)
    total[l * s.sum_lane] = by_runs ? static_cast<T>(long_sums[l] + sums[l]) : value(l);
}

template <class M, class T>
void cumulative_lines(const CumulativeShape& shape, const T* from, T* to, const T* start, T* total, bool exclusive) {
  if (is_empty(shape.lines)) return;
  const Loops loops = make_loops(shape.lines, shape.to, [&](std::size_t outer, std::size_t inner) {
    return shape.from[outer] == shape.from[inner] * shape.lines[inner] &&
           shape.sums[outer] == shape.sums[inner] * shape.lines[inner];
  });
  const auto lanes = loops.from_inside(0);
  const CumulativeSteps steps{shape.count,
                              shape.from_step,
                              shape.to_step,
                              stride_of(shape.from, lanes),
                              stride_of(shape.to, lanes),
                              stride_of(shape.sums, lanes)};
  // What is left out, or empty, stays a null pointer.
  const auto past = [](auto* items, std::int64_t n) { return items == nullptr ? items : items + n; };
  // Lines that are not contiguous each take a line of the cache.
  const bool dense = steps.from_lane == 1 && steps.to_lane == 1;
  for_each_outer(loops, 1, [&](const std::int64_t* index) {
    const T* const own_from = past(from, offset_of(loops, 1, index, shape.from));
    T* const own_to = past(to, offset_of(loops, 1, index, shape.to));
    const std::int64_t sums = offset_of(loops, 1, index, shape.sums);
    const auto run = [&]<int Width>(std::int64_t lane) {
      const std::int64_t at = sums + lane * steps.sum_lane;
      cumulative_side_by_side<M, Width>(steps, past(own_from, lane * steps.from_lane),
                                        past(own_to, lane * steps.to_lane), past(start, at), past(total, at),
                                        exclusive);
    };
    std::int64_t lane = 0;
    for (; dense && lane + 32 <= lanes.extent; lane += 32) run.template operator()<32>(lane);
    for (; lane + 8 <= lanes.extent; lane += 8) run.template operator()<8>(lane);
    for (; lane < lanes.extent; ++lane) run.template operator()<1>(lane);
  });
}

}  // namespace detail

/// to[line, i] = start[line], from[line, 0], ..., from[line, i] combined in this order whatever the strides are;
/// without from[line, i] if `exclusive`. No `start`: the identity. `to` may be `from` with equal strides.
template <class M, class T>
void cumulative_lines(const CumulativeShape& shape, const T* from, T* to, const T* start, bool exclusive) {
  detail::cumulative_lines<M, T>(shape, from, to, start, nullptr, exclusive);
}

/// total[line] = from[line, 0], ..., from[line, count - 1] combined. Strides `to` say in which order lines are stored.
template <class M, class T> void combine_lines(const CumulativeShape& shape, const T* from, T* total) {
  detail::cumulative_lines<M, T>(shape, from, nullptr, nullptr, total, false);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
