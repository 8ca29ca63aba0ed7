#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "../../support/gradients.hpp"

#include <tessera/ops/normal_functions.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

template <class T> void expect_near(const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double value = static_cast<double>(got[i]);
    EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(value)
                                    : value == want[i] || std::fabs(value - want[i]) <= tolerance * std::fabs(want[i]))
        << i << ": " << value << " instead of " << want[i];
  }
}

// torch.special.erfcx and ndtri, in double
TEST(NormalFunctions, EqualPyTorch) {
  const std::vector<double> x{-30, -5, -1, 0, 0.5, 3, 9.9, 10, 10.5, 30, 1e5, 1e300, inf, NAN};
  const std::vector<double> scaled{inf,
                                   144009798674.66104,
                                   5.008980080762283,
                                   1,
                                   0.6156903441929258,
                                   0.17900115118138998,
                                   0.05670245693883227,
                                   0.05614099274382259,
                                   0.05349189974656411,
                                   0.018795888861416754,
                                   5.6418958351954685e-06,
                                   5.641895835477562e-301,
                                   0,
                                   NAN};
  const std::vector<double> p{0,   1e-300, 1e-100, 1e-20,    1e-8, 0.01, 0.0749, 0.0751, 0.3,
                              0.5, 0.8,    0.95,   1 - 1e-6, 1,    -0.1, 1.5,    NAN};
  const std::vector<double> quantiles{-inf,
                                      -37.0470962993612,
                                      -21.273453560965322,
                                      -9.262340089798409,
                                      -5.612001244174789,
                                      -2.3263478740408408,
                                      -1.4402382675279635,
                                      -1.4388253927525403,
                                      -0.5244005127080409,
                                      0,
                                      0.8416212335729143,
                                      1.644853626951472,
                                      4.753424308817087,
                                      inf,
                                      NAN,
                                      NAN,
                                      NAN};
  const ts::Mesh mesh({{"x", 3}});
  const auto points = ts::shard(x, mesh, {"x"}), probabilities = ts::shard(p, mesh, {"x"});
  expect_near(ts::to_host(ts::eval(ts::erfcx(points))), scaled, 2e-14);
  expect_near(ts::to_host(ts::eval(ts::ndtri(probabilities))), quantiles, 1e-14);
  const std::vector<double> few{-5, 0.5, 30}, some{1e-8, 0.3};
  expect_near(ts::to_host(ts::eval(ts::erfcx(ts::cast<float>(ts::shard(few, mesh))))),
              {144009798674.66104, 0.6156903441929258, 0.018795888861416754}, 1.2e-7);
  expect_near(ts::to_host(ts::eval(ts::ndtri(ts::cast<float>(ts::shard(some, mesh))))),
              {-5.612001244174789, -0.5244005127080409}, 2e-7);
}

TEST(NormalFunctions, Gradients) {
  using Doubles = ts::ShardedTensor<double, 1>;
  const oracle::Array x({6}, {-2, -0.5, 0.25, 3, 12, 40}), p({6}, {0.05, 0.07, 0.3, 0.6, 0.94, 0.95});
  const auto f = [](const auto& a, const auto& q) {
    return ts::cast<float>(ts::erfcx(a) * 3.0 + ts::square(ts::ndtri(q)));
  };
  oracle::check_gradient<Doubles, Doubles>(f, {x, p}, oracle::second_order);
}

}  // namespace
