// Slices, pads and concats along split dims of bf16 and f16, which run as one step with halos, and attention with a
// bias in bf16 and f16: in programs, in the function of a shard_map and under vmap, against the oracle in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "half_programs.hpp"
#include "on_each_device.hpp"

#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using namespace programs;
using programs::half::loss;

namespace {

template <class T> inline constexpr double tolerance_v = 0x1p-7;
template <> inline constexpr double tolerance_v<ts::f16> = 0x1p-9;

/// The neighbours of each row, zeros beyond the ends.
constexpr auto stencil = [](const auto& x) {
  const auto n = ts::extent<0>(x);
  const auto wide = ts::pad<0>(x, 1, 2);
  return ts::slice<0>(wide, 0, n) * 0.5 - ts::slice<0>(wide, 1, n) + ts::slice<0>(wide, 3, n) * 0.25;
};
/// The neighbours of each row of a ring, of at least two rows.
constexpr auto ring = [](const auto& x) {
  const auto n = ts::extent<0>(x);
  const auto before = ts::concat<0>(ts::slice<0>(x, n - 1, 1), ts::slice<0>(x, 0, n - 1));
  const auto after = ts::concat<0>(ts::slice<0>(x, 1, n - 1), ts::slice<0>(x, 0, 1));
  return ts::tanh(before) * x + after * 0.5;
};
/// Along both dims, and results that are not read by elementwise kernels.
constexpr auto both_dims = [](const auto& x) {
  const auto n = ts::extent<1>(x);
  const auto wide = ts::pad<1>(stencil(x), 1, 1);
  const auto smooth = (ts::slice<1>(wide, 0, n) + ts::slice<1>(wide, 2, n)) * 0.5;
  return std::tuple(smooth, ts::concat<0>(ring(x), smooth), ts::pad<0>(ts::slice<1>(x, 1, n - 1), 2, 1));
};

template <class T> struct Stencils {
  constexpr auto operator()(const auto& floats) const {
    const auto& [x, y] = floats;  // [m, n], [m, n]
    const auto [smooth, joined, padded] = both_dims(x);
    const auto product = stencil(y) * ring(x);
    const auto mixed = ts::cast<T>(ts::cast<float>(stencil(y)) + ts::cast<float>(ring(y)));
    return std::tuple(loss(smooth, joined, padded, product, mixed), smooth, joined, padded, product, mixed);
  }
};
template <class T> struct MappedStencils {  // [b, m, n], [m, n]
  constexpr auto operator()(const auto& floats) const {
    const auto& xs = std::get<0>(floats);
    const auto& y = std::get<1>(floats);
    const auto [smooth, joined, padded] = ts::vmap(both_dims)(xs);
    const auto product = ts::vmap([&](const auto& x) { return stencil(y) * ring(x); })(xs);
    return std::tuple(loss(smooth, joined, padded, product), smooth, joined, padded, product);
  }
};
// ---- in the function of a shard_map, against the function in double on the shards of each device

struct LocalStencils {  // [m, n], [n]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto [smooth, joined, padded] = both_dims(x);
    return ts::concat<0>(smooth, stencil(x) * ring(x) + w, joined, ts::pad<1>(padded, 0, 1));
  }
};
struct LocalMappedStencils {  // [b, m, n], [n]
  constexpr auto operator()(const auto& xs, const auto& w) const {
    return ts::vmap([&](const auto& x) { return LocalStencils{}(x, w); })(xs);
  }
};
struct LocalAttention {  // [b, t, h, e], [h, t, t]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto of_batch = ts::unsqueeze<2>(ts::unsqueeze<2>(ts::mean<1, 3>(x)));  // [b, h, 1, 1]
    return ts::attention(x, ts::sin(x), ts::cos(x), w) +
           ts::causal_attention(x, ts::sin(x), x, ts::unsqueeze<0>(w) * of_batch, 0.5);
  }
};
template <class T, class F, std::size_t XRank, std::size_t WRank>
void expect_as_on_each_device(const int (&extents)[XRank], const int (&of_w)[WRank], const std::string& name) {
  constexpr auto program = ts::compile(on_each_device::Mapped<F, "d">{});
  constexpr int x_rank = XRank, w_rank = WRank;
  const auto rounded = [](std::vector<double> values) {
    for (double& v : values) v = static_cast<double>(static_cast<float>(T(static_cast<float>(v))));
    return values;
  };
  const ts::Shape x_shape = on_each_device::shape_of(extents), w_shape = on_each_device::shape_of(of_w);
  const auto x = rounded(on_each_device::some_values(static_cast<std::size_t>(ts::volume(x_shape)), 1));
  const auto w = rounded(on_each_device::some_values(static_cast<std::size_t>(ts::volume(w_shape)), 2));
  for (const auto& mesh : {ts::Mesh({{"d", 1}}), ts::Mesh({{"d", 2}}), ts::Mesh({{"d", 3}}),
                           ts::Mesh({{"d", 2}, {"m", 2}}, {2, 0, 3, 1}), ts::Mesh({{"d", 4}})}) {
    const bool two = mesh.rank() > 1;  // m, which splits dim 1 unevenly, stays automatic
    const auto expected = on_each_device::expected_of<F>(x, extents, w, of_w, two ? 2 : mesh.axis_size(0));
    const ts::PartitionSpec spec{"d", two ? ts::SpecEntry("m") : ts::SpecEntry(ts::none)};
    const ts::ShardedTensor<T, x_rank> a = ts::cast<T>(ts::shard<x_rank>(x, x_shape, mesh, spec));
    const ts::ShardedTensor<T, w_rank> b = ts::cast<T>(ts::shard<w_rank>(w, w_shape, mesh));
    std::optional<ts::OracleScope> same_in_double;  // throws where a value differs; reads the values of all devices
    if (!ts::spans_processes(mesh)) same_in_double.emplace();
    const auto made = program(a, b);
    const auto expect = [&](const auto& found, const std::vector<double>& want, const char* what) {
      const std::vector<double> values = ts::to_host(ts::eval(ts::cast<double>(found)));
      ASSERT_EQ(values.size(), want.size()) << name << what;
      double largest = 0;
      for (const double v : want) largest = std::max(largest, std::abs(v));
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(values[i], want[i], 4 * tolerance_v<T> * largest) << name << what << i << " on " << mesh.text();
    };
    expect(std::get<0>(made), expected.y, ", result ");
    expect(std::get<1>(made), expected.of_x, ", gradient of x ");
    expect(std::get<2>(made), expected.of_w, ", gradient of w ");
  }
}

template <class T> void expect_stencils() {
  const double tolerance = 4 * tolerance_v<T>;
  expect_equal_on_all_meshes<std::tuple<Tensor<2, T>, Tensor<2, T>>>(
      with_gradient(Stencils<T>{}),
      {.arguments = {values<T>("mn"), values<T>("mn")},
       .cases = 40,
       .tolerance = tolerance,
       .extents = {{'m', {2, 3, 5, 7, 16}}, {'n', {2, 3, 9, 33}}}},
      81);
  expect_equal_on_all_meshes<std::tuple<Tensor<3, T>, Tensor<2, T>>>(
      with_gradient(MappedStencils<T>{}),
      {.arguments = {values<T>("bmn"), values<T>("mn")},
       .cases = 40,
       .tolerance = tolerance,
       .extents = {{'b', {1, 2, 3, 5}}, {'m', {2, 3, 5, 7}}, {'n', {2, 3, 9}}}},
      82);
  expect_as_on_each_device<T, LocalStencils>({24, 5}, {5}, "stencils");
  expect_as_on_each_device<T, LocalMappedStencils>({12, 5, 3}, {3}, "stencils under vmap");
}
TEST(HalfStencils, Bf16) { expect_stencils<ts::bf16>(); }
TEST(HalfStencils, F16) { expect_stencils<ts::f16>(); }

// A stencil stays split: it gathers nothing, and devices exchange only rows at the edges of shards.
template <class T> void expect_rows_at_edges() {
  constexpr auto program = ts::compile([](auto x) { return std::tuple(stencil(x), ring(x)); });
  for (const int devices : {2, 3, 4}) {
    const ts::Mesh mesh({{"x", devices}});
    const ts::ShardedTensor<T, 2> x = ts::ones<T>({11, 4}, mesh, {"x"});
    const ts::Plan& plan = program.plan(x);
    EXPECT_EQ(plan.count(ts::Collective::all_gather), 0) << devices;
    EXPECT_GT(plan.count(ts::Collective::permute), 0) << devices;
    EXPECT_EQ(plan.implicit_count(), 0) << devices;
    EXPECT_LE(plan.payload_bytes(ts::Collective::permute), 10 * devices * 4 * 2) << devices;
  }
}
TEST(HalfStencils, ExchangeOnlyRowsAtEdges) {
  expect_rows_at_edges<ts::bf16>();
  expect_rows_at_edges<ts::f16>();
}

// ---- attention with a bias of [b, h, t, s], of [h, t, s], of [t, s] and of [b, h, s]

template <class T> struct BiasedAttention {
  constexpr auto operator()(const auto& floats) const {
    const auto& [q, k, v, bias, of_heads, of_all] = floats;
    const auto y = ts::attention(q, k, v, bias), z = ts::causal_attention(q, k, v, of_heads, 0.5);
    const auto w = ts::biased_attention(q, k, v, ts::sum<2>(bias), 2, 1) + ts::attention(q, k, v, of_all);
    return std::tuple(loss(y, z, w), y, z, w);
  }
};
template <class T> struct MappedAttention {  // an example is [t, h, e]
  constexpr auto operator()(const auto& floats) const {
    const auto& q = std::get<0>(floats);
    const auto& k = std::get<1>(floats);
    const auto& v = std::get<2>(floats);
    const auto& bias = std::get<3>(floats);
    const auto& of_heads = std::get<4>(floats);
    const auto one = [](const auto& a, const auto& b, const auto& c, const auto& d) {
      const auto batch = [](const auto& x) { return ts::unsqueeze<0>(x); };
      return ts::squeeze<0>(ts::attention(batch(a), batch(b), batch(c), batch(d)));
    };
    const auto y = ts::vmap(one)(q, k, v, bias);
    const auto z = ts::vmap(one, ts::in_axes<0, 0, 0, ts::not_mapped>)(q, k, v, of_heads);
    return std::tuple(loss(y, z), y, z);
  }
};
template <class T> void expect_attention_with_bias() {
  using Floats = std::tuple<Tensor<4, T>, Tensor<4, T>, Tensor<4, T>, Tensor<4, T>, Tensor<3, T>>;
  const double tolerance = 4 * tolerance_v<T>;
  const std::vector<Argument> arguments{values<T>("bthe"), values<T>("bshe"), values<T>("bshe"), values<T>("bhts"),
                                        values<T>("hts")};
  std::vector<Argument> more = arguments;
  more.push_back(values<T>("ts"));
  expect_equal_on_all_meshes<
      std::tuple<Tensor<4, T>, Tensor<4, T>, Tensor<4, T>, Tensor<4, T>, Tensor<3, T>, Tensor<2, T>>>(
      with_gradient(BiasedAttention<T>{}), {.arguments = more, .cases = 40, .tolerance = tolerance}, 83);
  expect_equal_on_all_meshes<Floats>(with_gradient(MappedAttention<T>{}),
                                     {.arguments = arguments, .cases = 30, .tolerance = tolerance}, 84);
  expect_as_on_each_device<T, LocalAttention>({12, 5, 2, 4}, {2, 5, 5}, "attention");
}
TEST(HalfAttentionWithBias, Bf16) { expect_attention_with_bias<ts::bf16>(); }
TEST(HalfAttentionWithBias, F16) { expect_attention_with_bias<ts::f16>(); }

}  // namespace
