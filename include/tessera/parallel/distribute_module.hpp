#ifndef TESSERA_PARALLEL_DISTRIBUTE_MODULE_HPP
#define TESSERA_PARALLEL_DISTRIBUTE_MODULE_HPP
#include <tessera/base/push_macros.hpp>

#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/parallel/placement.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera {

namespace detail {
template <class Rule> struct DistributeLeaves {
  const Mesh& mesh;
  Rule& rule;
  Here at;
  int next = 0;

  template <class Leaf> void leaf(Leaf& x) {
    if constexpr (StoredOperand<Leaf>) {
      if (!x.storage())
        fail(errc::empty_tensor, "[distribute_module] tensor ", next,
             " of the model is empty: it was never assigned, or was "
             "moved from");
      const Placements wanted = normalized(rule(next++, storage_of(x).shape()), mesh, Leaf::rank, "distribute_module");
      const Sharding sharding = sharding_of(wanted, mesh, Leaf::rank);
      if (sharding.unreduced != 0)
        fail(errc::unsupported, "[distribute_module] placements of tensor ", next - 1, ": ", text(wanted),
             " has a Partial; use Shard or Replicate", Source::from(at));
      x = reshard(x, mesh, spec_of(sharding, mesh), at);
    }
  }
  void enter_stack(auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};
}  // namespace detail

/// Reshards the tensors of a model by placements, as torch.distributed.tensor.distribute_module: rule(n, shape) returns
/// the placements of the n-th tensor, in the order of declaration, layer by layer for a Stack. The result has
/// ShardedTensors, for use in programs, so uneven dims are split as in GSPMD. Errors: those of redistribute.
/// Communication: a reshard of each tensor.
///
///     model = ts::distribute_module(std::move(model), mesh, [](int, const ts::Shape& shape) {
///       return ts::Placements{ts::Replicate(), shape.size() == 2 ? ts::Shard(1) : ts::Replicate()};
///     });
template <class Model, class Rule>
Model distribute_module(Model model, const Mesh& mesh, Rule&& rule, Here at = Here::current()) {
  detail::DistributeLeaves<Rule> distribute{mesh, rule, at};
  for_each_leaf(model, distribute);
  return model;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
