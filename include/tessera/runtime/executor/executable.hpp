#ifndef TESSERA_RUNTIME_EXECUTOR_EXECUTABLE_HPP
#define TESSERA_RUNTIME_EXECUTOR_EXECUTABLE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/propagation/implicit_reshards.hpp>
#include <tessera/runtime/executor/prepared_graph.hpp>
#include <tessera/runtime/memory/run_memory.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/steps/fused_step.hpp>
#include <tessera/runtime/steps/into_result_step.hpp>
#include <tessera/runtime/steps/reshard_step.hpp>
#include <tessera/runtime/steps/sum_targets.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera {

namespace runtime {
/// Makes the step of a unit; graphs are those of the program.
using StepFactory = std::unique_ptr<PreparedStep> (*)(const StepContext&,
                                                      const std::vector<std::unique_ptr<PreparedGraph>>& graphs);
}  // namespace runtime

/// What the compiler knows of a program: its graphs, its units, its kernels as machine code, and how to make the kinds
/// of step that it has. What a program does not have, no code is generated for.
struct CompiledProgram {
  ProgramView program;
  const UnitsView* units = nullptr;  ///< one for each graph
  const Fused* kernels = nullptr;
  const FusedKernel* code = nullptr;
  const runtime::StepFactory* steps = nullptr;  ///< by UnitKind
  kernels::ReduceFunction reduce = nullptr;     ///< for the element types of the program
};

/// One leaf of a program's arguments or results at run time: a tensor, the tensors of all layers, or a number.
struct Leaf {
  std::vector<StoragePtr> layers;  ///< one of a plain tensor
  HostNumber number{};
  bool is_number = false;
  bool stacked = false;
};

namespace runtime {

/// A program planned and prepared for shapes, shardings and a mesh. It runs any number of times, once at a time.
class Executable {
 public:
  Executable(const CompiledProgram& compiled, Plan plan) : compiled_(compiled), plan_(std::move(plan)) {
    const int count = compiled.program.graph_count;
    for (int g = 0; g < count; ++g)
      graphs_.push_back(std::make_unique<PreparedGraph>(compiled.program.graphs[g],
                                                        plan_.graphs[static_cast<std::size_t>(g)], plan_.mesh));
    for (int g = 0; g < count; ++g) prepare(g);
    frames_.resize(static_cast<std::size_t>(count));
    for (int g = 0; g < count; ++g) host_.push_back(host_scalars(compiled.program.graphs[g]));
    for (int g = 0; g < count; ++g)
      frames_[static_cast<std::size_t>(g)].pointers.resize(
          static_cast<std::size_t>(graphs_[static_cast<std::size_t>(g)]->layout().pointer_count()));
    for (const auto& graph : graphs_) scratch_bytes_ = std::max(scratch_bytes_, graph->scratch_bytes());
    arena_bytes_ = (plan_.main().arena_bytes + block_alignment - 1) / block_alignment * block_alignment;
    find_donors();
    for (int g = 0; g < count; ++g)
      for (int id = 0; id < compiled.program.graphs[g].size; ++id)
        numbers_change_ = numbers_change_ || compiled.program.graphs[g][id].is_scalar();
    bind_arguments();
    make_results();
  }

  const Plan& plan() const { return plan_; }
  const CompiledProgram& compiled() const { return compiled_; }
  /// What it runs in.
  std::int64_t arena_bytes() const { return arena_bytes_ + scratch_bytes_; }
  /// About what the plan and all that was prepared for it take.
  std::int64_t bytes() const {
    std::int64_t sum = static_cast<std::int64_t>(sizeof *this);
    for (const auto& graph : graphs_) sum += graph->bytes();
    return sum;
  }
  /// Layers of result k; 0 where it is no tensor of a Stack.
  std::size_t result_layers(std::size_t k) const {
    const int v = k < plan_.main().outputs.size() ? plan_.main().outputs[k] : -1;
    return v < 0 || !value(v).stacked ? 0 : static_cast<std::size_t>(value(v).shape[0]);
  }
  /// Result k where it is a number that was known when the program was planned, as Dims are.
  HostNumber result_number(std::size_t k) const {
    const int node = compiled_.program.main().outputs[k];
    return plan_.main().outputs[k] < 0 ? plan_.main().numbers[static_cast<std::size_t>(node)] : HostNumber();
  }
  /// Whether the last run began to write a result over an argument that was given up: if it threw, what is there is
  /// neither the argument nor the result.
  bool overwrote() const { return overwrote_; }
  void begin_call() { overwrote_ = false; }

  /// Errors: `policy` when a CommunicationScope allows less, before anything has run.
  std::vector<Leaf> run(std::span<const Leaf> arguments, StepObserver* observer = nullptr) {
    begin_call();
    if (const CommunicationScope* scope = CommunicationScope::innermost()) permit(*scope);
    Frame& frame = frames_[0];
    if (numbers_change_ || !numbers_known_) {
      std::vector<HostNumber> given(arguments.size());
      for (std::size_t i = 0; i < arguments.size(); ++i) given[i] = arguments[i].number;
      set_numbers(given.data());
    }
    for (const BoundArgument& bound : bound_arguments_)
      point(frame, bound, *arguments[bound.argument].layers[bound.layer]);
    std::vector<Leaf> results(plan_.main().outputs.size());
    bool overwrites = false;
    for (std::size_t k = 0; k < results.size(); ++k)
      overwrites = bind_result(results[k], static_cast<int>(k), arguments, frame) || overwrites;
    const RunMemory memory(arena_bytes());
    frame.observer = observer;
    overwrote_ = overwrites;
    run_steps(frame, memory);
    for (std::size_t k = 0; k < results.size(); ++k) finish_result(results[k], static_cast<int>(k), frame);
    return results;
  }

  /// Whether no argument has layers, and the one result is a tensor that a step makes.
  bool is_plain() const { return plain_; }
  /// As run(), for such a program: nothing is allocated but the result. `tensors` and `numbers` are by argument.
  StoragePtr run_plain(TensorStorage* const* tensors, const HostNumber* numbers) {
    if (const CommunicationScope* scope = CommunicationScope::innermost()) permit(*scope);
    Frame& frame = frames_[0];
    if (numbers_change_ || !numbers_known_) set_numbers(numbers);
    for (const BoundArgument& bound : bound_arguments_) point(frame, bound, *tensors[bound.argument]);
    StoragePtr result(new TensorStorage(results_[0]));
    const ValueLayout& own = graphs_[0]->layout()[plan_.main().outputs[0]];
    point(frame, {0, 0, own.first, own.grid.count()}, *result);
    const RunMemory memory(arena_bytes());
    frame.observer = nullptr;
    run_steps(frame, memory);
    return result;
  }

 private:
  CompiledProgram compiled_;
  Plan plan_;
  std::vector<std::unique_ptr<PreparedGraph>> graphs_;
  std::vector<Frame> frames_;
  Growable<Growable<std::uint8_t>> host_;  // which nodes of each graph are host scalars
  std::vector<int> donors_;                // by result: the argument whose memory it may take over, or -1
  /// An argument's tensor of one layer, and its shards in the frame.
  struct BoundArgument {
    std::size_t argument, layer;
    int first, shards;
  };
  std::vector<BoundArgument> bound_arguments_;
  std::vector<TensorLayoutPtr> results_;  // by result; null where no tensor is made
  bool numbers_change_ = false;           // from call to call
  bool numbers_known_ = false;
  bool has_views_ = false;
  bool plain_ = false;
  bool overwrote_ = false;
  std::int64_t arena_bytes_ = 0, scratch_bytes_ = 0;

  static void point(Frame& frame, const BoundArgument& at, TensorStorage& storage) {
    for (int s = 0; s < at.shards; ++s)
      frame.pointers[static_cast<std::size_t>(at.first + s)] = static_cast<char*>(storage.data(s));
  }
  void run_steps(Frame& frame, const RunMemory& memory) {
    if (frame.arena != memory.data()) {
      frame.arena = memory.data();
      frame.scratch = frame.arena + arena_bytes_;
      frame.frames = frames_.data();
      graphs_[0]->layout().place_intermediates(frame);
    }
    if (has_views_) graphs_[0]->layout().place_views(frame);
    graphs_[0]->run_steps(frame);
  }
  void bind_arguments() {
    const GraphPlan& plan = plan_.main();
    for (std::size_t i = 0; i < plan.arguments.size(); ++i) {
      if (plan.arguments[i] < 0) continue;
      const ValueLayout& own = graphs_[0]->layout()[plan.arguments[i]];
      for (int l = 0; l < own.layers; ++l)
        bound_arguments_.push_back(
            {i, static_cast<std::size_t>(l), own.first + l * own.grid.count(), own.grid.count()});
    }
    for (const PlanValue& value : plan.values) has_views_ = has_views_ || value.role == ValueRole::view;
  }
  void make_results() {
    const GraphPlan& plan = plan_.main();
    results_.resize(plan.outputs.size());
    for (std::size_t k = 0; k < results_.size(); ++k) {
      const int v = plan.outputs[k];
      if (v < 0 || value(v).role == ValueRole::argument) continue;
      Shape shape = value(v).shape;
      Sharding sharding = value(v).sharding;
      if (value(v).stacked) {
        shape.erase(0);
        for (int d = 0; d + 1 < max_rank; ++d) {
          sharding.dims[d] = sharding.dims[d + 1];
          sharding.priority[d] = sharding.priority[d + 1];
        }
        --sharding.rank;
      } else if (const Node& node = compiled_.program.main()[compiled_.program.main().outputs[k]];
                 row_of(node).constrains && Constraint::of(node).about < 0) {
        const Sharding written = resolve(compiled_.program.specs[node.index()], plan_.given_mesh, node.rank);
        if (canonical(written, plan_.given_mesh) == given_sharding(sharding, plan_.given_mesh, plan_.cuts)) {
          results_[k] = TensorLayout::of(plan_.given_mesh, value(v).dtype, shape, written);
          continue;
        }
      }
      results_[k] = TensorLayout::of(plan_.given_mesh, value(v).dtype, shape,
                                     given_sharding(sharding, plan_.given_mesh, plan_.cuts));
    }
    const int made = plan.outputs.size() == 1 ? plan.outputs[0] : -1;
    plain_ = compiled_.program.graph_count == 1 && made >= 0 && value(made).role == ValueRole::output &&
             !value(made).stacked;
    for (const std::int32_t v : plan.arguments) plain_ = plain_ && (v < 0 || !value(v).stacked);
  }

  void permit(const CommunicationScope& scope) const {
    scope.permit([&](auto&& f) { plan_.for_each_collective(f); },
                 [&](const CollectiveInfo&) { forbid_implicit_reshards(plan_, compiled_.program); });
  }

  void prepare(int g) {
    PreparedGraph& made = *graphs_[static_cast<std::size_t>(g)];
    const GraphView& graph = compiled_.program.graphs[g];
    const UnitsView& units = compiled_.units[g];
    const FrameLayout& layout = made.layout();
    const Growable<PlanStep>& steps = layout.plan().steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const PlanStep& step = steps[s];
      RanSteps ran{static_cast<int>(s)};
      if (step.kind == StepKind::reshard) {
        made.add(std::make_unique<ReshardStep>(layout, step, compiled_.reduce), ran);
        continue;
      }
      const Unit& unit = units[step.unit];
      const StepContext context{layout, graph, units, step};
      if (unit.kind == UnitKind::fused) {
        made.add(fused_step(context), ran);
        continue;
      }
      std::unique_ptr<PreparedStep> prepared = compiled_.steps[static_cast<std::size_t>(unit.kind)](context, graphs_);
      if (unit.kind == UnitKind::contraction && s + 1 < steps.size() &&
          may_follow_on_boxes(g, layout, units, step, steps[s + 1])) {
        if (int bias = -1;
            rounds(units, graph, step, steps[s + 1], bias) && prepared->attach_rounding(layout, steps[s + 1], bias)) {
          made.add(std::move(prepared), ran);
          ++s;
          made.add(std::make_unique<TakenRounding>(fused_step({layout, graph, units, steps[s]})),
                   {static_cast<int>(s)});
          continue;
        }
        std::unique_ptr<FusedStep> next = fused_step({layout, graph, units, steps[s + 1]});
        if (next->works_on_boxes()) {
          std::unique_ptr<Epilogue> epilogue = std::move(next);
          if (prepared->attach(epilogue)) {
            ran.count = 2;
            ++s;
          }
        }
      } else if (g == 0 && unit.kind == UnitKind::contraction && s + 1 < steps.size() &&
                 may_follow_on_boxes(g, layout, units, step, steps[s + 1], true) &&
                 IntoResultStep::possible(layout, step.outputs[0], steps[s + 1])) {
        const StepContext after{layout, graph, units, steps[s + 1]};
        std::unique_ptr<FusedStep> next = fused_step(after);
        if (next->works_on_boxes()) {
          std::unique_ptr<Epilogue> epilogue = std::move(next);
          if (prepared->attach(epilogue)) {
            prepared = std::make_unique<IntoResultStep>(std::move(prepared), fused_step(after), layout, step.outputs[0],
                                                        steps[++s]);
            ran.count = 2;
          }
        }
      } else if (s + 1 < steps.size() && may_sum_in_place(layout, step, steps[s + 1]) &&
                 prepared->attach_sum(layout, steps[s + 1])) {
        ran.stored = false;
        made.add(std::move(prepared), ran);
        prepared = std::make_unique<TakenReshardStep>(layout, steps[++s]);
        ran = {static_cast<int>(s)};
      }
      made.add(std::move(prepared), ran);
    }
  }

  std::unique_ptr<FusedStep> fused_step(const StepContext& context) const {
    const int kernel = context.units[context.step.unit].kernel;
    return std::make_unique<FusedStep>(context, compiled_.kernels[kernel], compiled_.code[kernel], compiled_.reduce);
  }

  /// Whether a step does nothing but round a product to bf16, after adding a row where there is a `bias`.
  static bool rounds(const UnitsView& units, const GraphView& graph, const PlanStep& product, const PlanStep& step,
                     int& bias) {
    const Unit& unit = units[step.unit];
    const Node& root = graph[unit.root];
    const bool adds =
        unit.member_count == 2 && unit.input_count == 2 && row_of(graph[units.members[unit.first_member]]).adds;
    if (!row_of(root).converts || root.dtype != DType::bf16 || unit.output_count != 1) return false;
    if (!adds) return unit.member_count == 1;
    const int i = step.inputs[0] == product.outputs[0] ? 1 : 0;
    const UnitOperand& row = units.input(step.unit, i);
    bias = step.inputs[static_cast<std::size_t>(i)];
    return graph[row.node].rank == 1 && row.dim_at[unit.rank - 1] == 0;
  }

  /// Whether a fused step can run on each box of a product as soon as the box is there: it works over the product's
  /// shape and places, and writes nothing that the product still reads. `into_result`: it may write a result, since
  /// that is known to be no argument's memory when it runs.
  bool may_follow_on_boxes(int g, const FrameLayout& layout, const UnitsView& units, const PlanStep& product,
                           const PlanStep& next, bool into_result = false) const {
    if (next.kind != StepKind::compute || units[next.unit].kind != UnitKind::fused) return false;
    const Unit& unit = units[next.unit];
    const int made = product.outputs[0];
    bool reads = false;
    for (int i = 0; i < unit.input_count; ++i) {
      if (next.inputs[static_cast<std::size_t>(i)] != made) continue;
      reads = true;
      for (int d = 0; d < unit.rank; ++d)
        if (units.input(next.unit, i).dim_at[d] != d) return false;
    }
    const PlanValue& result = layout.value(made);
    if (!reads || result.stacked || static_cast<int>(result.shape.size()) != unit.rank) return false;
    if (WorkGrid(layout, product).axes() != WorkGrid(layout, next).axes()) return false;
    for (int d = 0; d < unit.rank; ++d)
      if (!(next.factors[static_cast<std::size_t>(d)] == result.sharding.dims[d])) return false;
    for (std::int32_t out : next.outputs)
      for (std::int32_t in : product.inputs)
        if (g == 0 && layout.value(out).role == ValueRole::output && !into_result)
          return false;  // may be written over an argument
        else if (overlap(layout, out, in))
          return false;
    return true;
  }
  /// Whether a step may write what the reshard that follows makes of its result: nothing else reads the result, and
  /// what is written then is not read by the step.
  static bool may_sum_in_place(const FrameLayout& layout, const PlanStep& step, const PlanStep& next) {
    if (next.kind != StepKind::reshard || step.outputs.size() != 1 || next.inputs[0] != step.outputs[0]) return false;
    const int made = step.outputs[0], sum = next.outputs[0];
    const GraphPlan& plan = layout.plan();
    if (layout.value(made).role != ValueRole::intermediate || layout.value(made).stacked || layout.value(sum).stacked)
      return false;
    for (const PlanValue& other : plan.values)
      if (other.role == ValueRole::view && other.view_of == made) return false;
    for (const PlanStep& other : plan.steps)
      for (std::int32_t v : other.inputs)
        if (v == made && &other != &next) return false;
    for (std::int32_t in : step.inputs)
      if (in >= 0 && overlap(layout, sum, in)) return false;
    return true;
  }
  static bool overlap(const FrameLayout& layout, int a, int b) {
    while (layout.value(a).role == ValueRole::view) a = layout.value(a).view_of;
    while (layout.value(b).role == ValueRole::view) b = layout.value(b).view_of;
    const PlanValue &x = layout.value(a), &y = layout.value(b);
    if (x.role != ValueRole::intermediate || y.role != ValueRole::intermediate) return a == b;
    return x.offset < y.offset + y.stored_bytes && y.offset < x.offset + x.stored_bytes;
  }

  /// A result may be written over an argument that the caller gave up, when the step that makes it is the last to read
  /// the argument, and reads and writes each element at the same place.
  void find_donors() {
    const GraphPlan& plan = plan_.main();
    donors_.assign(plan.outputs.size(), -1);
    std::vector<std::uint8_t> taken(plan.values.size(), 0);
    for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
      const int v = plan.outputs[k];
      if (v < 0 || value(v).role != ValueRole::output) continue;
      for (std::size_t s = 0; s < plan.steps.size(); ++s) {
        const PlanStep& step = plan.steps[s];
        if (step.kind != StepKind::compute) continue;
        for (std::size_t o = 0; o < step.outputs.size(); ++o)
          if (step.outputs[o] == v) donors_[k] = donor(static_cast<int>(s), static_cast<int>(o), taken);
      }
    }
  }
  int donor(int s, int output, std::vector<std::uint8_t>& taken) const {
    const GraphPlan& plan = plan_.main();
    const UnitsView& units = compiled_.units[0];
    const PlanStep& step = plan.steps[static_cast<std::size_t>(s)];
    const Unit& unit = units[step.unit];
    if (unit.kind != UnitKind::fused || unit.phases > 1 || units.output(step.unit, output).accumulates) return -1;
    const PlanValue& to = value(step.outputs[static_cast<std::size_t>(output)]);
    for (int i = 0; i < unit.input_count; ++i) {
      const int v = step.inputs[static_cast<std::size_t>(i)];
      const PlanValue& from = value(v);
      if (from.role != ValueRole::argument || taken[static_cast<std::size_t>(v)] || from.dtype != to.dtype ||
          !(from.shape == to.shape) || !(from.sharding.without_priority() == to.sharding.without_priority()) ||
          from.stacked != to.stacked || read_elsewhere(v, s, i))
        continue;
      bool aligned = true;
      for (int d = 0; d < unit.rank; ++d)
        aligned = aligned && units.input(step.unit, i).dim_at[d] == units.output(step.unit, output).dim_at[d];
      if (!aligned) continue;
      taken[static_cast<std::size_t>(v)] = 1;
      return compiled_.program.main()[from.node].index();
    }
    return -1;
  }
  bool read_elsewhere(int v, int s, int input) const {
    const GraphPlan& plan = plan_.main();
    for (const PlanValue& other : plan.values)
      if (other.role == ValueRole::view && other.view_of == v) return true;
    for (std::int32_t out : plan.outputs)
      if (out == v) return true;
    for (std::size_t t = 0; t < plan.steps.size(); ++t)
      for (std::size_t i = 0; i < plan.steps[t].inputs.size(); ++i)
        if (plan.steps[t].inputs[i] == v &&
            (static_cast<int>(t) > s || (static_cast<int>(t) == s && static_cast<int>(i) != input)))
          return true;
    return false;
  }

  void set_numbers(const HostNumber* given) {
    for (std::size_t g = 0; g < frames_.size(); ++g) {
      if (!numbers_known_) frames_[g].numbers = plan_.graphs[g].numbers;
      evaluate_numbers(compiled_.program.graphs[g], host_[g], plan_.graphs[g].shapes, given, frames_[g].numbers);
    }
    numbers_known_ = true;
  }

  const PlanValue& value(int v) const { return plan_.main().values[static_cast<std::size_t>(v)]; }

  /// Whether a step will write it over an argument.
  bool bind_result(Leaf& result, int k, std::span<const Leaf> arguments, Frame& frame) {
    const GraphView& graph = compiled_.program.main();
    const int v = plan_.main().outputs[static_cast<std::size_t>(k)];
    if (v < 0) {
      const int node = graph.outputs[k];
      result.is_number = graph[node].is_dim() || graph[node].is_scalar();
      result.number = frame.numbers[static_cast<std::size_t>(node)];
      if (result.is_number) return false;
      StoragePtr made(new TensorStorage(plan_.mesh, graph[node].dtype, {}, replicated(0)));
      write_number(graph[node].dtype, made->data(0), result.number);
      result.layers.push_back(std::move(made));
      return false;
    }
    const PlanValue& own = value(v);
    result.stacked = own.stacked;
    if (own.role == ValueRole::argument) {
      result.layers = arguments[static_cast<std::size_t>(graph[own.node].index())].layers;
      return false;
    }
    const ValueLayout& layout = graphs_[0]->layout()[v];
    const int donor = donors_[static_cast<std::size_t>(k)];
    bool overwrites = false;
    result.layers.reserve(static_cast<std::size_t>(layout.layers));
    for (int l = 0; l < layout.layers; ++l) {
      const StoragePtr* given =
          donor < 0 ? nullptr : &arguments[static_cast<std::size_t>(donor)].layers[static_cast<std::size_t>(l)];
      const bool over = given != nullptr && (*given)->unique();
      result.layers.push_back(over ? *given : StoragePtr(new TensorStorage(results_[static_cast<std::size_t>(k)])));
      overwrites = overwrites || over;
      if (own.role != ValueRole::output) continue;
      for (int s = 0; s < layout.grid.count(); ++s)
        frame.pointers[static_cast<std::size_t>(layout.first + l * layout.grid.count() + s)] =
            static_cast<char*>(result.layers.back()->data(s));
    }
    return overwrites;
  }

  /// Copies what no step wrote straight into its result: views, and values that are results twice.
  void finish_result(Leaf& result, int k, const Frame& frame) const {
    const int v = plan_.main().outputs[static_cast<std::size_t>(k)];
    if (v < 0 || value(v).role == ValueRole::argument) return;
    const ValueLayout& layout = graphs_[0]->layout()[v];
    for (int l = 0; l < layout.layers; ++l)
      for (int s = 0; s < layout.grid.count(); ++s) {
        const int shard = l * layout.grid.count() + s;
        void* to = result.layers[static_cast<std::size_t>(l)]->data(s);
        if (to == frame.at(layout, shard)) continue;
        const Shape extent = extents(layout.boxes[static_cast<std::size_t>(shard)]);
        kernels::strided_copy(to, kernels::contiguous_strides(extent), frame.at(layout, shard),
                              layout.strides[static_cast<std::size_t>(shard)], extent,
                              static_cast<std::size_t>(layout.element));
      }
  }
};

}  // namespace runtime
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
