#ifndef TESSERA_RUNTIME_STEPS_FUSED_FUSED_PLACE_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_FUSED_PLACE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime::inline TESSERA_ISA {

/// An operand or result of a kernel call: its shard, and the offset in the shard at which the call begins.
struct FusedOperand {
  static constexpr std::int32_t in_scratch = -2;

  std::int32_t pointer = -1;  ///< index in Frame::pointers of the shard; -1: this place doesn't read or store it
  std::int64_t offset = 0;    ///< bytes from that pointer, or from the start of scratch, to the first element
  FusedStrides strides{};
  FusedStrides unmerged{};  ///< strides before adjacent dims were merged

  bool is_stored() const { return pointer >= 0 || pointer == in_scratch; }
  void* data(const Frame& frame) const {
    return (pointer == in_scratch ? frame.scratch : frame.pointers[static_cast<std::size_t>(pointer)]) + offset;
  }
};

/// A kernel call on one shard of the iteration space.
struct FusedPlace {
  FusedCall call;
  std::int64_t inner = 1, rows = 1;
  Growable<FusedOperand> inputs, outputs;
  std::int64_t row_values = 0;                    // offset in scratch
  std::int64_t unstored = 0, unstored_bytes = 0;  // scratch that takes results which another place stores
  int first_tile = 0, tiles = 0;
  std::int64_t run_rows = 0;     // rows after which f32 sums are added to f64 sums; 0: all sums are short enough
  int first_sum = 0, sums = 0;   ///< range in FusedTiles::sums
  std::uint64_t transposed = 0;  ///< bit i: a tile copies its part of input i to scratch, see find_transposed
  bool idle = false;             ///< has no tiles: it stores nothing, and no other place needs its row values
  bool joins_rows = false;       ///< its row values are combined with those of other places, maybe of other processes
};

}  // namespace tessera::runtime::inline TESSERA_ISA

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
