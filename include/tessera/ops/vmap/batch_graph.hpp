#ifndef TESSERA_OPS_VMAP_BATCH_GRAPH_HPP
#define TESSERA_OPS_VMAP_BATCH_GRAPH_HPP
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
#include <tessera/ops/layers.hpp>
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
      if (joins_examples(node, id)) differs = forced_[at] != 0;
      differs_[at] = differs ? 1 : 0;
    }
  }
  /// Whether the result is the same for all examples since it is computed from all of them.
  constexpr bool joins_examples(const Node& node, int id) const {
    return (node.op == Op::sum_examples || node.op == Op::gather_examples) &&
           differs_[static_cast<std::size_t>(graph_.operand(id, 1))] != 0;
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
  /// `arguments`: by argument index of the graph of one example. `reference`: a value of the graph of all examples that
  /// has their number, if no argument may have it.
  constexpr BatchGraph(Module& module, int one, int all, const Growable<Batched>& arguments,
                       const Batched& reference = {})
      : module_(module), batching_{.module = &module, .one = one, .all = all, .reference = reference},
        arguments_(arguments), differs_(module.graph(one), arguments) {
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
    if (full && of(id).dim < 0) of(id).id = in_one_block(value(of(id).id, source)).id;
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
      batch_repeat(node, id);
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

  /// What the body of a repeat has for all examples.
  struct Layer {
    int graph = 0;
    Growable<Batched> arguments{};  // by operand of the repeat
    Value runs{};                   // where the number of steps differs: whether this one runs, for each example
  };

  /// Makes a repeat whose body computes a layer for all examples. Where the number of steps differs between examples,
  /// it runs until all examples are done; an example that is done keeps its carried values, and its further results are
  /// zeros.
  constexpr void batch_repeat(const Node& node, int id) {
    const Repeat shape = Repeat::of(node);
    const bool masks = shape.limited && of(operand(id, shape.limit(node.arity))).dim >= 0;
    Growable<std::uint8_t> differs(node.arity);
    for (int i = 0; i < node.arity; ++i)
      differs[static_cast<std::size_t>(i)] = (masks && i < shape.carried) || of(operand(id, i)).dim >= 0 ? 1 : 0;
    for (;;) {  // a carried value differs if a layer returns a value that does
      Layer layer{.graph = module_.add_graph()};
      Batched runs;
      if (masks) runs = {add_test(layer, shape, node).id, 0};
      add_arguments(layer, node, id, differs, masks);
      BatchGraph made(module_, node.index(), layer.graph, layer.arguments, runs);
      bool more = false;
      for (int k = 0; k < shape.carried; ++k)
        if (made.output(k, false).dim >= 0 && differs[static_cast<std::size_t>(k)] == 0)
          differs[static_cast<std::size_t>(k)] = 1, more = true;
      if (more) continue;
      connect(node, id, layer, differs, made);
      return;
    }
  }
  // Operands of a repeat that tests whether an example is done: carried, stacked, the index of each step, those that
  // are the same in each step, the number of steps of each example, the largest of these numbers.
  constexpr Value add_test(Layer& layer, const Repeat& shape, const Node& node) {
    const auto argument = [&](int index, int rank) {
      return Value{&module_, layer.graph, module_.graph(layer.graph).add(argument_node(index, DType::i32, rank)),
                   node.source};
    };
    const Value step = argument(shape.carried + shape.stacked, 0), steps = argument(shape.limit(node.arity) + 1, 1);
    return layer.runs = build::less(step, steps);
  }
  constexpr void add_arguments(Layer& layer, const Node& repeat, int id, const Growable<std::uint8_t>& differs,
                               bool masks) {
    layer.arguments = Growable<Batched>(repeat.arity);
    const Repeat shape = Repeat::of(repeat);
    for (int k = 0; k < module_.graph(repeat.index()).size(); ++k) {
      Node node = module_.graph(repeat.index())[k];
      if (!node.is_argument() || node.index() < 0) continue;
      const int i = node.index();
      const bool own = differs[static_cast<std::size_t>(i)] != 0;
      if (own) {
        node.rank = static_cast<std::uint8_t>(node.rank + 1);
        node.singletons = static_cast<std::uint8_t>(node.singletons << 1);
        // Slices of a value that was computed for all examples are in one block, and so is a tensor of a Stack in the
        // carry or captured: its dim of layers comes after the dim of examples.
        if (!shape.is_stacked(i) || !is_in_layers(module_.graph(batching_.all)[of(operand(id, i)).id]))
          node = stored_as(Storage::block, node);
      }
      if (masks && i >= shape.carried + shape.stacked) {
        const Storage storage = storage_of(node);
        const Source source = node.source;
        node = stored_as(storage, argument_node(i + 1, node.dtype, node.rank, node.singletons));
        node.source = source;
      }
      layer.arguments[static_cast<std::size_t>(i)] = {module_.graph(layer.graph).add(node),
                                                      static_cast<std::int8_t>(own ? 0 : -1)};
    }
  }
  /// A result of a layer, of the examples that are not done.
  constexpr Value of_running(const Layer& layer, const Value& made, const Batched& carried) {
    const unsigned behind = ((1u << made.rank()) - 1) & ~1u;
    const Value runs = build::insert_singletons(layer.runs, behind, made.rank());
    return build::select(runs, made, carried.id >= 0 ? made.with(carried.id) : made.number(0));
  }
  constexpr void connect(const Node& node, int id, const Layer& layer, const Growable<std::uint8_t>& differs,
                         BatchGraph& made) {
    Repeat shape = Repeat::of(node);
    const bool masks = layer.runs.module != nullptr;
    const int outputs = static_cast<int>(module_.graph(node.index()).outputs.size());
    Growable<Batched> results;
    for (int k = 0; k < outputs; ++k) {
      const bool is_carried = k < shape.carried;
      Batched result = made.output(k, masks || (is_carried && differs[static_cast<std::size_t>(k)] != 0));
      if (masks)
        result.id = of_running(layer, {&module_, layer.graph, result.id, node.source},
                               is_carried ? layer.arguments[static_cast<std::size_t>(k)] : Batched{})
                        .id;
      results.push_back(result);
      module_.graph(layer.graph).outputs.push_back(result.id);
    }
    Growable<std::int32_t> operands;
    Value count;
    for (int i = 0; i < node.arity; ++i) {
      if (masks && i == shape.carried + shape.stacked) {
        count = shape.counted ? value(of(operand(id, node.arity - 1)).id, node.source)
                              : build::extent(value(operands[static_cast<std::size_t>(shape.carried)], node.source), 0);
        operands.push_back(build::arange(count).id);
      }
      Batched& own = of(operand(id, i));
      if (differs[static_cast<std::size_t>(i)] == 0)
        operands.push_back(own.id);
      else if (!shape.is_stacked(i)) {
        if (own.dim < 0) own.id = in_one_block(value(own.id, node.source)).id;
        operands.push_back(batching_.full(own, node.source).id);
      } else
        operands.push_back(own.dim == 1 ? own.id : build::move_dim(value(own.id, node.source), 0, 1).id);
    }
    if (masks) {
      if (shape.counted) operands.pop_back();  // the index of each step counts the steps
      operands.push_back(build::max_of(value(operands.back(), node.source), 1u, false).id);
      ++shape.stacked;
      shape.counted = false;
    }
    const Value all =
        value(module_.graph(batching_.all)
                  .add(shape.node(layer.graph, node.source), operands.data(), static_cast<int>(operands.size())),
              node.source);
    of(id) = {all.id, 0};
    for (int p = id + 1; p < static_cast<int>(batching_.values.size()); ++p) {
      const Node from = module_.graph(batching_.one)[p];
      if (!from.is_projection() || operand(p, 0) != id) continue;
      const int k = output_of(from);
      const Batched& result = results[static_cast<std::size_t>(k)];
      const Node type = module_.graph(layer.graph)[result.id];
      const bool is_carried = k < shape.carried;
      const bool in_block = is_carried && result.dim >= 0;
      const Value own = build::project(all, k, is_carried ? type : build::stacked_type(type),
                                       in_block ? Storage::block : storage_of(from));
      of(p) = {own.id, static_cast<std::int8_t>(result.dim < 0 ? -1 : is_carried ? 0 : 1)};
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
    const std::int32_t one = module_.graph(body.graph).add(node, inside.data(), node.arity);
    module_.graph(body.graph).outputs.push_back(one);
    for (std::int32_t outer : body.captured) slices.push_back(outer);
    const Repeat shape{.stacked = next, .scan = true};
    const Value all =
        value(module_.graph(batching_.all)
                  .add(shape.node(body.graph, node.source), slices.data(), static_cast<int>(slices.size())),
              node.source);
    of(id) = {build::project(all, 0, build::stacked_type(module_.graph(body.graph)[one])).id, 0};
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
