#ifndef TESSERA_OPTIM_INIT_STATE_HPP
#define TESSERA_OPTIM_INIT_STATE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/tree.hpp>
#include <tessera/optim/adamw.hpp>
#include <tessera/optim/lion.hpp>
#include <tessera/optim/sgd.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/tensor/creation.hpp>
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
template <class Model> Model zeros_of(Model model) {
  ZeroParameters zero;
  for_each_leaf(model, zero);
  return model;
}

}  // namespace detail

/// The initial state of AdamW.
template <class Model> AdamWState<Model> init_state(const Model& model) {
  return {detail::zeros_of(model), detail::zeros_of(model), 0};
}
/// The initial state of gradient descent with momentum.
template <class Model> SgdState<Model> init_momentum(const Model& model) { return {detail::zeros_of(model)}; }
/// The initial state of Lion.
template <class Model> LionState<Model> init_lion(const Model& model) { return {detail::zeros_of(model)}; }

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
