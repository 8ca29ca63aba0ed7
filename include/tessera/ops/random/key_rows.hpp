#ifndef TESSERA_OPS_RANDOM_KEY_ROWS_HPP
#define TESSERA_OPS_RANDOM_KEY_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/integers/philox.hpp>
#include <tessera/ops/elementwise/each_element.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera {

namespace ops {

/// The key derived from a key and a number: on the host from host scalars, in a kernel where either is a tensor.
struct FoldInOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "fold_in";
  static constexpr std::uint8_t flops = 80, lane_cost = 120;
  static constexpr bool of_bools = false, by_part = true;
  static constexpr std::int64_t folded(const HostNumber& key, const HostNumber& n) {
    return static_cast<std::int64_t>(
        kernels::fold_in(static_cast<std::uint64_t>(key.integer()), static_cast<std::uint64_t>(n.integer())));
  }
  static TESSERA_INLINE auto value(const auto& key, const auto& n) {
    return each_element([](auto k, auto i) { return static_cast<decltype(k)>(folded(k, i)); }, key, n);
  }
  static constexpr double value(const double& key, const double& n) { return static_cast<double>(folded(key, n)); }
  static constexpr HostNumber host(const HostContext& c) { return folded(c.operand(0), c.operand(1)); }
};

using KeyOperations = OperationList<FoldInOp>;

}  // namespace ops
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
