// k-means clustering (Lloyd's algorithm) of points that are split over eight devices. Each step is a product, an argmin and two
// sums; the sums of the clusters are the only communication. The loop ends when no center moves.
//
//     kmeans [PICTURE.svg]

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <tessera/tessera.hpp>

#include "picture.hpp"

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 8}});
constexpr int clusters = 5, points = 3001;  // 3001 points are split unevenly: 376 or 375 a device
constexpr std::array<std::array<double, 2>, clusters> truth{
    {{-0.6, -0.5}, {0.55, -0.6}, {0.0, 0.1}, {-0.55, 0.6}, {0.6, 0.55}}};

/// The squared distances [points, clusters], but for the norm of each point, which is the same for all clusters.
constexpr auto distances(const auto& x, const auto& centers) {
  return ts::sum<1>(centers * centers) - ts::matmul(x, ts::transpose<1, 0>(centers)) * 2.0;
}

constexpr auto assign = ts::compile([](auto x, auto centers) { return ts::argmin<1>(distances(x, centers)); });

/// The centers when they no longer move, and the number of steps that they moved.
constexpr auto cluster = ts::compile([](auto x, auto start) {
  const auto moved = [](const auto& state) { return std::get<1>(state) > 1e-12f; };
  const auto step = [&](const auto& state) {
    const auto& [centers, movement, steps] = state;
    const auto own = ts::one_hot(ts::argmin<1>(distances(x, centers)), ts::extent<0>(centers));  // [points, clusters]
    const auto count = ts::sum<0>(own);
    const auto means = ts::einsum<"nk,nd->kd">(own, x) / ts::unsqueeze<1>(ts::maximum(count, 1.0));
    const auto next = ts::select(ts::unsqueeze<1>(count) > 0.0, means, centers);  // an empty cluster stays
    return std::tuple(next, ts::sum(ts::square(next - centers)), steps + 1);
  };
  const auto zero = ts::sum(start) * 0.0;
  const auto [centers, movement, steps] =
      ts::while_loop(moved, step, std::tuple(start, zero + 1.0, ts::cast<std::int32_t>(zero)), 100);
  return std::tuple(centers, steps);
});

int main(int argc, char** argv) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.13);
  std::vector<float> values;
  std::vector<int> made_of;
  for (int i = 0; i < points; ++i) {
    made_of.push_back(i % clusters);
    for (const double coordinate : truth[static_cast<std::size_t>(i % clusters)])
      values.push_back(static_cast<float>(coordinate + noise(random)));
  }
  const auto x = ts::shard(values, {points, 2}, mesh, {"data"});
  const auto start = ts::shard(std::vector<float>(values.begin(), values.begin() + 2 * clusters), {clusters, 2}, mesh);

  cluster.plan(x, start).for_each_collective([](const ts::CollectiveInfo& c, std::int64_t) {
    std::printf("%s of %lld bytes a device\n", std::string(name_of(c.kind)).c_str(),
                static_cast<long long>(c.payload_bytes));
  });
  const auto [centers, steps] = cluster(x, start);
  const std::vector<float> found = ts::to_host(centers);
  const std::vector<std::int32_t> labels = ts::to_host(assign(x, centers));

  // Started from a point of each group, cluster k is the group k.
  int agree = 0;
  double distance = 0;
  for (int i = 0; i < points; ++i) agree += labels[static_cast<std::size_t>(i)] == made_of[static_cast<std::size_t>(i)];
  for (std::size_t k = 0; k < clusters; ++k)
    distance = std::fmax(distance, std::hypot(found[2 * k] - truth[k][0], found[2 * k + 1] - truth[k][1]));
  std::printf("%d steps; %.1f %% of the points are in the cluster that they were drawn from\n", ts::item(steps),
              100.0 * agree / points);
  std::printf("farthest center from the true one: %.4f\n", distance);

  examples::Picture picture(2);
  for (const bool clustered : {false, true}) {
    picture.panel(clustered ? "after " + std::to_string(ts::item(steps)) + " steps" : "points and first centers");
    for (std::size_t i = 0; i < points; ++i)
      picture.point(values[2 * i], values[2 * i + 1], clustered ? labels[i] : 5, 1.2);
    const std::vector<float>& shown = clustered ? found : values;
    for (std::size_t k = 0; k < clusters; ++k) picture.point(shown[2 * k], shown[2 * k + 1], clustered ? 5 : 1, 5);
  }
  if (argc > 1) picture.write(argv[1]);
}
