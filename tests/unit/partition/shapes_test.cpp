#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "../../support/traced.hpp"
#include "../base/expect_error.hpp"
#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/propagation/shapes.hpp>

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
  const ts::HostNumber numbers[]{0, 0, 6, 0};
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
  const ts::HostNumber numbers[]{0, 0, 6, 0};
  try {
    ts::infer_shapes(program, arguments, numbers);
    FAIL() << "stacks of different depths were accepted";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::structure);
    EXPECT_NE(std::string(e.what()).find("has 4 layers, but an earlier tensor of the Stack has 5"), std::string::npos)
        << e.what();
  }
}

TEST(Shapes, AnArgumentOfAnotherRankIsAnError) {
  const auto program = ts::Traced<Forward, ts::Stack<Layer>, Matrix>::program();
  const ts::Shape arguments[]{{5, 16, 24}, {5, 24, 16}, {}, {3, 16, 1}};
  const ts::HostNumber numbers[]{0, 0, 6, 0};
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
  const ts::HostNumber planned[]{0, 0.5}, given[]{0, 3};
  const auto host = ts::host_scalars(graph.view());
  const ts::Growable<ts::Shape> shapes(3);
  ts::Growable<ts::HostNumber> values(3);
  ts::evaluate_numbers(graph.view(), host, shapes, planned, values);
  EXPECT_EQ(values[static_cast<std::size_t>(power)], 0.25);
  ts::evaluate_numbers(graph.view(), host, shapes, given, values);
  EXPECT_EQ(values[static_cast<std::size_t>(power)], 9.0);
}

/// One operation on two scalars.
double on_host(ts::Op op, ts::DType type, double a, double b) {
  ts::Graph graph;
  const int x = graph.add({.op = ts::Op::constant, .dtype = type, .value = a});
  const int y = graph.add({.op = ts::Op::constant, .dtype = type, .value = b});
  const int z = graph.add({.op = op, .dtype = type}, {x, y});
  ts::Growable<ts::HostNumber> values(static_cast<std::size_t>(graph.size()));
  ts::evaluate_numbers(graph.view(), ts::host_scalars(graph.view()), ts::Growable<ts::Shape>(values.size()), nullptr,
                       values);
  return values[static_cast<std::size_t>(z)].real();
}

TEST(Shapes, HostArithmeticIsThatOfTheType) {
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::i64, 7, 2), 3);
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::i64, -7, 2), -3);
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::f64, 7, 2), 3.5);
  EXPECT_EQ(on_host(ts::Op::div, ts::DType::f32, 1, 3), static_cast<double>(1.0f / 3.0f));
  EXPECT_EQ(on_host(ts::Op::pow, ts::DType::f64, 0.9, 3), std::pow(0.9, 3));
  EXPECT_EQ(on_host(ts::Op::less, ts::DType::bool_, 2, 3), 1);
}

TEST(Shapes, IntegersAreExact) {
  const auto exact = [](ts::Op op, std::int64_t a, std::int64_t b) {
    ts::Graph graph;
    const int x = graph.add(ts::integer_node(a, ts::DType::i64)), y = graph.add(ts::integer_node(b, ts::DType::i64));
    const int z = graph.add({.op = op, .dtype = ts::DType::i64}, {x, y});
    ts::Growable<ts::HostNumber> values(static_cast<std::size_t>(graph.size()));
    ts::evaluate_numbers(graph.view(), ts::host_scalars(graph.view()), ts::Growable<ts::Shape>(values.size()), nullptr,
                         values);
    return values[static_cast<std::size_t>(z)].integer();
  };
  constexpr std::int64_t odd = (std::int64_t{1} << 53) + 1;
  for (std::int64_t n : {odd, -odd, INT64_MAX, INT64_MIN, INT64_MAX - 1, std::int64_t{7}, odd * 3 + 1000}) {
    EXPECT_EQ(ts::number_of(ts::integer_node(n, ts::DType::i64)).integer(), n);
    EXPECT_EQ(exact(ts::Op::maximum, n, n), n);
    EXPECT_EQ(exact(ts::Op::sub, n, n), 0);
    EXPECT_EQ(exact(ts::Op::div, n, 1), n);
  }
  EXPECT_EQ(exact(ts::Op::add, odd, 1), odd + 1);
  EXPECT_EQ(exact(ts::Op::mul, odd, 3), odd * 3);
  EXPECT_EQ(exact(ts::Op::less, odd - 1, odd), 1) << "they are equal as doubles";
  using tessera_test::expect_error;
  expect_error(
      ts::errc::capacity, [&] { exact(ts::Op::add, INT64_MAX, 1); }, "add(9223372036854775807, 1)");
  expect_error(
      ts::errc::capacity, [&] { exact(ts::Op::mul, odd, odd); }, "mul(");
  expect_error(
      ts::errc::capacity, [&] { exact(ts::Op::div, INT64_MIN, -1); }, "div(-9223372036854775808, -1)");
  expect_error(
      ts::errc::dim_range, [&] { exact(ts::Op::div, 7, 0); }, "division by zero: div(7, 0)");
}

// Every shape rule with extents and sizes up to the limits of 64 bits: inferred shapes agree with 128-bit arithmetic,
// and shapes that no tensor can have are errors with the operation and the line.
__extension__ typedef __int128 Wide;
using WideShape = std::vector<Wide>;
struct Mismatch {};

struct ShapeCase {
  std::string name;
  oracle::Program program;
  std::vector<int> ranks;  // of the arguments; -1: a Dim
  std::function<WideShape(const std::vector<WideShape>&)> shape;
};
template <int Rank> using Float = ts::ShardedTensor<float, Rank>;
template <int Rank> using Index = ts::ShardedTensor<std::int64_t, Rank>;
template <class T> constexpr int rank_of_argument = -1;
template <class T, int Rank> constexpr int rank_of_argument<ts::ShardedTensor<T, Rank>> = Rank;
template <class... Args, class F, class S> ShapeCase shape_case(const char* name, F, S shape) {
  return {name, oracle::trace<F, Args...>(), {rank_of_argument<Args>...}, shape};
}

void need(bool agrees) {
  if (!agrees) throw Mismatch{};
}
template <std::int64_t Stride, std::int64_t Padding, std::int64_t Dilation> ShapeCase conv_case() {
  return shape_case<Float<3>, Float<3>>(
      "conv1d",
      [](const auto& x, const auto& w) {
        return ts::conv1d(x, w, {.strides = {Stride}, .padding = {Padding}, .dilation = {Dilation}});
      },
      [](const std::vector<WideShape>& a) {
        const Wide padded = a[0][1] + 2 * Wide{Padding}, last = (a[1][0] - 1) * Dilation;
        need(a[0][2] == a[1][1] && a[1][0] > 0 && padded > last);
        return WideShape{a[0][0], (padded - last - 1) / Stride + 1, a[1][2]};
      });
}
std::vector<ShapeCase> shape_cases() {
  using Args = const std::vector<WideShape>&;
  using ts::Dim;
  std::vector<ShapeCase> all;
  all.push_back(shape_case<Float<2>, Float<2>>(
      "add", [](const auto& x, const auto& y) { return x + y; }, [](Args a) { return need(a[0] == a[1]), a[0]; }));
  all.push_back(shape_case<Float<1>, Float<1>>(
      "outer sum", [](const auto& x, const auto& y) { return ts::unsqueeze<1>(x) + ts::unsqueeze<0>(y); },
      [](Args a) {
        return WideShape{a[0][0], a[1][0]};
      }));
  all.push_back(shape_case<Float<2>, Float<2>>(
      "matmul", [](const auto& x, const auto& y) { return ts::matmul(x, y); },
      [](Args a) {
        return need(a[0][1] == a[1][0]), WideShape{a[0][0], a[1][1]};
      }));
  all.push_back(shape_case<Float<2>, Float<1>>(
      "einsum", [](const auto& x, const auto& y) { return ts::einsum<"ij,k->kji">(x, y); },
      [](Args a) {
        return WideShape{a[1][0], a[0][1], a[0][0]};
      }));
  all.push_back(shape_case<Float<3>>(
      "sum", [](const auto& x) { return ts::sum<2>(x); },
      [](Args a) {
        return WideShape{a[0][0], a[0][1]};
      }));
  all.push_back(shape_case<Float<2>>(
      "max", [](const auto& x) { return ts::max<1>(x); }, [](Args a) { return WideShape{a[0][0]}; }));
  all.push_back(shape_case<Float<2>, Dim, Dim>(
      "slice", [](const auto& x, const auto& from, const auto& n) { return ts::slice<0>(x, from, n); },
      [](Args a) {
        need(a[1][0] >= 0 && a[2][0] >= 0 && a[1][0] + a[2][0] <= a[0][0]);
        return WideShape{a[2][0], a[0][1]};
      }));
  all.push_back(shape_case<Float<2>, Dim, Dim>(
      "pad", [](const auto& x, const auto& from, const auto& n) { return ts::pad<0>(x, from, n); },
      [](Args a) {
        need(a[1][0] >= 0 && a[2][0] >= 0);
        return WideShape{a[1][0] + a[0][0] + a[2][0], a[0][1]};
      }));
  all.push_back(shape_case<Float<2>, Float<2>, Float<2>>(
      "concat", [](const auto& x, const auto& y, const auto& z) { return ts::concat<0>(x, y, z); },
      [](Args a) {
        need(a[0][1] == a[1][1] && a[0][1] == a[2][1]);
        return WideShape{a[0][0] + a[1][0] + a[2][0], a[0][1]};
      }));
  all.push_back(shape_case<Float<1>, Dim, Dim>(
      "split_dim", [](const auto& x, const auto& m, const auto& n) { return ts::split_dim<0>(x, m, n); },
      [](Args a) {
        const Wide inner = a[1][0] > 0 && a[2][0] > 0 ? a[1][0] * a[2][0] : 0;
        need(inner > 0 && a[0][0] % inner == 0);
        return WideShape{a[0][0] / inner, a[1][0], a[2][0]};
      }));
  all.push_back(shape_case<Float<3>>(
      "merge_dims", [](const auto& x) { return ts::merge_dims<0, 1>(x); },
      [](Args a) {
        return WideShape{a[0][0] * a[0][1], a[0][2]};
      }));
  all.push_back(shape_case<Float<2>, Index<2>>(
      "embedding", [](const auto& x, const auto& i) { return ts::embedding(x, i); },
      [](Args a) {
        return WideShape{a[1][0], a[1][1], a[0][1]};
      }));
  all.push_back(shape_case<Float<2>, Dim>(
      "topk", [](const auto& x, const auto& k) { return ts::topk<1>(x, k).values; },
      [](Args a) {
        need(a[0][1] <= INT32_MAX && a[1][0] >= 0 && a[1][0] <= a[0][1]);  // its indices are i32
        return WideShape{a[0][0], a[1][0]};
      }));
  all.push_back(shape_case<Float<2>, Index<2>>(
      "gather", [](const auto& x, const auto& i) { return ts::gather<0>(x, i); },
      [](Args a) { return need(a[0][1] == a[1][1]), a[1]; }));
  all.push_back(shape_case<Float<2>>(
      "cumsum", [](const auto& x) { return ts::cumsum<0>(x); }, [](Args a) { return a[0]; }));
  all.push_back(shape_case<Float<4>, Float<4>, Float<4>>(
      "attention", [](const auto& q, const auto& k, const auto& v) { return ts::attention(q, k, v); },
      [](Args a) {
        need(a[0][0] == a[1][0] && a[0][2] == a[1][2] && a[0][3] == a[1][3]);
        need(a[2][0] == a[1][0] && a[2][1] == a[1][1] && a[2][2] == a[1][2]);
        return WideShape{a[0][0], a[0][1], a[0][2], a[2][3]};
      }));
  all.push_back(shape_case<Float<4>, Float<4>, Float<4>, Float<3>>(
      "attention with a bias",
      [](const auto& q, const auto& k, const auto& v, const auto& bias) { return ts::attention(q, k, v, bias); },
      [](Args a) {
        need(a[0][0] == a[1][0] && a[0][2] == a[1][2] && a[0][3] == a[1][3]);
        need(a[2][0] == a[1][0] && a[2][1] == a[1][1] && a[2][2] == a[1][2]);
        need(a[3][0] == a[0][2] && a[3][1] == a[0][1] && a[3][2] == a[1][1]);
        return WideShape{a[0][0], a[0][1], a[0][2], a[2][3]};
      }));
  all.push_back(shape_case<Float<1>, Dim, Dim>(
      "arithmetic of sizes",
      [](const auto& x, const auto& m, const auto& n) {
        return ts::slice<0>(x, 0, ts::extent<0>(x) - (m * n - n / m));
      },
      [](Args a) {
        need(a[1][0] != 0);
        const Wide n = a[0][0] - (a[1][0] * a[2][0] - a[2][0] / a[1][0]);
        need(n >= 0 && n <= a[0][0]);
        return WideShape{n};
      }));
  constexpr std::int64_t half = std::int64_t{1} << 62;
  all.push_back(conv_case<1, 0, 1>());
  all.push_back(conv_case<2, 3, 2>());
  all.push_back(conv_case<half, 0, 1>());
  all.push_back(conv_case<1, half, 1>());
  all.push_back(conv_case<1, INT64_MAX, 1>());
  all.push_back(conv_case<1, 0, half>());
  all.push_back(conv_case<1, 0, half / 2>());
  return all;
}

TEST(Shapes, ExtremeExtentsAreInferredExactlyOrAreErrors) {
  std::mt19937_64 random(7);
  const ts::Mesh mesh({{"data", 2}, {"model", 4}});
  constexpr std::int64_t one = 1;
  const std::vector<std::int64_t> pool{
      0, 1, 1, 2, 3, 12, one << 20, one << 26, one << 31, one << 32, one << 52, (one << 53) + 1, one << 62, INT64_MAX};
  const std::vector<std::int64_t> sizes{-1, INT64_MIN, INT64_MIN + 1, -5};
  const auto too_large = [](const WideShape& shape) {
    Wide n = 1;
    for (const Wide extent : shape)
      if (extent != 0 && (n *= extent) > ts::max_elements) return true;
    return false;
  };
  for (ShapeCase& one_case : shape_cases()) {
    int right = 0, capacity = 0;
    for (int round = 0; round < 4000; ++round) {
      std::vector<std::int64_t> few;  // so that extents that must agree often do
      for (int i = 0; i < 1 + round % 4; ++i) few.push_back(pool[random() % (round % 3 == 0 ? pool.size() : 9)]);
      std::vector<ts::ArgumentInfo> arguments;
      std::vector<WideShape> wide;
      bool large = false, moderate = true;
      for (const int rank : one_case.ranks) {
        ts::ArgumentInfo info;
        WideShape own;
        for (int d = 0; d < rank; ++d) {
          info.shape.push_back(few[random() % few.size()]);
          own.push_back(info.shape.back());
        }
        if (rank < 0) {
          const std::int64_t n = random() % 8 == 0 ? sizes[random() % sizes.size()] : few[random() % few.size()];
          info.number = n;
          own.push_back(n);
          moderate = moderate && n >= 0;
        }
        for (const Wide extent : own) moderate = moderate && extent <= (one << 20);
        large = large || (rank >= 0 && too_large(own));
        info.sharding = ts::replicated(rank < 0 ? 0 : rank);
        for (int d = 0; d < rank && d < 2; ++d)
          if (random() % 2 == 0) info.sharding.dims[d].push_back(static_cast<std::uint8_t>(d));
        wide.push_back(own);
        arguments.push_back(info);
      }
      WideShape expected;
      bool fits = true;
      try {
        expected = one_case.shape(wide);
      } catch (const Mismatch&) {
        fits = false;
      }
      large = large || (fits && too_large(expected));
      ts::Growable<ts::Shape> shapes;
      ts::Growable<ts::HostNumber> numbers;
      for (const ts::ArgumentInfo& a : arguments) shapes.push_back(a.shape), numbers.push_back(a.number);
      try {
        const auto found = ts::infer_shapes(one_case.program.view(), shapes.data(), numbers.data());
        const ts::Shape& made = found[0].shapes[static_cast<std::size_t>(one_case.program.view().main().outputs[0])];
        WideShape inferred(made.begin(), made.end());
        ASSERT_TRUE(fits && !large) << one_case.name;
        ASSERT_TRUE(inferred == expected) << one_case.name;
        ++right;
      } catch (const ts::error& e) {
        const std::string what = e.what();
        if (e.id() == ts::errc::capacity) {
          ++capacity;
          ASSERT_FALSE(moderate && fits && !large) << one_case.name << ": " << what;
        } else {
          ASSERT_TRUE(e.id() == ts::errc::shape_mismatch || e.id() == ts::errc::not_divisible ||
                      e.id() == ts::errc::dim_range)
              << what;
          ASSERT_FALSE(fits) << one_case.name << ": " << what;
        }
        ASSERT_TRUE(what.find(" at shapes_test.cpp:") != std::string::npos || what.starts_with("[argument] ") ||
                    what.starts_with("[dim] "))  // operators of Dims take no line
            << what;
        continue;
      }
      if (round % 20 != 0) continue;
      try {
        (void)ts::tests::Planned(one_case.program.view(), mesh, arguments).text();
      } catch (const ts::error& e) {
        ASSERT_EQ(e.id(), ts::errc::capacity) << one_case.name << ": " << e.what();
      }
    }
    EXPECT_GT(right, one_case.name == "conv1d" ? -1 : 20) << one_case.name;  // of 2^62 rows of padding there are none
    EXPECT_GT(capacity, 20) << one_case.name;
  }
}

}  // namespace
