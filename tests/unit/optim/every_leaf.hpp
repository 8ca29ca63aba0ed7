#ifndef TESSERA_TESTS_UNIT_OPTIM_EVERY_LEAF_HPP
#define TESSERA_TESTS_UNIT_OPTIM_EVERY_LEAF_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../support/traced.hpp"

#include <tessera/nn/nn.hpp>

namespace every_leaf {

namespace ts = tessera;
using oracle::Array;
using oracle::random_array;

struct Layer {
  ts::ShardedTensor<float, 2> weight;
  ts::ShardedTensor<float, 1> bias;
  ts::Dim width;
};
/// Every kind of leaf: tensors of several ranks and types, stacked ones, numbers, integers.
struct Model {
  ts::ShardedTensor<double, 3> wide;
  ts::Stack<Layer> layers;
  ts::ShardedTensor<std::int32_t, 1> indices;
  ts::Scalar scale;
  ts::ShardedTensor<float, 1> bias;
};

// The leaves of a Model, in order, with what an optimizer has to know of each.
struct LeafKind {
  ts::Shape shape;
  bool parameter, decays;
};
inline const std::vector<LeafKind> kinds = {{{2, 3, 2}, true, true}, {{3, 2, 4}, true, true}, {{3, 4}, true, false},
                                            {{}, false, false},      {{5}, false, false},     {{}, false, false},
                                            {{3}, true, false}};

inline std::vector<Array> random_model(unsigned seed) {
  std::vector<Array> leaves;
  for (const LeafKind& kind : kinds)
    leaves.push_back(random_array(kind.shape, seed * 100 + static_cast<unsigned>(leaves.size())));
  return leaves;
}
/// What init_state makes of a model: zeros for its parameters, and the rest as it is.
inline std::vector<Array> zeros_for(std::vector<Array> model) {
  for (std::size_t leaf = 0; leaf < kinds.size(); ++leaf)
    if (kinds[leaf].parameter) model[leaf] = Array(kinds[leaf].shape);
  return model;
}
inline void append(std::vector<Array>& to, const std::vector<Array>& more) {
  to.insert(to.end(), more.begin(), more.end());
}
/// The n-th model among the results.
inline std::vector<Array> model_at(const std::vector<Array>& results, std::size_t n, std::size_t skip = 0) {
  const auto begin = results.begin() + static_cast<std::ptrdiff_t>(skip + n * kinds.size());
  return {begin, begin + static_cast<std::ptrdiff_t>(kinds.size())};
}
inline void expect_models_near(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t leaf = 0; leaf < got.size(); ++leaf)
    oracle::expect_near(got[leaf], want[leaf], tolerance, "leaf " + std::to_string(leaf));
}

/// Calls f(p, g, states...) on the elements of all parameters.
template <class F, class... States>
void for_each_parameter(F f, std::vector<Array>& p, const std::vector<Array>& g, States&... states) {
  for (std::size_t leaf = 0; leaf < kinds.size(); ++leaf) {
    if (!kinds[leaf].parameter) continue;
    for (std::size_t i = 0; i < p[leaf].data.size(); ++i)
      f(kinds[leaf], p[leaf].data[i], g[leaf].data[i], states[leaf].data[i]...);
  }
}

}  // namespace every_leaf

#endif
