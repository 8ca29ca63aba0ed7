#include <string_view>

#include "golden_rules.hpp"
#include <gtest/gtest.h>

#include <tessera/partition/plan/static_plan.hpp>

// The rule of each family of operations, and the plans that follow from it: shardings of the operands, of the result,
// and the collectives. Sources: GSPMD 2105.04663 and Shardy's op sharding rules.

namespace {

namespace ts = tessera;
using namespace tessera::tests::rules;
using Cube = ts::ShardedTensor<float, 3>;

// Rows know their groups from the sizes, which are whole on each device.
TEST(PropagationRules, RaggedDot) {
  constexpr auto f = [](auto x, auto w, auto sizes) { return ts::ragged_dot(x, w, sizes); };
  constexpr auto slope = [](auto x, auto w, auto sizes) {
    return ts::grad([x, sizes](const auto& v) {
      const auto y = ts::ragged_dot(x, v, sizes);
      return ts::sum(y * y);
    })(w);
  };
  Golden golden;
  const auto rows = [](const char* text) { return f32({64, 16}, spec(text)); };
  const auto matrices = [](const char* text) { return f32({4, 16, 32}, spec(text)); };
  const auto sizes = [](const char* text) { return ts::abstract<int>({4}, spec(text)); };
  golden.rule("ragged_dot", ts::build::ragged_dot_op, f, rows("{}"), matrices("{}"), sizes("{}"));
  for (const char* a : {"{-,-}", "{x,-}", "{-,x}"})
    for (const char* b : {"{-,-,-}", "{x,-,-}", "{-,x,-}", "{-,-,x}"})
      golden.row(f, rows(a), matrices(b), sizes("{-}"));
  golden.row(f, rows("{x,-}"), matrices("{-,-,y}"), sizes("{x}"));
  golden.rule("ragged_outer", ts::build::ragged_outer_op, slope, rows("{}"), matrices("{}"), sizes("{}"));
  for (const char* a : {"{-,-}", "{x,-}"})
    for (const char* b : {"{-,-,-}", "{y,-,-}", "{-,-,y}"}) golden.row(slope, rows(a), matrices(b), sizes("{-}"));
  EXPECT_EQ(golden.text(), R"(
ragged_dot: ab, dbc, e -> ac  b summed  d summed  e whole
  {-,-} {-,-,-} {-} -> {-,-}
  {-,-} {x,-,-} {-} -> {-,-} all_reduce(x) 8192
  {-,-} {-,x,-} {-} -> {-,-} all_reduce(x) 8192
  {-,-} {-,-,x} {-} -> {-,x}
  {x,-} {-,-,-} {-} -> {x,-}
  {x,-} {x,-,-} {-} -> {x,-} all_gather(x) 8192
  {x,-} {-,x,-} {-} -> {x,-} all_gather(x) 8192
  {x,-} {-,-,x} {-} -> {-,x} all_gather(x) 4096
  {-,x} {-,-,-} {-} -> {-,-} all_reduce(x) 8192
  {-,x} {x,-,-} {-} -> {-,-} all_gather(x) 4096 all_reduce(x) 8192
  {-,x} {-,x,-} {-} -> {-,-} all_reduce(x) 8192
  {-,x} {-,-,x} {-} -> {-,x} all_gather(x) 4096
  {x,-} {-,-,y} {x} -> {x,y} all_gather(x) 16
ragged_outer: ab, ac, e -> dbc  a summed  e whole
  {-,-} {-,-,-} {-} -> {-,-,-}
  {-,-} {y,-,-} {-} -> {-,-,-} all_reduce(y) 8192
  {-,-} {-,-,y} {-} -> {-,-,y}
  {x,-} {-,-,-} {-} -> {-,-,-} all_reduce(x) 8192
  {x,-} {y,-,-} {-} -> {-,-,-} all_reduce(y) 4096 all_reduce(x) 8192
  {x,-} {-,-,y} {-} -> {-,-,y} all_reduce(x) 4096
)");
}

TEST(PropagationRules, Einsum) {
  constexpr auto f = [](auto a, auto b) { return ts::einsum<"bmk,bkn->bmn">(a, b); };
  Golden golden;
  golden.rule("einsum", ts::Op::einsum, f, f32({8, 16, 32}, {}), f32({8, 32, 64}, {}));
  // Both operands have the axes of each factor: every placement of two axes.
  const std::string_view factors = "bmkn";
  for (const char of_x : factors)
    for (const char of_y : factors) {
      const auto lies = [&](std::string_view dims) {
        ts::PartitionSpec made({ts::none, ts::none, ts::none});
        for (std::size_t d = 0; d < 3; ++d) {
          if (dims[d] == of_x) made.entries[d].axes.push_back("x");
          if (dims[d] == of_y) made.entries[d].axes.push_back("y");
        }
        return made;
      };
      golden.row(f, f32({8, 16, 32}, lies("bmk")), f32({8, 32, 64}, lies("bkn")));
    }
  // Only one operand has the axis, or the two have it on different factors.
  for (const char* a : {"{-,-,-}", "{x,-,-}", "{-,x,-}", "{-,-,x}"})
    for (const char* b : {"{-,-,-}", "{x,-,-}", "{-,x,-}", "{-,-,x}"})
      golden.row(f, f32({8, 16, 32}, spec(a)), f32({8, 32, 64}, spec(b)));
  // The gradient of the weights of experts: sequences are split by both axes, or by one beside the experts. The larger
  // operand says nothing for y as an axis of sequences, so the smaller operand moves.
  constexpr auto of_experts = [](auto a, auto b) { return ts::einsum<"secf,sech->efh">(a, b); };
  golden.row(of_experts, f32({8, 4, 16, 32}, spec("{(x,y),-,-,-}")), f32({8, 4, 16, 64}, spec("{x,y,-,-}")));
  golden.row(of_experts, f32({8, 4, 16, 64}, spec("{x,y,-,-}")), f32({8, 4, 16, 32}, spec("{(x,y),-,-,-}")));
  EXPECT_EQ(golden.text(), R"(
einsum: abc, acd -> abd  c summed
  {(x,y),-,-} {(x,y),-,-} -> {(x,y),-,-}
  {x,y,-} {x,-,-} -> {x,y,-}
  {x,-,y} {x,y,-} -> {x,-,-} all_reduce(y) 16384
  {x,-,-} {x,-,y} -> {x,-,y}
  {y,x,-} {y,-,-} -> {y,x,-}
  {-,(x,y),-} {-,-,-} -> {-,(x,y),-}
  {-,x,y} {-,y,-} -> {-,x,-} all_reduce(y) 16384
  {-,x,-} {-,-,y} -> {-,x,y}
  {y,-,x} {y,x,-} -> {y,-,-} all_reduce(x) 16384
  {-,y,x} {-,x,-} -> {-,y,-} all_reduce(x) 16384
  {-,-,(x,y)} {-,(x,y),-} -> {-,-,-} all_reduce(x,y) 32768
  {-,-,x} {-,x,y} -> {-,-,y} all_reduce(x) 16384
  {y,-,-} {y,-,x} -> {y,-,x}
  {-,y,-} {-,-,x} -> {-,y,x}
  {-,-,y} {-,y,x} -> {-,-,x} all_reduce(y) 16384
  {-,-,-} {-,-,(x,y)} -> {-,-,(x,y)}
  {-,-,-} {-,-,-} -> {-,-,-}
  {-,-,-} {x,-,-} -> {x,-,-}
  {-,-,-} {-,x,-} -> {-,-,-} all_reduce(x) 32768
  {-,-,-} {-,-,x} -> {-,-,x}
  {x,-,-} {-,-,-} -> {x,-,-}
  {x,-,-} {x,-,-} -> {x,-,-}
  {x,-,-} {-,x,-} -> {x,-,-} all_to_all(x) 16384 reduce_scatter(x) 32768
  {x,-,-} {-,-,x} -> {-,-,x} all_gather(x) 16384
  {-,x,-} {-,-,-} -> {-,x,-}
  {-,x,-} {x,-,-} -> {x,-,-} all_to_all(x) 16384
  {-,x,-} {-,x,-} -> {-,x,-} all_to_all(x) 16384 reduce_scatter(x) 32768
  {-,x,-} {-,-,x} -> {-,-,x} all_gather(x) 16384
  {-,-,x} {-,-,-} -> {-,-,-} all_reduce(x) 32768
  {-,-,x} {x,-,-} -> {x,-,-} all_to_all(x) 16384
  {-,-,x} {-,x,-} -> {-,-,-} all_reduce(x) 32768
  {-,-,x} {-,-,x} -> {-,-,x} all_gather(x) 16384
  {(x,y),-,-,-} {x,y,-,-} -> {y,-,-} all_to_all(y) 32768 all_reduce(x) 16384
  {x,y,-,-} {(x,y),-,-,-} -> {y,-,-} all_to_all(y) 32768 all_reduce(x) 16384
)");
}

TEST(PropagationRules, Layout) {
  Golden golden;
  constexpr auto split = [](auto a) { return ts::rearrange<"a (b c) -> a b c">(a, ts::len<"b">(6)) * 2.0; };
  golden.rule("split", ts::Op::rearrange, split, f32({4, 24}, {}));
  for (const char* a : {"{x,-}", "{-,x}", "{-,(x,y)}", "{y,x}"}) golden.row(split, f32({4, 24}, spec(a)));
  constexpr auto odd = [](auto a) { return ts::rearrange<"a (b c) -> a b c">(a, ts::len<"b">(3)) * 2.0; };
  for (const char* a : {"{x,-}", "{-,x}", "{-,(x,y)}"}) golden.row(odd, f32({4, 24}, spec(a)));
  constexpr auto merge = [](auto a) { return ts::rearrange<"a b c -> a (b c)">(a) * 2.0; };
  golden.rule("merge", ts::Op::rearrange, merge, f32({4, 2, 12}, {}));
  for (const char* a : {"{x,-,-}", "{-,x,-}", "{-,-,x}", "{-,x,y}"}) golden.row(merge, f32({4, 2, 12}, spec(a)));
  for (const char* a : {"{-,x,y}", "{-,(x,y),-}"}) golden.row(merge, f32({4, 6, 12}, spec(a)));
  constexpr auto transpose = [](auto a) { return ts::transpose<2, 0, 1>(a) * 2.0; };
  golden.rule("transpose", ts::Op::rearrange, transpose, f32({4, 8, 16}, {}));
  for (const char* a : {"{x,y,-}", "{-,(y,x),-}"}) golden.row(transpose, f32({4, 8, 16}, spec(a)));
  constexpr auto concat = [](auto a, auto b) { return ts::concat<1>(a, b); };
  golden.rule("concat", ts::Op::concat, concat, f32({8, 4}, {}), f32({8, 12}, {}));
  for (const char* a : {"{x,-}", "{-,x}"})
    for (const char* b : {"{-,-}", "{x,-}", "{-,x}"}) golden.row(concat, f32({8, 4}, spec(a)), f32({8, 12}, spec(b)));
  constexpr auto slice = [](auto a) { return ts::slice<1>(a, 1, 4) * 2.0; };
  golden.rule("slice", ts::Op::slice, slice, f32({8, 8}, {}));
  for (const char* a : {"{x,-}", "{-,x}", "{y,x}", "{-,(x,y)}", "{-,(y,x)}"}) golden.row(slice, f32({8, 8}, spec(a)));
  constexpr auto one = [](auto a) { return ts::slice<1>(a, 1, 1) * 2.0; };
  golden.rule("one index", ts::Op::slice, one, f32({8, 8}, {}));
  for (const char* a : {"{x,-}", "{-,x}", "{y,x}", "{-,(x,y)}"}) golden.row(one, f32({8, 8}, spec(a)));
  constexpr auto slope = [](auto a) {
    return ts::grad([](const auto& v) {
      const auto y = ts::slice<1>(v, 1, 1);
      return ts::sum(y * y);
    })(a);
  };
  golden.rule("its gradient", ts::Op::pad, slope, f32({8, 8}, {}));
  for (const char* a : {"{x,-}", "{-,x}"}) golden.row(slope, f32({8, 8}, spec(a)));
  constexpr auto three = [](auto a) { return ts::slice<1>(a, 0, 1) * ts::slice<1>(a, 1, 1) * ts::slice<1>(a, 2, 1); };
  golden.rule("three of three", ts::Op::slice, three, f32({8, 3}, {}));
  golden.row(three, f32({8, 3}, spec("{-,x}")));
  constexpr auto pad = [](auto a) { return ts::pad<1>(a, 1, 3); };
  golden.rule("pad", ts::Op::pad, pad, f32({8, 8}, {}));
  for (const char* a : {"{x,-}", "{-,x}", "{y,x}", "{-,(x,y)}"}) golden.row(pad, f32({8, 8}, spec(a)));
  constexpr auto slopes = [](auto a) {  // of a sum of squared differences: slices forward, pads backward
    return ts::grad([](const auto& v) {
      const auto d = ts::slice<1>(v, 1, 7) - ts::slice<1>(v, 0, 7);
      return ts::sum(d * d);
    })(a);
  };
  golden.rule("gradient of slices", ts::Op::pad, slopes, f32({8, 8}, {}));
  for (const char* a : {"{x,-}", "{-,x}", "{y,x}"}) golden.row(slopes, f32({8, 8}, spec(a)));
  EXPECT_EQ(golden.text(), R"(
split: a(bc) -> abc
  {x,-} -> {x,-,-}
  {-,x} -> {-,x,-}
  {-,(x,y)} -> {-,x,-} all_gather(y) 192
  {y,x} -> {y,x,-}
  {x,-} -> {x,-,-}
  {-,x} -> {-,-,-} all_gather(x) 384
  {-,(x,y)} -> {-,-,-} all_gather(x,y) 384
merge: abc -> a(bc)
  {x,-,-} -> {x,-}
  {-,x,-} -> {-,x}
  {-,-,x} -> {-,-} all_gather(x) 384
  {-,x,y} -> {-,(x,y)}
  {-,x,y} -> {-,x} all_gather(y) 576
  {-,(x,y),-} -> {-,x} all_gather(y) 576 permute(x,y) 192
transpose: abc -> cab
  {x,y,-} -> {-,x,y}
  {-,(y,x),-} -> {-,-,(y,x)}
concat: ab, ab -> ab  b moved
  {x,-} {-,-} -> {x,-}
  {x,-} {x,-} -> {x,-}
  {x,-} {-,x} -> {x,-} all_to_all(x) 384
  {-,x} {-,-} -> {-,x} permute(x) 64
  {-,x} {x,-} -> {x,-} all_to_all(x) 128
  {-,x} {-,x} -> {-,x} permute(x) 64
slice: ab -> ab  b moved
  {x,-} -> {x,-}
  {-,x} -> {-,x} permute(x) 32
  {y,x} -> {y,x} permute(x) 16
  {-,(x,y)} -> {-,(x,y)} permute(x,y) 32
  {-,(y,x)} -> {-,(y,x)} permute(x,y) 32
one index: ab -> a1  b summed
  {x,-} -> {x,-}
  {-,x} -> {-,-} all_reduce(x) 32
  {y,x} -> {y,-} all_reduce(x) 16
  {-,(x,y)} -> {-,-} all_reduce(x,y) 32
its gradient: a1, ab -> ab
  {x,-} -> {x,-}
  {-,x} -> {-,-} all_reduce(x) 32
three of three: ab -> a1  b summed
  {-,x} -> {-,-} all_gather(x) 96
pad: ab -> ab  b moved
  {x,-} -> {x,-}
  {-,x} -> {-,x} permute(x) 32
  {y,x} -> {y,x} permute(x) 16
  {-,(x,y)} -> {-,(x,y)} permute(x,y) 64
gradient of slices: ab, ab -> ab  b moved
  {x,-} -> {x,-}
  {-,x} -> {-,x} permute(x) 32 permute(x) 32
  {y,x} -> {y,x} permute(x) 16 permute(x) 16
)");
}

TEST(PropagationRules, ElementwiseAndReductions) {
  Golden golden;
  constexpr auto add = [](auto a, auto b) { return a + b; };
  golden.rule("elementwise", ts::Op::add, add, f32({8, 16}, {}), f32({8, 16}, {}));
  for (const char* a : {"{-,-}", "{x,-}", "{x,y}"})
    for (const char* b : {"{x,-}", "{-,x}", "{y,-}"}) golden.row(add, f32({8, 16}, spec(a)), f32({8, 16}, spec(b)));
  constexpr auto broadcast = [](auto a, auto b) { return a + b; };
  golden.rule("broadcast", ts::Op::add, broadcast, f32({8, 16}, {}), f32({16}, {}));
  for (const char* a : {"{-,-}", "{x,y}"})
    for (const char* b : {"{-}", "{x}", "{y}"}) golden.row(broadcast, f32({8, 16}, spec(a)), f32({16}, spec(b)));
  constexpr auto sum = [](auto a) { return ts::sum<1>(a); };
  golden.rule("sum", ts::Op::sum, sum, f32({8, 16}, {}));
  for (const char* a : {"{x,-}", "{-,x}", "{y,x}", "{-,(x,y)}"}) golden.row(sum, f32({8, 16}, spec(a)));
  constexpr auto prod = [](auto a) { return ts::prod<1>(a); };
  for (const char* a : {"{x,-}", "{-,x}"}) golden.row(prod, f32({8, 16}, spec(a)));
  constexpr auto max = [](auto a) { return ts::max<0>(a); };
  for (const char* a : {"{x,-}", "{-,x}"}) golden.row(max, f32({8, 16}, spec(a)));
  constexpr auto softmax = [](auto a) { return ts::softmax(a); };
  for (const char* a : {"{x,-}", "{-,x}"}) golden.row(softmax, f32({8, 16}, spec(a)));
  EXPECT_EQ(golden.text(), R"(
elementwise: ab, ab -> ab
  {-,-} {x,-} -> {x,-}
  {-,-} {-,x} -> {-,x}
  {-,-} {y,-} -> {y,-}
  {x,-} {x,-} -> {x,-}
  {x,-} {-,x} -> {x,-} all_to_all(x) 512
  {x,-} {y,-} -> {x,-} permute(x,y) 256
  {x,y} {x,-} -> {x,y}
  {x,y} {-,x} -> {x,y} all_to_all(x) 512
  {x,y} {y,-} -> {x,y} all_to_all(y) 512
broadcast: ab, b -> ab
  {-,-} {-} -> {-,-}
  {-,-} {x} -> {-,x}
  {-,-} {y} -> {-,y}
  {x,y} {-} -> {x,y}
  {x,y} {x} -> {x,y} permute(x,y) 32
  {x,y} {y} -> {x,y}
sum: ab -> a  b summed
  {x,-} -> {x}
  {-,x} -> {-} all_reduce(x) 32
  {y,x} -> {y} all_reduce(x) 16
  {-,(x,y)} -> {-} all_reduce(x,y) 32
  {x,-} -> {x}
  {-,x} -> {-} all_reduce(x) 32
  {x,-} -> {-} all_reduce(x) 64
  {-,x} -> {x}
  {x,-} -> {x,-}
  {-,x} -> {-,x} all_reduce(x) 64 all_reduce(x) 64
)");
}

/// A row for each row of x, and a sine of each.
constexpr auto copies = [](const auto& x, const auto& v) {
  return ts::sin(ts::broadcast_to(v, {ts::extent<0>(x), ts::extent<0>(v)}));
};

// A dim that broadcast_to makes is split as what reads the result needs, or a constraint; the line has the result
// itself, and then what is sent. Where nothing asks for a split the dim is whole, whatever tensor its extent is of.
TEST(PropagationRules, NewDimsOfBroadcasts) {
  Golden golden;
  const auto all = [&](auto f) {
    for (const char* a : {"{x,-}", "{(x,y),-}", "{-,x}"}) golden.row(f, f32({8, 16}, spec(a)), f32({16}, spec("{-}")));
    golden.row(f, f32({8, 16}, spec("{x,-}")), f32({16}, spec("{y}")));
  };
  all([](auto x, auto v) {
    const auto wide = copies(x, v);
    return std::tuple(wide, wide * x);
  });
  all([](auto x, auto v) {
    const auto wide = copies(x, v);
    return std::tuple(wide, ts::concat<1>(wide, x));
  });
  // Through a product and an activation, as queries of attention that are learned.
  all([](auto x, auto v) {
    const auto wide = copies(x, v);
    const auto hidden = ts::tanh(ts::einsum<"bf,f->bf">(wide, v));
    return std::tuple(wide, ts::einsum<"bf,bg->fg">(hidden, x));
  });
  // As the state before the first step of a loop.
  all([](auto x, auto v) {
    const auto wide = copies(x, v);
    return std::tuple(wide, ts::fori_loop(
                                0, 3, [&](const auto&, const auto& h) { return ts::tanh(h + x); }, wide));
  });
  constexpr auto constrained = [](auto x, auto v) {
    const auto wide = copies(x, v);
    return std::tuple(wide, ts::with_sharding(wide * 2.0, {"y"}));
  };
  golden.row(constrained, f32({8, 16}, spec("{-,-}")), f32({16}, spec("{-}")));
  // The extent 1 of v is known only when the program is planned, so the dim is repeated before it is broadcast.
  constexpr auto stored = [](auto x, auto v) {
    const auto wide = ts::sin(ts::broadcast_to(v, {ts::extent<0>(x), -1}));
    return std::tuple(wide, wide * x);
  };
  golden.row(stored, f32({8, 16}, spec("{x,-}")), f32({1, 16}, spec("{-,-}")));
  constexpr auto alone = [](auto x, auto v) { return copies(x, v); };
  golden.row(alone, f32({8, 16}, spec("{x,-}")), f32({16}, spec("{-}")));
  EXPECT_EQ(golden.text(), R"(
  {x,-} {-} -> {x,-}
  {(x,y),-} {-} -> {(x,y),-}
  {-,x} {-} -> {-,x}
  {x,-} {y} -> {x,y}
  {x,-} {-} -> {x,-}
  {(x,y),-} {-} -> {(x,y),-}
  {-,x} {-} -> {-,x} permute(x) 256
  {x,-} {y} -> {x,y} permute(y) 128
  {x,-} {-} -> {x,-} all_reduce(x) 1024
  {(x,y),-} {-} -> {(x,y),-} all_reduce(x,y) 1024
  {-,x} {-} -> {-,-}
  {x,-} {y} -> {x,y} all_reduce(x) 512
  {x,-} {-} -> {x,-}
  {(x,y),-} {-} -> {(x,y),-}
  {-,x} {-} -> {-,x}
  {x,-} {y} -> {x,y}
  {-,-} {-} -> {y,-}
  {x,-} {-,-} -> {x,-}
  {x,-} {-} -> {-,-}
)");
}

// Batch, out-features and groups are passed through, in-features are summed, rows of spatial dims are exchanged.
TEST(PropagationRules, Convolution) {
  Golden golden;
  constexpr auto conv = [](auto a, auto w) { return ts::conv2d(a, w); };
  const auto image = [](const char* text) { return f32({4, 8, 8, 16}, spec(text)); };
  const auto weights = [](const char* text) { return f32({3, 3, 16, 32}, spec(text)); };
  golden.rule("windows", ts::Op::patches, conv, image("{}"), weights("{}"));
  golden.rule("product", ts::Op::einsum, conv, image("{}"), weights("{}"));
  for (const char* a : {"{-,-,-,-}", "{x,-,-,-}", "{-,x,-,-}", "{-,-,x,-}", "{-,-,-,x}", "{x,-,-,y}", "{y,x,-,-}"})
    for (const char* w : {"{-,-,-,-}", "{-,-,x,-}", "{-,-,-,x}", "{-,-,-,y}"}) golden.row(conv, image(a), weights(w));
  constexpr auto grouped = [](auto a, auto w) { return ts::conv2d(a, w, {.groups = 4}); };
  for (const char* a : {"{-,-,-,x}", "{-,-,-,(x,y)}"})
    for (const char* w : {"{-,-,-,-}", "{-,-,-,x}", "{-,-,-,(x,y)}"})
      golden.row(grouped, image(a), f32({3, 3, 4, 32}, spec(w)));
  constexpr auto gradient = [](auto a, auto w) {
    return ts::grad([](const auto& v, const auto& k) {
      const auto y = ts::conv2d(v, k);
      return ts::sum(y * y);
    })(a, w);
  };
  golden.rule("fold", ts::Op::fold_patches, gradient, image("{}"), weights("{}"));
  for (const char* a : {"{x,-,-,-}", "{-,-,-,x}"}) golden.row(gradient, image(a), weights("{-,-,-,-}"));
  EXPECT_EQ(golden.text(), R"(
windows: abdf -> abcdef  b moved  c whole  d moved  e whole
product: abcdef, cefg -> abdg  c summed  e summed  f summed
  {-,-,-,-} {-,-,-,-} -> {-,-,-,-}
  {-,-,-,-} {-,-,x,-} -> {-,-,-,-} all_reduce(x) 18432
  {-,-,-,-} {-,-,-,x} -> {-,-,-,x}
  {-,-,-,-} {-,-,-,y} -> {-,-,-,y}
  {x,-,-,-} {-,-,-,-} -> {x,-,-,-}
  {x,-,-,-} {-,-,x,-} -> {x,-,-,-} all_to_all(x) 16384 reduce_scatter(x) 18432
  {x,-,-,-} {-,-,-,x} -> {-,-,-,x} all_gather(x) 16384
  {x,-,-,-} {-,-,-,y} -> {x,-,-,y}
  {-,x,-,-} {-,-,-,-} -> {-,x,-,-} permute(x) 2048
  {-,x,-,-} {-,-,x,-} -> {-,x,-,-} permute(x) 2048 all_to_all(x) 16384 reduce_scatter(x) 18432
  {-,x,-,-} {-,-,-,x} -> {-,-,-,x} permute(x) 2048 all_gather(x) 16384
  {-,x,-,-} {-,-,-,y} -> {-,x,-,y} permute(x) 2048
  {-,-,x,-} {-,-,-,-} -> {-,-,x,-} permute(x) 2048
  {-,-,x,-} {-,-,x,-} -> {-,-,x,-} permute(x) 2048 all_to_all(x) 16384 reduce_scatter(x) 18432
  {-,-,x,-} {-,-,-,x} -> {-,-,-,x} permute(x) 2048 all_gather(x) 16384
  {-,-,x,-} {-,-,-,y} -> {-,-,x,y} permute(x) 2048
  {-,-,-,x} {-,-,-,-} -> {-,-,-,-} all_reduce(x) 18432
  {-,-,-,x} {-,-,x,-} -> {-,-,-,-} all_reduce(x) 18432
  {-,-,-,x} {-,-,-,x} -> {-,-,-,x} all_gather(x) 16384
  {-,-,-,x} {-,-,-,y} -> {-,-,-,y} all_reduce(x) 9216
  {x,-,-,y} {-,-,-,-} -> {x,-,-,-} all_reduce(y) 9216
  {x,-,-,y} {-,-,x,-} -> {x,-,-,-} all_to_all(x) 8192 permute(x,y) 4096 all_gather(y) 8192 reduce_scatter(x) 18432
  {x,-,-,y} {-,-,-,x} -> {-,-,-,x} all_gather(x) 8192 all_reduce(y) 9216
  {x,-,-,y} {-,-,-,y} -> {x,-,-,y} all_gather(y) 8192
  {y,x,-,-} {-,-,-,-} -> {y,x,-,-} permute(x) 1024
  {y,x,-,-} {-,-,x,-} -> {y,x,-,-} permute(x) 1024 all_to_all(x) 8192 reduce_scatter(x) 9216
  {y,x,-,-} {-,-,-,x} -> {y,-,-,x} permute(x) 1024 all_gather(x) 8192
  {y,x,-,-} {-,-,-,y} -> {-,x,-,y} permute(x) 1024 all_gather(y) 8192 permute(x) 2048
  {-,-,-,x} {-,-,-,-} -> {-,-,-,x}
  {-,-,-,x} {-,-,-,x} -> {-,-,-,x}
  {-,-,-,x} {-,-,-,(x,y)} -> {-,-,-,(x,y)}
  {-,-,-,(x,y)} {-,-,-,-} -> {-,-,-,(x,y)}
  {-,-,-,(x,y)} {-,-,-,x} -> {-,-,-,(x,y)}
  {-,-,-,(x,y)} {-,-,-,(x,y)} -> {-,-,-,(x,y)}
fold: abcdef -> abdf  b moved  c whole  d moved  e whole
  {x,-,-,-} {-,-,-,-} -> {x,-,-,-}
  {-,-,-,x} {-,-,-,-} -> {-,-,-,-} all_reduce(x) 18432
)");
}

}  // namespace
