#ifndef TESSERA_NN_SHARDING_STRATEGY_HPP
#define TESSERA_NN_SHARDING_STRATEGY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>

namespace tessera::nn {

/// What a weight matrix [in, out] is for, which decides the dim that tensor parallelism splits.
enum class Role : std::uint8_t {
  column,  ///< output features are sharded: queries, keys and values, the first weight of an MLP
  row,     ///< input features are sharded: the output projection of attention, the last weight of an MLP
  head,    ///< computes logits: [features, classes]
};

/// How the parameters and the tokens of a model are sharded over a mesh: a spec for each role of a parameter. A
/// strategy changes which device holds which elements and what is communicated, never the values.
///
/// Collectives of one transformer layer and one training step, each of the bytes of the named tensor:
///   single                nothing
///   data_parallel         an all-reduce of each gradient
///   fsdp                  for each weight, an all-gather forward and one backward, and a reduce-scatter of its
///   gradient;
///                         for each vector, an all-reduce of its gradient
///   tensor_parallel       2 all-reduces forward and 2 backward, of [batch, time, features]
///   fsdp_tensor_parallel  both: activations split by the data axis, weights by the model axis
/// Sources: Li et al., 2006.15704; ZeRO, 1910.02054; Megatron-LM, 1909.08053.
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
  PartitionSpec batch{};          ///< [batch, ...]: tokens and targets

  constexpr const PartitionSpec& weight(Role role) const {
    return role == Role::column ? column_weight : role == Role::row ? row_weight : head_weight;
  }
  constexpr const PartitionSpec& bias(Role role) const { return role == Role::row ? vector : column_bias; }
};

/// Everything replicated. Errors of all strategies: `mesh_axis` for an axis that the mesh lacks.
constexpr ShardingStrategy single(const Mesh& mesh) {
  ShardingStrategy strategy;
  strategy.mesh = mesh;
  return strategy;
}

/// Parameters replicated, tokens sharded: each device computes the gradient of its shard of the batch.
constexpr ShardingStrategy data_parallel(const Mesh& mesh, std::string_view data = "data") {
  mesh.axis_index(data);
  ShardingStrategy strategy = single(mesh);
  strategy.batch = {data};
  return strategy;
}

/// Weights, and with them gradients and optimizer states, split over the devices that split the batch; a weight is
/// whole only while it is used. Vectors stay whole: they are small, and one all-reduce is less than what splitting them
/// costs.
constexpr ShardingStrategy fsdp(const Mesh& mesh, std::string_view data = "data") {
  ShardingStrategy strategy = data_parallel(mesh, data);
  strategy.column_weight = strategy.row_weight = strategy.head_weight = PartitionSpec{data}.gathered_on_use();
  // The features of a table divide evenly where its rows, as many as there are characters, seldom do.
  strategy.embedding = strategy.positions = PartitionSpec{none, data}.gathered_on_use();
  return strategy;
}

/// Heads and hidden features split over the model axis, and the rows of tables and logits by class. The batch is split
/// too when the mesh has a data axis.
constexpr ShardingStrategy tensor_parallel(const Mesh& mesh, std::string_view model = "model",
                                           std::string_view data = "data") {
  mesh.axis_index(model);
  ShardingStrategy strategy = mesh.has_axis(data) ? data_parallel(mesh, data) : single(mesh);
  strategy.column_weight = strategy.head_weight = {none, model};
  strategy.column_bias = {model};
  strategy.row_weight = strategy.embedding = {model, none};
  return strategy;
}

/// Both: the model axis splits the computation, and the data axis the dim of each weight that is left, for storage.
constexpr ShardingStrategy fsdp_tensor_parallel(const Mesh& mesh, std::string_view data = "data",
                                                std::string_view model = "model") {
  ShardingStrategy strategy = fsdp(mesh, data);
  const ShardingStrategy split = tensor_parallel(mesh, model, data);
  strategy.column_weight = strategy.head_weight = PartitionSpec{data, model}.gathered_on_use(0);
  strategy.column_bias = split.column_bias;
  strategy.row_weight = strategy.embedding = PartitionSpec{model, data}.gathered_on_use(1);
  return strategy;
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
