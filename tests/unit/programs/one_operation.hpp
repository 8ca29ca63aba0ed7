#ifndef TESSERA_TESTS_UNIT_PROGRAMS_ONE_OPERATION_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_ONE_OPERATION_HPP

#include <cstdint>
#include <type_traits>

#include "check.hpp"
#include "expression_of.hpp"
#include "operation_coverage.hpp"

/// Programs of one operation each, so that no other operation of the program can hide a mistake.
namespace programs::operations {

namespace ts = tessera;

/// One operation per program, so that the program contains no other code: traced and as an expression.
template <class T> class OneAtATime {
 public:
  explicit OneAtATime(int cases) : cases_(cases) {}
  template <class F> void both(F f, std::uint32_t seed) {
    traced(f, seed);
    SCOPED_TRACE(tessera::concat_text("expression ", seed, " of ", tessera::name_of(tessera::dtype_v<T>)));
    check_expression(expression_of<Matrix, Matrix, Matrix, Index>(f), check(), seed);
  }
  template <class F> void traced(F, std::uint32_t seed) {
    SCOPED_TRACE(tessera::concat_text("program ", seed, " of ", tessera::name_of(tessera::dtype_v<T>)));
    using Traced = tessera::Traced<F, Matrix, Matrix, Matrix, Index>;
    check_program(tessera::detail::ProgramCode<Traced>::compiled(), check(), seed);
  }

 private:
  using Matrix = Tensor<2, T>;
  using Index = Tensor<1, std::int32_t>;
  int cases_;

  Check check() const {
    const double low = is_bool<T> || std::is_unsigned_v<T> ? 0 : -1.25;
    return {
        .arguments = {values<T>("mn", low, 1.99), values<T>("mn", low, 1.99), values<T>("nk", low, 1.99),
                      indices("j", 'm')},
        .cases = cases_,
        .tolerance = std::is_same_v<T, tessera::bf16>  ? 2e-2
                     : std::is_same_v<T, tessera::f16> ? 2e-3
                                                       : 2e-5,
        .extents = {{'m', {2, 3, 4, 5, 8, 12}}, {'n', {1, 2, 3, 4, 6, 8, 9}}, {'k', {1, 2, 4, 7}}, {'j', {1, 4, 6}}}};
  }
};

/// One at a time: operations that every element type has, bool too.
template <class T> void check_moves(OneAtATime<T> one) {
  one.both([](auto x, auto, auto, auto i) { return ts::embedding(x, i); }, 1);
  one.both([](auto x, auto, auto, auto) { return ts::squeeze<1>(ts::slice<1>(x, 0, 1)); }, 2);
  one.both([](auto x, auto y, auto, auto) { return ts::concat<0>(ts::slice<0>(x, 1, 1), y); }, 3);
}

/// One at a time: operations on types that can be added and compared.
template <class T> void check_arithmetic(OneAtATime<T> one) {
  one.both([](auto x, auto y, auto, auto) { return x * y + ts::maximum(x, y); }, 4);
  one.both([](auto x, auto, auto, auto) { return ts::max<0>(x); }, 5);
  one.both([](auto x, auto, auto, auto) { return ts::sum<0>(x); }, 6);
  one.both([](auto x, auto, auto w, auto) { return ts::matmul(x, w); }, 7);
  one.both([](auto x, auto, auto, auto) { return ts::cumsum<0>(x); }, 8);
  one.both([](auto x, auto y, auto, auto) { return x + ts::slice<0>(y, 0, 1); }, 9);
}

/// One at a time, what is differentiable: gradients scatter, sum and spread.
template <class T> void check_floating(OneAtATime<T> one) {
  one.both([](auto x, auto, auto, auto) { return ts::softmax<0>(x); }, 10);
  one.traced(
      [](auto x, auto, auto, auto i) {
        return ts::grad([](const auto& table, const auto& at) {
          return ts::sum(ts::cast<double>(ts::embedding(table, at)));
        })(x, i);
      },
      11);
  one.traced(
      [](auto x, auto, auto w, auto) {
        return ts::grad(
            [](const auto& in, const auto& weight) { return ts::max(ts::cast<double>(ts::matmul(in, weight))); })(x, w);
      },
      12);
}

/// Lookups and sums, whose partial values are the only ones of their programs.
template <class T> void check_partial(OneAtATime<T> one) {
  one.traced([](auto x, auto, auto, auto i) { return ts::embedding(x, i); }, 13);
  one.traced([](auto x, auto, auto, auto) { return ts::sum<0>(x); }, 15);
}

}  // namespace programs::operations

#endif
