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

/// The lines of an operand and a result along one dim. `lines`: their shape, with extent 1 along that dim; `count`,
/// `from_step`, `to_step`: the extent and strides along it, negative for a cumulative operation in reverse.
struct CumulativeShape {
  Shape lines;
  Strides from, to, sums;  ///< of operand, result, and the array with one start value or total per line
  std::int64_t count = 0, from_step = 0, to_step = 0;
};

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// The accumulator of a line: T for sums, which are split into runs. For f32 products f64, in which 1e30 * 1e30 * 1e-40
/// does not overflow on the way.
template <class M, class T>
using cumulative_t = std::conditional_t<std::is_same_v<M, monoids::Product>, long_sum_t<T>, T>;

struct CumulativeSteps {
  std::int64_t count, from_step, to_step, from_lane, to_lane, sum_lane;
};

/// Accumulates `Width` lines side by side. An f32 sum is the f64 sum of all earlier runs plus the f32 sum of the
/// current run of sum_run terms.
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
    Wide terms[Width];  // read before the result is written, since the result may overwrite the operand
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
  // Absent and empty arrays stay null: adding an offset to a null pointer is undefined behaviour.
  const auto past = [](auto* items, std::int64_t n) { return items == nullptr ? items : items + n; };
  // 32 lines side by side only if they are adjacent in memory: otherwise each needs a cache line of its own.
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

/// to[line, i] = start[line], from[line, 0], ..., from[line, i] combined in this order, for any strides; without
/// from[line, i] if `exclusive`. A null `start` is the identity. `to` may be `from` if the strides are equal.
template <class M, class T>
void cumulative_lines(const CumulativeShape& shape, const T* from, T* to, const T* start, bool exclusive) {
  detail::cumulative_lines<M, T>(shape, from, to, start, nullptr, exclusive);
}

/// total[line] = from[line, 0], ..., from[line, count - 1] combined. shape.to only determines the order of the loops.
template <class M, class T> void combine_lines(const CumulativeShape& shape, const T* from, T* total) {
  detail::cumulative_lines<M, T>(shape, from, nullptr, nullptr, total, false);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
