#ifndef TESSERA_PARTITION_PROPAGATION_ASSIGN_HPP
#define TESSERA_PARTITION_PROPAGATION_ASSIGN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/propagation/propagate.hpp>
#include <tessera/partition/reshard/partial_parts.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// How one unit computes: the mesh axes that split each of its factors. No axis appears twice.
using FactorAxes = Growable<AxisList>;

/// Chooses the axes of a unit's factors from the shardings of its operands; the strongest claim (FactorClaim::before)
/// chooses first. A factor stays unsharded where some operand could not express the split: a minor factor of a merged
/// dim whose major factor is not fully split. Factor `whole` (-1: none) stays unsharded too.
constexpr FactorAxes assign_factors(const Links& links, const Link& link, const Mesh& mesh,
                                    const ValueShardings& values, int whole = -1) {
  FactorAxes chosen(static_cast<std::size_t>(link.factor_count));
  ClaimList claims(links, mesh, true);
  claims.collect(link, values, 255, true);
  unsigned used = 0;
  for (const FactorClaim& claim : claims.claims) {
    if (claim.factor == whole) continue;
    AxisList& own = chosen[static_cast<std::size_t>(claim.factor)];
    const AxisList wanted = splitting(links.factor(link, claim.factor), claim.axes, mesh);
    if (!is_prefix(own, wanted)) continue;
    for (std::size_t i = own.size(); i < wanted.size() && !(used >> wanted[i] & 1u); ++i) {
      own.push_back(wanted[i]);
      used |= 1u << wanted[i];
    }
  }
  // Clearing a factor for the sake of one dim may break the rule of major factors in another dim, so repeat.
  for (bool changed = true; changed;) {
    changed = false;
    for (int s = link.first_dim; s < link.first_dim + link.dim_count; ++s) {
      const LinkDim& dim = links.dims[static_cast<std::size_t>(s)];
      bool full = true;
      for (int i = 0; i < dim.count && dim.count > 1; ++i) {
        AxisList& own = chosen[static_cast<std::size_t>(dim.factors[i])];
        if (!full && !own.empty()) {
          own.clear();
          changed = true;
        }
        std::int64_t left = links.factor(link, dim.factors[i]).extent;
        for (std::uint8_t axis : own) left /= mesh.axis_size(axis);
        full = full && left <= 1;
      }
    }
  }
  return chosen;
}

/// The sharding of operand `i` of a link when its factors have these axes. For a result it leaves `unreduced` empty:
/// lacking_axes has the axes over which the result is partial.
constexpr Sharding sharding_of(const Links& links, const Link& link, int i, const FactorAxes& factors, int rank,
                               const Mesh& mesh) {
  Sharding sharding = replicated(rank);
  const LinkOperand& operand = links.operand(link, i);
  for (int d = 0; d < operand.dim_count; ++d) {
    const LinkDim& dim = links.dims[static_cast<std::size_t>(operand.first_dim + d)];
    sharding.dims[static_cast<int>(dim.dim)] =
        join_axes(links, link, dim, mesh, [&](int factor) { return factors[static_cast<std::size_t>(factor)]; });
  }
  return sharding;
}

/// The factors that the dims of operand `i` consist of, one bit each.
constexpr std::uint32_t factors_of(const Links& links, const Link& link, int i) {
  std::uint32_t present = 0;
  const LinkOperand& operand = links.operand(link, i);
  for (int d = 0; d < operand.dim_count; ++d) {
    const LinkDim& dim = links.dims[static_cast<std::size_t>(operand.first_dim + d)];
    for (int k = 0; k < dim.count; ++k) present |= 1u << dim.factors[k];
  }
  return present;
}

/// The axes of all factors that are not in operand `i`, one bit each. A result is partial over these axes.
constexpr std::uint16_t lacking_axes(const Links& links, const Link& link, int i, const FactorAxes& factors) {
  const std::uint32_t present = factors_of(links, link, i);
  std::uint16_t axes = 0;
  for (std::size_t f = 0; f < factors.size(); ++f)
    if (!(present >> f & 1u))
      for (std::uint8_t axis : factors[f]) axes = static_cast<std::uint16_t>(axes | 1u << axis);
  return axes;
}

/// The parts of partial result `i` that exist. A device has no part when its shard of a summed factor is empty: of 5
/// rows split over 4 devices in chunks of 2, the fourth device has none.
constexpr PartList lacking_parts(const Links& links, const Link& link, int i, const FactorAxes& factors,
                                 const Mesh& mesh) {
  const std::uint32_t present = factors_of(links, link, i);
  PartList parts;
  for (std::size_t f = 0; f < factors.size(); ++f) {
    const LinkFactor& factor = links.factor(link, static_cast<int>(f));
    if ((present >> f & 1u) || factors[f].empty() || factor.compound) continue;
    std::int64_t count = 1;
    for (std::uint8_t axis : factors[f]) count *= mesh.axis_size(axis);
    const std::int64_t chunk = factor.extent / count + (factor.extent % count != 0);
    const std::int64_t used = chunk == 0 ? 1 : factor.extent / chunk + (factor.extent % chunk != 0);
    if (used < count && parts.entries.size() < parts.entries.capacity())
      parts.entries.push_back({factors[f], static_cast<std::int32_t>(used)});
  }
  return parts;
}

constexpr std::uint16_t axes_of(const FactorAxes& factors) {
  std::uint16_t mask = 0;
  for (const AxisList& list : factors)
    for (std::uint8_t axis : list) mask = static_cast<std::uint16_t>(mask | 1u << axis);
  return mask;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
