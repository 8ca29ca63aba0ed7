#include <cstdint>
#include <random>
#include <vector>

#include "../tensor/random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/interop/eigen_tensor.hpp>

namespace ts = tessera;

TEST(eigen_tensor, tensors_of_either_order_keep_their_indices) {
  std::mt19937 random(12);
  for (int round = 0; round < 100; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 3);
    const Eigen::Index n = layout.shape[0], m = layout.shape[1], l = layout.shape[2];
    Eigen::Tensor<std::int32_t, 3> columns(n, m, l);
    Eigen::Tensor<std::int32_t, 3, Eigen::RowMajor> rows(n, m, l);
    std::vector<std::int32_t> expected;
    for (Eigen::Index i = 0; i < n; ++i)
      for (Eigen::Index j = 0; j < m; ++j)
        for (Eigen::Index k = 0; k < l; ++k) {
          expected.push_back(static_cast<std::int32_t>(random() % 1000));
          columns(i, j, k) = rows(i, j, k) = expected.back();
        }
    const auto x = ts::shard(columns, layout.mesh, layout.spec);
    static_assert(std::is_same_v<decltype(x), const ts::ShardedTensor<std::int32_t, 3>>);
    ASSERT_EQ(ts::to_host(x), expected);
    ASSERT_EQ(ts::to_host(ts::shard(rows, layout.mesh, layout.spec)), expected);
    const Eigen::TensorMap<const Eigen::Tensor<std::int32_t, 3>> map(columns.data(), n, m, l);
    ASSERT_EQ(ts::to_host(ts::shard(map, layout.mesh, layout.spec)), expected);

    const auto back = ts::to_eigen_tensor(x);
    const auto back_columns = ts::to_eigen_tensor<Eigen::ColMajor>(x);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), back.data(), back.data() + back.size()));
    ASSERT_TRUE(std::equal(columns.data(), columns.data() + columns.size(), back_columns.data(),
                           back_columns.data() + back_columns.size()));
    for (const auto& shard : ts::local_shards(x)) {
      const auto view = ts::eigen_tensor_view(shard);
      ASSERT_EQ(view.data(), shard.data.data());
      tessera_test::for_each_index(shard.box, [&](const ts::Shape& index) {
        ASSERT_EQ(view(index[0] - shard.box.begin[0], index[1] - shard.box.begin[1], index[2] - shard.box.begin[2]),
                  rows(index[0], index[1], index[2]));
      });
    }
  }
}

TEST(eigen_tensor, scalars) {
  const ts::Mesh mesh({{"x", 2}});
  Eigen::Tensor<float, 0> scalar;
  scalar() = 2.5f;
  EXPECT_EQ(ts::item(ts::shard(scalar, mesh)), 2.5f);
  EXPECT_EQ(ts::to_eigen_tensor(ts::full<float, 0>({}, 3.f, mesh))(), 3.f);
}
