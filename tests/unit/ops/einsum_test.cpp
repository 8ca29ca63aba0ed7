#include <functional>
#include <map>
#include <string>

#include "../../support/untyped.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/contraction/ragged_dot.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

template <class... X> struct Types {};

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

// torch.matmul: a vector is a row as first operand and a column as second; leading dims are aligned at the last.
TEST(Einsum, MatmulOfVectorsAndOfBatchesOfOtherRanks) {
  const auto f = [](const auto& a, const auto& b) { return ts::matmul(a, b); };
  const auto check = [&]<class A, class B>(Types<A, B>, const Shape& of_a, const Shape& of_b, const Shape& of_y) {
    SCOPED_TRACE(of_y.size());
    const Array a = random_array(of_a, 1), b = random_array(of_b, 2);
    const Array y = run(trace<decltype(f), A, B>().view(), {a, b})[0];
    ASSERT_EQ(y.shape, of_y);
    const std::int64_t k = of_a[of_a.size() - 1], n = of_b.size() > 1 ? of_b[of_b.size() - 1] : 1;
    const std::int64_t m = of_a.size() > 1 ? of_a[of_a.size() - 2] : 1;
    for (std::size_t e = 0; e < y.data.size(); ++e) {
      const auto flat = static_cast<std::int64_t>(e), batch = flat / (m * n), row = flat / n % m, column = flat % n;
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t at_a = (batch * m + row) * k + i, at_b = (batch * k + i) * n + column;
        sum += a.data[static_cast<std::size_t>(at_a) % a.data.size()] *
               b.data[static_cast<std::size_t>(at_b) % b.data.size()];
      }
      EXPECT_NEAR(y.data[e], sum, 1e-12) << e;
    }
    check_gradient<A, B>(f, {a, b});
  };
  check(Types<Float<1>, Float<1>>{}, {4}, {4}, {});
  check(Types<Float<1>, Float<2>>{}, {4}, {4, 2}, {2});
  check(Types<Float<2>, Float<1>>{}, {3, 4}, {4}, {3});
  check(Types<Float<1>, Float<3>>{}, {4}, {2, 4, 3}, {2, 3});
  check(Types<Float<3>, Float<1>>{}, {2, 3, 4}, {4}, {2, 3});
  check(Types<Float<2>, Float<3>>{}, {3, 4}, {2, 4, 5}, {2, 3, 5});
  check(Types<Float<4>, Float<3>>{}, {2, 3, 1, 4}, {3, 4, 2}, {2, 3, 1, 2});
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

// Against sums over all values of all labels, by the definition.
TEST(Einsum, EquationsOfOneToFourOperands) {
  const auto loops = [](const std::string& labels, const std::vector<std::string>& in, const std::string& out,
                        const std::map<char, std::int64_t>& extents, const std::vector<Array>& arguments) {
    Shape shape;
    for (const char c : out) shape.push_back(extents.at(c));
    Array y(shape);
    std::map<char, std::int64_t> at;
    const auto index = [&](const std::string& dims) {
      std::size_t flat = 0;
      for (const char c : dims) flat = flat * static_cast<std::size_t>(extents.at(c)) + static_cast<std::size_t>(at[c]);
      return flat;
    };
    const std::function<void(std::size_t)> over = [&](std::size_t l) {
      if (l == labels.size()) {
        double product = 1;
        for (std::size_t k = 0; k < in.size(); ++k) product *= arguments[k].data[index(in[k])];
        y.data[index(out)] += product;
        return;
      }
      for (at[labels[l]] = 0; at[labels[l]] < extents.at(labels[l]); ++at[labels[l]]) over(l + 1);
    };
    over(0);
    return y;
  };
  const std::map<char, std::int64_t> extents{{'b', 2}, {'c', 3}, {'i', 3}, {'j', 4}, {'k', 2}};
  const auto check = [&]<class F, class... X>(const F& f, Types<X...>, const std::string& labels,
                                              const std::vector<std::string>& in, const std::string& out) {
    SCOPED_TRACE(in[0] + "->" + out);
    std::vector<Array> arguments;
    for (const std::string& dims : in) {
      Shape shape;
      for (const char c : dims) shape.push_back(extents.at(c));
      arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size()) + 1));
    }
    const Array y = run(trace<F, X...>().view(), arguments)[0], expected = loops(labels, in, out, extents, arguments);
    ASSERT_EQ(y.shape, expected.shape);
    for (std::size_t e = 0; e < y.data.size(); ++e) EXPECT_NEAR(y.data[e], expected.data[e], 1e-12) << e;
    check_gradient<X...>(f, arguments);
  };
  const auto of = [&]<ts::FixedString Text>() { return [](const auto&... x) { return ts::einsum<Text>(x...); }; };
  check(of.operator()<"ijk->kij">(), Types<Float<3>>{}, "ijk", {"ijk"}, "kij");
  check(of.operator()<"ijk->j">(), Types<Float<3>>{}, "ijk", {"ijk"}, "j");
  check(of.operator()<"ii->i">(), Types<Float<2>>{}, "i", {"ii"}, "i");
  check(of.operator()<"ii">(), Types<Float<2>>{}, "i", {"ii"}, "");
  check(of.operator()<"ijik->kij">(), Types<Float<4>>{}, "ijk", {"ijik"}, "kij");
  check(of.operator()<"iii->i">(), Types<Float<3>>{}, "i", {"iii"}, "i");
  check(of.operator()<"...ii->...">(), Types<Float<4>>{}, "bci", {"bcii"}, "bc");
  check(of.operator()<"ki">(), Types<Float<2>>{}, "ik", {"ki"}, "ik");
  check(of.operator()<"kj,ij">(), Types<Float<2>, Float<2>>{}, "ijk", {"kj", "ij"}, "ik");
  check(of.operator()<"iij,j->i">(), Types<Float<3>, Float<1>>{}, "ij", {"iij", "j"}, "i");
  check(of.operator()<"...ij,...jk->...ik">(), Types<Float<4>, Float<3>>{}, "bcijk", {"bcij", "cjk"}, "bcik");
  check(of.operator()<"...j,j">(), Types<Float<2>, Float<1>>{}, "bj", {"bj", "j"}, "b");
  check(of.operator()<"i...,i...->i">(), Types<Float<2>, Float<3>>{}, "ijk", {"ik", "ijk"}, "i");
  check(of.operator()<"ij,jk,ki->">(), Types<Float<2>, Float<2>, Float<2>>{}, "ijk", {"ij", "jk", "ki"}, "");
  check(of.operator()<"bi,bj,ijk">(), Types<Float<2>, Float<2>, Float<3>>{}, "bijk", {"bi", "bj", "ijk"}, "k");
  check(of.operator()<"i,j,k,b->bkji">(), Types<Float<1>, Float<1>, Float<1>, Float<1>>{}, "ijkb", {"i", "j", "k", "b"},
        "bkji");
}

TEST(Einsum, EquationsThatDoNotFit) {
  using enum ts::detail::EinsumError;
  using One = ts::detail::EinsumEquation<1>;
  using Two = ts::detail::EinsumEquation<2>;
  static_assert(One("ij->ji", {2}).error == none && One("...", {0}).error == none);
  static_assert(One("ij->ii", {2}).error == text && One("ij->k", {2}).error == text && One("i1", {2}).error == text);
  static_assert(One("i...j...", {4}).error == text && One("i..j", {3}).error == text);
  static_assert(One("ij", {3}).error == rank && One("...ij", {1}).error == rank);
  static_assert(One("ij,jk->ik", {2}).error == operands && Two("ij->ij", {2, 2}).error == operands);
  const auto f = [](const auto& x) { return ts::einsum<"ii->i">(x); };
  const ts::Shape shape{3, 4};
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { ts::infer_shapes(trace<decltype(f), Float<2>>().view(), &shape, nullptr); },
      "i32[3,4] x i32[1,3]", "einsum_test.cpp:");
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
