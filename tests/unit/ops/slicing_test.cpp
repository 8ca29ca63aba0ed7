#include "../../support/untyped.hpp"

#include <tessera/ops/data_movement/slicing.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({3, 5}, 1), y = random_array({3, 2}, 2);

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

TEST(Slicing, Slice) {
  const auto f = [](const auto& v, const ts::Dim& n) { return ts::slice<-1>(v * v, n - 1, n); };
  const Array out = apply<Float<2>, ts::Dim>(f, {x, Array::number(3)});
  ASSERT_EQ(out.shape, (Shape{3, 3}));
  for_each_index(out.shape, [&](const Shape& i) { EXPECT_EQ(out.at(i), std::pow(x.at({i[0], i[1] + 2}), 2)); });
  check_gradient<Float<2>, ts::Dim>(f, {x, Array::number(3)});
  // A slice of one index has a dim of static extent 1, which broadcasts.
  check_gradient<Float<2>>([](const auto& v) { return ts::slice<0>(v, 2, 1) * v; }, {x});
}

TEST(Slicing, Concat) {
  const auto f = [](const auto& a, const auto& b) { return ts::concat<1>(a * a, b, a); };
  const Array out = apply<Float<2>, Float<2>>(f, {x, y});
  ASSERT_EQ(out.shape, (Shape{3, 12}));
  for_each_index(out.shape, [&](const Shape& i) {
    const std::int64_t j = i[1];
    EXPECT_EQ(out.at(i), j < 5 ? std::pow(x.at({i[0], j}), 2) : j < 7 ? y.at({i[0], j - 5}) : x.at({i[0], j - 7}));
  });
  check_gradient<Float<2>, Float<2>>(f, {x, y});
  check_gradient<Float<2>>([](const auto& v) { return ts::concat<0>(v, v, v * v, v, v, v); }, {x});
}

TEST(Slicing, Pad) {
  const auto f = [](const auto& v) { return ts::pad<0>(v * v, 1, 2); };
  const Array out = apply<Float<2>>(f, {x});
  ASSERT_EQ(out.shape, (Shape{6, 5}));
  for_each_index(out.shape, [&](const Shape& i) {
    EXPECT_EQ(out.at(i), i[0] < 1 || i[0] > 3 ? 0 : std::pow(x.at({i[0] - 1, i[1]}), 2));
  });
  check_gradient<Float<2>>(f, {x});
}

// The gradient of a value is a concat where its slices together cover it once.
TEST(Slicing, SumOfPadsIsAConcat) {
  const auto f = [](const auto& v) {
    const auto w = ts::split_dim<1>(v, 3, 2);  // [3, ?, 3, 2]: the extent of dim 2 is known
    const auto a = ts::slice<2>(w, 0, 1), b = ts::slice<2>(w, 1, 1), c = ts::slice<2>(w, 2, 1);
    return a * b * b + c;
  };
  const Array wide = random_array({3, 6}, 9);
  check_gradient<Float<2>>(f, {wide});
  const Program program = trace<FirstGradient<decltype(f)>, std::tuple<Float<2>>, Float<4>>();
  EXPECT_EQ(program.count(Op::pad), 0);
  EXPECT_EQ(program.count(Op::concat), 1);

  const auto gap = [](const auto& v) {
    const auto w = ts::split_dim<1>(v, 3, 2);
    return ts::slice<2>(w, 0, 1) * ts::slice<2>(w, 2, 1);
  };
  check_gradient<Float<2>>(gap, {wide});
  EXPECT_EQ((trace<FirstGradient<decltype(gap)>, std::tuple<Float<2>>, Float<4>>().count(Op::pad)), 2);
  const auto twice = [](const auto& v) {
    const auto w = ts::split_dim<1>(v, 3, 2);
    return ts::slice<2>(w, 0, 2) * ts::slice<2>(w, 1, 2);
  };
  check_gradient<Float<2>>(twice, {wide});
  EXPECT_EQ((trace<FirstGradient<decltype(twice)>, std::tuple<Float<2>>, Float<4>>().count(Op::pad)), 2);
}

}  // namespace
