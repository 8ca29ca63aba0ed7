#ifndef TESSERA_PARTITION_PLAN_PLAN_HPP
#define TESSERA_PARTITION_PLAN_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/collective.hpp>
#include <tessera/partition/reshard/parts.hpp>

namespace tessera {

/// One collective of a plan, as each device takes part in it.
struct CollectiveInfo {
  Collective kind = Collective::all_reduce;
  std::uint16_t axes = 0;  ///< mesh axes it runs over, one bit each
  DType dtype = DType::f32;
  std::int64_t payload_bytes = 0;  ///< V: bytes of the value reduced, or of the gathered value, on one device
  std::int64_t wire_bytes = 0;     ///< bytes a device sends on a ring: 2(n-1)/n V, (n-1)/n V, (n-1)/n^2 V
  Source source{};                 ///< the line whose value is communicated
  std::string_view why;            ///< the reason: what needs it
  bool requested = true;           ///< by a spec, a request or a partial value; others are implicit
};

/// What a value of a plan is stored in.
enum class ValueRole : std::uint8_t {
  argument,      ///< the caller's; of a body, bound for every layer
  intermediate,  ///< a block of the arena
  output,        ///< made by a step of this plan straight into a result; of a body, bound for every layer
  view,          ///< the elements of another value under other dims
  fused,         ///< passed from one step to another that runs fused with it: stored nowhere, see PlanStep::fusion
  host,          ///< a host scalar that a repeat takes as a tensor
};

/// A value of a plan: a node of the graph under one sharding. A resharded node is another value.
struct PlanValue {
  std::int32_t node = -1;
  DType dtype = DType::f32;
  ValueRole role = ValueRole::intermediate;
  bool stacked = false;  ///< dim 0 counts layers, each stored on its own
  std::int32_t view_of = -1;
  Shape shape;  ///< global
  Sharding sharding;
  PartList parts;                       ///< of a partial value: which of its parts there are
  std::int64_t device_bytes = 0;        ///< on the device that holds most
  std::int64_t stored_bytes = 0;        ///< of all distinct shards, each aligned to 64
  int first_step = -1, last_step = -1;  ///< when its memory is needed, views of it included
  std::int64_t offset = 0;              ///< of what is in the arena
  /// Of a fused value that is made where a result goes: the result may be written over an argument that is read with
  /// it. In a call that gives the argument up, the value is made in a block of the arena instead.
  bool spare = false;

  constexpr bool in_arena() const { return role == ValueRole::intermediate || spare; }
};

enum class StepKind : std::uint8_t { compute, reshard, repeat };

/// How a step runs fused with the one that follows it. Steps are executed as this says.
enum class Fusion : std::uint8_t {
  apart,        ///< it ends before the next begins
  epilogue,     ///< the next one works on each box of a product as soon as the box is there
  into_result,  ///< as an epilogue, and each box is summed where the result that the next one makes of it goes
  rounding,     ///< the next one's cast to bf16, of a product or of it plus a row, is done as the product is stored
  sum,          ///< the next one reduces parts: each part is added to the sum as it is made
};

struct PlanStep {
  StepKind kind = StepKind::compute;
  std::int32_t unit = -1;                  ///< of compute and repeat
  Growable<std::int32_t> inputs, outputs;  ///< values, in the order of the unit's
  Growable<AxisList> factors;              ///< of compute: mesh axes of each factor of the unit's rule
  /// Of a sum of rank-0 tensors: axes over which its result is partial. An input that is replicated over such an axis
  /// is added on the devices with coordinate 0.
  std::uint16_t added_over = 0;
  Growable<CollectiveInfo> collectives;  ///< of a reshard; of a compute step, those between its passes
  Fusion fusion = Fusion::apart;         ///< with the step that follows
  std::int32_t body = -1;                ///< of a repeat: its graph
  std::int64_t layers = 1;
  std::int64_t flops = 0;  ///< of all devices together; INT64_MAX for more
  std::int64_t bytes = 0;  ///< read and written, of all distinct shards
  Source source{};
};

/// The plan of one graph.
struct GraphPlan {
  Growable<PlanValue> values;
  Growable<PlanStep> steps;
  Growable<std::int32_t> arguments;  ///< value of each argument; -1 when it is not used
  Growable<std::int32_t> outputs;    ///< value of each output; -1 when it is a host scalar
  /// By output: the argument that it is written over in a call that gives the argument up, as by donate_argnums of JAX
  /// and input_output_alias of XLA; -1: it always has memory of its own.
  Growable<std::int32_t> donated;
  Growable<HostNumber> numbers;  ///< by node: host scalars known when planning
  Growable<Shape> shapes;        ///< by node
  std::int64_t arena_bytes = 0;  ///< scratch of this graph, the largest body's included
  std::int64_t body_offset = 0;  ///< where bodies have their scratch in it
};

/// The mesh axes along which the places of a step differ: those that its values and factors use.
constexpr std::uint16_t work_axes(const GraphPlan& plan, const PlanStep& step) {
  unsigned axes = 0;
  for (const Growable<std::int32_t>* list : {&step.inputs, &step.outputs})
    for (const std::int32_t v : *list)
      if (v >= 0) axes |= plan.values[static_cast<std::size_t>(v)].sharding.used_axes();
  for (const AxisList& factor : step.factors)
    for (const std::uint8_t axis : factor) axes |= 1u << axis;
  return static_cast<std::uint16_t>(axes);
}

/// Whether the memory of one value is laid out as that of another.
constexpr bool stored_alike(const PlanValue& a, const PlanValue& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.stacked == b.stacked &&
         a.sharding.without_priority() == b.sharding.without_priority();
}

/// Whether two values of a graph have memory in common.
constexpr bool share_memory(const GraphPlan& plan, int a, int b) {
  const auto root = [&](int v) {
    while (v >= 0 && plan.values[static_cast<std::size_t>(v)].role == ValueRole::view)
      v = plan.values[static_cast<std::size_t>(v)].view_of;
    return v;
  };
  a = root(a), b = root(b);
  if (a < 0 || b < 0) return false;
  const PlanValue &x = plan.values[static_cast<std::size_t>(a)], &y = plan.values[static_cast<std::size_t>(b)];
  if (!x.in_arena() || !y.in_arena()) return a == b;
  return x.offset < y.offset + y.stored_bytes && y.offset < x.offset + x.stored_bytes;
}

/// Queries about the collectives of a plan. `Self` has a given_mesh with its cuts, and for_each_collective.
template <class Self> struct Communication {
  /// How often a kind of collective runs, bodies of repeats counted once a layer. `axis` restricts it to one axis, or
  /// one sub-axis.
  /// Errors: `mesh_axis` for one that the mesh lacks.
  constexpr std::int64_t count(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CollectiveInfo& c) { return c.kind == kind ? 1 : 0; });
  }
  /// Bytes that one device sends, over all collectives or those of one axis.
  constexpr std::int64_t wire_bytes(std::string_view axis = {}) const {
    return total(axis, [](const CollectiveInfo& c) { return c.wire_bytes; });
  }
  constexpr std::int64_t payload_bytes(Collective kind, std::string_view axis = {}) const {
    return total(axis, [&](const CollectiveInfo& c) { return c.kind == kind ? c.payload_bytes : 0; });
  }
  /// Implicit collectives, which no constraint of the user needs: see CollectiveInfo::requested.
  constexpr std::int64_t implicit_count() const {
    std::int64_t n = 0;
    self().for_each_collective([&](const CollectiveInfo& c, std::int64_t times) { n += c.requested ? 0 : times; });
    return n;
  }

 private:
  friend Self;
  constexpr Communication() = default;
  constexpr const Self& self() const { return static_cast<const Self&>(*this); }
  /// Of each collective over an axis, or over any.
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

/// How a program runs on a mesh: ordered steps, their buffers, and everything they communicate.
struct Plan : Communication<Plan> {
  Mesh mesh{};        ///< with axes cut where a reshape or a spec takes them in parts: see PlannedMesh
  Mesh given_mesh{};  ///< as it was given: that of arguments and results
  AxisCuts cuts{};
  Growable<GraphPlan> graphs;  ///< one for each graph of the program

  constexpr const GraphPlan& main() const { return graphs[0]; }

  /// Calls f(collective, times it runs).
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
  /// Bytes that all steps read and write, of distinct shards: what the memory of this process has to carry.
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
  // Not a template: clang would not instantiate a recursive one in time for a constant expression.
  constexpr void collect(int graph, std::int64_t times, Growable<Occurrence>& all) const {
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
