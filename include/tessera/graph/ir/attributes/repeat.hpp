#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_REPEAT_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_REPEAT_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// A call of a Stack or of ts::scan. Operands: `carried` values, then `stacked` values (dim 0 counts layers), then
/// invariants. Outputs: the carried values after the last layer, then stacked results. node.value is the index of the
/// body's graph.
struct Repeat {
  std::int32_t carried = 0, stacked = 0;
  bool reverse = false;  ///< layers run from the last to the first
  bool counted = false;  ///< no operand is stacked, so the last operand is the number of layers
  bool scan = false;     ///< of ts::scan, which may have no steps; otherwise of a Stack
  /// The last operand, or the last but one if `counted`, is an integer known only when the program runs: how many
  /// layers run, from layer 0 on. The plan counts all layers. Results of layers that do not run are zeros.
  bool limited = false;

  static constexpr Repeat of(const Node& node) {
    const auto packed = std::bit_cast<Packed>(node.labels);
    return {packed.carried,      packed.stacked,   packed.reverse != 0,
            packed.counted != 0, packed.scan != 0, packed.limited != 0};
  }
  constexpr Labels pack() const {
    return std::bit_cast<Labels>(Packed{
        carried, stacked, std::int8_t{reverse}, std::int8_t{counted}, std::int8_t{scan}, std::int8_t{limited}, {}});
  }
  constexpr Node node(int body, const Source& source) const {
    return {.op = Op::repeat, .labels = pack(), .value = static_cast<double>(body), .source = source};
  }
  constexpr bool is_stacked(int operand) const { return operand >= carried && operand < carried + stacked; }
  /// The index of the operand that says how many layers run, for a repeat with `arity` operands.
  constexpr int limit(int arity) const { return arity - (counted ? 2 : 1); }

 private:
  struct Packed {
    std::int32_t carried, stacked;
    std::int8_t reverse, counted, scan, limited, rest[12];
  };
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
