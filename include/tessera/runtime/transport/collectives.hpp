#ifndef TESSERA_RUNTIME_TRANSPORT_COLLECTIVES_HPP
#define TESSERA_RUNTIME_TRANSPORT_COLLECTIVES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/sharding.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/transport/transport.hpp>
#endif

namespace tessera::runtime {

/// The contiguous row-major input or output of one member of a collective.
struct MemberArray {
  void* data = nullptr;
  Shape shape;
};

/// The inputs and outputs of one group of devices, by index in the group. all_reduce, all_gather and broadcast give all
/// members equal values: their `out` may have a single array, which all members share. Inputs and outputs do not
/// overlap.
struct Group {
  std::span<const MemberArray> in;
  std::span<const MemberArray> out;
};

/// One (source, destination) pair of a permutation, as in `jax.lax.ppermute`.
struct Route {
  int source = 0;
  int destination = 0;
};

/// Fills every output with the input of member `root`.
TESSERA_ONCE void broadcast(DType type, int root, std::span<const Group> groups);

/// Fills every output with the reduction of all inputs, combined in the order of the members.
TESSERA_ONCE void all_reduce(DType type, Reduction reduction, std::span<const Group> groups);

/// Fills every output with the inputs, concatenated along `dim`. Extents along `dim` may differ between inputs.
TESSERA_ONCE void all_gather(DType type, int dim, std::span<const Group> groups);

/// Reduces the inputs in the order of the members and splits the result along `dim`: the extents of the outputs along
/// `dim` say how long each member's chunk is.
TESSERA_ONCE void reduce_scatter(DType type, Reduction reduction, int dim, std::span<const Group> groups);

/// Splits each input along `split_dim`, sends chunk j to member j, and concatenates the received chunks along
/// `concat_dim` in the order of the members. If the dims differ, chunk j has the extent of output j, and inputs may
/// have different extents along `concat_dim`. If they are equal, chunks are equal too. Errors: `not_divisible`.
TESSERA_ONCE void all_to_all(DType type, int split_dim, int concat_dim, std::span<const Group> groups);

/// In every group, copies the input of each route's source to the output of its destination. A member that is no
/// destination gets zeros, as in `jax.lax.ppermute`.
TESSERA_ONCE void collective_permute(DType type, std::span<const Route> routes, std::span<const Group> groups);

#if TESSERA_HAS_DEFINITIONS
namespace detail {

/// Collects the copies and reductions of all groups of a collective into one ReshardPlan, hence one parallel loop.
class Moves {
 public:
  Moves(std::string_view name, DType type, Reduction reduction = Reduction::sum)
      : name_(name), type_(type), plan_(type, reduction, &kernels::strided_reduce<all_combined_types>) {}

  /// Starts the next group: later destinations and sources belong to its members.
  void begin(const Group& group) {
    ++group_;
    members_ = static_cast<int>(group.in.size());
    outputs_ = group.out.size();
  }
  /// Declares the output of a member; `box` is its box in the result of the collective.
  int destination(const MemberArray& part, const Box& box, std::size_t member) {
    require(extents(box) == part.shape, "an output does not have the shape of its part of the whole");
    destinations_.push_back(part.data);
    const auto held_by = outputs_ == 1 ? Holders::group(group_, members_) : held(member);
    return plan_.add_destination(box, kernels::contiguous_strides(part.shape), held_by);
  }
  int source(const MemberArray& part, const Box& box, std::size_t member) {
    require(extents(box) == part.shape, "an input does not have the shape of its part of the whole");
    sources_.push_back(part.data);
    return plan_.add_source(box, kernels::contiguous_strides(part.shape), held(member));
  }
  /// Declares the slice [begin, end) along `dim` of an input, whose box in the result begins at `place` along `dim`.
  int source_range(const MemberArray& part, std::size_t dim, std::int64_t begin, std::int64_t end, std::int64_t place,
                   std::size_t member) {
    const kernels::Strides strides = kernels::contiguous_strides(part.shape);
    Box box{Shape(part.shape.size(), 0), part.shape};
    box.begin[dim] = place;
    box.end[dim] = place + end - begin;
    auto* const data = static_cast<std::byte*>(part.data);  // null if the array is empty
    sources_.push_back(data == nullptr ? data
                                       : data + begin * strides[dim] * static_cast<std::int64_t>(size_of(type_)));
    return plan_.add_source(box, strides, held(member));
  }

  void fill(std::span<const int> destinations, std::span<const int> sources, int partials = 1) {
    plan_.fill(destinations, sources, partials);
  }
  void fill(int destination, std::span<const int> sources, int partials = 1) {
    plan_.fill(std::span(&destination, 1), sources, partials);
  }
  void copy(int destination, int source) { fill(destination, std::span<const int>(&source, 1)); }
  void fill_zero(int destination) { plan_.fill_identity(destination); }
  void run() const { Transport::current().move(plan_, destinations_, sources_); }

  void require(bool holds, std::string_view rule) const {
    if (!holds) fail(errc::shape_mismatch, "[", name_, "] shapes of a group: ", rule);
  }
  void require_same_size(const Group& group) const {
    if (group.in.size() != group.out.size())
      fail(errc::shape_mismatch, "[", name_, "] outputs: ", group.out.size(), " for the ", group.in.size(),
           " members of a group");
  }
  std::size_t dim_of(const Group& group, int dim) const {
    const std::size_t rank = group.in.empty() ? 0 : group.in[0].shape.size();
    if (dim < 0 || static_cast<std::size_t>(dim) >= rank)
      fail(errc::dim_range, "[", name_, "] dim: ", dim, " is out of range for arrays of rank ", rank);
    return static_cast<std::size_t>(dim);
  }
  int member(const Group& group, int index) const {
    if (index < 0 || static_cast<std::size_t>(index) >= group.in.size())
      fail(errc::dim_range, "[", name_, "] member: ", index, " is out of range for a group of ", group.in.size());
    return index;
  }

 private:
  std::string_view name_;
  DType type_;
  ReshardPlan plan_;
  Growable<void*> destinations_;
  Growable<const void*> sources_;
  int group_ = -1, members_ = 0;
  std::size_t outputs_ = 0;

  Holders held(std::size_t member) const { return Holders::member(group_, static_cast<int>(member)); }
};

inline Box whole(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

/// The box of each array in their concatenation along `dim`; along the remaining dims it covers `shape`.
inline Growable<Box> joined(std::span<const MemberArray> parts, Shape shape, std::size_t dim) {
  Growable<Box> boxes;
  std::int64_t at = 0;
  for (const MemberArray& part : parts) {
    Box box = whole(shape);
    box.begin[dim] = at;
    at += dim < part.shape.size() ? part.shape[dim] : 0;
    box.end[dim] = at;
    boxes.push_back(box);
  }
  return boxes;
}

inline Shape with_extent(Shape shape, std::size_t dim, std::int64_t extent) {
  shape[dim] = extent;
  return shape;
}

inline std::int64_t end_of(const Growable<Box>& boxes, std::size_t dim) {
  return boxes.empty() ? 0 : boxes.back().end[dim];
}

}  // namespace detail

TESSERA_ONCE void broadcast(DType type, int root, std::span<const Group> groups) {
  detail::Moves moves("broadcast", type);
  for (const Group& group : groups) {
    moves.begin(group);
    const auto from = static_cast<std::size_t>(moves.member(group, root));
    const MemberArray& in = group.in[from];
    const int source = moves.source(in, detail::whole(in.shape), from);
    for (std::size_t j = 0; j < group.out.size(); ++j)
      moves.copy(moves.destination(group.out[j], detail::whole(in.shape), j), source);
  }
  moves.run();
}

TESSERA_ONCE void all_reduce(DType type, Reduction reduction, std::span<const Group> groups) {
  detail::Moves moves("all_reduce", type, reduction), copies("all_reduce", type);
  for (const Group& group : groups) {
    moves.begin(group);
    copies.begin(group);
    if (group.in.empty() || group.out.empty()) continue;
    const Box box = detail::whole(group.in[0].shape);
    Growable<int> sources;
    for (std::size_t i = 0; i < group.in.size(); ++i) sources.push_back(moves.source(group.in[i], box, i));
    moves.fill(moves.destination(group.out[0], box, 0), sources, static_cast<int>(sources.size()));
    // Reduce into the first output and copy it to the others: reducing for each output would read all inputs again.
    if (group.out.size() == 1) continue;
    const int source = copies.source(group.out[0], box, 0);
    for (std::size_t j = 1; j < group.out.size(); ++j) copies.copy(copies.destination(group.out[j], box, j), source);
  }
  moves.run();
  copies.run();
}

TESSERA_ONCE void all_gather(DType type, int dim, std::span<const Group> groups) {
  detail::Moves moves("all_gather", type);
  for (const Group& group : groups) {
    moves.begin(group);
    const std::size_t d = moves.dim_of(group, dim);
    const auto boxes = detail::joined(group.in, group.in[0].shape, d);
    Growable<int> sources, destinations;
    for (std::size_t i = 0; i < boxes.size(); ++i) sources.push_back(moves.source(group.in[i], boxes[i], i));
    const Box box = detail::whole(detail::with_extent(group.in[0].shape, d, detail::end_of(boxes, d)));
    for (std::size_t j = 0; j < group.out.size(); ++j) destinations.push_back(moves.destination(group.out[j], box, j));
    moves.fill(destinations, sources);
  }
  moves.run();
}

TESSERA_ONCE void reduce_scatter(DType type, Reduction reduction, int dim, std::span<const Group> groups) {
  detail::Moves moves("reduce_scatter", type, reduction);
  for (const Group& group : groups) {
    moves.begin(group);
    const std::size_t d = moves.dim_of(group, dim);
    moves.require_same_size(group);
    const Shape& shape = group.in[0].shape;
    const auto boxes = detail::joined(group.out, shape, d);
    moves.require(detail::end_of(boxes, d) == shape[d], "the outputs together do not have the extent of an input");
    Growable<int> sources, destinations;
    for (std::size_t i = 0; i < group.in.size(); ++i)
      sources.push_back(moves.source(group.in[i], detail::whole(shape), i));
    for (std::size_t i = 0; i < boxes.size(); ++i) destinations.push_back(moves.destination(group.out[i], boxes[i], i));
    moves.fill(destinations, sources, static_cast<int>(sources.size()));
  }
  moves.run();
}

TESSERA_ONCE void all_to_all(DType type, int split_dim, int concat_dim, std::span<const Group> groups) {
  detail::Moves moves("all_to_all", type);
  for (const Group& group : groups) {
    moves.begin(group);
    const std::size_t split = moves.dim_of(group, split_dim), concat = moves.dim_of(group, concat_dim);
    moves.require_same_size(group);
    const Shape& shape = group.in[0].shape;
    const auto members = static_cast<std::int64_t>(group.in.size());
    if (split == concat) {
      if (shape[split] % members != 0)
        fail(errc::not_divisible, "[all_to_all] equal chunks: the extent ", shape[split], " of dim ", split_dim,
             " does not divide by the ", members, " members of a group");
      const std::int64_t piece = shape[split] / members;
      for (std::int64_t j = 0; j < members; ++j) {
        Growable<int> sources;
        for (std::int64_t i = 0; i < members; ++i) {
          const MemberArray& in = group.in[static_cast<std::size_t>(i)];
          moves.require(in.shape == shape, "the inputs have different shapes");
          sources.push_back(
              moves.source_range(in, split, j * piece, (j + 1) * piece, i * piece, static_cast<std::size_t>(i)));
        }
        const auto to = static_cast<std::size_t>(j);
        moves.fill(moves.destination(group.out[to], detail::whole(shape), to), sources);
      }
      continue;
    }
    const auto in_boxes = detail::joined(group.in, shape, concat);
    const Shape all = detail::with_extent(shape, concat, detail::end_of(in_boxes, concat));
    const auto out_boxes = detail::joined(group.out, all, split);
    moves.require(detail::end_of(out_boxes, split) == shape[split],
                  "the outputs together do not have the extent of an input");
    Growable<int> sources, destinations;
    for (std::size_t i = 0; i < group.in.size(); ++i) sources.push_back(moves.source(group.in[i], in_boxes[i], i));
    for (std::size_t j = 0; j < group.out.size(); ++j)
      destinations.push_back(moves.destination(group.out[j], out_boxes[j], j));
    moves.fill(destinations, sources);
  }
  moves.run();
}

TESSERA_ONCE void collective_permute(DType type, std::span<const Route> routes, std::span<const Group> groups) {
  detail::Moves moves("collective_permute", type);
  for (const Group& group : groups) {
    moves.begin(group);
    moves.require_same_size(group);
    Growable<int> sources, sender(group.out.size(), -1);
    for (const Route& route : routes) {
      int& from = sender[static_cast<std::size_t>(moves.member(group, route.destination))];
      if (from >= 0)
        fail(errc::dim_range, "[collective_permute] one sender for each member: member ", route.destination,
             " would receive from ", from, " and ", route.source);
      from = moves.member(group, route.source);
    }
    for (std::size_t i = 0; i < group.in.size(); ++i)
      sources.push_back(moves.source(group.in[i], detail::whole(group.in[i].shape), i));
    for (std::size_t j = 0; j < group.out.size(); ++j) {
      const int destination = moves.destination(group.out[j], detail::whole(group.out[j].shape), j);
      if (sender[j] < 0) {
        moves.fill_zero(destination);
        continue;
      }
      const auto from = static_cast<std::size_t>(sender[j]);
      moves.require(group.in[from].shape == group.out[j].shape, "a receiver and its sender have different shapes");
      moves.copy(destination, sources[from]);
    }
  }
  moves.run();
}
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
