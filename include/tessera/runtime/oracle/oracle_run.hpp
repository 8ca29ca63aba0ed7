#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_RUN_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_RUN_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/oracle/differing_elements.hpp>
#include <tessera/runtime/oracle/oracle.hpp>
#include <tessera/runtime/oracle/oracle_tolerance.hpp>

namespace tessera::runtime {

/// The values of a program on one device, by graph, visit (a repeat runs its body once per layer) and node.
class OracleValues {
 public:
  explicit OracleValues(const Plan& plan) : plan_(plan), by_graph_(plan.graphs.size()) {}

  int graph_of(const FrameLayout& layout) const { return static_cast<int>(&layout.plan() - plan_.graphs.data()); }
  /// Begins a new visit of a graph.
  void enter(int graph, int nodes) { by_graph_[at(graph)].push_back(Growable<WholeValue>(at(nodes))); }
  WholeValue* find(int graph, int visit, int node) {
    auto& visits = by_graph_[at(graph)];
    return visit < 0 || at(visit) >= visits.size() ? nullptr : &visits[at(visit)][at(node)];
  }
  int last_visit(int graph) const { return static_cast<int>(by_graph_[at(graph)].size()) - 1; }

 private:
  const Plan& plan_;
  Growable<Growable<Growable<WholeValue>>> by_graph_;
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
};

/// Calls f for value `v` and all its views; with v = -1, for all arguments and their views.
template <class F> void for_each_view(const GraphPlan& plan, int v, F&& f) {
  Growable<std::uint8_t> reached(plan.values.size(), 0);
  for (std::size_t i = 0; i < plan.values.size(); ++i) {
    const PlanValue& value = plan.values[i];
    reached[i] = v >= 0 ? static_cast<int>(i) == v : value.role == ValueRole::argument;
    if (value.role == ValueRole::view) reached[i] |= reached[static_cast<std::size_t>(value.view_of)];
    if (reached[i]) f(static_cast<int>(i));
  }
}

/// Records every value of a program that runs on one device.
class OracleRecorder final : public StepObserver {
 public:
  OracleRecorder(const CompiledProgram& compiled, OracleValues& values) : compiled_(compiled), values_(values) {}

  void entered(const FrameLayout& layout, Frame& frame) override {
    const int g = values_.graph_of(layout);
    values_.enter(g, compiled_.program.graphs[g].size);
    record(layout, frame, -1);
  }
  void ran(const FrameLayout& layout, Frame& frame, const RanSteps& steps) override {
    for (int s = steps.first; s < steps.first + steps.count; ++s)
      for (const std::int32_t v : layout.plan().steps[static_cast<std::size_t>(s)].outputs)
        if (v >= 0) record(layout, frame, v);
  }

 private:
  const CompiledProgram& compiled_;
  OracleValues& values_;

  void record(const FrameLayout& layout, const Frame& frame, int root) {
    const int g = values_.graph_of(layout);
    for_each_view(layout.plan(), root, [&](int v) {
      if (layout.value(v).role == ValueRole::host) return;
      WholeValue& own = *values_.find(g, values_.last_visit(g), layout.value(v).node);
      if (!own.known || root >= 0) gather_whole(layout, frame, v, own);
    });
  }
};

/// Compares every value of a program on its mesh with that on one device, then overwrites it with the latter, so that
/// differences don't propagate. Of two fused steps only the last result is stored; its tolerance includes both steps.
class OracleComparer final : public StepObserver {
 public:
  Growable<OracleDifference> differences;
  std::int64_t compared = 0, unknown = 0;

  /// `before` is called before the comparison of each step; tests use it to corrupt values.
  OracleComparer(const CompiledProgram& compiled, const Plan& plan, OracleValues& values, StepObserver* before)
      : compiled_(compiled), plan_(plan), values_(values), before_(before), state_(plan.graphs.size()) {}

  void entered(const FrameLayout& layout, Frame& frame) override {
    if (before_ != nullptr) before_->entered(layout, frame);
    State& state = state_[static_cast<std::size_t>(graph_of(layout))];
    ++state.visit;
    const auto nodes = static_cast<std::size_t>(graph(layout).size);
    state.allowed.assign(nodes, {});
    state.most.resize(nodes, 0);
    const Growable<double> before = std::exchange(state.slack, Growable<double>(nodes, 0));
    carry_slack(layout, frame, before);
    for_each_view(layout.plan(), -1, [&](int v) {
      if (layout.value(v).role == ValueRole::view) compare(layout, frame, v, {}, nullptr);
    });
  }
  void ran(const FrameLayout& layout, Frame& frame, const RanSteps& ran) override {
    if (before_ != nullptr) before_->ran(layout, frame, ran);
    for (int s = ran.first; s < ran.first + ran.count; ++s) {
      const PlanStep& step = layout.plan().steps[static_cast<std::size_t>(s)];
      const bool together = s > ran.first;
      if (step.kind == StepKind::compute) find_allowed(layout, frame, step, together);
      for (const std::int32_t v : step.outputs) {
        if (v < 0) continue;
        const int node = layout.value(v).node;
        if (layout.value(v).role != ValueRole::fused) compare(layout, frame, v, allowed_of(layout, step, node), &step);
      }
    }
    for (int s = ran.first; s < ran.first + ran.count; ++s)
      for (const std::int32_t v : layout.plan().steps[static_cast<std::size_t>(s)].outputs) {
        if (v < 0 || layout.value(v).role == ValueRole::fused) continue;
        put_in_place(layout, frame, v);
        for_each_view(layout.plan(), v, [&](int view) {
          if (view != v) compare(layout, frame, view, {}, nullptr);
        });
      }
  }

 private:
  struct State {
    int visit = -1;
    Growable<Allowed> allowed;  // by node: the tolerance of the unit that computes it
    Growable<double> slack;     // by node: the error bound of a partial value, which is not overwritten
    Growable<double> most;      // by node: the largest of them in all steps of a loop
  };
  const CompiledProgram& compiled_;
  const Plan& plan_;
  OracleValues& values_;
  StepObserver* before_;
  Growable<State> state_;

  int graph_of(const FrameLayout& layout) const { return static_cast<int>(&layout.plan() - plan_.graphs.data()); }
  const GraphView& graph(const FrameLayout& layout) const { return compiled_.program.graphs[graph_of(layout)]; }
  State& state_of(const FrameLayout& layout) { return state_[static_cast<std::size_t>(graph_of(layout))]; }
  const WholeValue* known(const FrameLayout& layout, int node) {
    const int g = graph_of(layout);
    const WholeValue* const found = values_.find(g, state_[static_cast<std::size_t>(g)].visit, node);
    return found == nullptr || !found->known ? nullptr : found;
  }

  /// A partial value that a loop carries has the error of the earlier steps as well.
  void carry_slack(const FrameLayout& layout, const Frame& frame, const Growable<double>& before) {
    const int body = graph_of(layout);
    State& state = state_of(layout);
    for (std::size_t g = 0; g < plan_.graphs.size(); ++g)
      for (const PlanStep& step : plan_.graphs[g].steps) {
        if (step.kind != StepKind::repeat || step.body != body) continue;
        const Repeat repeat = Repeat::of(compiled_.program.graphs[g][compiled_.units[g][step.unit].root]);
        const bool first = before.empty() || frame.layer == (repeat.reverse ? step.layers - 1 : 0);
        if (first) state.most.assign(state.most.size(), 0);
        for (int k = 0; k < repeat.carried; ++k) {
          const auto at = static_cast<std::size_t>(k);
          const int argument = at < layout.plan().arguments.size() ? layout.plan().arguments[at] : -1;
          if (argument < 0 || layout.value(argument).sharding.unreduced == 0) continue;
          const int from = plan_.graphs[g].values[static_cast<std::size_t>(step.inputs[at])].node;
          state.slack[static_cast<std::size_t>(layout.value(argument).node)] =
              first ? state_[g].slack[static_cast<std::size_t>(from)]
                    : before[static_cast<std::size_t>(graph(layout).outputs[k])];
        }
      }
  }

  /// The tolerance of a node after a step; after a reshard, that of the unit that computed the node.
  Allowed allowed_of(const FrameLayout& layout, const PlanStep& step, int node) {
    State& state = state_of(layout);
    if (step.kind == StepKind::compute) return state.allowed[static_cast<std::size_t>(node)];
    if (step.kind == StepKind::repeat) return allowed_of_loop(layout, step, node);
    if (layout.value(step.inputs[0]).sharding.unreduced == 0) return {};
    Allowed allowed = state.allowed[static_cast<std::size_t>(node)];
    const double slack = state.slack[static_cast<std::size_t>(node)];
    const WholeValue* const whole = known(layout, node);
    if (allowed.empty() && whole != nullptr) allowed.assign(static_cast<std::size_t>(whole->size()), slack);
    for (double& own : allowed) own = std::max(own, slack);
    return allowed;
  }

  /// The tolerance of a result that the body of a loop leaves partial.
  Allowed allowed_of_loop(const FrameLayout& layout, const PlanStep& step, int node) {
    const WholeValue* const whole = known(layout, node);
    Allowed allowed;
    for (std::size_t k = 0; whole != nullptr && k < step.outputs.size(); ++k)
      if (const int v = step.outputs[k];
          v >= 0 && layout.value(v).node == node && layout.value(v).sharding.unreduced != 0) {
        const int made = compiled_.program.graphs[step.body].outputs[k];
        const State& body = state_[static_cast<std::size_t>(step.body)];
        const auto at = static_cast<std::size_t>(made);
        allowed.assign(static_cast<std::size_t>(whole->size()), at < body.most.size() ? body.most[at] : 0);
      }
    return allowed;
  }

  void find_allowed(const FrameLayout& layout, const Frame& frame, const PlanStep& step, bool together) {
    const GraphView& own_graph = graph(layout);
    const UnitsView& units = compiled_.units[graph_of(layout)];
    const int u = step.unit;
    const Unit& unit = units[u];
    State& state = state_of(layout);
    Growable<OracleOperand> inputs;
    bool exact = true;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units.input(u, i).node, v = step.inputs[static_cast<std::size_t>(i)];
      OracleOperand operand{known(layout, node), 0, 0};
      if (v >= 0 && layout.value(v).sharding.unreduced != 0)
        operand.slack = state.slack[static_cast<std::size_t>(node)];
      if (const Allowed& off = state.allowed[static_cast<std::size_t>(node)]; together && !off.empty())
        operand.allowed = &off;
      exact = exact && operand.slack == 0 && operand.allowed == nullptr;
      inputs.push_back(operand);
    }
    const auto number = [&](int node) { return frame.numbers[static_cast<std::size_t>(node)].real(); };
    if (unit.kind == UnitKind::fused) return find_fused(layout, frame, step, inputs, exact);
    for (int o = 0; o < unit.output_count; ++o) {
      const int node = units.output(u, o).node;
      Allowed& allowed = state.allowed[static_cast<std::size_t>(node)];
      allowed.clear();
      const WholeValue* const result = known(layout, node);
      if (result == nullptr) continue;
      if (unit.kind == UnitKind::contraction) {
        OracleOperand operands[2], addend;
        for (int k = 0; k < 2; ++k) operands[k].number = number(own_graph.operand(unit.space, k));
        for (int i = 0; i < unit.input_count; ++i)
          (units.input(u, i).operand < 0 ? addend : operands[units.input(u, i).operand]) =
              inputs[static_cast<std::size_t>(i)];
        allowed = contraction_allowed(own_graph[unit.space], operands[0], operands[1],
                                      unit.addend >= 0 ? &addend : nullptr, *result);
      } else if (unit.kind == UnitKind::attention) {
        const Node& made = own_graph[node];
        Growable<OracleOperand> operands;
        for (int i = 0; i < made.arity; ++i) {
          const int operand = own_graph.operand(node, i);
          operands.push_back({operand < 0 ? nullptr : known(layout, operand), operand < 0 ? 0.0 : number(operand), 0});
        }
        allowed = attention_allowed(made, operands, *result);
      } else if (unit.kind == UnitKind::ragged) {
        allowed = ragged_allowed(own_graph[node], inputs[0], inputs[1], *result);
      } else if (unit.kind == UnitKind::cumulative) {
        allowed = cumulative_allowed(own_graph[node], inputs[0], *result);
      } else if (unit.kind == UnitKind::fold) {
        const ShapeContext context{own_graph, node, layout.plan().shapes.data(), layout.plan().numbers.data(), nullptr};
        allowed = fold_allowed(row_of(own_graph[node]).windows(context), own_graph[node].dtype, inputs[0], *result);
      } else if (unit.kind == UnitKind::along && row_of(own_graph[node]).scatters) {
        const bool fills = row_of(own_graph[node]).shape_only != 0;
        allowed = along_allowed(own_graph[node], inputs[0], inputs[1], fills ? nullptr : &inputs[2], *result);
      } else if (unit.kind == UnitKind::indexed && row_of(own_graph[node]).scatters) {
        allowed = scatter_allowed(inputs[0], inputs[1], *result);
      } else if (!exact) {
        double slack = 0;
        for (const OracleOperand& input : inputs) slack = std::max(slack, input.slack);
        allowed.assign(static_cast<std::size_t>(result->size()), slack);
      }
    }
  }

  void find_fused(const FrameLayout& layout, const Frame& frame, const PlanStep& step,
                  const Growable<OracleOperand>& inputs, bool exact) {
    const UnitsView& units = compiled_.units[graph_of(layout)];
    const int u = step.unit;
    const Unit& unit = units[u];
    const Fused& kernel = compiled_.kernels[unit.kernel];
    State& state = state_of(layout);
    bool sums = false;
    for (int s = 0; s < kernel.store_count; ++s)
      sums = sums || (kernel.stores[s].kind == StoreKind::accumulate && facts_of(kernel.stores[s].reduction).rounds);
    for (int i = 0; i < kernel.instr_count; ++i)
      sums = sums || (kernel.instrs[i].kind == InstrKind::reduce && facts_of(kernel.instrs[i].reduction).rounds);
    for (int o = 0; o < unit.output_count; ++o)
      state.allowed[static_cast<std::size_t>(units.output(u, o).node)].clear();
    if (exact && !sums) return;
    const Shape& space = layout.plan().shapes[static_cast<std::size_t>(unit.space)];
    const auto operand = [&](const UnitOperand& of, const WholeValue* value, const OracleOperand& from) {
      OracleFused::Operand made{value, from.slack, kernels::Strides(space.size(), 0), from.allowed};
      const kernels::Strides strides = kernels::contiguous_strides(value->shape);
      for (std::size_t d = 0; d < space.size(); ++d) {
        const int dim = of.dim_at[d];
        if (dim >= 0 && value->shape[static_cast<std::size_t>(dim)] > 1)
          made.strides[d] = strides[static_cast<std::size_t>(dim)];
      }
      return made;
    };
    Growable<OracleFused::Operand> from, to;
    for (int i = 0; i < unit.input_count; ++i) {
      if (inputs[static_cast<std::size_t>(i)].value == nullptr) return;
      from.push_back(
          operand(units.input(u, i), inputs[static_cast<std::size_t>(i)].value, inputs[static_cast<std::size_t>(i)]));
    }
    for (int o = 0; o < unit.output_count; ++o) {
      const WholeValue* const value = known(layout, units.output(u, o).node);
      if (value == nullptr) return;
      to.push_back(operand(units.output(u, o), value, {}));
    }
    Growable<double> uniforms;
    for (int k = 0; k < unit.uniform_count; ++k)
      uniforms.push_back(frame.numbers[static_cast<std::size_t>(units.members[unit.first_uniform + k])].real());
    Growable<Allowed> allowed = OracleFused(kernel, space, std::move(from), std::move(uniforms)).run(std::move(to));
    for (int o = 0; o < unit.output_count; ++o)
      state.allowed[static_cast<std::size_t>(units.output(u, o).node)] =
          std::move(allowed[static_cast<std::size_t>(o)]);
  }

  void compare(const FrameLayout& layout, const Frame& frame, int v, Allowed allowed, const PlanStep* step) {
    const PlanValue& value = layout.value(v);
    if (value.role == ValueRole::host) return;
    const WholeValue* const whole = known(layout, value.node);
    if (whole == nullptr) {
      ++unknown;
      return;
    }
    ++compared;
    DifferingElements found(*whole);
    if (value.sharding.unreduced != 0)
      compare_sum(layout, frame, v, std::move(allowed), step, found);
    else
      compare_shards(layout, frame, v, allowed, found);
    if (found.all.count == 0) return;
    OracleDifference& all = found.all;
    const Node& node = graph(layout)[value.node];
    all.what =
        concat_text(row_of(node).name, " ", shape_text(value.dtype, value.shape), text(value.sharding, layout.mesh()));
    if (frame.layer >= 0) all.what += concat_text(", layer ", frame.layer);
    all.source = node.source.line != 0 || step == nullptr ? node.source : step->source;
    if (step != nullptr && step->kind == StepKind::reshard) describe(layout, *step, all);
    differences.push_back(std::move(all));
  }

  /// Compares the sum of the parts of a partial value, and keeps the error bound for those who read it.
  void compare_sum(const FrameLayout& layout, const Frame& frame, int v, Allowed allowed, const PlanStep* step,
                   DifferingElements& found) {
    const PlanValue& value = layout.value(v);
    Growable<double> sum, sizes;
    gather_parts(layout, frame, v, sum, sizes);
    State& state = state_of(layout);
    double& slack = state.slack[static_cast<std::size_t>(value.node)];
    if (step == nullptr) {  // a view has the error bound of the viewed value
      const int root = layout.value(value.view_of).node;
      slack = state.slack[static_cast<std::size_t>(root)];
      allowed.assign(sum.size(), slack);
    } else {
      slack = 0;
      allowed.resize(sum.size(), 0);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        allowed[i] += 2 * rounding_of(value.dtype) * sizes[i];
        slack = std::max(slack, allowed[i]);
      }
    }
    double& most = state.most[static_cast<std::size_t>(value.node)];
    most = std::max(most, slack);
    for (std::size_t i = 0; i < sum.size(); ++i) found.compare(static_cast<std::int64_t>(i), sum[i], allowed[i], -1);
  }
  static void compare_shards(const FrameLayout& layout, const Frame& frame, int v, const Allowed& allowed,
                             DifferingElements& found) {
    const PlanValue& value = layout.value(v);
    const ValueLayout& own = layout[v];
    const kernels::Strides strides = kernels::contiguous_strides(value.shape);
    for (int s = 0; s < own.shards(); ++s) {
      const Box& box = own.boxes[static_cast<std::size_t>(s)];
      if (box.empty()) continue;
      const int device = layout.mesh().device_at(own.grid.coordinates(s % own.grid.count()));
      const std::int64_t begin = offset_of(box, strides);
      walk(extents(box), own.strides[static_cast<std::size_t>(s)], strides, strides,
           [&](std::int64_t from, std::int64_t to, std::int64_t) {
             const char* const at = frame.at(own, s) + from * own.element;
             const std::int64_t index = begin + to;
             const char* const want = found.whole.bytes.data() + index * own.element;
             if (std::memcmp(at, want, static_cast<std::size_t>(own.element)) == 0) return;
             found.compare(index, read_number(value.dtype, at),
                           allowed.empty() ? 0 : allowed[static_cast<std::size_t>(index)], device);
           });
    }
  }
  static void describe(const FrameLayout& layout, const PlanStep& step, OracleDifference& found) {
    for (const CollectiveInfo& collective : step.collectives) {
      found.after += concat_text(found.after.empty() ? "" : ", ", name_of(collective.kind), " over ");
      const char* separator = "";
      for (const Name& axis : axis_names(layout.mesh(), collective.axes)) {
        found.after += concat_text(separator, axis.view());
        separator = ",";
      }
    }
    found.after += concat_text(found.after.empty() ? "" : " ", "from ",
                               tessera::text(layout.value(step.inputs[0]).sharding, layout.mesh()));
  }

  void put_in_place(const FrameLayout& layout, Frame& frame, int v) {
    const PlanValue& value = layout.value(v);
    if (value.sharding.unreduced != 0 || value.role == ValueRole::host) return;
    const int g = graph_of(layout);
    WholeValue* const whole = values_.find(g, state_[static_cast<std::size_t>(g)].visit, value.node);
    if (whole != nullptr && whole->known) copy_whole(layout, frame, v, *whole, true);
  }
};

/// The arguments, copied to a mesh of one device.
inline Growable<Leaf> on_one_device(std::span<const Leaf> leaves, const Mesh& one) {
  Growable<Leaf> made;
  for (const Leaf& leaf : leaves) {
    Leaf copy = leaf;
    for (StoragePtr& layer : copy.layers) {
      const TensorStorage& from = *layer;
      StoragePtr whole(
          new TensorStorage(one, from.dtype(), from.shape(), replicated(static_cast<int>(from.shape().size()))));
      const kernels::Strides strides = kernels::contiguous_strides(from.shape());
      const auto element = static_cast<std::int64_t>(size_of(from.dtype()));
      for (int s = 0; s < from.shard_count(); ++s) {
        if (from.box(s).empty()) continue;
        const Shape extent = extents(from.box(s));
        kernels::strided_copy(static_cast<char*>(whole->data(0)) + offset_of(from.box(s), strides) * element, strides,
                              from.data(s), kernels::contiguous_strides(extent), extent,
                              static_cast<std::size_t>(element));
      }
      layer = whole;
    }
    made.push_back(std::move(copy));
  }
  return made;
}

/// The result of run_with_oracle().
struct OracleRun {
  Growable<Leaf> results;
  Growable<OracleDifference> differences;
  std::int64_t compared = 0;
  std::int64_t unknown = 0;  ///< values that could not be compared: the run on one device has none for the node
};

/// Runs a program on one device, then on its mesh, and compares.
inline OracleRun run_with_oracle(Executable& executable, std::span<const Leaf> arguments,
                                 StepObserver* before = nullptr) {
  const CompiledProgram& compiled = executable.compiled();
  if (spans_processes(executable.plan().mesh))
    fail(errc::unsupported, "[oracle] processes: oracle mode reads the values of all devices, and ", process_count(),
         " processes divide these; run the program in one process");
  AxisTable axes = executable.plan().given_mesh.axes();
  for (auto& axis : axes) axis.size = 1;
  const Mesh one(axes);
  Growable<ArgumentInfo> infos;
  for (const Leaf& leaf : arguments) {
    ArgumentInfo info;
    info.number = leaf.number;
    if (!leaf.is_number) {
      info.shape = leaf.layers.front()->shape();
      if (leaf.stacked) info.shape.insert(0, static_cast<std::int64_t>(leaf.layers.size()));
      info.sharding = replicated(static_cast<int>(info.shape.size()));
    }
    infos.push_back(info);
  }
  Executable alone(compiled,
                   make_plan(compiled.program, compiled.units, one, infos.data(), static_cast<int>(infos.size()),
                             {.fuse_steps = false, .sizes = &executable.plan().given_mesh}));
  OracleValues values(alone.plan());
  {
    const tessera::detail::Uncounted uncounted;
    OracleRecorder recorder(compiled, values);
    const Growable<Leaf> copies = on_one_device(arguments, one);
    alone.run(copies, &recorder);
  }
  OracleComparer comparer(compiled, executable.plan(), values, before);
  OracleRun made;
  made.results = executable.run(arguments, &comparer);
  made.differences = std::move(comparer.differences);
  made.compared = comparer.compared;
  made.unknown = comparer.unknown;
  return made;
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
