// ts::jacrev, ts::jacfwd and ts::hessian, against closed forms and differences.
#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../support/gradients.hpp"

namespace ts = tessera;
using namespace oracle;

namespace {

// sum(x^3) + the product of two elements: the Hessian is known.
TEST(Jacobians, HessiansAreThoseOfTheClosedForm) {
  constexpr auto f = [](const auto& a) {
    const auto cubes = [](const auto& own) {
      return ts::sum(own * own * own) + ts::sum(ts::slice<0>(own, 0, 1) * ts::slice<0>(own, 1, 1));
    };
    const auto squares = [](const auto& own) { return own * own * ts::sum(own); };
    return std::tuple(ts::hvp(cubes, a, a * 2.0), ts::hessian(cubes)(a), ts::jacrev(squares)(a));
  };
  const auto out = run(trace<decltype(f), Float<1>>().view(), {Array({3}, {1, 2, 3})});
  expect_near(out[1], Array({3, 3}, {6, 1, 0, 1, 12, 0, 0, 0, 18}), 1e-12);
  expect_near(out[0], Array({3}, {16, 50, 108}), 1e-12);
  expect_near(out[2], Array({3, 3}, {13, 1, 1, 4, 28, 4, 9, 9, 45}), 1e-12);
}

// Of matrices and of functions that return matrices: y[i, j] = sum over k of x[i, k] w[k, j]^2, and a product of three.
TEST(Jacobians, JacobiansHaveTheDimsOfBoth) {
  constexpr auto f = [](const auto& x, const auto& w) {
    const auto of_w = [&](const auto& own) { return ts::matmul(x, own * own); };
    const auto cube = [](const auto& own) { return ts::sum(own * own * own); };
    const auto to_number = [&](const auto& own) { return ts::sum(own * own) * 0.5; };
    return std::tuple(ts::jacrev(of_w)(w), ts::jacfwd(of_w)(w), ts::hessian(cube)(w), ts::jacrev(to_number)(w),
                      ts::jacfwd(to_number)(w), ts::jacfwd([](const auto& own) { return ts::sum<0>(own); })(w));
  };
  const Array rows = random_array({2, 3}, 1), columns = random_array({3, 2}, 2);
  const std::vector<Array> out = run(trace<decltype(f), Float<2>, Float<2>>().view(), {rows, columns});
  ASSERT_EQ(out[0].shape, (Shape{2, 2, 3, 2}));
  ASSERT_EQ(out[2].shape, (Shape{3, 2, 3, 2}));
  ASSERT_EQ(out[5].shape, (Shape{2, 3, 2}));
  expect_near(out[1], out[0], 1e-12);
  for_each_index(out[0].shape, [&](const Shape& i) {
    EXPECT_NEAR(out[0].at(i), i[1] == i[3] ? 2 * rows.at({i[0], i[2]}) * columns.at({i[2], i[3]}) : 0, 1e-12);
  });
  for_each_index(out[2].shape, [&](const Shape& i) {
    EXPECT_NEAR(out[2].at(i), i[0] == i[2] && i[1] == i[3] ? 6 * columns.at({i[0], i[1]}) : 0, 1e-12);
  });
  expect_near(out[3], columns, 1e-12);
  expect_near(out[4], columns, 1e-12);
  for_each_index(out[5].shape, [&](const Shape& i) { EXPECT_EQ(out[5].at(i), i[0] == i[2] ? 1 : 0); });
}

// Structures, as in JAX: for each tensor of the result a structure like the argument; structs are tuples of fields.
struct Scaled {
  ts::ShardedTensor<float, 1> scale;
  constexpr auto operator()(const auto& in) const { return ts::tanh(in * scale) + in; }
};
struct Weighted {
  ts::ShardedTensor<float, 2> square;
  ts::ShardedTensor<float, 0> sum;
};
struct Affine {
  ts::ShardedTensor<float, 2> weight;
  ts::Stack<Scaled> layers;
  ts::ShardedTensor<std::int32_t, 0> shift;
  ts::Scalar rate;
};
struct Outcome {
  ts::ShardedTensor<float, 2> squares;
  ts::ShardedTensor<float, 0> sum;
  ts::ShardedTensor<std::int32_t, 0> shift;
};
/// [3, 2], a number and an integer in a struct, and one dim of static extent 1.
constexpr auto outcome_of = [](const auto& model, const auto& parts, const auto& target) {
  const auto& [bias, factor] = parts;
  const auto h = model.layers(ts::matmul(bias, model.weight) + factor * model.rate + ts::cast<float>(model.shift));
  return std::pair(Outcome{h * h, ts::sum(h * target), model.shift}, ts::sum<0>(bias * bias * factor, ts::keepdims));
};
TEST(Jacobians, JacobiansOfStructures) {
  constexpr auto f = [](const auto& model, const auto& bias, const auto& factor, const auto& target) {
    const auto parts = std::pair(bias, factor);
    const auto both = [&](const auto& all) { return outcome_of(std::get<0>(all), std::get<1>(all), target); };
    const auto y = outcome_of(model, parts, target);
    const auto backward = ts::jacrev(both)(std::tuple(model, parts));
    const auto forward = ts::jacfwd(both)(std::tuple(model, parts));
    const auto chosen = ts::jacrev<1>(outcome_of)(model, parts, target);
    const auto flat = [](const auto& jacobian) {
      const auto& [outcome, total] = jacobian;
      const auto& [squares, sum, integer] = outcome;
      static_assert(std::is_same_v<decltype(integer), const std::tuple<>>);
      const auto of = [](const auto& one) {
        const auto& [of_model, of_parts] = one;
        const auto& [weight, layers, shift, rate] = of_model;
        static_assert(std::is_same_v<decltype(shift), const std::tuple<>>);
        static_assert(std::is_same_v<decltype(rate), const std::tuple<>>);
        return std::tuple(weight, std::get<0>(layers), of_parts.first, of_parts.second);
      };
      return std::tuple(of(squares), of(sum), of(total));
    };
    return std::tuple(flat(backward), flat(forward), chosen.first, chosen.second, y.first.squares, y.first.sum,
                      y.second);
  };
  const Program program = trace<decltype(f), Affine, Float<2>, Float<0>, Float<2>>();
  const std::vector<Array> at{random_array({4, 2}, 1), random_array({3, 2}, 2), Array({}, 1),           Array({}, 0.7),
                              random_array({3, 4}, 3), Array({}, 0.6),          random_array({3, 2}, 4)};
  const auto out = run(program.view(), at);
  const std::size_t values = out.size() - 3;
  for (std::size_t k = 0; k < 12; ++k) {
    const std::size_t argument = std::array{0, 1, 4, 5}[k % 4], value = values + k / 4;
    const Array& own = at[argument];
    Shape shape = out[value].shape;
    for (std::int64_t extent : own.shape) shape.push_back(extent);
    Array want(shape);
    for (std::size_t e = 0; e < own.data.size(); ++e) {
      std::vector<Array> direction;
      for (const Array& a : at) direction.push_back(Array(a.shape, 0));
      direction[argument].data[e] = 1;
      const Array column = along([&](const auto& a) { return run(program.view(), a)[value]; }, at, direction);
      for (std::size_t i = 0; i < column.data.size(); ++i) want.data[i * own.data.size() + e] = column.data[i];
    }
    expect_near(out[k], want, 1e-7, "jacrev " + std::to_string(k));
    expect_near(out[12 + k], out[k], 1e-12, "jacfwd " + std::to_string(k));
  }
}

// All elements of all results are pulled back at once.
TEST(Jacobians, AJacobianOfTwoResultsIsOnePass) {
  constexpr auto f = [](const auto& a, const auto& b) {
    return ts::jacrev([&](const auto& own) {
      const auto y = ts::tanh(ts::matmul(own, b));
      return std::pair(y, ts::sum<0>(y));
    })(a);
  };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(program.count(Op::tanh), 1);
  EXPECT_EQ(program.count(Op::einsum), 2);
  EXPECT_EQ(program.count(Op::repeat), 0);
}

// A tree of trees; of a function with several results, a Hessian of each element.
TEST(Jacobians, HessiansOfStructures) {
  constexpr auto f = [](const auto& model, const auto& in) {
    const auto loss = [](const auto& m, const auto& x) {
      return ts::sum(ts::tanh(ts::matmul(x, m.square) + ts::sum(m.sum)));
    };
    const auto [by_square, by_sum] = ts::hessian(loss)(model, in);
    const auto each = ts::hessian([](const auto& x) { return x * x * ts::sum(x); })(ts::sum<1>(in));
    const auto by_two = ts::hessian<0, 1>([](const auto& x, const auto& y) { return ts::sum(x * x * y); })(
        ts::sum<1>(in), ts::sum<1>(in * in));
    return std::tuple(by_square, by_sum, each, by_two, ts::grad(loss)(model, in));
  };
  const Program program = trace<decltype(f), Weighted, Float<2>>();
  const std::vector<Array> at{random_array({3, 2}, 1), Array({}, 0.3), random_array({2, 3}, 3)};
  const auto out = run(program.view(), at);
  const std::size_t gradients = out.size() - 2;
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t column = 0; column < 2; ++column) {
      Shape shape = at[row].shape;
      for (std::int64_t extent : at[column].shape) shape.push_back(extent);
      Array want(shape);
      for (std::size_t e = 0; e < at[column].data.size(); ++e) {
        std::vector<Array> direction{Array(at[0].shape, 0), Array({}, 0), Array(at[2].shape, 0)};
        direction[column].data[e] = 1;
        const Array slope =
            along([&](const auto& a) { return run(program.view(), a)[gradients + row]; }, at, direction);
        for (std::size_t i = 0; i < slope.data.size(); ++i) want.data[i * at[column].data.size() + e] = slope.data[i];
      }
      expect_near(out[2 * row + column], want, 1e-7, std::to_string(2 * row + column));
    }
  // x_i^2 sum(x): the derivative by x_j and x_k is 2 [i=j=k] sum(x) + 2 x_i ([i=j] + [i=k]).
  const double sums[] = {at[2].data[0] + at[2].data[1] + at[2].data[2], at[2].data[3] + at[2].data[4] + at[2].data[5]};
  for_each_index({2, 2, 2}, [&](const Shape& i) {
    const double own = sums[i[0]], same = (i[0] == i[1]) + (i[0] == i[2]);
    EXPECT_NEAR(out[4].at(i), 2 * own * same + (same == 2 ? 2 * (sums[0] + sums[1]) : 0), 1e-12);
  });
  ASSERT_EQ(out.size(), 11u);
  for_each_index({2, 2}, [&](const Shape& i) {
    EXPECT_NEAR(out[6].at(i), i[0] == i[1] ? 2 * sums[i[0]] : 0, 1e-12);
    EXPECT_NEAR(out[8].at(i), 0, 1e-12);
  });
  expect_near(out[7], out[6], 1e-12);
}

}  // namespace
