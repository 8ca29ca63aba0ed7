#ifndef TESSERA_MESH_BOX_HPP
#define TESSERA_MESH_BOX_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/base/shape.hpp>

namespace tessera {

/// A range of indices in every dim of a tensor: begin <= index < end.
struct Box {
  Shape begin;
  Shape end;

  constexpr bool empty() const {
    for (std::size_t dim = 0; dim < begin.size(); ++dim)
      if (end[dim] <= begin[dim]) return true;
    return false;
  }
  friend constexpr bool operator==(const Box&, const Box&) = default;
};

constexpr Shape extents(const Box& box) {
  Shape shape;
  for (std::size_t dim = 0; dim < box.begin.size(); ++dim) shape.push_back(box.end[dim] - box.begin[dim]);
  return shape;
}

/// The intersection of two boxes. Extents are never negative: disjoint boxes give an empty box.
constexpr Box intersect(const Box& a, const Box& b) {
  if (a.begin.size() != b.begin.size())
    fail(errc::rank_mismatch, "[intersect] rank: the first box has rank ", a.begin.size(), ", the second box has rank ",
         b.begin.size());
  Box both = a;
  for (std::size_t dim = 0; dim < a.begin.size(); ++dim) {
    if (b.begin[dim] > both.begin[dim]) both.begin[dim] = b.begin[dim];
    if (b.end[dim] < both.end[dim]) both.end[dim] = b.end[dim];
    if (both.end[dim] < both.begin[dim]) both.end[dim] = both.begin[dim];
  }
  return both;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
