#include "../../support/gradients.hpp"

#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/ir/print.hpp>
#include <tessera/ops/attention/attention.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const auto causal = [](const auto& q, const auto& k, const auto& v) { return ts::causal_attention(q, k, v); };
const auto whole = [](const auto& q, const auto& k, const auto& v) { return ts::attention(q, k, v); };
const auto scaled = [](const auto& q, const auto& k, const auto& v) { return ts::attention(q, k, v, 0.25); };
/// Attention composed of products and a softmax.
const auto reference_attention = [](const auto& q, const auto& k, const auto& v) {
  const auto scores = ts::einsum<"bthd,bshd->bhts">(q, k) * 0.25;
  return ts::einsum<"bhts,bshd->bthd">(ts::softmax(scores), v);
};

using Tensor = Float<4>;
const std::vector<Array> self{random_array({2, 4, 2, 3}, 1), random_array({2, 4, 2, 3}, 2),
                              random_array({2, 4, 2, 3}, 3)};
/// Keys and queries of different times, and values of another width.
const std::vector<Array> cross{random_array({2, 3, 2, 2}, 1), random_array({2, 5, 2, 2}, 2),
                               random_array({2, 5, 2, 3}, 3)};

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

Array expected(const std::vector<Array>& x, bool is_causal, double scale) {
  const Array &q = x[0], &k = x[1], &v = x[2];
  Array y({q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
  for_each_index({q.shape[0], q.shape[1], q.shape[2]}, [&](const Shape& i) {
    const std::int64_t b = i[0], t = i[1], h = i[2];
    double total = 0;
    for (std::int64_t s = 0; s < k.shape[1] && (!is_causal || s <= t); ++s) {
      double score = 0;
      for (std::int64_t d = 0; d < q.shape[3]; ++d) score += q.at({b, t, h, d}) * k.at({b, s, h, d}) * scale;
      total += std::exp(score);
      for (std::int64_t e = 0; e < v.shape[3]; ++e) y.at({b, t, h, e}) += std::exp(score) * v.at({b, s, h, e});
    }
    for (std::int64_t e = 0; e < v.shape[3]; ++e) y.at({b, t, h, e}) /= total;
  });
  return y;
}

TEST(Attention, IsTheSoftmaxOfScoresTimesValues) {
  expect_near(apply<Tensor, Tensor, Tensor>(causal, self), expected(self, true, 1 / std::sqrt(3.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(whole, self), expected(self, false, 1 / std::sqrt(3.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(whole, cross), expected(cross, false, 1 / std::sqrt(2.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(causal, cross), expected(cross, true, 1 / std::sqrt(2.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(scaled, self), expected(self, false, 0.25), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(reference_attention, self), expected(self, false, 0.25), 1e-12);
}

TEST(Attention, FirstDerivatives) {
  check_gradient<Tensor, Tensor, Tensor>(causal, self, first_order);
  check_gradient<Tensor, Tensor, Tensor>(whole, cross, first_order);
  check_gradient<Tensor, Tensor, Tensor>(scaled, self, first_order);
  // The same value as q, k and v, and values without gradients.
  check_gradient<Tensor>([](const auto& x) { return ts::causal_attention(x, x, x); }, {self[0]}, first_order);
  check_gradient<Tensor, Float<0>>([](const auto& x, const auto& a) { return ts::attention(x * a, x, x); },
                                   {self[0], Array::number(0.7)}, first_order);
}

TEST(Attention, SecondDerivativesAreWrittenOut) {
  const std::vector<Array> small{random_array({1, 3, 1, 2}, 1), random_array({1, 3, 1, 2}, 2),
                                 random_array({1, 3, 1, 2}, 3)};
  check_gradient<Tensor, Tensor, Tensor>(causal, small);
  check_gradient<Tensor, Tensor, Tensor>(whole, {cross[0], cross[1], cross[2]});
  check_gradient<Tensor>([](const auto& x) { return ts::causal_attention(x, x, x); }, {small[0]});
}

int units_of(const Program& program, ts::UnitKind kind) {
  int n = 0;
  for (const ts::Unit& unit : ts::group_units(program.main()).units) n += unit.kind == kind ? 1 : 0;
  return n;
}

TEST(Attention, IsOneUnitForwardAndOneBackward) {
  EXPECT_EQ(units_of(trace<std::decay_t<decltype(causal)>, Tensor, Tensor, Tensor>(), ts::UnitKind::attention), 1);
  EXPECT_EQ(ts::group_units(trace<std::decay_t<decltype(causal)>, Tensor, Tensor, Tensor>().main()).units.size(), 1u);
  const auto training = [](const auto& q, const auto& k, const auto& v) {
    return ts::value_and_grad([](const auto& all) {
      return ts::sum(ts::causal_attention(std::get<0>(all), std::get<1>(all), std::get<2>(all)));
    })(std::tuple(q, k, v));
  };
  const Program program = trace<std::decay_t<decltype(training)>, Tensor, Tensor, Tensor>();
  EXPECT_EQ(program.count(ts::Op::attention_grad), 3);
  EXPECT_EQ(units_of(program, ts::UnitKind::attention), 2);
  EXPECT_EQ(units_of(program, ts::UnitKind::contraction), 0);
}

TEST(Attention, TwoOfOneScoreShareLogarithms) {
  const auto both = [](const auto& q, const auto& k, const auto& v) {
    return ts::attention(q, k, ts::attention(q, k, v));
  };
  const Program program = trace<std::decay_t<decltype(both)>, Tensor, Tensor, Tensor>();
  EXPECT_EQ(program.count(ts::Op::attention_lse), 1);
  EXPECT_EQ(units_of(program, ts::UnitKind::attention), 2);
  check_gradient<Tensor, Tensor, Tensor>(both, self, first_order);
}

TEST(Attention, Prints) {
  const Program program = trace<std::decay_t<decltype(causal)>, Tensor, Tensor, Tensor>();
  const std::string text = ts::text_of(program.view());
  EXPECT_NE(text.find("attention_lse[causal] f32[?,?,?] (%0, %1, "), std::string::npos) << text;
  EXPECT_NE(text.find("attention[causal] f32[?,?,?,?] (%0, %1, %2, "), std::string::npos) << text;
}

TEST(Attention, DimsOfStaticExtentOneMustMeetAlike) {
  const auto meets = [](const auto& q, const auto& k) { return ts::attention(ts::unsqueeze<0>(q), k, k); };
  using F = std::decay_t<decltype(meets)>;
  EXPECT_THROW((trace<F, Float<3>, Float<4>>()), ts::error);
  const auto alike = [](const auto& q) {
    const auto x = ts::unsqueeze<0>(q);
    return ts::causal_attention(x, x, x);
  };
  check_gradient<Float<3>>(alike, {random_array({3, 2, 2}, 1)}, first_order);
}

}  // namespace
