#ifndef TESSERA_OPTIM_MUON_HPP
#define TESSERA_OPTIM_MUON_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/ops/cond.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/statistics.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of Muon, with the defaults of torch.optim.Muon. They are Scalars, so a new learning rate needs no
/// new plan.
struct Muon {
  Scalar learning_rate = 1e-3;  ///< of matrices [inputs, outputs]; times sqrt(max(1, outputs / inputs))
  Scalar momentum = 0.95;
  Scalar weight_decay = 0.1;  ///< decoupled; of matrices
  Scalar epsilon = 1e-7;      ///< the least norm that a matrix is divided by
  AdamW others = {};          ///< for tensors that are not matrices
};

/// For a matrix, the running mean of its gradient; `square` is a zero of extents 1. For other tensors, the means of
/// AdamW.
template <class Model> struct MuonState {
  Model mean, square;
  Scalar step = 0;

  static constexpr std::array field_names{"mean", "square", "step"};
};

namespace detail {

/// Moves the singular values of matrices [..., n, m] close to 1, between 0.7 and 1.2, by five steps of Newton and
/// Schulz, x = a x + (b g + c g g) x with g = x x^T. A step costs least where x has no more rows than columns, so a
/// matrix that has is transposed.
template <class X> constexpr X orthogonalized(const X& matrices, const Scalar& epsilon, Here at) {
  constexpr int rows = X::rank - 2, columns = X::rank - 1;
  constexpr double a = 3.4445, b = -4.775, c = 2.0315;
  const auto product = [&](const X& x, const X& y) {
    if constexpr (X::rank == 2)
      return einsum<"ik,kj->ij">(x, y, at);
    else
      return einsum<"bik,bkj->bij">(x, y, at);
  };
  const auto transposed = [&](const X& x) { return swapaxes<rows, columns>(x, at); };
  const auto iterated = [&](const X& x) {
    return fori_loop(
        0, 5,
        [&](const auto&, const X& last) -> X {
          const X gram = product(last, transposed(last));
          return a * last + product(b * gram + c * product(gram, gram), last);
        },
        x, at);
  };
  const X x = matrices / maximum(norm<rows, columns>(matrices, keepdims, at), epsilon, at);
  const Value is_tall =
      build::greater(build::extent(here(matrices.value), rows), build::extent(here(matrices.value), columns));
  return cond(
      Scalar(build::cast(is_tall, DType::f64)), [&] { return transposed(iterated(transposed(x))); },
      [&] { return iterated(x); }, at);
}

/// The same for the matrix of a parameter, or for the matrices of a Stack's layers.
template <class T> constexpr Value orthogonalized(const Value& matrices, const Scalar& epsilon, Here at) {
  if (matrices.rank() == 2) return orthogonalized(Sym<T, 2>(matrices), epsilon, at).value;
  if (matrices.rank() == 3) return orthogonalized(Sym<T, 3>(matrices), epsilon, at).value;
  fail(errc::unsupported, "[muon] model: a Stack inside of a Stack; make its layers one Stack");
}

}  // namespace detail
}  // namespace optim

/// Inside a traced function: one step of Muon for the matrices of a model (tensors of rank 2), and of AdamW for all
/// other tensors. Returns (model, state).
///
///     m = mu m + (1 - mu) g,  u = mu m + (1 - mu) g,  o = u with its singular values near 1 (five Newton-Schulz steps)
///     p = p (1 - rate decay) - rate sqrt(max(1, outputs / inputs)) o      for p [inputs, outputs]
/// The layers of a Stack are separate matrices. Embedding tables and the head train better with AdamW: call an
/// optimizer for each part of the model.
///
///     const auto [blocks, blocks_state] = ts::muon(model.blocks, gradient.blocks, state.blocks, muon);
///     const auto [tokens, tokens_state] = ts::adamw(model.tokens, gradient.tokens, state.tokens, muon.others);
/// Arithmetic: in f32 for parameters in bf16 or f16. Communication: for a split matrix, that of its fifteen products.
/// Errors: structure when model, gradients and state differ; unsupported for a Stack inside of a Stack. Source: Jordan
/// and others, Muon: An optimizer for hidden layers in neural networks, 2024, as torch.optim.Muon with nesterov=True,
/// whose matrices are [outputs, inputs].
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto muon(const Model& model, const Gradients& gradients,
                    const optim::MuonState<optim::stored_t<Model>>& state, const optim::Muon& config = {},
                    Here at = Here::current()) {
  const optim::detail::OptimizerCall named("muon", model, at);
  const Growable<Value> any = optim::detail::parameters_of(model);
  if (any.empty()) fail(errc::structure, "[muon] model: the model has no floating-point tensor");
  const optim::detail::AdamWStep step(any.front().at(Source::from(at)), config.others, state.step);
  optim::detail::NextName<Model> next_name;
  auto [moved, mean, square] = optim::tree_map(
      [&](auto p, auto g, auto m, auto v) {
        using S = decltype(p);
        using Wide = std::conditional_t<std::is_same_v<typename S::element, double>, double, float>;
        const Value from = p.value.at(Source::from(at));
        const auto update = [&](const auto& x, const Value& parameter, const Value& slope, const Value& last_m,
                                const Value& last_v) {
          if constexpr (S::rank == 2) {
            const Value momentum = x.wide(config.momentum), rate = x.wide(config.learning_rate);
            const Value kept = x(momentum), in = x(1.0 - momentum);
            const Value next_m = kept * last_m + in * slope;
            const Value o = optim::detail::orthogonalized<Wide>(kept * next_m + in * slope, config.epsilon, at);
            const Value inputs = build::extent(parameter, parameter.rank() - 2);
            const Value outputs = build::extent(parameter, parameter.rank() - 1);
            const Value ratio = build::cast(outputs, DType::f64) / build::cast(inputs, DType::f64);
            const Value scale = build::apply<ops::SqrtOp>(build::apply<ops::MaximumOp>(ratio, ratio.number(1.0)));
            const Value next = x(1.0 - rate * x.wide(config.weight_decay)) * parameter - x(rate * scale) * o;
            return std::tuple(next, next_m, last_v);
          } else {
            const optim::detail::AdamWStep s = step.as(parameter.dtype());
            const auto [next_m, next_v] = s.next_means(slope, last_m, last_v);
            return std::tuple(s.moved(x, next_m, next_v), next_m, next_v);
          }
        };
        const optim::detail::Updated x{from, S::rank, next_name()};
        return std::apply([](const auto&... made) { return std::tuple(S(made)...); },
                          optim::detail::update_parameter(x, update, from, g.value, m.value, v.value));
      },
      model, detail::settle(gradients), state.mean, state.square);
  return std::tuple(moved, optim::MuonState<optim::stored_t<Model>>{mean, square, Scalar(step.count)});
}

namespace optim {

template <> struct Optimizer<Muon> {
  template <class Model> using State = MuonState<Model>;
  static constexpr auto step(const auto&... call) { return muon(call...); }
  /// Matrices have no means of squares: a zero of extents 1 is in their place.
  static constexpr void lay_out(int index, int rank, Shape& shape, PartitionSpec& spec) {
    if (index == 0 || rank != 2) return;
    shape = {1, 1};
    spec = {};
  }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
