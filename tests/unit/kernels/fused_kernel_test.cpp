#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "fused_case.hpp"
#include "fused_programs.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/fused/fused_kernel.hpp>
#include <tessera/kernels/fused/made_kernel.hpp>

namespace {

using namespace tessera;
using fused_case::Case;
using programs::Builder;

// ---- programs

constexpr Fused bias_gradient() {
  Builder f;
  const int g = f.load(DType::f32), y = f.load(DType::f32);
  const int masked = f.op(Op::select, f.op(Op::greater, y, f.number()), g, f.op(Op::sub, g, g));
  f.store(masked);
  f.accumulate(Reduction::sum, masked, false);
  f.accumulate(Reduction::max, g, false);
  return f.fused;
}

constexpr Fused causal_mask() {
  Builder f;
  const int x = f.load(DType::f32), lowest = f.number(), scale = f.number();
  const int key = f.index(DType::i32, 1, true), query = f.index(DType::i32, 0, false);
  const int scores = f.op(Op::select, f.op(Op::less_equal, key, query), f.op(Op::mul, x, scale), lowest);
  f.store(scores);
  f.store_row(f.reduce(Reduction::max, scores));
  return f.fused;
}

constexpr Fused totals() {
  Builder f;
  const int x = f.load(DType::f32);
  f.accumulate(Reduction::sum, x, true);
  f.accumulate(Reduction::max, x, true);
  f.accumulate(Reduction::min, f.op(Op::mul, x, x), true);
  f.accumulate(Reduction::sum, f.number(), true);
  return f.fused;
}

constexpr Fused doubles() {
  Builder f;
  const int x = f.load(DType::f64), y = f.load(DType::f64, false), one = f.number(DType::f64);
  const int positive = f.op(Op::add, f.op(Op::mul, x, x), one);
  const int a = f.op(Op::tanh, f.op(Op::sub, x, y)), b = f.op(Op::log, positive), c = f.op(Op::sigmoid, x);
  const int d = f.op(Op::pow, positive, y), e = f.op(Op::sqrt, positive);
  const int chosen = f.op(Op::select, f.op(Op::less, x, y), f.op(Op::add, a, b), f.op(Op::mul, c, d));
  f.store(chosen);
  f.store(f.cast(DType::f32, f.op(Op::div, chosen, e)));
  f.store_row(f.reduce(Reduction::sum, f.op(Op::exp, f.op(Op::neg, f.op(Op::abs, x)))));
  f.accumulate(Reduction::sum, b, true);
  return f.fused;
}

constexpr Fused integers() {
  Builder f;
  const int x = f.load(DType::i32), y = f.load(DType::i64), k = f.number(DType::i32);
  const int column = f.index(DType::i64, 1, true);
  const int wide = f.cast(DType::i64, f.op(Op::div, x, k));
  const int z = f.op(Op::sub, f.op(Op::mul, wide, y), column);
  f.store(z);
  f.store(f.op(Op::maximum, f.op(Op::minimum, x, k), f.op(Op::neg, f.op(Op::abs, x))));
  f.store(f.op(Op::greater_equal, y, wide));
  f.store(f.cast(DType::f32, f.op(Op::sign, z)));
  f.store(f.cast(DType::i32, f.op(Op::div, y, wide)));
  f.accumulate(Reduction::sum, z, true);
  f.accumulate(Reduction::max, x, false);
  f.accumulate(Reduction::product, f.op(Op::sign, x), true);
  f.store_row(f.reduce(Reduction::min, y));
  return f.fused;
}

constexpr Fused narrow_integers() {
  Builder f;
  const int a = f.load(DType::i8), b = f.load(DType::u8), c = f.load(DType::i16);
  f.store(f.op(Op::mul, a, a));
  f.store(f.op(Op::sub, b, f.cast(DType::u8, a)));
  f.store(f.op(Op::add, c, f.cast(DType::i16, f.op(Op::mul, b, b))));
  f.store(f.cast(DType::f32, b));
  f.store(f.cast(DType::i8, f.cast(DType::f32, c)));
  f.store(f.op(Op::less, f.cast(DType::i16, b), c));
  f.accumulate(Reduction::max, b, false);
  return f.fused;
}

constexpr Fused masks() {
  Builder f;
  const int p = f.load(DType::bool_), q = f.load(DType::bool_, false), x = f.load(DType::f32);
  const int r = f.op(Op::logical_and, p, f.op(Op::logical_not, q));
  const int s = f.op(Op::logical_or, r, f.op(Op::equal, x, f.number()));
  f.store(s);
  f.store(f.op(Op::select, s, f.op(Op::not_equal, p, q), q));
  f.store(f.op(Op::select, p, x, f.op(Op::neg, x)));
  f.store(f.cast(DType::f64, s));
  f.store(f.cast(DType::bool_, x));
  f.store_row(f.reduce(Reduction::sum, f.cast(DType::i32, s)));
  f.accumulate(Reduction::max, s, true);
  f.accumulate(Reduction::min, p, false);
  return f.fused;
}

/// Cross entropy: the loss of each row, and of all.
constexpr Fused cross_entropy() {
  Builder f;
  const int x = f.load(DType::f32), label = f.load(DType::i64, false), zero = f.number(), scale = f.number();
  const int column = f.index(DType::i64, 2, true);
  const int shifted = f.op(Op::sub, x, f.reduce(Reduction::max, x));
  const int norm = f.op(Op::log, f.reduce(Reduction::sum, f.op(Op::exp, shifted)));
  const int picked = f.reduce(Reduction::sum, f.op(Op::select, f.op(Op::equal, column, label), shifted, zero));
  const int loss = f.op(Op::mul, f.op(Op::sub, norm, picked), scale);
  f.store_row(loss);
  f.accumulate(Reduction::sum, loss, false);
  return f.fused;
}

constexpr Fused floats() {
  Builder f;
  const int x = f.load(DType::f32), y = f.load(DType::f32), third = f.number(), row = f.load(DType::f32, false);
  const int size = f.op(Op::add, f.op(Op::abs, x), third);
  int sum = f.op(Op::add, f.op(Op::sigmoid, x), f.op(Op::silu, y));
  sum = f.op(Op::add, sum, f.op(Op::relu, f.op(Op::sub, x, row)));
  sum = f.op(Op::sub, sum, f.op(Op::log, size));
  sum = f.op(Op::add, sum, f.op(Op::rsqrt, size));
  sum = f.op(Op::add, sum, f.op(Op::sqrt, size));
  sum = f.op(Op::mul, sum, f.op(Op::tanh, y));
  sum = f.op(Op::add, sum, f.op(Op::pow, size, f.op(Op::mul, y, third)));
  sum = f.op(Op::add, sum, f.op(Op::sign, x));
  sum = f.op(Op::div, sum, size);
  sum = f.op(Op::div, sum, f.op(Op::add, f.op(Op::mul, row, row), third));
  sum = f.op(Op::maximum, f.op(Op::minimum, sum, row), y);
  f.store(sum);
  f.store(f.op(Op::broadcast, row, x));
  f.store(f.cast(DType::f64, f.op(Op::exp, y)));
  f.store(f.cast(DType::i64, x));
  return f.fused;
}

/// A row-level value spread over its row, and summed over it.
constexpr Fused spread() {
  Builder f;
  const int x = f.load(DType::f32), y = f.load(DType::f32, false);
  const int mean = f.reduce(Reduction::sum, f.op(Op::mul, x, y));
  f.store(mean);
  f.store(y);
  f.accumulate(Reduction::sum, mean, true);
  f.accumulate(Reduction::sum, y, false);
  return f.fused;
}

/// Nothing but sums over rows, which stay in registers where rows are short and follow each other.
constexpr Fused row_sums() {
  Builder f;
  const int x = f.load(DType::f32), y = f.load(DType::f32);
  f.accumulate(Reduction::sum, f.op(Op::mul, x, y), false);
  f.accumulate(Reduction::max, f.cast(DType::f64, f.op(Op::sub, x, y)), false);
  return f.fused;
}

constexpr std::array<Fused, 12> table{
    programs::chain(), programs::softmax(), programs::layer_norm(), bias_gradient(), causal_mask(),   totals(),
    doubles(),         integers(),          narrow_integers(),      masks(),         cross_entropy(), floats()};
constexpr std::array<Fused, 2> more{spread(), row_sums()};

template <const auto& Table, int I> void check(const std::string& name, int min_outer = 0, int rounds = 150) {
  static const FusedKernel made = kernels::make_kernel(Table[I]);
  fused_case::Random random(17 + I);
  for (int round = 0; round < rounds; ++round) {
    Case c = fused_case::make_case(Table[I], random, min_outer);
    c.compute_expected();
    const std::vector<fused_case::Bytes> before = c.output_data;
    const fused_case::Random same = random;
    const auto results_of = [&](const FusedKernel& kernel, const char* form) {
      for (std::size_t i = 0; i < before.size(); ++i)
        std::copy(before[i].begin(), before[i].end(), c.output_data[i].begin());
      random = same;
      fused_case::run(c, kernel, random);
      fused_case::expect_close(c, name + form);
      return c.output_data;
    };
    const std::vector<fused_case::Bytes> walked = results_of(kernels::walked_kernel<Table, I>, ", walked"),
                                         of_library = results_of(made, ", made by the library"),
                                         unrolled = results_of(kernels::unrolled_kernel<Table, I>, "");
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(walked, of_library) << name;
#ifndef __FMA__  // a compiler may round a product and a sum once where it sees both
    EXPECT_EQ(walked, unrolled) << name;
#endif
  }
}

TEST(FusedKernel, Chain) { check<table, 0>("chain"); }
TEST(FusedKernel, Softmax) { check<table, 1>("softmax"); }
TEST(FusedKernel, LayerNorm) { check<table, 2>("layer norm"); }
TEST(FusedKernel, BiasGradient) { check<table, 3>("bias gradient"); }
TEST(FusedKernel, CausalMask) { check<table, 4>("causal mask", 1); }
TEST(FusedKernel, Totals) { check<table, 5>("totals"); }
TEST(FusedKernel, Doubles) { check<table, 6>("doubles"); }
TEST(FusedKernel, Integers) { check<table, 7>("integers", 1); }
TEST(FusedKernel, NarrowIntegers) { check<table, 8>("narrow integers"); }
TEST(FusedKernel, Masks) { check<table, 9>("masks"); }
TEST(FusedKernel, CrossEntropy) { check<table, 10>("cross entropy", 2); }
TEST(FusedKernel, Floats) { check<table, 11>("floats"); }
TEST(FusedKernel, RowValuesSpreadOverTheRow) { check<more, 0>("spread"); }
TEST(FusedKernel, RowSums) {
  check<more, 1>("row sums of one outer dim", 1, 1000);  // rows of 1, 2 and 4 registers are among the cases
  check<more, 1>("row sums of two outer dims", 2, 1000);
}

}  // namespace
