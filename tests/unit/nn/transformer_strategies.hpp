// The strategies by which transformers are split in tests.
#ifndef TESSERA_TESTS_UNIT_NN_TRANSFORMER_STRATEGIES_HPP
#define TESSERA_TESTS_UNIT_NN_TRANSFORMER_STRATEGIES_HPP

#include <vector>

#include <tessera/mesh/mesh.hpp>
#include <tessera/nn/sharding_strategy.hpp>

namespace transformers {

inline std::vector<tessera::nn::ShardingStrategy> strategies() {
  namespace nn = tessera::nn;
  using tessera::Mesh;
  const Mesh four({{"data", 2}, {"model", 2}});
  return {nn::single(Mesh()),
          nn::tensor_parallel(Mesh({{"model", 2}})),
          nn::data_parallel(Mesh({{"data", 3}})),
          nn::tensor_parallel(Mesh({{"model", 3}})),
          nn::fsdp_tensor_parallel(four),
          nn::sequence_parallel(four)};
}

}  // namespace transformers

#endif
