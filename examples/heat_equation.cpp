// The heat equation on a plate that a 2 x 2 mesh of devices shares: a stencil is written as slices of a padded tensor, the
// library sends each device the rows and columns next to its block, and a loop of 100 steps is one compiled program.
//
//     heat_equation [PICTURE.svg]

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "picture.hpp"

namespace ts = tessera;

constexpr ts::Mesh mesh({{"rows", 2}, {"columns", 2}});
constexpr int rows = 90, columns = 77;  // 77 columns are split unevenly: 39 and 38

/// The sum of the four neighbours minus four times the element; outside of the plate the temperature is 0.
constexpr auto laplacian(const auto& u) {
  const auto high = ts::extent<0>(u), wide = ts::extent<1>(u);
  const auto tall = ts::pad<0>(u, 1, 1), broad = ts::pad<1>(u, 1, 1);
  return ts::slice<0>(tall, 0, high) + ts::slice<0>(tall, 2, high) + ts::slice<1>(broad, 0, wide) +
         ts::slice<1>(broad, 2, wide) - u * 4.0;
}

constexpr auto heat = ts::compile([](auto u, ts::Dim steps, auto rate) {
  return ts::fori_loop(0, steps, [&](const auto&, const auto& now) { return now + laplacian(now) * rate; }, u);
});

double sine(int i, int n, int waves) { return std::sin(std::numbers::pi * waves * (i + 1) / (n + 1)); }

/// A product of sines keeps its shape, and each step multiplies it by the same factor: what the program must compute.
double largest_error(int steps, double rate) {
  std::vector<float> mode;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) mode.push_back(static_cast<float>(sine(r, rows, 2) * sine(c, columns, 3)));
  const auto half = [](int n, int waves) { return std::sin(std::numbers::pi * waves / (2.0 * (n + 1))); };
  const double factor = 1 - 4 * rate * (std::pow(half(rows, 2), 2) + std::pow(half(columns, 3), 2));

  const auto start = ts::shard(mode, {rows, columns}, mesh, {"rows", "columns"});
  const ts::ShardedTensor<float, 2> result = heat(start, ts::Dim(steps), ts::Scalar(rate));
  const std::vector<float> end = ts::to_host(result);
  double error = 0;
  for (std::size_t i = 0; i < end.size(); ++i)
    error = std::fmax(error, std::abs(static_cast<double>(end[i]) - mode[i] * std::pow(factor, steps)));
  return error;
}

int main(int argc, char** argv) {
  constexpr double rate = 0.2;
  std::vector<float> plate(rows * columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      const double from_center = std::hypot(r - 30, c - 26), from_bar = std::abs(c - 55);
      plate[static_cast<std::size_t>(r * columns + c)] = from_center < 14 || (from_bar < 4 && r > 20 && r < 75) ? 1.f : 0.f;
    }
  auto u = ts::shard(plate, {rows, columns}, mesh, {"rows", "columns"});

  const ts::Plan plan = heat.plan(u, ts::Dim(100), ts::Scalar(rate));
  plan.for_each_collective([](const ts::CollectiveInfo& c, std::int64_t times) {
    std::printf("%lld x %s of %lld bytes a device\n", static_cast<long long>(times), std::string(name_of(c.kind)).c_str(),
                static_cast<long long>(c.payload_bytes));
  });

  examples::Picture picture(4);
  for (int step = 0; step <= 300; step += 100) {
    if (step > 0) u = heat(u, ts::Dim(100), ts::Scalar(rate));
    picture.panel("step " + std::to_string(step));
    picture.grid(ts::to_host(u), rows, columns);
    std::printf("step %4d  mean temperature %.5f\n", step, static_cast<double>(ts::item(ts::mean(u))));
  }
  std::printf("a product of sines after 200 steps: largest error %.6f\n", largest_error(200, rate));
  if (argc > 1) picture.write(argv[1]);
}
