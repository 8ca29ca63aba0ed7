// Muon against the pseudo code of torch.optim.Muon, with Eigen's matrices in double, on meshes with uneven shards.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <Eigen/Core>
#include <Eigen/SVD>
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Layer {
  ts::ShardedTensor<double, 2> weight;  // more inputs than outputs
  ts::ShardedTensor<double, 1> bias;
};
struct Model {
  ts::ShardedTensor<double, 2> wide;
  ts::Stack<Layer> layers;
  ts::ShardedTensor<double, 3> cube;
};

/// A tensor and what an optimizer keeps of it; a tensor that is not a matrix has one row.
struct Tensor {
  Matrix value, mean, square;
  bool is_matrix, decays;
};
template <class M> std::vector<Tensor> tensors(const M& model) {
  std::vector<Tensor> list;
  nn::for_each_named_parameter(model, [&](const std::string&, const auto& leaf) {
    const ts::Shape& shape = ts::shape(leaf);
    const bool is_matrix = shape.size() == 2;
    const std::int64_t rows = is_matrix ? shape[0] : 1;
    const std::vector<double> values = ts::to_host(leaf);
    const Matrix value = Eigen::Map<const Matrix>(values.data(), rows, ts::size(leaf) / rows);
    const Matrix zero = Matrix::Zero(value.rows(), value.cols());
    list.push_back({value, zero, zero, is_matrix, shape.size() >= 2});
  });
  return list;
}

Model drawn(std::uint64_t seed, const ts::Mesh& mesh, const ts::PartitionSpec& matrix) {
  const auto on = [&](std::uint64_t n, const auto& zeros, const ts::Shape& shape, const ts::PartitionSpec& spec) {
    constexpr int rank = std::remove_cvref_t<decltype(zeros)>::rank;
    return ts::reshard(ts::normal<double, rank>(ts::fold_in(ts::Key(seed), n), shape, ts::Mesh{}), mesh, spec);
  };
  return {on(0, ts::ShardedTensor<double, 2>(), {4, 7}, matrix),
          ts::Stack<Layer>(3,
                           [&](int i) {
                             const auto n = static_cast<std::uint64_t>(2 * i + 1);
                             return Layer{on(n, ts::ShardedTensor<double, 2>(), {7, 5}, matrix),
                                          on(n + 1, ts::ShardedTensor<double, 1>(), {5}, {})};
                           }),
          on(50, ts::ShardedTensor<double, 3>(), {2, 3, 2}, {})};
}

/// zeropower_via_newtonschulz5 of the optimizer's authors, whose matrices are [outputs, inputs].
Matrix orthogonalized(Matrix x, double epsilon) {
  const bool tall = x.rows() > x.cols();
  if (tall) x.transposeInPlace();
  x /= std::max(x.norm(), epsilon);
  for (int i = 0; i < 5; ++i) {
    const Matrix gram = x * x.transpose();
    x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram * gram) * x;
  }
  if (tall) x.transposeInPlace();
  return x;
}

void reference(Tensor& p, const Matrix& g, double t, const ts::optim::Muon& c) {
  if (p.is_matrix) {
    const double momentum = c.momentum.value(), rate = c.learning_rate.value();
    p.mean = momentum * p.mean + (1 - momentum) * g;
    const Matrix o = orthogonalized(momentum * p.mean + (1 - momentum) * g, c.epsilon.value());
    const double scale = std::sqrt(std::max(1.0, double(g.cols()) / double(g.rows())));
    p.value = (1 - rate * c.weight_decay.value()) * p.value - rate * scale * o;
  } else {
    const double b1 = c.others.beta1.value(), b2 = c.others.beta2.value(), rate = c.others.learning_rate.value();
    p.mean = b1 * p.mean + (1 - b1) * g;
    p.square = b2 * p.square + (1 - b2) * g.cwiseAbs2();
    const Matrix spread = (p.square / (1 - std::pow(b2, t))).cwiseSqrt();
    const double decay = p.decays ? c.others.weight_decay.value() : 0;
    p.value = (1 - rate * decay) * p.value -
              (rate / (1 - std::pow(b1, t)) * p.mean.array() / (spread.array() + c.others.epsilon.value())).matrix();
  }
}

struct Step {
  constexpr auto operator()(const auto& model, const auto& gradient, const auto& state, const auto& config) const {
    return ts::muon(model, gradient, state, config);
  }
};

TEST(Muon, IsThePublishedUpdateForTwentySteps) {
  const ts::optim::Muon config{
      .learning_rate = 0.1, .momentum = 0.8, .weight_decay = 0.2, .others = {.learning_rate = 0.05}};
  constexpr auto step = ts::compile(Step{});
  struct Case {
    ts::Mesh mesh;
    ts::PartitionSpec matrix;
  };
  for (const auto& [mesh, matrix] :
       {Case{ts::Mesh{}, {}}, Case{ts::Mesh({{"x", 2}, {"y", 3}}), {"x", "y"}}, Case{ts::Mesh({{"x", 3}}), {{}, "x"}},
        Case{ts::Mesh({{"x", 4}}), ts::PartitionSpec{"x"}.gathered_on_use()}}) {
    Model model = drawn(1, mesh, matrix);
    auto state = ts::optim::init_state(config, model);
    EXPECT_EQ(ts::shape(state.mean.wide), (ts::Shape{4, 7}));
    EXPECT_EQ(ts::shape(state.square.layers[0].weight), (ts::Shape{1, 1})) << "a matrix has no mean of squares";
    EXPECT_EQ(ts::shape(state.square.layers[0].bias), ts::Shape{5});
    std::vector<Tensor> want = tensors(model);
    for (std::uint64_t t = 1; t <= 20; ++t) {
      const Model gradient = drawn(t + 1, mesh, matrix);
      std::tie(model, state) = step(model, gradient, state, config);
      const std::vector<Tensor> g = tensors(gradient), got = tensors(model);
      for (std::size_t i = 0; i < want.size(); ++i) {
        reference(want[i], g[i].value, static_cast<double>(t), config);
        ASSERT_LT((got[i].value - want[i].value).cwiseAbs().maxCoeff(), 1e-10)
            << mesh.text() << " tensor " << i << " step " << t;
      }
    }
    EXPECT_EQ(ts::sharding(model.layers[1].weight), ts::resolve(matrix, mesh, 2));
    EXPECT_EQ(state.step.value(), 20);
  }
}

// An update has the singular vectors of the momentum, and singular values near 1, whatever those of the momentum are.
TEST(Muon, MovesSingularValuesCloseToOne) {
  constexpr auto step = ts::compile(Step{});
  const ts::optim::Muon config{.learning_rate = 1, .weight_decay = 0};
  const Model model = drawn(1, ts::Mesh{}, {}), gradient = drawn(2, ts::Mesh{}, {});
  const auto [next, state] = step(model, gradient, ts::optim::init_state(config, model), config);
  const std::vector<Tensor> before = tensors(model), after = tensors(next), g = tensors(gradient);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!before[i].is_matrix) continue;
    const Matrix moved = before[i].value - after[i].value;
    const double scale = std::sqrt(std::max(1.0, double(moved.cols()) / double(moved.rows())));
    const Eigen::JacobiSVD<Eigen::MatrixXd> svd(g[i].value, Eigen::ComputeThinU | Eigen::ComputeThinV);
    const Matrix rotated = svd.matrixU().transpose() * moved * svd.matrixV() / scale;
    for (Eigen::Index r = 0; r < rotated.rows(); ++r)
      for (Eigen::Index c = 0; c < rotated.cols(); ++c) {
        if (r != c) EXPECT_NEAR(rotated(r, c), 0, 1e-12);
        if (r == c) EXPECT_NEAR(rotated(r, c), 1, 0.35) << "tensor " << i;
      }
  }
}

}  // namespace
