// Collectives over the examples of a ts::vmap, by the name of its axis.
#include <cstdint>
#include <string>
#include <tuple>

#include "../../support/gradients.hpp"

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x2 = random_array({3, 4}, 1), x3 = random_array({3, 4, 5}, 2), v1 = random_array({5}, 6);
constexpr auto batch = ts::axis_name<"batch">;

TEST(AxisNames, CollectivesOfNestedVmaps) {
  constexpr auto f = [](const auto& xs) {  // [3, 4, 5]
    const auto nested = ts::vmap(
        [](const auto& a) {
          return ts::vmap(
              [&](const auto& x) {
                return std::tuple(
                    x + ts::psum<"outer">(x), x * ts::psum<"inner">(x), x - ts::pmean<"outer", "inner">(x * 2.0),
                    ts::pmax<"outer">(x) + ts::pmin<"inner">(x) * ts::sum(ts::psum<"inner">(a)),
                    ts::collective::all_gather<"outer", 0>(x) * ts::cast<double>(ts::axis_index<"outer">(x)),
                    ts::collective::all_gather<"inner", 0>(ts::sin(x)) + ts::cast<double>(ts::axis_index<"inner">(x)));
              },
              ts::axis_name<"inner">)(a);
        },
        ts::axis_name<"outer">)(xs);
    const auto& [first, second, third, fourth, fifth, sixth] = nested;
    const auto outer = ts::cast<double>(ts::iota<0, std::int32_t>(ts::sum<2>(xs)));
    const auto inner = ts::cast<double>(ts::iota<1, std::int32_t>(ts::sum<2>(xs)));
    const auto of_outer = ts::reshape(ts::transpose<1, 0, 2>(xs), {1, 4, 15});
    const auto of_inner = ts::reshape(ts::sin(xs), {3, 1, 20});
    return std::tuple(first, xs + ts::sum<0>(xs, ts::keepdims), second, xs * ts::sum<1>(xs, ts::keepdims), third,
                      xs - ts::mean<0, 1>(xs * 2.0, ts::keepdims), fourth,
                      ts::max<0>(xs, ts::keepdims) +
                          ts::min<1>(xs, ts::keepdims) * ts::unsqueeze<1>(ts::unsqueeze<1>(ts::sum<1, 2>(xs))) * 4.0,
                      fifth, of_outer * ts::unsqueeze<2>(outer), sixth, of_inner + ts::unsqueeze<2>(inner));
  };
  const auto out = results_of<Float<3>>(f, {x3});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
}

constexpr auto loss_of_batch = [](const auto& x, const auto& w) {
  const auto centered = x - ts::pmean<"batch">(x);
  const auto scaled = centered * ts::rsqrt(ts::pmean<"batch">(centered * centered) + 0.1);
  const auto others = ts::collective::all_gather<"batch", 0>(x * w);
  return ts::sum(ts::sin(scaled * w)) + ts::sum(ts::exp(others)) * ts::sum(x) +
         ts::sum(x * ts::ppermute<"batch">(ts::sin(x), ts::Shift(1))) + ts::sum(ts::psum<"batch">(w * x * w));
};
constexpr auto slope_of_batch = [](const auto& x, const auto& w) {
  return ts::sum(ts::sin(ts::grad([&](const auto& v) { return loss_of_batch(v, w); })(x)));
};

// A gradient in the function of the vmap is that of the sum of all losses: the gradient of the whole vmap.
TEST(AxisNames, GradientsOfCollectivesInside) {
  constexpr auto f = [](const auto& xs, const auto& w) {
    const auto of_all = [&](const auto& function) {
      return [&](const auto& own, const auto& v) {
        return ts::sum(ts::vmap([&](const auto& x) { return function(x, v); }, batch)(own));
      };
    };
    const auto first = ts::vmap([&](const auto& x) { return ts::grad<0, 1>(loss_of_batch)(x, w); }, batch)(xs);
    const auto second = ts::vmap([&](const auto& x) { return ts::grad<0>(slope_of_batch)(x, w); }, batch)(xs);
    const auto [of_x, of_w] = ts::grad<0, 1>(of_all(loss_of_batch))(xs, w);
    return std::tuple(std::get<0>(first), of_x, ts::sum<0>(std::get<1>(first)), of_w, second,
                      ts::grad<0>(of_all(slope_of_batch))(xs, w));
  };
  const auto out = results_of<Float<2>, Float<1>>(f, {x2, random_array({4}, 71)});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-10, std::to_string(k));
}

TEST(AxisNames, CollectivesInLoops) {
  constexpr auto f = [](const auto& xs, const auto& w) {
    const auto in_loop = ts::vmap(
        [&](const auto& x) {
          return ts::scan([&](const auto& h,
                              const auto& in) { return std::tuple(ts::tanh(h + ts::psum<"batch">(in * 0.3)), h * in); },
                          w, x);
        },
        batch)(xs);
    const auto shared = ts::vmap(
        [&](const auto& x) {
          return x * ts::fori_loop(
                         0, 2, [&](const auto&, const auto& h) { return ts::psum<"batch">(h) * 0.5; }, w);
        },
        batch)(xs);
    const auto by_hand = ts::scan(
        [&](const auto& h, const auto& in) {
          return std::tuple(ts::tanh(h + ts::sum<0>(in * 0.3)), ts::unsqueeze<0>(h) * in);
        },
        w, ts::transpose<1, 0, 2>(xs));
    return std::tuple(std::get<0>(in_loop), ts::broadcast_like(std::get<0>(by_hand), ts::sum<1>(xs)),
                      std::get<1>(in_loop), ts::transpose<1, 0, 2>(std::get<1>(by_hand)), shared, xs * w * 2.25);
  };
  const auto out = results_of<Float<3>, Float<1>>(f, {x3, v1});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
}

TEST(AxisNames, OfNoVmap) {
  constexpr auto unknown = [](const auto& x) {
    return ts::vmap([](const auto& a) { return ts::psum<"bach">(a); }, batch)(x);
  };
  try {
    trace<decltype(unknown), Float<3>>();
    ADD_FAILURE() << "an axis that no vmap has";
  } catch (const ts::error& e) {
    EXPECT_NE(std::string(e.what()).find("collective over the axis 'bach'"), std::string::npos) << e.what();
  }
}

}  // namespace
