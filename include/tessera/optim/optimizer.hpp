#ifndef TESSERA_OPTIM_OPTIMIZER_HPP
#define TESSERA_OPTIM_OPTIMIZER_HPP
#include <tessera/base/push_macros.hpp>

namespace tessera::optim {

/// What init_state(), optimizer_step() and train::train_step() know about the optimizer whose hyper-parameters are a
/// `Config`. Each optimizer specialises it beside its function, and so can your own:
///
///     template <> struct ts::optim::Optimizer<SignSgd> {
///       template <class Model> using State = SignSgdState<Model>;
///       static constexpr auto step(const auto&... call) { return sign_sgd(call...); }
///     };
/// A state is a plain struct of models and Scalars. init_state() makes its models zeros, with the shapes and shardings
/// of the parameters, and leaves the Scalars at the values of their initialisers. `step` is called with the model, the
/// gradients, the state, the config and the user's line (a Here), and returns (model, state).
///
/// Where a model of the state has other shapes, a third member changes the shape and the spec of a parameter of a rank
/// into those of its tensor in model `index` of the state:
///
///       static constexpr void lay_out(int index, int rank, Shape& shape, PartitionSpec& spec);
template <class Config> struct Optimizer;

/// The hyper-parameters of an optimizer: an AdamW, an Sgd, ...
template <class Config>
concept OptimizerConfig = requires { sizeof(Optimizer<Config>); };

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
