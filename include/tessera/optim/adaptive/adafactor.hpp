#ifndef TESSERA_OPTIM_ADAPTIVE_ADAFACTOR_HPP
#define TESSERA_OPTIM_ADAPTIVE_ADAFACTOR_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>

#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/optim/gradients/tensor_norm.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of Adafactor, with the defaults of torch.optim.Adafactor for float32. They are Scalars, so a new
/// learning rate needs no new plan.
struct Adafactor {
  Scalar learning_rate = 1e-2;  ///< the largest rate relative to the size of a parameter
  Scalar beta2_decay = -0.8;    ///< the mean of squares forgets with t^beta2_decay
  Scalar epsilon1 = 0x1p-23;    ///< the least mean of squares, squared; PyTorch: that of the element type
  Scalar epsilon2 = 1e-3;       ///< the least size of a parameter
  Scalar clip_threshold = 1.0;  ///< d: the largest root mean square of an update, before the rate
  Scalar weight_decay = 0.0;    ///< decoupled; applies to tensors of rank 2 or more, not to biases and gains
};

/// Running means of the squares of a gradient. For a matrix [.., n, m] these are the means along its rows [.., n, 1]
/// and along its columns [.., 1, m], so n + m elements are stored instead of n m. For a tensor of rank 0 or 1, `row`
/// has all means, and `column` is a zero of extents 1.
template <class Model> struct AdafactorState {
  Model row, column;
  Scalar step = 0;

  static constexpr std::array field_names{"row", "column", "step"};
};

namespace detail {

/// The mean of the squares along some dims, with keepdims.
constexpr Value mean_of_squares(Value v, unsigned dims) {
  return build::sum_of(v * v, dims, true) / build::cast(build::element_count(v, dims), v.dtype());
}
/// The root of the mean square of a parameter, of each layer of a Stack separately.
constexpr Value root_mean_square(const Updated& x, Value v) {
  const unsigned dims = ((1u << x.rank) - 1) << (v.rank() - x.rank);
  const Value norm = tensor_norm(v, x.rank);
  if (x.rank == 0) return norm;
  return norm * build::apply<ops::RsqrtOp>(build::cast(build::element_count(v, dims), norm.dtype()));
}

}  // namespace detail
}  // namespace optim

/// Inside a traced function: one step of Adafactor, whose state for a matrix is a row and a column. Returns (model,
/// state).
///
///     w = t^beta2_decay,  r = (1 - w) r + w mean(g^2 along rows),  c likewise along columns
///     v = r c / mean(r),  u = g / sqrt(v),  u = u / max(1, rms(u) / d)
///     p = p (1 - rate decay) - max(epsilon2, rms(p)) min(rate, 1 / sqrt(t)) u
/// In tensors of rank 3 or more the last two dims are factored. Each layer of a Stack has separate means and sizes.
/// Communication: for a split parameter, all_reduces of its means and of the two sizes. Errors: structure when model,
/// gradients and state differ; unsupported for a tensor of a Stack whose last dim is split, as the norms of lamb.
/// Source: Shazeer, Stern, 1804.04235, as torch.optim.Adafactor except for the tensors without decay.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto adafactor(const Model& model, const Gradients& gradients,
                         const optim::AdafactorState<optim::stored_t<Model>>& state,
                         const optim::Adafactor& config = {}, Here at = Here::current()) {
  const optim::detail::OptimizerCall named("adafactor", model, at);
  const Scalar step = optim::detail::next_step("adafactor", model, state.step, at);
  auto [moved, row, column] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value r, Value c) {
        const Value count = x.wide(step), weight = build::apply<ops::PowOp>(count, x.wide(config.beta2_decay));
        const Value in = x(weight), kept = x(1.0 - weight), least = x(config.epsilon1);
        const auto averaged = [&](Value old, Value now) { return kept * old + in * now; };
        Value next_r = averaged(r, g * g), next_c = c, square = next_r;
        if (x.rank >= 2) {
          const unsigned last = 1u << (g.rank() - 1), before = last >> 1;
          next_r = averaged(r, optim::detail::mean_of_squares(g, last));
          next_c = averaged(c, optim::detail::mean_of_squares(g, before));
          // Only dims of static extent 1 are broadcast: a sum over an extent that is 1 when it runs makes such a dim.
          const Value rows = build::sum_of(next_r, last, true), columns = build::sum_of(next_c, before, true);
          const Value mean =
              build::sum_of(rows, before, true) / build::cast(build::element_count(g, before), g.dtype());
          square = rows * columns / build::apply<ops::MaximumOp>(mean, least);
        }
        const Value u = g * build::apply<ops::RsqrtOp>(build::apply<ops::MaximumOp>(square, least * least));
        const Value length = optim::detail::root_mean_square(x, u), size = optim::detail::root_mean_square(x, p);
        const auto wide = [&](const Scalar& of) { return build::cast(x.wide(of), length.dtype()); };
        const Value clip = build::apply<ops::MaximumOp>(length / wide(config.clip_threshold), length.number(1.0));
        const Value limit =
            build::apply<ops::MinimumOp>(x.wide(config.learning_rate), build::apply<ops::RsqrtOp>(count));
        const Value rate = build::apply<ops::MaximumOp>(size, wide(config.epsilon2)) * build::cast(limit, size.dtype());
        const Value decayed = x.decays() ? x(1.0 - x.wide(config.learning_rate) * x.wide(config.weight_decay)) * p : p;
        return std::tuple(decayed - x(rate / clip) * u, next_r, next_c);
      },
      model, gradients, state.row, state.column);
  return std::tuple(moved, optim::AdafactorState<optim::stored_t<Model>>{row, column, step});
}

namespace optim {

template <> struct Optimizer<Adafactor> {
  template <class Model> using State = AdafactorState<Model>;
  static constexpr auto step(const auto&... call) { return adafactor(call...); }
  /// Of the mean along one of the two last dims, this dim has extent 1 and is not split. Tensors with fewer dims have
  /// all means in the first model, and extents of 1 in the second.
  static constexpr void lay_out(int index, int rank, Shape& shape, PartitionSpec& spec) {
    while (spec.entries.size() < shape.size()) spec.entries.push_back(SpecEntry());
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const bool mean = rank >= 2 ? dim + (index == 0 ? 1 : 2) == shape.size() : index == 1;
      if (mean) shape[dim] = 1, spec.entries[dim] = SpecEntry();
    }
  }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
