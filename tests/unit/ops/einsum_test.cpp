#include "../../support/untyped.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/contraction/ragged_dot.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

TEST(Einsum, Matmul) {
  const auto f = [](const auto& a, const auto& b) { return ts::matmul(a, b); };
  const Array a = random_array({3, 4}, 1), b = random_array({4, 2}, 2);
  const Array y = run(trace<decltype(f), Float<2>, Float<2>>().view(), {a, b})[0];
  ASSERT_EQ(y.shape, (Shape{3, 2}));
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 2; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < 4; ++k) sum += a.at({i, k}) * b.at({k, j});
      EXPECT_NEAR(y.at({i, j}), sum, 1e-12);
    }
  check_gradient<Float<2>, Float<2>>(f, {a, b});
  check_gradient<Float<3>, Float<2>>(f, {random_array({2, 3, 4}, 1), b});
  check_gradient<Float<3>, Float<3>>(f, {random_array({2, 3, 4}, 1), random_array({2, 4, 2}, 5)});
}

TEST(Einsum, Texts) {
  const auto trace_of_product = [](const auto& a, const auto& b) { return ts::einsum<"ij, ji -> ">(a, b); };
  const Array a = random_array({3, 4}, 1), b = random_array({4, 3}, 2);
  double sum = 0;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 4; ++j) sum += a.at({i, j}) * b.at({j, i});
  EXPECT_NEAR(run(trace<decltype(trace_of_product), Float<2>, Float<2>>().view(), {a, b})[0].data[0], sum, 1e-12);
  check_gradient<Float<2>, Float<2>>(trace_of_product, {a, b});
  check_gradient<Float<1>, Float<1>>([](const auto& x, const auto& y) { return ts::einsum<"i,j->ji">(x, y); },
                                     {random_array({3}, 1), random_array({2}, 2)});
  check_gradient<Float<2>, Float<1>>([](const auto& x, const auto& y) { return ts::einsum<"Zb,c->c">(x, y); },
                                     {random_array({3, 2}, 1), random_array({4}, 2)});
  static_assert(!ts::detail::EinsumText("ij,jk").valid && !ts::detail::EinsumText("ii,ij->j").valid);
  static_assert(!ts::detail::EinsumText("ij,jk->iz").valid && !ts::detail::EinsumText("ij->ij").valid);
  static_assert(!ts::detail::EinsumText("i1,jk->ik").valid && ts::detail::EinsumText("ij,jk->").valid);
}

// Random labels: kept, summed, in both operands or in one alone, of static extent 1 in either or both.
TEST(Einsum, GradientOfRandomLabelSets) {
  std::mt19937 engine(11);
  const auto roll = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine); };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const int labels = 1 + roll(5);
    std::int64_t extent[5];
    ts::EinsumLabels text;
    for (int d = 0; d < ts::max_rank; ++d) text.a[d] = text.b[d] = text.out[d] = -1;
    int rank_a = 0, rank_b = 0, rank_out = 0;
    unsigned unit_a = 0, unit_b = 0;
    Shape shape_a, shape_b;
    std::vector<int> order(static_cast<std::size_t>(labels));
    for (int l = 0; l < labels; ++l) order[static_cast<std::size_t>(l)] = l;
    std::vector<std::pair<bool, bool>> in(static_cast<std::size_t>(labels));
    for (int l = 0; l < labels; ++l) {
      extent[l] = 1 + roll(3);
      in[static_cast<std::size_t>(l)] = {roll(3) > 0, roll(3) > 0};
    }
    const auto place = [&](std::int8_t* own, int& rank, unsigned& unit, Shape& shape, bool first) {
      std::shuffle(order.begin(), order.end(), engine);
      for (int l : order) {
        if (!(first ? in[static_cast<std::size_t>(l)].first : in[static_cast<std::size_t>(l)].second)) continue;
        const bool is_singleton = roll(5) == 0;
        if (is_singleton) unit |= 1u << rank;
        shape.push_back(is_singleton ? 1 : extent[l]);
        own[rank++] = static_cast<std::int8_t>(l);
      }
    };
    place(text.a, rank_a, unit_a, shape_a, true);
    place(text.b, rank_b, unit_b, shape_b, false);
    std::shuffle(order.begin(), order.end(), engine);
    for (int l : order)
      if ((in[static_cast<std::size_t>(l)].first || in[static_cast<std::size_t>(l)].second) && roll(2) == 0)
        text.out[rank_out++] = static_cast<std::int8_t>(l);

    UntypedProgram program;
    const ts::Value a = program.argument(rank_a, unit_a), b = program.argument(rank_b, unit_b);
    const ts::Value y = ts::build::einsum(a, b, text);
    program.output_gradients(y);
    std::vector<Array> arguments{random_array(shape_a, 1), random_array(shape_b, 2)};
    Shape shape_out;
    for (int d = 0; d < rank_out; ++d) {
      std::int64_t n = 1;
      for (int e = 0; e < rank_a; ++e)
        if (text.a[e] == text.out[d]) n = std::max(n, shape_a[static_cast<std::size_t>(e)]);
      for (int e = 0; e < rank_b; ++e)
        if (text.b[e] == text.out[d]) n = std::max(n, shape_b[static_cast<std::size_t>(e)]);
      shape_out.push_back(n);
    }
    arguments.push_back(random_array(shape_out, 3));
    check_against_differences(program.finish(), arguments, {true, true});
    if (HasFatalFailure()) return;
  }
}

Array sizes_of(const Shape& shape, std::vector<double> sizes) { return Array(shape, std::move(sizes)); }

// Against the definition: rows [start of group, end of group) times the matrix of the group, other rows 0.
TEST(RaggedDot, MultipliesEachGroupOfRowsWithItsMatrix) {
  using Sizes = ts::ShardedTensor<std::int32_t, 1>;
  const auto f = [](const auto& x, const auto& w, const auto& sizes) { return ts::ragged_dot(x, w, sizes); };
  const auto program = trace<decltype(f), Float<2>, Float<3>, Sizes>();
  const Array x = random_array({7, 3}, 1), w = random_array({4, 3, 2}, 2);
  const auto check = [&](const std::vector<double>& sizes, const std::vector<int>& group_of_row) {
    const Array y = run(program.view(), {x, w, sizes_of({4}, sizes)}).at(0);
    ASSERT_EQ(y.shape, (Shape{7, 2}));
    for (std::int64_t i = 0; i < 7; ++i)
      for (std::int64_t j = 0; j < 2; ++j) {
        double sum = 0;
        const int g = group_of_row[static_cast<std::size_t>(i)];
        for (std::int64_t k = 0; k < 3 && g >= 0; ++k) sum += x.at({i, k}) * w.at({g, k, j});
        ASSERT_NEAR(y.at({i, j}), sum, 1e-12) << i;
      }
  };
  check({2, 0, 3, 1}, {0, 0, 2, 2, 2, 3, -1});
  check({7, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0});
  check({1, 100, 5, 5}, {0, 1, 1, 1, 1, 1, 1});
  check({-3, 2, -1, 1}, {1, 1, 3, -1, -1, -1, -1});
  check({0, 0, 0, 0}, {-1, -1, -1, -1, -1, -1, -1});
}

TEST(RaggedDot, GradientsOfBothOrders) {
  using Sizes = ts::ShardedTensor<std::int32_t, 1>;
  using Each = ts::ShardedTensor<std::int64_t, 2>;
  const auto f = [](const auto& x, const auto& w, const auto& sizes) { return ts::ragged_dot(x, w, sizes); };
  const Array sizes = sizes_of({3}, {2, 0, 3}), each = sizes_of({2, 3}, {1, 2, 0, 0, 4, 2});
  const Array w = random_array({3, 2, 4}, 2);
  check_gradient<Float<2>, Float<3>, Sizes>(f, {random_array({6, 2}, 1), w, sizes});
  check_gradient<Float<3>, Float<3>, Each>(f, {random_array({2, 5, 2}, 1), w, each});
  check_gradient<Float<3>, Float<3>, Sizes>(f, {random_array({2, 5, 2}, 1), w, sizes});
  check_gradient<Float<3>, Float<4>, Each>(f, {random_array({2, 5, 2}, 1), random_array({2, 3, 2, 4}, 3), each});
}

TEST(RaggedDot, RefusesShapesThatDoNotFit) {
  using Sizes = ts::ShardedTensor<std::int32_t, 1>;
  const auto f = [](const auto& x, const auto& w, const auto& sizes) { return ts::ragged_dot(x, w, sizes); };
  const auto infer = [&]<class F>(const F&, std::vector<ts::Shape> arguments) {
    return [arguments] { ts::infer_shapes(trace<F, Float<2>, Float<3>, Sizes>().view(), arguments.data(), nullptr); };
  };
  infer(f, {{6, 2}, {3, 2, 4}, {3}})();
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(f, {{6, 3}, {3, 2, 4}, {3}}),
                             "[ragged_dot] inner dims differ: f32[6,3] x f32[3,2,4] x i32[3] at ", "einsum_test.cpp:");
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(f, {{6, 2}, {3, 2, 4}, {4}}),
                             "[ragged_dot] there is a group size for each matrix", "einsum_test.cpp:");
}

}  // namespace
