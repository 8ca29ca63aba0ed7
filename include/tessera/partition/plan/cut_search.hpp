#ifndef TESSERA_PARTITION_PLAN_CUT_SEARCH_HPP
#define TESSERA_PARTITION_PLAN_CUT_SEARCH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sub_axes.hpp>
#include <tessera/partition/plan/planned_mesh.hpp>
#include <tessera/partition/propagation/solve.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

constexpr std::int64_t greatest_common_divisor(std::int64_t a, std::int64_t b) {
  while (b != 0) {
    const std::int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// Finds mesh axes to cut into sub-axes: an axis that splits a dim which a reshape splits or merges, and that is larger
/// than one of the dim's factors. Example: 8 rows split over x = 4 are reshaped to 2 x 4. The 2 takes the first half of
/// x (a sub-axis of size 2), the 4 the second half.
class CutSearch {
 public:
  /// `shardings`: those of the program on the given mesh. A cut must leave each of them expressible (AxisList is
  /// bounded).
  constexpr CutSearch(const ProgramView& program, const PlannedMesh& mesh, const Growable<Sharding>& shardings)
      : program_(program), mesh_(mesh), shardings_(shardings), table_(sub_axes(mesh.given, mesh.cuts)),
        cuts_(mesh.cuts) {}

  constexpr bool found() const { return !(cuts_ == mesh_.cuts); }
  /// The cuts of the mesh and those found so far.
  constexpr const AxisCuts& cuts() const { return cuts_; }

  constexpr void visit(const ShardingSolver& solver, const Growable<GraphShapes>& found) {
    for (std::size_t g = 0; g < solver.links.size(); ++g)
      if (solver.links[g].splits_dims) visit(solver.links[g], solver.values[g], found[g]);
  }

  /// Cuts axes so that the factors of a dim, the most significant first, take all of its axes. False where that is
  /// impossible.
  template <class ExtentOf> constexpr bool cut_all(const AxisList& axes, int factors, ExtentOf&& extent_of) {
    std::int64_t left = 1, size = 1;
    std::size_t next = 0;
    AxisCuts wanted = cuts_;
    SubAxis part;
    for (int f = 0; f < factors; ++f) {
      for (left *= extent_of(f); left > 1;) {
        if (size == 1 && next < axes.size()) {
          part = table_[axes[next++]];
          size = part.size;
        }
        if (size == 1) return try_cuts(wanted);
        const std::int64_t common = greatest_common_divisor(left, size);
        if (common == 1) return false;
        if (common < size && !wanted.add(part.axis, static_cast<std::int32_t>(part.before * common))) return false;
        part.before *= static_cast<std::int32_t>(common);
        left /= common;
        size /= common;
      }
    }
    return next == axes.size() && size == 1 && try_cuts(wanted);
  }

 private:
  ProgramView program_;
  const PlannedMesh& mesh_;
  const Growable<Sharding>& shardings_;
  SubAxisTable table_;
  AxisCuts cuts_;

  constexpr void visit(const Links& links, const ValueShardings& values, const GraphShapes& found) {
    for (const Link& link : links.links)
      for (int d = link.first_dim; d < link.first_dim + link.dim_count; ++d) {
        const LinkDim& dim = links.dims[static_cast<std::size_t>(d)];
        if (dim.count < 2) continue;
        const auto node = static_cast<std::size_t>(links.operand(link, dim.operand).node);
        const AxisList& axes = values.of[node].dims[static_cast<int>(dim.dim)];
        std::int64_t shards = 1;
        for (std::uint8_t axis : axes) shards *= mesh_.refined.axis_size(axis);
        // With uneven shards, the shards of a factor are not unions of the shards of the dim.
        if (shards > 1 && found.shapes[node][static_cast<std::size_t>(dim.dim)] % shards == 0)
          cut_first(links, link, dim, axes);
      }
  }
  /// Cuts the first axis that is larger than what is left of the factor that it would split.
  constexpr void cut_first(const Links& links, const Link& link, const LinkDim& dim, const AxisList& axes) {
    std::size_t next = 0;
    for (int i = 0; i < dim.count; ++i) {
      std::int64_t left = links.factor(link, dim.factors[i]).extent;
      for (; next < axes.size() && left > 1; ++next) {
        const SubAxis& part = table_[axes[next]];
        const std::int64_t common = greatest_common_divisor(left, part.size);
        if (common == part.size) {
          left /= common;
          continue;
        }
        AxisCuts wanted = cuts_;
        if (common > 1 && wanted.add(part.axis, static_cast<std::int32_t>(part.before * common))) try_cuts(wanted);
        return;
      }
      if (left > 1) return;
    }
  }

  constexpr bool try_cuts(const AxisCuts& wanted) {
    if (wanted == cuts_) return true;
    if (!can_cut(mesh_.given, wanted) || !has_names(wanted)) return false;
    for (const Sharding& sharding : shardings_)
      if (!has_room(sharding, wanted)) return false;
    for (int g = 0; g < program_.graph_count; ++g)
      for (int id = 0; id < program_.graphs[g].size; ++id)
        if (const Node& node = program_.graphs[g][id]; row_of(node).constrains)
          if (!has_room(resolve(program_.specs[node.index()], mesh_.given, node.rank), wanted)) return false;
    cuts_ = wanted;
    return true;
  }
  constexpr bool has_room(const Sharding& sharding, const AxisCuts& wanted) const {
    Sharding made = sharding;
    return SubAxisSharding(sharding, mesh_.given).write(made, mesh_.given, wanted);
  }
  /// Whether a Name can hold the names of the sub-axes.
  constexpr bool has_names(const AxisCuts& wanted) const {
    for (int i = 0; i < wanted.size(); ++i) {
      const Axis& axis = mesh_.given.axes()[static_cast<std::size_t>(wanted.axis(i))];
      const NamedSubAxis own = named_sub_axis(axis.name.view());
      const std::int64_t most = std::int64_t{own.before} * axis.size;
      std::size_t digits = 0;
      for (std::int64_t n = most; n > 0; n /= 10) ++digits;
      if (most > INT32_MAX || own.axis.size() + 3 + 2 * digits > Name::max_length) return false;
    }
    return true;
  }
};

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
