#ifndef TESSERA_RUNTIME_EXECUTOR_EXECUTABLE_HPP
#define TESSERA_RUNTIME_EXECUTOR_EXECUTABLE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/intrusive_ptr.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/propagation/implicit_reshards.hpp>
#include <tessera/runtime/executor/agree_on_plan.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#include <tessera/runtime/executor/prepared_graph.hpp>
#include <tessera/runtime/memory/run_memory.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/steps/fused/fused_step.hpp>
#include <tessera/runtime/steps/reshard_step.hpp>
#include <tessera/runtime/threads/parallel_copy.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/communicator.hpp>

namespace tessera {

namespace runtime {

/// A program that is planned and prepared for given shapes, shardings and mesh. It can run repeatedly, but only one
/// call at a time: calls share its frames.
class Executable {
 public:
  TESSERA_PLANNING Executable(const CompiledProgram& compiled, Plan plan)
      : compiled_(compiled), plan_(std::move(plan)) {
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
    for (int g = 0; g < count; ++g)
      for (int id = 0; id < compiled.program.graphs[g].size; ++id)
        numbers_change_ = numbers_change_ || compiled.program.graphs[g][id].is_scalar();
    if (spans_processes(plan_.mesh)) plan_.for_each_collective([&](auto&&...) { sends_ = true; });
    bind_arguments();
    make_results();
  }

  const Plan& plan() const { return plan_; }
  const CompiledProgram& compiled() const { return compiled_; }
  /// Bytes of intermediates and scratch memory during a run.
  std::int64_t arena_bytes() const { return arena_bytes_ + scratch_bytes_; }
  /// Approximate bytes of the plan and of the prepared steps.
  std::int64_t bytes() const {
    std::int64_t sum = static_cast<std::int64_t>(sizeof *this);
    for (const auto& graph : graphs_) sum += graph->bytes();
    return sum;
  }
  /// Calls f(layout, RanSteps, bytes moved between devices) for each prepared step of each graph.
  template <class F> void for_each_step(const F& f) const {
    for (const auto& graph : graphs_) graph->for_each_step(f);
  }
  /// Layers of result k if it is a parameter of a Stack; otherwise 0.
  std::size_t result_layers(std::size_t k) const {
    const int v = k < plan_.main().outputs.size() ? plan_.main().outputs[k] : -1;
    return v < 0 || !value(v).stacked ? 0 : static_cast<std::size_t>(value(v).shape[0]);
  }
  /// The value of result k if it is a host scalar that planning determines, such as a Dim.
  HostNumber result_number(std::size_t k) const {
    const int node = compiled_.program.main().outputs[k];
    return plan_.main().outputs[k] < 0 ? plan_.main().numbers[static_cast<std::size_t>(node)] : HostNumber();
  }
  /// Whether the last run wrote a result into a donated argument's memory. If that run threw, the memory may hold
  /// a mixture of the argument and the result.
  bool overwrote() const { return overwrote_; }
  void begin_call() { overwrote_ = false; }
  /// What a profiler shows for each step; null until a profiler first times a run.
  IntrusivePtr<RefCounted>& profiled_steps() { return profiled_steps_; }

  /// Errors, before any step runs: `policy` when the program would exceed the limit of a CommunicationScope,
  /// `processes` in the first run when other processes run another program.
  Growable<Leaf> run(std::span<const Leaf> arguments, StepObserver* observer = nullptr) {
    begin_call();
    if (const CommunicationScope* scope = CommunicationScope::innermost()) permit(*scope);
    if (!agreed_) agree();
    Frame& frame = frames_[0];
    if (numbers_change_ || !numbers_known_) {
      Growable<HostNumber> given(arguments.size());
      for (std::size_t i = 0; i < arguments.size(); ++i) given[i] = arguments[i].number;
      set_numbers(given.data());
    }
    for (const BoundArgument& bound : bound_arguments_)
      point(frame, bound, *arguments[bound.argument].layers[bound.layer]);
    Growable<Leaf> results(plan_.main().outputs.size());
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

  /// Whether run_plain() applies: no argument is stacked over layers, and the single result is a tensor that a step
  /// computes (not an argument, a view or a host scalar).
  bool is_plain() const { return plain_; }
  /// run() for a program with is_plain(), which allocates only the result. `tensors` and `numbers` are by argument.
  StoragePtr run_plain(TensorStorage* const* tensors, const HostNumber* numbers, StepObserver* observer = nullptr) {
    if (const CommunicationScope* scope = CommunicationScope::innermost()) permit(*scope);
    if (!agreed_) agree();
    Frame& frame = frames_[0];
    if (numbers_change_ || !numbers_known_) set_numbers(numbers);
    for (const BoundArgument& bound : bound_arguments_) point(frame, bound, *tensors[bound.argument]);
    StoragePtr result(new TensorStorage(results_[0]));
    const ValueLayout& own = graphs_[0]->layout()[plan_.main().outputs[0]];
    point(frame, {0, 0, own.first, own.grid.count()}, *result);
    const RunMemory memory(arena_bytes());
    frame.observer = observer;
    run_steps(frame, memory);
    return result;
  }

 private:
  CompiledProgram compiled_;
  Plan plan_;
  Growable<std::unique_ptr<PreparedGraph>> graphs_;
  Growable<Frame> frames_;
  Growable<Growable<std::uint8_t>> host_;  // by graph and node: whether the node is a host scalar
  /// The tensor of one layer of an argument, and the range of its shards in Frame::pointers.
  struct BoundArgument {
    std::size_t argument, layer;
    int first, shards;
  };
  Growable<BoundArgument> bound_arguments_;
  Growable<TensorLayoutPtr> results_;  // by result; null if it is an argument or a host scalar
  bool numbers_change_ = false;        // host scalars depend on arguments, so every call evaluates them
  bool numbers_known_ = false;
  bool has_views_ = false;
  bool plain_ = false;
  bool overwrote_ = false;
  bool agreed_ = false;  // all processes have this plan
  bool sends_ = false;   // messages to other processes
  std::uint64_t plan_hash_ = 0;
  IntrusivePtr<RefCounted> profiled_steps_;
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
    Communicator* const communicator = spans_processes(plan_.mesh) ? detail::own_communicator : nullptr;
    if (sends_ && communicator != nullptr) communicator->runs = hash_mix(communicator->runs, plan_hash_);
    try {
      graphs_[0]->run_steps(frame);
    } catch (const std::exception& e) {
      if (communicator != nullptr) {
        if (sends_) communicator->report(e.what());
        communicator->runs = hash_mix(communicator->runs, std::uint64_t{0});
      }
      throw;
    }
  }
  TESSERA_PLANNING void bind_arguments() {
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
  TESSERA_PLANNING void make_results() {
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

  /// In the first run, not in the constructor: one process alone may plan a program to explain it.
  void agree() {
    plan_hash_ = agree_on_plan(plan_, compiled_);
    agreed_ = true;
  }

  void permit(const CommunicationScope& scope) const {
    scope.permit([&](auto&& f) { plan_.for_each_collective(f); },
                 [&](const CollectiveInfo&) { forbid_implicit_reshards(plan_, compiled_.program); });
  }

  /// Prepares the steps of graph `g` in the order of its plan; two steps that the plan fuses become one.
  TESSERA_PLANNING void prepare(int g) {
    PreparedGraph& made = *graphs_[static_cast<std::size_t>(g)];
    const FrameLayout& layout = made.layout();
    const Growable<PlanStep>& steps = layout.plan().steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      StepContext context{layout, compiled_.program.graphs[g], compiled_.units[g], steps[s]};
      context.in_body = g > 0;
      RanSteps ran{static_cast<int>(s)};
      std::unique_ptr<FusedStep> epilogue;
      if (steps[s].fusion != Fusion::apart) {
        context.next = &steps[++s];
        ran.count = 2;
        if (context.next->kind == StepKind::compute) {
          epilogue = fused_step({layout, context.graph, context.units, *context.next});
          context.epilogue = epilogue.get();
        }
      }
      made.add(step_of(context), ran, std::move(epilogue));
    }
  }
  std::unique_ptr<PreparedStep> step_of(const StepContext& context) const {
    if (context.step.kind == StepKind::reshard)
      return std::unique_ptr<PreparedStep>(new ReshardStep(context.layout, context.step, compiled_.steps->reduce));
    const UnitKind kind = context.units[context.step.unit].kind;
    if (kind == UnitKind::fused) return fused_step(context);
    return compiled_.steps->factories[static_cast<std::size_t>(kind)](context, graphs_);
  }
  std::unique_ptr<FusedStep> fused_step(const StepContext& context) const {
    const int kernel = context.units[context.step.unit].kernel;
    return std::make_unique<FusedStep>(context, compiled_.kernels[kernel], compiled_.code[kernel],
                                       compiled_.steps->reduce);
  }

  void set_numbers(const HostNumber* given) {
    for (std::size_t g = 0; g < frames_.size(); ++g) {
      if (!numbers_known_) frames_[g].numbers = plan_.graphs[g].numbers;
      evaluate_numbers(compiled_.program.graphs[g], host_[g], plan_.graphs[g].shapes, given, frames_[g].numbers);
    }
    numbers_known_ = true;
  }

  const PlanValue& value(int v) const { return plan_.main().values[static_cast<std::size_t>(v)]; }

  /// Sets the memory of result k. Returns whether it is the memory of a donated argument.
  bool bind_result(Leaf& result, int k, std::span<const Leaf> arguments, Frame& frame) {
    const GraphView& graph = compiled_.program.main();
    const int v = plan_.main().outputs[static_cast<std::size_t>(k)];
    if (v < 0) {
      const int node = graph.outputs[k];
      result.is_number = graph[node].is_dim() || graph[node].is_scalar();
      result.number = frame.numbers[static_cast<std::size_t>(node)];
      if (result.is_number) return false;
      StoragePtr made(new TensorStorage(plan_.mesh, graph[node].dtype, {}, replicated(0)));
      if (made->holds(0)) write_number(graph[node].dtype, made->data(0), result.number);
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
    const int donor = plan_.main().donated[static_cast<std::size_t>(k)];
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

  /// Copies result k if no step wrote it into its own memory: a view, or a value that is also an earlier result.
  void finish_result(Leaf& result, int k, const Frame& frame) const {
    const int v = plan_.main().outputs[static_cast<std::size_t>(k)];
    if (v < 0 || value(v).role == ValueRole::argument) return;
    const ValueLayout& layout = graphs_[0]->layout()[v];
    for (int l = 0; l < layout.layers; ++l)
      for (int s = 0; s < layout.grid.count(); ++s) {
        const int shard = l * layout.grid.count() + s;
        if (!layout.is_here(s)) continue;
        void* to = result.layers[static_cast<std::size_t>(l)]->data(s);
        if (to == frame.at(layout, shard)) continue;
        const Shape extent = extents(layout.boxes[static_cast<std::size_t>(shard)]);
        parallel_copy(value(v).dtype, to, kernels::contiguous_strides(extent), frame.at(layout, shard),
                      layout.strides[static_cast<std::size_t>(shard)], extent);
      }
  }
};

}  // namespace runtime
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
