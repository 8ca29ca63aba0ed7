#ifndef TESSERA_PARTITION_PLAN_PLAN_HPP
#define TESSERA_PARTITION_PLAN_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/collective.hpp>
#include <tessera/partition/reshard/partial_parts.hpp>

namespace tessera {

/// One collective of a plan, from the view of one device.
struct CollectiveInfo {
  Collective kind = Collective::all_reduce;
  std::uint16_t axes = 0;  ///< the mesh axes it runs over, one bit each
  DType dtype = DType::f32;
  std::int64_t payload_bytes = 0;  ///< V: bytes on one device of the value that is reduced, or of the gathered result
  /// bytes that a device sends by ring algorithms over n devices: 2(n-1)/n V, (n-1)/n V, (n-1)/n^2 V
  std::int64_t wire_bytes = 0;
  Source source{};        ///< the user's line that makes the communicated value
  std::string_view why;   ///< the reason, such as "partial sum" or "needed by the reader"
  bool requested = true;  ///< caused by a spec, a request or a partial value; otherwise it is implicit
};

/// Where the elements of a plan's value are stored.
enum class ValueRole : std::uint8_t {
  argument,      ///< in memory of the caller; in a body, in memory that is bound anew for each layer
  intermediate,  ///< in a block of the arena
  output,        ///< in a result, written there by a step; in a body, in memory that is bound anew for each layer
  view,          ///< in another value: its elements with other strides
  fused,         ///< nowhere: a step passes it to the step fused with it, see PlanStep::fusion
  assembled,     ///< in several other values: fused kernels read its elements there, see Fragment
  host,          ///< on the host: a host scalar that a repeat takes as a tensor
};

/// A box of an assembled value: a slice, pad or concat that no step computes. Example: the roll of x [8] by 1 has the
/// fragments [0, 1) from x[7] on, and [1, 8) from x[0] on. Where an axis splits the dim, a device receives elements
/// that are in other shards: see FragmentHalos.
struct Fragment {
  std::int32_t value = -1;  ///< the value that has its elements; -1: they are zeros
  Box box;                  ///< global indices in the assembled value
  Shape from;               ///< global index in `value` of the box's first element
};

/// A value of a plan: a node of the graph in one sharding. The same node resharded is another value.
struct PlanValue {
  std::int32_t node = -1;
  DType dtype = DType::f32;
  ValueRole role = ValueRole::intermediate;
  bool stacked = false;  ///< dim 0 counts layers, each with memory of its own
  std::int32_t view_of = -1;
  std::int32_t first_fragment = 0, fragment_count = 0;  ///< of an assembled value, in GraphPlan::fragments
  Shape shape;                                          ///< global
  Sharding sharding;
  PartList parts;                       ///< of a partial value: which of its parts exist
  std::int64_t device_bytes = 0;        ///< on the device that holds most
  std::int64_t stored_bytes = 0;        ///< of all distinct shards, each aligned to 64
  int first_step = -1, last_step = -1;  ///< the first and last step that needs its memory, through views too
  std::int64_t offset = 0;              ///< in the arena, where it is stored there
  /// For a fused value that is summed in the memory of a result: whether the result may be written over a donated
  /// argument that the next step also reads. A call that donates it makes the value in a block of the arena instead.
  bool spare = false;
  /// For windows that a step makes: whether the memory of a shard stores each row once that its windows cover.
  bool rows_once = false;

  constexpr bool in_arena() const { return role == ValueRole::intermediate || spare; }
};

/// Memory of a repeat step for a result of its body. A carried result needs it because a layer reads what the layer
/// before it wrote: the last layer writes into the result of the step, the one before it into `odd` memory, and so on
/// in turns. A result that no step reads has no other memory.
struct LoopBuffer {
  std::int32_t result = 0;  ///< index in the results of the body
  bool odd = false;         ///< of layers after which an odd number of layers runs
  std::int64_t device_bytes = 0, stored_bytes = 0;
  std::int64_t offset = 0;  ///< in the arena
};

enum class StepKind : std::uint8_t { compute, reshard, repeat };

/// How a step runs together with the next step. The executor does what is said here, and decides nothing itself.
enum class Fusion : std::uint8_t {
  apart,        ///< separately: it ends before the next step begins
  epilogue,     ///< the next step runs on each box of a product (a tile of the result) as soon as the box is computed
  into_result,  ///< as `epilogue`, and each box is summed in the memory of the next step's result
  rounding,  ///< the next step, a cast of the product (plus a row) to bf16 or f16, is done while the product is stored
  sum,       ///< the next step, a reduction of partial values, is done by adding each part to the sum as it is computed
};

struct PlanStep {
  StepKind kind = StepKind::compute;
  std::int32_t unit = -1;                  ///< of a compute or repeat step
  Growable<std::int32_t> inputs, outputs;  ///< values, in the order of the unit's inputs and outputs
  Growable<AxisList> factors;              ///< of a compute step: mesh axes of each factor of the unit's rule
  /// Of a sum of rank-0 tensors: the axes over which the sum is partial. An input that is replicated over such an axis
  /// is added only on the devices with coordinate 0.
  std::uint16_t added_over = 0;
  Growable<CollectiveInfo> collectives;  ///< of a reshard step; of a compute step, those within it
  Fusion fusion = Fusion::apart;         ///< with the next step
  std::int32_t body = -1;                ///< of a repeat step: the index of its graph
  std::int64_t layers = 1;
  Growable<LoopBuffer> buffers;  ///< of a repeat step
  std::int64_t flops = 0;        ///< of all devices together; INT64_MAX if more
  std::int64_t bytes = 0;        ///< read and written, of all distinct shards
  Source source{};
};

/// The plan of one graph.
struct GraphPlan {
  Growable<PlanValue> values;
  Growable<Fragment> fragments;
  Growable<PlanStep> steps;
  Growable<std::int32_t> arguments;  ///< by argument: its value; -1 when no step reads it
  Growable<std::int32_t> outputs;    ///< by output: its value; -1 when it is a host scalar
  /// By output: the argument over which it may be written in a call that donates this argument (donate_argnums of JAX,
  /// input_output_alias of XLA); -1: none.
  Growable<std::int32_t> donated;
  Growable<HostNumber> numbers;  ///< by node: the host scalars that are known when planning
  Growable<Shape> shapes;        ///< by node
  std::int64_t arena_bytes = 0;  ///< scratch memory of this graph, including that of its largest body
  std::int64_t body_offset = 0;  ///< where the scratch memory of bodies begins in it

  /// Calls f with each value that has elements of a view or of an assembled value; not with those that these are views
  /// of.
  template <class F> constexpr void each_source(int v, F&& f) const {
    const PlanValue& value = values[static_cast<std::size_t>(v)];
    if (value.role == ValueRole::view) f(value.view_of);
    for (int i = 0; i < value.fragment_count; ++i)
      if (const Fragment& own = fragments[static_cast<std::size_t>(value.first_fragment + i)]; own.value >= 0)
        f(own.value);
  }
};

/// The mesh axes along which the devices of a step compute different shards: those of its values and factors.
constexpr std::uint16_t work_axes(const GraphPlan& plan, const PlanStep& step) {
  unsigned axes = 0;
  for (const Growable<std::int32_t>* list : {&step.inputs, &step.outputs})
    for (const std::int32_t v : *list)
      if (v >= 0) axes |= plan.values[static_cast<std::size_t>(v)].sharding.used_axes();
  for (const AxisList& factor : step.factors)
    for (const std::uint8_t axis : factor) axes |= 1u << axis;
  return static_cast<std::uint16_t>(axes);
}

/// Whether two values have the same element type, shape and sharding, and so the same layout in memory.
constexpr bool stored_alike(const PlanValue& a, const PlanValue& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.stacked == b.stacked &&
         a.sharding.without_priority() == b.sharding.without_priority();
}

/// Whether two values of a graph overlap in memory.
constexpr bool share_memory(const GraphPlan& plan, int a, int b) {
  if (a < 0 || b < 0) return false;
  bool shared = false, stored = true;
  plan.each_source(a, [&](int source) { stored = false, shared = shared || share_memory(plan, source, b); });
  if (!stored) return shared;
  plan.each_source(b, [&](int source) { stored = false, shared = shared || share_memory(plan, a, source); });
  if (!stored) return shared;
  const PlanValue &x = plan.values[static_cast<std::size_t>(a)], &y = plan.values[static_cast<std::size_t>(b)];
  if (!x.in_arena() || !y.in_arena()) return a == b;
  return x.offset < y.offset + y.stored_bytes && y.offset < x.offset + x.stored_bytes;
}

/// Queries about the collectives of a plan. `Self` has given_mesh, cuts and for_each_collective.
template <class Self> struct Communication {
  /// How often a kind of collective runs; in the body of a repeat it counts once for each layer. `axis` restricts the
  /// count to collectives over exactly this axis or sub-axis. Errors: `mesh_axis` for an axis that the mesh lacks.
  constexpr std::int64_t count(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CollectiveInfo& c) { return c.kind == kind ? 1 : 0; });
  }
  /// Bytes that one device sends, by all collectives or by those over one axis.
  constexpr std::int64_t wire_bytes(std::string_view axis = {}) const {
    return total(axis, [](const CollectiveInfo& c) { return c.wire_bytes; });
  }
  constexpr std::int64_t payload_bytes(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CollectiveInfo& c) { return c.kind == kind ? c.payload_bytes : 0; });
  }
  /// The number of implicit collectives, those that no constraint of the user requires: see CollectiveInfo::requested.
  constexpr std::int64_t implicit_count() const {
    std::int64_t n = 0;
    self().for_each_collective([&](const CollectiveInfo& c, std::int64_t times) { n += c.requested ? 0 : times; });
    return n;
  }

 private:
  friend Self;
  constexpr Communication() = default;
  constexpr const Self& self() const { return static_cast<const Self&>(*this); }
  /// The sum of f(collective) over the runs of all collectives, or of those over one axis.
  template <class F> constexpr std::int64_t total(std::string_view axis, F&& of) const {
    const bool any = axis.empty();
    const unsigned axes = any ? 0 : axes_mask(self().given_mesh, self().cuts, axis);
    std::int64_t n = 0;
    self().for_each_collective([&](const CollectiveInfo& c, std::int64_t times) {
      if (any || (axes != 0 && c.axes == axes)) add_times(n, of(c), times, "bytes", c.source);
    });
    return n;
  }
};

/// How a program runs on a mesh: its steps in order, their values, and everything they communicate.
struct Plan : Communication<Plan> {
  Mesh mesh{};        ///< with the axes cut into sub-axes where a reshape or a spec needs that: see PlannedMesh
  Mesh given_mesh{};  ///< the mesh of arguments and results
  AxisCuts cuts{};
  Growable<GraphPlan> graphs;  ///< one for each graph of the program

  constexpr const GraphPlan& main() const { return graphs[0]; }

  /// Calls f(collective, how often it runs).
  template <class F> constexpr void for_each_collective(F&& f) const {
    Growable<Occurrence> all;
    collect(0, 1, all);
    for (const Occurrence& one : all) f(*one.collective, one.times);
  }
  /// Floating point operations of all devices together.
  constexpr std::int64_t flops() const {
    std::int64_t n = 0;
    for (const PlanStep& step : main().steps) n = saturating_sum(n, step.flops);
    return n;
  }
  /// Bytes that all steps read and write, of distinct shards: the traffic on this process's memory.
  constexpr std::int64_t traffic_bytes() const {
    std::int64_t n = 0;
    for (const PlanStep& step : main().steps) n = checked_sum(n, step.bytes, "bytes", step.source);
    return n;
  }

 private:
  struct Occurrence {
    const CollectiveInfo* collective;
    std::int64_t times;
  };
  // Not a template: clang would instantiate a recursive template too late for use in a constant expression.
  TESSERA_PLANNING constexpr void collect(int graph, std::int64_t times, Growable<Occurrence>& all) const {
    for (const PlanStep& step : graphs[static_cast<std::size_t>(graph)].steps) {
      for (const CollectiveInfo& c : step.collectives) all.push_back({&c, times});
      if (step.kind == StepKind::repeat)
        collect(step.body, checked_product(times, step.layers, "layers", step.source), all);
    }
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
