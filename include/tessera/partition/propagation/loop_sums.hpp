#ifndef TESSERA_PARTITION_PROPAGATION_LOOP_SUMS_HPP
#define TESSERA_PARTITION_PROPAGATION_LOOP_SUMS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/propagation/flow.hpp>
#include <tessera/partition/propagation/solve.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Finds for each body of a repeat the sums that can stay partial from step to step, as if all of them began with
/// zeros; Flow drops those that begin with something else.
class LoopSums {
 public:
  constexpr LoopSums(const ProgramView& program, const UnitsView* units, const Mesh& mesh,
                     const Growable<GraphShapes>& found, const ShardingSolver& solver)
      : program_(program), units_(units), mesh_(mesh), found_(found), solver_(solver) {
    sums_.resize(size(program.graph_count));
    find_in(0);
  }

  constexpr Growable<PartialSums> take() { return std::move(sums_); }

 private:
  ProgramView program_;
  const UnitsView* units_;
  const Mesh& mesh_;
  const Growable<GraphShapes>& found_;
  const ShardingSolver& solver_;
  Growable<PartialSums> sums_;

  static constexpr std::size_t size(int i) { return static_cast<std::size_t>(i); }

  constexpr void find_in(int g) {
    for (int u = 0; u < units_[g].count; ++u) {
      if (units_[g][u].kind != UnitKind::repeat) continue;
      const Node& repeat = program_.graphs[g][units_[g][u].root];
      const int carried = Repeat::of(repeat).carried;
      find_in(repeat.index());
      bool read = false;  // whether a stacked result has a single reader, which could take it partial
      const UnitReaders& readers = solver_.readers[size(g)];
      for (int k = carried; k < units_[g][u].output_count && !read; ++k)
        if (const int node = units_[g].output(u, k).node; node >= 0 && readers.count(node) == 1)
          read = units_[g][readers.unit(node, 0)].kind != UnitKind::repeat;
      find(repeat.index(), carried, read);
    }
  }

  constexpr Flow flow_of(int body, Growable<PartialSums>& sums) const {
    return Flow(program_.graphs[body], units_[body], solver_.links[size(body)], solver_.readers[size(body)],
                found_[size(body)], mesh_, solver_.values[size(body)], sums, body);
  }

  /// Whether the body only returns output k, once, and does not read it.
  constexpr bool only_returned(int body, int k) const {
    const GraphView& graph = program_.graphs[body];
    if (solver_.readers[size(body)].count(graph.outputs[k]) != 0) return false;
    int times = 0;
    for (int other = 0; other < graph.output_count; ++other) times += graph.outputs[other] == graph.outputs[k];
    const Node& node = graph[graph.outputs[k]];
    return times == 1 && !node.is_argument() && !node.is_constant();
  }
  /// The unit that makes carried value k for the next step and is the only one to read it; -1 where there is none.
  constexpr int adder(int body, int k) const {
    const GraphView& graph = program_.graphs[body];
    const UnitReaders& readers = solver_.readers[size(body)];
    const int node = solver_.argument_node(body, k);
    if (node < 0 || readers.count(node) != 1 || !only_returned(body, k)) return -1;
    for (int other = 0; other < graph.output_count; ++other)
      if (graph.outputs[other] == node) return -1;
    const int u = readers.unit(node, 0);
    for (int o = 0; o < units_[body][u].output_count; ++o)
      if (units_[body].output(u, o).node == graph.outputs[k]) return u;
    return -1;
  }

  /// `with_results`: whether the stacked results matter.
  constexpr void find(int body, int carried, bool with_results) {
    const GraphView& graph = program_.graphs[body];
    const UnitsView& units = units_[body];
    PartialSums& own = sums_[size(body)];
    Growable<std::int32_t> adders;
    bool any = false;
    for (int k = 0; k < carried; ++k) {
      adders.push_back(adder(body, k));
      any = any || adders[size(k)] >= 0;
    }
    own.carried.assign(size(carried));
    if (any) {
      Growable<PartialSums> trial = sums_;
      const Flow flow = flow_of(body, trial);
      for (int k = 0; k < carried; ++k)
        if (adders[size(k)] >= 0) own.carried[size(k)] = summed_over(flow, body, k, adders[size(k)]);
    }
    // If a sum turns out to need its terms reduced, sums that were linear together with it must be looked at again.
    for (bool valid = !any; !valid;) {
      Growable<PartialSums> trial = sums_;
      const Flow flow = flow_of(body, trial);
      valid = true;
      for (int k = 0; k < carried; ++k) {
        if (own.carried[size(k)] == 0) continue;
        const int node = solver_.argument_node(body, k);
        const Sharding& made = flow.produced[size(graph.outputs[k])];
        if (made.unreduced == own.carried[size(k)] && made.reduction == Reduction::sum &&
            lies_alike(made.without_unreduced(), solver_.carried(body, k)) &&
            (units[adders[size(k)]].kind == UnitKind::repeat || flow.deferred[size(node)] == made.unreduced))
          continue;
        own.carried[size(k)] = 0;
        valid = false;
      }
    }
    bool stacked = false;
    for (int k = carried; k < graph.output_count && with_results; ++k) stacked = stacked || only_returned(body, k);
    if (!stacked) return;
    own.results.assign(size(graph.output_count), replicated(0));
    Growable<PartialSums> trial = sums_;
    const Flow flow = flow_of(body, trial);
    for (int k = carried; k < graph.output_count; ++k)
      if (const int node = graph.outputs[k];
          only_returned(body, k) && !graph[node].is_projection() && flow.parts[size(node)].entries.empty())
        own.results[size(k)] = flow.produced[size(node)];
  }

  /// The axes over which the terms are partial that unit u adds to carried value k.
  constexpr std::uint16_t summed_over(const Flow& flow, int body, int k, int u) const {
    const UnitsView& units = units_[body];
    const GraphView& graph = program_.graphs[body];
    const int node = solver_.argument_node(body, k), result = graph.outputs[k];
    std::uint16_t axes = 0;
    if (units[u].kind == UnitKind::repeat) {
      const int inner = graph[units[u].root].index();
      for (int j = 0; size(j) < sums_[size(inner)].carried.size() && j < units[u].output_count; ++j)
        if (units.input(u, j).node == node && units.output(u, j).node == result)
          axes = sums_[size(inner)].carried[size(j)];
    } else if (axes = flow.produced[size(result)].unreduced; axes == 0) {
      for (int i = 0; i < units[u].input_count; ++i)
        if (const Sharding& term = flow.produced[size(units.input(u, i).node)]; term.unreduced != 0)
          axes = term.unreduced;
    }
    return (axes & solver_.carried(body, k).used_axes()) != 0 ? std::uint16_t{0} : axes;
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
