#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

using Values = std::vector<double>;

struct Image {
  ts::Shape shape;
  Values values;

  explicit Image(const ts::Shape& s, unsigned seed = 0) : shape(s), values(static_cast<std::size_t>(ts::volume(s))) {
    std::mt19937 random(seed);
    for (double& own : values) own = seed == 0 ? 0 : std::uniform_real_distribution<double>(-1, 1)(random);
  }
  double& at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return values[static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
};

auto put(const Image& x, const ts::Mesh& mesh, const ts::PartitionSpec& spec = {}) {
  return ts::shard(x.values, {x.shape[0], x.shape[1], x.shape[2], x.shape[3]}, mesh, spec);
}

void expect_close(const Values& got, const Values& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-11) << what << " " << i;
}

/// What ran has the bytes of the plan, and no device gathered anything.
void expect_halos(const ts::Plan& plan, const ts::CommunicationScope& ran) {
  EXPECT_EQ(ran.count(ts::Collective::permute), plan.count(ts::Collective::permute));
  EXPECT_EQ(ran.payload_bytes(ts::Collective::permute), plan.payload_bytes(ts::Collective::permute));
  EXPECT_EQ(ran.wire_bytes(), plan.wire_bytes());
  EXPECT_EQ(plan.count(ts::all_gather), 0);
  EXPECT_EQ(plan.count(ts::all_to_all), 0);
  EXPECT_EQ(plan.implicit_count(), 0);
}

template <ts::Conv<2> Options>
constexpr auto convolution = ts::compile([](auto x, auto w, auto g) {
  const auto of_x =
      ts::grad([](const auto& v, auto taps, auto by) { return ts::sum(ts::conv2d(v, taps, Options) * by); });
  const auto of_w = ts::grad([](const auto& v, auto in, auto by) { return ts::sum(ts::conv2d(in, v, Options) * by); });
  return std::tuple(ts::conv2d(x, w, Options), of_x(x, w, g), of_w(w, x, g));
});

std::int64_t windows(std::int64_t n, std::int64_t taps, const ts::Conv<2>& o, std::size_t d) {
  return (n + 2 * o.padding[d] - o.dilation[d] * (taps - 1) - 1) / o.strides[d] + 1;
}

template <ts::Conv<2> O>
void expect_convolution(const ts::Mesh& mesh, const ts::PartitionSpec& spec, std::int64_t batch, std::int64_t height,
                        std::int64_t width, std::int64_t rows, std::int64_t columns) {
  SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " batch ", batch, ", ", height, " x ", width, ", window ",
                               rows, " x ", columns));
  constexpr std::int64_t in = 2 * O.groups, out = 3 * O.groups;
  const std::int64_t down = windows(height, rows, O, 0), across = windows(width, columns, O, 1);
  Image x({batch, height, width, in}, 1), w({rows, columns, 2, out}, 2), g({batch, down, across, out}, 3);
  Image y(g.shape), dx(x.shape), dw(w.shape);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < down; ++i)
      for (std::int64_t j = 0; j < across; ++j)
        for (std::int64_t o = 0; o < out; ++o)
          for (std::int64_t p = 0; p < rows; ++p)
            for (std::int64_t q = 0; q < columns; ++q)
              for (std::int64_t c = 0; c < 2; ++c) {
                const std::int64_t r = i * O.strides[0] + p * O.dilation[0] - O.padding[0];
                const std::int64_t s = j * O.strides[1] + q * O.dilation[1] - O.padding[1];
                if (r < 0 || r >= height || s < 0 || s >= width) continue;
                const std::int64_t f = o / 3 * 2 + c;
                y.at(b, i, j, o) += x.at(b, r, s, f) * w.at(p, q, c, o);
                dx.at(b, r, s, f) += g.at(b, i, j, o) * w.at(p, q, c, o);
                dw.at(p, q, c, o) += g.at(b, i, j, o) * x.at(b, r, s, f);
              }
  const auto on_mesh = put(x, mesh, spec), cotangent = put(g, mesh, spec);
  const auto weights = put(w, mesh);
  const ts::Plan plan = convolution<O>.plan(on_mesh, weights, cotangent);
  ts::CommunicationScope ran;
  const auto [value, of_x, of_w] = convolution<O>(on_mesh, weights, cotangent);
  expect_close(ts::to_host(value), y.values, "value");
  expect_close(ts::to_host(of_x), dx.values, "gradient of the input");
  expect_close(ts::to_host(of_w), dw.values, "gradient of the weights");
  expect_halos(plan, ran);
}

constexpr ts::Conv<2> same{.padding = {1, 1}}, strided{.strides = {2, 3}, .padding = {1, 0}},
    dilated{.padding = {2, 1}, .dilation = {2, 3}}, grouped{.strides = {1, 2}, .padding = {0, 1}, .groups = 2};

template <ts::Conv<2> O> void expect_on_meshes() {
  const ts::Mesh one({{"x", 1}}), two({{"x", 2}}), three({{"x", 3}}), four({{"x", 4}}), square({{"x", 2}, {"y", 2}}),
      uneven({{"x", 3}, {"y", 2}});
  std::mt19937 random(static_cast<unsigned>(O.strides[0] + 10 * O.dilation[1] + 100 * O.groups));
  const auto up_to = [&](std::int64_t first, std::int64_t last) {
    return std::uniform_int_distribution<std::int64_t>(first, last)(random);
  };
  for (int round = 0; round < 4; ++round) {
    const std::int64_t rows = up_to(1, 4), columns = up_to(1, 3);
    const auto run = [&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
      // down to the smallest extents that have a window: most shards are then empty, and halos are wider than shards
      const std::int64_t h = O.dilation[0] * (rows - 1) + 1, v = O.dilation[1] * (columns - 1) + 1;
      expect_convolution<O>(mesh, spec, up_to(1, 3), h + up_to(0, 9), v + up_to(0, 9), rows, columns);
    };
    run(one, {ts::none, "x"});
    for (const ts::Mesh& mesh : {two, three, four}) {
      run(mesh, {ts::none, "x"});
      run(mesh, {ts::none, ts::none, "x"});
    }
    for (const ts::Mesh& mesh : {square, uneven}) {
      run(mesh, {ts::none, "x", "y"});
      run(mesh, {ts::none, "y", "x"});
      run(mesh, {"x", "y"});
      run(mesh, {ts::none, {"x", "y"}});
    }
  }
}

TEST(WindowHalo, Same) { expect_on_meshes<same>(); }
TEST(WindowHalo, Strides) { expect_on_meshes<strided>(); }
TEST(WindowHalo, Dilation) { expect_on_meshes<dilated>(); }
TEST(WindowHalo, Groups) { expect_on_meshes<grouped>(); }

constexpr auto forward_same = ts::compile([](auto x, auto w) { return ts::conv2d(x, w, same); });
constexpr ts::Conv<2> by_two{.strides = {2, 2}, .padding = {1, 1}}, apart{.padding = {2, 2}, .dilation = {2, 2}};
constexpr auto forward_by_two = ts::compile([](auto x, auto w) { return ts::conv2d(x, w, by_two); });
constexpr auto forward_apart = ts::compile([](auto x, auto w) { return ts::conv2d(x, w, apart); });

template <class F>
void expect_sent(const F& program, const ts::Mesh& mesh, const ts::PartitionSpec& spec, std::int64_t elements) {
  const ts::Plan plan = program.plan(put(Image({2, 16, 12, 5}, 1), mesh, spec), put(Image({3, 3, 5, 7}, 2), mesh));
  EXPECT_EQ(plan.count(ts::Collective::permute), 1);
  EXPECT_EQ(plan.wire_bytes(), elements * 8);
  EXPECT_EQ(plan.count(ts::all_gather), 0);
}

// x [2, 16, 12, 5] with windows of 3 x 3. On 4 devices each has 4 rows of 2 * 12 * 5 elements.
TEST(WindowHalo, BytesByHand) {
  const ts::Mesh four({{"x", 4}}), square({{"x", 2}, {"y", 2}});
  const std::int64_t row = 2 * 12 * 5;
  expect_sent(forward_same, four, {ts::none, "x"}, 2 * row);   // one row to each of two neighbours
  expect_sent(forward_by_two, four, {ts::none, "x"}, row);     // windows at rows -1, 1, 3, ...: the last row only
  expect_sent(forward_apart, four, {ts::none, "x"}, 4 * row);  // two rows to each neighbour
  // 8 rows and 6 columns each: a row of 6, a column of 8, and the corner
  expect_sent(forward_same, square, {ts::none, "x", "y"}, 2 * 5 * (6 + 8 + 1));
}

constexpr auto pools = ts::compile([](auto x) {
  const auto max = [](const auto& v) {
    return ts::max_pool2d(v, {.window = {3, 3}, .strides = {2, 2}, .padding = {1, 1}});
  };
  const auto wide = [](const auto& v) {
    return ts::max_pool2d(v, {.window = {4, 3}, .strides = {1, 2}, .padding = {2, 1}});
  };
  const auto mean = [](const auto& v) {
    return ts::avg_pool2d(v, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}, .count_include_pad = false});
  };
  const auto cubes = [](const auto& f) {
    return ts::grad([f](const auto& v) {
      const auto y = f(v);
      return ts::sum(y * y * y);
    });
  };
  return std::tuple(max(x), wide(x), mean(x), cubes(max)(x), cubes(wide)(x), cubes(mean)(x));
});

TEST(WindowHalo, Pools) {
  const ts::Mesh one({{"x", 1}}), three({{"x", 3}}), square({{"x", 2}, {"y", 2}}), uneven({{"x", 3}, {"y", 2}});
  const auto values = [](const auto& all) {
    return std::apply([](const auto&... each) { return std::vector<Values>{ts::to_host(each)...}; }, all);
  };
  for (const std::int64_t height : {2, 5, 9, 12})
    for (const std::int64_t width : {2, 7}) {
      const Image x({2, height, width, 3}, 5);
      const std::vector<Values> want = values(pools(put(x, one)));
      const auto expect = [&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
        SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " ", height, " x ", width));
        const auto in = put(x, mesh, spec);
        const ts::Plan plan = pools.plan(in);
        ts::CommunicationScope ran;
        const std::vector<Values> got = values(pools(in));
        for (std::size_t i = 0; i < want.size(); ++i) expect_close(got[i], want[i], "pool");
        expect_halos(plan, ran);
      };
      expect(three, {ts::none, "x"});
      expect(three, {ts::none, ts::none, "x"});
      expect(square, {ts::none, "x", "y"});
      expect(uneven, {ts::none, "x", "y"});
      expect(uneven, {"x", "y"});
    }
}

constexpr auto mean_gradient = ts::compile([](auto x) {
  return ts::grad([](const auto& v) {
    const auto y = ts::avg_pool2d(v, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}});
    return ts::sum(y * y * y);
  })(x);
});

// Large enough that the rows of an image are added up by several tasks, whose windows overlap.
TEST(WindowHalo, GradientsOfLargePools) {
  const std::int64_t batch = 3, height = 61, width = 47, features = 5;
  Image x({batch, height, width, features}, 7), dx(x.shape);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t f = 0; f < features; ++f)
      for (std::int64_t i = -1; i + 2 <= height; i += 2)
        for (std::int64_t j = -1; j + 1 <= width; ++j) {
          const auto each = [&](auto&& use) {
            for (std::int64_t k = i; k < i + 3; ++k)
              for (std::int64_t l = j; l < j + 2; ++l)
                if (k >= 0 && k < height && l >= 0 && l < width) use(k, l);
          };
          double sum = 0;
          each([&](std::int64_t k, std::int64_t l) { sum += x.at(b, k, l, f); });
          each([&](std::int64_t k, std::int64_t l) { dx.at(b, k, l, f) += 3 * sum * sum / (6 * 6 * 6); });
        }
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    expect_close(ts::to_host(mean_gradient(put(x, mesh, {ts::none, "x"}))), dx.values, "gradient");
    expect_close(ts::to_host(mean_gradient(put(x, mesh, {"x"}))), dx.values, "gradient");
  }
}

}  // namespace
