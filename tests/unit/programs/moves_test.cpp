#include "check.hpp"

namespace ts = tessera;
using namespace programs;

TEST(Programs, Products) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, y, w, v, u, s] = floats;  // [b, m, k], [b, k, n], [k, n], [n, k], [m], [k]
    const auto batched = ts::matmul(x, y) + ts::matmul(x, w);
    const auto turned = ts::einsum<"bmk,nk->nbm">(x, v),
               three = ts::matmul(x, w) + (ts::matmul(x, y) + ts::einsum<"bmk,nk->bmn">(x, v));
    const auto outer = ts::einsum<"m,k->km">(u, s);
    const auto diagonal = ts::einsum<"bmk,bkn->b">(x, y);
    const auto all = ts::einsum<"kn,nk->">(w, v);
    const auto alone = ts::einsum<"bmk,n->mn">(x, ts::sum<0>(w));
    const auto chain = ts::matmul(ts::matmul(ts::unsqueeze<0>(u), ts::sum<0>(x)), w);
    const auto vector = ts::einsum<"bmk,k->bm">(x, s), share = ts::einsum<"bmk,bmk->bk">(x, ts::tanh(x));
    const auto square = ts::einsum<"kk->k">(ts::matmul(w, v));
    const auto many = ts::einsum<"...mk,...kn,nl">(x, y, v);
    return std::tuple(energy(batched, turned, three, outer, diagonal, alone, chain, vector, share, square, many) + all,
                      batched, turned, three, outer, diagonal, all, alone, ts::einsum<"k,k->">(s, s), vector, square,
                      many);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>, Tensor<2>, Tensor<2>, Tensor<1>, Tensor<1>>>(
      with_gradient(f),
      {.arguments = {values("bmk"), values("bkn"), values("kn"), values("nk"), values("m"), values("k")},
       .may_be_empty = true},
      11);
}

TEST(Programs, WideProducts) {
  constexpr auto f = [](const auto& floats, const auto& i, const auto& j) {
    const auto& [x, w] = floats;  // f64 [a, b, c, d], [c, d, e]
    const auto y = ts::einsum<"abcd,cde->aeb">(x, w);
    return std::tuple(energy(y, ts::einsum<"abcd,cde->bda">(x, w)), y, ts::einsum<"ab,cb->ac">(i, j),
                      ts::matmul(ts::cast<float>(i), ts::transpose<1, 0>(ts::cast<float>(j))));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<4, double>, Tensor<3, double>>, Tensor<2, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values<double>("abcd"), values<double>("cde"), values<std::int32_t>("fg", -9, 9),
                     values<std::int32_t>("hg", -9, 9)},
       .may_be_empty = true,
       .extents =
           {{'a', {1, 2, 3, 5}}, {'b', {1, 2, 4, 7}}, {'c', {1, 3, 4, 6}}, {'d', {1, 2, 5, 8}}, {'e', {1, 2, 3, 9}}}},
      12);
}

// Sizes of groups may be negative, or claim more rows than there are.
TEST(Programs, RaggedProducts) {
  constexpr auto f = [](const auto& floats, const auto& sizes, const auto& each) {
    const auto& [x, w, xs, ws] = floats;  // [m, k], [g, k, n], [b, m, k], [b, g, k, n]
    const auto y = ts::ragged_dot(x, w, sizes);
    const auto ys = ts::ragged_dot(xs, w, each), shared = ts::ragged_dot(xs, w, sizes),
               own = ts::ragged_dot(xs, ws, each);
    const auto split = ts::ragged_dot(xs, ws, sizes);
    return std::tuple(energy(y, ys, shared, own, split), y, ys, shared, own, split);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<3>, Tensor<3>, Tensor<4>>, Tensor<1, std::int32_t>,
                             Tensor<2, std::int64_t>>(
      with_gradient(f),
      {.arguments = {values("mk"), values("gkn"), values("bmk"), values("bgkn"), values<std::int32_t>("g", -1, 5),
                     values<std::int64_t>("bg", -1, 5)},
       .may_be_empty = true},
      13);
}

// Element types: products of bf16 and f16 are rounded, integers wrap.
TEST(Programs, RaggedProductsOfOtherTypes) {
  constexpr auto f = [](const auto& halves, const auto& x, const auto& w, const auto& i, const auto& v,
                        const auto& sizes) {
    const auto& [a, b] = halves;  // bf16 [b, m, k], [g, k, n]
    const auto y = ts::ragged_dot(a, b, sizes);
    const auto sums = ts::ragged_dot<float>(a, b, sizes);
    return std::tuple(ts::sum(ts::cast<float>(y)) + ts::sum(sums * sums), y, sums, ts::ragged_dot(x, w, sizes),
                      ts::ragged_dot(i, v, sizes));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3, ts::bf16>, Tensor<3, ts::bf16>>, Tensor<2, double>, Tensor<3, double>,
                             Tensor<2, std::int16_t>, Tensor<3, std::int16_t>, Tensor<1, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values<ts::bf16>("bmk"), values<ts::bf16>("gkn"), values<double>("mk"), values<double>("gkn"),
                     values<std::int16_t>("mk", -9, 9), values<std::int16_t>("gkn", -9, 9),
                     values<std::int32_t>("g", 0, 5)},
       .cases = 60,
       .tolerance = 2e-2},
      14);
}

// Enough rows and columns that products are divided among threads, and matrices packed for several sequences.
TEST(Programs, LongRaggedProducts) {
  constexpr auto f = [](const auto& floats, const auto& sizes, const auto& each) {
    const auto& [x, w, xs] = floats;  // [m, k], [g, k, n], [b, r, k]
    const auto y = ts::ragged_dot(x, w, sizes);
    const auto ys = ts::ragged_dot(xs, w, each);
    return std::tuple(energy(y, ys), y, ys);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<3>, Tensor<3>>, Tensor<1, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("mk"), values("gkn"), values("brk"), values<std::int32_t>("g", 0, 400),
                     values<std::int32_t>("bg", 0, 15)},
       .cases = 4,
       .extents = {{'m', {700}}, {'k', {20, 40}}, {'g', {3, 5}}, {'n', {64, 140}}, {'b', {3, 40}}, {'r', {30}}}},
      15);
}

TEST(Programs, Rearrangements) {
  constexpr auto f = [](const auto& floats, const auto& heads, const auto& integers) {
    const auto& [x, y] = floats;  // [b, t, h d], [b, h, t]
    const auto split = ts::rearrange<"b t (h d) -> b h t d">(x, ts::len<"h">(heads));
    const auto weighted = split * ts::unsqueeze<3>(y);
    const auto merged = ts::rearrange<"b h t d -> b t (h d)">(weighted);
    const auto flat = ts::merge_dims<0, 1>(x + merged), halves = ts::split_dim<0>(ts::merge_dims<0, 2>(y), heads);
    const auto swapped = ts::transpose<2, 0, 1>(x);
    const auto mixed = ts::rearrange<"b t e -> (e b) t">(x);
    const auto inner = ts::rearrange<"b t (d h) -> (h t) (b d)">(x, ts::len<"h">(heads));
    const auto column = ts::squeeze<1>(ts::unsqueeze<1>(ts::sum<1>(x)));
    return std::tuple(energy(merged, flat, halves, swapped, mixed, inner, column), split, merged, flat, halves, swapped,
                      mixed, inner, column, ts::transpose<1, 0>(integers), ts::merge_dims<0, 1>(integers),
                      ts::softmax<0>(ts::merge_dims<0, 1>(split)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>>, ts::Dim, Tensor<2, std::int64_t>>(
      with_gradient(f),
      {.arguments = {values("bte"), values("bht"), size('h'), values<std::int64_t>("be", -9, 9)},
       .extents = {{'h', {1, 2, 3, 4, 6}}, {'d', {1, 2, 3, 5, 8}}},
       .products = {{'e', "hd"}}},
      13);
}

TEST(Programs, DynamicSlices) {
  constexpr auto f = [](const auto& floats, const auto& position, const auto& integers) {
    const auto& [x, y] = floats;  // [m, n, a], [m, 1, a]
    const auto part = ts::dynamic_slice<1>(x, position, 2), last = ts::dynamic_slice<0>(x * 0.5, -1, 1);
    const auto one = ts::dynamic_index<1>(x, position), row = ts::dynamic_index<0>(x, position - 1);
    const auto written = ts::dynamic_update_slice<1>(x, y * 2.0, position);
    const auto placed = ts::dynamic_update_index<2>(x, ts::sum<2>(x), position);
    return std::tuple(energy(part, last, one, row, written, placed), part, last, one, row, written, placed,
                      ts::dynamic_index<0>(integers, position),
                      ts::dynamic_update_slice<0>(integers, integers, position));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>>, Tensor<0, std::int32_t>, Tensor<2, std::int8_t>>(
      with_gradient(f),
      {.arguments = {values("mna"), values("mia"), values<std::int32_t>("", -6, 6), values<std::int8_t>("ab", -9, 9)},
       .extents = {{'n', {2, 3, 4, 5, 8, 9}}, {'i', {0, 1, 2}}}},
      14);
}

TEST(Programs, Slices) {
  constexpr auto f = [](const auto& floats, const auto& start, const auto& integers) {
    const auto& [x, y] = floats;  // [m, n], [k, n]
    const auto rows = ts::extent<0>(x);
    const auto first = ts::slice<0>(x, 0, rows / 2), rest = ts::slice<0>(x, rows / 2, rows - rows / 2);
    const auto middle = ts::slice<1>(x, start, ts::extent<1>(x) - start), column = ts::slice<1>(y, start, 1);
    const auto joined = ts::concat<0>(x, y, first), wide = ts::concat<1>(middle * 2.0, x, ts::tanh(middle));
    const auto padded = ts::pad<1>(rest, start, 2) * 0.5, both = ts::pad<0>(ts::pad<1>(y, 1, 0), start, start);
    const auto back = ts::concat<0>(rest, first) + ts::sum<0>(joined, ts::keepdims) * 0.25;
    return std::tuple(
        energy(middle, column, joined, wide, padded, both, back), first, middle, column, joined, wide, padded, both,
        ts::concat<0>(rest, first), ts::concat<0>(integers, integers, integers, integers, integers),
        ts::pad<0>(ts::slice<1>(integers, 0, 1), 1, 1), ts::slice<0>(ts::slice<1>(x, 0, start + 1), 0, 1));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>, ts::Dim, Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("mn"), values("kn"), size('s'), values<std::int32_t>("ij", -9, 9)},
       .extents = {{'s', {0, 1, 2}}, {'n', {3, 4, 5, 8, 13}}}},
      14);
}

TEST(Programs, StepsReplacementsAndShapes) {
  constexpr auto f = [](const auto& floats, const auto& s, const auto& numbers) {
    const auto& [x, row, column] = floats;  // [m, n], [n], [m]
    const auto odd = ts::slice<1>(x, 1, ts::extent<1>(x) / 2, 2);
    const auto one = ts::select<0>(x, s), other = ts::select<-1>(x * 2.0, 0);
    const auto back = ts::slice_scatter<1>(x, odd * odd, 1, 2),
               first = ts::slice_scatter<0>(x, ts::unsqueeze<0>(row), s);
    const auto at = ts::select_scatter<1>(x, column, s),
               on =
                   ts::diagonal_scatter(x, ts::slice<0>(ts::concat<0>(row, column), 0, ts::extent<0>(ts::diagonal(x))));
    const auto flat = ts::reshape(x, {ts::extent<1>(x), -1}) + 0.5;
    const auto wide = ts::broadcast_to(row, {s + 1, ts::extent<0>(x), ts::extent<1>(x)}) * x;
    const auto turned = ts::swapaxes<0, 1>(ts::movedim<1, 0>(x));
    return std::tuple(energy(odd, one, other, back, first, at, on, flat, wide, turned), odd, one, other, back, first,
                      at, on, flat, wide, turned, ts::slice<0>(numbers, 0, 1, 3),
                      ts::slice_scatter<0>(numbers < 0, ts::slice<0>(numbers > 2, 0, 2), 0, 1),
                      ts::select_scatter<1>(numbers, ts::select<1>(numbers, s), 0));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<1>, Tensor<1>>, ts::Dim, Tensor<2, std::int8_t>>(
      with_gradient(f),
      {.arguments = {values("mn"), values("n"), values("m"), size('s'), values<std::int8_t>("mn", -9, 9)},
       .extents = {{'s', {0, 1}}, {'m', {2, 3, 4, 7}}, {'n', {2, 3, 4, 5, 8, 13}}}},
      19);
}

TEST(Programs, Lookups) {
  constexpr auto f = [](const auto& floats, const auto& i, const auto& j, const auto& numbers) {
    const auto& [table, vector, cube] = floats;        // [v, d], [v], [v, c, d]
    const auto rows = ts::embedding(table, i);         // [b, t, d]
    const auto twice = ts::embedding(table, j) * 2.0;  // [t, d]
    const auto bias = ts::embedding(vector, i);
    const auto deep = ts::embedding(cube * ts::unsqueeze<1>(table), j);
    const auto out = rows + twice + ts::unsqueeze<2>(bias);
    const auto through = ts::embedding(ts::matmul(table, ts::transpose<1, 0>(ts::sum<1>(cube))), j);  // [t, v]
    return std::tuple(energy(out, deep, through), rows, bias, deep, through,
                      ts::embedding(numbers, ts::cast<std::int64_t>(i)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<1>, Tensor<3>>, Tensor<2, std::int32_t>,
                             Tensor<1, std::int64_t>, Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("vd"), values("v"), values("vcd"), indices("bt", 'v'), indices<std::int64_t>("t", 'v'),
                     values<std::int32_t>("vc", -9, 9)}},
      15);
}

// Of several rows at one index the last stays, wherever x, the indices and the source are split.
TEST(Programs, RowsPutAtIndices) {
  constexpr auto f = [](const auto& floats, const auto& i, const auto& j, const auto& numbers) {
    const auto& [x, rows, columns] = floats;  // [m, n, a], [k, n, a], [m, k, a]
    const auto set = ts::index_copy<0>(x, i, rows) + ts::index_copy<1>(x, j, columns);
    const auto sum = ts::index_add<0>(x, i, rows) + ts::index_add<1>(x, j, columns * 2.0);
    const auto filled = ts::index_fill<1>(x, j, ts::sum(rows));
    const auto at = std::tuple(i, ts::cast<std::int64_t>(j));
    const auto taken = ts::index(x, at);
    const auto put = ts::index_put(x, at, taken * 2.0), added = ts::index_put<true>(x, at, taken);
    return std::tuple(energy(set, sum, filled, taken, put, added), set, sum, filled, taken, put, added,
                      ts::index_copy<0>(numbers, i, ts::embedding(numbers, i)),
                      ts::index_add<1>(numbers, j, ts::index_select<1>(numbers, j)),
                      ts::index_fill<0>(numbers < 0, i, true), ts::take(numbers, i));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>, Tensor<3>>, Tensor<1, std::int32_t>,
                             Tensor<1, std::int32_t>, Tensor<2, std::int8_t>>(
      with_gradient(f),
      {.arguments = {values("mna"), values("kna"), values("mka"), indices("k", 'm'), indices("k", 'n'),
                     values<std::int8_t>("mn", -9, 9)},
       .extents = {{'k', {0, 1, 3, 4}}}},
      18);
}

// As many elements as there is room for, fewer or more than there are.
TEST(Programs, ElementsForWhichAConditionHolds) {
  constexpr auto f = [](const auto& floats, const auto& numbers, const auto& k) {
    const auto& [x, y] = floats;  // [m, n], [j]
    const auto mask = numbers > 0;
    const auto [i, j] = ts::nonzero(mask, k, -1);
    const auto chosen = ts::masked_select(x * x, mask, k, 0.5);
    const auto placed = ts::masked_scatter(x, mask, y * y);
    const auto distinct = ts::unique(numbers, k);
    const auto runs = ts::unique_consecutive(numbers, k);
    return std::tuple(energy(chosen, placed), chosen, placed, i, j, ts::argwhere<std::int64_t>(numbers, k),
                      ts::argwhere(y < 0, k),
                      std::tuple(distinct.values, distinct.counts, distinct.inverse, distinct.count),
                      std::tuple(runs.values, runs.counts, runs.inverse, runs.count), ts::unique(x, k).values);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<1>>, Tensor<2, std::int8_t>, ts::Dim>(
      with_gradient(f),
      {.arguments = {values("mn"), values("j"), values<std::int8_t>("mn", -2, 2), size('k')},
       .extents = {{'j', {64, 70}}, {'k', {1, 2, 5, 9}}, {'m', {1, 2, 3, 4, 7}}, {'n', {1, 3, 4, 8}}}},
      20);
}

TEST(Programs, BagsAndDistances) {
  constexpr auto f = [](const auto& floats, const auto& i, const auto& j) {
    const auto& [table, x, weights] = floats;                                   // [m, n], [k, n], [j]
    const auto begins = ts::truncate_div(ts::iota<0, std::int32_t>(i), 2) * 2;  // bags of two rows, and empty ones
    const auto sum = ts::embedding_bag(table, j, begins, weights);
    const auto mean = ts::embedding_bag<ts::BagMode::mean>(table, j, begins);
    const auto most = ts::embedding_bag<ts::BagMode::max>(table * 0.5, j, begins);
    const auto far = ts::cdist(table, x), pairs = ts::cdist(x, x, 1);
    const auto own = ts::pdist(table);
    return std::tuple(energy(sum, mean, most, far, pairs, own), sum, mean, most, far, pairs, own);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<1>>, Tensor<1, std::int32_t>,
                             Tensor<1, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("mn"), values("kn"), values("j"), indices("b", 'm'), indices("j", 'm')},
       .cases = 60,
       .extents = {{'m', {2, 3, 6}}, {'b', {1, 3, 4}}, {'j', {4, 7, 8}}, {'k', {1, 3, 4}}, {'n', {1, 3, 4, 8}}}},
      21);
}

TEST(Programs, CausalAttention) {
  constexpr auto f = [](const auto& floats, const auto& heads) {
    const auto& [x, qkv, out] = floats;  // [b, t, e], [e, 3 e], [e, e]
    const auto three =
        ts::rearrange<"b t (n h d) -> n b t h d">(ts::matmul(x, qkv), ts::len<"n">(3), ts::len<"h">(heads));
    const auto part = [&](int n) { return ts::rearrange<"1 b t h d -> b t h d">(ts::slice<0>(three, n, 1)); };
    const auto y = ts::causal_attention(part(0), part(1), part(2));
    const auto merged = ts::matmul(ts::merge_dims<2, 3>(y), out);
    return std::tuple(energy(merged + x), y, merged);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>>, ts::Dim>(
      with_gradient(f),
      {.arguments = {values("bte"), values("ef"), values("ee"), size('h')},
       .extents = {{'h', {1, 2, 3, 4}}, {'d', {1, 2, 4, 5}}, {'3', {3}}},
       .products = {{'e', "hd"}, {'f', "3hd"}}},
      16);
}

TEST(Programs, Constraints) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, w, v] = floats;  // [m, k], [k, n], [n, k]
    const auto hidden =
        ts::with_sharding(ts::gelu(ts::with_sharding(ts::matmul(x, w), {"x", "y"})), {ts::none, {"y", "x"}});
    const auto y = ts::with_sharding(ts::matmul(hidden, v), {"y"});
    const auto turned = ts::with_sharding(ts::transpose<1, 0>(y), {"x"});
    const auto total = ts::with_sharding(ts::sum<0>(y), {{"x", "y"}});
    const auto whole = ts::with_sharding(ts::softmax<0>(y), {});
    return std::tuple(energy(y, turned, total, whole), hidden, y, turned, total, whole,
                      ts::with_sharding(x, {"y", "x"}));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<2>>>(
      with_gradient(f),
      {.arguments = {values("mk"), values("kn"), values("nk")}, .may_be_empty = true, .least_axes = 2}, 17);
}

// Dims of which only the plan knows that they have extent 1 are repeated; of split dims, uneven and empty shards.
TEST(Programs, BroadcastsToExtentsAndTakesAlongDims) {
  constexpr auto f = [](const auto& floats, const auto& s, const auto& i) {
    const auto& [x, token, row] = floats;  // [a, b], [1, 1, b], [1, b]
    const auto wide = ts::broadcast_to(token, {ts::extent<0>(x), s + 1, ts::extent<1>(x)}) * ts::unsqueeze<1>(x);
    const auto kept = ts::broadcast_to(x, {s + 2, -1, ts::Dim(ts::extent<1>(row))});
    const auto rows = ts::broadcast_to(row, {ts::extent<0>(x), -1}) * x;
    const auto taken = ts::take_along_dim<1>(ts::sum<0>(x, ts::keepdims), i);
    const auto flat = ts::take_along_dim(row, i);
    const auto merged = ts::merge_dims<0, 1>(token) + row;
    const auto back = ts::split_dim<1>(x, 1);
    return std::tuple(energy(wide, kept, rows, taken, flat, merged, back), wide, kept, rows, taken, flat, merged, back);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<3>, Tensor<2>>, ts::Dim, Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("ab"), values("11b"), values("1b"), size('s'), values<std::int32_t>("ac", 0, 1)},
       .extents = {{'1', {1}}, {'s', {0, 1, 2}}, {'a', {1, 2, 3, 5}}, {'b', {2, 3, 5, 8, 13}}, {'c', {1, 2, 5}}}},
      21);
}

TEST(Programs, SegmentsVectorsAndMetrics) {
  constexpr auto f = [](const auto& floats, const auto& i, const auto& n, const auto& labels) {
    const auto& [x, w, v] = floats;  // [a, b], [b, c], [b]
    const auto sums = ts::segment_sum(x, i, n), means = ts::segment_mean(x, i, n);
    const auto shares = ts::segment_softmax(ts::matmul(x, v), i, n);
    const auto most = ts::maximum(ts::segment_max(x, i, n), -1e3), least = ts::minimum(ts::segment_min(x, i, n), 1e3);
    const auto of_vectors = ts::matmul(v, w) + ts::matmul(ts::transpose(w), v);
    return std::tuple(energy(sums, means, shares, most, least, of_vectors) + ts::matmul(v, v), sums, means, shares,
                      most, least, of_vectors, ts::confusion_matrix(labels, i, n), ts::top_p_logits(x, 0.7) > -1e9,
                      ts::top_k_accuracy(ts::matmul(x, w), labels, 2));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<1>>, Tensor<1, std::int32_t>, ts::Dim,
                             Tensor<1, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("ab"), values("bc"), values("b"), indices("a", 'n'), size('n'), indices("a", 'c')},
       .extents = {{'a', {1, 2, 3, 5, 8}}, {'b', {1, 2, 4, 5}}, {'c', {2, 3}}, {'n', {1, 2, 3}}}},
      15);
}

// What is made of other operations, on split dims, uneven and empty shards.
TEST(Programs, RepeatsDiagonalsAndStatistics) {
  constexpr auto f = [](const auto& floats, const auto& n, const auto& i) {
    const auto& [x, y] = floats;  // [a, b], [a, b]
    const auto wide = ts::concat<1>(ts::tile<1>(x, n), ts::repeat_interleave<1>(y, n));
    const auto turned = ts::roll<0>(x, 2) * ts::roll<1>(y, -1) + ts::flip<0>(x);
    const auto parts = ts::tril(ts::stack<1>(x, y)) + ts::triu(ts::stack<1>(y, x), 1);
    const auto [low, high] = ts::chunk<2, 1>(x);
    const auto chosen = ts::index_select<1>(y, i);
    const auto off = ts::var<1>(x * x + 1, ts::keepdims, 0) + ts::norm<0>(y * y + 1) + ts::std<0>(x * y + x, 0);
    const auto across = ts::diagonal(ts::matmul(x, ts::transpose<1, 0>(y)));
    const auto made = ts::diag(ts::sum<1>(x));
    return std::tuple(energy(wide, turned, parts, low, high, chosen, across, made), wide, turned, parts, low, high,
                      chosen, across, made, off, ts::one_hot<std::int32_t>(i, n), ts::nansum<0>(ts::log(x)),
                      ts::masked_fill(x, x < y, 0.5));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>, ts::Dim, Tensor<1, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("ab"), values("ab"), size('n'), indices("j", 'b')},
       .extents = {{'a', {1, 2, 3, 4, 6}}, {'b', {1, 2, 4, 5}}, {'n', {1, 2, 3}}, {'j', {1, 3, 4}}}},
      17);
}

// Of views, of sums that are still partial, and of dims that are split, unevenly or into empty shards.
TEST(Programs, Flips) {
  constexpr auto f = [](const auto& floats, const auto& integers, const auto& bits) {
    const auto& [x, y, w] = floats;  // [a, b, c], [b, c], [c, b]
    const auto first = ts::flip<0>(x), middle = ts::flip<1>(x) * x, last = ts::flip<-1>(x) + y;
    const auto both = ts::flip<0>(ts::flip<2>(ts::transpose<2, 0, 1>(x)));
    const auto part = ts::flip<1>(ts::slice<1>(ts::flip<0>(y), 0, ts::extent<1>(y) / 2));
    const auto turned = ts::rot90(y), back = ts::rot90<-1>(ts::rot90<2>(w));
    const auto products = ts::flip<0>(ts::matmul(y, w)), sums = ts::flip<0>(ts::sum<0>(x));
    return std::tuple(energy(first, middle, last, both, part, turned, back, products, sums), first, middle, last, both,
                      part, turned, back, products, sums, ts::flip<0>(integers), ts::flip<1>(integers),
                      ts::flip<1>(bits), ts::flip<0>(ts::cast<ts::bf16>(y)), ts::flip<1>(ts::cast<double>(y)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>>, Tensor<2, std::int8_t>, Tensor<2, bool>>(
      with_gradient(f),
      {.arguments = {values("abc"), values("bc"), values("cb"), values<std::int8_t>("ad", -99, 99), values<bool>("db")},
       .may_be_empty = true,
       .extents = {{'a', {1, 2, 3, 5}}, {'b', {1, 2, 4, 7}}, {'c', {1, 3, 4, 6}}, {'d', {1, 2, 70, 131}}}},
      18);
}

// Operands that are contiguous along an outer dim: read as boxes, of which some are cut off, beside operands with the
// strides of the result, operands that are broadcast, and operands that are contiguous along a third dim.
TEST(Programs, TransposedOperands) {
  constexpr auto f = [](const auto& floats, const auto& integers, const auto& bits) {
    const auto& [x, y, z, v] = floats;  // [a, b, c], [c, b, a], [b, c, a], [c]
    const auto turned = ts::transpose<2, 1, 0>(y), moved = ts::rearrange<"b c a -> a b c">(z);
    const auto all = x + turned * v - moved * 0.5, shifted = ts::slice<0>(turned, 1, ts::extent<0>(x) - 1) * 2.0;
    const auto wide = ts::cast<double>(moved) * ts::cast<double>(x);
    const auto narrow = ts::cast<ts::bf16>(turned) * ts::cast<ts::bf16>(x);
    const auto other = ts::rearrange<"b c a -> (b c) a">(ts::exp(ts::rearrange<"a b c -> b c a">(x)));
    return std::tuple(
        energy(all, shifted, other) + ts::sum(ts::cast<float>(wide)), all, shifted, other, wide, narrow,
        ts::transpose<1, 0>(integers) * 2, ts::logical_not(ts::transpose<1, 0>(bits)),
        ts::iota<0, std::int32_t>(ts::transpose<1, 0>(bits)) + ts::cast<std::int32_t>(ts::transpose<1, 0>(integers)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>, Tensor<3>, Tensor<1>>, Tensor<2, std::int8_t>,
                             Tensor<2, bool>>(with_gradient(f),
                                              {.arguments = {values("abc"), values("cba"), values("bca"), values("c"),
                                                             values<std::int8_t>("mn", -60, 60), values<bool>("mn")},
                                               .cases = 40,
                                               .extents = {{'a', {1, 15, 17, 70}},
                                                           {'b', {1, 3, 16, 20}},
                                                           {'c', {2, 16, 33, 260}},
                                                           {'m', {16, 64, 130}},
                                                           {'n', {5, 64, 300}}}},
                                              19);
}

// Counts of split elements, of all kinds of averages, and ranks of a split vector.
TEST(Programs, MetricsOfClasses) {
  constexpr auto f = [](const auto& predicted, const auto& target, const auto& scores) {  // [n, m], [n, m], [k]
    return std::tuple(ts::precision(predicted, target, 4), ts::recall<ts::Average::weighted>(predicted, target, 4),
                      ts::f1_score<ts::Average::micro>(predicted, target, 4),
                      ts::f1_score<ts::Average::each>(predicted, target, 4),
                      ts::auroc(ts::round(scores), ts::cast<std::int32_t>(ts::abs(scores) > 1.0)));
  };
  expect_equal_on_all_meshes<Tensor<2, std::int32_t>, Tensor<2, std::int32_t>, Tensor<1>>(
      f,
      {.arguments = {indices("nm", 'c'), indices("nm", 'c'), values("k", -3, 3)},
       .cases = 60,
       .extents = {{'c', {3, 4}}, {'k', {1, 2, 5, 12, 30}}}},
      91);
}
