#ifndef TESSERA_GRAPH_FUSE_TRACED_UNITS_HPP
#define TESSERA_GRAPH_FUSE_TRACED_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <utility>

#include <tessera/graph/fuse/frozen_units.hpp>
#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/graph/trace/trace.hpp>

namespace tessera {

namespace detail {

/// A list as a constant, with a capacity of `Most` items.
template <class T, int Most> struct FrozenList {
  T items[static_cast<std::size_t>(Most) + 1]{};
  int count = 0;
  constexpr explicit FrozenList(const Growable<T>& from) : count(static_cast<int>(from.size())) {
    const T* const list = from.data();
    for (int i = 0; i < count; ++i) items[i] = list[i];
  }
};
/// The groups of one graph as constants.
template <int Nodes> struct FrozenGroups {
  FrozenList<NodeGroup, Nodes> nodes;
  FrozenList<GroupMembers, Nodes> groups;
  constexpr explicit FrozenGroups(const Groups& from) : nodes(from.nodes), groups(from.groups) {}
  constexpr GroupsView view() const { return {nodes.items, groups.items, groups.count}; }
};

// Each pass over a large graph is a constant of its own, since compilers limit the work of each constant expression.
template <class Traced, std::size_t G>
inline constexpr FrozenList<Space, Traced::graphs[G].size> graph_spaces{node_spaces(Traced::graphs[G])};
template <class Traced, std::size_t G>
inline constexpr FrozenGroups<Traced::graphs[G].size> graph_groups{
    find_groups(Traced::graphs[G], graph_spaces<Traced, G>.items)};

template <class Traced, std::size_t G> constexpr Units units_of_graph() {
  constexpr const GraphView& graph = Traced::graphs[G];
  if constexpr (graph.size <= small_program) {
    return group_units(graph);
  } else {
    (void)sizeof(ExplainSteps<requires { typename Constant<graph_groups<Traced, G>.groups.count>; }>);
    return write_units(graph, graph_groups<Traced, G>.view());
  }
}

}  // namespace detail

/// The units and kernels of a traced program, as constants.
template <class Traced> struct TracedUnits {
  static constexpr std::size_t graph_count = Traced::graphs.size();
  using Graphs = std::make_index_sequence<graph_count>;
  static constexpr auto roomy = []<std::size_t... G>(std::index_sequence<G...>) {
    FrozenUnits<UnitsSize::bound(Traced::graphs.data(), static_cast<int>(graph_count))> made;
    (made.add(static_cast<int>(G), detail::units_of_graph<Traced, G>()), ...);
    return made;
  }(Graphs());
  static_assert(sizeof(detail::ExplainSteps<requires { typename detail::Constant<roomy.kernel_count>; }>) > 0);
  static constexpr FrozenUnits<roomy.used()> units{roomy, Traced::graphs.data()};
  static constexpr auto views = []<std::size_t... G>(std::index_sequence<G...>) {
    return std::array<UnitsView, sizeof...(G)>{units.graph(static_cast<int>(G))...};
  }(Graphs());
  /// The number of kernels, and the kernels.
  static constexpr std::size_t kernel_count = static_cast<std::size_t>(units.kernel_count);
  template <std::size_t K>
  static constexpr Fused kernel =
      lower_fused(Traced::graphs[static_cast<std::size_t>(units.kernel_graph[K])],
                  views[static_cast<std::size_t>(units.kernel_graph[K])], units.kernel_unit[K]);
  static constexpr auto kernels = []<std::size_t... K>(std::index_sequence<K...>) {
    return std::array<Fused, sizeof...(K)>{kernel<K>...};
  }(std::make_index_sequence<kernel_count>());
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
