#ifndef TESSERA_GRAPH_FUSE_KERNEL_TABLE_HPP
#define TESSERA_GRAPH_FUSE_KERNEL_TABLE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/graph/fuse/units.hpp>

namespace tessera {

/// Writes the kernels of fused units; equal kernels are kept once.
class KernelTable {
 public:
  constexpr void add(const GraphView& graph, const UnitsView& units, int g, int u, Unit& unit) {
    detail::FusedWriter writer(graph, units, u);
    const Fused& fused = writer.write();
    std::uint64_t hash = fused.instr_count;
    for (int i = 0; i < fused.instr_count; ++i) hash = hash * 0x9e3779b97f4a7c15ull + hash_of(fused.instrs[i]);
    int kernel = 0;
    const int count = size();
    while (kernel < count && !(hashes_.data()[kernel] == hash && kernels_.data()[kernel] == fused)) ++kernel;
    if (kernel == count) {
      kernels_.push_back(fused);
      hashes_.push_back(hash);
      graphs_.push_back(g);
      units_.push_back(u);
    }
    unit.kernel = kernel;
    unit.phases = fused.phases;
    for (int i = 0; i < fused.instr_count; ++i)
      if (fused.instrs[i].kind == InstrKind::reduce) ++unit.phase_reduces;
  }
  constexpr int size() const { return static_cast<int>(kernels_.size()); }
  constexpr Growable<Fused>& kernels() { return kernels_; }
  /// The graph and the unit for which kernel k was first written.
  constexpr int graph_of(int k) const { return graphs_.data()[k]; }
  constexpr int unit_of(int k) const { return units_.data()[k]; }

 private:
  Growable<Fused> kernels_;
  Growable<std::uint64_t> hashes_;
  Growable<int> graphs_, units_;

  static constexpr std::uint64_t hash_of(const Instr& i) {
    return static_cast<std::uint64_t>(i.op) << 24 ^ static_cast<std::uint64_t>(i.kind) << 32 ^
           static_cast<std::uint64_t>(i.reduction) << 40 ^ static_cast<std::uint64_t>(i.a) << 16 ^
           static_cast<std::uint64_t>(i.b) << 8 ^ i.c;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
