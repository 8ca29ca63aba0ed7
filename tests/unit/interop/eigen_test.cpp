#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "../tensor/random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/interop/eigen.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

TEST(eigen, matrices_of_either_order_keep_their_indices) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 2);
    const Eigen::Index n = layout.shape[0], m = layout.shape[1];
    Eigen::MatrixXf columns(n, m);
    std::vector<float> expected;
    for (Eigen::Index i = 0; i < n; ++i)
      for (Eigen::Index j = 0; j < m; ++j) {
        expected.push_back(static_cast<float>(random() % 1000));
        columns(i, j) = expected.back();
      }
    const RowMajor rows = columns;
    const auto x = ts::shard(columns, layout.mesh, layout.spec);
    static_assert(std::is_same_v<decltype(x), const ts::ShardedTensor<float, 2>>);
    ASSERT_EQ(ts::to_host(x), expected);
    ASSERT_EQ(ts::to_host(ts::shard(rows, layout.mesh, layout.spec)), expected);
    ASSERT_EQ(ts::to_eigen(x), rows);
    ASSERT_EQ(ts::to_eigen<Eigen::MatrixXf>(x), columns);

    for (const auto& shard : ts::local_shards(x)) {
      const auto view = ts::eigen_view(shard);
      ASSERT_EQ(view.data(), shard.data.data());
      ASSERT_EQ(view.size(), static_cast<Eigen::Index>(shard.data.size()));
      if (shard.data.empty()) continue;
      ASSERT_EQ(view, rows.block(shard.box.begin[0], shard.box.begin[1], shard.box.end[0] - shard.box.begin[0],
                                 shard.box.end[1] - shard.box.begin[1]));
    }
  }
}

TEST(eigen, maps_blocks_arrays_and_expressions) {
  const ts::Mesh mesh({{"x", 2}});
  const float data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Eigen::Map<const RowMajor> map(data, 3, 4);
  EXPECT_EQ(ts::to_host(ts::shard(map.block(1, 1, 2, 2), mesh, {"x"})), (std::vector<float>{6, 7, 10, 11}));
  EXPECT_EQ(ts::to_host(ts::shard(map.transpose().block(0, 0, 2, 3), mesh, {"x"})),
            (std::vector<float>{1, 5, 9, 2, 6, 10}));
  const Eigen::Map<const Eigen::MatrixXf, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> strided(
      data, 2, 2, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(6, 2));
  EXPECT_EQ(ts::to_host(ts::shard(strided, mesh, {"x"})), (std::vector<float>{1, 7, 3, 9}));
  const Eigen::ArrayXXf array = Eigen::ArrayXXf::Constant(2, 2, 3.f);
  EXPECT_EQ(ts::to_host(ts::shard(array, mesh, {"x"})), std::vector<float>(4, 3.f));
  EXPECT_EQ(ts::to_host(ts::shard(map * 2.f, mesh, {"x"}))[11], 24.f);
}

TEST(eigen, vectors_have_one_dim_unless_two_are_asked_for) {
  const ts::Mesh mesh({{"x", 2}});
  const Eigen::Vector3d column(1, 2, 3);
  const Eigen::RowVector3d row(1, 2, 3);
  const std::vector<double> expected{1, 2, 3};
  const auto x = ts::shard(column, mesh, {"x"});
  static_assert(std::is_same_v<decltype(x), const ts::ShardedTensor<double, 1>>);
  EXPECT_EQ(ts::to_host(x), expected);
  EXPECT_EQ(ts::to_host(ts::shard(row, mesh, {"x"})), expected);
  EXPECT_EQ(ts::shape(ts::shard<2>(row, mesh, {"x"})), (ts::Shape{1, 3}));
  EXPECT_EQ(ts::shape(ts::shard<2>(column, mesh, {"x"})), (ts::Shape{3, 1}));
  EXPECT_EQ(ts::to_host(ts::shard<2>(column, mesh, {"x"})), expected);
  EXPECT_EQ(ts::to_eigen(x), column);
  EXPECT_EQ(ts::to_eigen<Eigen::RowVectorXd>(x), row);
  EXPECT_EQ(ts::to_eigen<Eigen::Vector3d>(x), column);
  EXPECT_EQ(ts::eigen_view(ts::local_shards(x)[1])(0), 3.0);

  const Eigen::Matrix<double, 4, 4> square = Eigen::Matrix4d::Random();
  const auto values = [](const auto& part) { return std::vector<double>(part.begin(), part.end()); };
  EXPECT_EQ(ts::to_host(ts::shard(square.col(1), mesh)), values(square.col(1)));
  EXPECT_EQ(ts::to_host(ts::shard(square.row(1), mesh)), values(square.row(1)));
}

TEST(eigen, a_fixed_size_that_does_not_fit_is_an_error) {
  const auto x = ts::zeros<double>({3, 2}, ts::Mesh({{"x", 2}}), {"x"});
  expect_error(
      ts::errc::host_data, [&] { ts::to_eigen<Eigen::Matrix2d>(x); }, "f64[3,2]{x,-}", "2x2", "eigen_test.cpp");
  EXPECT_EQ((ts::to_eigen<Eigen::Matrix<double, 3, 2>>(x)), (Eigen::Matrix<double, 3, 2>::Zero()));
}
