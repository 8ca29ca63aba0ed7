#ifndef TESSERA_GRAPH_TRACED_UNITS_HPP
#define TESSERA_GRAPH_TRACED_UNITS_HPP

#include <array>
#include <cstddef>
#include <utility>

#include <tessera/graph/lower_fused.hpp>
#include <tessera/graph/trace.hpp>

namespace tessera {

/// The units and kernels of a traced program, as constants. Each pass is a constant of its own: compilers bound the
/// work of one evaluation.
template <class Traced> struct TracedUnits {
  static constexpr int graph_count = static_cast<int>(Traced::graphs.size());
  static constexpr FrozenUnits<UnitsSize::bound(Traced::graphs.data(), graph_count)> roomy{
      ProgramUnits(Traced::graphs.data(), graph_count)};
  static constexpr UnitsSize size = roomy.used;
  static constexpr FrozenUnits<size> units{roomy};
  static constexpr auto views = []<std::size_t... G>(std::index_sequence<G...>) {
    return std::array<UnitsView, sizeof...(G)>{units.graph(static_cast<int>(G))...};
  }(std::make_index_sequence<static_cast<std::size_t>(graph_count)>{});
  static constexpr auto kernels = []<std::size_t... K>(std::index_sequence<K...>) {
    return std::array<Fused, sizeof...(K)>{units.kernels[K]...};
  }(std::make_index_sequence<static_cast<std::size_t>(size.kernels)>{});
};

}  // namespace tessera

#endif
