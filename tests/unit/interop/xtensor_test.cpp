#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "../tensor/random_tensor.hpp"
#include <gtest/gtest.h>
#include <xtensor/xarray.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

#include <tessera/interop/xtensor.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

TEST(xtensor, arrays_of_every_layout_keep_their_indices) {
  std::mt19937 random(10);
  for (int round = 0; round < 100; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 3);
    const std::array<std::size_t, 3> shape{static_cast<std::size_t>(layout.shape[0]),
                                           static_cast<std::size_t>(layout.shape[1]),
                                           static_cast<std::size_t>(layout.shape[2])};
    xt::xtensor<int, 3, xt::layout_type::row_major> rows(shape);
    xt::xtensor<int, 3, xt::layout_type::column_major> columns(shape);
    std::vector<int> expected;
    for (std::size_t i = 0; i < shape[0]; ++i)
      for (std::size_t j = 0; j < shape[1]; ++j)
        for (std::size_t k = 0; k < shape[2]; ++k) {
          expected.push_back(static_cast<int>(random() % 1000));
          rows(i, j, k) = columns(i, j, k) = expected.back();
        }
    const auto from_rows = ts::shard(rows, layout.mesh, layout.spec);
    static_assert(std::is_same_v<decltype(from_rows), const ts::ShardedTensor<int, 3>>);
    ASSERT_EQ(ts::to_host(from_rows), expected);
    ASSERT_EQ(ts::to_host(ts::shard(columns, layout.mesh, layout.spec)), expected);
    const xt::xarray<int> dynamic = rows;
    ASSERT_EQ(ts::to_host(ts::shard<3>(dynamic, layout.mesh, layout.spec)), expected);
    ASSERT_EQ(ts::to_xtensor(from_rows), rows);

    for (const auto& shard : ts::local_shards(from_rows)) {
      const auto view = ts::xtensor_view(shard);
      ASSERT_EQ(view.data(), shard.data.data());
      tessera_test::for_each_index(shard.box, [&](const ts::Shape& index) {
        const auto at = [&](std::size_t d) { return static_cast<std::size_t>(index[d] - shard.box.begin[d]); };
        ASSERT_EQ(view(at(0), at(1), at(2)),
                  rows(static_cast<std::size_t>(index[0]), static_cast<std::size_t>(index[1]),
                       static_cast<std::size_t>(index[2])));
      });
    }
  }
}

TEST(xtensor, views_and_expressions) {
  const ts::Mesh mesh({{"x", 2}});
  const xt::xtensor<double, 2> a{{1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ(ts::to_host(ts::shard(xt::view(a, xt::all(), xt::range(1, 3)), mesh, {"x"})),
            (std::vector<double>{2, 3, 5, 6}));
  EXPECT_EQ(ts::to_host(ts::shard<1>(xt::view(a, 1, xt::all()), mesh, {"x"})), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(ts::to_host(ts::shard(xt::xtensor_fixed<double, xt::xshape<2, 2>>{{1, 2}, {3, 4}}, mesh, {"x"})),
            (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(ts::to_host(ts::shard(a * 2.0 + 1.0, mesh, {"x"})), (std::vector<double>{3, 5, 7, 9, 11, 13}));
  EXPECT_EQ(ts::to_host(ts::shard(xt::transpose(a), mesh, {"x"})), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(ts::to_host(ts::shard<2>(xt::xarray<bool>{{true, false}, {false, true}}, mesh, {"x"})),
            (std::vector<bool>{true, false, false, true}));
}

TEST(xtensor, scalars) {
  const ts::Mesh mesh({{"x", 2}});
  EXPECT_EQ(ts::to_xtensor(ts::full<float, 0>({}, 3.f, mesh))(), 3.f);
  EXPECT_EQ(ts::item(ts::shard<0>(xt::xarray<float>(5.f), mesh)), 5.f);
}

TEST(xtensor, another_rank_is_an_error) {
  const ts::Mesh mesh({{"x", 2}});
  expect_error(
      ts::errc::rank_mismatch,
      [&] {
        ts::shard<3>(xt::xarray<float>{{1, 2}}, mesh);
      },
      "f32[1,2]", "rank 3", "xtensor_test.cpp");
}
