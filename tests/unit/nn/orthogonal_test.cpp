#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/tensor/deferred_init.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using Matrix = ts::ShardedTensor<double, 2>;

/// The largest difference between w^T w, of w or of its transpose if that has fewer columns, and a multiple of the
/// identity.
double off_identity(const Matrix& w, double diagonal) {
  const ts::Shape shape = ts::shape(w);
  const std::vector<double> host = ts::to_host(w);
  const bool tall = shape[0] >= shape[1];
  const std::int64_t n = tall ? shape[1] : shape[0], m = tall ? shape[0] : shape[1];
  const auto at = [&](std::int64_t vector, std::int64_t k) {
    return host[static_cast<std::size_t>(tall ? k * n + vector : vector * m + k)];
  };
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double product = 0;
      for (std::int64_t k = 0; k < m; ++k) product += at(i, k) * at(j, k);
      most = std::max(most, std::abs(product - (i == j ? diagonal : 0)));
    }
  return most;
}

}  // namespace

TEST(Orthogonal, ColumnsOrRowsAreOrthonormal) {
  const ts::Mesh mesh({{"x", 3}});
  for (const auto& [rows, columns] : std::vector<std::pair<int, int>>{{7, 7}, {40, 13}, {13, 40}, {1, 5}, {64, 64}}) {
    const Matrix w = ts::init::orthogonal<double>(ts::Key(3), {rows, columns}, mesh, {"x", ts::none}, 1.5);
    EXPECT_LT(off_identity(w, 2.25), 1e-14) << rows << " x " << columns;
  }
  const auto none = ts::init::orthogonal<double>(ts::Key(3), {0, 4}, mesh, {"x"});
  EXPECT_TRUE(ts::to_host(none).empty());
}

TEST(Orthogonal, IsEqualOnEveryMesh) {
  const auto drawn = [](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return ts::to_host(ts::init::orthogonal<float>(ts::Key(5), {3, 4, 10}, mesh, spec));
  };
  const std::vector<float> expected = drawn(ts::Mesh{}, {});
  EXPECT_EQ(drawn(ts::Mesh({{"x", 3}}), {"x"}), expected);
  EXPECT_EQ(drawn(ts::Mesh({{"x", 4}}), {ts::none, ts::none, "x"}), expected);
  EXPECT_EQ(drawn(ts::Mesh({{"x", 2}, {"y", 3}}), {ts::none, "x", "y"}), expected);
  // Drawn later, shard by shard.
  const auto later = ts::deferred_init([] {
    return ts::init::orthogonal<float>(ts::Key(5), {3, 4, 10}, ts::Mesh({{"x", 3}}), {"x"});
  });
  EXPECT_EQ(ts::to_host(later), expected);
}

// The angle of the first of two orthonormal vectors of the plane is uniform, and each system is as likely as its mirror
// image.
TEST(Orthogonal, IsUniform) {
  int quadrants[4]{}, mirrored = 0;
  constexpr int draws = 2000;
  for (int key = 0; key < draws; ++key) {
    const std::vector<double> w = ts::to_host(ts::init::orthogonal<double>(ts::Key(key), {2, 2}, ts::Mesh{}));
    ++quadrants[(w[0] < 0 ? 1 : 0) + (w[2] < 0 ? 2 : 0)];
    mirrored += w[0] * w[3] - w[1] * w[2] < 0;
  }
  for (const int count : quadrants) EXPECT_NEAR(count, draws / 4, 4.5 * std::sqrt(draws * 3.0 / 16));
  EXPECT_NEAR(mirrored, draws / 2, 4.5 * std::sqrt(draws / 4.0));
}

TEST(Orthogonal, DeltaKeepsNormsOfImages) {
  const ts::Mesh mesh({{"x", 2}});
  const auto w =
      ts::init::delta_orthogonal<double>(ts::Key(7), {3, 3, 4, 6}, mesh, {ts::none, ts::none, ts::none, "x"});
  const auto images = ts::normal<double>(ts::Key(9), {2, 5, 5, 4}, mesh);
  const ts::ShardedTensor<double, 4> made = ts::conv2d(images, w, {.padding = {1, 1}});
  const auto norm = [](const ts::ShardedTensor<double, 4>& x) {
    double sum = 0;
    for (const double v : ts::to_host(x)) sum += v * v;
    return sum;
  };
  EXPECT_NEAR(norm(made), norm(images), 1e-12 * norm(images));
  EXPECT_THROW(ts::init::delta_orthogonal<float>(ts::Key(7), {3, 6, 4}, mesh), ts::error);
}
