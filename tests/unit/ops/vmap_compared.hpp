#ifndef TESSERA_TESTS_UNIT_OPS_VMAP_COMPARED_HPP
#define TESSERA_TESTS_UNIT_OPS_VMAP_COMPARED_HPP

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/gradients.hpp"

// ts::vmap against ts::map, which runs the same function for one example after the other, with gradients.
namespace vmap_compared {

namespace ts = tessera;
using namespace oracle;

inline constexpr int same = ts::not_mapped;
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

inline void expect_equal_halves(const std::vector<Array>& out, const std::string& what) {
  ASSERT_EQ(out.size() % 2, 0u);
  for (std::size_t k = 0; k < out.size() / 2; ++k)
    expect_near(out[k], out[out.size() / 2 + k], 1e-11, what + " " + std::to_string(k));
}

inline int repeats_of(const Program& program) {
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

inline Array whole_numbers(const Shape& shape, int below, unsigned seed) {
  Array made = random_array(shape, seed, 0, below);
  for (double& v : made.data) v = std::floor(v);
  return made;
}

inline const Array x2 = random_array({3, 4}, 1), x3 = random_array({3, 4, 5}, 2), y3 = random_array({3, 4, 5}, 3),
                   z3 = random_array({3, 5, 2}, 4), w2 = random_array({5, 2}, 5), v1 = random_array({5}, 6),
                   t1 = random_array({3}, 7), q4 = random_array({3, 6, 2, 4}, 8), i2 = whole_numbers({3, 4}, 4, 9),
                   i1 = whole_numbers({3}, 4, 10), i3 = whole_numbers({3, 2, 2}, 4, 11), k1 = whole_numbers({6}, 4, 12);

}  // namespace vmap_compared

#endif
