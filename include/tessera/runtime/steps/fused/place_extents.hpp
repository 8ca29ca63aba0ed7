#ifndef TESSERA_RUNTIME_STEPS_FUSED_PLACE_EXTENTS_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_PLACE_EXTENTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/steps/fused/fused_place.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime::inline TESSERA_ISA {

/// The dims over which the kernel calls of a fused unit loop: those of the iteration space, in fewer and longer rows
/// where strides allow it.
class PlaceExtents {
 public:
  PlaceExtents(const Fused& fused, int rank) : fused_(fused), rank_(rank) {
    for (int s = 0; s < fused_.store_count; ++s) {
      row_free_ = row_free_ && fused_.stores[s].kind != StoreKind::row;
      accumulates_ = accumulates_ || fused_.stores[s].kind == StoreKind::accumulate;
    }
    for (int i = 0; i < fused_.instr_count; ++i) {
      row_free_ = row_free_ && fused_.instrs[i].kind != InstrKind::reduce;
      uses_index_ = uses_index_ || fused_.instrs[i].kind == InstrKind::index;
    }
  }

  /// Sets the extents of the call on a shard. Adjacent dims that are contiguous in every operand merge, so that rows
  /// are long.
  void set(FusedPlace& place, const Shape& local) const {
    FusedCall& call = place.call;
    std::int64_t outer[8]{};
    int rank = rank_ > 0 ? rank_ - 1 : 0;
    for (int d = 0; d < rank; ++d) outer[d] = local[static_cast<std::size_t>(d)];
    place.inner = rank_ > 0 ? local[static_cast<std::size_t>(rank_ - 1)] : 1;
    // The strides of an empty shard are arbitrary, so they must not decide which dims merge.
    if (!uses_index_ && volume(local) > 0) {
      merge_outer_dims(place, outer, rank);
      if (row_free_) merge_into_rows(place, outer, rank);
      if (row_free_ && !accumulates_ && fused_.phases == 1) {
        turn_short_rows(place, outer, rank);
        find_transposed(place, outer, rank);
      }
    }
    call.outer_rank = rank;
    place.rows = 1;
    for (int d = 0; d < rank; ++d) {
      call.outer_extent[d] = outer[d];
      place.rows *= outer[d];
    }
  }

 private:
  const Fused& fused_;
  int rank_;
  bool row_free_ = true;      // no instruction or result is per row
  bool accumulates_ = false;  // some result is reduced over rows
  bool uses_index_ = false;

  /// Whether f(strides) is true for each operand; not called after the first for which it is false.
  template <class F> static bool each_operand(FusedPlace& place, F&& f) {
    bool all = true;
    for (FusedOperand& input : place.inputs) all = all && f(input.strides);
    for (FusedOperand& output : place.outputs) all = all && f(output.strides);
    return all;
  }

  static void merge_outer_dims(FusedPlace& place, std::int64_t* outer, int& rank) {
    for (int d = rank - 1; d > 0; --d) {  // merges dim d into dim d - 1
      if (outer[d] != 1 && outer[d - 1] != 1 &&
          !each_operand(place, [&](FusedStrides& v) { return v.outer_stride[d - 1] == v.outer_stride[d] * outer[d]; }))
        continue;
      each_operand(place, [&](FusedStrides& v) {
        if (outer[d] != 1) v.outer_stride[d - 1] = v.outer_stride[d];
        for (int e = d; e + 1 < rank; ++e) v.outer_stride[e] = v.outer_stride[e + 1];
        return true;
      });
      outer[d - 1] *= outer[d];
      for (int e = d; e + 1 < rank; ++e) outer[e] = outer[e + 1];
      --rank;
    }
  }

  /// Merges the last outer dims into the row.
  void merge_into_rows(FusedPlace& place, std::int64_t* outer, int& rank) const {
    while (rank > 0) {
      const int d = rank - 1;
      if (outer[d] != 1 && place.inner != 1 &&
          !each_operand(place, [&](FusedStrides& v) { return v.outer_stride[d] == v.row_stride * place.inner; }))
        return;
      if (varies_along(place, d, outer[d])) return;
      if (place.inner == 1)
        each_operand(place, [&](FusedStrides& v) {
          v.row_stride = outer[d] == 1 ? v.row_stride : v.outer_stride[d];
          return true;
        });
      place.inner *= outer[d];
      --rank;
    }
  }

  /// Whether the kernel would treat the parts of a row differently that has outer dim `d` too.
  bool varies_along(const FusedPlace& place, int d, std::int64_t extent) const {
    if (extent == 1) return false;
    // An operand that the kernel reads once per row must be constant along the merged row.
    for (std::size_t i = 0; i < place.inputs.size(); ++i)
      if (!fused_.input_in_row[i] && place.inputs[i].strides.outer_stride[d] != 0) return true;
    // A result must be reduced along both dims or along neither: the kernel treats the row alike throughout.
    for (int k = 0; k < fused_.store_count; ++k)
      if (fused_.stores[k].kind == StoreKind::accumulate &&
          fused_.stores[k].along_row != (place.outputs[static_cast<std::size_t>(k)].strides.outer_stride[d] == 0))
        return true;
    return false;
  }

  /// Makes the longest outer dim the row where rows are short, such as those of a column that a roll moves across the
  /// border: a call of the kernel for each row would cost more than the elements of the row.
  void turn_short_rows(FusedPlace& place, std::int64_t* outer, int rank) const {
    constexpr std::int64_t least = 16;
    int longest = 0;
    for (int d = 1; d < rank; ++d) longest = outer[d] > outer[longest] ? d : longest;
    if (rank == 0 || place.inner >= least || outer[longest] < 4 * least) return;
    for (std::size_t i = 0; i < place.inputs.size(); ++i)
      if (!fused_.input_in_row[i]) return;  // the kernel reads it once for a row
    std::swap(outer[longest], place.inner);
    for (auto* operands : {&place.inputs, &place.outputs})
      for (FusedOperand& own : *operands) std::swap(own.strides.outer_stride[longest], own.strides.row_stride);
  }

  /// Finds inputs that are contiguous along an outer dim instead of the row, and makes that dim the innermost outer
  /// dim. A tile then is a box of rows along this dim. It reads whole cache lines of these inputs once, as it copies
  /// its part to scratch; the kernel would read one element of a line at a time.
  void find_transposed(FusedPlace& place, std::int64_t* outer, int rank) const {
    constexpr std::int64_t least = 16;
    int turned = -1;
    std::int64_t most = 0;
    const auto is_transposed = [&](std::size_t i, int d) {
      const FusedStrides& own = place.inputs[i].strides;
      return place.inputs[i].is_stored() && fused_.input_in_row[i] && own.outer_stride[d] == 1 && own.row_stride != 1 &&
             own.row_stride != 0;
    };
    for (int d = 0; d < rank; ++d) {
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < place.inputs.size(); ++i)
        if (is_transposed(i, d)) bytes += static_cast<std::int64_t>(size_of(fused_.inputs[i]));
      if (place.inner >= least && outer[d] >= least && bytes > most) turned = d, most = bytes;
    }
    if (turned < 0) return;
    for (std::size_t i = 0; i < place.inputs.size(); ++i)
      if (is_transposed(i, turned)) place.transposed |= std::uint64_t{1} << i;
    std::swap(outer[turned], outer[rank - 1]);
    for (auto* operands : {&place.inputs, &place.outputs})
      for (FusedOperand& own : *operands)
        std::swap(own.strides.outer_stride[turned], own.strides.outer_stride[rank - 1]);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
