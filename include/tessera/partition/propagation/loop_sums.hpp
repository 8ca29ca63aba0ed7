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
#include <tessera/partition/propagation/unit_readers.hpp>

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
      find_in(repeat.index());
      find(repeat.index(), Repeat::of(repeat).carried);
    }
  }

  /// `sums`: a copy, from which the Flow drops what this trial does not leave partial.
  constexpr Flow flow_of(int body, Growable<PartialSums>& sums) const {
    return Flow(program_.graphs[body], units_[body], solver_.links[size(body)], found_[size(body)], mesh_,
                solver_.values[size(body)], sums, body);
  }

  constexpr void find(int body, int carried) {
    const GraphView& graph = program_.graphs[body];
    const UnitsView& units = units_[body];
    const UnitReaders readers(units, graph.size);
    Growable<std::int32_t> maker(size(graph.size), -1), returned(size(graph.size), 0);
    for (int u = 0; u < units.count; ++u)
      for (int o = 0; o < units[u].output_count; ++o)
        if (const int node = units.output(u, o).node; node >= 0) maker[size(node)] = u;
    for (int k = 0; k < graph.output_count; ++k) ++returned[size(graph.outputs[k])];
    const auto only_returned = [&](int k) {
      const int node = graph.outputs[k];
      return maker[size(node)] >= 0 && returned[size(node)] == 1 && readers.count(node) == 0;
    };

    PartialSums& own = sums_[size(body)];
    Growable<std::int32_t> adders(size(carried), -1);
    bool any = false;
    for (int k = 0; k < carried; ++k) {
      const int node = solver_.argument_node(body, k);
      if (node < 0 || readers.count(node) != 1 || returned[size(node)] != 0 || !only_returned(k)) continue;
      if (const int u = readers.unit(node, 0); u == maker[size(graph.outputs[k])]) adders[size(k)] = u;
      any = any || adders[size(k)] >= 0;
    }
    own.carried.assign(size(carried), 0);
    if (any) {
      Growable<PartialSums> trial = sums_;
      const Flow flow = flow_of(body, trial);
      for (int k = 0; k < carried; ++k)
        if (adders[size(k)] >= 0) own.carried[size(k)] = summed_over(flow, body, k, adders[size(k)]);
    }
    // A sum that turns out to need its terms reduced may be what another one was linear with.
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
    own.results.assign(size(graph.output_count), replicated(0));
    bool stacked = false;
    for (int k = carried; k < graph.output_count; ++k) stacked = stacked || only_returned(k);
    if (!stacked) return;
    Growable<PartialSums> trial = sums_;
    const Flow flow = flow_of(body, trial);
    for (int k = carried; k < graph.output_count; ++k)
      if (const int node = graph.outputs[k]; only_returned(k) && flow.parts[size(node)].entries.empty() &&
                                             units[maker[size(node)]].kind != UnitKind::repeat)
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
