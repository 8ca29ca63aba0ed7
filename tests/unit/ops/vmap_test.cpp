#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include "vmap_compared.hpp"

#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;
using namespace vmap_compared;

// Operations, structures and axes under ts::vmap. Loops, Stacks and pullbacks: vmap_transforms_test.cpp.

namespace {

TEST(Vmap, Elementwise) {
  expect_same<Float<3>, Float<3>>(
      "equal ranks", [](const auto& x, const auto& y) { return ts::tanh(x * y) - x / (y * y + 1.0) * 2.0; },
      ts::in_axes<0, 0>, {x3, y3});
  expect_same<Float<3>, Float<2>, Float<1>>("ranks that differ",
                                            [](const auto& x, const auto& y, const auto& z) {
                                              return std::tuple(x * ts::unsqueeze<1>(y) + z, ts::select(y < z, y, 2.0),
                                                                z * z, x + ts::sum(y));
                                            },
                                            ts::in_axes<0, 0, 0>, {x3, x2, t1});
  expect_same<Float<3>, Float<1>>(
      "shared", [](const auto& x, const auto& w) { return std::tuple(x * w, w * w, ts::exp(w) + ts::mean(x)); },
      ts::in_axes<0, same>, {x3, v1});
  expect_same<Float<2>>(
      "numbers, casts and predicates",
      [](const auto& x) {
        return std::tuple(x > 0.0, ts::cast<std::int32_t>(x * 4.0), ts::logical_not(x > 0.5), ts::maximum(x, 0.0),
                          ts::clamp(x, -0.5, 0.5), ts::cast<float>(x));
      },
      ts::in_axes<0>, {x2}, 0, false);
  expect_same<Float<3>, Float<3>>("broadcasts",
                                  [](const auto& x, const auto& y) {
                                    return std::tuple(ts::broadcast_like(ts::max<0>(x), y),
                                                      ts::broadcast_like(ts::sum(x), y),
                                                      ts::broadcast_to(ts::unsqueeze<0>(ts::sum<0>(y)), {3, 5}));
                                  },
                                  ts::in_axes<0, 0>, {x3, y3});
  expect_same<Float<3>, Float<2>>("broadcasts to what is shared",
                                  [](const auto& x, const auto& w) {
                                    return std::tuple(ts::broadcast_like(ts::sum(x), w),
                                                      ts::broadcast_like(ts::sum(w), x), ts::zeros_like(x));
                                  },
                                  ts::in_axes<0, same>, {x3, w2});
}

TEST(Vmap, ReductionsAndCumulative) {
  expect_same<Float<3>>("reductions",
                        [](const auto& x) {
                          return std::tuple(ts::sum<0>(x), ts::sum(x), ts::mean<1>(x, ts::keepdims), ts::max<0>(x),
                                            ts::min<0, 1>(x), ts::prod<1>(x), ts::var<0>(x), ts::logsumexp<1>(x),
                                            ts::softmax<0>(x), ts::log_softmax<1>(x));
                        },
                        ts::in_axes<0>, {x3});
  expect_same<Float<3>>(
      "cumulative",
      [](const auto& x) {
        return std::tuple(ts::cumsum<0>(x), ts::cumsum<1, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(x),
                          ts::cumprod<1>(x), ts::cummax<0>(x), ts::cummin<1>(x), ts::logcumsumexp<0>(x));
      },
      ts::in_axes<0>, {x3}, 1);  // logcumsumexp is a scan
  expect_same<Float<3>>("orders",
                        [](const auto& x) {
                          return std::tuple(ts::argsort<0>(x), ts::sort<1>(x), ts::argmax<1>(x),
                                            ts::topk<1>(x, 2).values, ts::median<1>(x));
                        },
                        ts::in_axes<0>, {x3});
}

TEST(Vmap, Products) {
  expect_same<Float<3>, Float<3>>("of two", [](const auto& x, const auto& z) { return ts::matmul(x, z); },
                                  ts::in_axes<0, 0>, {x3, z3});
  expect_same<Float<3>, Float<2>>(
      "with a shared matrix",
      [](const auto& x, const auto& w) { return std::tuple(ts::matmul(x, w), ts::einsum<"ab,bc->ca">(x, w)); },
      ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<2>, Float<3>>("the second differs",
                                  [](const auto& w, const auto& z) { return ts::einsum<"cb,ca->ba">(w, z); },
                                  ts::in_axes<same, 0>, {w2, z3});
  expect_same<Float<2>, Float<1>>("vectors",
                                  [](const auto& x, const auto& s) {
                                    return std::tuple(ts::einsum<"a,a->">(x, x), ts::einsum<"a,b->ab">(x, x),
                                                      ts::dot(x, x * s));
                                  },
                                  ts::in_axes<0, 0>, {x2, t1});
}

TEST(Vmap, Movement) {
  expect_same<Float<3>, Float<3>>(
      "of dims",
      [](const auto& x, const auto& y) {
        return std::tuple(ts::transpose<1, 0>(x), ts::merge_dims<0, 1>(x), ts::split_dim<0>(x, 2),
                          ts::reshape(x, {10, 2}), ts::slice<1>(x, 1, 3), ts::slice<0>(x, ts::extent<0>(y) - 1, 1),
                          ts::concat<0>(x, ts::slice<0>(y, 1, 2)), ts::pad<1>(x, 1, 2), ts::flip<1>(x),
                          ts::roll<0>(x, 1), ts::stack<0>(x, y), ts::tril(x), ts::iota<1, std::int32_t>(x),
                          ts::squeeze<0>(ts::slice<0>(x, 0, 1)), ts::unsqueeze<0>(x));
      },
      ts::in_axes<0, 0>, {x3, y3});
  expect_same<Float<3>, Float<2>>("beside what is shared",
                                  [](const auto& x, const auto& w) {
                                    return std::tuple(ts::concat<0>(x, ts::transpose<1, 0>(w)),
                                                      ts::concat<0>(ts::transpose<1, 0>(w), x),
                                                      ts::stack<1>(ts::sum<0>(x), ts::sum<1>(w)), w);
                                  },
                                  ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<3>>("of windows",
                        [](const auto& x) {
                          return std::tuple(ts::slice<0>(x, 0, 4, 2),
                                            ts::avg_pool1d(ts::unsqueeze<0>(x), {.window = {2}}),
                                            ts::max_pool1d(ts::unsqueeze<0>(x), {.window = {3}}));
                        },
                        ts::in_axes<0>, {x3});
}

TEST(Vmap, Convolutions) {
  const Array image = random_array({3, 1, 7, 3}, 21), filters = random_array({2, 3, 3, 4}, 22),
              other = random_array({3, 3, 4}, 23);
  (void)filters;
  expect_same<Float<4>, Float<3>>("with shared filters",
                                  [](const auto& x, const auto& w) { return ts::conv1d(x, w, {.padding = {1}}); },
                                  ts::in_axes<0, same>, {image, other});
  const Array own = random_array({3, 3, 3, 4}, 24);
  expect_same<Float<4>, Float<4>>("with filters of each example",
                                  [](const auto& x, const auto& w) { return ts::conv1d(x, w, {.padding = {1}}); },
                                  ts::in_axes<0, 0>, {image, own});
  expect_same<Float<4>, Float<4>>("transposed", [](const auto& x, const auto& w) { return ts::conv_transpose1d(x, w); },
                                  ts::in_axes<0, 0>, {image, own});
}

// Its gradient is given, of the shape of an image for the gain, which has one dim.
TEST(Vmap, GroupNormWithGainsOfEachExample) {
  expect_same<Float<4>, Float<2>>("group_norm",
                                  [](const auto& x, const auto& w) { return ts::group_norm(x, w, ts::cos(w), 2); },
                                  ts::in_axes<0, 0>, {random_array({3, 2, 5, 4}, 25), random_array({3, 4}, 26)});
}

TEST(Vmap, Indices) {
  expect_same<Float<2>, Indices>(
      "rows of a shared table",
      [](const auto& table, const auto& i) { return std::tuple(ts::embedding(table, i), ts::embedding(table, i + 1)); },
      ts::in_axes<same, 0>, {w2, i2});
  expect_same<Float<3>, Ints>("the same rows of each table",
                              [](const auto& table, const auto& i) { return ts::embedding(table, i); },
                              ts::in_axes<0, same>, {x3, k1});
  expect_same<Float<3>, Indices>("rows of each table",
                                 [](const auto& table, const auto& i) { return ts::embedding(table, i); },
                                 ts::in_axes<0, 0>, {x3, i2});
  expect_same<Float<3>, ts::ShardedTensor<std::int32_t, 3>>(
      "a matrix of rows of each table", [](const auto& table, const auto& i) { return ts::embedding(table, i); },
      ts::in_axes<0, 0>, {x3, i3});
  expect_same<Float<3>, Ints>("at an index",
                              [](const auto& table, const auto& i) {
                                return std::tuple(
                                    ts::dynamic_index<0>(table, i), ts::dynamic_slice<1>(table, i, 2),
                                    ts::embedding(table, i), ts::one_hot<double>(i, 4),
                                    ts::dynamic_update_slice<0>(table, ts::slice<0>(table, 1, 1) * 2.0, i));
                              },
                              ts::in_axes<0, 0>, {x3, i1});
  expect_same<Float<3>, Indices>("gather and scatter along a dim",
                                 [](const auto& x, const auto& i) {
                                   const auto rows = ts::unsqueeze<1>(i);
                                   const auto of_x = ts::gather<0>(x, rows);
                                   return std::tuple(
                                       of_x, ts::scatter_add<0>(x, ts::broadcast_like(rows, x), x * 2.0),
                                       ts::scatter_reduce<0, ts::Reduction::max>(x, ts::broadcast_like(rows, x), x),
                                       ts::take_along_dim<0>(x, rows));
                                 },
                                 ts::in_axes<0, 0>, {x3, i2});
  expect_same<Float<2>, Indices>("gather from a shared matrix",
                                 [](const auto& w, const auto& i) {
                                   return ts::gather<0>(w, ts::broadcast_to(ts::unsqueeze<1>(i), {4, 2}));
                                 },
                                 ts::in_axes<same, 0>, {w2, i2});
  expect_same<Float<3>, Indices, Float<2>>("index_add",
                                           [](const auto& x, const auto& i, const auto& w) {
                                             return std::tuple(
                                                 ts::segment_sum(x, i, 6),
                                                 ts::index_add<0>(ts::transpose<1, 0>(w) * 0.5, ts::minimum(i, 1), x));
                                           },
                                           ts::in_axes<0, 0, same>, {x3, i2, w2});
  expect_same<Float<3>, Ints>("index_add at shared indices",
                              [](const auto& x, const auto& i) { return ts::segment_sum(x, ts::slice<0>(i, 0, 4), 6); },
                              ts::in_axes<0, same>, {x3, k1});
  expect_same<Float<2>, Float<2>>(
      "searchsorted and histogram",
      [](const auto& x, const auto& y) {
        return std::tuple(ts::searchsorted(ts::sort<0>(x), y), ts::histogram(x, 5, -0.5, 0.5),
                          ts::histogram(y, 2, 0, 1));
      },
      ts::in_axes<0, 0>, {x2, x2}, 0, false);
  expect_same<Indices, Ints>(
      "bincount",
      [](const auto& i, const auto& j) {
        return std::tuple(ts::bincount(i, 3), ts::bincount(j, 4), ts::bincount(i, 2, i * 3));
      },
      ts::in_axes<0, same>, {i2, k1}, 0, false);
  expect_same<Float<2>, Indices>(
      "bincount with weights",
      [](const auto& w, const auto& i) { return ts::bincount(i, 3, ts::broadcast_like(ts::sum<0>(w), i)); },
      ts::in_axes<0, 0>, {x2, i2});
}

TEST(Vmap, Attention) {
  expect_same<Float<4>>("of one sequence",
                        [](const auto& q) {
                          const auto one = ts::unsqueeze<0>(q);
                          return std::tuple(ts::squeeze<0>(ts::attention(one, one * 0.5, one * 2.0)),
                                            ts::squeeze<0>(ts::causal_attention(one, one, one)));
                        },
                        ts::in_axes<0>, {q4});
  const Array batches = random_array({3, 2, 4, 2, 4}, 25), keys = random_array({2, 5, 2, 4}, 26);
  expect_same<Float<5>, Float<4>>("of batches, with shared keys",
                                  [](const auto& q, const auto& k) { return ts::attention(q, k, k * 2.0); },
                                  ts::in_axes<0, same>, {batches, keys});
  const auto biased = [](const auto& q, const auto& k, const auto& bias) {
    const auto shared = ts::unsqueeze<0>(ts::select<0>(bias, 0));
    return std::tuple(ts::attention(q, k, k * 2.0, bias), ts::attention(q, k, k, shared),
                      ts::causal_attention(q, k, k, ts::greater(shared, 0.0)));
  };
  const Array biases = random_array({3, 2, 2, 4, 5}, 27), one = random_array({2, 2, 4, 5}, 28);
  expect_same<Float<5>, Float<4>, Float<5>>("with a bias of each example", biased, ts::in_axes<0, same, 0>,
                                            {batches, keys, biases});
  expect_same<Float<5>, Float<4>, Float<4>>("with a bias of all examples", biased, ts::in_axes<0, same, same>,
                                            {batches, keys, one});
}

struct Pair {
  Float<1> first, second;
};
struct Layer {
  Float<1> gain;
  constexpr auto operator()(const auto& x) const { return ts::tanh(x * gain); }
};

TEST(Vmap, Structures) {
  constexpr auto f = [](const auto& xs, const auto& layers) {
    const auto mixed = ts::vmap(
        [](const auto& pair, const auto& x) {
          const auto& [a, b] = pair;
          return std::tuple(ts::sum(a * x), std::pair(b * 2.0, 1.5), std::array{b, b + 1.0});
        },
        ts::in_axes<0, same>)(std::pair(xs, xs * 2.0), ts::sum<0>(xs));
    const auto& [sums, pair, array] = mixed;
    // A layer of a Stack for each example, and a struct as a result.
    const auto of_layers = ts::vmap([](const auto& layer, const auto& x) { return layer(x); })(layers, xs);
    const auto structs = ts::vmap([](const auto& x) { return Pair{x * 2.0, ts::exp(x)}; })(xs);
    const auto again = ts::vmap([](const auto& own) { return own.first + own.second; })(structs);
    const auto gains = ts::map([](const auto& layer) { return layer.gain * 1.0; }, layers);
    return std::tuple(sums, ts::sum<1>(xs * ts::sum<0>(xs)), pair.first, xs * 4.0, array[1], xs * 2.0 + 1.0,
                      pair.second, ts::full_like(ts::sum<1>(xs), 1.5), of_layers, ts::tanh(xs * gains), again,
                      xs * 2.0 + ts::exp(xs), ts::vmap([](const auto& own) { return own.second; })(structs),
                      ts::exp(xs), ts::all_layers(structs, &Pair::first), xs * 2.0,
                      ts::all_layers(layers, [](const auto& layer) -> const auto& { return layer.gain; }), gains,
                      ts::sum<0>(structs).first, ts::sum<0>(xs * 2.0), ts::mean<0>(layers).gain, ts::mean<0>(gains));
  };
  const Program program = compiled<decltype(f), Float<2>, ts::Stack<Layer>>();
  const auto out = run(program.view(), {x2, random_array({3, 4}, 41)});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-6, std::to_string(k));
}

// Structs that are templates of a rank or of types arrive as structs, in vmap and in loops.
template <int Rank> struct Sample {
  Float<Rank> x;
  std::array<ts::ShardedTensor<std::int32_t, Rank>, 2> i;
  ts::Scalar scale;
};
template <class X, class Inner> struct Nested {
  X weight;
  Inner sample;
  std::tuple<X> more;
};
template <class T, int Rank> struct Typed {
  ts::ShardedTensor<T, Rank> x;
  constexpr auto twice() const { return x * 2.0; }
};
struct Fixed {
  Float<2> a;
  Typed<double, 2> b;
};
TEST(Vmap, StructsArriveAsStructs) {
  using Given = Nested<ts::ShardedTensor<double, 2>, Sample<2>>;
  static_assert(std::is_same_v<ts::detail::example_t<Given>, Nested<ts::ShardedTensor<double, 1>, Sample<1>>>);
  static_assert(std::is_same_v<ts::detail::example_t<Typed<float, 3>>, Typed<float, 2>>);
  static_assert(std::is_void_v<ts::detail::example_t<Fixed>>);
  static_assert(std::is_void_v<ts::detail::example_t<Typed<float, 0>>>);
  constexpr auto f = [](const auto& given, const auto& typed, const auto& fixed) {
    const auto value = [](const auto& one) {
      return ts::sum(one.weight * one.sample.x * one.sample.scale +
                     ts::cast<double>(one.sample.i[0] - one.sample.i[1]) * std::get<0>(one.more));
    };
    const auto by_hand = ts::sum<1>(given.weight * given.sample.x * given.sample.scale +
                                    ts::cast<double>(given.sample.i[0] - given.sample.i[1]) * std::get<0>(given.more));
    const auto structs = ts::vmap([](const auto& one) { return Typed<double, 1>{one.twice()}; })(typed);
    return std::tuple(ts::vmap(value)(given), by_hand, ts::map(value, given), by_hand,
                      ts::vmap([](const auto& one) { return one.twice(); })(typed), typed.x * 2.0,
                      ts::all_layers(structs, &Typed<double, 1>::x), typed.x * 2.0,
                      ts::vmap([](const auto& one) { return std::get<0>(one) * std::get<1>(one).twice(); })(fixed),
                      fixed.a * fixed.b.x * 2.0);
  };
  const Program program = compiled<decltype(f), Given, Typed<double, 2>, Fixed>();
  const Array y2 = random_array({3, 4}, 81);
  const auto out = run(program.view(), {x2, y2, i2, i2, Array({}, 1.5), y2, x2, y2, x2});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-6, std::to_string(k));
}

TEST(Vmap, Axes) {
  constexpr auto f = [](const auto& xs, const auto& ys) {
    const auto moved =
        ts::vmap<1>([](const auto& a, const auto& b) { return ts::sum<0>(a * b); }, ts::in_axes<0, 2>)(xs, ys);
    const auto nested =
        ts::vmap([](const auto& a) { return ts::vmap([](const auto& row) { return row / ts::sum(row); })(a); })(xs);
    const auto pairs =
        ts::vmap([&](const auto& a) { return ts::vmap([&](const auto& b) { return ts::sum(a * b); })(xs); })(xs);
    return std::tuple(moved, ts::einsum<"bij,ijb->jb">(xs, ys), nested, xs / ts::sum<2>(xs, ts::keepdims), pairs,
                      ts::einsum<"aij,bij->ab">(xs, xs));
  };
  const auto out = results_of<Float<3>, Float<3>>(f, {x3, random_array({4, 5, 3}, 3)});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
}

// The gradient of each example with respect to what all share.
TEST(Vmap, GradientsOfEachExample) {
  expect_same<Float<3>, Float<2>>(
      "of a product",
      [](const auto& x, const auto& w) {
        return ts::grad([&](const auto& own) { return ts::sum(ts::tanh(ts::matmul(x, own))); })(w);
      },
      ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<3>, Float<2>, Ints>("of a cross entropy",
                                        [](const auto& x, const auto& w, const auto& target) {
                                          const auto loss = [&](const auto& own) {
                                            return ts::cross_entropy(
                                                ts::matmul(ts::gelu(x), own),
                                                ts::broadcast_like(ts::minimum(target, 1), ts::sum<1>(x)));
                                          };
                                          return ts::value_and_grad(loss)(w);
                                        },
                                        ts::in_axes<0, same, 0>, {x3, w2, i1});
  expect_same<Float<2>, Indices>(
      "of an embedding",
      [](const auto& table, const auto& i) {
        return ts::grad([&](const auto& own) { return ts::sum(ts::sin(ts::embedding(own, i))); })(table);
      },
      ts::in_axes<same, 0>, {w2, i2});
  expect_same<Float<2>>(
      "second order",
      [](const auto& x) { return ts::hvp([](const auto& v) { return ts::prod(v) + ts::sum(v * v * v); }, x, x * 2.0); },
      ts::in_axes<0>, {x2});
}

TEST(Vmap, OneExampleOfStaticExtent) {
  constexpr auto f = [](const auto& x, const auto& y) {
    const auto one = ts::vmap([](const auto& a) { return std::tuple(ts::sin(a), ts::sum(a)); })(ts::unsqueeze<0>(x));
    const auto both = ts::vmap([](const auto& a, const auto& b) { return a * b; })(ts::unsqueeze<0>(ts::sum<0>(y)), y);
    return std::tuple(std::get<0>(one), ts::unsqueeze<0>(ts::sin(x)), std::get<1>(one), ts::unsqueeze<0>(ts::sum(x)),
                      both, ts::sum<0>(y) * y);
  };
  const auto out = results_of<Float<1>, Float<2>>(f, {v1, x2});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
}

TEST(Vmap, NoExamples) {
  constexpr auto f = [](const auto& x, const auto& w) {
    return ts::vmap(
        [&](const auto& a) { return std::tuple(ts::matmul(a, w), ts::sum(a), ts::sum(w), ts::sort<0>(a)); })(x);
  };
  const auto out = results_of<Float<3>, Float<2>>(f, {Array({0, 4, 5}, 0), w2});
  constexpr auto branch = [](const auto& x) {
    return ts::vmap([&](const auto& a) {
      return ts::cond(
          ts::sum(a) > 0.0, [&] { return a * 2.0; }, [&] { return a; });
    })(x);
  };
  EXPECT_EQ(results_of<Float<3>>(branch, {Array({0, 4, 5}, 0)})[0].shape, (ts::Shape{0, 4, 5}));
  EXPECT_EQ(out[0].shape, (ts::Shape{0, 4, 2}));
  EXPECT_EQ(out[2].shape, (ts::Shape{0}));
}

TEST(Vmap, Errors) {
  constexpr auto deep = [](const auto& x) {
    return ts::vmap([](const auto& a) {
      return ts::sum(ts::unsqueeze<0>(
          ts::unsqueeze<0>(ts::unsqueeze<0>(ts::unsqueeze<0>(ts::unsqueeze<0>(ts::unsqueeze<0>(a) + 1.0))))));
    })(x);
  };
  EXPECT_THROW((trace<decltype(deep), Float<3>>()), ts::error);

  // Also where no operation has both arguments, and in a vmap that maps one of them.
  const auto infer = []<class F>(const F&, const std::vector<ts::Shape>& shapes) {
    return [shapes] { ts::infer_shapes(trace<F, Float<3>, Float<2>>().view(), shapes.data(), nullptr); };
  };
  constexpr auto apart = [](const auto& x, const auto& y) {
    return ts::vmap([](const auto& a, const auto& b) { return std::tuple(ts::sum(a), ts::sum(b)); })(x, y);
  };
  EXPECT_NO_THROW(infer(apart, {{4, 3, 2}, {4, 6}})());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(apart, {{4, 3, 2}, {5, 3}}),
                             "[vmap] arguments with 4 and 5 examples: f32[4,3,2] x f32[5,3] at ", "vmap_test.cpp:");
  constexpr auto nested = [](const auto& x, const auto& y) {
    return ts::vmap([&](const auto& a) {
      return ts::vmap([](const auto& b, const auto& c) { return std::tuple(ts::sum(b), ts::sum(c)); })(a, y);
    })(x);
  };
  EXPECT_NO_THROW(infer(nested, {{7, 4, 2}, {4, 6}})());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(nested, {{7, 4, 2}, {5, 6}}),
                             "[vmap] arguments with 4 and 5 examples: f32[7,4,2] x f32[5,6] at ", "vmap_test.cpp:");
  constexpr auto unused = [](const auto& x, const auto& y) {
    return ts::vmap([](const auto& a, const auto&) { return a + 1.0; }, ts::in_axes<0, 1>)(x, y);
  };
  EXPECT_NO_THROW(infer(unused, {{4, 3, 2}, {6, 4}})());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(unused, {{4, 3, 2}, {4, 6}}),
                             "[vmap] arguments with 4 and 6 examples: ", "vmap_test.cpp:");
}

}  // namespace
