#include "../../support/untyped.hpp"

#include <tessera/ops/data_movement/rearrange.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

Array counted(const Shape& shape) {
  Array made(shape);
  for (std::size_t i = 0; i < made.data.size(); ++i) made.data[i] = static_cast<double>(i);
  return made;
}

TEST(Rearrange, HeadsOfAttention) {
  const Array x = counted({2, 3, 8});
  const auto split = [](const auto& v, const ts::Dim& heads) {
    return ts::rearrange<"b t (h d) -> b h t d">(v, ts::len<"h">(heads));
  };
  const Array y = apply<Float<3>, ts::Dim>(split, {x, Array::number(4)});
  ASSERT_EQ(y.shape, (Shape{2, 4, 3, 2}));
  for_each_index(y.shape, [&](const Shape& i) { EXPECT_EQ(y.at(i), x.at({i[0], i[2], i[1] * 2 + i[3]})); });
  check_gradient<Float<3>, ts::Dim>(split, {x, Array::number(4)});
  const auto there_and_back = [](const auto& v) {
    return ts::rearrange<"b h t d -> b t (h d)">(ts::rearrange<"b t (h d) -> b h t d">(v, ts::len<"d">(2)));
  };
  EXPECT_EQ(apply<Float<3>>(there_and_back, {x}).data, x.data);
}

TEST(Rearrange, UnitsSplitsAndMerges) {
  const Array x = counted({4, 6});
  const auto units = [](const auto& v) { return ts::rearrange<"a b -> 1 b 1 a">(v); };
  const Array y = apply<Float<2>>(units, {x});
  ASSERT_EQ(y.shape, (Shape{1, 6, 1, 4}));
  for_each_index(y.shape, [&](const Shape& i) { EXPECT_EQ(y.at(i), x.at({i[3], i[1]})); });
  const auto back = [](const auto& v) { return ts::rearrange<"1 b 1 a -> a b">(ts::rearrange<"a b -> 1 b 1 a">(v)); };
  EXPECT_EQ(apply<Float<2>>(back, {x}).data, x.data);
  check_gradient<Float<2>>(units, {x});

  const auto merged = [](const auto& v) { return ts::rearrange<"(a b) c -> b (c a)">(v, ts::len<"a">(2)); };
  const Array z = apply<Float<2>>(merged, {x});
  ASSERT_EQ(z.shape, (Shape{2, 12}));
  for_each_index(z.shape, [&](const Shape& i) { EXPECT_EQ(z.at(i), x.at({i[1] % 2 * 2 + i[0], i[1] / 2})); });
  check_gradient<Float<2>>(merged, {x});
}

TEST(Rearrange, OtherForms) {
  const Array x = counted({2, 3, 4});
  const Array t = apply<Float<3>>([](const auto& v) { return ts::transpose<2, 0, 1>(v); }, {x});
  ASSERT_EQ(t.shape, (Shape{4, 2, 3}));
  for_each_index(t.shape, [&](const Shape& i) { EXPECT_EQ(t.at(i), x.at({i[1], i[2], i[0]})); });
  check_gradient<Float<3>>([](const auto& v) { return ts::transpose<2, 0, 1>(v * v); }, {x});
  const auto counted_from_the_back = [](const auto& v) { return ts::transpose<-1, 0, -2>(v); };
  EXPECT_EQ(apply<Float<3>>(counted_from_the_back, {x}).data, t.data);
  const Array reversed = apply<Float<3>>([](const auto& v) { return ts::transpose(v); }, {x});
  ASSERT_EQ(reversed.shape, (Shape{4, 3, 2}));
  for_each_index(reversed.shape, [&](const Shape& i) { EXPECT_EQ(reversed.at(i), x.at({i[2], i[1], i[0]})); });

  const auto split = [](const auto& v) { return ts::split_dim<-1>(v, 2); };
  EXPECT_EQ(apply<Float<3>>(split, {x}).shape, (Shape{2, 3, 2, 2}));
  EXPECT_EQ(apply<Float<3>>(split, {x}).data, x.data);
  const auto split_three = [](const auto& v, const ts::Dim& n) { return ts::split_dim<2>(v, n, 1); };
  EXPECT_EQ((apply<Float<3>, ts::Dim>(split_three, {x, Array::number(2)}).shape), (Shape{2, 3, 2, 2, 1}));
  const auto merge = [](const auto& v) { return ts::merge_dims<0, 1>(v); };
  EXPECT_EQ(apply<Float<3>>(merge, {x}).shape, (Shape{6, 4}));
  EXPECT_EQ(apply<Float<3>>(merge, {x}).data, x.data);
  check_gradient<Float<3>>([](const auto& v) { return ts::merge_dims<1, -1>(ts::split_dim<0>(v, 2)); }, {x});

  const auto unit = [](const auto& v) { return ts::unsqueeze<1>(v); };
  EXPECT_EQ(apply<Float<3>>(unit, {x}).shape, (Shape{2, 1, 3, 4}));
  EXPECT_EQ(apply<Float<3>>([](const auto& v) { return ts::unsqueeze<-1>(v); }, {x}).shape, (Shape{2, 3, 4, 1}));
  EXPECT_EQ(apply<Float<3>>([](const auto& v) { return ts::squeeze<1>(ts::unsqueeze<1>(v)); }, {x}).data, x.data);
  check_gradient<Float<3>>([](const auto& v) { return ts::squeeze<-2>(ts::sum<1>(v * v, ts::keepdims)); }, {x});
  EXPECT_THROW((trace<decltype([](const auto& v) { return ts::rearrange<"1 a b -> a b">(v); }), Float<3>>()),
               ts::error);
}

TEST(Rearrange, Texts) {
  using Text = ts::detail::RearrangeText;
  static_assert(Text("a b -> b a").valid && Text("(a b) 1 -> a_1 b").valid == false && Text("(a1 b) 1 -> b a1").valid);
  static_assert(!Text("a b b a").valid && !Text("a b -> a").valid && !Text("a -> a a").valid &&
                !Text("a a -> a").valid);
  static_assert(!Text("(a b -> a b").valid && !Text("a) -> a").valid && !Text("((a)) -> a").valid &&
                !Text("() a -> a").valid);
  static_assert(!Text("a 2 -> a").valid && !Text("a -> a b").valid &&
                !Text("a b c d e f g h i -> a b c d e f g h i").valid);
  static_assert(Text("a (b c) -> (c a) b").rank_in == 2 && Text("a (b c) -> (c a) 1 b").rank_out == 3);
  static_assert(!Text("(a b) -> a b").determined(0) && Text("(a b) -> a b").determined(1));
}

// Random factors over random dims, some of static extent 1, with and without given sizes.
TEST(Rearrange, GradientOfRandomFactors) {
  std::mt19937 engine(5);
  const auto roll = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine); };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    ts::Factors f{};
    std::int64_t extent[8];
    UntypedProgram program;
    std::int32_t sizes[8];
    Shape from, to;
    unsigned unit = 0;
    int rank = 0;
    std::vector<std::pair<int, std::int64_t>> given;
    while (f.count < 5 && rank < 4) {
      const int parts = roll(4);  // none: a dim of static extent 1
      if (parts == 0) unit |= 1u << rank;
      std::int64_t n = 1;
      const int open = parts == 0 ? -1 : roll(parts);
      for (int p = 0; p < parts && f.count < 8; ++p) {
        extent[f.count] = 1 + roll(3);
        n *= extent[f.count];
        f.in_dim[f.count] = static_cast<std::int8_t>(rank);
        if (p != open || roll(2) == 0) given.emplace_back(f.count, extent[f.count]);
        ++f.count;
      }
      from.push_back(n);
      ++rank;
    }
    const ts::Value x = program.argument(rank, unit);
    for (auto& s : sizes) s = -1;
    for (const auto& [factor, n] : given) sizes[factor] = program.number(static_cast<double>(n)).id;
    std::vector<std::int8_t> order;
    for (int p = 0; p < f.count; ++p) order.push_back(static_cast<std::int8_t>(p));
    std::shuffle(order.begin(), order.end(), engine);
    int out = 0;
    for (int p = 0; p < f.count; ++p) {
      f.order[p] = order[static_cast<std::size_t>(p)];
      if (p > 0 && roll(2) == 0 && out < 6) ++out;
      if (roll(6) == 0 && out < 6) ++out;
      f.out_dim[p] = static_cast<std::int8_t>(out);
      while (static_cast<int>(to.size()) <= out) to.push_back(1);
      to[static_cast<std::size_t>(out)] *= extent[f.order[p]];
    }
    const ts::Value y = ts::build::rearrange(x, static_cast<int>(to.size()), f, sizes);
    program.output_gradients(y);
    check_against_differences(program.finish(), {random_array(from, 1), random_array(to, 2)}, {true});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
