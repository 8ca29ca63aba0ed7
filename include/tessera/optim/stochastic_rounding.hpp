#ifndef TESSERA_OPTIM_STOCHASTIC_ROUNDING_HPP
#define TESSERA_OPTIM_STOCHASTIC_ROUNDING_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/random/keys.hpp>
#include <tessera/ops/random/stochastic_round.hpp>
#include <tessera/optim/update.hpp>

namespace tessera::optim {

/// Inside a traced function: the f32 parameters of a model, rounded stochastically to bf16 numbers by
/// ts::stochastic_round, so that casting the model to bf16 is exact. Each tensor uses different random numbers;
/// parameters of other element types are unchanged. With it, parameters that are stored only in bf16 train as well as
/// with f32 copies, since small updates are kept on average. Communication: none. Source: Gupta et al., ICML 2015;
/// Zamirai et al., 2010.06192.
///
///     auto [next, next_state] = ts::adamw(ts::cast_model<float>(model), gradients, state, config);
///     return std::tuple(ts::cast_model<ts::bf16>(ts::optim::stochastic_round(next, key)), next_state);
template <class Model>
constexpr Model stochastic_round(const Model& model, const Scalar& key, Here at = Here::current()) {
  int tensor = 0;
  return std::get<0>(detail::map_parameters(
      at,
      [&](const auto& x, Value p, Value) {
        const Scalar own = fold_in(key, tensor++, at);
        if (p.dtype() != DType::f32) return std::tuple(p);
        return std::tuple(build::stochastically_rounded(p, x.wide(own), 0));
      },
      model, model));
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
