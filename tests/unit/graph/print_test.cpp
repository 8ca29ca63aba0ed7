#include "../../support/traced.hpp"

#include <tessera/graph/ir/print.hpp>

namespace ts = tessera;

namespace {

struct Layer {
  ts::ShardedTensor<float, 2> w;
  ts::Dim heads;
#line 100 "model.cpp"
  constexpr auto operator()(const auto& x) const {
    const auto y = ts::rearrange<"b (h d) -> b h d">(ts::matmul(x, w), ts::len<"h">(heads));
    return x + ts::merge_dims<1, 2>(ts::relu(y * 0.5));
  }
};
#line 200 "train.cpp"
constexpr auto loss = [](const auto& model, const auto& x, const ts::Scalar& key) {
  const auto y = ts::dropout(ts::with_sharding(model(x), {"data", ts::none}), 0.25, key);
  const auto most = ts::max<-1>(y, ts::keepdims);
  return std::tuple(most, 1.5 * ts::sum(ts::iota<0, float>(y)));
};
#line 20 "print_test.cpp"

TEST(Print, Text) {
  const oracle::Program program =
      oracle::trace<decltype(loss), ts::Stack<Layer>, ts::ShardedTensor<float, 2>, ts::Scalar>();
  EXPECT_EQ(ts::text_of(program.view()), R"(program
  %0 = argument[0, stacked] f32[?,?,?]
  %1 = argument[2] f32[?,?]
  %2 = scalar[3] f64
  %3 = repeat[graph 1, 1 carried, 1 stacked] (%1, %0)  train.cpp:201
  %4 = project[0] f32[?,?] (%3)  train.cpp:201
  %5 = constraint[{data,-}] f32[?,?] (%4)  train.cpp:201
  %6 = random[uniform, stream 0] f32[?,?] (%5, %2)  train.cpp:201
  %9 = greater_equal bool[?,?] (%6, 0.25)  train.cpp:201
  %10 = mul f32[?,?] (%5, 1.33333333)  train.cpp:201
  %12 = select f32[?,?] (%9, %10, 0)  train.cpp:201
  %13 = max[1, keepdims] f32[?,1] (%12)  train.cpp:202
  %14 = iota[0] f32[?,?] (%5)  train.cpp:203
  %15 = sum[0,1] f32 (%14)  train.cpp:203
  %17 = mul f32 (1.5, %15)  train.cpp:203
  return %13, %17
graph 1
  %0 = argument[0] f32[?,?]
  %1 = argument[1] f32[?,?]
  %2 = dim[1] i64
  %3 = einsum[ab,bc->ac] f32[?,?] (%0, %1)  model.cpp:101
  %4 = rearrange[a (b c) -> a b c] f32[?,?,?] (%3, -, %2, -)  model.cpp:101
  %6 = mul f32[?,?,?] (%4, 0.5)  model.cpp:102
  %7 = relu f32[?,?,?] (%6)  model.cpp:102
  %8 = rearrange[a b c -> a (b c)] f32[?,?] (%7)  model.cpp:102
  %9 = add f32[?,?] (%0, %8)  model.cpp:102
  return %9
)");
}

}  // namespace
