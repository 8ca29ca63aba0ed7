#ifndef TESSERA_PARTITION_PLAN_PLANNED_VALUES_HPP
#define TESSERA_PARTITION_PLAN_PLANNED_VALUES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/plan_options.hpp>
#include <tessera/partition/plan/value_bytes.hpp>
#include <tessera/partition/propagation/flow.hpp>
#include <tessera/partition/propagation/implicit_reshards.hpp>
#include <tessera/partition/propagation/shapes.hpp>
#include <tessera/partition/propagation/solve.hpp>
#include <tessera/partition/reshard/halo.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>
#include <tessera/partition/reshard/step_collectives.hpp>
#include <tessera/partition/reshard/views.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// The values of a graph while its plan is made: each node in the shardings and the storage in which steps read it, and
/// the steps that reshard or copy a value into another value.
class PlannedValues {
 protected:
  constexpr PlannedValues(const GraphView& graph, const UnitsView& units, const Mesh& mesh, const GraphShapes& found,
                          const ShardingSolver& solver, Growable<PartialSums>& sums, const PlanOptions& options, int g,
                          const OutputRequest* requests)
      : mesh_(mesh), solver_(solver), options_(options), requests_(requests), graph_(graph), units_(units),
        found_(found), values_(solver.values[size(g)]), host_(host_scalars(graph)),
        flow_(graph, units, solver.links[size(g)], solver.readers[size(g)], found, mesh, solver.values[size(g)], sums,
              g, options.deterministic),
        g_(g) {}

  const Mesh& mesh_;
  const ShardingSolver& solver_;
  const PlanOptions& options_;
  const OutputRequest* requests_;
  GraphView graph_;
  UnitsView units_;
  const GraphShapes& found_;
  const ValueShardings& values_;
  Growable<std::uint8_t> host_;
  Flow flow_;
  int g_;
  GraphPlan made_;
  Growable<Growable<std::int32_t>> versions_;  // by node: its values, one for each sharding
  Growable<std::int32_t> required_;            // by node: the first output of the graph that this node is, or -1
  Growable<Shape> strides_;                    // by value: strides of its first shard, in elements

  constexpr void start() {
    flow_.reduce_unread_results();
    versions_.assign(size(graph_.size));
    made_.values.reserve(size(graph_.size));
    made_.steps.reserve(size(2 * units_.count));
    strides_.reserve(size(graph_.size));
    required_.assign(size(graph_.size), -1);
    for (int k = 0; k < graph_.output_count; ++k) {
      const int node = graph_.outputs[k];
      if (!host_[size(node)] && required_[size(node)] < 0) required_[size(node)] = k;
    }
  }

  static constexpr std::size_t size(std::int64_t i) { return static_cast<std::size_t>(i); }
  constexpr PlanValue& value(int v) { return made_.values[size(v)]; }
  constexpr const Shape& shape(int node) const { return found_.shapes[size(node)]; }
  constexpr const Link& link(int u) const { return flow_.link(u); }

  // ---- values

  constexpr int add_value(int node, const Sharding& sharding, ValueRole role, bool stacked = false, int view_of = -1) {
    PlanValue made;
    made.node = node;
    made.dtype = graph_[node].dtype;
    made.role = role;
    made.stacked = stacked;
    made.view_of = view_of;
    made.shape = shape(node);
    made.sharding = sharding;
    if (sharding.unreduced != 0 && sharding.unreduced == flow_.produced[size(node)].unreduced)
      made.parts = flow_.parts[size(node)];
    if (!host_[size(node)]) {
      made.device_bytes = local_bytes(made.shape, sharding, mesh_, made.dtype);
      if (stacked) {
        Shape slice = made.shape;
        slice.erase(0);
        Sharding layer = without_layers(sharding);
        layer.unreduced = sharding.unreduced;
        layer.reduction = sharding.reduction;
        made.stored_bytes = checked_product(made.shape[0], distinct_bytes(slice, layer, made.dtype, mesh_, made.parts),
                                            "bytes of layers");
      } else {
        made.stored_bytes = distinct_bytes(made.shape, sharding, made.dtype, mesh_, made.parts);
      }
    }
    made_.values.push_back(made);
    strides_.push_back(row_major_strides(local_extents(made.shape, sharding, mesh_)));
    const int v = static_cast<int>(made_.values.size()) - 1;
    versions_[size(node)].push_back(v);
    return v;
  }

  /// Writes the sharding requested for a node that is an output of the graph; false where none is requested.
  constexpr bool requested(int node, Sharding& sharding) const {
    const int k = required_[size(node)];
    if (k < 0 || requests_ == nullptr || !requests_[k].given) return false;
    sharding = requests_[k].sharding;
    return true;
  }
  /// Whether the graph, a body, returns the node as it is made, to be reduced after the loop.
  constexpr bool returned_partial(int node) const {
    Sharding wanted;
    return requested(node, wanted) && wanted.unreduced != 0;
  }
  /// The role of a value that a step makes: `output` where the graph returns it in exactly this sharding.
  constexpr ValueRole role_of(int node, const Sharding& sharding) const {
    if (required_[size(node)] < 0 || sharding.unreduced != 0) return ValueRole::intermediate;
    Sharding wanted = final_sharding(node);
    return lies_alike(wanted, sharding) ? ValueRole::output : ValueRole::intermediate;
  }
  /// The sharding in which the graph returns a node: the requested one, or that of the unit that makes it, with partial
  /// values reduced.
  constexpr Sharding final_sharding(int node) const {
    Sharding wanted;
    if (requested(node, wanted)) return wanted;
    const Sharding& made = flow_.produced[size(node)];
    return made.unreduced == 0 && !options_.deterministic && !steered(node) ? made : values_.of[size(node)];
  }
  /// Whether a unit makes a value with other explicit axes than the rules of explicit axes give it.
  constexpr bool steered(int node) const {
    return flow_.deferred[size(node)] == 0 && solver_.rules[size(g_)].change(node, flow_.produced[size(node)]);
  }

  constexpr bool is_of_experts(int node) const {
    return row_of(graph_[node]).sharded_as >= 0 && Alike::of(graph_[node]).of_experts;
  }

  // ---- reshards

  /// The value of a node in sharding `target`: an existing one, or a new reshard of the existing value from which that
  /// is cheapest.
  constexpr int version(int node, const Sharding& target, Source source, std::string_view why, bool requested) {
    if (const int v = remade_windows(node, target, source, why, requested); v >= 0) return v;
    int best = -1;
    std::int64_t best_cost = 0;
    std::size_t best_count = 0;
    Growable<CollectiveInfo> path;
    for (std::int32_t v : versions_[size(node)]) {
      const Sharding& from = value(v).sharding;
      if (lies_alike(from, target)) return v;
      if (target.unreduced & ~unsigned{from.unreduced}) continue;
      Growable<CollectiveInfo> found = reshard_path(shape(node), graph_[node].dtype, mesh_, from, target);
      const std::int64_t cost = wire_bytes(found);
      if (best >= 0 && (cost > best_cost || (cost == best_cost && found.size() >= best_count))) continue;
      best = v;
      best_cost = cost;
      best_count = found.size();
      path = std::move(found);
    }
    if (best < 0)
      fail(errc::graph_invalid, "[plan] reshard: no step computes node ", node, ", which another step reads");
    const Sharding from = value(best).sharding;
    for (CollectiveInfo& collective : path) {
      const bool reduces = collective.kind == Collective::all_reduce || collective.kind == Collective::reduce_scatter;
      const bool to_experts = collective.kind == Collective::all_to_all && is_of_experts(node);
      collective.source = reduces && graph_[node].source.line != 0 ? graph_[node].source : source;
      collective.requested =
          requested || reduces || to_experts || collective.kind == Collective::slice || was_stored(from, target);
      collective.why = reduces                    ? facts_of(from.reduction).partial
                       : was_stored(from, target) ? "gathered on use"
                       : to_experts               ? "expert parallelism"
                                                  : why;
      if (!collective.requested && options_.forbid_implicit_reshards)
        fail_implicit(graph_, node, shape(node), collective, from, target, mesh_);
    }
    PlanStep step;
    step.kind = StepKind::reshard;
    step.source = path.empty() ? source : path.front().source;
    step.collectives = std::move(path);
    // The layers of a Stack are on all devices; where a computation splits them, they are in one block.
    const bool stacked = value(best).stacked && target.dims[0].empty();
    const int result = add_value(node, target, role_of(node, target), stacked);
    step.inputs = {best};
    step.outputs = {result};
    for (const int v : {best, result}) add_moved(step, v);
    made_.steps.push_back(std::move(step));
    return result;
  }

  /// Windows of a dim overlap in memory, so they are taken once more, from their operand in the sharding that the
  /// target needs. -1 where that is impossible, where the windows exist in this sharding, or where they do not overlap.
  constexpr int remade_windows(int node, const Sharding& target, Source source, std::string_view why, bool requested) {
    const OpRow& row = row_of(graph_[node]);
    if (row.windows == nullptr || row.view == nullptr || options_.deterministic || target.unreduced != 0 ||
        flow_.produced[size(node)].unreduced != 0 || ops::of_single_rows(row.windows(context_of(node))))
      return -1;
    for (std::int32_t v : versions_[size(node)])
      if (lies_alike(value(v).sharding, target)) return -1;
    int u = 0;
    while (u < units_.count && units_[u].root != node) ++u;
    if (u == units_.count) return -1;
    const Links& links = solver_.links[size(g_)];
    FactorAxes axes = flow_.factors[size(u)];
    for (AxisList& list : axes) list.clear();
    const LinkOperand& result = links.operand(link(u), units_[u].input_count);
    for (int s = result.first_dim; s < result.first_dim + result.dim_count; ++s) {
      const LinkDim& dim = links.dims[size(s)];
      if (dim.count != 1) continue;
      if (links.factor(link(u), dim.factors[0]).kind == FactorKind::replicate && !target.dims[dim.dim].empty())
        return -1;
      axes[size(dim.factors[0])] = target.dims[dim.dim];
    }
    const int operand = graph_.operand(node, 0);
    const Sharding made = sharding_of(links, link(u), units_[u].input_count, axes, graph_[node].rank, mesh_);
    if (!lies_alike(made, target)) return -1;
    const int from =
        version(operand, sharding_of(links, link(u), 0, axes, graph_[operand].rank, mesh_), source, why, requested);
    Shape strides;
    if (is_view(u, from, strides)) {
      const int view = add_value(node, made, ValueRole::view, value(from).stacked, from);
      strides_[size(view)] = strides;
      return view;
    }
    PlanStep step;
    step.unit = u;
    step.source = source;
    step.inputs = {in_one_block(from, source)};
    step.outputs = {add_value(node, made, ValueRole::intermediate)};
    store_rows_once(step.outputs[0]);
    step.factors = std::move(axes);
    step.collectives = halo_exchange(context_of(node), made, mesh_);
    const int windows = step.outputs[0];
    for (const std::int32_t v : step.inputs) add_moved(step, v);
    add_moved(step, windows);
    made_.steps.push_back(std::move(step));
    return windows;
  }
  constexpr Shape view_strides(int node, int source) const {
    return row_of(graph_[node]).view(context_of(node), strides_[size(source)]);
  }
  constexpr ShapeContext context_of(int node) const {
    return {graph_, node, found_.shapes.data(), found_.numbers.data(), nullptr};
  }
  /// Windows that a step makes overlap in memory: each shard is the rows that its windows cover, with the padding.
  /// Windows of single rows are stored like any other tensor.
  constexpr void store_rows_once(int v) {
    PlanValue& made = value(v);
    const WindowedDims dims = row_of(graph_[made.node]).windows(context_of(made.node));
    if (ops::of_single_rows(dims)) return;
    const Shape rows = ops::covered_rows(dims, local_extents(made.shape, made.sharding, mesh_));
    made.role = ValueRole::intermediate;  // a result is a copy
    made.rows_once = true;
    made.device_bytes = volume(rows) * static_cast<std::int64_t>(size_of(made.dtype));
    made.stored_bytes =
        checked_product(arena_bytes(made.device_bytes),
                        devices_on(mesh_, made.sharding.used_axes() | made.sharding.unreduced), "bytes of windows");
    strides_[size(v)] = ops::overlapping_strides(dims, row_major_strides(rows));
  }

  // ---- storage

  /// Returns a value that has all layers of a Stack in one block: `v` itself, or a copy of it.
  constexpr int in_one_block(int v, Source source) { return v < 0 ? v : stored(v, Storage::block, source); }
  /// Returns a value that is stored as asked, in one block or in layers: `v` itself, or a copy of it.
  constexpr int stored(int v, Storage storage, Source source) {
    const bool stacked = storage == Storage::layers;
    if (value(v).stacked == stacked) return v;
    const int node = value(v).node;
    const Sharding sharding = value(v).sharding;
    for (const std::int32_t other : versions_[size(node)])
      if (value(other).stacked == stacked && lies_alike(value(other).sharding, sharding)) return other;
    PlanStep step;
    step.kind = StepKind::reshard;
    step.source = source;
    const int made = add_value(node, sharding, ValueRole::intermediate, stacked);
    step.inputs = {v};
    step.outputs = {made};
    for (const int own : {v, made}) add_moved(step, own);
    made_.steps.push_back(std::move(step));
    return made;
  }

  constexpr void add_moved(PlanStep& step, int v) {
    step.bytes = checked_sum(step.bytes, moved_bytes(value(v), mesh_), "bytes", step.source);
  }

  /// A body takes its operands, or slices of them, as they are in memory, so a view that is not row-major is copied.
  constexpr int contiguous(int v, bool sliced, Source source) {
    const Sharding sharding = value(v).sharding;
    for (std::int32_t other : versions_[size(value(v).node)])
      if (!value(other).rows_once && lies_alike(value(other).sharding, sharding) && is_row_major(other, sliced) &&
          (sliced || value(other).stacked == value(v).stacked))
        return other;
    PlanStep step;
    step.kind = StepKind::reshard;
    step.source = source;
    const int result = add_value(value(v).node, sharding, role_of(value(v).node, sharding), value(v).stacked);
    step.inputs = {v};
    step.outputs = {result};
    for (int i = 0; i < 2; ++i) add_moved(step, v);
    made_.steps.push_back(std::move(step));
    return result;
  }
  constexpr bool is_row_major(int v, bool sliced) {
    const Shape extents = local_extents(value(v).shape, value(v).sharding, mesh_);
    const Shape strides = row_major_strides(extents);
    for (std::size_t d = value(v).stacked || sliced ? 1 : 0; d < extents.size(); ++d)
      if (extents[d] > 1 && strides[d] != strides_[size(v)][d]) return false;
    return true;
  }

  // ---- views

  /// Whether a data movement unit's result can be a view: the operand's memory under other strides, which it returns.
  constexpr bool is_view(int u, int source, Shape& strides) {
    const Node& node = graph_[units_[u].root];
    const bool stacked = value(source).stacked;
    if (options_.deterministic) return false;  // kernels may choose their order of summation by strides
    const OpRow& row = row_of(node);
    if (row.windows != nullptr && !ops::in_place(context_of(units_[u].root), value(source).sharding)) return false;
    if (row.view != nullptr) {
      strides = view_strides(units_[u].root, source);
      const bool is_whole = row.offset == nullptr || value(source).sharding.dims[dim_of(node)].empty();
      return is_whole && !(stacked && dim_of(node) == 0);
    }
    if (row.factor_extents == nullptr) return false;
    const Factors factors = Factors::of(node);
    Shape local;
    for (int f = 0; f < factors.count; ++f) {
      std::int64_t count = 1;
      for (std::uint8_t axis : flow_.factors[size(u)][size(f)]) count *= mesh_.axis_size(axis);
      const std::int64_t extent = solver_.links[size(g_)].factor(link(u), f).extent;
      local.push_back(extent / count + (extent % count != 0));
    }
    if (stacked) {  // layers are not contiguous, so dim 0 must stay a dim of its own
      int of_layers = 0;
      for (int f = 0; f < factors.count; ++f) of_layers += factors.in_dim[f] == 0 || factors.out_dim[f] == 0;
      if (factors.count == 0 || of_layers != 1 || factors.in_dim[0] != 0 || factors.order[0] != 0 ||
          factors.out_dim[0] != 0)
        return false;
    }
    return rearranged_strides(factors, local, strides_[size(source)], node.rank, strides);
  }
};

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
