#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <tessera/base/monoid.hpp>

namespace {

using namespace tessera;

template <class T> constexpr T values[] = {T(0), T(1), T(2), T(3)};

/// x joined with the identity is x, and the order of joining three values does not matter.
template <class M, class T> void check_laws() {
  const auto both = [](T x, T y) { return monoids::combined<M>(x, y); };
  for (const T x : values<T>) {
    EXPECT_EQ(both(x, M::template identity<T>()), x) << M::name;
    EXPECT_EQ(both(M::template identity<T>(), x), x) << M::name;
    if (M::idempotent) EXPECT_EQ(both(x, x), x) << M::name;
    for (const T y : values<T>)
      for (const T z : values<T>) EXPECT_EQ(both(both(x, y), z), both(x, both(y, z))) << M::name;
  }
}

TEST(Monoid, LawsOnEveryElementType) {
  for (int kind = 0; kind < reduction_count; ++kind)
    with_monoid(static_cast<Reduction>(kind), [&]<class M>() {
      EXPECT_EQ(static_cast<int>(M::kind), kind);
      EXPECT_EQ(name_of(M::kind), M::name);
      for (int type = 0; type < dtype_count; ++type)
        dispatch<M::dtypes>(
            static_cast<DType>(type), [&]<class T>() { check_laws<M, T>(); },
            [&] { EXPECT_FALSE(combines(M::kind, static_cast<DType>(type))); });
    });
}

TEST(Monoid, NaNAndWrapping) {
  const double nan = std::nan("");
  for (const Reduction kind : {Reduction::sum, Reduction::max, Reduction::min, Reduction::product}) {
    EXPECT_TRUE(std::isnan(facts_of(kind).combined(nan, 1)));
    EXPECT_TRUE(std::isnan(facts_of(kind).combined(1, nan)));
  }
  using Limits = std::numeric_limits<std::int32_t>;
  EXPECT_EQ(monoids::combined<monoids::Sum>(Limits::max(), 1), Limits::min());
  EXPECT_EQ(monoids::combined<monoids::Product>(Limits::max(), 2), -2);
  EXPECT_EQ(monoids::combined<monoids::Product>(std::int16_t(-32768), std::int16_t(-1)), -32768);
  EXPECT_EQ(monoids::combined<monoids::Sum>(std::uint8_t(200), std::uint8_t(100)), 44);
}

TEST(Monoid, WhatAnErrorOfOperandsMoves) {
  EXPECT_EQ(facts_of(Reduction::sum).moved(10, 0.5, 20, 0.25), 0.75);
  EXPECT_EQ(facts_of(Reduction::max).moved(10, 0.5, 20, 0.25), 0.5);
  EXPECT_EQ(facts_of(Reduction::product).moved(10, 0.5, -20, 0.25), 10 * 0.25 + 20 * 0.5 + 0.125);
}

static_assert(reduced_type(Reduction::product, DType::i8) == DType::i32);
static_assert(reduced_type(Reduction::max, DType::i8) == DType::i8);
static_assert(partial_type(Reduction::sum, DType::bf16) == DType::f32);
static_assert(partial_type(Reduction::sum, DType::f16) == DType::f32);
static_assert(!combines(Reduction::sum, DType::bool_) && combines(Reduction::min, DType::bool_));
static_assert(!combines(Reduction::bit_or, DType::f32) && combines(Reduction::max, DType::f16));
static_assert(!combines(Reduction::max, DType::f8_e4m3) && !combines(Reduction::sum, DType::f8_e5m2));

// g++ 12 leaves elements that no initializer writes out of the names of template arguments.
template <ReducedTypes Types> DTypeSet types_of_sums() { return Types[Reduction::sum]; }
TEST(Monoids, SetsOfTypesAreDifferentTemplateArguments) {
  static constexpr auto only = [](Reduction reduction) {
    ReducedTypes types;
    types.add(reduction, set_of(DType::f32));
    return types;
  };
  EXPECT_EQ(types_of_sums<only(Reduction::sum)>(), set_of(DType::f32));
  EXPECT_EQ(types_of_sums<only(Reduction::max)>(), 0);
  EXPECT_EQ(types_of_sums<only(Reduction::product)>(), 0);
}

}  // namespace
