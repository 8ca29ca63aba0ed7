#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tensor/print/print.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

using tessera_test::expect_error;
constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

std::vector<float> values(const auto& expression) { return ts::to_host(ts::eval(expression)); }
std::vector<float> values(const ts::ShardedTensor<float, 2>& x) { return ts::to_host(x); }

// Compositions that make sizes of their numbers: in an expression, a number is otherwise known only when it runs.
TEST(Expressions, TakeCountsAndShiftsAsNumbers) {
  const auto x = ts::shard<float>({0, 1, 2, 3, 4}, ts::Mesh({{"x", 2}}), {"x"});
  const auto i = ts::shard<std::int32_t>({0, 2, 1}, ts::Mesh({{"x", 2}}), {"x"});
  EXPECT_EQ(values(ts::roll<0>(x, 2)), (std::vector<float>{3, 4, 0, 1, 2}));
  EXPECT_EQ(values(ts::roll<0>(x * 2.0, -1)), (std::vector<float>{2, 4, 6, 8, 0}));
  EXPECT_EQ(values(ts::tile<0>(ts::slice<0>(x, 1, 2), 2)), (std::vector<float>{1, 2, 1, 2}));
  EXPECT_EQ(values(ts::repeat_interleave<0>(ts::slice<0>(x, 1, 2), 2)), (std::vector<float>{1, 1, 2, 2}));
  EXPECT_EQ(values(ts::one_hot(i, 3)), (std::vector<float>{1, 0, 0, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(values(ts::cast<float>(ts::confusion_matrix(i, i, 3))), (std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(values(ts::vander(ts::slice<0>(x, 1, 2), 3)), (std::vector<float>{1, 1, 1, 4, 2, 1}));
  EXPECT_EQ(values(ts::precision(i, i, 3)), (std::vector<float>{1}));
  EXPECT_EQ(values(ts::auroc(ts::slice<0>(x, 0, 3), i)), (std::vector<float>{1}));
  expect_error(
      ts::errc::unsupported, [&] { values(ts::call<ts::detail::RepeatTag<1, 0, false>>(ts::Source(), x, 2)); },
      "size: it depends on a ts::Scalar or on a number of an expression", "give a ts::Dim");
}

TEST(Expressions, BlockDiagOfStoredTensors) {
  const auto a = ts::shard<float>({{1, 2, 3}, {4, 5, 6}}, mesh, {"data", "model"});
  const auto b = ts::shard<float>({{7}, {8}}, mesh, {ts::none, "data"});
  EXPECT_EQ(values(ts::block_diag(a, b)), (std::vector<float>{1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 7, 0, 0, 0, 8}));
  EXPECT_EQ(values(ts::block_diag(b, b * 2.0, b)),
            (std::vector<float>{7, 0, 0, 8, 0, 0, 0, 14, 0, 0, 16, 0, 0, 0, 7, 0, 0, 8}));
}

constexpr auto first_of = ts::compile([](auto x) { return std::tuple(ts::argmax<1>(x), ts::argmin(x)); });
constexpr auto at_share = ts::compile([](auto x, ts::Scalar q) { return ts::quantile<0>(x, q); });

// Where PyTorch and JAX raise errors.
TEST(Expressions, HaveNoExtremeWithoutElementsAndNoQuantileBeyondOne) {
  const auto none = ts::zeros<float>({2, 0}, mesh, {"data"}), rows = ts::zeros<float>({0, 3}, mesh, {"data"});
  expect_error(
      ts::errc::dim_range, [&] { ts::eval(ts::argmax<1>(none)); }, "[argmax] dim 1 of a tensor of shape [2,0]",
      "evaluate_test.cpp:");
  expect_error(
      ts::errc::dim_range, [&] { ts::eval(ts::argmin<0, std::int64_t>(rows)); },
      "[argmin] dim 0 of a tensor of shape [0,3]");
  expect_error(
      ts::errc::dim_range, [&] { first_of(none); }, "[argmax] dim 1 of a tensor of shape [2,0] has no elements");
  expect_error(
      ts::errc::dim_range, [&] { first_of(rows); }, "[argmin] dim 0 of a tensor of shape [0,3] has no elements");
  expect_error(
      ts::errc::dim_range, [&] { ts::eval(ts::nanargmax<1>(none)); }, "[nanargmax] dim 1 of a tensor of shape [2,0]");
  expect_error(
      ts::errc::dim_range, [&] { ts::eval(ts::nanargmin<0>(rows)); }, "[nanargmin] dim 0 of a tensor of shape [0,3]");
  EXPECT_EQ(ts::shape(ts::eval(ts::argmax<1>(rows))), (ts::Shape{0}));

  const auto x = ts::arange<float>(5, mesh, {"data"});
  EXPECT_EQ(values(ts::quantile<0>(x, 0.5)), std::vector<float>{2});
  expect_error(
      ts::errc::option, [&] { values(ts::quantile<0>(x, 2.0)); }, "[quantile] q: 2.000000 is not between 0 and 1",
      "evaluate_test.cpp:");
  expect_error(
      ts::errc::option, [&] { values(ts::nanquantile<0>(x, -0.25)); },
      "[quantile] q: -0.250000 is not between 0 and 1");
  EXPECT_EQ(ts::to_host(at_share(x, 1.0)), std::vector<float>{4});
  expect_error(
      ts::errc::option, [&] { at_share(x, 1.5); }, "[quantile] q: 1.500000 is not between 0 and 1");
}

// Compositions that need values of a trace, such as loops, are expressions of stored tensors too: of NumPy.
TEST(Expressions, AreFunctionsWithLoops) {
  const auto a = ts::shard<float>({{1, 2, 3}, {0, -1, 1}, {2, 0, 5}}, mesh, {"data"});
  const auto b = ts::shard<float>({{4, 5, 6}, {2, 2, 5}, {1, 1, 1}}, mesh, {"model"});
  EXPECT_EQ(values(ts::cross(a, b)), (std::vector<float>{-3, 6, -3, -7, 2, 2, -5, 3, 2}));
  expect_error(
      ts::errc::shape_mismatch, [&] { values(ts::cross(a, ts::slice<1>(b, 0, 2))); }, "in cross", "evaluate_test.cpp:");
  const float want[] = {1, 2, 3, 1.3132616f, 2.0485873f, 3.1269281f, 2.4076059f, 2.1698459f, 5.1429317f};
  const std::vector<float> got = values(ts::logcumsumexp<0>(a));
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
}

// Indices of several dims are merged; an error names what the program gave.
TEST(Expressions, NameAnIndexAndItsDim) {
  const auto x = ts::reshard(ts::ones<float>({5, 3}, mesh), {"data", "model"});
  const auto vector = [](std::int64_t last) { return ts::shard<std::int64_t>({0, 1, last}, mesh, {"data"}); };
  const auto lookup = [&](std::int64_t i, std::int64_t j) {
    return [&, i, j] { values(ts::index(x, std::tuple(vector(i), vector(j)))); };
  };
  expect_error(ts::errc::dim_range, lookup(4, 3), "[index] index in range: 3 is outside of dim 1, of extent 3 at ",
               "evaluate_test.cpp:");
  expect_error(ts::errc::dim_range, lookup(-4, 2), "[index] index in range: -4 is outside of dim 0, of extent 5 at ");
  expect_error(ts::errc::dim_range, lookup(5, 9), "5 is outside of dim 0, of extent 5");
  expect_error(ts::errc::dim_range, lookup(0, std::int64_t{1} << 40),
               "an index beyond 536870911 is outside of dim 1, of extent 3");
  expect_error(
      ts::errc::dim_range, [&] { values(ts::index_select<1>(x, vector(7))); },
      "[embedding] index in range: 7 is outside a table of 3 rows in index_select at evaluate_test.cpp:");
  const auto put = [&]<bool Add>(std::bool_constant<Add>) {
    const auto ones = ts::ones<float>({3}, mesh);
    values(ts::eval(ts::index_put<Add>(x, std::tuple(vector(5), vector(2)), ones)));
  };
  expect_error(
      ts::errc::dim_range, [&] { put(std::false_type{}); }, "[index_put]", "5 is outside of dim 0");
  expect_error(
      ts::errc::dim_range, [&] { put(std::true_type{}); }, "[index_put]", "5 is outside of dim 0");
  EXPECT_EQ(ts::to_host(ts::index(x, std::tuple(vector(4), vector(2)))), (std::vector<float>{1, 1, 1}));
  // The sum of a scatter is computed in f64, which the program has not written.
  expect_error(
      ts::errc::shape_mismatch,
      [&] {
        values(ts::scatter_add<0>(x, ts::zeros<int>({5, 3}, mesh), ts::ones<float>({4, 3}, mesh)));
      },
      "[scatter_add]", "f32[4,3] x i32[5,3] x f32[5,3]");
}

// Sizes are numbers that a plan needs, other numbers aren't: both work as literals and as variables.
TEST(Expressions, TakeSizesAsNumbers) {
  const auto x = ts::reshard(ts::arange<float>(12, mesh), {"data"});
  EXPECT_EQ(values(ts::slice<0>(x, 5, 3)), (std::vector<float>{5, 6, 7}));
  for (int start = 0; start < 3; ++start)
    EXPECT_EQ(values(ts::slice<0>(x, start, 2)), (std::vector<float>{1.f * start, 1.f + start}));
  EXPECT_EQ(values(ts::pad<0>(ts::slice<0>(x, 1, 1), 1, ts::Dim(2))), (std::vector<float>{0, 1, 0, 0}));
  const auto grid = ts::eval(ts::split_dim<0>(x, 4));
  EXPECT_EQ(ts::shape(grid), (ts::Shape{3, 4}));
  const auto swapped = ts::eval(ts::rearrange<"(a b) -> b a">(x, ts::len<"a">(2)));
  EXPECT_EQ(ts::shape(swapped), (ts::Shape{6, 2}));
  EXPECT_EQ(values(swapped * 2 + 1)[1], 2 * 6 + 1);
}

TEST(Expressions, NameTheLineOfASizeThatDoesNotFit) {
  const auto x = ts::arange<float>(8, mesh);
  constexpr int line = __LINE__ + 2;
  try {
    (void)ts::eval(ts::slice<0>(x, 5, 5));
    FAIL() << "nothing was thrown";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::shape_mismatch);
    EXPECT_EQ(std::string(e.what()),
              "[slice] start and size are outside the dim: f32[8], 5, 5 at evaluate_test.cpp:" + std::to_string(line));
  }
}

// Positions of 32 bits would wrap around to negative ones.
TEST(Expressions, RefuseDimsWhosePositionsI32CannotCount) {
  constexpr std::int64_t n = std::int64_t{1} << 31;
  const auto rows = ts::zeros<float>({n, std::int64_t{0}}, mesh);
  const auto refuses = [](auto&& f, const std::string& text) {
    expect_error(ts::errc::shape_mismatch, f, text, "more elements than i32 indices can count", "evaluate_test.cpp:");
  };
  refuses([&] { (void)ts::eval(ts::iota<0, std::int32_t>(rows)); }, "[iota] the dim has");
  refuses([&] { (void)ts::eval(ts::argsort<0>(rows)); }, "[argsort] the dim has");
  refuses([&] { (void)ts::eval(ts::sort<0>(rows)); }, "[argsort] the dim has");
  refuses([&] { (void)ts::eval(ts::topk<0>(rows, 3).indices); }, "[argsort] the dim has");
  refuses([&] { (void)ts::eval(ts::argmin<0>(rows)); }, "the dim");
  refuses([&] { (void)ts::eval(ts::arange<float>(n, rows)); }, "[arange] the dim has");
  EXPECT_EQ(ts::shape(ts::eval(ts::iota<0, std::int64_t>(rows))), (ts::Shape{n, 0}));
  EXPECT_EQ(ts::shape(ts::eval(ts::argmin<0, std::int64_t>(rows))), ts::Shape{0});
  EXPECT_EQ(ts::shape(ts::eval(ts::dynamic_slice<0>(rows, n - 2, 2))), (ts::Shape{2, 0}));
  EXPECT_EQ(ts::shape(ts::eval(ts::iota<1, std::int32_t>(rows))), (ts::Shape{n, 0}));
}

constexpr auto with_modes = ts::compile([](const auto& x, const auto& at, const auto& rows) {
  using enum ts::IndexMode;
  const auto across = ts::broadcast_like(ts::unsqueeze<1>(at), rows);
  const auto all = [&](const auto& v, const auto& source) {
    return std::tuple(ts::embedding<fill>(v, at, 0), ts::index_select<0, clip>(v, at),
                      ts::gather<0, fill>(v, across, 9), ts::scatter<0, drop>(v, across, source),
                      ts::scatter_add<0, drop>(v, across, source), ts::index_copy<0, drop>(v, at, source),
                      ts::index_add<0, drop>(v, at, source), ts::index_copy<0, clip>(v, at, source));
  };
  const auto slopes = ts::grad<0, 1>([&](const auto& v, const auto& source) {
    return std::apply([](const auto&... made) { return (ts::sum(made * made) + ...); }, all(v, source));
  });
  return std::tuple(all(x, rows), slopes(x, rows));
});

TEST(Expressions, IndexModesOnShardings) {
  const ts::OracleScope same_on_one_device;
  std::vector<float> numbers(20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.25f * static_cast<float>(i) - 2;
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"data"},
                                        ts::PartitionSpec{ts::none, "model"}, ts::PartitionSpec{"model", "data"}})
    for (const ts::PartitionSpec& of_indices : {ts::PartitionSpec{}, ts::PartitionSpec{"data"}}) {
      const auto x = ts::shard(numbers, {5, 4}, mesh, spec), rows = ts::shard(numbers, {5, 4}, mesh, of_indices);
      const auto [made, slopes] = with_modes(x, ts::shard<std::int32_t>({4, -1, 2, 7, 2}, mesh, of_indices), rows);
      const std::vector<float> filled = ts::to_host(std::get<0>(made));
      EXPECT_EQ(std::vector<float>(filled.begin(), filled.begin() + 8),
                (std::vector<float>{2, 2.25, 2.5, 2.75, 0, 0, 0, 0}));
    }
}

// As jnp.take, in all modes; dropping writes nothing, as scatters of XLA.
TEST(Expressions, IndexModesOfADimWithoutElements) {
  using enum ts::IndexMode;
  const auto x = ts::zeros<float>({0, 2}, mesh, {"data"}), rows = ts::ones<float>({3, 2}, mesh);
  const auto i = ts::shard<std::int32_t>({0, 3, -1}, mesh, {"data"});
  const auto across = ts::eval(ts::broadcast_to(ts::unsqueeze<1>(i), {3, 2}));
  const auto expect_refused = [](auto&& f) {
    expect_error(
        ts::errc::dim_range, [&] { (void)values(f()); }, "0 is outside");
  };
  expect_refused([&] { return ts::embedding<fill>(x, i, 7); });
  expect_refused([&] { return ts::embedding<clip>(x, i); });
  expect_refused([&] { return ts::index_select<0, fill>(x, i, 7); });
  expect_refused([&] { return ts::gather<0, fill>(x, across, 7); });
  expect_refused([&] { return ts::gather<0, clip>(x, across); });
  expect_refused([&] { return ts::index_copy<0, clip>(x, i, rows); });
  EXPECT_TRUE(values(ts::embedding<fill>(x, ts::zeros<std::int32_t>({0}, mesh), 7)).empty());
  EXPECT_TRUE(values(ts::scatter<0, drop>(x, across, rows)).empty());
  EXPECT_TRUE(values(ts::scatter_add<0, drop>(x, across, rows)).empty());
  EXPECT_TRUE(values(ts::index_copy<0, drop>(x, i, rows)).empty());
  EXPECT_TRUE(values(ts::index_add<0, drop>(x, i, rows)).empty());
  EXPECT_TRUE(values(ts::index_add<0, drop>(x, ts::slice<0>(i, 0, 1), ts::slice<0>(rows, 0, 1))).empty());
  const auto between = ts::zeros<float>({2, 0, 3}, mesh);
  EXPECT_TRUE(values(ts::index_add<1, drop>(between, i, ts::ones<float>({2, 3, 3}, mesh))).empty());
  constexpr auto slopes = ts::compile([](const auto& to, const auto& at, const auto& of) {
    return ts::grad<0, 1>([&](const auto& v, const auto& s) {
      const auto made = ts::index_add<0, drop>(v, at, s);
      return ts::sum(made * made);
    })(to, of);
  });
  const auto [of_x, of_rows] = slopes(x, i, rows);
  EXPECT_TRUE(values(of_x).empty());
  EXPECT_EQ(values(of_rows), std::vector<float>(6, 0.0f));
}

// They add 0 to a loss, and a lookup of the labels of a data set finds them.
TEST(Expressions, TargetsThatAreNoClass) {
  const auto logits = ts::shard<float>({{1, 2, 3}, {0, -1, 1}, {2, 0, 5}, {4, 4, 1}}, mesh, {"data"});
  const auto of = [](const std::vector<std::int32_t>& labels) { return ts::shard(labels, mesh, {"data"}); };
  const double first = std::log(std::exp(-2) + std::exp(-1) + 1);  // of class 2 in row 0
  for (const std::int32_t none : {3, -1, -100})
    EXPECT_FLOAT_EQ(ts::item(ts::eval(ts::cross_entropy(logits, of({2, none, none, none})))),
                    static_cast<float>(first / 4));
  const auto check = [&](const auto& labels) {
    (void)ts::eval(ts::index_select<0>(ts::zeros<float>({3}, mesh), labels));
  };
  EXPECT_NO_THROW(check(of({2, 0, 1, 1})));
  for (const std::int32_t none : {3, -1})
    expect_error(
        ts::errc::dim_range,
        [&] {
          check(of({2, 0, none, 1}));
        },
        std::to_string(none) + " is outside");
}

// Of stored tensors an expression.
TEST(Expressions, ScansAndNormsOfStoredTensors) {
  const auto a = ts::shard<float>({1, 2, 3, 4, 5}, mesh, {"data"}), b = ts::shard<float>({2, 1, 3, 1, 2}, mesh);
  constexpr auto sum = [](const auto& x, const auto& y) { return x + y; };
  EXPECT_EQ(values(ts::associative_scan(sum, a)), (std::vector<float>{1, 3, 6, 10, 15}));
  EXPECT_EQ(values(ts::associative_scan(sum, a * 2.0, {.reverse = true})), (std::vector<float>{30, 28, 24, 18, 10}));
  const auto both = ts::associative_scan(
      [](const auto& x, const auto& y) { return std::pair(y.first * x.first, y.first * x.second + y.second); },
      std::pair(a, b));
  EXPECT_EQ(values(both.first), (std::vector<float>{1, 2, 6, 24, 120}));
  EXPECT_EQ(values(both.second), (std::vector<float>{2, 5, 18, 73, 367}));
  EXPECT_FLOAT_EQ(ts::item(ts::global_norm(a)), std::sqrt(55.f));
  EXPECT_FLOAT_EQ(ts::item(ts::global_norm(std::tuple(a, b * 2.0))), std::sqrt(131.f));
}

// A result that no tensor can be is an error before anything is allocated, however small its operands are.
TEST(Expressions, RefuseResultsThatAreTooLarge) {
  constexpr std::int64_t n = std::int64_t{1} << 31;
  const auto rows = ts::zeros<float>({n, std::int64_t{0}}, mesh),
             columns = ts::zeros<float>({std::int64_t{0}, n}, mesh);
  const auto v = ts::zeros<float>({1 << 21}, mesh);
  const auto image = ts::ones<float>({2, 10, 3}, mesh), taps = ts::ones<float>({9, 3, 4}, mesh);
  const auto expect = [](ts::errc id, auto&& f, const std::string& text) {
    try {
      f();
      FAIL() << "nothing was thrown";
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), id) << e.what();
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(" at evaluate_test.cpp:"), std::string::npos) << e.what();
    }
  };
  expect(
      ts::errc::capacity, [&] { (void)ts::eval(ts::matmul(rows, columns)); },
      "[einsum] more than 2^52 elements in f32[2147483648,2147483648]: f32[2147483648,0] x f32[0,2147483648]");
  expect(
      ts::errc::capacity,
      [&] { (void)ts::eval(ts::unsqueeze<1>(ts::unsqueeze<1>(v)) + ts::unsqueeze<1>(v) + ts::unsqueeze<0>(v)); },
      "f32[2097152,2097152,2097152]");
  expect(
      ts::errc::capacity, [&] { (void)ts::eval(ts::pad<0>(v, 0, INT64_MAX)); }, "[dim] 64-bit overflow: add(");
  expect(
      ts::errc::shape_mismatch, [&] { (void)ts::eval(ts::slice<0>(v, 1, INT64_MAX)); },
      "start and size are outside the dim");
  expect(
      ts::errc::shape_mismatch, [&] { (void)ts::eval(ts::conv1d(image, taps, {.dilation = {std::int64_t{1} << 61}})); },
      "a window is longer than the padded dim: windows of 9, stride 1, dilation 2305843009213693952, along dim 1");
  EXPECT_EQ(values(ts::sum<1>(ts::zeros<float>({1000, 0}, mesh))), std::vector<float>(1000));
}

// Above 2^53 not every integer is a double.
TEST(Expressions, SizesAndKeysAreExactIntegers) {
  constexpr std::int64_t even = std::int64_t{1} << 53, odd = even + 1;
  const auto x = ts::arange<float>(8, mesh);
  static constexpr auto same = ts::compile([](auto a, auto d) { return std::tuple(a, d); });
  static constexpr auto at =
      ts::compile([](auto a, auto d) { return ts::slice<0>(a, d - (std::int64_t{1} << 53), 1); });
  for (const std::int64_t n : {even, odd, -odd, INT64_MAX, INT64_MIN})
    EXPECT_EQ(std::get<1>(same(x, ts::Dim(n))).value(), n);
  EXPECT_EQ(ts::to_host(at(x, ts::Dim(even))), std::vector<float>{0});
  EXPECT_EQ(ts::to_host(at(x, ts::Dim(odd))), std::vector<float>{1}) << "planned anew";
  EXPECT_EQ(ts::to_host(at(x, ts::Dim(even))), std::vector<float>{0});
  EXPECT_NE(values(ts::uniform_like(x, odd)), values(ts::uniform_like(x, even)));
  EXPECT_EQ(values(ts::uniform_like(x, odd)), values(ts::uniform_like(x, ts::Scalar(odd))));
  static constexpr auto draw = ts::compile([](auto a, auto key) { return ts::uniform_like(a, key); });
  EXPECT_EQ(ts::to_host(draw(x, ts::Scalar(odd))), values(ts::uniform_like(x, odd)));

  static constexpr auto cut = ts::compile([](auto a, auto d) { return ts::slice<0>(a, 0, ts::extent<0>(a) / d); });
  EXPECT_EQ(ts::shape(cut(x, ts::Dim(3))), ts::Shape{2});
  for (const std::int64_t divisor : {std::int64_t{0}, INT64_MIN}) {
    try {
      (void)cut(x, ts::Dim(divisor));
      EXPECT_NE(divisor, 0);
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), ts::errc::dim_range) << e.what();
      EXPECT_NE(std::string(e.what()).find("div(8, 0) at evaluate_test.cpp:"), std::string::npos) << e.what();
    }
  }
}

// Which dims have static extent 1 is the same in an expression and in a traced function: they broadcast, are dropped
// and stand for any label in both. In an expression the size is known when it runs.
TEST(Expressions, KnowThatAnIndexHasExtentOne) {
  const auto x = ts::reshard(ts::shard<float>({{1, 2, 3}, {4, 5, 7}}, mesh), {"data"});
  const auto column = [&](int start, int size) { return ts::to_host(x - ts::slice<1>(x, start, size)); };
  EXPECT_EQ(column(0, 1), (std::vector<float>{0, 1, 2, 0, 1, 3}));
  EXPECT_EQ(column(0, 1), ts::to_host(ts::compile([](auto v) { return v - ts::slice<1>(v, 0, 1); })(x)));
  EXPECT_EQ(column(0, 1), ts::to_host(ts::compile([](auto v) { return v - ts::dynamic_slice<1>(v, 0, 1); })(x)));
  EXPECT_EQ(column(0, 3), (std::vector<float>(6, 0)));
  expect_error(
      ts::errc::shape_mismatch, [&] { column(0, 2); }, "f32[2,3] x f32[2,2]");
  EXPECT_EQ(column(2, 1), (std::vector<float>{-2, -1, 0, -3, -2, 0}));

  const auto row = [&](int start, int size) { return ts::to_host(ts::squeeze<0>(ts::slice<0>(x, start, size))); };
  EXPECT_EQ(row(1, 1), (std::vector<float>{4, 5, 7}));
  expect_error(
      ts::errc::shape_mismatch, [&] { row(0, 2); }, "[squeeze] dim 0 of f32[2,3] has extent 2");
  const auto rearranged = [&](int size) { return ts::to_host(ts::rearrange<"1 a -> a">(ts::slice<0>(x, 1, size))); };
  EXPECT_EQ(rearranged(1), (std::vector<float>{4, 5, 7}));
  expect_error(
      ts::errc::shape_mismatch, [&] { rearranged(2); }, "[eval] static extent");

  // Each size on its own.
  const auto both = [&](int rows, int columns) {
    return ts::shape(ts::eval(ts::slice<0>(x, 0, rows) * ts::slice<1>(x, 0, columns)));
  };
  EXPECT_EQ(both(1, 3), (ts::Shape{2, 3}));
  EXPECT_EQ(both(2, 1), (ts::Shape{2, 3}));
  EXPECT_EQ(both(1, 1), (ts::Shape{2, 3}));
  EXPECT_EQ(both(2, 3), (ts::Shape{2, 3}));
  EXPECT_EQ(ts::to_host(x - ts::topk<1>(x, 1).values), (std::vector<float>{-2, -1, 0, -3, -2, 0}));
}

// The value of a number is no part of an expression's program: its type is, and its range is looked at when it runs.
TEST(Expressions, PromoteAsTracesDo) {
  const auto i = ts::shard<int>({-1, 0, 1, 4}, mesh);
  EXPECT_EQ(values(i * 0.5), (std::vector<float>{-0.5f, 0, 0.5f, 2}));
  EXPECT_EQ(ts::to_host(ts::eval(i < 0.5)), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(ts::item(ts::mean(ts::full<std::uint8_t>({2}, 200, mesh))), 200.f);
  EXPECT_EQ(ts::item(ts::sum(ts::full<std::int8_t>({1000}, 100, mesh))), 100000);
  EXPECT_EQ(ts::item(ts::mean(ts::full<std::int32_t>({2}, INT32_MAX, mesh))), 0x1p31f);
  const auto none = ts::zeros<float>({0, 3}, mesh, {"data", "model"});
  EXPECT_TRUE(std::isnan(ts::item(ts::mse(none, none)))) << "the mean of no elements, as in PyTorch";

  const auto u = ts::full<std::uint8_t>({1}, 200, mesh);
  for (const int number : {0, 55})
    EXPECT_EQ(ts::to_host(ts::eval(u + number)), (std::vector<std::uint8_t>{static_cast<std::uint8_t>(200 + number)}));
  for (const int number : {-1, 256}) try {
      (void)ts::eval(u + number);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ts::error& e) {
      const std::string line = std::to_string(__LINE__ - 3);
      EXPECT_EQ(e.id(), ts::errc::dtype_mismatch);
      EXPECT_EQ(std::string(e.what()),
                "[number] range: " + std::to_string(number) + " is not a value of u8 at evaluate_test.cpp:" + line);
    }
}

constexpr auto lookup_gradient = ts::compile([](auto table, auto index, auto weights) {
  return ts::grad([](auto t, auto i, auto w) { return ts::sum(ts::embedding(t, i) * w); })(table, index, weights);
});

// Errors of sums do not grow with the number of terms, whichever kernel adds them up: docs/decisions/0029.
TEST(LongSums, OfAMillionEqualTerms) {
  constexpr std::int64_t n = 1'000'000;
  const double exact = n * static_cast<double>(0.1f);
  const auto expect_exact = [&](const char* what, double got) { EXPECT_NEAR(got / exact, 1, 1e-6) << what; };
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"data"}}) {
    const auto x = ts::full<float>({n, 1}, 0.1f, mesh, spec), three = ts::full<float>({n, 3}, 0.1f, mesh, spec);
    expect_exact("sum", ts::item(ts::sum(x)));
    expect_exact("sum over rows of one", values(ts::sum<0>(x))[0]);
    expect_exact("sum over rows", values(ts::sum<0>(three))[2]);
    expect_exact("mean over rows", values(ts::mean<0>(three))[1] * static_cast<double>(n));
    expect_exact("cumsum", values(ts::cumsum<0>(x)).back());
    const auto index = ts::full<std::int32_t>({n}, 1, mesh, spec);
    expect_exact("lookup", values(lookup_gradient(ts::ones<float>({2, 1}, mesh), index, x))[1]);
  }
}

// A mean far from 0 is rounded by more than its layer's result may be off.
TEST(LongSums, LayerNormFarFromZero) {
  constexpr int n = 1000;
  std::vector<float> row(n);
  for (int i = 0; i < n; ++i) row[static_cast<std::size_t>(i)] = 1e4f + static_cast<float>(i * 37 % 101) / 50;
  double mean = 0, variance = 0;
  for (const float v : row) mean += static_cast<double>(v) / n;
  for (const float v : row) variance += (v - mean) * (v - mean) / n;
  const auto got =
      values(ts::layer_norm(ts::shard(row, {1, n}, mesh), ts::ones<float>({n}, mesh), ts::zeros<float>({n}, mesh)));
  for (std::size_t i = 0; i < row.size(); ++i)
    ASSERT_NEAR(got[i], (row[i] - mean) / std::sqrt(variance + 1e-5), 2e-6) << i;
}

constexpr auto dropout_gradient = ts::compile([](auto x, auto rate) {
  return ts::value_and_grad([](const auto& v, const auto& r) { return ts::sum(ts::dropout(v * v, r, 3)); })(x, rate);
});

TEST(Dropout, KeepsNothingAtARateOfOne) {
  const auto x = ts::full<float>({6}, 3, mesh);
  const auto [none, flat] = dropout_gradient(x, ts::Scalar(1));
  EXPECT_EQ(ts::item(none), 0);
  EXPECT_EQ(ts::to_host(flat), std::vector<float>(6, 0));
  const auto [all, slope] = dropout_gradient(x, ts::Scalar(0));
  EXPECT_EQ(ts::item(all), 54);
  EXPECT_EQ(ts::to_host(slope), std::vector<float>(6, 6));
  EXPECT_EQ(values(ts::dropout(x, 1.0, 3)), std::vector<float>(6, 0));
}

TEST(Dropout, RatesAreProbabilities) {
  const auto x = ts::full<float>({6}, 3, mesh);
  for (const double rate : {-0.1, 1.001, 2.0, std::nan("")}) {
    const auto expect_option = [&](auto f) {
      try {
        f();
        ADD_FAILURE() << "nothing was thrown for " << rate;
      } catch (const ts::error& e) {
        EXPECT_EQ(e.id(), ts::errc::option) << e.what();
        EXPECT_NE(std::string(e.what()).find("[dropout] rate: "), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find(" at evaluate_test.cpp:"), std::string::npos) << e.what();
      }
    };
    expect_option([&] { (void)dropout_gradient(x, ts::Scalar(rate)); });
    expect_option([&] { (void)ts::eval(ts::dropout(x, rate, 3)); });
  }
  EXPECT_EQ(ts::item(std::get<0>(dropout_gradient(x, ts::Scalar(0)))), 54) << "after an error the program runs on";
}

TEST(evaluate, an_expression_prints_what_it_is) {
  const auto x = ts::ones<float>({2, 2}, ts::Mesh({{"x", 2}}), {"x"});
  std::ostringstream out;
  out << ts::sum(x) << "\n" << x + x << "\n" << ts::to_string(x / 3, {.precision = 2});
  EXPECT_EQ(out.str(), "4.\nf32[]{} on mesh(x=2)\n[[2. 2.]\n [2. 2.]]\nf32[2,2]{x,-} on mesh(x=2)\n"
                       "[[0.33 0.33]\n [0.33 0.33]]\nf32[2,2]{x,-} on mesh(x=2)");
}

}  // namespace
