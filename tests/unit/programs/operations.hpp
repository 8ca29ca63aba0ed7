#ifndef TESSERA_TESTS_UNIT_PROGRAMS_OPERATIONS_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_OPERATIONS_HPP

#include <iostream>

#include "check.hpp"

#include <tessera/tensor/evaluate.hpp>

/// Operations one at a time, so that a program has the code for nothing else: traced, and as an expression of stored
/// tensors, on random layouts of each element type, against the dense oracle. Together with others in one program they
/// are tested in element_types_test.cpp and the tests beside it.
namespace programs::operations {

/// What was run, printed when the tests end.
struct Counts : testing::Environment {
  int traced = 0, expressions = 0;
  std::int64_t cases = 0;
  void TearDown() override {
    std::cout << "operations: " << traced << " traced programs, " << expressions << " expressions, " << cases
              << " cases of random arguments, two meshes each\n";
  }
  static Counts& all() {
    static Counts& counts = *static_cast<Counts*>(testing::AddGlobalTestEnvironment(new Counts));
    return counts;
  }
};
inline Counts& counts = Counts::all();

/// Arguments of every operation: x and y [m, n], w [n, k], i [j] below m.
template <class T> struct Arguments {
  using Matrix = Tensor<2, T>;
  using Index = Tensor<1, std::int32_t>;

  /// Values small enough that no sum of them overflows eight bits.
  static Check check(int cases) {
    const double low = std::is_same_v<T, bool> || std::is_unsigned_v<T> ? 0 : -1.25;
    return {
        .arguments = {values<T>("mn", low, 1.99), values<T>("mn", low, 1.99), values<T>("nk", low, 1.99),
                      indices("j", 'm')},
        .cases = cases,
        .tolerance = std::is_same_v<T, tessera::bf16> ? 2e-2 : 2e-5,
        .extents = {{'m', {2, 3, 4, 5, 8, 12}}, {'n', {1, 2, 3, 4, 6, 8, 9}}, {'k', {1, 2, 4, 7}}, {'j', {1, 4, 6}}}};
  }
};

template <class T, class F> void check_traced(F f, std::uint32_t seed, int cases) {
  using A = Arguments<T>;
  expect_equal_on_all_meshes<typename A::Matrix, typename A::Matrix, typename A::Matrix, typename A::Index>(
      f, A::check(cases), seed);
  ++counts.traced;
  counts.cases += cases;
}

/// Both fronts: what the expression gives in a layout is what the traced function gives there.
template <class T, class F> void check_both(F, std::uint32_t seed, int cases) {
  using A = Arguments<T>;
  using M = typename A::Matrix;
  using Index = typename A::Index;
  Check check = A::check(cases);
  check.expression = [](const std::vector<tessera::Leaf>& leaves) {
    const auto tensor = [&]<class X>(std::size_t k, const X*) {
      return X(tessera::IntrusivePtr<tessera::RefCounted>(leaves[k].layers[0].get()));
    };
    const auto result =
        tessera::eval(F{}(tensor(0, static_cast<M*>(nullptr)), tensor(1, static_cast<M*>(nullptr)),
                          tensor(2, static_cast<M*>(nullptr)), tensor(3, static_cast<Index*>(nullptr))));
    tessera::Leaf leaf;
    leaf.layers.emplace_back(static_cast<tessera::TensorStorage*>(result.storage().get()));
    return leaf;
  };
  using Traced = tessera::Traced<F, M, M, M, Index>;
  check_program(tessera::detail::ProgramCode<Traced>::compiled(), check, seed);
  ++counts.traced;
  ++counts.expressions;
  counts.cases += cases;
}

/// `Both`: as an expression too.
template <class T, bool Both, class F> void check_operation(F f, std::uint32_t seed, int cases = 60) {
  SCOPED_TRACE(tessera::concat_text("operation ", seed, " of ", tessera::name_of(tessera::dtype_v<T>)));
  if constexpr (Both)
    check_both<T>(f, seed, cases);
  else
    check_traced<T>(f, seed, cases);
}

/// One at a time, what every element type has, bool too.
template <class T, bool Both> void check_moves() {
  namespace ts = tessera;
  check_operation<T, Both>([](auto x, auto, auto, auto i) { return ts::gather(x, i); }, 1);
  check_operation<T, Both>([](auto x, auto, auto, auto) { return ts::squeeze<1>(ts::slice<1>(x, 0, 1)); }, 2);
  check_operation<T, Both>([](auto x, auto y, auto, auto) { return ts::concat<0>(ts::slice<0>(x, 1, 1), y); }, 3);
}

/// One at a time, what can be added and compared.
template <class T, bool Both> void check_arithmetic() {
  namespace ts = tessera;
  check_operation<T, Both>([](auto x, auto y, auto, auto) { return x * y + ts::maximum(x, y); }, 4);
  check_operation<T, Both>([](auto x, auto, auto, auto) { return ts::max<0>(x); }, 5);
  check_operation<T, Both>([](auto x, auto, auto, auto) { return ts::sum<0>(x); }, 6);
  check_operation<T, Both>([](auto x, auto, auto w, auto) { return ts::matmul(x, w); }, 7);
  check_operation<T, Both>([](auto x, auto, auto, auto) { return ts::cumsum<0>(x); }, 8);
  check_operation<T, Both>([](auto x, auto y, auto, auto) { return x + ts::slice<0>(y, 0, 1); }, 9);
}

/// One at a time, what is differentiable: gradients scatter, sum and spread.
template <class T, bool Both> void check_floating() {
  namespace ts = tessera;
  check_operation<T, Both>([](auto x, auto, auto, auto) { return ts::softmax<0>(x); }, 10);
  check_operation<T, false>(
      [](auto x, auto, auto, auto i) {
        return ts::grad(
            [](const auto& table, const auto& at) { return ts::sum(ts::cast<double>(ts::gather(table, at))); })(x, i);
      },
      11);
  check_operation<T, false>(
      [](auto x, auto, auto w, auto) {
        return ts::grad(
            [](const auto& in, const auto& weight) { return ts::max(ts::cast<double>(ts::matmul(in, weight))); })(x, w);
      },
      12);
}

/// All of them in one program; and lookups and sums in one of their own, whose partial values are the only ones.
template <class T> void check_together() {
  namespace ts = tessera;
  check_operation<T, false>([](auto x, auto, auto, auto i) { return ts::gather(x, i); }, 13);
  if constexpr (std::is_same_v<T, bool>) {
    check_operation<T, false>(
        [](auto x, auto y, auto, auto i) {
          return std::tuple(ts::gather(x, i), ts::slice<0>(x, 1, 1), ts::concat<0>(ts::slice<0>(x, 1, 1), y),
                            ts::pad<0>(x, 1, 2), ts::merge_dims<0, 1>(ts::transpose<1, 0>(x)),
                            ts::select(ts::equal(x, y), x, y), ts::cast<float>(x));
        },
        14, 100);
  } else {
    check_operation<T, false>([](auto x, auto, auto, auto) { return ts::sum<0>(x); }, 15);
    check_operation<T, false>(
        [](auto x, auto y, auto w, auto i) {
          return std::tuple(ts::gather(x, i), ts::slice<0>(x, 1, 1), ts::concat<0>(ts::slice<0>(x, 1, 1), y),
                            ts::pad<0>(x, 1, 2), ts::merge_dims<0, 1>(ts::transpose<1, 0>(x)),
                            ts::select(ts::equal(x, y), x, y), ts::cast<float>(x), ts::max<0>(x), ts::min<0, 1>(y),
                            x * y + ts::maximum(x, y) - ts::minimum(y, x), ts::sum<0>(x), ts::sum(y), ts::matmul(x, w),
                            ts::cumsum<0>(x), ts::sort<0>(x), x + ts::slice<0>(y, 0, 1));
        },
        16, 100);
  }
}

}  // namespace programs::operations

#endif
