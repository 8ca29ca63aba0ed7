#ifndef TESSERA_PARTITION_PLAN_ABSTRACT_HPP
#define TESSERA_PARTITION_PLAN_ABSTRACT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/partition/plan/make_plan.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A leaf of a program's arguments without data, for planning: a tensor's shape and spec (the same for all layers of a
/// Stack), or the value of a Dim.
struct Abstract {
  Shape shape;
  PartitionSpec spec;
  HostNumber number{};
  std::int64_t layers = 0;  ///< 0: not in a Stack

  constexpr Abstract(Shape extents, PartitionSpec split = {}) : shape(extents), spec(split) {}
  static constexpr Abstract dim(std::int64_t value) {
    Abstract leaf({});
    leaf.number = value;
    return leaf;
  }
};

/// A leaf of a Stack with n layers: the same tensor or Dim in each layer.
constexpr Abstract stacked(std::int64_t n, Abstract leaf) {
  leaf.layers = n;
  return leaf;
}

namespace detail {

struct CountLeaves {
  std::size_t count = 0;
  constexpr void leaf(auto&) { ++count; }
  constexpr void enter_stack(auto& stack) { stack.layers().resize(1); }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class A> constexpr std::size_t leaf_count() {
  A argument{};
  CountLeaves counter;
  for_each_leaf(argument, counter);
  return counter.count;
}

}  // namespace detail

/// An argument of type A without data, for planning: its leaves, in the order in which they are declared.
template <class A, std::size_t Leaves> struct AbstractArgument {
  using type = A;
  Abstract leaves[Leaves];
};

namespace detail {
template <class A, std::size_t N, std::size_t... I>
constexpr AbstractArgument<A, N> abstract_argument(const Abstract (&leaves)[N], std::index_sequence<I...>) {
  return {{leaves[I]...}};
}
}  // namespace detail

/// A tensor without data, for planning: `ts::abstract<float>({64, 256}, {"data"})`. The number of extents is the rank.
template <Element T, std::size_t Rank>
constexpr auto abstract(const std::int64_t (&shape)[Rank], const PartitionSpec& spec = {}) {
  Shape extents;
  for (std::int64_t extent : shape) extents.push_back(extent);
  return AbstractArgument<ShardedTensor<T, static_cast<int>(Rank)>, 1>{{Abstract(extents, spec)}};
}
/// A model without data, for planning, from its leaves: `ts::abstract<Mlp>({{{64, 256}, up}, {{256, 64}, down}})`.
/// Leaves of a Stack are given once, by ts::stacked; those that are Dims by Abstract::dim; a Scalar is `{{}}`.
template <class A, std::size_t N>
  requires(!Element<A>)
constexpr AbstractArgument<A, N> abstract(const Abstract (&leaves)[N]) {
  static_assert(detail::leaf_count<A>() == N,
                "tessera: an abstract argument has one leaf for each tensor, Dim and Scalar of its type, in the order "
                "in which they are declared; those of a Stack are given once");
  return detail::abstract_argument<A>(leaves, std::make_index_sequence<N>());
}
/// A Scalar never changes the plan, so its value is not needed.
constexpr AbstractArgument<Scalar, 1> abstract(Scalar) { return {{Abstract({})}}; }
constexpr AbstractArgument<Dim, 1> abstract(Dim size) { return {{Abstract::dim(size.value())}}; }

namespace detail {

/// The values of Dims; of Scalars the plan needs none.
template <std::size_t Leaves> struct ReadNumbers {
  HostNumber values[Leaves]{};
  std::size_t count = 0;
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    constexpr bool is_number = NumberOperand<Leaf>;
    static_assert(is_number,
                  "tessera: ts::abstract of a structure takes it by its value only if it has no tensors, such "
                  "as hyper-parameters; give the leaves of others: ts::abstract<Model>({{{64, 256}, spec}, ...})");
    if constexpr (std::is_same_v<Leaf, Dim>) values[count] = leaf.value();
    ++count;
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
constexpr Abstract abstract_number(HostNumber value) {
  Abstract leaf({});
  leaf.number = value;
  return leaf;
}

}  // namespace detail

/// A structure of numbers, such as hyper-parameters: `ts::abstract(ts::optim::AdamW{})`.
template <class... None, class A>
  requires(sizeof...(None) == 0 && std::is_class_v<A> && !Operand<A> && !Element<A>)
constexpr auto abstract(const A& numbers) {
  constexpr std::size_t count = detail::leaf_count<A>();
  detail::ReadNumbers<count> read;
  for_each_leaf(numbers, read);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return AbstractArgument<A, count>{{detail::abstract_number(read.values[I])...}};
  }(std::make_index_sequence<count>());
}

namespace detail {
constexpr ArgumentInfo describe_leaf(const Abstract& leaf, const Mesh& mesh) {
  ArgumentInfo info;
  info.number = leaf.number;
  info.shape = leaf.shape;
  PartitionSpec spec = leaf.spec;
  if (leaf.layers > 0) {
    info.shape.insert(0, leaf.layers);
    spec.entries.insert(0, SpecEntry{});
  }
  info.sharding = resolve(spec, mesh, static_cast<int>(info.shape.size()));
  return info;
}
}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
