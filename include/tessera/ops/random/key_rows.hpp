#ifndef TESSERA_OPS_RANDOM_KEY_ROWS_HPP
#define TESSERA_OPS_RANDOM_KEY_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/philox.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera {

namespace ops {

/// The key derived from a key and a number. Both are host scalars, and so is the result: no kernel computes it.
struct FoldInOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "fold_in";
  static constexpr bool of_bools = false;
  static constexpr std::int64_t folded(const HostNumber& key, const HostNumber& n) {
    return static_cast<std::int64_t>(
        kernels::fold_in(static_cast<std::uint64_t>(key.integer()), static_cast<std::uint64_t>(n.integer())));
  }
  static constexpr double value(double key, double n) { return static_cast<double>(folded(key, n)); }
  static constexpr HostNumber host(const HostContext& c) { return folded(c.operand(0), c.operand(1)); }
};

using KeyOperations = OperationList<FoldInOp>;

}  // namespace ops
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
