#include <array>
#include <tuple>

#include "../../support/untyped.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/data_movement/reshape.hpp>
#include <tessera/ops/data_movement/slice_scatter.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/spatial/pad_modes.hpp>
#include <tessera/partition/propagation/shapes.hpp>

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

TEST(Slicing, ToTheEnd) {
  const auto f = [](const auto& v, const ts::Dim& n) {
    return ts::slice<1>(v * v, 2) * ts::slice<-1>(v, -3) * ts::slice<1>(v, n) * ts::slice<1>(v, n - ts::extent<1>(v));
  };
  const Array out = apply<Float<2>, ts::Dim>(f, {x, Array::number(2)});
  ASSERT_EQ(out.shape, (Shape{3, 3}));
  for_each_index(out.shape, [&](const Shape& i) {
    EXPECT_NEAR(out.at(i), std::pow(x.at({i[0], i[1] + 2}), 5), 1e-12);
  });
  check_gradient<Float<2>, ts::Dim>(f, {x, Array::number(2)});
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
  const auto of_list = [](const auto& a, const auto& b) {
    return std::tuple(ts::concat<1>(std::tuple(a * a, b, a)), ts::concat<1>(std::array{b, b * 2.0}));
  };
  const auto made = results_of<Float<2>, Float<2>>(of_list, {x, y});
  EXPECT_EQ(made[0].data, out.data);
  EXPECT_EQ(made[1].shape, (Shape{3, 4}));
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
TEST(Slicing, PadsNameWhatDoesNotFit) {
  const auto infer = []<class F>(const F&, std::int64_t before, std::int64_t after) {
    return [before, after] {
      const ts::Shape shapes[] = {{3, 5}, {}, {}};
      const ts::HostNumber numbers[] = {0, before, after};
      ts::infer_shapes(trace<F, Float<2>, ts::Dim, ts::Dim>().view(), shapes, numbers);
    };
  };
  const auto zeros = [](const auto& v, const ts::Dim& b, const ts::Dim& a) { return ts::pad<1>(v, b, a); };
  const auto mirrored = [](const auto& v, const ts::Dim& b, const ts::Dim& a) {
    return ts::pad<1, ts::PadMode::reflect>(v, b, a);
  };
  EXPECT_NO_THROW(infer(mirrored, 4, 4)());
  const auto wrong = ts::errc::shape_mismatch;
  tessera_test::expect_error(wrong, infer(zeros, 2, -1),
                             "[pad] negative padding, 2 before and -1 after the elements of dim 1: f32[3,5] at ",
                             "slicing_test.cpp:");
  tessera_test::expect_error(wrong, infer(mirrored, 5, 0),
                             "[pad] the dim is too short to be padded with its own elements: 5 elements at an end of "
                             "dim 1 of f32[3,5] at ",
                             "slicing_test.cpp:");
  tessera_test::expect_error(wrong, infer(mirrored, 0, 6), "6 elements at an end of dim 1 of f32[3,5] at ");
  tessera_test::expect_error(wrong, infer(mirrored, 0, -2),
                             "[pad] negative padding: -2 elements at an end of dim 1 of f32[3,5] at ");
}

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

TEST(Slicing, StepsAndSingleIndices) {
  const auto f = [](const auto& v, const ts::Dim& step) {
    return std::tuple(ts::slice<1>(v * v, 0, 2, step), ts::slice<0>(v, 1, 1, 7), ts::slice<-1>(v, 1, 4, 1),
                      ts::select<0>(v, 2), ts::select<-1>(v, step), ts::movedim<0, -1>(v), ts::swapaxes<-1, 0>(v));
  };
  const auto got = run(trace<decltype(f), Float<2>, ts::Dim>().view(), {x, Array::number(3)});
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) EXPECT_EQ(got[0].at({i, j}), std::pow(x.at({i, 3 * j}), 2));
    for (std::int64_t j = 0; j < 4; ++j) EXPECT_EQ(got[2].at({i, j}), x.at({i, 1 + j}));
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_EQ(got[5].at({j, i}), x.at({i, j}));
      EXPECT_EQ(got[6].at({j, i}), x.at({i, j}));
      EXPECT_EQ(got[1].at({0, j}), x.at({1, j}));
      EXPECT_EQ(got[3].at({j}), x.at({2, j}));
    }
    EXPECT_EQ(got[4].at({i}), x.at({i, 3}));
  }
  check_gradient<Float<2>>([](const auto& v) { return ts::slice<1>(v * v, 1, 2, 2) * ts::slice<1>(v, 0, 2, 3); }, {x});
  check_gradient<Float<2>>([](const auto& v) { return ts::select<1>(v * v, 4) * ts::select<1>(v, 0); }, {x});
  const auto cube = random_array({2, 3, 4}, 5);
  const auto turned = apply<Float<3>>([](const auto& v) { return ts::movedim<2, 0>(ts::swapaxes<0, 1>(v)); }, {cube});
  ASSERT_EQ(turned.shape, (Shape{4, 3, 2}));
  for_each_index(cube.shape, [&](const Shape& i) { EXPECT_EQ(turned.at({i[2], i[1], i[0]}), cube.at(i)); });
}

TEST(Slicing, Replaced) {
  const Array z = random_array({3}, 3), w = random_array({1, 5}, 4);
  const auto f = [](const auto& v, const auto& u, const auto& column, const auto& row) {
    return std::tuple(ts::slice_scatter<1>(v, u, 2), ts::slice_scatter<1>(v * v, u * u, 1, 3),
                      ts::slice_scatter<0>(v, row, 2, 4), ts::select_scatter<1>(v, column, -1),
                      ts::diagonal_scatter(v, column), ts::slice_scatter<1>(v < 0, u < 0, 0, 2));
  };
  const auto got = run(trace<decltype(f), Float<2>, Float<2>, Float<1>, Float<2>>().view(), {x, y, z, w});
  for_each_index(x.shape, [&](const Shape& i) {
    const std::int64_t j = i[1];
    EXPECT_EQ(got[0].at(i), j == 2 || j == 3 ? y.at({i[0], j - 2}) : x.at(i));
    EXPECT_EQ(got[1].at(i), std::pow(j == 1 || j == 4 ? y.at({i[0], j / 3}) : x.at(i), 2));
    EXPECT_EQ(got[2].at(i), i[0] == 2 ? w.at({0, j}) : x.at(i));
    EXPECT_EQ(got[3].at(i), j == 4 ? z.at({i[0]}) : x.at(i));
    EXPECT_EQ(got[4].at(i), j == i[0] ? z.at({j}) : x.at(i));
    EXPECT_EQ(got[5].at(i), (j == 0 || j == 2 ? y.at({i[0], j / 2}) : x.at(i)) < 0);
  });
  const auto smooth = [](const auto& v, const auto& u, const auto& column, const auto& row) {
    return ts::slice_scatter<1>(v * v, u * u, 1, 3) * ts::slice_scatter<0>(v, row, 1) +
           ts::select_scatter<1>(v, column * column, 2) * ts::diagonal_scatter(v, column);
  };
  check_gradient<Float<2>, Float<2>, Float<1>, Float<2>>(smooth, {x, y, z, w});
}

TEST(Slicing, ShapesByExtents) {
  const Array z = random_array({5}, 3);
  const auto f = [](const auto& v, const auto& row, const ts::Dim& n) {
    return std::tuple(ts::reshape(v, {5, n}), ts::reshape(v, {-1}), ts::reshape(v, {n, 1, -1}) * v,
                      ts::broadcast_to(row, {n, 2, 5}), ts::broadcast_to(ts::unsqueeze<1>(row), {5, n}));
  };
  const auto got = run(trace<decltype(f), Float<2>, Float<1>, ts::Dim>().view(), {x, z, Array::number(3)});
  EXPECT_EQ(got[0].shape, (Shape{5, 3}));
  EXPECT_EQ(got[0].data, x.data);
  EXPECT_EQ(got[1].shape, (Shape{15}));
  ASSERT_EQ(got[2].shape, (Shape{3, 3, 5}));  // one of a dim broadcasts
  ASSERT_EQ(got[3].shape, (Shape{3, 2, 5}));
  ASSERT_EQ(got[4].shape, (Shape{5, 3}));
  for_each_index(got[3].shape, [&](const Shape& i) { EXPECT_EQ(got[3].at(i), z.at({i[2]})); });
  for_each_index(got[4].shape, [&](const Shape& i) { EXPECT_EQ(got[4].at(i), z.at({i[0]})); });
  for_each_index(got[2].shape, [&](const Shape& i) {
    EXPECT_EQ(got[2].at(i), x.at({i[0], i[2]}) * x.at({i[1], i[2]}));
  });
  const auto smooth = [](const auto& v, const auto& row) {
    return ts::reshape(v * v, {5, 3}) * ts::broadcast_to(ts::unsqueeze<1>(row * row), {5, 3});
  };
  check_gradient<Float<2>, Float<1>>(smooth, {x, z});
}

TEST(Slicing, ReshapeRefusesTwoUnknownExtents) {
  const auto f = [](const auto& v) { return ts::reshape(v, {-1, 3, -1}); };
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { (void)run(trace<decltype(f), Float<2>>().view(), {x}); },
      "[reshape] -1: only one extent can follow from the others", "slicing_test.cpp:");
}

TEST(Slicing, MistakesOfSteps) {
  const auto f = [](const auto& v, const ts::Dim& size, const ts::Dim& step) { return ts::slice<1>(v, 1, size, step); };
  const Program program = trace<decltype(f), Float<2>, ts::Dim, ts::Dim>();
  const auto infer = [&](std::int64_t size, std::int64_t step) {
    return [&program, size, step] {
      const ts::Shape shapes[] = {{3, 5}, {}, {}};
      const ts::HostNumber numbers[] = {0, size, step};
      ts::infer_shapes(program.view(), shapes, numbers);
    };
  };
  EXPECT_NO_THROW(infer(2, 3)());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(3, 2), "[slice] start and size are outside the dim",
                             "slicing_test.cpp:");
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(2, 0), "[slice] the step is below 1", "slicing_test.cpp:");
}

TEST(Slicing, DiagonalsAreAsLongAsThoseOfTheMatrices) {
  const auto f = [](const auto& v, const auto& diagonal) { return ts::diagonal_scatter(v, diagonal); };
  const Program program = trace<decltype(f), Float<2>, Float<1>>();
  EXPECT_EQ(run(program.view(), {Array({2, 3}), Array({2}, {1, 2})})[0].data, (std::vector<double>{1, 0, 0, 0, 2, 0}));
  EXPECT_EQ(run(program.view(), {Array({3, 2}), Array({2}, {1, 2})})[0].data, (std::vector<double>{1, 0, 0, 2, 0, 0}));
  const auto refused = [&](const ts::Shape& matrix, std::int64_t length, const char* text) {
    const ts::Shape shapes[] = {matrix, {length}};
    const ts::HostNumber numbers[] = {0, 0};
    tessera_test::expect_error(
        ts::errc::shape_mismatch, [&] { ts::infer_shapes(program.view(), shapes, numbers); },
        "[diagonal_scatter] the last dim must be as long as the diagonal of the matrices: ", text, "slicing_test.cpp:");
  };
  refused({2, 3}, 3, "f32[3] x f32[2,3]");
  refused({3, 2}, 3, "f32[3] x f32[3,2]");
  refused({3, 3}, 2, "f32[2] x f32[3,3]");
}

TEST(Slicing, BroadcastToRepeatsDimsOfExtentOne) {
  const Array token = random_array({1, 1, 5}, 4), z = random_array({5}, 3);
  const auto f = [](const auto& t, const auto& row, const ts::Dim& n, const ts::Dim& keep) {
    return std::tuple(ts::broadcast_to(t, {n, 2, 5}), ts::broadcast_to(t, {n, 1, -1}), ts::broadcast_to(row, {n, keep}),
                      ts::broadcast_to(t, {4, n, -1, 5}));
  };
  const auto got = run(trace<decltype(f), Float<3>, Float<1>, ts::Dim, ts::Dim>().view(),
                       {token, z, Array::number(3), Array::number(-1)});
  ASSERT_EQ(got[0].shape, (Shape{3, 2, 5}));
  ASSERT_EQ(got[1].shape, (Shape{3, 1, 5}));
  ASSERT_EQ(got[2].shape, (Shape{3, 5}));
  ASSERT_EQ(got[3].shape, (Shape{4, 3, 1, 5}));
  for_each_index(got[0].shape, [&](const Shape& i) { EXPECT_EQ(got[0].at(i), token.at({0, 0, i[2]})); });
  for_each_index(got[1].shape, [&](const Shape& i) { EXPECT_EQ(got[1].at(i), token.at({0, 0, i[2]})); });
  for_each_index(got[2].shape, [&](const Shape& i) { EXPECT_EQ(got[2].at(i), z.at({i[1]})); });
  for_each_index(got[3].shape, [&](const Shape& i) { EXPECT_EQ(got[3].at(i), token.at({0, 0, i[3]})); });
  const auto smooth = [](const auto& t) { return ts::broadcast_to(t * t, {3, 2, 5}); };
  check_gradient<Float<3>>(smooth, {token});
}

TEST(Slicing, BroadcastToNamesWrongSizes) {
  const auto f = [](const auto& v, const ts::Dim& n) { return ts::broadcast_to(v, {n, 5}); };
  const auto program = trace<decltype(f), Float<2>, ts::Dim>();
  const auto infer = [&](std::int64_t n) {
    return [&program, n] {
      const ts::Shape shapes[] = {{3, 5}, {}};
      const ts::HostNumber numbers[] = {0, n};
      ts::infer_shapes(program.view(), shapes, numbers);
    };
  };
  using tessera_test::expect_error;
  const auto wrong = ts::errc::shape_mismatch;
  expect_error(wrong, infer(4), "[broadcast_to] only dims of extent 1 are repeated: f32[3,5] x i32[4,5] at ",
               "slicing_test.cpp:");
  expect_error(wrong, infer(1), "[broadcast_to] only dims of extent 1 are repeated: f32[3,5] x i32[1,5] at ");
  expect_error(wrong, infer(-2), "[broadcast_to] negative size -2", "slicing_test.cpp:");
  EXPECT_NO_THROW(infer(3)());
  EXPECT_NO_THROW(infer(-1)());
}

TEST(Slicing, BroadcastLikeNamesExtentsThatDiffer) {
  const auto f = [](const auto& operand, const auto& like) { return ts::broadcast_like(operand, like); };
  const auto program = trace<decltype(f), Float<2>, Float<2>>();
  const auto infer = [&](std::int64_t rows) {
    return [&program, rows] {
      const ts::Shape shapes[] = {{3, 5}, {rows, 5}};
      ts::infer_shapes(program.view(), shapes, {});
    };
  };
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(4),
                             "[broadcast_like] only dims of extent 1 are repeated: f32[3,5] x f32[4,5] at ",
                             "slicing_test.cpp:");
  EXPECT_NO_THROW(infer(3)());
}

}  // namespace
