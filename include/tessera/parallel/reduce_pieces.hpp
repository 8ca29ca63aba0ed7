#ifndef TESSERA_PARALLEL_REDUCE_PIECES_HPP
#define TESSERA_PARALLEL_REDUCE_PIECES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/bf16.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/parallel/placement.hpp>
#include <tessera/runtime/transport/box_index.hpp>
#include <tessera/tensor/local_tensor.hpp>

namespace tessera::detail {

/// What a reduction of T is computed in, so that an average does not depend on how many numbers of T fit in one: wider
/// integers, which wrap, and float for bf16.
template <class T>
using ReductionSum =
    std::conditional_t<std::is_same_v<T, bf16>, float,
                       std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, std::int64_t, T>>;

/// sums[i] combined with from[i], for `count` of them.
template <class S, class T> void combine(Reduction reduction, S* sums, const T* from, std::int64_t count) {
  with_monoid(reduction, [&]<class M>() {
    if constexpr ((M::dtypes & set_of(dtype_v<S>)) != 0)  // others were refused before
      for (std::int64_t i = 0; i < count; ++i) M::join(sums[i], S(from[i]));
  });
}

/// A reduction as T, over the number of `parts` that an average has, times `scale`. Integers are cut off, and what is
/// outside of their range after scaling is the nearest that is inside.
template <class T, class S> T reduced(S sum, std::int64_t parts, double scale) {
  if (parts > 1) sum = static_cast<S>(sum / static_cast<S>(parts));
  if (scale == 1) return static_cast<T>(sum);
  const double scaled = static_cast<double>(sum) * scale;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using Limits = std::numeric_limits<T>;
    if (scaled != scaled) return T(0);
    if (scaled <= static_cast<double>(Limits::min())) return Limits::min();
    if (scaled >= static_cast<double>(Limits::max())) return Limits::max();
  }
  return static_cast<T>(scaled);
}

/// Calls f(offset in a, offset in b, count) for each contiguous run of a box that is part of two row-major boxes.
template <class F> void for_each_run(const Box& box, const Box& a, const Box& b, F&& f) {
  if (box.empty()) return;
  const std::size_t rank = box.begin.size();
  if (rank == 0) return f(std::int64_t{0}, std::int64_t{0}, std::int64_t{1});
  const auto offset = [&](const Box& in, const Shape& index) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < rank; ++d) at = at * (in.end[d] - in.begin[d]) + index[d] - in.begin[d];
    return at;
  };
  Shape index = box.begin;
  const std::int64_t count = box.end[rank - 1] - box.begin[rank - 1];
  for (;;) {
    f(offset(a, index), offset(b, index), count);
    std::size_t d = rank - 1;
    while (d > 0 && ++index[d - 1] == box.end[d - 1]) {
      --d;
      index[d] = box.begin[d];
    }
    if (d == 0) return;
  }
}

/// Reads boxes of a value from the pieces that devices hold, reduced over some of the axes that it is partial over, in
/// mesh order.
template <class T, int Rank> class PieceReader {
 public:
  PieceReader(const LocalTensor<T, Rank>& local, const Shape& shape, const Placements& placements, unsigned reduced,
              unsigned kept)
      : local_(local), kept_(kept), chunks_(local.mesh(), split_axes(placements)),
        parts_(local.mesh(), ~reduced & ((1u << local.mesh().rank()) - 1)),
        boxes_(boxes(shape, placements, local.mesh(), chunks_)) {
    for (std::size_t axis = placements.size(); axis-- > 0;) {
      if (!(reduced >> axis & 1u)) continue;
      op_ = placements[axis].op;  // sums and averages are one kind of partial value, others come alone: normalized()
      if (op_ == ReduceOp::avg) averaged_ *= local.mesh().axis_size(static_cast<int>(axis));
    }
  }

  /// Fills the row-major memory of a box, as the device at `place` sees the value. Returns how many pieces it read.
  std::int64_t read(const Box& box, const Coordinates& place, T* out) const {
    std::int64_t pieces = 0;
    boxes_.for_each_overlap(box, [&](std::size_t chunk, const Box& overlap) {
      Coordinates at = chunks_.coordinates(static_cast<int>(chunk));
      for (std::size_t axis = 0; axis < at.size(); ++axis)
        if (kept_ >> axis & 1u) at[axis] = place[axis];
      using Sum = ReductionSum<T>;
      std::vector<Sum> sums(static_cast<std::size_t>(volume(extents(overlap))));
      const Box held = boxes_[chunk];
      for (int part = 0; part < parts_.replicas(); ++part, ++pieces) {
        const T* from = local_[local_.mesh().device_at(parts_.coordinates(parts_.index_of(at), part))].data;
        for_each_run(overlap, held, overlap, [&](std::int64_t a, std::int64_t b, std::int64_t count) {
          Sum* const to = sums.data() + b;
          if (part == 0)
            for (std::int64_t i = 0; i < count; ++i) to[i] = Sum(from[a + i]);
          else
            combine(reduction_of(op_), to, from + a, count);
        });
      }
      for_each_run(overlap, overlap, box, [&](std::int64_t a, std::int64_t b, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i)
          out[b + i] = reduced<T>(sums[static_cast<std::size_t>(a + i)], averaged_, 1);
      });
    });
    return pieces;
  }

 private:
  const LocalTensor<T, Rank>& local_;
  unsigned kept_;
  ShardGrid chunks_;  // a shard each, of the first of the devices that hold it
  ShardGrid parts_;   // the replicas of a shard are what is reduced
  runtime::BoxIndex boxes_;
  ReduceOp op_ = ReduceOp::sum;
  std::int64_t averaged_ = 1;

  static std::vector<Box> boxes(const Shape& shape, const Placements& placements, const Mesh& mesh,
                                const ShardGrid& chunks) {
    std::vector<Box> made;
    for (int chunk = 0; chunk < chunks.count(); ++chunk)
      made.push_back(placed_box(shape, placements, mesh, chunks.coordinates(chunk)));
    return made;
  }
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
