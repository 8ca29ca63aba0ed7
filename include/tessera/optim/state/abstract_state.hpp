#ifndef TESSERA_OPTIM_STATE_ABSTRACT_STATE_HPP
#define TESSERA_OPTIM_STATE_ABSTRACT_STATE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/storage_split.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/state/lay_out.hpp>
#include <tessera/optim/state/zero_redundancy.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/update.hpp>
#include <tessera/partition/plan/abstract.hpp>

namespace tessera::optim {

namespace detail {

/// Whether a leaf of a model is a parameter, and the rank of its type.
struct LeafKind {
  bool is_parameter = false;
  int rank = 0;
};
template <std::size_t N> struct FindLeafKinds {
  std::array<LeafKind, N> kinds{};
  std::size_t count = 0;
  template <class Leaf> constexpr void leaf(Leaf&) {
    if constexpr (is_parameter_v<Leaf>) kinds[count] = {true, Leaf::rank};
    ++count;
  }
  constexpr void enter_stack(auto& stack) { stack.layers().resize(1); }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class Model> constexpr auto leaf_kinds() {
  Model any{};
  FindLeafKinds<tessera::detail::leaf_count<Model>()> found;
  for_each_leaf(any, found);
  return found.kinds;
}

/// Where a leaf of a state comes from: the leaf of the model, in model `index` of the state; -1 for a Scalar.
struct StateLeaf {
  int leaf = -1;
  int index = 0;
};
/// The leaves of a state whose parts are models of one type and Scalars, in order.
template <class Model, std::size_t Count> struct FindStateLeaves {
  static constexpr std::size_t of_model = tessera::detail::leaf_count<Model>();
  std::array<StateLeaf, Count> leaves{};
  std::size_t count = 0;
  int index = 0;

  template <class Part> constexpr void find(const Part& part) {
    if constexpr (std::is_same_v<Part, Model>) {
      for (std::size_t i = 0; i < of_model; ++i) leaves[count++] = {static_cast<int>(i), index};
      ++index;
    } else if constexpr (tessera::detail::is_leaf_v<Part>) {
      ++count;
    } else if constexpr (tessera::detail::is_tuple_v<Part>) {
      std::apply([&](const auto&... items) { (find(items), ...); }, part);
    } else if constexpr (tessera::detail::is_array_v<Part>) {
      for (const auto& item : part) find(item);
    } else {
      tessera::detail::for_each_field(part, [&](const auto& field) { find(field); });
    }
  }
};

/// The state of an optimizer for a model without data. After an error in the number of the model's leaves no other
/// error follows.
template <class State, class Config, class Model, std::size_t N>
constexpr auto abstract_state(const AbstractArgument<Model, N>& model) {
  constexpr std::size_t count = tessera::detail::leaf_count<State>();
  constexpr auto kinds = leaf_kinds<Model>();
  constexpr auto leaves = [] {
    FindStateLeaves<Model, count> found;
    found.find(State{});
    return found.leaves;
  }();
  const auto made = [&](const StateLeaf& of) {
    if (of.leaf < 0) return Abstract({});
    const auto i = static_cast<std::size_t>(of.leaf);
    Abstract leaf = model.leaves[i < N ? i : 0];
    if (kinds[i].is_parameter) lay_out<Config>(of.index, kinds[i].rank, leaf.shape, leaf.spec);
    return leaf;
  };
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return AbstractArgument<State, count>{{made(leaves[I])...}};
  }(std::make_index_sequence<count>());
}

}  // namespace detail

/// The state of an optimizer for a model without data, for ts::plan: what init_state returns for the model, as
/// jax.eval_shape(optimizer.init, params).
///
///     const auto model = ts::abstract<Mlp>({{{64, 256}, {ts::none, "model"}}, {{256, 64}, {"model"}}});
///     const auto state = ts::optim::init_state(config, model);   // config: an AdamW, an Sgd, ...
///     ts::plan(train_step, mesh, model, state, ts::abstract(config), batch, batch)
template <OptimizerConfig Config, class Model, std::size_t N>
constexpr auto init_state(const Config&, const AbstractArgument<Model, N>& model) {
  return detail::abstract_state<typename Optimizer<Config>::template State<Model>, Config>(model);
}
/// The state of L-BFGS with a length of the history: `init_state<20>(ts::optim::Lbfgs{}, model)`.
template <int History, OptimizerConfig Config, class Model, std::size_t N>
constexpr auto init_state(const Config&, const AbstractArgument<Model, N>& model) {
  return detail::abstract_state<typename Optimizer<Config>::template State<Model, History>, Config>(model);
}

namespace detail {

/// A model in which the tensors that `frozen` names have no elements; those of rank 0 stay.
template <class Model, std::size_t N>
constexpr AbstractArgument<Model, N> without(AbstractArgument<Model, N> model, const nn::Names& frozen, Here at) {
  nn::detail::UsedPatterns used(frozen);
  std::size_t next = 0;
  Model any{};
  OneLayer one;
  for_each_leaf(any, one);
  tessera::detail::for_each_named_leaf(any, tessera::detail::VisitLayers::together,
                                       [&](std::string_view name, auto& leaf, int) {
                                         using Leaf = std::remove_cvref_t<decltype(leaf)>;
                                         if (next == N) return;  // an error has been reported
                                         Abstract& own = model.leaves[next++];
                                         if constexpr (is_parameter_v<Leaf>) {
                                           used.add(name, own.layers, Source::from(at));
                                           if (Leaf::rank == 0 || !frozen.contain(name)) return;
                                           own.spec = {};
                                           for (std::int64_t& extent : own.shape) extent = 0;
                                         }
                                       });
  used.require_all("init_state", Source::from(at));
  return model;
}

}  // namespace detail

/// The state for a model with frozen tensors, without data.
template <class Config, class Model, std::size_t N>
constexpr auto init_state(const Config& config, const AbstractArgument<Model, N>& model, const nn::Names& frozen,
                          Here at = Here::current()) {
  return init_state(config, detail::without(model, frozen, at));
}
/// The state split over an axis of the mesh for which it is planned, without data.
template <class Config, class Model, std::size_t N>
constexpr auto init_state(const Config& config, const AbstractArgument<Model, N>& model, const ZeroRedundancy& zero,
                          const Mesh& mesh) {
  auto state = init_state(config, model);
  constexpr auto kinds = detail::leaf_kinds<typename decltype(state)::type>();
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (Abstract& own = state.leaves[i]; kinds[i].is_parameter)
      own.spec = split_in_storage(own.spec, own.shape, mesh, zero.axis, StorageDim::enough);
  return state;
}
template <class Config, class Model, std::size_t N>
constexpr auto init_state(const Config& config, const AbstractArgument<Model, N>& model, const nn::Names& frozen,
                          const ZeroRedundancy& zero, const Mesh& mesh, Here at = Here::current()) {
  return init_state(config, detail::without(model, frozen, at), zero, mesh);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
