#ifndef TESSERA_PARALLEL_REDUCE_PIECES_HPP
#define TESSERA_PARALLEL_REDUCE_PIECES_HPP

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/mesh/box.hpp>
#include <tessera/parallel/placement.hpp>
#include <tessera/tensor/local_tensor.hpp>

namespace tessera::detail {

template <class T> T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::min:
      return b < a || b != b ? b : a;
    case ReduceOp::max:
      return b > a || b != b ? b : a;
    case ReduceOp::product:
      return static_cast<T>(a * b);
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(op == ReduceOp::bit_and ? a & b : a | b);
      else
        return a;  // refused before
    default:
      return static_cast<T>(a + b);
  }
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
      bool first = true;
      std::int64_t parts = 1;
      for (const Source& part : sources_) {
        if (!same_group(part.at, source.at)) continue;
        const T* from = local_[part.device].data;
        for_each_run(overlap, part.box, box, [&](std::int64_t a, std::int64_t b, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i)
            out[b + i] = first ? from[a + i] : combine(op(), out[b + i], from[a + i]);
        });
        first = false;
      }
      for (std::size_t axis = 0; axis < placements_.size(); ++axis)
        if ((reduced_ >> axis & 1u) && placements_[axis].op == ReduceOp::avg)
          parts *= mesh.axis_size(static_cast<int>(axis));
      if (parts > 1)
        for_each_run(overlap, source.box, box, [&](std::int64_t, std::int64_t b, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) out[b + i] = static_cast<T>(out[b + i] / static_cast<T>(parts));
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

#endif
