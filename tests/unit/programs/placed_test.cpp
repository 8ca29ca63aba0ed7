#include "check.hpp"

#include <tessera/optim/gradients/clip.hpp>

namespace ts = tessera;
using namespace programs;

/// Programs with fixed shardings in which special paths run.

TEST(Placed, AProductWithANumber) {
  constexpr auto f = [](const auto& floats) {
    const auto& [w, v] = floats;  // [k, n], [n, k]
    return std::tuple(ts::einsum<"kn,nk->">(w, v) * 3.0, w);
  };
  expect_equal_on<std::tuple<Tensor<2>, Tensor<2>>>(
      with_gradient(f), {.arguments = {values("kn"), values("nk")}, .extents = {{'k', {5}}, {'n', {4}}}},
      {ts::Mesh({{"x", 2}}), {{"x"}, {}}});
}

TEST(Placed, SplitDimsThatAreShardedByTheirMinorFactor) {
  constexpr auto f = [](const auto& floats, const auto& minor) {
    const auto& [x] = floats;
    const auto y = ts::rearrange<"b (d h) -> h (b d)">(x, ts::len<"h">(minor));
    return std::tuple(energy(y), y);
  };
  // A merged dim of extents 1 and 8; one split by x and y whose major factor is split by x alone.
  expect_equal_on<std::tuple<Tensor<2>>, ts::Dim>(
      with_gradient(f), {.arguments = {values("be"), size('h')}, .extents = {{'b', {1}}, {'e', {32}}, {'h', {4}}}},
      {ts::Mesh({{"x", 8}}), {{ts::none, "x"}, {}}});
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{ts::none, {"x", "y"}}, ts::PartitionSpec{"y", "x"}})
    expect_equal_on<std::tuple<Tensor<2>>, ts::Dim>(
        with_gradient(f), {.arguments = {values("be"), size('h')}, .extents = {{'b', {6}}, {'e', {16}}, {'h', {4}}}},
        {ts::Mesh({{"x", 4}, {"y", 2}}), {spec, {}}});
}

TEST(Placed, RowsBesideAProductThatIsMadeInBoxes) {
  constexpr auto f = [](const auto& x, const auto& w, const auto& column) {
    const auto scale = ts::exp(ts::unsqueeze<1>(column));  // [m, 1], of the group that scales the product
    const auto y = ts::matmul(x, w) * scale;
    return std::tuple(ts::matmul(y, ts::transpose<1, 0>(y)), ts::matmul(ts::transpose<1, 0>(scale), y));
  };
  const Check check{.arguments = {values("mk"), values("kn"), values("m")},
                    .extents = {{'m', {300}}, {'k', {24}}, {'n', {1100}}}};
  expect_equal_on<Tensor<2>, Tensor<2>, Tensor<1>>(f, check, {ts::Mesh(), {{}, {}, {}}});
  expect_equal_on<Tensor<2>, Tensor<2>, Tensor<1>>(f, check,
                                                   {ts::Mesh({{"x", 2}, {"y", 3}}), {{"x"}, {ts::none, "y"}, {"x"}}});
}

TEST(Placed, ASumOfProductsOfWhichOneIsPartial) {
  constexpr auto f = [](const auto& x, const auto& w, const auto& a, const auto& b) {
    const auto one = ts::matmul(x, w);
    const auto other = ts::matmul(a, b);
    return std::tuple(ts::matmul(x, w) + ts::matmul(a, b), ts::matmul(a, b) + ts::matmul(x, w),
                      ts::einsum<"mk,kn->nm">(x, w) + (ts::einsum<"mj,jn->nm">(a, b) + ts::einsum<"mk,kn->nm">(x, w)),
                      one + other + ts::matmul(a, b));
  };
  for (const ts::PartitionSpec& left :
       {ts::PartitionSpec{}, ts::PartitionSpec{ts::none, "y"}, ts::PartitionSpec{ts::none, "x"},
        ts::PartitionSpec{"y", "x"}, ts::PartitionSpec{ts::none, {"x", "y"}}})
    for (const ts::PartitionSpec& right : {ts::PartitionSpec{}, ts::PartitionSpec{"y"}, ts::PartitionSpec{{"y", "x"}}})
      expect_equal_on<Tensor<2>, Tensor<2>, Tensor<2>, Tensor<2>>(
          f,
          {.arguments = {values("mk"), values("kn"), values("mj"), values("jn")},
           .extents = {{'m', {7}}, {'k', {5}}, {'j', {4}}, {'n', {6}}}},
          {ts::Mesh({{"x", 2}, {"y", 3}}), {left, {}, {}, right}});
}

TEST(Placed, SumsOfRowsThatAreSplitAmongDevices) {
  constexpr auto f = [](const auto& x, const auto& column) {
    return std::tuple(ts::sum<1>(x) * 2.0 + column, ts::exp(ts::max<1>(x * 0.5, ts::keepdims)),
                      ts::mean<1>(x) * column);
  };
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{ts::none, "x"}, ts::PartitionSpec{ts::none, {"y", "x"}}, ts::PartitionSpec{"x", "y"}})
    expect_equal_on<Tensor<2>, Tensor<1>>(
        f, {.arguments = {values("mn"), values("m")}, .extents = {{'m', {5}}, {'n', {7}}}},
        {ts::Mesh({{"x", 2}, {"y", 4}}), {spec, {}}});
}

namespace {

struct Weighted {
  Tensor<1> w;
  constexpr auto operator()(const auto& x) const { return ts::tanh(x) + ts::sum(w * w); }
};
struct Forgetful {
  Tensor<1> w;
  constexpr auto operator()(const auto& x) const { return ts::zeros_like(x) + ts::sum(w * w); }
};
struct Halving {
  Tensor<1> w;
  constexpr auto operator()(const auto& x) const { return x * 0.5 + ts::sum(w * w); }
};
struct Turning {
  Tensor<2> w;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, w)); }
};

}  // namespace

TEST(Placed, StacksThatCarryANumber) {
  constexpr auto f = [](const auto& start, const auto& first, const auto& second) {
    const auto run = [](const auto& x, const auto& a, const auto& b) { return b(a(ts::sum(ts::tanh(x)))); };
    const auto& number = start;
    return std::tuple(ts::value_and_grad(run)(number, first, second), first(ts::full_like(ts::sum(number), 2.0)),
                      ts::grad([&](const auto& a) { return second(a(ts::sum(number))); })(first));
  };
  const Check check{.arguments = {values("n"), stacked(values("m")), stacked(values("m"))},
                    .extents = {{'m', {5}}, {'n', {3}}, {'L', {3}}}};
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"x"}}) {
    expect_equal_on<Tensor<1>, ts::Stack<Weighted>, ts::Stack<Weighted>>(f, check,
                                                                         {ts::Mesh({{"x", 2}}), {spec, spec, {}}});
    expect_equal_on<Tensor<1>, ts::Stack<Forgetful>, ts::Stack<Weighted>>(f, check,
                                                                          {ts::Mesh({{"x", 2}}), {spec, spec, {}}});
    expect_equal_on<Tensor<1>, ts::Stack<Weighted>, ts::Stack<Forgetful>>(f, check,
                                                                          {ts::Mesh({{"x", 2}}), {spec, spec, {}}});
  }
}

TEST(Placed, StacksWhoseBackwardPassReadsNothingOfALayer) {
  constexpr auto f = [](const auto& start, const auto& halving) {
    const auto y = [](const auto& x, const auto& stack) { return ts::sum(stack(x)); };
    return std::tuple(ts::value_and_grad(y)(ts::sum(start), halving), ts::grad(y)(start, halving));
  };
  expect_equal_on<Tensor<1>, ts::Stack<Halving>>(
      f, {.arguments = {values("n"), stacked(values("m"))}, .extents = {{'m', {5}}, {'n', {3}}, {'L', {4}}}},
      {ts::Mesh({{"x", 2}}), {{"x"}, {"x"}}});
}

TEST(Placed, StacksThatTakeViews) {
  constexpr auto f = [](const auto& floats, const auto& stack) {
    const auto& [x, bias] = floats;  // [m, n], [n, m]
    const auto y = stack(ts::transpose<1, 0>(ts::tanh(x)));
    const auto z = stack(bias);
    return std::tuple(energy(y, z), y, stack(ts::transpose<1, 0>(x)), ts::transpose<1, 0>(x));
  };
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{ts::none, "x"}})
    expect_equal_on<std::tuple<Tensor<2>, Tensor<2>>, ts::Stack<Turning>>(
        with_gradient(f),
        {.arguments = {values("mn"), values("nm"), stacked(values("mm"))}, .extents = {{'m', {5}}, {'n', {6}}}},
        {ts::Mesh({{"x", 2}, {"y", 2}}), {spec, spec, {"y"}}});
}

TEST(Placed, SumsBesideAPartialValue) {
  constexpr auto f = [](const auto& x, const auto& w, const auto& y) {
    const auto scaled = ts::matmul(x, w) * y;
    return std::tuple(ts::sum<0>(scaled), ts::sum<0>(y * y), ts::sum<0>(y), ts::max(y), ts::sum(y * y * y));
  };
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{ts::none, "x"}, ts::PartitionSpec{ts::none, {"x", "y"}}})
    expect_equal_on<Tensor<2>, Tensor<2>, Tensor<2>>(
        f, {.arguments = {values("mk"), values("kn"), values("mn")}, .extents = {{'m', {6}}, {'k', {3}}, {'n', {5}}}},
        {ts::Mesh({{"x", 2}, {"y", 3}}), {spec, {}, {"y"}}});
}

TEST(Placed, MoreDevicesThanRows) {
  constexpr auto f = [](const auto& floats, const auto& table) {
    const auto& [x, w, v, bias] = floats;  // [m, k], [k, n], [n, k], [n]
    const auto hidden = ts::gelu(ts::matmul(x, w) + bias);
    const auto y = ts::matmul(hidden, v);
    const auto rows = ts::embedding(table, ts::cast<std::int32_t>(ts::abs(ts::sum<1>(x)) * 0.0));
    return std::tuple(energy(y) + ts::mean(y) + ts::max(y) * ts::min(hidden), ts::sum<0>(y) * 2.0, ts::max<0>(y),
                      ts::softmax<0>(y), ts::transpose<1, 0>(ts::matmul(ts::transpose<1, 0>(x), hidden)), rows,
                      ts::matmul(ts::transpose<1, 0>(hidden), y) + ts::matmul(v, w) * 0.5,
                      ts::matmul(ts::transpose<1, 0>(hidden), y) + ts::matmul(ts::transpose<1, 0>(w), w));
  };
  for (const std::int64_t m : {1, 3, 5})
    for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"x"}, ts::PartitionSpec{{"y", "x"}},
                                          ts::PartitionSpec{"x", "y"}, ts::PartitionSpec{ts::none, {"x", "y"}}})
      for (const ts::PartitionSpec& weight :
           {ts::PartitionSpec{}, ts::PartitionSpec{"y"}, ts::PartitionSpec{ts::none, {"y", "x"}}})
        expect_equal_on<std::tuple<Tensor<2>, Tensor<2>, Tensor<2>, Tensor<1>>, Tensor<2>>(
            with_gradient(f),
            {.arguments = {values("mk"), values("kn"), values("nk"), values("n"), values("vd")},
             .extents = {{'m', {m}}, {'k', {6}}, {'n', {6}}, {'v', {3}}, {'d', {4}}}},
            {ts::Mesh({{"x", 4}, {"y", 2}}), {spec, weight, weight, {}, {"x"}}});
}

TEST(Placed, NumbersThatAreAddedWithPartsOverSeveralAxes) {
  constexpr auto f = [](const auto& a, const auto& b, const auto& c, const auto& d) {
    const auto total = ts::with_sharding(ts::sum(a) + ts::sum(b * b) - ts::sum(c) + ts::max(d) + 2.0 * ts::sum(d), {});
    const auto [clipped, norm] =
        ts::clip_by_global_norm(std::tuple(ts::Sym(a), ts::Sym(b), ts::Sym(c), ts::Sym(d)), 0.5);
    return std::tuple(total, norm, clipped, ts::global_norm(std::tuple(ts::Sym(a), ts::Sym(c))));
  };
  expect_equal_on<Tensor<2>, Tensor<2>, Tensor<1>, Tensor<1>>(
      f, {.arguments = {values("mn"), values("nm"), values("m"), values("n")}, .extents = {{'m', {5}}, {'n', {3}}}},
      {ts::Mesh({{"x", 4}, {"y", 2}}), {{"x"}, {"y", "x"}, {"x"}, {}}});
}
