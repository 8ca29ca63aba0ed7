#ifndef TESSERA_NN_LOSSES_HPP
#define TESSERA_NN_LOSSES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>

namespace tessera {

/// How a loss reduces the losses of the elements, as PyTorch's argument `reduction`; `each` is PyTorch's "none".
enum class LossReduction : std::uint8_t { each, mean, sum };

namespace build {
/// The losses of the elements, or their mean or sum over all dims after the first `lead`.
constexpr Value reduce_loss(Value losses, int lead, LossReduction reduction) {
  if (reduction == LossReduction::each) return losses;
  if (reduction == LossReduction::mean) return mean_of_all(losses, lead);
  return reduce(Op::sum, losses, ((1u << losses.rank()) - 1) & ~((1u << lead) - 1), false);
}
}  // namespace build

namespace detail {

template <int Rank, LossReduction Reduction> struct HuberTag {
  template <class X, class Y, class Delta> struct result {
    using type = loss_t<X>;
    static constexpr int rank = Reduction == LossReduction::each ? X::rank : 0;
    using Checks = decltype([] {
      static_assert(floating_v<X> && std::is_same_v<typename X::type, typename Y::type> && X::rank == Y::rank,
                    "tessera: huber takes two float, double or bf16 tensors of equal rank and element type");
    });
  };
  static constexpr Value emit(Value context, Value x, Value y, Value delta) {
    if (delta.node().is_constant() && !(delta.node().value > 0))
      context.refuse(errc::option, "[huber] delta: delta is not above 0");
    const DType type = computed_as(x.dtype());
    const Value off = build::unary(Op::abs, build::cast(x.at(context.source), type) - build::cast(y, type));
    // With c = min(|x - y|, delta), both branches are c (|x - y| - c / 2).
    const Value near = build::binary(Op::minimum, off, build::cast(delta, type));
    return build::reduce_loss(near * (off - near * 0.5), off.leading(Rank), Reduction);
  }
};

}  // namespace detail

/// The Huber loss, as torch.nn.functional.huber_loss: (x - y)^2 / 2 where |x - y| is at most delta, and
/// delta (|x - y| - delta / 2) elsewhere. Its gradient is x - y, clipped to [-delta, delta], and NaN where x - y is
/// NaN.
///
/// Shapes: x and y have equal shapes. The result is the mean over all elements, with `LossReduction::sum` their sum, or
/// with `LossReduction::each` a tensor of that shape. Losses of bf16 are f32. The mean of no elements is NaN, as in
/// mse. Errors: shape_mismatch; option for a constant delta that is not above 0. Communication: for sharded operands
/// one all_reduce of a scalar, or none with `LossReduction::each`. Source: Huber, Annals of Statistics 35 (1964).
///
///     ts::huber(model(x), target), ts::huber<ts::LossReduction::sum>(model(x), target, 0.5)
template <LossReduction Reduction = LossReduction::mean, TensorOperand X, TensorOperand Y, NumberOperand Delta = double>
constexpr auto huber(const X& x, const Y& y, const Delta& delta = 1.0, Here at = Here::current()) {
  return call<detail::HuberTag<X::rank, Reduction>>(Source::from(at), x, y, delta);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
