#ifndef TESSERA_OPTIM_GRADIENTS_ACCUMULATE_HPP
#define TESSERA_OPTIM_GRADIENTS_ACCUMULATE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/optim/tree_map.hpp>

namespace tessera::optim {

namespace detail {

template <int Microbatches, class Loss> struct Accumulate {
  Loss loss;
  Here at;  ///< all operations have the line of ts::optim::accumulate

  template <class Model, class... Batch> constexpr auto operator()(const Model& model, const Batch&... batch) const {
    const auto add_part = [&](const auto& sum, const auto& part) {
      const auto [value, gradient] =
          std::apply([&](const auto&... own) { return value_and_grad(loss)(model, own...); }, part);
      return std::tuple(tree_map([&](auto a, auto b) { return call<AddTag>(Source::from(at), a, b); }, sum, gradient),
                        value);
    };
    // Microbatch i has the examples i, i + Microbatches, ...: every device has examples of each, so that none move.
    const auto [sum, values] = scan(add_part, tree_map([&](auto p) { return zeros_like(p, at); }, model),
                                    std::tuple(movedim<1, 0>(part_of(batch), at)...), {}, at);
    return std::tuple(mean(values, at),
                      tree_map([&](auto s) { return call<DivTag>(Source::from(at), s, Microbatches); }, sum));
  }

 private:
  template <TensorOperand X> constexpr auto part_of(const X& batch) const {
    static_assert(X::rank >= 1, "tessera: what accumulate divides into microbatches has a dim of the batch");
    using Split = tessera::detail::SplitTag<X::rank, 0, 2, MadeBy::accumulate>;
    return call<Split>(Source::from(at), batch, Dim(Microbatches));
  }
};

}  // namespace detail

/// Gradient accumulation: value_and_grad of a loss that is a mean over examples, computed for `Microbatches` parts of
/// the batch one after the other. Returns the mean loss and gradient. Activations need the memory of one microbatch.
///
///     const auto [loss, gradient] = ts::optim::accumulate<4>(loss_of)(model, x, t);   // x, t: [batch, ...]
/// Inside a traced function. Tensors after the model are cut along their first dim. Errors: not_divisible unless
/// Microbatches divides the batch. Communication: that of value_and_grad; gradients of replicated parameters are
/// reduced once, after the last microbatch (no_sync of PyTorch). A split batch does not move if Microbatches divides
/// the rows of each device.
template <int Microbatches, class Loss> constexpr auto accumulate(Loss loss, Here at = Here::current()) {
  static_assert(Microbatches > 0, "tessera: accumulate needs at least one microbatch");
  return detail::Accumulate<Microbatches, Loss>{loss, at};
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
