#ifndef TESSERA_OPTIM_STATE_INIT_STATE_HPP
#define TESSERA_OPTIM_STATE_INIT_STATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/storage_split.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/optim/adam/adam.hpp>
#include <tessera/optim/adam/adamax.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/adam/amsgrad.hpp>
#include <tessera/optim/adam/nadam.hpp>
#include <tessera/optim/adam/radam.hpp>
#include <tessera/optim/adaptive/adadelta.hpp>
#include <tessera/optim/adaptive/adafactor.hpp>
#include <tessera/optim/adaptive/adagrad.hpp>
#include <tessera/optim/adaptive/rmsprop.hpp>
#include <tessera/optim/adaptive/rprop.hpp>
#include <tessera/optim/asgd.hpp>
#include <tessera/optim/lamb.hpp>
#include <tessera/optim/lbfgs.hpp>
#include <tessera/optim/lion.hpp>
#include <tessera/optim/muon.hpp>
#include <tessera/optim/sgd.hpp>
#include <tessera/optim/state/factor_layout.hpp>
#include <tessera/optim/state/zero_redundancy.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/storage/require_data.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera::optim {

namespace detail {
struct ZeroParameters {
  template <class Leaf> void leaf(Leaf& leaf) {
    if constexpr (is_parameter_v<Leaf>) {
      const Mesh& on = mesh(leaf);
      leaf = zeros<typename Leaf::element, Leaf::rank>(shape(leaf), on, spec_of(sharding(leaf), on));
    }
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};

/// A copy of a model whose tensors are zeros; shapes, shardings and Dims stay.
template <class Model> Model zeros_of(Model model, Here at) {
  tessera::detail::require_data("init_state", model, at);
  ZeroParameters zero;
  for_each_leaf(model, zero);
  return model;
}

}  // namespace detail

/// The initial state of an optimizer for a model, as optimizer.init(params) of optax: zeros with the shapes and
/// shardings of the parameters. The type of the hyper-parameters selects the optimizer; their values are not used.
/// Errors: empty_tensor for a model with a tensor without data. No communication.
///
///     auto state = ts::optim::init_state(config, model);   // config: an AdamW, an Sgd (with momentum), ...
template <class Model> AdamWState<Model> init_state(const AdamW&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> SgdState<Model> init_state(const Sgd&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at)};
}
template <class Model>
DampenedSgdState<Model> init_state(const DampenedSgd&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), 0};
}
template <class Model> LionState<Model> init_state(const Lion&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at)};
}
template <class Model> AdamWState<Model> init_state(const Adam&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> RmsPropState<Model> init_state(const RmsProp&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at)};
}
template <class Model>
CenteredRmsPropState<Model> init_state(const CenteredRmsProp&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), detail::zeros_of(model, at)};
}
template <class Model> AdagradState<Model> init_state(const Adagrad&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at)};
}

template <class Model> AdadeltaState<Model> init_state(const Adadelta&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at)};
}
template <class Model> AdamaxState<Model> init_state(const Adamax&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> AmsGradState<Model> init_state(const AmsGrad&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> NAdamState<Model> init_state(const NAdam&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0, 1};
}
template <class Model> AdamWState<Model> init_state(const RAdam&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> AdamWState<Model> init_state(const Lamb&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> RpropState<Model> init_state(const Rprop&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), detail::zeros_of(model, at), 0};
}
template <class Model> AsgdState<Model> init_state(const Asgd&, const Model& model, Here at = Here::current()) {
  return {detail::zeros_of(model, at), 0};
}
/// The state of L-BFGS with another history length: `init_state<20>(ts::optim::Lbfgs{}, model)`.
template <int History, class Model>
LbfgsState<Model, History> init_state(const Lbfgs&, const Model& model, Here at = Here::current()) {
  const Model zeros = detail::zeros_of(model, at);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    const models_t<Model, History> none(((void)I, zeros)...);
    return LbfgsState<Model, History>{zeros, zeros, none, none, 0};
  }(std::make_index_sequence<static_cast<std::size_t>(History)>());
}
template <class Model>
LbfgsState<Model> init_state(const Lbfgs& config, const Model& model, Here at = Here::current()) {
  return init_state<10>(config, model, at);
}

namespace detail {

/// Makes a zero for each mean of squares.
struct FactorParameters {
  bool along_last;
  template <class Leaf> void leaf(Leaf& leaf) const {
    if constexpr (is_parameter_v<Leaf>) {
      const Mesh& on = mesh(leaf);
      Shape extents = shape(leaf);
      PartitionSpec spec = spec_of(sharding(leaf), on);
      keep_factor(extents, spec, Leaf::rank, along_last);
      leaf = zeros<typename Leaf::element, Leaf::rank>(extents, on, spec);
    }
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};
template <class Model> Model factor_of(Model model, bool along_last) {
  FactorParameters factor{along_last};
  for_each_leaf(model, factor);
  return model;
}

}  // namespace detail

template <class Model>
AdafactorState<Model> init_state(const Adafactor&, const Model& model, Here at = Here::current()) {
  tessera::detail::require_data("init_state", model, at);
  return {detail::factor_of(model, true), detail::factor_of(model, false), 0};
}

namespace detail {

/// Makes a zero of extents 1 for each matrix, and zeros with the shape of every other tensor.
struct SquaresOfMuon {
  template <class Leaf> void leaf(Leaf& leaf) const {
    if constexpr (is_parameter_v<Leaf>) {
      if constexpr (Leaf::rank == 2)
        leaf = zeros<typename Leaf::element, 2>(Shape{1, 1}, mesh(leaf), PartitionSpec());
      else
        ZeroParameters().leaf(leaf);
    }
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};

}  // namespace detail

template <class Model> MuonState<Model> init_state(const Muon&, const Model& model, Here at = Here::current()) {
  MuonState<Model> state{detail::zeros_of(model, at), model, 0};
  detail::SquaresOfMuon squares;
  for_each_leaf(state.square, squares);
  return state;
}

namespace detail {

/// Makes zeros of tensors, split along the axis: the first dim that is not split and has an index for each device, or
/// the longest one that is not split. Tensors that the axis splits already stay as they are.
struct SplitState {
  const ZeroRedundancy& zero;

  template <class Leaf> void leaf(Leaf& leaf) const {
    if constexpr (is_parameter_v<Leaf>) {
      const Mesh& on = mesh(leaf);
      const PartitionSpec before = spec_of(sharding(leaf), on);
      const PartitionSpec spec = split_in_storage(before, shape(leaf), on, zero.axis, StorageDim::enough);
      if (resolve(spec, on, Leaf::rank) == sharding(leaf)) return;
      leaf = zeros<typename Leaf::element, Leaf::rank>(shape(leaf), on, spec);
    }
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};

}  // namespace detail

/// The initial state, split over an axis:
///
///     auto state = ts::optim::init_state(config, model, ts::optim::ZeroRedundancy{"data"});
/// In an update each device computes its part: gradients are reduced by a reduce_scatter, and updated parameters are
/// gathered by an all_gather. Errors: mesh_axis for an axis that the mesh lacks. Communication: none in this function.
template <class Config, class Model>
auto init_state(const Config& config, const Model& model, const ZeroRedundancy& zero, Here at = Here::current()) {
  auto state = init_state(config, model, at);
  detail::SplitState split{zero};
  for_each_leaf(state, split);
  return state;
}

namespace detail {

/// A copy of a model in which the tensors that `frozen` names have no elements; those of rank 0 stay.
template <class Model> Model without(Model model, const nn::Names& frozen, Here at) {
  tessera::detail::require_data("init_state", model, at);
  nn::detail::UsedPatterns used(frozen);
  const auto look = [&](std::string_view name, const auto& leaf, int layers) {
    if constexpr (is_parameter_v<std::remove_cvref_t<decltype(leaf)>>) used.add(name, layers, Source::from(at));
  };
  tessera::detail::for_each_named_leaf(model, tessera::detail::VisitLayers::together, look);
  used.require_all("init_state", Source::from(at));
  const auto visit = [&](std::string_view name, auto& leaf, int) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (is_parameter_v<Leaf>) {
      if (Leaf::rank == 0 || !frozen.contain(name)) return;
      Shape none;
      for (int d = 0; d < Leaf::rank; ++d) none.push_back(0);
      leaf = zeros<typename Leaf::element, Leaf::rank>(none, mesh(leaf), PartitionSpec());
    }
  };
  tessera::detail::for_each_named_leaf(model, tessera::detail::VisitLayers::each_alike, visit);
  return model;
}

}  // namespace detail

/// The initial state for a model with frozen tensors (nn::freeze), whose moments have no elements, as in optax.masked
/// and for parameters without requires_grad in PyTorch. A step must call nn::keep_frozen with the same names; otherwise
/// it is the error structure. The moments of a frozen tensor of rank 0 are stored, and those of a tensor of a Stack of
/// which only some layers are frozen.
///
///     constexpr nn::Names frozen("tokens.*", "blocks.*.up.*");
///     auto state = ts::optim::init_state(config, model, frozen);
/// Errors: `option` for a pattern that names no floating-point tensor of the model, and for a layer that a Stack lacks.
template <class Config, class Model>
auto init_state(const Config& config, const Model& model, const nn::Names& frozen, Here at = Here::current()) {
  return init_state(config, detail::without(model, frozen, at), at);
}
/// The initial state for a model with frozen tensors, split over an axis.
template <class Config, class Model>
auto init_state(const Config& config, const Model& model, const nn::Names& frozen, const ZeroRedundancy& zero,
                Here at = Here::current()) {
  return init_state(config, detail::without(model, frozen, at), zero, at);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
