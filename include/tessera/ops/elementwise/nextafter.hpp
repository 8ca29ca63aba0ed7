#ifndef TESSERA_OPS_ELEMENTWISE_NEXTAFTER_HPP
#define TESSERA_OPS_ELEMENTWISE_NEXTAFTER_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>
#include <type_traits>

#include <tessera/ops/elementwise/each_element.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::ops {

struct NextafterOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "nextafter";
  static constexpr std::uint8_t flops = 4, lane_cost = 60;
  static constexpr bool of_bools = false, by_part = true;
  static TESSERA_INLINE auto value(const auto& x, const auto& y) {
    return each_element(
        [](auto a, auto b) {
          using T = decltype(a);
          if constexpr (std::is_same_v<T, float>)
            return __builtin_nextafterf(a, b);
          else
            return static_cast<T>(__builtin_nextafter(static_cast<double>(a), static_cast<double>(b)));
        },
        x, y);
  }
};

using NextafterOperations = OperationList<NextafterOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {
struct NextafterTag : Binary<ops::NextafterOp> {
  template <class A, class B> struct result : Binary<ops::NextafterOp>::template result<A, B> {
    using Checks = decltype([] {
      static_assert(
          std::is_same_v<typename Promote<A, B>::type, float> || std::is_same_v<typename Promote<A, B>::type, double>,
          "tessera: nextafter takes float and double tensors");
    });
  };
};
}  // namespace detail

/// The number after x in the direction of y, in the element type of both, float or double (torch.nextafter,
/// jnp.nextafter): the next larger number where y is larger, y where they are equal, NaN where either is. Operands are
/// broadcast and promoted. No gradient. Errors: shape_mismatch. No communication.
template <Operand X, Operand Y>
  requires(TensorOperand<X> || TensorOperand<Y>)
constexpr auto nextafter(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::NextafterTag>(Source::from(at), x, y);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
