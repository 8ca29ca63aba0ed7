#ifndef TESSERA_GRAPH_FUSE_FUSED_HPP
#define TESSERA_GRAPH_FUSE_FUSED_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/graph/ir/op.hpp>

namespace tessera {

/// How often a value of a fused kernel is computed.
enum class Level : std::uint8_t {
  uniform,  ///< once per call
  row,      ///< once per row
  element,  ///< once per element
};

/// What one instruction of a fused kernel does.
enum class InstrKind : std::uint8_t {
  load,     ///< reads input `a`: per element, or per row when the input has no extent along the row
  uniform,  ///< reads argument `a` of the call, a host scalar; of an i64 the bits
  index,    ///< global index along dim `a` of the iteration space: the row dim at element level, otherwise an outer dim
  compute,  ///< applies the elementwise `op` to instructions a, b, c
  reduce,   ///< combines instruction `a` along the row by `reduction`, in pass `phase - 1`; its level is row
};

/// One instruction. Operands are earlier instructions.
struct Instr {
  InstrKind kind = InstrKind::uniform;
  Op op = Op::constant;
  DType dtype = DType::f32;
  Level level = Level::uniform;
  std::uint8_t phase = 0;  ///< number of passes over the row that must be complete before the value exists
  std::uint8_t a = 0, b = 0, c = 0;
  Reduction reduction = Reduction::sum;
  friend constexpr bool operator==(const Instr&, const Instr&) = default;
};

/// How one output of a fused kernel is written.
enum class StoreKind : std::uint8_t {
  element,  ///< every element, in the pass of its phase
  row,      ///< one value per row (of an instruction at row or uniform level), at the beginning of its phase
  /// Combined by `reduction` into the output, whose stride along reduced dims is 0. A value at row or uniform level is
  /// combined once per row, unless `along_row` is set.
  accumulate,
};

struct Store {
  StoreKind kind = StoreKind::element;
  Reduction reduction = Reduction::sum;  ///< of `accumulate`
  bool along_row = false;                ///< of `accumulate`: the row dim is one of the reduced dims
  std::uint8_t instr = 0;                ///< the instruction whose value is stored
  DType dtype = DType::f32;
  friend constexpr bool operator==(const Store&, const Store&) = default;
};

/// One fused kernel: straight-line code that runs for every element of an iteration space [outer dims..., row dim]. It
/// passes over each row `phases` times: reductions along the row in pass p are available, at row level, from pass p + 1
/// on. Values at element level are recomputed in every pass that needs them. Stores at element level happen in the pass
/// of their phase (phase < phases); a row value of phase `phases` exists after the last pass.
struct Fused {
  static constexpr int max_instrs = 96, max_inputs = 24, max_outputs = 24, max_phases = 6;
  Instr instrs[max_instrs]{};
  Store stores[max_outputs]{};
  DType inputs[max_inputs]{};       ///< element types of the inputs
  bool input_in_row[max_inputs]{};  ///< false: static extent 1 along the row dim, so it is loaded once per row
  std::uint8_t instr_count = 0, store_count = 0, input_count = 0, uniform_count = 0;
  std::uint8_t phases = 1;

  friend constexpr bool operator==(const Fused& x, const Fused& y) {
    if (x.instr_count != y.instr_count || x.store_count != y.store_count || x.input_count != y.input_count ||
        x.uniform_count != y.uniform_count || x.phases != y.phases)
      return false;
    for (int i = 0; i < x.instr_count; ++i)
      if (!(x.instrs[i] == y.instrs[i])) return false;
    for (int i = 0; i < x.store_count; ++i)
      if (!(x.stores[i] == y.stores[i])) return false;
    for (int i = 0; i < x.input_count; ++i)
      if (x.inputs[i] != y.inputs[i] || x.input_in_row[i] != y.input_in_row[i]) return false;
    return true;
  }
};

/// How a fused kernel walks over one operand, in elements; 0 repeats. Without initialisers: a call has room for more
/// operands than it uses.
struct FusedStrides {
  std::int64_t outer_stride[7];  ///< along each outer dim
  std::int64_t row_stride;       ///< along the row dim: 0, 1 or any other
};

/// One operand of a fused kernel on one shard, which it reads or writes.
struct FusedView : FusedStrides {
  void* data;
};

/// One call of a fused kernel on a part of one shard: rows [row_begin, row_end) of the outer dims in row-major order,
/// and elements [inner_begin, inner_end) of each row. Kernels with more than one phase take whole rows.
struct FusedCall {
  int outer_rank = 0;
  std::int64_t outer_extent[7]{};
  /// global index of the shard's first element along each dim of the iteration space, the row dim last
  std::int64_t global_offset[8]{};
  std::int64_t row_begin = 0, row_end = 0, inner_begin = 0, inner_end = 0;
  const FusedView* inputs = nullptr;
  const FusedView* outputs = nullptr;  ///< accumulations are added to what the outputs hold
  const double* uniforms = nullptr;
  /// Runs passes [phase_begin, phase_end). If `row_values` is not null, results of reduce instructions of passes before
  /// phase_begin are read from it, and those of the passes that run are written to it: one slot for each reduce
  /// instruction, indexed [reduce][row] with rows counted as in row_begin, each a double, or for integers and bools the
  /// bits of an i64. Between passes, reductions along a sharded row are completed across shards in this way.
  int phase_begin = 0, phase_end = 1;
  double* row_values = nullptr;
  std::int64_t row_values_stride = 0;  ///< between the slots of two reduce instructions
  bool past_caches = false;  ///< store past the caches: results are not read soon, and don't overlap the inputs
};

/// The code of a fused kernel: a function, and what it reads besides its call, or null.
struct FusedKernel {
  void (*run)(const FusedCall& call, const void* lists) = nullptr;
  const void* lists = nullptr;

  void operator()(const FusedCall& call) const { run(call, lists); }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
