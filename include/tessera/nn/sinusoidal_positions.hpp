#ifndef TESSERA_NN_SINUSOIDAL_POSITIONS_HPP
#define TESSERA_NN_SINUSOIDAL_POSITIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera {

namespace detail {

/// The sinusoids of the last two dims of x, [time, features].
struct SinusoidalPositionsTag {
  template <class X, class Offset> struct result : Typed<double, 2> {
    using Checks = decltype([] {
      static_assert(X::rank >= 2, "tessera: sinusoidal_positions takes x of rank 2 or more: [..., time, features]");
      static_assert(Offset::rank == 0, "tessera: the first of sinusoidal_positions is a number or an integer tensor of "
                                       "rank 0");
    });
  };
  static constexpr Value emit(Value context, Value x, Value offset) {
    x = x.at(context.source);
    const Value first = build::cast(offset.at(context.source), DType::f64);
    const int time = x.rank() - 2, features = x.rank() - 1;
    // A static extent of 1 stays one.
    const Value place =
        x.is_singleton(time)
            ? build::insert_singletons(first, 3, 2)
            : build::insert_singletons(
                  build::cast(build::arange(build::extent(x, time), DType::i64), DType::f64) + first, 2, 2);
    if (x.is_singleton(features)) return build::unary(ops::op_v<ops::SinOp>, place);
    const Value width = build::extent(x, features), element = build::cast(build::arange(width, DType::i64), DType::f64);
    const Value pair = build::unary(ops::op_v<ops::FloorOp>, element * 0.5), odd = element - pair * 2.0;
    const Value exponent = pair * 2.0 / build::cast(width, DType::f64);
    const Value frequency = build::binary(ops::op_v<ops::PowOp>, element.number(10000), exponent.number(0) - exponent);
    const auto of_features = [](Value row) { return build::insert_singletons(row, 1, 2); };
    // cos(a) is sin(a + pi / 2)
    return build::unary(ops::op_v<ops::SinOp>, place * of_features(frequency) + of_features(odd * 1.57079632679489662));
  }
};

}  // namespace detail

namespace nn {

/// The sinusoidal position encoding of the original transformer, to be added to token embeddings. At position t and
/// feature i it is sin(t 10000^(-i / features)) for an even i, and the cosine of the angle of i - 1 for an odd i.
///
/// For x [..., time, features], in a traced function or an expression, it is [time, features], in the element type of
/// x, computed in f64. The first position is `first`: a number, a Scalar or an integer tensor of rank 0, for generation
/// with a cache. Split as x is. Communication: none.
///
///     const auto y = x + ts::nn::sinusoidal_positions(x);
/// `sinusoidal_positions(time, features, mesh, spec)` is a stored tensor. For learned positions, use Positions. Source:
/// Vaswani et al., 1706.03762.
template <TensorArgument X, Operand First = int>
constexpr auto sinusoidal_positions(const X& x, const First& first = 0, Here at = Here::current()) {
  return cast<typename X::element>(call<tessera::detail::SinusoidalPositionsTag>(Source::from(at), x, first), at);
}
template <Element T = float>
ShardedTensor<T, 2> sinusoidal_positions(Extent time, Extent features, const Mesh& mesh, const PartitionSpec& spec = {},
                                         Here at = Here::current()) {
  const auto write = [n = static_cast<double>(features.value)](T* data, const Box& box) {
    for (std::int64_t t = box.begin[0]; t < box.end[0]; ++t)
      for (std::int64_t i = box.begin[1]; i < box.end[1]; ++i) {
        const double angle = static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i - i % 2) / n);
        *data++ = static_cast<T>(static_cast<computed_t<T>>(i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
  };
  return tensor_of<T, 2>(tessera::detail::created<T>("sinusoidal_positions", {time.value, features.value}, 2, mesh,
                                                     spec, at, Cost{100}, write));
}

}  // namespace nn

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
