#ifndef TESSERA_GRAPH_FUSE_TRACED_UNITS_HPP
#define TESSERA_GRAPH_FUSE_TRACED_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <utility>

#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/graph/trace/trace.hpp>

namespace tessera {

namespace detail {

/// The groups of one graph as constants.
template <int Nodes> struct FrozenGroups {
  NodeGroup nodes[static_cast<std::size_t>(Nodes) + 1]{};
  GroupMembers groups[static_cast<std::size_t>(Nodes) + 1]{};
  int count = 0;
  constexpr explicit FrozenGroups(const Groups& from) : count(static_cast<int>(from.groups.size())) {
    const NodeGroup* const list = from.nodes.data();
    for (int i = 0; i < Nodes; ++i) nodes[i] = list[i];
    const GroupMembers* const own = from.groups.data();
    for (int i = 0; i < count; ++i) groups[i] = own[i];
  }
  constexpr GroupsView view() const { return {nodes, groups, count}; }
};

template <int Nodes> struct FrozenSpaces {
  Space spaces[static_cast<std::size_t>(Nodes) + 1]{};
  constexpr explicit FrozenSpaces(const NodeSpaces& from) {
    const Space* const list = from.spaces.data();
    for (int i = 0; i < Nodes; ++i) spaces[i] = list[i];
  }
};

// Compilers bound the work of one evaluation, so each pass over a graph of many nodes is a constant of its own.
template <class Traced, std::size_t G>
inline constexpr FrozenSpaces<Traced::graphs[G].size> graph_spaces{NodeSpaces(Traced::graphs[G])};
template <class Traced, std::size_t G>
inline constexpr FrozenGroups<Traced::graphs[G].size> graph_groups{
    find_groups(Traced::graphs[G], graph_spaces<Traced, G>.spaces)};

template <class Traced, std::size_t G> constexpr Units units_of_graph() {
  constexpr const GraphView& graph = Traced::graphs[G];
  if constexpr (graph.size <= small_program) {
    return group_units(graph);
  } else {
    (void)sizeof(ExplainSteps<requires { typename Constant<graph_groups<Traced, G>.count>; }>);
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
  /// How many kernels there are, and what they are.
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
