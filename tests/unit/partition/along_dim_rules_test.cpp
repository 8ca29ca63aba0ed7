#include "golden_rules.hpp"
#include <gtest/gtest.h>

#include <tessera/ops/indexing/segment.hpp>
#include <tessera/partition/plan/static_plan.hpp>

// The rules of operations along one dim, and their plans, as in propagation_rules_test.cpp: indexing, cumulative sums,
// sorting, flips.

namespace {

namespace ts = tessera;
using namespace tessera::tests::rules;

TEST(PropagationRules, Indexed) {
  Golden golden;
  constexpr auto lookup = [](auto table, auto at) { return ts::embedding(table, at); };
  const auto table = [](const char* text) { return f32({64, 16}, spec(text)); };
  const auto rows = [](const char* text) { return ts::abstract<int>({8, 4}, spec(text)); };
  golden.rule("embedding", ts::Op::embedding, lookup, table("{}"), rows("{}"));
  for (const char* a : {"{-,-}", "{x,-}", "{-,x}"})
    for (const char* b : {"{-,-}", "{x,-}", "{-,y}"}) golden.row(lookup, table(a), rows(b));
  constexpr auto added = [](auto t, auto at) {
    return ts::grad([](const auto& v, const auto& index) {
      const auto y = ts::embedding(v, index);
      return ts::sum(y * y);
    })(t, at);
  };
  golden.rule("index_add", ts::Op::index_add, added, table("{}"), rows("{}"));
  for (const char* a : {"{-,-}", "{-,x}"})
    for (const char* b : {"{-,-}", "{-,y}"}) golden.row(added, table(a), rows(b));
  EXPECT_EQ(golden.text(), R"(
embedding: ad, bc -> bcd  a summed
  {-,-} {-,-} -> {-,-,-}
  {-,-} {x,-} -> {x,-,-}
  {-,-} {-,y} -> {-,y,-}
  {x,-} {-,-} -> {-,-,-} all_reduce(x) 2048
  {x,-} {x,-} -> {x,-,-} all_gather(x) 128 reduce_scatter(x) 2048
  {x,-} {-,y} -> {-,y,-} all_reduce(x) 1024
  {-,x} {-,-} -> {-,-,x}
  {-,x} {x,-} -> {-,-,x} all_gather(x) 128
  {-,x} {-,y} -> {-,y,x}
index_add: bcd, bc, ad -> ad  b summed  c summed
  {-,-} {-,-} -> {-,-}
  {-,-} {-,y} -> {-,-} all_reduce(y) 4096
  {-,x} {-,-} -> {-,x}
  {-,x} {-,y} -> {-,x} all_reduce(y) 2048
)");
}

// One total per line and device along the dim of a cumulative sum: 12 lines x 2 devices x 4 bytes where dim 0 is split
// in two.
TEST(PropagationRules, Cumulative) {
  Golden golden;
  constexpr auto cumsum = [](auto a) { return ts::cumsum<0>(a); };
  golden.rule("cumsum", ts::Op::cumsum, cumsum, f32({8, 12}, {}));
  for (const char* a : {"{x,-}", "{y,-}", "{-,x}", "{x,y}", "{y,x}", "{(x,y),-}", "{-,(x,y)}"})
    golden.row(cumsum, f32({8, 12}, spec(a)));
  golden.row(cumsum, f32({9, 7}, spec("{(x,y),-}")));
  golden.row(cumsum, f32({9, 7}, spec("{x,y}")));
  constexpr auto partial = [](auto a, auto b) { return ts::cumsum<0>(ts::matmul(a, b)); };
  golden.row(partial, f32({8, 4}, spec("{-,x}")), f32({4, 12}, spec("{x,-}")));
  golden.row(partial, f32({8, 4}, spec("{y,x}")), f32({4, 12}, spec("{x,-}")));
  EXPECT_EQ(golden.text(), R"(
cumsum: ab -> ab
  {x,-} -> {x,-} all_gather(x) 96
  {y,-} -> {y,-} all_gather(y) 96
  {-,x} -> {-,x}
  {x,y} -> {x,y} all_gather(x) 48
  {y,x} -> {y,x} all_gather(y) 48
  {(x,y),-} -> {(x,y),-} all_gather(x,y) 192
  {-,(x,y)} -> {-,(x,y)}
  {(x,y),-} -> {(x,y),-} all_gather(x,y) 112
  {x,y} -> {x,y} all_gather(x) 32
  {-,x} {x,-} -> {-,-} all_reduce(x) 384
  {y,x} {x,-} -> {y,-} all_gather(y) 96 all_reduce(x) 192
)");
}

// The sorted dim has to be whole: its axes move to the first unsplit dim that they divide.
TEST(PropagationRules, Sort) {
  Golden golden;
  constexpr auto sort = [](auto a) { return ts::sort<0>(a); };
  golden.rule("argsort", ts::Op::argsort, sort, f32({8, 12}, {}));
  golden.rule("gather", ts::Op::gather, sort, f32({8, 12}, {}));
  for (const char* a : {"{-,x}", "{x,-}", "{y,-}", "{(x,y),-}", "{-,(x,y)}", "{x,y}", "{y,x}"})
    golden.row(sort, f32({8, 12}, spec(a)));
  for (const char* a : {"{x,-}", "{(x,y),-}"}) golden.row(sort, f32({8, 7}, spec(a)));
  golden.row(sort, f32({8, 6}, spec("{(x,y),-}")));
  for (const char* a : {"{x,-,-}", "{(x,y),-,-}", "{x,y,-}", "{-,y,-}"}) golden.row(sort, f32({8, 6, 12}, spec(a)));
  constexpr auto scaled = [](auto a) { return ts::sort<0>(a) * 2.0; };
  golden.row(scaled, f32({8, 12}, spec("{x,-}")));
  constexpr auto vector = [](auto a) { return ts::sort<0>(a); };
  golden.row(vector, f32({64}, spec("{(x,y)}")));
  constexpr auto best = [](auto a) { return ts::topk<0>(a, 2).values; };
  golden.row(best, f32({8, 12}, spec("{x,-}")));
  constexpr auto gradient = [](auto t) {
    return ts::grad([](const auto& v) {
      const auto y = ts::sort<0>(v);
      return ts::sum(y * y);
    })(t);
  };
  golden.rule("scatter_add", ts::Op::scatter_add, gradient, f32({8, 12}, {}));
  for (const char* a : {"{-,x}", "{x,-}"}) golden.row(gradient, f32({8, 12}, spec(a)));
  EXPECT_EQ(golden.text(), R"(
argsort: ab -> ab  a whole
gather: ab, cb -> cb  a whole
  {-,x} -> {-,x}
  {x,-} -> {-,x} all_to_all(x) 384
  {y,-} -> {-,y} all_to_all(y) 384
  {(x,y),-} -> {-,(x,y)} all_to_all(x,y) 384
  {-,(x,y)} -> {-,(x,y)}
  {x,y} -> {x,y} all_gather(x) 192
  {y,x} -> {y,x} all_gather(y) 192
  {x,-} -> {x,-} all_gather(x) 224
  {(x,y),-} -> {(x,y),-} all_gather(x,y) 224
  {(x,y),-} -> {y,x} permute(x,y) 48 all_to_all(x) 96 all_gather(y) 96
  {x,-,-} -> {-,x,-} all_to_all(x) 2304
  {(x,y),-,-} -> {-,x,y} all_to_all(y) 1152 all_to_all(x) 1152
  {x,y,-} -> {-,y,x} all_to_all(x) 1152
  {-,y,-} -> {-,y,-}
  {x,-} -> {-,x} all_to_all(x) 384
  {(x,y)} -> {(x,y)} all_gather(x,y) 256
  {x,-} -> {-,x} all_to_all(x) 384
scatter_add: cb, cb, ab -> ab  a whole  c summed
  {-,x} -> {-,x}
  {x,-} -> {-,x} all_to_all(x) 384
)");
}

// A flip reads its dim whole, as a sort does. Its result is split along the dim where a reader needs that.
TEST(PropagationRules, Flip) {
  Golden golden;
  constexpr auto flip = [](auto a) { return ts::flip<0>(a); };
  golden.rule("flip", ts::ops::op_v<ts::ops::FlipOp>, flip, f32({8, 12}, {}));
  for (const char* a : {"{-,x}", "{x,-}", "{(x,y),-}", "{x,y}"}) golden.row(flip, f32({8, 12}, spec(a)));
  for (const char* a : {"{x,-}", "{(x,y),-}"}) golden.row(flip, f32({8, 7}, spec(a)));
  golden.row(flip, f32({64}, spec("{(x,y)}")));
  constexpr auto both = [](auto a) { return ts::flip<0>(a) * a; };
  for (const char* a : {"{x,-}", "{x,y}"}) golden.row(both, f32({8, 12}, spec(a)));
  constexpr auto gradient = [](auto t) {
    return ts::grad([](const auto& v) {
      const auto y = ts::flip<0>(v);
      return ts::sum(y * y);
    })(t);
  };
  for (const char* a : {"{-,x}", "{x,-}"}) golden.row(gradient, f32({8, 12}, spec(a)));
  EXPECT_EQ(golden.text(), R"(
flip: ab -> cb  a whole
  {-,x} -> {-,x}
  {x,-} -> {-,x} all_to_all(x) 384
  {(x,y),-} -> {-,(x,y)} all_to_all(x,y) 384
  {x,y} -> {x,y} all_gather(x) 192
  {x,-} -> {x,-} all_gather(x) 224
  {(x,y),-} -> {(x,y),-} all_gather(x,y) 224
  {(x,y)} -> {(x,y)} all_gather(x,y) 256
  {x,-} -> {x,-} all_to_all(x) 384 all_to_all(x) 384
  {x,y} -> {x,y} all_gather(x) 192
  {-,x} -> {-,x}
  {x,-} -> {-,x} all_to_all(x) 384
)");
}

// Elements that are split along the dim of a gather or scatter stay where they are: each device reads a whole array, or
// adds its elements to an array of its own, or takes extremes. Replaced elements and products need all elements.
TEST(PropagationRules, ScatterOfSplitElements) {
  Golden golden;
  constexpr auto taken = [](auto table, auto places) { return ts::gather<0>(table, places); };
  constexpr auto added = [](auto source, auto places) {
    return ts::scatter_add<0>(ts::slice<0>(ts::zeros_like(source), 0, 3), places, source);
  };
  constexpr auto largest = [](auto source, auto segments) { return ts::segment_max(source, segments, 3); };
  constexpr auto product = [](auto source, auto segments) { return ts::segment_prod(source, segments, 3); };
  constexpr auto softmax = [](auto source, auto segments) { return ts::segment_softmax(source, segments, 3); };
  golden.rule("scatter", ts::Op::scatter, largest, f32({8, 12}, {}), ts::abstract<int>({8}, {}));
  golden.row(taken, f32({6, 12}, {}), ts::abstract<int>({8, 12}, spec("{x,-}")));
  golden.row(taken, f32({6, 12}, spec("{-,y}")), ts::abstract<int>({8, 12}, spec("{x,y}")));
  for (const char* a : {"{x,-}", "{-,x}", "{x,y}"})
    golden.row(added, f32({8, 12}, spec(a)), ts::abstract<int>({8, 12}, spec(a)));
  for (const char* a : {"{x}", "{(x,y)}"}) {
    golden.row(largest, f32({8}, spec(a)), ts::abstract<int>({8}, spec(a)));
    golden.row(softmax, f32({8}, spec(a)), ts::abstract<int>({8}, spec(a)));
    golden.row(product, f32({8}, spec(a)), ts::abstract<int>({8}, spec(a)));
  }
  EXPECT_EQ(golden.text(), R"(
scatter: cb, cb, ab -> ab  a whole  c summed
  {} {x,-} -> {x,-}
  {-,y} {x,y} -> {x,y}
  {x,-} {x,-} -> {-,-} all_reduce(x) 288
  {-,x} {-,x} -> {-,x}
  {x,y} {x,y} -> {-,y} all_reduce(x) 144
  {x} {x} -> {-} all_reduce(x) 12
  {x} {x} -> {x} all_reduce(x) 12 all_reduce(x) 12
  {x} {x} -> {-} all_gather(x) 64 all_gather(x) 32
  {(x,y)} {(x,y)} -> {-} all_reduce(x,y) 12
  {(x,y)} {(x,y)} -> {(x,y)} all_reduce(x,y) 12 all_reduce(x,y) 12
  {(x,y)} {(x,y)} -> {-} all_gather(x,y) 64 all_gather(x,y) 32
)");
}

}  // namespace
