#ifndef TESSERA_PARTITION_PROPAGATION_MOVEMENT_CHOICE_HPP
#define TESSERA_PARTITION_PROPAGATION_MOVEMENT_CHOICE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/propagation/assign.hpp>
#include <tessera/partition/propagation/solve.hpp>
#include <tessera/partition/propagation/unit_readers.hpp>
#include <tessera/partition/reshard/halo.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Chooses, by bytes sent, whether a unit computes on a split dim or gathers the dim first.
class MovementChoice {
 public:
  /// `produced`: by node, the sharding in which its unit makes it, for the nodes that a unit reads.
  constexpr MovementChoice(const GraphView& graph, const UnitsView& units, const Links& links, const GraphShapes& found,
                           const Mesh& mesh, const ValueShardings& values, const Growable<Sharding>& produced)
      : graph_(graph), units_(units), links_(links), found_(found), mesh_(mesh), values_(values), produced_(produced) {}

  /// Chooses between a halo exchange and keeping the dim whole on each device (all_gather, or all_to_all onto another
  /// dim). Both choices count the reshards of operands and result that they cause. Where the split choice needs no
  /// reshard, its halo is at most a device's shard, which a gather sends at least. Returns whether `axes`, those of the
  /// unit's factors, now keep the dim whole.
  constexpr bool choose_halo(int u, FactorAxes& axes) const {
    const Link& link = links_.of(u);
    int moved = 0;
    while (moved < link.factor_count && links_.factor(link, moved).kind != FactorKind::permutation) ++moved;
    if (moved == link.factor_count || axes[at(moved)].empty()) return false;
    const Reshards split = reshards(u, axes);
    if (split.count == 0) return false;
    const Sharding made = sharding_of(links_, link, units_[u].input_count, axes, graph_[units_[u].root].rank, mesh_);
    const ShapeContext context{graph_, units_[u].root, found_.shapes.data(), found_.numbers.data(), nullptr};
    FactorAxes whole = assign_factors(links_, link, mesh_, values_, moved);
    if (split.bytes + halo_bytes(context, made, mesh_) <= reshards(u, whole).bytes) return false;
    axes = std::move(whole);
    return true;
  }

  /// A fused unit that broadcasts all that it reads has a result larger than its inputs. Where its only reader needs
  /// the result in a sharding for which resharding the inputs sends less than resharding the result, the unit computes
  /// in that sharding: `tile<0>` of a split dim gathers the tensor, and not its copies.
  constexpr void choose_broadcast(int u, FactorAxes& axes, const UnitReaders& readers) const {
    const Unit& unit = units_[u];
    const Link& link = links_.of(u);
    if (unit.output_count != 1 || readers.count(unit.root) != 1) return;
    std::int64_t read = 0;
    for (int i = 0; i < unit.input_count; ++i) {
      if (!links_.operand(link, i).narrow) return;
      read += links_.operand(link, i).bytes;
    }
    const LinkOperand& result = links_.operand(link, unit.input_count);
    if (result.bytes <= read || axes_of(axes) == 0) return;
    const int reader = readers.unit(unit.root, 0);
    if (units_[reader].kind == UnitKind::repeat || units_[reader].kind == UnitKind::constraint) return;
    const int rank = graph_[unit.root].rank;
    int input = 0;
    while (units_.input(reader, input).node != unit.root) ++input;
    const Sharding wanted = sharding_of(links_, links_.of(reader), input,
                                        assign_factors(links_, links_.of(reader), mesh_, values_), rank, mesh_);
    const Sharding made = sharding_of(links_, link, unit.input_count, axes, rank, mesh_);
    if (lies_alike(made, wanted)) return;
    FactorAxes first(axes.size());
    for (int s = result.first_dim; s < result.first_dim + result.dim_count; ++s)
      if (const LinkDim& dim = links_.dims[at(s)]; dim.count == 1) first[at(dim.factors[0])] = wanted.dims[dim.dim];
    if (!lies_alike(sharding_of(links_, link, unit.input_count, first, rank, mesh_), wanted)) return;
    const std::int64_t after =
        wire_bytes(reshard_path(found_.shapes[at(unit.root)], graph_[unit.root].dtype, mesh_, made, wanted));
    if (input_reshards(u, first).bytes < input_reshards(u, axes).bytes + after) axes = std::move(first);
  }

  /// Whether the unit is a data movement unit that may leave its result partial: `x[3]` of a split dim is a row on one
  /// device and zeros on all others.
  constexpr bool takes_row(int u) const {
    return units_[u].kind == UnitKind::data_movement && row_of(graph_[units_[u].root]).partial != nullptr;
  }
  /// Chooses how to take one row of a split dim: an all_reduce of the row, or an all_gather of the dim, which all units
  /// that take a row of this dim share. `deterministic`: always the all_gather.
  constexpr void choose_row(int u, FactorAxes& axes, bool deterministic) const {
    const Node& node = graph_[units_[u].root];
    const int factor = row_factor(u);
    if (factor < 0 || axes[at(factor)].empty()) return;
    int rows = 0;
    for (int other = 0; other < units_.count; ++other)
      rows += takes_row(other) && dim_of(graph_[units_[other].root]) == dim_of(node) && row_factor(other) >= 0 &&
              units_.input(other, 0).node == units_.input(u, 0).node;
    FactorAxes whole = assign_factors(links_, links_.of(u), mesh_, values_, factor);
    const Sharding made = sharding_of(links_, links_.of(u), 1, axes, node.rank, mesh_);
    const std::int64_t sum =
        ring_bytes(Collective::all_reduce, local_bytes(found_.shapes[at(units_[u].root)], made, mesh_, node.dtype),
                   devices_on(mesh_, lacking_axes(links_, links_.of(u), 1, axes)));
    if (!deterministic && rows * sum < reshards(u, whole).bytes) return;
    axes = std::move(whole);
  }

 private:
  GraphView graph_;
  UnitsView units_;
  const Links& links_;
  const GraphShapes& found_;
  const Mesh& mesh_;
  const ValueShardings& values_;
  const Growable<Sharding>& produced_;

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

  /// The factor of the dim of which a slice takes one row; -1 for a slice of more rows.
  constexpr int row_factor(int u) const {
    const Link& link = links_.of(u);
    for (int f = 0; f < link.factor_count; ++f)
      if (links_.factor(link, f).kind == FactorKind::reduction) return f;
    return -1;
  }

  /// How many operands and results of a unit need a reshard, and the bytes that a device sends for these reshards.
  struct Reshards {
    int count = 0;
    std::int64_t bytes = 0;
  };
  constexpr Reshards input_reshards(int u, const FactorAxes& axes) const {
    Reshards found;
    for (int i = 0; i < units_[u].input_count; ++i) {
      const int node = units_.input(u, i).node;
      const Sharding& made = produced_[at(node)];
      add(found, node, made.unreduced != 0 ? values_.of[at(node)] : made,
          sharding_of(links_, links_.of(u), i, axes, graph_[node].rank, mesh_));
    }
    return found;
  }
  constexpr Reshards reshards(int u, const FactorAxes& axes) const {
    Reshards found = input_reshards(u, axes);
    const int root = units_[u].root;
    add(found, root, sharding_of(links_, links_.of(u), units_[u].input_count, axes, graph_[root].rank, mesh_),
        values_.of[at(root)]);
    return found;
  }
  constexpr void add(Reshards& found, int node, const Sharding& from, const Sharding& to) const {
    if (lies_alike(from, to)) return;
    ++found.count;
    found.bytes += wire_bytes(reshard_path(found_.shapes[at(node)], graph_[node].dtype, mesh_, from, to));
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
