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
#include <tessera/mesh/box.hpp>
#include <tessera/parallel/placement.hpp>
#include <tessera/tensor/local_tensor.hpp>

namespace tessera::detail {

/// What a reduction of T is computed in, so that an average does not depend on how many numbers of T fit in one: wider
/// integers, which wrap, and float for bf16.
template <class T>
using ReductionSum =
    std::conditional_t<std::is_same_v<T, bf16>, float,
                       std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, std::int64_t, T>>;

template <class S> S combine(ReduceOp op, S a, S b) {
  switch (op) {
    case ReduceOp::min:
      return b < a || b != b ? b : a;
    case ReduceOp::max:
      return b > a || b != b ? b : a;
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
      if constexpr (std::is_integral_v<S>)
        return static_cast<S>(op == ReduceOp::bit_and ? a & b : a | b);
      else
        return a;  // refused before
    default:
      // Unsigned arithmetic wraps where the signed one is undefined.
      if constexpr (std::is_same_v<S, std::int64_t>) {
        const auto p = static_cast<std::uint64_t>(a), q = static_cast<std::uint64_t>(b);
        return static_cast<S>(op == ReduceOp::product ? p * q : p + q);
      } else {
        return static_cast<S>(op == ReduceOp::product ? a * b : a + b);
      }
  }
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

/// Calls f(offset in a, offset in b, count) for each run of neighbours of a box that lies in two row-major boxes.
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
      : local_(local), placements_(placements), reduced_(reduced), kept_(kept) {
    const Mesh& mesh = local.mesh();
    for (int device = 0; device < mesh.size(); ++device) {
      const Coordinates at = mesh.coordinates_of(device);
      bool first = true;  // of the devices that hold the same
      for (std::size_t axis = 0; axis < at.size(); ++axis)
        first = first && (at[axis] == 0 || placements[axis].kind != Placement::Kind::replicate);
      if (first) sources_.push_back({placed_box(shape, placements, mesh, at), at, device});
    }
  }

  /// Fills the row-major memory of a box, as the device at `place` sees the value.
  void read(const Box& box, const Coordinates& place, T* out) const {
    const Mesh& mesh = local_.mesh();
    for (const Source& source : sources_) {
      if (!starts_group(source.at, place)) continue;
      const Box overlap = intersect(source.box, box);
      if (overlap.empty()) continue;
      std::int64_t parts = 1;
      for (std::size_t axis = 0; axis < placements_.size(); ++axis)
        if ((reduced_ >> axis & 1u) && placements_[axis].op == ReduceOp::avg)
          parts *= mesh.axis_size(static_cast<int>(axis));
      using Sum = ReductionSum<T>;
      std::vector<Sum> sums;
      for (const Source& part : sources_) {
        if (!same_group(part.at, source.at)) continue;
        const T* from = local_[part.device].data;
        const bool first = sums.empty();
        if (first) sums.resize(static_cast<std::size_t>(volume(extents(overlap))));
        for_each_run(overlap, part.box, overlap, [&](std::int64_t a, std::int64_t b, std::int64_t count) {
          Sum* const to = sums.data() + b;
          for (std::int64_t i = 0; i < count; ++i)
            to[i] = first ? Sum(from[a + i]) : combine(op(), to[i], Sum(from[a + i]));
        });
      }
      for_each_run(overlap, overlap, box, [&](std::int64_t a, std::int64_t b, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i)
          out[b + i] = reduced<T>(sums[static_cast<std::size_t>(a + i)], parts, 1);
      });
    }
  }

 private:
  struct Source {
    Box box;
    Coordinates at;
    int device;
  };
  const LocalTensor<T, Rank>& local_;
  const Placements& placements_;
  unsigned reduced_, kept_;
  std::vector<Source> sources_;

  /// Sums and averages are one kind of partial value, others come alone: see normalized().
  ReduceOp op() const {
    for (std::size_t axis = 0; axis < placements_.size(); ++axis)
      if (reduced_ >> axis & 1u) return placements_[axis].op;
    return ReduceOp::sum;
  }
  /// Whether a source is the first of those to be reduced, of the part that a place has of what stays partial.
  bool starts_group(const Coordinates& at, const Coordinates& place) const {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (((reduced_ >> axis & 1u) && at[axis] != 0) || ((kept_ >> axis & 1u) && at[axis] != place[axis])) return false;
    return true;
  }
  bool same_group(const Coordinates& a, const Coordinates& b) const {
    for (std::size_t axis = 0; axis < a.size(); ++axis)
      if (!(reduced_ >> axis & 1u) && a[axis] != b[axis]) return false;
    return true;
  }
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
