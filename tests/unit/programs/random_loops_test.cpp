// Written by random_loops.py 1 3.
#include "random_loops.hpp"

#include <cstdint>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

// Functions leave parameters unused.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"

namespace ts = tessera;

namespace {

struct F0 {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto v1 = ts::vmap([&](const auto& x2) {
      return ts::cond(
          ts::sum(x2) > 0.25,
          [&](const auto& p3) {
            const auto v4 = ts::fori_loop(
                0, 3, [&](const auto& i6, const auto& c5) { return ts::tanh(c5) + 0.1 * ts::cast<double>(i6); },
                ts::sin(x + x), ts::unroll<2>);
            return ((p3 * w) * ts::tanh(ts::sum(v4)));
          },
          [&](const auto& p3) {
            const auto v7 = ts::cond(
                ts::sum((w + 0.25)) > 0.0, [&](const auto& p8) { return x; },
                [&](const auto& p8) { return ((x * ts::tanh(ts::sum(ts::sin(x)))) * ts::tanh(ts::mean(x2 * p3))); },
                (x - 0.5 * x));
            return (ts::tanh(p3) * ts::tanh(ts::sum(v7)));
          },
          x2);
    })((x * (w * ts::tanh(ts::sum(ts::sin(x))))));
    const auto v9 = ts::vmap([&](const auto& x10) {
      const auto v11 = ts::fori_loop(
          0, 1,
          [&](const auto& i13, const auto& c12) {
            return ts::tanh((ts::tanh(v1) * ts::tanh(ts::sum(ts::sin(x))))) + 0.1 * ts::cast<double>(i13);
          },
          (v1 * ts::tanh(ts::sum(ts::sin(x)))), ts::unroll<2>);
      return ((x10 + 0.25) * ts::tanh(ts::sum(v11)));
    })((ts::sin(v1 + v1) + 0.25));
    const auto v14 =
        ts::switch_case(ts::cast<std::int32_t>(ts::floor(ts::mean(ts::sum<0>(ts::tanh(v9)) * (w - 0.5 * w)) + 1.0)),
                        std::tuple([&](const auto& p15) { return ts::sin(ts::tanh(p15) + (x + 0.25)); },
                                   [&](const auto& p15) { return (ts::tanh(p15) - 0.5 * (v1 * x)); },
                                   [&](const auto& p15) { return ts::tanh(ts::tanh(v1)); }),
                        (v9 * w));
    return v1 + v9 + v14 + x * 0.1;
  }
};
struct F1 {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto v1 =
        ts::while_loop([](const auto& v) { return ts::sum(v * v) < 1.0; },
                       [&](const auto& c2) {
                         const auto v3 = ts::fori_loop(
                             0, 3,
                             [&](const auto& i5, const auto& c4) {
                               return ts::tanh((ts::tanh(c4) * ts::tanh(ts::mean(w * w)))) + 0.1 * ts::cast<double>(i5);
                             },
                             ts::sum<0>(ts::tanh(x)));
                         return ts::tanh(((c2 * w) * ts::tanh(ts::sum(v3)))) + c2 * 1.25;
                       },
                       (x * ts::tanh(ts::sum(ts::sin(x)))), 4);
    const auto v6 = ts::cond(
        ts::sum(ts::sum<0>(ts::tanh(x))) > 0.0,
        [&](const auto& p7) {
          const auto v8 = ts::cond(
              ts::sum(ts::sin((v1 + 0.25))) > 0.0, [&](const auto& p9) { return ts::sum<0>(ts::tanh((v1 - 0.5 * x))); },
              [&](const auto& p9) { return p9; }, (w - 0.5 * w));
          return (ts::sin(x + v1) * ts::tanh(ts::sum(v8)));
        },
        [&](const auto& p7) {
          const auto v10 = ts::cond(
              ts::sum(ts::sin((p7 * ts::tanh(ts::sum(ts::sin(v1)))))) > 0.0,
              [&](const auto& p11) { return (ts::tanh(w) - 0.5 * (w * ts::tanh(ts::sum(w)))); },
              [&](const auto& p11) { return ts::sin((p11 * p11) + (p11 * w)); }, (w * ts::tanh(ts::sum(ts::sin(v1)))));
          return (x * ts::tanh(ts::sum(v10)));
        },
        (x - 0.5 * v1));
    const auto v12 = ts::vmap([&](const auto& x13) { return (ts::tanh(x13) * w); })(x);
    return v1 + v6 + v12 + x * 0.1;
  }
};
struct F2 {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto t2 = ts::scan(
        [&](const auto& c3, const auto& x4) {
          const auto v5 = ts::vmap([&](const auto& x6) { return x6; })(
              ((x * ts::tanh(ts::sum(ts::sin(x)))) * ts::tanh(ts::mean(x4 * c3))));
          return std::tuple(ts::tanh((ts::sin(w + w) * ts::tanh(ts::sum(v5)))), ts::sum<0>(ts::tanh((x * c3))));
        },
        (w - 0.5 * w), ((x * w) - 0.5 * x));
    const auto v1 = std::get<1>(t2) + std::get<0>(t2);
    const auto v7 = ts::vmap([&](const auto& x8) {
      const auto v9 = ts::cond(
          ts::sum(ts::sum<0>(ts::tanh(v1))) > 0.0, [&](const auto& p10) { return ts::sum<0>(ts::tanh(x)); },
          [&](const auto& p10) { return (ts::sum<0>(ts::tanh(x)) * ts::tanh(ts::sum(x8))); }, w);
      return (v9 + (x8 - 0.5 * x8));
    })(((v1 - 0.5 * v1) * ts::sin(v1 + x)));
    const auto v11 =
        ts::switch_case(ts::cast<std::int32_t>(ts::floor(ts::sum(w) + 1.0)),
                        std::tuple([&](const auto& p12) { return ts::sin((v7 * w) + ts::sin(x + p12)); },
                                   [&](const auto& p12) { return x; }, [&](const auto& p12) { return p12; }),
                        (v7 * x));
    return v1 + v7 + v11 + x * 0.1;
  }
};
struct F3 {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto v1 = ts::while_loop(
        [](const auto& v) { return ts::sum(v * v) < 4.0; },
        [&](const auto& c2) {
          const auto v3 = ts::fori_loop(
              0, 1, [&](const auto& i5, const auto& c4) { return ts::tanh(c4) + 0.1 * ts::cast<double>(i5); }, c2,
              ts::unroll<2>);
          return ts::tanh((v3 + (c2 * ts::tanh(ts::sum(c2))))) + c2 * 1.25;
        },
        ts::sum<0>(ts::tanh(x)), 4);
    const auto t7 = ts::scan(
        [&](const auto& c8, const auto& x9) {
          return std::tuple(ts::tanh(ts::tanh((c8 - 0.5 * x))), (ts::sin(v1 + w) * (v1 * v1)));
        },
        x, (ts::pmean<"d">((x + 0.0 * ts::sum(x))) - 0.5 * (x * ts::tanh(ts::sum(w)))));
    const auto v6 = std::get<1>(t7) + std::get<0>(t7);
    const auto t11 = ts::scan(
        [&](const auto& both, const auto& xs) {
          const auto& c12 = std::get<0>(both);
          const auto& n14 = std::get<1>(both);
          const auto& x13 = std::get<0>(xs);
          return std::tuple(std::tuple(ts::tanh((c12 * v1)), n14 + ts::sum(x13) * std::get<1>(xs)),
                            std::tuple(v1, n14));
        },
        std::tuple((v1 - 0.5 * w), ts::sum(ts::sin(v6))), std::pair(x, ts::sum<1>(x)), ts::unroll<3>);
    const auto v10 = std::get<0>(std::get<1>(t11)) * std::get<1>(std::get<0>(t11)) +
                     ts::unsqueeze<1>(std::get<1>(std::get<1>(t11))) + std::get<0>(std::get<0>(t11));
    return ts::sum(v1) + v6 + v10 + x * 0.1;
  }
};
struct F4 {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto t2 = ts::scan(
        [&](const auto& c3, const auto& x4) {
          const auto v5 = ts::cond(
              ts::sum(ts::sin(c3)) > 0.0,
              [&](const auto& p6) {
                return ((c3 * ts::tanh(ts::sum(ts::sin(c3)))) -
                        0.5 * (c3 * ts::tanh(ts::psum<"d">((ts::sum(ts::sin(c3)) + 0.0 * ts::sum(x))))));
              },
              [&](const auto& p6) { return c3; }, ts::tanh(c3));
          return std::tuple(ts::tanh((v5 + x)), ts::pmean<"d">(((x4 + 0.25) + 0.0 * ts::sum(x))));
        },
        (x * ts::tanh(ts::mean(w * w))), x, ts::unroll<3>);
    const auto v1 = std::get<1>(t2) + std::get<0>(t2);
    const auto t8 = ts::scan(
        [&](const auto& c9, const auto& x10) {
          return std::tuple(ts::tanh((ts::tanh(x) * ts::tanh(c9))), ts::pmax<"d">(((w + 0.25) + 0.0 * ts::sum(x))));
        },
        (v1 - 0.5 * x), ts::tanh((x + 0.25)), ts::unroll<3>);
    const auto v7 = std::get<1>(t8) + std::get<0>(t8);
    const auto v11 = ts::vmap([&](const auto& x12) {
      return ts::cond(
          ts::sum(x12) > 0.25,
          [&](const auto& p13) { return ((x12 * ts::tanh(ts::sum(x12))) * ts::tanh(ts::mean(w * p13))); },
          [&](const auto& p13) { return (p13 * ts::sin(p13 + x12)); }, x12);
    })((x + 0.25));
    return v1 + v7 + v11 + x * 0.1;
  }
};
struct F5 {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto t2 = ts::scan(
        [&](const auto& c3, const auto& x4) {
          const auto v5 = ts::cond(
              ts::sum(ts::sin(ts::psum<"d">((x + 0.0 * ts::sum(x))))) > 0.0,
              [&](const auto& p6) { return ts::sin((p6 * w) + x); },
              [&](const auto& p6) { return ts::tanh((x * ts::tanh(ts::mean(c3 * w)))); }, x);
          return std::tuple(ts::tanh((ts::sum<0>(ts::tanh(x)) * ts::tanh(ts::sum(v5)))), c3);
        },
        ts::tanh(w), ts::sin((x - 0.5 * x) + (x * ts::tanh(ts::mean(w * w)))), {.reverse = true});
    const auto v1 = std::get<1>(t2) + std::get<0>(t2);
    const auto v7 = ts::switch_case(ts::cast<std::int32_t>(ts::floor(ts::sum(ts::sin((v1 * v1))) + 1.0)),
                                    std::tuple(
                                        [&](const auto& p8) {
                                          const auto v9 = ts::vmap([&](const auto& x10) {
                                            return (ts::sin(x10 + x10) * (w - 0.5 * x10));
                                          })((p8 + 0.25));
                                          return (v9 + ts::psum<"d">((p8 + 0.0 * ts::sum(x))));
                                        },
                                        [&](const auto& p8) {
                                          const auto v11 = ts::vmap([&](const auto& x12) {
                                            return ts::tanh((x12 * ts::tanh(ts::mean(w * x12))));
                                          })(((p8 * w) - 0.5 * (v1 + 0.25)));
                                          return (v11 + ts::sin(v11 + x));
                                        },
                                        [&](const auto& p8) {
                                          const auto v13 = ts::cond(
                                              ts::ppermute<"d">((ts::sum(w) + 0.0 * ts::sum(x)), ts::Shift(1)) > 0.0,
                                              [&](const auto& p14) { return w; },
                                              [&](const auto& p14) { return (ts::tanh(w) + 0.25); }, ts::sin(w + w));
                                          return ((p8 * v13) * ts::tanh(ts::sum(v13)));
                                        }),
                                    (v1 * x));
    const auto v15 = ts::vmap([&](const auto& x16) {
      return ts::cond(
          ts::sum(x16) > 0.25, [&](const auto& p17) { return (x16 + 0.25); },
          [&](const auto& p17) { return (w * (x16 * ts::tanh(ts::mean(x16 * w)))); }, x16);
    })((ts::sin(v7 + v7) * w));
    return v1 + v7 + v15 + x * 0.1;
  }
};
TEST(RandomLoops, Examples) {
  random_loops::compare_examples<F0>("function 0");
  random_loops::compare_examples<F1>("function 1");
  random_loops::compare_examples<F2>("function 2");
}
TEST(RandomLoops, Collectives) {
  random_loops::compare_collectives<F3>("function 3");
  random_loops::compare_collectives<F4>("function 4");
  random_loops::compare_collectives<F5>("function 5");
}

}  // namespace
