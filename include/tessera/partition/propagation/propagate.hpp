#ifndef TESSERA_PARTITION_PROPAGATION_PROPAGATE_HPP
#define TESSERA_PARTITION_PROPAGATION_PROPAGATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/partition/propagation/links.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The shardings of the values of one graph, as far as propagation has found them.
struct ValueShardings {
  Growable<Sharding> of;            ///< by node
  Growable<std::uint8_t> fixed;     ///< by node: set by the caller or a constraint, so propagation does not change it
  Growable<std::uint16_t> closed;   ///< by node: axes that propagation must not add to it, one bit each
  Growable<std::uint8_t> argument;  ///< by node: an argument of the program; its axes win over those of computed values

  constexpr ValueShardings() = default;
  constexpr explicit ValueShardings(const GraphView& graph)
      : fixed(static_cast<std::size_t>(graph.size), 0), closed(static_cast<std::size_t>(graph.size), 0),
        argument(static_cast<std::size_t>(graph.size), 0) {
    of.reserve(static_cast<std::size_t>(graph.size));
    for (int id = 0; id < graph.size; ++id) of.push_back(replicated(graph[id].rank));
  }
};

/// The shardings of the values of one graph over the explicit axes of a mesh. Rules decide these; propagation decides
/// the rest.
struct ExplicitShardings {
  unsigned axes = 0;             ///< one bit a mesh axis; 0: all axes are automatic
  Growable<Sharding> of;         ///< by node: over the explicit axes only
  Growable<std::uint8_t> given;  ///< by node: whether the rules decide it

  constexpr bool rules(int node) const { return axes != 0 && given[static_cast<std::size_t>(node)] != 0; }
  /// Whether propagation may split a dim of a node by an axis.
  constexpr bool allows(int node, int dim, int axis) const {
    return !rules(node) || !(axes >> axis & 1u) ||
           of[static_cast<std::size_t>(node)].dims[dim].contains(static_cast<std::uint8_t>(axis));
  }
  /// The axes of a dim, with the explicit axes in `found` replaced by those of the rules.
  constexpr AxisList ruled(int node, int dim, const AxisList& found) const {
    AxisList automatic, own;
    for (std::uint8_t axis : found) (axes >> axis & 1u ? own : automatic).push_back(axis);
    const AxisList& wanted = of[static_cast<std::size_t>(node)].dims[dim];
    if (own == wanted) return found;
    for (std::uint8_t axis : wanted)
      if (automatic.size() < AxisList::capacity()) automatic.push_back(axis);
    return automatic;
  }
  /// Whether the explicit axes of this sharding differ from those of the rules.
  constexpr bool change(int node, const Sharding& found) const {
    bool differs = false;
    for (int d = 0; d < found.rank && rules(node); ++d)
      differs = differs || !(ruled(node, d, found.dims[d]) == found.dims[d]);
    return differs;
  }
};

/// The mesh axes that the dims of a unit's operands suggest for one factor.
struct FactorClaim {
  AxisList axes;
  std::uint8_t priority = 0;
  bool argument = false;
  FactorKind kind = FactorKind::pass;
  std::int8_t factor = -1;
  std::int64_t bytes = 0;   ///< of all operands that suggest these axes, or these and then more axes
  std::int64_t direct = 0;  ///< of those that suggest exactly these axes

  /// Whether this claim wins over the other claim: a lower priority, arguments of the program, more bytes, ...
  constexpr bool before(const FactorClaim& other) const {
    if (priority != other.priority) return priority < other.priority;
    if (argument != other.argument) return argument;
    if (bytes != other.bytes) return bytes > other.bytes;
    if (kind != other.kind) return kind < other.kind;
    if (axes.size() != other.axes.size()) return axes.size() > other.axes.size();
    return factor < other.factor;
  }
};

/// The claims on the factors of a link, the strongest first. A dim that is only stored split (priority above 0, FSDP)
/// makes no claim where a contraction, a lookup or attention reads it, nor where a halo would be needed: it is gathered
/// there.
class ClaimList {
 public:
  Growable<FactorClaim> claims;

  /// `separate`: an operand that suggests the axes (data, expert) for a factor, and one that suggests (data), make two
  /// claims, so that the second does not count for the axis expert. Otherwise they make one.
  constexpr ClaimList(const Links& links, const Mesh& mesh, bool separate = false)
      : links_(links), mesh_(mesh), separate_(separate) {}

  constexpr void collect(const Link& link, const ValueShardings& values, int max_priority, bool narrow_inputs) {
    claims.clear();
    for (int i = 0; i < link.operand_count; ++i) {
      const LinkOperand& operand = links_.operand(link, i);
      const auto node = static_cast<std::size_t>(operand.node);
      const Sharding& sharding = values.of[node];
      if (operand.narrow && !narrow_inputs) continue;
      for (int d = 0; d < operand.dim_count; ++d) {
        const LinkDim& dim = links_.dims[static_cast<std::size_t>(operand.first_dim + d)];
        const AxisList& axes = sharding.dims[static_cast<int>(dim.dim)];
        const std::uint8_t priority = sharding.priority[static_cast<int>(dim.dim)];
        if (axes.empty() || priority > max_priority) continue;
        if (priority > 0 && !operand.output && (operand.narrow || reads_whole(link.kind))) continue;
        const bool argument = values.argument[node] != 0 && priority == 0;
        split_axes(links_, link, dim, axes, mesh_, [&](std::int8_t factor, const AxisList& own) {
          const FactorKind kind = links_.factor(link, factor).kind;
          if (own.empty() || kind == FactorKind::replicate) return;
          if (priority > 0 && kind == FactorKind::permutation) return;
          add({own, priority, argument, kind, factor, operand.bytes});
        });
      }
    }
    if (link.frees_axes) move_off_whole_dims(link, values, max_priority);
    sort();
  }

  /// Whether units of this kind gather dims that are only stored split; elementwise and data movement units don't.
  static constexpr bool reads_whole(UnitKind kind) {
    return kind == UnitKind::contraction || kind == UnitKind::indexed || kind == UnitKind::attention ||
           kind == UnitKind::custom || kind == UnitKind::ragged;
  }

 private:
  const Links& links_;
  const Mesh& mesh_;
  bool separate_;

  /// Moves the axes of a dim that has to be whole (the dim of a sort) to the first dim that they divide and that no
  /// claim splits: an all_to_all then replaces an all_gather. Source: GSPMD does so for sorts.
  constexpr void move_off_whole_dims(const Link& link, const ValueShardings& values, int max_priority) {
    for (int s = link.first_dim; s < link.first_dim + link.dim_count; ++s) {
      const LinkDim& dim = links_.dims[static_cast<std::size_t>(s)];
      if (links_.factor(link, dim.factors[0]).kind != FactorKind::replicate) continue;
      const LinkOperand& operand = links_.operand(link, dim.operand);
      const Sharding& sharding = values.of[static_cast<std::size_t>(operand.node)];
      const std::uint8_t priority = sharding.priority[static_cast<int>(dim.dim)];
      if (priority > max_priority) continue;
      FactorClaim moved{{}, priority, false, FactorKind::pass, -1, operand.bytes};
      for (std::uint8_t axis : sharding.dims[static_cast<int>(dim.dim)]) {
        bool used = moved.axes.contains(axis);
        for (const FactorClaim& claim : claims) used = used || claim.axes.contains(axis);
        if (used) continue;
        std::int64_t size = mesh_.axis_size(axis);
        for (std::uint8_t earlier : moved.axes) size *= mesh_.axis_size(earlier);
        if (moved.factor < 0 || links_.factor(link, moved.factor).extent % size != 0) {
          const std::int8_t next = free_factor(link, mesh_.axis_size(axis), moved.factor);
          if (next < 0) continue;
          if (moved.factor >= 0) add(moved);
          moved.factor = next;
          moved.axes.clear();
        }
        moved.axes.push_back(axis);
      }
      if (moved.factor >= 0) add(moved);
    }
  }
  /// The first factor other than `taken` that has no claim and whose extent `size` divides; -1 when there is none.
  constexpr std::int8_t free_factor(const Link& link, std::int64_t size, int taken) const {
    for (int f = 0; f < link.factor_count; ++f) {
      const LinkFactor& factor = links_.factor(link, f);
      bool free = f != taken && factor.kind == FactorKind::pass && factor.extent % size == 0;
      for (const FactorClaim& claim : claims) free = free && claim.factor != f;
      if (free) return static_cast<std::int8_t>(f);
    }
    return -1;
  }

  constexpr void add_separately(FactorClaim made) {
    made.direct = made.bytes;
    FactorClaim* same = nullptr;
    for (FactorClaim& claim : claims) {
      if (claim.factor != made.factor || claim.priority != made.priority) continue;
      if (claim.axes == made.axes) {
        same = &claim;
      } else if (is_prefix(claim.axes, made.axes)) {
        claim.bytes += made.direct;
        claim.argument = claim.argument || made.argument;
      } else if (is_prefix(made.axes, claim.axes)) {
        made.bytes += claim.direct;
        made.argument = made.argument || claim.argument;
      }
    }
    if (same == nullptr) return claims.push_back(made);
    same->argument = same->argument || made.argument;
    same->bytes += made.direct;
    same->direct += made.direct;
  }
  constexpr void add(const FactorClaim& made) {
    if (separate_) return add_separately(made);
    for (FactorClaim& claim : claims) {
      if (claim.factor != made.factor || claim.priority != made.priority) continue;
      if (!is_prefix(claim.axes, made.axes) && !is_prefix(made.axes, claim.axes)) continue;
      if (made.axes.size() > claim.axes.size()) claim.axes = made.axes;
      claim.argument = claim.argument || made.argument;
      claim.bytes += made.bytes;
      return;
    }
    claims.push_back(made);
  }
  constexpr void sort() {
    for (std::size_t i = 1; i < claims.size(); ++i)
      for (std::size_t k = i; k > 0 && claims[k].before(claims[k - 1]); --k) {
        const FactorClaim moved = claims[k];
        claims[k] = claims[k - 1];
        claims[k - 1] = moved;
      }
  }
};

/// Propagates shardings along links, forwards and backwards, until nothing changes. A weaker claim never takes an axis
/// from a stronger claim. Order of strength: dims that are split for computing before dims that are only stored split;
/// within these, elementwise and data movement units before contractions, kept dims before summed dims, operands of
/// full shape before broadcast operands. Source: the order follows Shardy's propagation strategy.
class Propagation {
 public:
  constexpr Propagation(const Links& links, const Mesh& mesh, const ExplicitShardings& rules, ValueShardings& values)
      : links_(links), mesh_(mesh), rules_(rules), values_(values), claims_(links, mesh) {
    find_readers();
  }

  /// Returns whether any sharding changed.
  constexpr bool run() {
    changed_ = false;
    int level = 0;
    while (level >= 0) {
      mark_readers(level);
      for (int stage = 0; stage < stages; ++stage) {
        for (std::size_t l = 0; stage > 1 && l < dirty_.size(); ++l)
          if (visited_[l] && enters(links_.links[l], stage)) dirty_[l] = 1;
        settle(level, stage);
      }
      level = next_level(level);
    }
    return changed_;
  }

 private:
  // 0: kept factors of elementwise and data movement units; 1: of all units; 2: also summed dims and halos; 3: also
  // broadcast operands.
  static constexpr int stages = 4;
  const Links& links_;
  const Mesh& mesh_;
  const ExplicitShardings& rules_;
  ValueShardings& values_;
  ClaimList claims_;
  Growable<std::int32_t> reader_begin_, readers_;
  Growable<std::uint8_t> dirty_, visited_;
  bool changed_ = false;

  /// Factors whose split costs communication in the unit itself, so they are tried late.
  static constexpr bool is_late(FactorKind kind) {
    return kind == FactorKind::reduction || kind == FactorKind::permutation;
  }
  static constexpr bool elementwise(UnitKind kind) { return !ClaimList::reads_whole(kind); }

  constexpr void find_readers() {
    reader_begin_.assign(values_.of.size() + 1);
    for (const LinkOperand& operand : links_.operands) ++reader_begin_[static_cast<std::size_t>(operand.node) + 1];
    for (std::size_t i = 1; i < reader_begin_.size(); ++i) reader_begin_[i] += reader_begin_[i - 1];
    readers_.assign(links_.operands.size());
    Growable<std::int32_t> next = reader_begin_;
    for (std::size_t l = 0; l < links_.links.size(); ++l)
      for (int i = 0; i < links_.links[l].operand_count; ++i) {
        std::int32_t& at = next[static_cast<std::size_t>(links_.operand(links_.links[l], i).node)];
        readers_[static_cast<std::size_t>(at++)] = static_cast<std::int32_t>(l);
      }
  }

  /// Whether a link can pass on more in this stage than in the stage before it.
  constexpr bool enters(const Link& link, int stage) const {
    if (stage == 2) {
      for (int f = 0; f < link.factor_count; ++f)
        if (is_late(links_.factor(link, f).kind)) return true;
    } else if (stage == 3) {
      for (int i = 0; i < link.operand_count; ++i)
        if (links_.operand(link, i).narrow) return true;
    }
    return false;
  }

  /// Marks the links that have anything to pass on: those of a value with a dim split at this priority.
  constexpr void mark_readers(int level) {
    dirty_.assign(links_.links.size());
    visited_.assign(links_.links.size());
    for (std::size_t node = 0; node < values_.of.size(); ++node) {
      if (reader_begin_[node] == reader_begin_[node + 1] || !lies_at(values_.of[node], level)) continue;
      for (std::int32_t r = reader_begin_[node]; r < reader_begin_[node + 1]; ++r)
        dirty_[static_cast<std::size_t>(readers_[static_cast<std::size_t>(r)])] = 1;
    }
  }
  static constexpr bool lies_at(const Sharding& sharding, int level) {
    for (int d = 0; d < sharding.rank; ++d)
      if (sharding.priority[d] == level && !sharding.dims[d].empty()) return true;
    return false;
  }

  constexpr int next_level(int level) const {
    int next = -1;
    for (const Sharding& sharding : values_.of)
      for (int d = 0; d < sharding.rank; ++d)
        if (sharding.priority[d] > level && (next < 0 || sharding.priority[d] < next) && !sharding.dims[d].empty())
          next = sharding.priority[d];
    return next;
  }

  constexpr void settle(int level, int stage) {
    bool moved = true, forward = true;
    const std::size_t count = dirty_.size();
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t l = forward ? i : count - 1 - i;
        if (!dirty_[l] || (stage == 0 && !elementwise(links_.links[l].kind))) continue;
        dirty_[l] = 0;
        visited_[l] = 1;
        if (visit(links_.links[l], level, stage)) moved = true;
      }
      forward = !forward;
    }
  }

  constexpr bool visit(const Link& link, int level, int stage) {
    claims_.collect(link, values_, level, stage == 3);
    bool moved = false;
    for (const FactorClaim& claim : claims_.claims) {
      if (claim.priority > 0 && yields(claim)) continue;
      if (is_late(claim.kind) && stage < 2) continue;
      for (int s = link.first_dim; s < link.first_dim + link.dim_count; ++s) {
        const LinkDim& dim = links_.dims[static_cast<std::size_t>(s)];
        if (stands_behind(dim, claim.factor) && give(link, dim, claim)) moved = true;
      }
    }
    return moved;
  }

  /// A dim that is only stored split (FSDP) does not pass on an axis that a computation uses for another factor.
  constexpr bool yields(const FactorClaim& claim) const {
    for (const FactorClaim& other : claims_.claims) {
      if (other.priority >= claim.priority || other.factor == claim.factor) continue;
      for (std::uint8_t axis : claim.axes)
        if (other.axes.contains(axis)) return true;
    }
    return false;
  }
  static constexpr bool stands_behind(const LinkDim& dim, int factor) {
    for (int i = 0; i < dim.count; ++i)
      if (dim.factors[i] == factor) return true;
    return false;
  }

  constexpr bool give(const Link& link, const LinkDim& dim, const FactorClaim& claim) {
    const int node = links_.operand(link, dim.operand).node;
    if (values_.fixed[static_cast<std::size_t>(node)]) return false;
    Sharding& sharding = values_.of[static_cast<std::size_t>(node)];
    const int d = dim.dim;
    AxisList& own = sharding.dims[d];
    const AxisList wanted = join_axes(links_, link, dim, mesh_, [&](int factor) {
      if (factor == claim.factor) return splitting(links_.factor(link, factor), claim.axes, mesh_);
      for (const FactorClaim& other : claims_.claims)
        if (other.factor == factor && other.priority == claim.priority)
          return splitting(links_.factor(link, factor), other.axes, mesh_);
      return AxisList{};
    });
    if (wanted.size() <= own.size() || !is_prefix(own, wanted)) return false;
    if (!own.empty() && sharding.priority[d] != claim.priority) return false;
    bool moved = false;
    const unsigned closed = values_.closed[static_cast<std::size_t>(node)];
    for (std::size_t i = own.size(); i < wanted.size() && !sharding.uses(wanted[i]) && !(closed >> wanted[i] & 1u);
         ++i) {
      if (!rules_.allows(node, d, wanted[i])) break;
      own.push_back(wanted[i]);
      sharding.priority[d] = claim.priority;
      moved = true;
    }
    if (!moved) return false;
    changed_ = true;
    const auto at = static_cast<std::size_t>(node);
    for (std::int32_t r = reader_begin_[at]; r < reader_begin_[at + 1]; ++r)
      dirty_[static_cast<std::size_t>(readers_[static_cast<std::size_t>(r)])] = 1;
    return true;
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
