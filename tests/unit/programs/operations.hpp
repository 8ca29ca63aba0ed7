#ifndef TESSERA_TESTS_UNIT_PROGRAMS_OPERATIONS_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_OPERATIONS_HPP

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "check.hpp"
#include "expression_of.hpp"
#include "operation_coverage.hpp"

#include <tessera/base/growable.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/tensor/evaluate.hpp>

/// Every operation on every element type that it is defined for: traced, and as an expression of stored tensors, on
/// random layouts, against the dense oracle. The operations of the programs below are read from their graphs, so an
/// operation without a test fails; a new operation has to be added to `is_tested`.
namespace programs::operations {

template <class T> struct Layer {
  Tensor<1, T> gain;
  constexpr auto operator()(const auto& x) const {
    if constexpr (is_bool<T>)
      return tessera::logical_not(tessera::logical_and(x, gain));
    else
      return tessera::minimum(x, gain) + gain;
  }
};

/// The programs of one element type, and the operations that they contained.
template <class T> class Tests {
  using Matrix = Tensor<2, T>;
  using Index = Tensor<1, std::int32_t>;
  using Indices = Tensor<2, std::int32_t>;
  using Layers = tessera::Stack<Layer<T>>;
  using Heads = Tensor<4, T>;

 public:
  /// x and y [m, n]; w [n, k]; i [j] below m; at [m, n] below n; a Dim n and a number; q [b, t, h, e]; layers. Values
  /// are small enough that no sum of them overflows eight bits.
  explicit Tests(int cases) {
    const double low = is_bool<T> || std::is_unsigned_v<T> ? 0 : -1.25;
    check_ = {.arguments = {values<T>("mn", low, 1.99), values<T>("mn", low, 1.99), values<T>("nk", low, 1.99),
                            indices("j", 'm'), indices("mn", 'n'), size('n'), scalar(0.5, 2),
                            values<T>("bthe", low, 1.99), stacked(values<T>("n", low, 1.99))},
              .cases = cases,
              .tolerance = std::is_same_v<T, tessera::bf16>  ? 2e-2
                           : std::is_same_v<T, tessera::f16> ? 2e-3
                                                             : 2e-5,
              .least_axes = 1,
              .extents = {{'m', {2, 3, 4, 5, 8, 12}},
                          {'n', {1, 2, 3, 4, 6, 8, 9}},
                          {'k', {1, 2, 4, 7}},
                          {'j', {1, 4, 6}},
                          {'b', {1, 2, 3}},
                          {'t', {1, 2, 5}},
                          {'h', {1, 2}},
                          {'e', {1, 3}}}};
  }

  template <class F> void trace(F, std::uint32_t seed) {
    SCOPED_TRACE(tessera::concat_text("traced program ", seed, " of ", tessera::name_of(tessera::dtype_v<T>)));
    using Traced =
        tessera::Traced<F, Matrix, Matrix, Matrix, Index, Indices, tessera::Dim, tessera::Scalar, Heads, Layers>;
    const tessera::CompiledProgram& program = tessera::detail::ProgramCode<Traced>::compiled();
    check_program(program, check_, seed);
    note(Front::traced, program, 2);
  }
  template <class F> void evaluate(F f, std::uint32_t seed) {
    SCOPED_TRACE(tessera::concat_text("expression ", seed, " of ", tessera::name_of(tessera::dtype_v<T>)));
    const auto expression =
        expression_of<Matrix, Matrix, Matrix, Index, Indices, tessera::Dim, tessera::Scalar, Heads>(f);
    const tessera::CompiledProgram* program = nullptr;
    check_expression(
        [&](const tessera::Growable<tessera::Leaf>& leaves) {
          Evaluated made = expression(leaves);
          program = made.program;
          return made;
        },
        check_, seed);
    if (program != nullptr) note(Front::expression, *program, 3);
  }

  /// Each operation that is to be tested occurred in a program.
  void expect_complete() const {
    for (const Front front : {Front::traced, Front::expression}) {
      const Seen& seen = seen_[static_cast<std::size_t>(front)];
      const auto expect_tested = [&]<class... Operation>(tessera::ops::OperationList<Operation...>) {
        for (const tessera::Op op : {tessera::ops::op_v<Operation>...})
          EXPECT_TRUE(seen.contains(op) || !is_tested<T>(op, front))
              << tessera::row_of(op).name << " of " << tessera::name_of(tessera::dtype_v<T>)
              << (front == Front::traced ? ", traced" : ", as an expression");
      };
      expect_tested(tessera::ops::Operations{});
      counts.all.push_back({tessera::dtype_v<T>, front, static_cast<int>(seen.size()),
                            programs_[static_cast<std::size_t>(front)], layouts_[static_cast<std::size_t>(front)]});
    }
  }

 private:
  Check check_;
  Seen seen_[2]{};
  int programs_[2]{};
  std::int64_t layouts_[2]{};

  void note(Front front, const tessera::CompiledProgram& program, int layouts) {
    const auto f = static_cast<std::size_t>(front);
    for (int g = 0; g < program.program.graph_count; ++g)
      for (int id = 0; id < program.program.graphs[g].size; ++id) {
        const tessera::Node& node = program.program.graphs[g][id];
        // Numbers are computed on the host: that is no test of an operation on tensors.
        const bool is_number = node.rank == 0 && tessera::row_of(node.op).kind == tessera::OpKind::elementwise;
        if (!is_number) seen_[f].insert(node.op);
      }
    ++programs_[f];
    for_each_case(check_, 0, [&](std::uint32_t) { layouts_[f] += layouts; });
  }
};

namespace ts = tessera;

// What an unsigned number wraps to, a second operation brings back: the oracle has no wrapping numbers.
template <class T> constexpr auto arithmetic(const auto& x, const auto& y) {
  if constexpr (is_bool<T>)
    return std::tuple(x + y, x * y, ts::minimum(x, y), ts::maximum(y, x));
  else if constexpr (ts::is_floating_v<T>)
    return std::tuple(x + y, x * y, ts::minimum(x, y), ts::maximum(y, x), x - (-y), ts::abs(x), ts::relu(x),
                      ts::sign(x), ts::pow(ts::abs(x) + 0.5, y), ts::fmod(x, 0.75));
  else
    return std::tuple(x + y, x * y, ts::minimum(x, y), ts::maximum(y, x), x - (-y), ts::abs(x), ts::relu(x),
                      ts::sign(x), ts::pow(x, ts::abs(y)), ts::truncate_div(x, y), ts::fmod(x, y));
}
constexpr auto bits(const auto& x, const auto& y) {
  return std::tuple(ts::bitwise_and(x, y), ts::bitwise_or(x, y), ts::bitwise_xor(x, y),
                    ts::bitwise_and(ts::bitwise_not(x), y), ts::bitwise_left_shift(x, ts::abs(y)),
                    ts::bitwise_right_shift(x, ts::abs(y)));
}
template <class T> constexpr auto fractions(const auto& x, const auto& y, const auto& s) {
  const auto some = std::tuple(ts::exp(x), x / y, ts::cast<float>(x) * s);
  if constexpr (stands_for_others<T> || ts::is_floating_v<T>)
    return std::tuple(some, std::tuple(ts::log(x), ts::sqrt(x), ts::rsqrt(x), ts::tanh(x), ts::sigmoid(x), ts::gelu(x),
                                       ts::silu(x), ts::erf(x), ts::atan2(y, x)));
  else
    return some;
}
/// Each is a result of its own: arguments keep them finite, and away from where a rounding would jump.
constexpr auto exponentials(const auto& x) {
  const auto within = ts::sigmoid(x);
  return std::tuple(ts::expm1(x), ts::log1p(within), ts::exp2(x), ts::log2(within), ts::log10(within), ts::sinh(x),
                    ts::cosh(x), ts::asinh(x), ts::acosh(ts::exp(within)), ts::softplus(x));
}
constexpr auto specials(const auto& x) {
  const auto within = ts::sigmoid(x);
  return std::tuple(ts::erfc(x), ts::erfinv(within * 0.75), ts::lgamma(within + 0.25), ts::digamma(within + 0.25),
                    ts::polygamma(1, within + 0.25), ts::i0(x), ts::i1(x), ts::i0e(x), ts::i1e(x),
                    ts::logaddexp(x, within), ts::hypot(x, within));
}
constexpr auto angles(const auto& x) {
  const auto within = ts::sigmoid(x);
  return std::tuple(ts::sin(x), ts::cos(x), ts::tan(x * 0.5), ts::asin(within), ts::acos(within), ts::atan(x),
                    ts::atanh(x * 0.25), ts::floor(x), ts::ceil(x), ts::trunc(x), ts::round(x));
}
template <class T> constexpr auto comparisons(const auto& x, const auto& y) {
  if constexpr (!stands_for_others<T>)
    return std::tuple(ts::select(x < y, x, y));
  else
    return std::tuple(ts::equal(x, y), ts::not_equal(x, y), x<y, x <= y, x> y, x >= y, ts::logical_and(x, y),
                      ts::logical_or(x, y), ts::logical_not(x), ts::select(x < y, x, y));
}
constexpr auto moves(const auto& x, const auto& y, const auto& i, const auto& at, const auto& n) {
  return std::tuple(ts::embedding(x, i), ts::slice<1>(x, 0, n), ts::slice<0>(x, ts::extent<0>(x) - 1, 1),
                    ts::concat<0>(ts::slice<0>(x, 1, 1), y), ts::pad<0>(x, 1, 2), ts::flip<1>(x),
                    ts::merge_dims<0, 1>(ts::transpose<1, 0>(x)), ts::broadcast_like(ts::max<0>(x), y),
                    ts::argsort<0>(x), ts::sort<1>(x), ts::gather<1>(x, at), ts::scatter<1>(x, at, y),
                    ts::scatter_reduce<1, ts::Reduction::max>(x, at, y), ts::iota<0, std::int32_t>(x));
}
template <class T> constexpr auto reductions(const auto& x, const auto& y, const auto& w) {
  const auto all =
      std::tuple(ts::sum<0>(x), ts::sum(y), ts::mean<1>(x), ts::max<0>(x), ts::min<0, 1>(y), ts::prod<1>(x),
                 ts::cumsum<0>(x), ts::cumsum<1, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(x),
                 ts::cumprod<1>(x), ts::cummax<0>(x), ts::cummin<1, ts::CumulativeOptions{.reverse = true}>(x));
  if constexpr (is_bool<T>)
    return all;
  else
    return std::tuple(all, ts::matmul(x, w), ts::einsum<"mn,mn->m">(x, y));
}
constexpr auto convolved(const auto& x, const auto& w) {
  return ts::conv1d(ts::unsqueeze<0>(x),
                    ts::pad<0>(ts::unsqueeze<0>(w), 1, 0));  // two taps, of which the first is zero
}
constexpr auto windowed(const auto& x) {
  return ts::unfold(ts::unsqueeze<-1>(ts::unsqueeze<0>(x)), {.window = {2, 1}, .padding = {1, 0}});
}

/// All operations but those of gradients, each a result of one program. Results are nested: joining tuples of so many
/// types takes as long to compile as the operations do.
template <class T> struct Everything {
  constexpr auto operator()(const auto& x, const auto& y, const auto& w, const auto& i, const auto& at, const auto& n,
                            const auto& s, const auto& q, const auto& layers) const {
    const auto [a, b] = ts::shard_as(x, y);
    const auto all =
        std::tuple(arithmetic<T>(x, y), fractions<T>(x, y, s), comparisons<T>(x, y), moves(x, y, i, at, n),
                   reductions<T>(x, y, w), std::tuple(ts::with_sharding(y, {ts::none, "x"}), a, b, layers(x)));
    if constexpr (ts::is_floating_v<T>)
      return std::tuple(all, exponentials(x), angles(x), specials(x),
                        std::tuple(ts::softmax<0>(x), ts::uniform_like(x, 3), convolved(x, w), windowed(x),
                                   ts::causal_attention(q, q, q)));
    else if constexpr (!is_bool<T>)
      return std::tuple(all, bits(x, y));
    else
      return all;
  }
};

/// Gradients, which use scatter, sums and broadcasts.
template <class T> struct Gradients {
  constexpr auto operator()(const auto& x, const auto& y, const auto& w, const auto& i, const auto& at, const auto&,
                            const auto&, const auto& q, const auto& layers) const {
    const auto loss = [](const auto& of, const auto& other, const auto& rows, const auto& columns) {
      const auto& [table, weight, heads, blocks] = of;
      const auto smooth = ts::sum(ts::cast<double>(ts::embedding(table, rows))) +
                          ts::sum(ts::cast<double>(ts::gather<1>(table, columns) * other)) +
                          ts::sum(ts::cast<double>(convolved(table, weight))) +
                          ts::sum(ts::cast<double>(windowed(table))) +
                          ts::sum(ts::cast<double>(ts::attention(heads, heads, heads)));
      // Which of two elements is larger may depend on the rounding to 16 bits.
      if constexpr (ts::is_half_v<T>)
        return smooth;
      else
        return smooth + ts::max(ts::cast<double>(ts::matmul(table, weight))) +
               ts::sum(ts::cast<double>(blocks(table * other)));
    };
    return ts::grad(loss)(std::tuple(x, w, q, layers), y, i, at);
  }
};

/// All operations but those of gradients, in one traced program.
template <class T> void check_traced(int cases = 60) { Tests<T>(cases).trace(Everything<T>{}, 21); }

/// All operations, traced and as expressions, in few programs.
template <class T> void check_everything(int cases = 60) {
  Tests<T> tests(cases);
  tests.trace(Everything<T>{}, 21);
  if constexpr (ts::is_floating_v<T>) tests.trace(Gradients<T>{}, 22);
  // What several tests of one expression add up to is no test of each where one is NaN: all are finite.
  if constexpr (stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto y, auto, auto, auto, auto, auto s, auto) {
          return ts::exp(x) + ts::log(ts::exp(x)) + ts::sqrt(ts::exp(y)) + ts::rsqrt(ts::exp(x)) + ts::tanh(x) +
                 ts::sigmoid(x) * s + ts::gelu(x) + ts::silu(x) + ts::erf(x) + x / ts::exp(y) + ts::atan2(y, x);
        },
        23);
  if constexpr (stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto y, auto, auto, auto, auto, auto, auto) {
          return std::apply([](auto first, auto... rest) { return (first + ... + rest); }, arithmetic<T>(x, y));
        },
        24);
  if constexpr (!ts::is_floating_v<T> && !is_bool<T> && stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto y, auto, auto, auto, auto, auto, auto) {
          return std::apply([](auto first, auto... rest) { return (first + ... + rest); }, bits(x, y));
        },
        32);
  if constexpr (ts::is_floating_v<T> && stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto, auto, auto, auto, auto, auto, auto) {
          return std::apply([](auto first, auto... rest) { return (first + ... + rest); }, exponentials(x));
        },
        30);
  if constexpr (ts::is_floating_v<T> && stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto, auto, auto, auto, auto, auto, auto) {
          return std::apply([](auto first, auto... rest) { return (first + ... + rest); }, angles(x));
        },
        31);
  if constexpr (ts::is_floating_v<T> && stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto, auto, auto, auto, auto, auto, auto) {
          return std::apply([](auto first, auto... rest) { return (first + ... + rest); }, specials(x));
        },
        33);
  if constexpr (stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto y, auto, auto, auto, auto, auto, auto) {
          const auto number = [](auto condition) { return ts::cast<std::int32_t>(condition); };
          return number(ts::equal(x, y)) + number(ts::not_equal(x, y)) * 2 + number(x < y) * 4 + number(x <= y) * 8 +
                 number(x > y) * 16 + number(x >= y) + number(ts::logical_and(x, y)) * 32 +
                 number(ts::logical_or(x, y)) + number(ts::logical_not(x));
        },
        25);
  tests.evaluate(
      [](auto x, auto y, auto, auto i, auto at, auto n, auto, auto) {
        return ts::concat<0>(ts::embedding(x, i), ts::pad<0>(y, 1, 2), ts::gather<1>(x, at), ts::sort<0>(x),
                             ts::flip<0>(y), ts::broadcast_like(ts::max<0>(x), y),
                             ts::split_dim<0>(ts::merge_dims<0, 1>(x), n), ts::cast<T>(ts::iota<0, std::int32_t>(x)),
                             ts::select(x < y, x, y));
      },
      26);
  tests.evaluate(
      [](auto x, auto y, auto, auto, auto, auto, auto, auto) { return ts::slice<0>(ts::concat<0>(y, x), 1, 2); }, 27);
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  tests.evaluate(
      [](auto x, auto y, auto w, auto, auto, auto, auto s, auto) {
        const auto flat = [](auto value) { return ts::cast<R>(ts::merge_dims<0, 1>(value)); };
        if constexpr (is_bool<T>)
          return ts::concat<0>(ts::cast<R>(ts::sum<0>(x)), ts::cast<R>(ts::max<0>(x)), ts::cast<R>(ts::min<1>(y)),
                               ts::cast<R>(ts::prod<1>(y)), ts::cast<R>(ts::mean<0>(y)), flat(ts::cumsum<0>(x)),
                               flat(ts::cumprod<1>(x)), flat(x / ts::exp(y) * s));
        else
          return ts::concat<0>(ts::cast<R>(ts::sum<0>(x)), ts::cast<R>(ts::max<0>(x)), ts::cast<R>(ts::min<1>(y)),
                               ts::cast<R>(ts::prod<1>(y)), ts::cast<R>(ts::mean<0>(y)), flat(ts::cumsum<0>(x)),
                               flat(ts::cumprod<1>(x)), flat(x / ts::exp(y) * s), flat(ts::matmul(x, w)));
      },
      28);
  if constexpr (ts::is_floating_v<T> && stands_for_others<T>)
    tests.evaluate(
        [](auto x, auto, auto w, auto, auto, auto, auto, auto q) {
          return ts::concat<0>(ts::merge_dims<0, 2>(convolved(x, w)), ts::merge_dims<0, 2>(windowed(x)),
                               ts::merge_dims<0, 1>(x * ts::uniform_like(x, 3)),
                               ts::merge_dims<0, 3>(ts::attention(q, q, q)));
        },
        29);
  if (!testing::Test::HasFailure()) tests.expect_complete();
}

}  // namespace programs::operations

#endif
