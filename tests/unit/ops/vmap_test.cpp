#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../support/gradients.hpp"

namespace ts = tessera;
using namespace oracle;

// ts::vmap against ts::map, which runs the same function for one example after the other, with gradients.

namespace {

constexpr int same = ts::not_mapped;
using Ints = ts::ShardedTensor<std::int32_t, 1>;
using Indices = ts::ShardedTensor<std::int32_t, 2>;

/// f of the examples of the arguments that are mapped along dim 0, one after the other.
template <class F, int... In> constexpr auto one_by_one(const F& f, ts::InAxes<In...>, const auto&... xs) {
  const auto all = std::tuple(ts::detail::settle(xs)...);
  const auto mapped = std::tuple_cat(ts::detail::mapped_argument<In>(ts::detail::settle(xs))...);
  return ts::map(
      [&](const auto& slices) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
          return f(ts::detail::example_argument<I, In...>(slices, all)...);
        }(std::make_index_sequence<sizeof...(In)>());
      },
      mapped);
}
template <class T> constexpr auto as_tuple(const T& x) {
  if constexpr (ts::detail::is_tuple_v<T>)
    return x;
  else
    return std::tuple(x);
}
template <class T> constexpr auto scalar_of(const T& x) {
  if constexpr (ts::is_floating_v<typename T::element>)
    return ts::sum(ts::sin(ts::cast<double>(x)));
  else
    return ts::sum(ts::cast<double>(x) * 0.0);
}

/// The results of vmap, then those of the loop.
template <class F, class In> struct Results {
  constexpr auto operator()(const auto&... xs) const {
    return std::tuple(as_tuple(ts::vmap(F{}, In{})(xs...)), as_tuple(one_by_one(F{}, In{}, xs...)));
  }
};
/// The gradients of a function of the results by all arguments, of vmap, then of the loop.
template <class F, class In> struct Slopes {
  constexpr auto operator()(const auto&... xs) const {
    const auto total = [](const auto& made) {
      return std::apply([](const auto&... item) { return (scalar_of(item) + ...); }, as_tuple(made));
    };
    const auto all = std::tuple(ts::detail::settle(xs)...);
    const auto of = [&](const auto& run) {
      return ts::grad([&](const auto& own) { return total(std::apply(run, own)); })(all);
    };
    return std::tuple(of([](const auto&... own) { return ts::vmap(F{}, In{})(own...); }),
                      of([](const auto&... own) { return one_by_one(F{}, In{}, own...); }));
  }
};

void expect_equal_halves(const std::vector<Array>& out, const std::string& what) {
  ASSERT_EQ(out.size() % 2, 0u);
  for (std::size_t k = 0; k < out.size() / 2; ++k)
    expect_near(out[k], out[out.size() / 2 + k], 1e-11, what + " " + std::to_string(k));
}

int repeats_of(const Program& program) {
  int n = 0;
  for (int id = 0; id < program.main().size; ++id) n += program.main()[id].is_repeat() ? 1 : 0;
  return n;
}

/// Compares vmap with the loop, and their gradients. `repeats`: how many repeats vmap makes, of scans or because an
/// operation runs in a loop over examples.
template <class... Args, class F, int... In>
void expect_same(const std::string& what, F, ts::InAxes<In...>, const std::vector<Array>& arguments, int repeats = 0,
                 bool gradients = true) {
  const Program program = trace<Results<F, ts::InAxes<In...>>, Args...>();
  EXPECT_EQ(repeats_of(program) - 1, repeats) << what;
  expect_equal_halves(run(program.view(), arguments), what);
  if (!gradients) return;
  const Program slopes = trace<Slopes<F, ts::InAxes<In...>>, Args...>();
  expect_equal_halves(run(slopes.view(), arguments), "gradient of " + what);
}

Array whole_numbers(const Shape& shape, int below, unsigned seed) {
  Array made = random_array(shape, seed, 0, below);
  for (double& v : made.data) v = std::floor(v);
  return made;
}

const Array x2 = random_array({3, 4}, 1), x3 = random_array({3, 4, 5}, 2), y3 = random_array({3, 4, 5}, 3),
            z3 = random_array({3, 5, 2}, 4), w2 = random_array({5, 2}, 5), v1 = random_array({5}, 6),
            t1 = random_array({3}, 7), q4 = random_array({3, 6, 2, 4}, 8), i2 = whole_numbers({3, 4}, 4, 9),
            i1 = whole_numbers({3}, 4, 10), i3 = whole_numbers({3, 2, 2}, 4, 11), j1 = whole_numbers({6}, 4, 12);

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

TEST(Vmap, Indices) {
  expect_same<Float<2>, Indices>(
      "rows of a shared table",
      [](const auto& table, const auto& i) { return std::tuple(ts::embedding(table, i), ts::embedding(table, i + 1)); },
      ts::in_axes<same, 0>, {w2, i2});
  expect_same<Float<3>, Ints>("the same rows of each table",
                              [](const auto& table, const auto& i) { return ts::embedding(table, i); },
                              ts::in_axes<0, same>, {x3, j1});
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
                              ts::in_axes<0, same>, {x3, j1});
  expect_same<Float<2>, Float<2>>(
      "searchsorted and histogram", [](const auto& x, const auto& y) { return ts::searchsorted(ts::sort<0>(x), y); },
      ts::in_axes<0, 0>, {x2, x2}, 0, false);
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

TEST(Vmap, CustomGradients) {
  expect_same<Float<3>, Float<2>>("custom_vjp",
                                  [](const auto& x, const auto& w) {
                                    const auto scaled =
                                        ts::custom_vjp([](const auto& own) { return std::tuple(ts::sin(own), own); },
                                                       [](const auto& own, const auto& g) { return g * own * 3.0; });
                                    return std::tuple(scaled(ts::matmul(x, w)), scaled(w), ts::stop_gradient(x) * x);
                                  },
                                  ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<3>, Float<2>>(
      "inside a gradient",
      [](const auto& x, const auto& w) {
        const auto scaled = ts::custom_vjp([](const auto& own) { return std::tuple(ts::sin(own), own); },
                                           [](const auto& own, const auto& g) { return g * own * 3.0; });
        return ts::grad([&](const auto& own) { return ts::sum(scaled(ts::matmul(x, own))) + ts::sum(scaled(own)); })(w);
      },
      ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<3>, Float<2>>(
      "checkpoint",
      [](const auto& x, const auto& w) {
        const auto f = ts::checkpoint([&](const auto& own) { return ts::tanh(ts::matmul(ts::sin(own), w)); });
        return f(x);
      },
      ts::in_axes<0, same>, {x3, w2});
}

TEST(Vmap, Loops) {
  expect_same<Float<3>, Float<2>>(
      "scan over a sequence",
      [](const auto& x, const auto& u) {
        return ts::scan(
            [&](const auto& h, const auto& in) {
              const auto next = ts::tanh(in + ts::matmul(h, u));
              return std::tuple(next, next * 2.0);
            },
            ts::zeros_like(ts::sum<0>(x)), x);
      },
      ts::in_axes<0, same>, {x3, random_array({5, 5}, 31)}, 1);
  expect_same<Float<2>, Float<1>>(
      "a loop with a shared count",
      [](const auto& x, const auto& s) {
        return ts::fori_loop(
            0, 3, [&](const auto& i, const auto& h) { return ts::sin(h * s) + ts::cast<float>(i); }, x);
      },
      ts::in_axes<0, 0>, {x2, t1}, 1);
  expect_same<Float<2>, Float<1>>(
      "a carry that is shared at first",
      [](const auto& x, const auto& w) {
        return ts::fori_loop(
            0, 3,
            [&](const auto&, const auto& carry) {
              const auto& [a, b, c] = carry;
              return std::tuple(b, ts::sin(b * ts::sum(x)), c * 0.5);
            },
            std::tuple(w, w, w));
      },
      ts::in_axes<0, same>, {x2, v1}, 1);
  expect_same<Float<2>>(
      "a branch",
      [](const auto& x) {
        return ts::cond(
            ts::sum(x) > 0.0, [](const auto& v) { return v * v; }, [](const auto& v) { return v * 3.0; }, x);
      },
      ts::in_axes<0>, {x2}, 2);
  expect_same<Float<2>>(
      "a while loop",
      [](const auto& x) {
        return ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; }, [](const auto& v) { return v * 1.5; },
                              x, 8);
      },
      ts::in_axes<0>, {x2}, 1);
  expect_same<Float<2>, Float<1>>(
      "branches of what is shared, with several results",
      [](const auto& x, const auto& w) {
        const auto chosen = ts::cond(
            ts::sum(x) > 0.0, [&] { return std::tuple(w * 2.0, ts::cast<std::int32_t>(w * 0.0) + 1); },
            [&] { return std::tuple(ts::sum(x) * w, ts::cast<std::int32_t>(w * 0.0)); });
        return std::tuple(std::get<0>(chosen), std::get<1>(chosen),
                          ts::cond(
                              ts::sum(x) < 0.0, [&] { return w; }, [&] { return w * 3.0; }));
      },
      ts::in_axes<0, same>, {x2, v1}, 4);
  expect_same<Float<2>, Ints>(
      "a switch",
      [](const auto& x, const auto& i) {
        return ts::switch_case(
            i,
            std::tuple([](const auto& v) { return ts::exp(v); }, [](const auto& v) { return v * ts::sum(v); },
                       [](const auto& v) { return ts::sqrt(v * v + 1.0); }),
            x);
      },
      ts::in_axes<0, 0>, {x2, i1}, 3);
  expect_same<Float<2>, Float<1>>(
      "a while loop in a scan, with a branch in it",
      [](const auto& x, const auto& t) {
        const auto step = [&](const auto& h, const auto& in) {
          const auto last = ts::while_loop([](const auto& c) { return std::get<0>(c) < 2.0; },
                                           [&](const auto& c) {
                                             const auto& [sum, power] = c;
                                             const auto next = ts::cond(
                                                 power > t, [&] { return power * 1.5; }, [&] { return power + 0.5; });
                                             return std::tuple(sum + ts::abs(next * in) + 0.3, next);
                                           },
                                           std::tuple(h * 0.1, t * 0.5), 7);
          return std::tuple(ts::tanh(std::get<0>(last)) + h, std::get<1>(last));
        };
        return ts::scan(step, ts::sum(x) * 0.0, x);
      },
      ts::in_axes<0, 0>, {x2, t1}, 1);
  expect_same<Float<2>>(
      "the gradient of a while loop",
      [](const auto& x) {
        return ts::grad([](const auto& own) {
          return ts::sum(ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; },
                                        [](const auto& v) { return v * v * 0.5 + 1.0; }, own, 8));
        })(x);
      },
      ts::in_axes<0>, {x2}, 2);
  expect_same<Float<3>>(
      "a vmap in a vmap, with a branch",
      [](const auto& a) {
        return ts::vmap([&](const auto& x) {
          return ts::cond(
              ts::sum(x) > ts::sum(a) * 0.1, [&] { return x * ts::sum(a); }, [&] { return ts::sin(x); });
        })(a);
      },
      ts::in_axes<0>, {x3}, 2);
  expect_same<Float<3>, Float<2>>(
      "the gradient of a scan",
      [](const auto& x, const auto& u) {
        return ts::grad([&](const auto& own) {
          return ts::sum(ts::sin(std::get<0>(
              ts::scan([&](const auto& h,
                           const auto& in) { return std::tuple(ts::tanh(in + ts::matmul(h, own)), std::tuple()); },
                       ts::zeros_like(ts::sum<0>(x)), x))));
        })(u);
      },
      ts::in_axes<0, same>, {x3, random_array({5, 5}, 31)}, 2);
}

// A branch that an example does not take may have no derivative there: a gradient inside of the vmap is that of the own
// branch.
TEST(Vmap, GradientsOfBranchesThatAreNotTaken) {
  constexpr auto f = [](const auto& xs, const auto& w) {
    const auto root = [&](const auto& x) {
      return ts::cond(
          x > 0.0, [&] { return ts::sum(ts::sqrt(x * w)); }, [&] { return x * 2.0; });
    };
    const auto inside = ts::vmap([&](const auto& x) { return ts::grad(root)(x); })(xs);
    const auto one_by_one = ts::grad([&](const auto& all) { return ts::sum(ts::map(root, all)); })(xs);
    const auto outside = ts::grad([&](const auto& all) { return ts::sum(ts::vmap(root)(all)); })(xs);
    return std::tuple(inside, one_by_one, outside);
  };
  const auto out = results_of<Float<1>, Float<1>>(f, {Array({3}, {-1, 4, -2}), Array({2}, {1, 4})});
  expect_near(out[0], Array({3}, {2, 0.75, 2}), 1e-12);
  expect_near(out[1], Array({3}, {2, 0.75, 2}), 1e-12);
  EXPECT_TRUE(std::isnan(out[2].data[0]));  // as in JAX
  EXPECT_NEAR(out[2].data[1], 0.75, 1e-12);
}

struct Block {
  Float<2> weight;
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(ts::matmul(x, weight)); }
};

TEST(Vmap, OfAStack) {
  expect_same<Float<3>, ts::Stack<Block>>(
      "layers", [](const auto& x, const auto& layers) { return layers(x); }, ts::in_axes<0, same>,
      {x3, random_array({2, 5, 5}, 51)}, 1, false);
  expect_same<Float<3>, ts::Stack<Block>>(
      "its gradient",
      [](const auto& x, const auto& layers) {
        return ts::grad([&](const auto& own) { return ts::sum(ts::sin(layers(own))); })(x);
      },
      ts::in_axes<0, same>, {x3, random_array({2, 5, 5}, 51)}, 2, false);
}

// The gradient of each example by a model with a Stack, clipped, and their mean: it has the structure of the model.
struct Net {
  Float<2> first;
  ts::Stack<Block> layers;
  constexpr auto operator()(const auto& x) const { return layers(ts::matmul(x, first)); }
};
TEST(Vmap, ReducesGradientsOfAModelWithAStack) {
  constexpr auto f = [](const auto& net, const auto& xs) {
    const auto loss = [](const auto& m, const auto& x) { return ts::sum(ts::sin(m(x))); };
    const auto each = ts::vmap([&](const auto& m, const auto& x) { return ts::grad(loss)(m, x); },
                               ts::in_axes<ts::not_mapped, 0>)(net, xs);
    const auto mean =
        ts::grad([&](const auto& m) { return ts::mean(ts::vmap([&](const auto& x) { return loss(m, x); })(xs)); })(net);
    const auto in_loop =
        ts::grad([&](const auto& m) { return ts::mean(ts::map([&](const auto& x) { return loss(m, x); }, xs)); })(net);
    return std::tuple(ts::mean<0>(each), mean, in_loop, ts::all_layers(each, &Net::first));
  };
  const Program program = compiled<decltype(f), Net, Float<3>>();
  const auto out = run(program.view(), {random_array({5, 5}, 61), random_array({2, 5, 5}, 62), x3});
  expect_near(out[0], out[4], 1e-12);
  expect_near(out[1], out[5], 1e-12);
  expect_near(out[2], out[4], 1e-12);
  expect_near(out[3], out[5], 1e-12);
  EXPECT_EQ(out[6].shape, (ts::Shape{3, 5, 5}));
}

// A pullback and a linearized function of outside: forward values are computed once, for all examples.
TEST(Vmap, CallsPullbacksOfOutside) {
  constexpr auto f = [](const auto& x, const auto& w, const auto& cotangents, const auto& tangents) {
    const auto layer = [&](const auto& a) { return ts::tanh(ts::matmul(a, w)); };
    const auto recorded = ts::vjp(layer, x);
    const auto linear = ts::linearize(layer, x);
    const auto& pullback = std::get<1>(recorded);
    const auto& push = std::get<1>(linear);
    return std::tuple(ts::vmap([&](const auto& g) { return pullback(g); })(cotangents),
                      ts::map([&](const auto& g) { return std::get<1>(ts::vjp(layer, x))(g); }, cotangents),
                      ts::vmap([&](const auto& v) { return push(v); })(tangents),
                      ts::map([&](const auto& v) { return std::get<1>(ts::jvp(layer, x, v)); }, tangents),
                      ts::map([&](const auto& g) { return pullback(g); }, cotangents),
                      ts::map([&](const auto& g) { return pullback(g) * 1.0; }, cotangents));
  };
  const Array x = random_array({4, 5}, 52), c = random_array({3, 4, 2}, 53);
  const auto out = results_of<Float<2>, Float<2>, Float<3>, Float<3>>(f, {x, w2, c, x3});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
  expect_near(out[4], out[0], 1e-12);

  constexpr auto jacobian = [](const auto& a, const auto& w) {
    return ts::jacrev([&](const auto& v) { return ts::tanh(ts::matmul(v, w)); })(a);
  };
  const Program once = trace<decltype(jacobian), Float<2>, Float<2>>();
  EXPECT_EQ(once.count(Op::tanh), 1);
  EXPECT_EQ(once.count(Op::einsum), 2);
  EXPECT_EQ(once.count(Op::repeat), 0);
}

// A custom gradient is copied with what was traced on its cotangents; results of several.
TEST(Vmap, CallsPullbacksOfCustomGradients) {
  constexpr auto f = [](const auto& x, const auto& cotangents) {
    const auto both =
        ts::custom_vjp([](const auto& a) { return std::tuple(std::tuple(ts::sin(a), ts::exp(a)), a); },
                       [](const auto& a, const auto& g) { return std::get<0>(g) * a * 3.0 + std::get<1>(g) * 0.5; });
    const auto layer = [&](const auto& a) {
      const auto& [p, q] = both(a * 2.0);
      return p * q;
    };
    const auto recorded = ts::vjp(layer, x);
    const auto& pullback = std::get<1>(recorded);
    return std::tuple(ts::vmap([&](const auto& g) { return pullback(g); })(cotangents),
                      ts::map([&](const auto& g) { return pullback(g); }, cotangents),
                      ts::map([&](const auto& g) { return std::get<1>(ts::vjp(layer, x))(g); }, cotangents));
  };
  const auto out = results_of<Float<1>, Float<2>>(f, {random_array({4}, 54), x2});
  expect_near(out[0], out[2], 1e-12);
  expect_near(out[1], out[2], 1e-12);
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
}

}  // namespace
