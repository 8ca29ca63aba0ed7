#include "check.hpp"

// Slices, pads and concats that no step computes: fused kernels read their elements where these are (see
// ts::Fragment). Rows are long enough for that here, which those of most other programs of these tests are not.

namespace ts = tessera;
using namespace programs;

namespace {

Check large(std::vector<Argument> arguments, int cases = 60) {
  return {.arguments = std::move(arguments),
          .cases = cases,
          .extents = {{'b', {1, 2, 3}}, {'m', {1, 2, 7, 20, 33}}, {'n', {64, 200, 259, 300}}, {'k', {1, 65, 100}}}};
}

}  // namespace

TEST(Assembled, Stencils) {
  constexpr auto f = [](const auto& floats, const auto& shift) {
    const auto& [x, y] = floats;  // [m, n], [n]
    const auto five = ts::roll<0>(x, 1) + ts::roll<0>(x, -1) + ts::roll<1>(x, 1) + ts::roll<1>(x, -1) - x * 4.f;
    const auto corner = ts::roll<0>(ts::roll<1>(x, 3), shift) * x;
    const auto padded = ts::pad<0>(ts::pad<1>(x, 1, 2), 2, 1);  // [m + 3, n + 3]
    const auto m = ts::extent<0>(x), n = ts::extent<1>(x);
    const auto part = [&](int i, int j) { return ts::slice<1>(ts::slice<0>(padded, i, m), j, n); };
    const auto nine = part(0, 0) + part(1, 3) * part(3, 1) - part(2, 2) * y;
    return std::tuple(ts::sum(five * five) + ts::sum(corner * nine), five, corner, nine);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<1>>, ts::Dim>(
      with_gradient(f), large({values("mn"), values("n"), size('k')}), 31);
}

TEST(Assembled, ConcatsOfSeveralOperands) {
  constexpr auto f = [](const auto& floats, const auto& i, const auto& flags) {
    const auto& [x, y, z] = floats;  // [m, n], [m, k], [b, m, n]
    const auto wide = ts::concat<1>(x, y, ts::slice<1>(x, 1, ts::extent<1>(x) - 1));
    const auto more = ts::exp(wide) + wide;
    const auto tall = ts::concat<0>(z, ts::unsqueeze<0>(x)) * ts::unsqueeze<0>(x);
    const auto ints = ts::concat<1>(i, ts::roll<1>(i, 2)) * 3;
    const auto either = ts::select(ts::concat<1>(flags, ts::logical_not(flags)), ints, ints + 1);
    // The same concat as a result and as an operand is stored.
    const auto kept = ts::concat<1>(y, x);
    return std::tuple(ts::sum(more * more) + ts::sum(tall) + ts::sum(kept * kept), more, tall, either, kept,
                      ts::cumsum<1>(ts::roll<1>(x, 1)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<3>>, Tensor<2, std::int8_t>, Tensor<2, bool>>(
      with_gradient(f),
      large({values("mn"), values("mk"), values("bmn"), values<std::int8_t>("mn", -9, 9), values<bool>("mn", 0, 1)}),
      32);
}

TEST(Assembled, InLoops) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x] = floats;
    const auto end = ts::fori_loop(
        0, 3,
        [](const auto&, const auto& u) {
          return u + (ts::roll<0>(u, 1) - 2.f * u + ts::roll<0>(u, -1)) * .1f + ts::roll<1>(u, 5) * .01f;
        },
        x);
    return std::tuple(ts::sum(end * end), end);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>>>(with_gradient(f), large({values("mn")}, 40), 33);
}

TEST(Assembled, RowsOfStaticExtent) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, y] = floats;  // [m, n], [n]
    const auto row = ts::unsqueeze<0>(y);
    const auto tall = ts::concat<0>(row, x) * 2.f;
    const auto both = ts::concat<0>(ts::slice<0>(x, 0, 1), x, row, x);  // stored
    const auto padded = ts::pad<0, ts::PadMode::circular>(ts::pad<1, ts::PadMode::circular>(x, 1, 1), 1, 1);
    const auto m = ts::extent<0>(x), n = ts::extent<1>(x);
    const auto part = [&](int i, int j) { return ts::slice<1>(ts::slice<0>(padded, i, m), j, n); };
    const auto stencil = part(0, 1) + part(2, 1) * part(1, 0) - part(2, 2);
    const auto stacked = ts::stack<0>(y, y * y);
    return std::tuple(ts::sum(tall * tall) + ts::sum(both) + ts::sum(stencil * x), tall, both, stencil, stacked);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<1>>>(with_gradient(f), large({values("mn"), values("n")}),
                                                               34);
}

// Two operands receive overlapping boxes of one shard, neither of which has all elements of both: three rows of some
// columns, and one whole row.
TEST(Assembled, HalosThatOverlap) {
  constexpr auto f = [](const auto& x, const auto& y) {  // [m, n]
    const auto far = ts::slice<1>(ts::roll<0>(x, 3), 20, 20);
    return ts::concat<1>(far, ts::slice<1>(y, 0, ts::extent<1>(x) - 20)) * 2.f + ts::roll<0>(x, 1);
  };
  constexpr auto g = [](const auto& x, const auto& y) {
    const auto far = ts::slice<1>(ts::roll<0>(x, -3), 20, 20);
    return ts::roll<0>(x, -1) - ts::concat<1>(far, ts::slice<1>(y, 0, ts::extent<1>(x) - 20));
  };
  Check check = large({values("mn"), values("mn")}, 20);
  check.extents = {{'m', {48, 65, 130}}, {'n', {64, 130, 300}}};
  check.least_axes = 1;
  expect_equal_on_all_meshes<Tensor<2>, Tensor<2>>(f, check, 35);
  expect_equal_on_all_meshes<Tensor<2>, Tensor<2>>(g, check, 36);
}
