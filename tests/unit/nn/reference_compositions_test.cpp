// Products with vectors, sets, and other functions composed of operations, against PyTorch 1.13.1
// (tests/reference/generate.py).
#include <cstdint>
#include <tuple>

#include "../../support/reference.hpp"
#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>

namespace ts = tessera;

namespace {

using reference::types;
template <class T, int Rank> using Of = ts::ShardedTensor<T, Rank>;
template <int Rank> using Int = ts::ShardedTensor<std::int32_t, Rank>;

#define ONE(rank, name, ...) cases.check(types<Of<T, rank>>, name, [](const auto& x) { return __VA_ARGS__; })
#define TWO(first, second, name, ...) \
  cases.check(types<first, second>, name, [](const auto& x, const auto& y) { return __VA_ARGS__; })
#define THREE(first, second, third, name, ...)   \
  cases.check(types<first, second, third>, name, \
              [](const auto& x, const auto& y, const auto& z) { return __VA_ARGS__; })

constexpr reference::Bound bound{.f64 = 16, .f32 = 16};

template <class T> void products() {
  using Vector = Of<T, 1>;
  using Matrix = Of<T, 2>;
  using Cube = Of<T, 3>;
  reference::Cases<T> cases("products", bound);
  TWO(Matrix, Vector, "mv", ts::mv(x, y));
  THREE(Vector, Matrix, Vector, "addmv", ts::addmv(x, y, z, 0.5, -2));
  THREE(Matrix, Vector, Vector, "addr", ts::addr(x, y, z, -1, 0.25));
  THREE(Matrix, Cube, Cube, "addbmm", ts::addbmm(x, y, z, 0.5, 2));
  TWO(Cube, Matrix, "inner", ts::inner(x, y));
  TWO(Matrix, Vector, "inner_vector", ts::inner(x, y));
  TWO(Matrix, Matrix, "vecdot", ts::vecdot<0>(x, y));
  THREE(Matrix, Matrix, Matrix, "multi_dot", ts::multi_dot(x, y, z));
  THREE(Vector, Matrix, Vector, "multi_dot_vectors", ts::multi_dot(x, y, z));
  cases.check(types<Cube, Cube, Cube, Vector>, "bilinear",
              [](const auto& x, const auto& y, const auto& weight, const auto& bias) {
                return ts::bilinear(x, y, weight, bias);
              });
  TWO(Vector, Vector, "cartesian_prod", ts::cartesian_prod(x, y));
  THREE(Vector, Vector, Vector, "cartesian_prod_three", ts::cartesian_prod(x, y, z));
  ONE(1, "combinations", ts::combinations(x));
  ONE(1, "combinations_three", ts::combinations<3>(x));
  ONE(1, "combinations_repeated", ts::combinations<2, true>(x));
  ONE(1, "combinations_none", ts::combinations<3>(x));
  ONE(2, "renorm", ts::renorm<0>(x, 2, 2.5));
  ONE(2, "renorm_columns", ts::renorm<1>(x, 1, 4.0));
  ONE(3, "renorm_planes", ts::renorm<1>(x, 3, 2.0));
#define MODE(name, dim)                              \
  ONE(2, name, [&] {                                 \
    const auto [values, indices] = ts::mode<dim>(x); \
    return std::tuple(values, indices);              \
  }())
  MODE("mode", 1);
  MODE("mode_0", 0);
#undef MODE
  TWO(Int<2>, Int<1>, "isin", ts::isin(x, y));
  TWO(Vector, Matrix, "isin_rows", ts::isin(x, y));
  ONE(2, "tensor_split", ts::tensor_split<3, 0>(x));
  ONE(2, "tensor_split_few", ts::tensor_split<4, 1>(x));
  TWO(Vector, Int<1>, "ldexp", ts::ldexp(x, y));
  ONE(1, "frexp", ts::frexp(x).mantissa);
  ONE(1, "frexp_exponents", ts::frexp(x).exponent);
  TWO(Int<1>, Int<1>, "gcd", ts::gcd(x, y));
  TWO(Int<1>, Int<1>, "lcm", ts::lcm(x, y));
  cases.set_bound({.f64 = 4096, .f32 = 16});  // PyTorch's own are off by 1e-13
  // PyTorch has no gradient of the first operand.
  TWO(Vector, Vector, "igamma", ts::igamma(ts::stop_gradient(x), y));
  TWO(Vector, Vector, "igammac", ts::igammac(ts::stop_gradient(x), y));
  TWO(Vector, Vector, "zeta", ts::zeta(x, y));
}

template <class T> void windows() {
  reference::Cases<T> cases("windows", {.f64 = 64, .f32 = 64});
  ONE(4, "local_response_norm", ts::local_response_norm(x, {.size = 5}));
  ONE(4, "local_response_norm_even", ts::local_response_norm(x, {.size = 4, .alpha = 0.5, .beta = 0.5, .k = 2}));
  ONE(4, "lp_pool2d", ts::lp_pool2d(x, 2, {.window = {2, 3}}));
  ONE(4, "lp_pool2d_strides", ts::lp_pool2d(x, 4, {.window = {3, 3}, .strides = {2, 2}}));
  ONE(3, "lp_pool1d", ts::lp_pool1d(x, 3.0, {.window = {3}, .strides = {1}}));
  ONE(3, "affine_grid_0", ts::affine_grid(x, {4, 5}));
  ONE(3, "affine_grid_1", ts::affine_grid<true>(x, {4, 5}));
  ONE(3, "affine_grid_one", ts::affine_grid<true>(x, {1, 3}));
  ONE(3, "tensor_unfold", ts::unfold<1>(x, 3, 2));
  ONE(2, "tensor_unfold_apart", ts::unfold<0>(x, 2, 3));
}

#undef ONE
#undef TWO
#undef THREE

TEST(ReferenceOfPyTorch, ProductsAndSets) { products<double>(); }
TEST(ReferenceOfPyTorch, WindowsOfDims) { windows<double>(); }
TEST(ReferenceOfPyTorch, ProductsAndSetsInF32) { products<float>(); }
TEST(ReferenceOfPyTorch, WindowsOfDimsInF32) { windows<float>(); }

}  // namespace
