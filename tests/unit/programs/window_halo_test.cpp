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

// Slices with steps: windows of one element. x [m, n], of which every step-th element of dim 1 is taken.
constexpr auto slices = ts::compile([](auto x, auto g, auto start, auto size, auto step) {
  const auto taken = [](const auto& v, const auto& from, const auto& count, const auto& by) {
    return ts::slice<1>(v, from, count, by);
  };
  const auto gradient = ts::grad([taken](const auto& v, const auto& by, const auto& from, const auto& count,
                                         const auto& every) { return ts::sum(taken(v, from, count, every) * by); });
  const auto replaced = [](const auto& v, const auto& u, const auto& from, const auto& by) {
    return ts::slice_scatter<1>(v, u, from, by);
  };
  const auto of_update = ts::grad([replaced](const auto& u, const auto& v, const auto& from, const auto& by) {
    return ts::sum(replaced(v, u * u, from, by) * v);
  });
  return std::tuple(taken(x, start, size, step), gradient(x, g, start, size, step), replaced(x, g, start, step),
                    of_update(g, x, start, step));
});

/// The most elements that one of `count` devices sends if element i of `from` goes to element to(i) of `into`, both in
/// equal chunks; -1: it goes nowhere.
std::int64_t most_sent(std::int64_t from, std::int64_t into, std::int64_t count,
                       const std::function<std::int64_t(std::int64_t)>& to) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < from; ++i) {
    const std::int64_t own = i / ((from + count - 1) / count);
    if (to(i) >= 0 && to(i) / ((into + count - 1) / count) != own) ++sent[static_cast<std::size_t>(own)];
  }
  return *std::max_element(sent.begin(), sent.end());
}

TEST(WindowHalo, SlicesWithSteps) {
  const std::int64_t m = 3;
  for (const int devices : {1, 2, 3, 5})
    for (const std::int64_t n : {1, 2, 5, 8, 13, 24})
      for (const std::int64_t step : {1, 2, 3, 7, 30})
        for (const std::int64_t start : {std::int64_t{0}, std::int64_t{1}, n / 2, n - 1}) {
          if (start >= n) continue;
          const std::int64_t most = (n - start - 1) / step + 1;
          for (const std::int64_t size : {std::int64_t{1}, most / 2, most}) {
            if (size < 1) continue;
            SCOPED_TRACE(ts::concat_text(devices, " devices, ", n, " from ", start, " by ", step, ", ", size));
            const ts::Mesh mesh({{"x", devices}});
            const Image x({m, n, 1, 1}, 1), g({m, size, 1, 1}, 2);
            Image taken(g.shape), dx(x.shape), replaced = x, du(g.shape);
            for (std::int64_t i = 0; i < m; ++i)
              for (std::int64_t j = 0; j < size; ++j) {
                const double u = g.values[static_cast<std::size_t>(i * size + j)];
                taken.at(i, j, 0, 0) = x.values[static_cast<std::size_t>(i * n + start + j * step)];
                dx.at(i, start + j * step, 0, 0) = u;
                replaced.at(i, start + j * step, 0, 0) = u;
                du.at(i, j, 0, 0) = 2 * u * taken.at(i, j, 0, 0);
              }
            const auto on_mesh = ts::shard(x.values, {m, n}, mesh, {ts::none, "x"});
            const auto cotangent = ts::shard(g.values, {m, size}, mesh, {ts::none, "x"});
            const ts::Dim from(start), count(size), by(step);
            const ts::Plan plan = slices.plan(on_mesh, cotangent, from, count, by);
            ts::CommunicationScope ran;
            const auto [a, b, c, d] = slices(on_mesh, cotangent, from, count, by);
            expect_close(ts::to_host(a), taken.values, "value");
            expect_close(ts::to_host(b), dx.values, "gradient");
            expect_close(ts::to_host(c), replaced.values, "slice_scatter");
            expect_close(ts::to_host(d), du.values, "gradient of the update");
            expect_halos(plan, ran);
            // Only elements that are taken move: two halos from x to slices, two in the opposite direction.
            const std::int64_t out = most_sent(n, size, devices, [&](std::int64_t i) {
              const std::int64_t j = i - start;
              return j >= 0 && j % step == 0 && j / step < size ? j / step : -1;
            });
            const std::int64_t in = most_sent(size, n, devices, [&](std::int64_t j) { return start + j * step; });
            EXPECT_EQ(plan.wire_bytes(), 8 * m * 2 * (out + in));
          }
        }
}

// Every second element of 16 on 4 devices of 4: each has the elements of its own slice. From element 8 on, the last two
// devices have all of them: each sends what the others need.
constexpr auto even = ts::compile([](auto x) { return ts::slice<0>(x, 0, 8, 2); });
constexpr auto odd = ts::compile([](auto x) { return ts::slice<0>(x, 1, 8, 2); });
constexpr auto last = ts::compile([](auto x) { return ts::slice<0>(x, 8, 4, 2); });
TEST(WindowHalo, BytesOfSlicesByHand) {
  const auto x = ts::shard(Values(16, 1.0), {16}, ts::Mesh({{"x", 4}}), {"x"});
  EXPECT_EQ(even.plan(x).wire_bytes(), 0);
  EXPECT_EQ(odd.plan(x).wire_bytes(), 0);
  EXPECT_EQ(last.plan(x).wire_bytes(), 2 * 8);  // elements 8 and 10 of device 2 to devices 0 and 1, 12 and 14 likewise
  EXPECT_EQ(last.plan(x).count(ts::all_gather), 0);
}

// A slice of which the result is whole: the slice is gathered, not its operand.
constexpr auto whole = ts::compile([](auto x) { return ts::with_sharding(ts::slice<0>(x, 0, 8, 2) * 2.0, {}); });
TEST(WindowHalo, AGatheredSliceIsGatheredAfterItIsTaken) {
  const auto x = ts::shard(Values(16, 1.0), {16}, ts::Mesh({{"x", 4}}), {"x"});
  EXPECT_EQ(whole.plan(x).count(ts::all_gather), 1);
  EXPECT_EQ(whole.plan(x).wire_bytes(), 3 * 2 * 8);
}

// x[start:start:3] has no elements, and its gradient is zeros, as in PyTorch and JAX.
constexpr auto none_of = ts::compile([](const auto& x, ts::Dim start) {
  const auto loss = [&](const auto& v) { return ts::sum(ts::slice<0>(v, start, 0, 3)) + ts::sum(v * v); };
  return std::tuple(ts::slice<0>(x, start, 0, 3), ts::grad(loss)(x));
});
TEST(WindowHalo, SlicesOfNoElements) {
  for (const int devices : {1, 2, 4})
    for (const std::int64_t start : {0, 3, 7}) {
      const auto x = ts::shard(Values(7, 1.0), {7}, ts::Mesh({{"x", devices}}), {"x"});
      const auto [y, gradient] = none_of(x, ts::Dim(start));
      EXPECT_EQ(ts::shape(y), ts::Shape{0});
      EXPECT_EQ(ts::to_host(gradient), Values(7, 2.0));
    }
  const auto empty = ts::shard(Values(), {0}, ts::Mesh({{"x", 2}}), {"x"});
  EXPECT_EQ(ts::shape(std::get<0>(none_of(empty, ts::Dim(0)))), ts::Shape{0});
  EXPECT_THROW(none_of(empty, ts::Dim(1)), ts::error);
}

constexpr ts::Unfold window{.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}};
constexpr auto unfolds = ts::compile([](auto x) {
  const auto f = [](const auto& v) { return ts::unfold(v, window); };
  const auto rows = f(x);
  return std::tuple(rows, ts::grad([f](const auto& v) {
                      const auto y = f(v);
                      return ts::sum(y * y * y);
                    })(x));
});
template <std::int64_t H, std::int64_t W>
constexpr auto folds = ts::compile([](auto rows) {
  const auto f = [](const auto& v) { return ts::fold(v, {H, W}, window); };
  return std::tuple(f(rows), ts::grad([f](const auto& v) {
                      const auto y = f(v);
                      return ts::sum(y * y * y);
                    })(rows));
});

template <std::int64_t H, std::int64_t W> void expect_unfolded() {
  const std::int64_t batch = 2, features = 3, down = (H + 2 - 2 - 1) / 2 + 1, across = W + 2 - 2;
  const Image x({batch, H, W, features}, 1), rows({batch, down * across, features * 6, 1}, 2);
  Image taken(rows.shape), dx(x.shape), sums(x.shape), drows(rows.shape);
  const auto each = [&](auto&& use) {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < down; ++i)
        for (std::int64_t j = 0; j < across; ++j)
          for (std::int64_t c = 0; c < features; ++c)
            for (std::int64_t k = 0; k < 3; ++k)
              for (std::int64_t l = 0; l < 2; ++l) {
                const std::int64_t r = i * 2 + k - 1, s = j + 2 * l - 1;
                if (r >= 0 && r < H && s >= 0 && s < W) use(b, i * across + j, c * 6 + k * 2 + l, r, s, c);
              }
  };
  Image in = x, from = rows;
  each([&](auto b, auto row, auto column, auto r, auto s, auto c) {
    const double v = in.at(b, r, s, c);
    taken.at(b, row, column, 0) = v;
    dx.at(b, r, s, c) += 3 * v * v;
    sums.at(b, r, s, c) += from.at(b, row, column, 0);
  });
  each([&](auto b, auto row, auto column, auto r, auto s, auto c) {
    drows.at(b, row, column, 0) = 3 * sums.at(b, r, s, c) * sums.at(b, r, s, c);
  });
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, {"x"}, {ts::none, "x"}, {ts::none, ts::none, "x"}}) {
      SCOPED_TRACE(ts::concat_text(devices, " devices, ", H, " x ", W, " ", spec.text()));
      const auto image = put(x, mesh, spec);
      const auto [a, b] = unfolds(image);
      expect_close(ts::to_host(a), taken.values, "unfold");
      expect_close(ts::to_host(b), dx.values, "gradient of unfold");
      const auto matrix = ts::shard(rows.values, {batch, down * across, features * 6}, mesh, spec);
      const auto [c, d] = folds<H, W>(matrix);
      expect_close(ts::to_host(c), sums.values, "fold");
      expect_close(ts::to_host(d), drows.values, "gradient of fold");
      if (devices > 1 && spec == ts::PartitionSpec{ts::none, "x"} && down % devices == 0) {
        const ts::Plan there = unfolds.plan(image), back = folds<H, W>.plan(matrix);
        for (const ts::Plan* plan : {&there, &back}) {
          EXPECT_EQ(plan->count(ts::all_gather), 0);
          EXPECT_EQ(plan->count(ts::all_to_all), 0);
        }
      }
    }
  }
}
TEST(WindowHalo, UnfoldAndFold) {
  expect_unfolded<12, 5>();
  expect_unfolded<7, 4>();
  expect_unfolded<4, 9>();
}

// The windows in their places keep both dims split: the same rows, and a halo where unfold gathers the image.
constexpr auto in_place = ts::compile([](auto x) {
  const auto f = [](const auto& v) { return ts::conv_general_dilated_patches(v, window); };
  const auto rows = f(x);
  return std::tuple(rows, ts::merge_dims<1, 2>(rows), ts::grad([f](const auto& v) {
                      const auto y = f(v);
                      return ts::sum(y * y * y);
                    })(x));
});
constexpr auto patches_alone = ts::compile([](auto x) { return ts::conv_general_dilated_patches(x, window); });
TEST(WindowHalo, PatchesInTheirPlacesKeepBothDimsSplit) {
  const Image x({2, 8, 6, 3}, 1);
  const auto [rows, dx] = unfolds(put(x, ts::Mesh(), {}));
  const ts::Mesh mesh({{"x", 2}, {"y", 3}});
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{ts::none, "x"}, {ts::none, ts::none, "y"}, {ts::none, "x", "y"}, {ts::none, "y", "x"}}) {
    SCOPED_TRACE(spec.text());
    const auto image = put(x, mesh, spec);
    const auto [placed, merged, gradient] = in_place(image);
    EXPECT_EQ(ts::shape(placed), (ts::Shape{2, 4, 6, 18}));
    expect_close(ts::to_host(placed), ts::to_host(rows), "patches");
    expect_close(ts::to_host(merged), ts::to_host(rows), "merged patches");
    expect_close(ts::to_host(gradient), ts::to_host(dx), "gradient of patches");
    const ts::Plan plan = patches_alone.plan(image);
    EXPECT_EQ(plan.count(ts::Collective::permute), 1);
    EXPECT_EQ(plan.count(ts::all_gather) + plan.count(ts::all_to_all), 0);
  }
}

// [2, 12, 5, 3] on 3 devices of 4 rows: windows begin at rows -1, 1, 3, ..., so the last row of a device is read by the
// next one.
TEST(WindowHalo, BytesOfUnfoldByHand) {
  const ts::Mesh three({{"x", 3}});
  static constexpr auto forward = ts::compile([](auto x) { return ts::unfold(x, window); });
  const ts::Plan plan = forward.plan(put(Image({2, 12, 5, 3}, 1), three, {ts::none, "x"}));
  EXPECT_EQ(plan.wire_bytes(), 2 * 5 * 3 * 8);
  EXPECT_EQ(plan.count(ts::Collective::permute), 1);
}

}  // namespace
