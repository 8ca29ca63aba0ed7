#ifndef TESSERA_OPS_BATCH_GRAPH_HPP
#define TESSERA_OPS_BATCH_GRAPH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/trace/captures.hpp>
#include <tessera/graph/transform/batch.hpp>
#include <tessera/graph/transform/repeat_gradient.hpp>
#include <tessera/graph/transform/simplify.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Which nodes of a graph differ between examples, from which arguments do, by argument index.
class DiffersBetweenExamples {
 public:
  constexpr DiffersBetweenExamples(const Graph& graph, const Growable<Batched>& arguments)
      : graph_(graph), arguments_(arguments), differs_(graph.nodes.size()), forced_(graph.nodes.size()) {
    mark();
    while (force_cotangents()) mark();
  }

  /// Nodes that differ although their operands may not: draws, and the cotangents on which a custom gradient was traced
  /// whose result differs.
  constexpr bool is_forced(int id) const { return forced_[static_cast<std::size_t>(id)] != 0; }

 private:
  const Graph& graph_;
  const Growable<Batched>& arguments_;
  Growable<std::uint8_t> differs_, forced_;

  constexpr void mark() {
    for (int id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      const auto at = static_cast<std::size_t>(id);
      const OpRow& row = row_of(node);
      if (row.unit == UnitKind::random && graph_.operand_node(id, 1).dtype == DType::f64) forced_[at] = 1;
      bool differs = forced_[at] != 0;
      if (node.is_argument() && node.index() >= 0)
        differs = arguments_[static_cast<std::size_t>(node.index())].dim >= 0;
      for (int i = 0; i < node.arity && row.host_source == HostSource::no; ++i)
        if (const int operand = graph_.operand(id, i); operand >= 0)
          differs = differs || differs_[static_cast<std::size_t>(operand)] != 0;
      differs_[at] = differs ? 1 : 0;
    }
  }
  constexpr bool force_cotangents() {
    bool more = false;
    for (int id = 0; id < graph_.size(); ++id) {
      if (graph_[id].op != Op::custom_gradient || differs_[static_cast<std::size_t>(graph_.operand(id, 0))] == 0)
        continue;
      for (int k = 1; k <= CustomGradient::of(graph_[id]).results; ++k) {
        const auto cotangent = static_cast<std::size_t>(graph_.operand(id, k));
        if (differs_[cotangent] != 0) continue;
        forced_[cotangent] = 1;
        more = true;
      }
    }
    return more;
  }
};

/// Makes the nodes of a graph that computes one example for all examples at once. Nodes that are the same for all
/// examples are copied; an operation without a batching rule runs in a loop over the examples.
class BatchGraph {
 public:
  /// `arguments`: by argument index of the graph of one example.
  constexpr BatchGraph(Module& module, int one, int all, const Growable<Batched>& arguments)
      : module_(module), batching_{&module, one, all}, arguments_(arguments), differs_(module.graph(one), arguments) {
    for (const Batched& argument : arguments)
      if (argument.dim >= 0 && batching_.reference.id < 0) batching_.reference = argument;
    const Growable<std::uint8_t> live = live_nodes(module.graph(one).view());
    const int size = module.graph(one).size();
    batching_.values.assign(static_cast<std::size_t>(size), Batched{});
    for (int id = 0; id < size; ++id) {
      if (live[static_cast<std::size_t>(id)] == 0 || of(id).id >= 0) continue;
      const Node node = module.graph(one)[id];
      const std::size_t first = module.graph(all).nodes.size();
      if (const Batched made = make(node, id); made.id >= 0) of(id) = made;
      Growable<Node>& nodes = module.graph(all).nodes;
      for (std::size_t k = first; k < nodes.size(); ++k) nodes[k].region = node.region, nodes[k].derived = node.derived;
    }
  }

  /// Output k, with a leading dim of examples if `full`.
  constexpr Batched output(int k, bool full) {
    const std::int32_t id = module_.graph(batching_.one).outputs[static_cast<std::size_t>(k)];
    const Source source = module_.graph(batching_.one)[id].source;
    if (full && of(id).dim < 0 && batching_.reference.id < 0)  // there is one example
      of(id) = {build::insert_singletons(value(of(id).id, source), 1, value(of(id).id, source).rank() + 1).id, 0};
    else if (full)
      of(id) = {batching_.full(of(id), source).id, 0};
    else if (of(id).dim > 0)
      batching_.leading(of(id), source);
    return of(id);
  }

 private:
  Module& module_;
  Batching batching_;
  const Growable<Batched>& arguments_;
  DiffersBetweenExamples differs_;

  constexpr Batched& of(int id) { return batching_.values[static_cast<std::size_t>(id)]; }
  constexpr int operand(int id, int i) const { return module_.graph(batching_.one).operand(id, i); }
  constexpr Value value(std::int32_t id, Source source) const { return batching_.value(id, source); }

  constexpr Batched make(const Node& node, int id) {
    if (node.is_argument() && node.index() >= 0) return arguments_[static_cast<std::size_t>(node.index())];
    bool differs = differs_.is_forced(id);
    for (int i = 0; i < node.arity; ++i)
      if (const int from = operand(id, i); from >= 0) differs = differs || of(from).dim >= 0;
    if (!differs) return copy(node, id);
    if (node.rank == max_rank && !node.is_repeat())
      value(-1, node.source)
          .refuse(errc::capacity, "[vmap] rank: a tensor in the function of a ts::vmap has at most 7 dims, since the "
                                  "values of all examples have a leading dim");
    if (module_.refusal.text != nullptr) return copy(node, id);
    if (node.is_repeat()) {
      if (!batch_repeat(node, id)) loop(node, id);
      return {};
    }
    if (const BatchRule rule = batch_rule_of(node.op); rule != nullptr)
      if (const Batched made = rule(Batch(batching_, id)); made.id >= 0) return made;
    loop(node, id);
    return {};
  }

  constexpr Batched copy(const Node& node, int id) {
    Growable<std::int32_t> operands;
    for (int i = 0; i < node.arity; ++i) operands.push_back(operand(id, i) < 0 ? -1 : of(operand(id, i)).id);
    return {module_.graph(batching_.all).add(node, operands.data(), node.arity), -1};
  }

  // ---- repeats

  /// Makes a repeat whose body computes a layer for all examples. A body that runs a number of layers that differs
  /// between examples can't.
  constexpr bool batch_repeat(const Node& node, int id) {
    const Repeat shape = Repeat::of(node);
    if (shape.limited && of(operand(id, shape.limit(node.arity))).dim >= 0) return false;
    Growable<std::uint8_t> differs(node.arity);
    for (int i = 0; i < node.arity; ++i) differs[static_cast<std::size_t>(i)] = of(operand(id, i)).dim >= 0 ? 1 : 0;
    for (;;) {  // a carried value differs if a layer returns a value that does
      const int body = module_.add_graph();
      BatchGraph layer(module_, node.index(), body, arguments_of_body(node, id, body, differs));
      bool more = false;
      for (int k = 0; k < shape.carried; ++k)
        if (layer.output(k, false).dim >= 0 && differs[static_cast<std::size_t>(k)] == 0)
          differs[static_cast<std::size_t>(k)] = 1, more = true;
      if (more) continue;
      connect(node, id, body, differs, layer);
      return true;
    }
  }
  constexpr Growable<Batched> arguments_of_body(const Node& repeat, int id, int body,
                                                const Growable<std::uint8_t>& differs) {
    Growable<Batched> made(repeat.arity);
    const Repeat shape = Repeat::of(repeat);
    for (int k = 0; k < module_.graph(repeat.index()).size(); ++k) {
      Node node = module_.graph(repeat.index())[k];
      if (!node.is_argument() || node.index() < 0) continue;
      const int i = node.index();
      const bool own = differs[static_cast<std::size_t>(i)] != 0;
      if (own) {
        node.rank = static_cast<std::uint8_t>(node.rank + 1);
        node.singletons = static_cast<std::uint8_t>(node.singletons << 1);
        // Slices of a value that was computed for all examples are in one block.
        if (shape.is_stacked(i) && !is_in_layers(module_.graph(batching_.all)[of(operand(id, i)).id]))
          node = stored_as(Storage::block, node);
      }
      made[static_cast<std::size_t>(i)] = {module_.graph(body).add(node), static_cast<std::int8_t>(own ? 0 : -1)};
    }
    return made;
  }
  constexpr void connect(const Node& node, int id, int body, const Growable<std::uint8_t>& differs, BatchGraph& layer) {
    const Repeat shape = Repeat::of(node);
    const int outputs = static_cast<int>(module_.graph(node.index()).outputs.size());
    Growable<Batched> results;
    for (int k = 0; k < outputs; ++k) {
      results.push_back(layer.output(k, k < shape.carried && differs[static_cast<std::size_t>(k)] != 0));
      module_.graph(body).outputs.push_back(results.back().id);
    }
    Growable<std::int32_t> operands;
    for (int i = 0; i < node.arity; ++i) {
      Batched& own = of(operand(id, i));
      if (differs[static_cast<std::size_t>(i)] == 0)
        operands.push_back(own.id);
      else if (!shape.is_stacked(i))
        operands.push_back(batching_.full(own, node.source).id);
      else
        operands.push_back(own.dim == 1 ? own.id : build::move_dim(value(own.id, node.source), 0, 1).id);
    }
    const Value made =
        value(module_.graph(batching_.all)
                  .add(shape.node(body, node.source), operands.data(), static_cast<int>(operands.size())),
              node.source);
    of(id) = {made.id, 0};
    for (int p = id + 1; p < static_cast<int>(batching_.values.size()); ++p) {
      const Node from = module_.graph(batching_.one)[p];
      if (!from.is_projection() || operand(p, 0) != id) continue;
      const int k = output_of(from);
      const Batched& result = results[static_cast<std::size_t>(k)];
      const Node type = module_.graph(body)[result.id];
      const bool is_carried = k < shape.carried;
      const Value all = build::project(made, k, is_carried ? type : build::stacked_type(type), storage_of(from));
      of(p) = {all.id, static_cast<std::int8_t>(result.dim < 0 ? -1 : is_carried ? 0 : 1)};
    }
  }

  // ---- loops over examples

  constexpr void loop(const Node& node, int id) {
    OpenBody body;
    body.graph = module_.add_graph();
    body.around = batching_.all;
    Growable<std::int32_t> slices, inside;
    for (int i = 0; i < node.arity; ++i) {
      if (operand(id, i) < 0 || of(operand(id, i)).dim < 0) continue;
      slices.push_back(batching_.leading(of(operand(id, i)), node.source).id);
    }
    body.arguments = static_cast<int>(slices.size());
    int next = 0;
    for (int i = 0; i < node.arity; ++i) {
      if (operand(id, i) < 0) {
        inside.push_back(-1);
        continue;
      }
      const Batched own = of(operand(id, i));
      const Value outer = value(own.id, node.source);
      if (own.dim < 0) {
        inside.push_back(captured(outer, body).id);
        continue;
      }
      Node type = outer.node();
      type.rank = static_cast<std::uint8_t>(type.rank - 1);
      type.singletons = static_cast<std::uint8_t>(type.singletons >> 1);
      inside.push_back(module_.graph(body.graph).add(build::argument_node(type, next++)));
    }
    const Value one{&module_, body.graph, module_.graph(body.graph).add(node, inside.data(), node.arity), node.source};
    Growable<int> results;  // the nodes of the graph of one example that the loop computes
    if (!node.is_repeat()) {
      results.push_back(id);
      module_.graph(body.graph).outputs.push_back(one.id);
    }
    for (int p = id + 1; p < static_cast<int>(batching_.values.size()) && node.is_repeat(); ++p) {
      const Node from = module_.graph(batching_.one)[p];
      if (!from.is_projection() || operand(p, 0) != id) continue;
      results.push_back(p);
      module_.graph(body.graph).outputs.push_back(build::project(one, output_of(from), from).id);
    }
    for (std::int32_t outer : body.captured) slices.push_back(outer);
    const Repeat shape{.stacked = next, .scan = true};
    const Value all =
        value(module_.graph(batching_.all)
                  .add(shape.node(body.graph, node.source), slices.data(), static_cast<int>(slices.size())),
              node.source);
    if (node.is_repeat()) of(id) = {all.id, 0};
    for (std::size_t k = 0; k < results.size(); ++k) {
      const Node type = module_.graph(body.graph)[module_.graph(body.graph).outputs[k]];
      of(results[k]) = {build::project(all, static_cast<int>(k), build::stacked_type(type)).id, 0};
    }
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
