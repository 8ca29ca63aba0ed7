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
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/state/lay_out.hpp>
#include <tessera/optim/state/zero_redundancy.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/storage/require_data.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera::optim {

namespace detail {

/// Makes zeros of a model's tensors, in the layout of model `index` of an optimizer's state.
template <class Config> struct ZeroParameters {
  int index;
  template <class Leaf> void leaf(Leaf& leaf) const {
    if constexpr (is_parameter_v<Leaf>) {
      const Mesh& on = mesh(leaf);
      Shape extents = shape(leaf);
      PartitionSpec spec = spec_of(sharding(leaf), on);
      lay_out<Config>(index, Leaf::rank, extents, spec);
      leaf = zeros<typename Leaf::element, Leaf::rank>(extents, on, spec);
    }
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};

/// Makes the models of a state zeros, in order.
template <class Config, class Model> struct ZeroModels {
  const Model& model;
  int index = 0;

  template <class Part> void make(Part& part) {
    if constexpr (std::is_same_v<Part, Model>) {
      part = model;
      ZeroParameters<Config> zero{index++};
      for_each_leaf(part, zero);
    } else if constexpr (tessera::detail::is_tuple_v<Part>) {
      std::apply([&](auto&... items) { (make(items), ...); }, part);
    } else if constexpr (tessera::detail::is_array_v<Part>) {
      for (auto& item : part) make(item);
    } else if constexpr (!tessera::detail::is_leaf_v<Part>) {
      tessera::detail::for_each_field(part, [&](auto& field) { make(field); });
    }
  }
};

template <class State, class Config, class Model> State zero_state(const Model& model, Here at) {
  tessera::detail::require_data("init_state", model, at);
  State state{};
  ZeroModels<Config, Model>{model}.make(state);
  return state;
}

}  // namespace detail

/// The initial state of an optimizer for a model, as optimizer.init(params) of optax: zeros with the shapes and
/// shardings of the parameters. The type of the hyper-parameters selects the optimizer; their values are not used.
/// Errors: empty_tensor for a model with a tensor without data. No communication.
///
///     auto state = ts::optim::init_state(config, model);   // config: an AdamW, an Sgd (with momentum), ...
template <OptimizerConfig Config, class Model>
auto init_state(const Config&, const Model& model, Here at = Here::current()) {
  return detail::zero_state<typename Optimizer<Config>::template State<Model>, Config>(model, at);
}
/// The state of L-BFGS with a length of the history: `init_state<20>(ts::optim::Lbfgs{}, model)`.
template <int History, OptimizerConfig Config, class Model>
auto init_state(const Config&, const Model& model, Here at = Here::current()) {
  return detail::zero_state<typename Optimizer<Config>::template State<Model, History>, Config>(model, at);
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
