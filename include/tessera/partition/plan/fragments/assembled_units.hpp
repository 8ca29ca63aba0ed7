#ifndef TESSERA_PARTITION_PLAN_FRAGMENTS_ASSEMBLED_UNITS_HPP
#define TESSERA_PARTITION_PLAN_FRAGMENTS_ASSEMBLED_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/propagation/flow.hpp>
#include <tessera/partition/propagation/shapes.hpp>
#include <tessera/partition/reshard/chunks.hpp>
#include <tessera/partition/reshard/halo.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Finds the slices, pads and concats that need no step, since only fused elementwise kernels read them, which can read
/// their fragments where these are (see Fragment). A stencil of rolls or of a padded tensor is one pass over memory.
class AssembledUnits {
 public:
  constexpr AssembledUnits(const GraphView& graph, const UnitsView& units, const GraphShapes& found, const Mesh& mesh,
                           const Flow& flow)
      : graph_(graph), units_(units), found_(found), mesh_(mesh), flow_(flow), assembled_(size(units.count)) {}

  /// `computed`: by unit, whether a step computes its results.
  constexpr void find(const Growable<std::uint8_t>& computed) {
    bool moves = false;
    for (int u = 0; u < units_.count && !moves; ++u) moves = computed[size(u)] != 0 && moves_rows(u);
    if (!moves) return;
    find_candidates(computed);
    read_in_fragments_.assign(size(graph_.size), 1);
    for (int k = 0; k < graph_.output_count; ++k) read_in_fragments_[size(graph_.outputs[k])] = 0;
    for (int u = units_.count - 1; u >= 0; --u) {
      if (!computed[size(u)]) continue;
      assembled_[size(u)] = assembled_[size(u)] != 0 && read_in_fragments_[size(units_[u].root)] != 0 ? 1 : 0;
      note_reads(u);
    }
  }

  /// Whether the result of a unit is assembled; a slice only where it is no view of its operand.
  constexpr bool has(int u) const { return assembled_[size(u)] != 0; }

  /// The fragments of the result of a slice, pad or concat. `operands`: the values that it reads.
  static constexpr void add_fragments(const ShapeContext& c, const Growable<std::int32_t>& operands, GraphPlan& plan) {
    const auto dim = size(dim_of(c.node()));
    const Shape& made = c.shapes[c.id];
    std::int64_t next = 0;  // rows up to here have fragments
    const auto add = [&](Fragment fragment) {
      if (!fragment.box.empty()) plan.fragments.push_back(fragment);
    };
    const auto add_zeros = [&](std::int64_t end) {
      Fragment zeros{-1, {Shape(made.size(), 0), made}, Shape(made.size(), 0)};
      zeros.box.begin[dim] = next;
      zeros.box.end[dim] = end;
      add(zeros);
    };
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const PlanValue from = plan.values[size(operands[i])];
      const std::int64_t offset = row_of(c.node()).offset(c, static_cast<int>(i));
      if (offset > next) add_zeros(offset);
      const auto move = [&](Fragment own) {
        const std::int64_t begin = own.box.begin[dim] + offset, end = own.box.end[dim] + offset;
        own.box.begin[dim] = begin < 0 ? 0 : begin;
        own.box.end[dim] = end > made[dim] ? made[dim] : end;
        if (begin < 0 && own.value >= 0) own.from[dim] -= begin;
        add(own);
      };
      if (from.role != ValueRole::assembled)
        move({operands[i], {Shape(made.size(), 0), from.shape}, Shape(made.size(), 0)});
      for (int f = 0; f < from.fragment_count; ++f) move(plan.fragments[size(from.first_fragment + f)]);
      next = offset + from.shape[dim];
    }
    if (next < made[dim]) add_zeros(made[dim]);
  }

 private:
  // A kernel runs once for each box in which every assembled operand has one fragment: short rows cost more than a
  // copy, and many boxes more memory than they are worth.
  static constexpr std::int64_t least_row = 64;
  static constexpr int most_fragments = 16, most_read = 64;
  // Where a device sends more than this part of its rows, a step that stores all rows shows what it costs.
  static constexpr std::int64_t least_kept = 8;
  // Halos are found by a look at each device, which for a pod would take more than a constant expression may.
  static constexpr int most_devices = 32;

  const GraphView& graph_;
  const UnitsView& units_;
  const GraphShapes& found_;
  const Mesh& mesh_;
  const Flow& flow_;
  Growable<std::uint8_t> assembled_;          // by unit
  Growable<std::uint8_t> read_in_fragments_;  // by node: whether each of its readers can read its fragments
  Growable<std::int32_t> fragments_;          // by node: the most fragments that it can have; 0: it is stored

  static constexpr std::size_t size(std::int64_t i) { return static_cast<std::size_t>(i); }
  constexpr bool moves_rows(int u) const {
    return units_[u].kind == UnitKind::data_movement && row_of(graph_[units_[u].root]).offset != nullptr;
  }

  constexpr void find_candidates(const Growable<std::uint8_t>& computed) {
    fragments_.assign(size(graph_.size));
    Growable<std::uint8_t> in_layers(size(graph_.size));
    for (int id = 0; id < graph_.size; ++id) in_layers[size(id)] = is_in_layers(graph_[id]) ? 1 : 0;
    for (int u = 0; u < units_.count; ++u) {
      if (!computed[size(u)]) continue;
      bool layers = false;
      int count = 0;
      for (int i = 0; i < units_[u].input_count; ++i) {
        const auto node = size(units_.input(u, i).node);
        layers = layers || in_layers[node] != 0;
        count += fragments_[node] == 0 ? 1 : fragments_[node];
      }
      for (int o = 0; o < units_[u].output_count && layers; ++o)
        if (units_.output(u, o).node >= 0) in_layers[size(units_.output(u, o).node)] = 1;
      if (layers || !moves_rows(u) || !can_move(u)) continue;
      const int root = units_[u].root, dim = dim_of(graph_[root]);
      const OpRow& row = row_of(graph_[root]);
      if (row.view == nullptr) {
        count += 2;  // the zeros of a pad; of a concat none
        const Shape local = local_extents(found_.shapes[size(root)], flow_.produced[size(root)], mesh_);
        std::int64_t elements = 1;
        for (std::size_t d = size(dim); d < local.size(); ++d) elements *= local[d];
        if (elements < least_row * (units_[u].input_count + 1)) continue;
      }
      if (count > most_fragments) continue;
      assembled_[size(u)] = 1;
      fragments_[size(root)] = count;
    }
  }
  /// Whether elements move within each device, or few of them between devices: those at the borders of shards.
  constexpr bool can_move(int u) const {
    const int root = units_[u].root, dim = dim_of(graph_[root]);
    const Sharding& made = flow_.produced[size(root)];
    std::int64_t longest = found_.shapes[size(root)][size(dim)];
    if (graph_[root].is_singleton(dim) || made.unreduced != 0) return false;
    for (int i = 0; i < units_[u].input_count; ++i) {
      const Sharding needed = flow_.needed(u, i);
      const bool alike = needed.dims[dim] == made.dims[dim] || needed.dims[dim].empty();
      if (needed.unreduced != 0 || !alike) return false;
      if (graph_[units_.input(u, i).node].rank != graph_[root].rank) return false;
      const std::int64_t extent = found_.shapes[size(units_.input(u, i).node)][size(dim)];
      longest = extent > longest ? extent : longest;
    }
    if (units_[u].input_count == 0 || made.dims[dim].empty()) return units_[u].input_count > 0;
    if (ShardGrid(mesh_, made).count() > most_devices) return false;
    const ShapeContext context{graph_, root, found_.shapes.data(), found_.numbers.data(), nullptr};
    return halo_rows(context, made, mesh_) * least_kept <= rows_of_chunk(longest, shard_count(made, mesh_, dim));
  }
  constexpr void note_reads(int u) {
    bool fragments = assembled_[size(u)] != 0;
    if (!fragments && is_elementwise(units_, u)) {
      int count = 0;
      for (int i = 0; i < units_[u].input_count; ++i) count += fragments_[size(units_.input(u, i).node)];
      fragments = count <= most_read;
    }
    for (int i = 0; i < units_[u].input_count; ++i) {
      const int node = units_.input(u, i).node;
      if (!fragments || !lies_alike(flow_.needed(u, i), flow_.produced[size(node)])) read_in_fragments_[size(node)] = 0;
    }
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
