#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include <tessera/graph/trace.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/shapes.hpp>

namespace {

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix up, down;
  ts::Dim parts;
  constexpr auto operator()(const auto& x) const {
    return x + ts::matmul(ts::gelu(ts::merge_dims<1, 2>(ts::split_dim<1>(ts::matmul(x, up), parts))), down);
  }
};
struct Forward {
  constexpr auto operator()(auto layers, auto x) const { return layers(x); }
};
TEST(Shapes, BodiesAreInferredFromSlices) {
  const auto program = ts::Traced<Forward, ts::Stack<Layer>, Matrix>::program();
  const ts::Shape arguments[]{{5, 16, 24}, {5, 24, 16}, {}, {3, 16}};
  const double numbers[]{0, 0, 6, 0};
  const auto found = ts::infer_shapes(program, arguments, numbers);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].layers, 5);
  EXPECT_EQ(found[0].shapes[static_cast<std::size_t>(program.main().outputs[0])], (ts::Shape{3, 16}));
  bool split = false;
  for (const ts::Shape& shape : found[1].shapes) split = split || shape == ts::Shape{3, 4, 6};
  EXPECT_TRUE(split) << "the body sees the program's Dim";
}

TEST(Shapes, LayersOfAllLeavesAgree) {
  const auto program = ts::Traced<Forward, ts::Stack<Layer>, Matrix>::program();
  const ts::Shape arguments[]{{5, 16, 24}, {4, 24, 16}, {}, {3, 16}};
  const double numbers[]{0, 0, 6, 0};
  try {
    ts::infer_shapes(program, arguments, numbers);
    FAIL() << "stacks of different depths were accepted";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::structure);
    EXPECT_NE(std::string(e.what()).find("has 4 layers, another has 5"), std::string::npos) << e.what();
  }
}

TEST(Shapes, AnArgumentOfAnotherRankIsAnError) {
  const auto program = ts::Traced<Forward, ts::Stack<Layer>, Matrix>::program();
  const ts::Shape arguments[]{{5, 16, 24}, {5, 24, 16}, {}, {3, 16, 1}};
  const double numbers[]{0, 0, 6, 0};
  try {
    ts::infer_shapes(program, arguments, numbers);
    FAIL() << "a rank-3 argument was taken for a matrix";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::rank_mismatch);
  }
}

TEST(Shapes, NumbersAreEvaluatedAnewForACall) {
  ts::Graph graph;
  const int rate = graph.add({.op = ts::Op::scalar, .dtype = ts::DType::f64, .value = 1});
  const int two = graph.add({.op = ts::Op::constant, .dtype = ts::DType::f64, .value = 2});
  const int power = graph.add({.op = ts::Op::pow, .dtype = ts::DType::f64}, {rate, two});
  const double planned[]{0, 0.5}, given[]{0, 3};
  const auto host = ts::host_scalars(graph.view());
  const ts::Growable<ts::Shape> shapes(3);
  ts::Growable<double> values(3);
  ts::evaluate_numbers(graph.view(), host, shapes, planned, values);
  EXPECT_EQ(values[static_cast<std::size_t>(power)], 0.25);
  ts::evaluate_numbers(graph.view(), host, shapes, given, values);
  EXPECT_EQ(values[static_cast<std::size_t>(power)], 9.0);
}

/// One operation on two numbers.
double on_host(ts::Op op, ts::DType type, double a, double b) {
  ts::Graph graph;
  const int x = graph.add({.op = ts::Op::constant, .dtype = type, .value = a});
  const int y = graph.add({.op = ts::Op::constant, .dtype = type, .value = b});
  const int z = graph.add({.op = op, .dtype = type}, {x, y});
  ts::Growable<double> values(static_cast<std::size_t>(graph.size()));
  ts::evaluate_numbers(graph.view(), ts::host_scalars(graph.view()), ts::Growable<ts::Shape>(values.size()), nullptr,
                       values);
  return values[static_cast<std::size_t>(z)];
}

TEST(Shapes, HostArithmeticIsThatOfTheType) {
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::i64, 7, 2), 3);
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::i64, -7, 2), -3);
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::f64, 7, 2), 3.5);
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::f32, 1, 3), static_cast<double>(1.0f / 3.0f));
  EXPECT_EQ(on_host(ts::Op::pow, ts::DType::f64, 0.9, 3), std::pow(0.9, 3));
  EXPECT_EQ(on_host(ts::Op::less, ts::DType::bool_, 2, 3), 1);
}

}  // namespace
