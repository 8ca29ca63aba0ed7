#ifndef TESSERA_NN_SHARDING_STRATEGY_HPP
#define TESSERA_NN_SHARDING_STRATEGY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>

namespace tessera::nn {

/// The use of a weight matrix [in, out] in a model, which decides the dim that tensor parallelism splits.
enum class Role : std::uint8_t {
  column,  ///< output features are sharded: queries, keys and values, the first weight of an MLP
  row,     ///< input features are sharded: the output projection of attention, the last weight of an MLP
  head,    ///< computes logits: [features, classes]
};

/// The specs by which the parameters and the batch of a model are sharded over a mesh. A strategy changes which device
/// holds which elements and what is communicated, never the values.
///
/// Collectives of one transformer layer in one training step:
///   single                none
///   data_parallel         an all_reduce of each gradient
///   fsdp                  for each weight 2 all_gathers and a reduce_scatter of its gradient;
///                         for each vector an all_reduce of its gradient
///   tensor_parallel       2 all_reduces forward and 2 backward, of [batch, time, features]
///   fsdp_tensor_parallel  both: the data axis splits activations, the model axis weights
///   hybrid_fsdp           as fsdp over one axis, and an all_reduce of the gradients' shards over another axis
///   sequence_parallel     of [batch, time, features]: 2 all_gathers and 2 reduce_scatters forward, the same backward,
///                         and 2 more all_gathers backward, of what was gathered forward; weights as tensor_parallel
///   context_parallel      2 all_gathers of keys and values forward, 2 backward, 2 reduce_scatters of their gradients;
///                         an all_reduce of each gradient
/// Sources: Li et al., 2006.15704; ZeRO, 1910.02054; Megatron-LM, 1909.08053; sequence parallelism, 2205.05198.
///
///     constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});
///     auto strategy = ts::nn::fsdp_tensor_parallel(mesh);
///     auto up = ts::nn::linear(key, 256, 1024, strategy, ts::nn::Role::column);
struct ShardingStrategy {
  Mesh mesh{};
  PartitionSpec column_weight{};  ///< [in, out]
  PartitionSpec column_bias{};    ///< [out]
  PartitionSpec row_weight{};     ///< [in, out]
  PartitionSpec head_weight{};    ///< [features, classes]
  PartitionSpec vector{};         ///< [features]: norms, and biases of row weights
  PartitionSpec embedding{};      ///< [classes, features]
  PartitionSpec positions{};      ///< [time, features]
  PartitionSpec batch{};          ///< [batch, time, ...]: tokens and targets

  constexpr const PartitionSpec& weight(Role role) const {
    return role == Role::column ? column_weight : role == Role::row ? row_weight : head_weight;
  }
  constexpr const PartitionSpec& bias(Role role) const { return role == Role::row ? vector : column_bias; }
};

}  // namespace tessera::nn

namespace tessera::detail {

constexpr void require_axis(std::string_view strategy, const Mesh& mesh, std::string_view axis, Here at) {
  if (!mesh.has_axis(axis))
    fail(errc::mesh_axis, "[", strategy, "] axis: ", mesh.text(), " has no axis '", axis, "'", Source::from(at));
}
/// Whether the mesh has an axis that it may lack. It must have one that the caller named, not by default.
constexpr bool has_optional_axis(std::string_view strategy, const Mesh& mesh, std::string_view axis,
                                 std::string_view by_default, Here at) {
  if (axis != by_default) require_axis(strategy, mesh, axis, at);
  return mesh.has_axis(axis);
}

}  // namespace tessera::detail

namespace tessera::nn {

/// Everything replicated. Errors of all strategies: `mesh_axis` for an axis that the mesh lacks, except for a `data`
/// that is optional and has its default name.
constexpr ShardingStrategy single(const Mesh& mesh) {
  ShardingStrategy strategy;
  strategy.mesh = mesh;
  return strategy;
}

/// Parameters replicated, the batch sharded: each device computes the gradient for its shard of the batch.
constexpr ShardingStrategy data_parallel(const Mesh& mesh, std::string_view data = "data", Here at = Here::current()) {
  tessera::detail::require_axis("data_parallel", mesh, data, at);
  ShardingStrategy strategy = single(mesh);
  strategy.batch = {data};
  return strategy;
}

/// Weights, their gradients and optimizer states are split over the axis that splits the batch; a weight is gathered
/// for each use. Vectors are replicated, because one all_reduce sends less than two all_gathers and a reduce_scatter.
constexpr ShardingStrategy fsdp(const Mesh& mesh, std::string_view data = "data", Here at = Here::current()) {
  tessera::detail::require_axis("fsdp", mesh, data, at);
  ShardingStrategy strategy = data_parallel(mesh, data);
  strategy.column_weight = strategy.row_weight = strategy.head_weight = PartitionSpec{data}.gathered_on_use();
  // Split tables by features: 256 features divide evenly, 109 distinct characters seldom do.
  strategy.embedding = strategy.positions = PartitionSpec{none, data}.gathered_on_use();
  return strategy;
}

/// The model axis splits attention heads, hidden features, the rows of the embedding table and the classes of the
/// logits. The axis `data`, if the mesh has it, splits the batch.
constexpr ShardingStrategy tensor_parallel(const Mesh& mesh, std::string_view model = "model",
                                           std::string_view data = "data", Here at = Here::current()) {
  tessera::detail::require_axis("tensor_parallel", mesh, model, at);
  const bool splits_batch = tessera::detail::has_optional_axis("tensor_parallel", mesh, data, "data", at);
  ShardingStrategy strategy = splits_batch ? data_parallel(mesh, data) : single(mesh);
  strategy.column_weight = strategy.head_weight = {none, model};
  strategy.column_bias = {model};
  strategy.row_weight = strategy.embedding = {model, none};
  return strategy;
}

/// fsdp and tensor_parallel together: the model axis splits the computation; the data axis splits the other dim of each
/// weight, in storage only.
constexpr ShardingStrategy fsdp_tensor_parallel(const Mesh& mesh, std::string_view data = "data",
                                                std::string_view model = "model", Here at = Here::current()) {
  tessera::detail::require_axis("fsdp_tensor_parallel", mesh, data, at);
  tessera::detail::require_axis("fsdp_tensor_parallel", mesh, model, at);
  ShardingStrategy strategy = fsdp(mesh, data);
  const ShardingStrategy split = tensor_parallel(mesh, model, data);
  strategy.column_weight = strategy.head_weight = PartitionSpec{data, model}.gathered_on_use(0);
  strategy.column_bias = split.column_bias;
  strategy.row_weight = strategy.embedding = PartitionSpec{model, data}.gathered_on_use(1);
  return strategy;
}

/// fsdp over the axis `shard`, with copies of the shards along the axis `replicate`. Both split the batch.
constexpr ShardingStrategy hybrid_fsdp(const Mesh& mesh, std::string_view replicate = "data",
                                       std::string_view shard = "fsdp", Here at = Here::current()) {
  tessera::detail::require_axis("hybrid_fsdp", mesh, replicate, at);
  tessera::detail::require_axis("hybrid_fsdp", mesh, shard, at);
  ShardingStrategy strategy = fsdp(mesh, shard);
  strategy.batch = {{replicate, shard}};
  return strategy;
}

/// tensor_parallel whose model axis also splits the time dim of activations that tensor_parallel replicates: norms,
/// residual additions and the embedding. The planner gathers time before split weights, and reduce-scatters after them.
/// This sends the bytes of tensor_parallel, and a device stores only its part of the positions of these activations.
constexpr ShardingStrategy sequence_parallel(const Mesh& mesh, std::string_view model = "model",
                                             std::string_view data = "data", Here at = Here::current()) {
  tessera::detail::require_axis("sequence_parallel", mesh, model, at);
  const bool splits_batch = tessera::detail::has_optional_axis("sequence_parallel", mesh, data, "data", at);
  ShardingStrategy strategy = tensor_parallel(mesh, model, data);
  strategy.embedding = {};
  strategy.positions = {model};
  strategy.batch = splits_batch ? PartitionSpec{data, model} : PartitionSpec{none, model};
  return strategy;
}

/// Parameters replicated, the time dim split over the axis `context`, and the batch over a data axis, if the mesh has
/// it. Attention gathers keys and values; ts::ulysses_attention and ts::ring_attention send less.
constexpr ShardingStrategy context_parallel(const Mesh& mesh, std::string_view context = "context",
                                            std::string_view data = "data", Here at = Here::current()) {
  tessera::detail::require_axis("context_parallel", mesh, context, at);
  const bool splits_batch = tessera::detail::has_optional_axis("context_parallel", mesh, data, "data", at);
  ShardingStrategy strategy = single(mesh);
  strategy.positions = {context};
  strategy.batch = splits_batch ? PartitionSpec{data, context} : PartitionSpec{none, context};
  return strategy;
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
