#include "../../support/untyped.hpp"

#include <tessera/ops/indexing/embedding.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array table = random_array({4, 3}, 1);
const Array ids({2, 2}, {3, 0, 3, 3});

TEST(Indexing, GatherAndItsScatter) {
  const auto f = [](const auto& t, const auto& i) { return ts::embedding(t, i); };
  const Array out = run(trace<decltype(f), Float<2>, Int<2>>().view(), {table, ids})[0];
  ASSERT_EQ(out.shape, (Shape{2, 2, 3}));
  for_each_index(out.shape, [&](const Shape& i) {
    EXPECT_EQ(out.at(i), table.at({static_cast<std::int64_t>(ids.at({i[0], i[1]})), i[2]}));
  });
  // Gradients of rows that are looked up three times add up; the second derivative uses the gradient of index_add.
  const auto squared = [](const auto& t, const auto& i) { return ts::embedding(t * t, i) * ts::embedding(t, i); };
  check_gradient<Float<2>, Int<2>>(squared, {table, ids});
  check_gradient<Float<1>, ts::ShardedTensor<std::int64_t, 1>>(f, {random_array({5}, 2), Array({3}, {4, 1, 4})});
  EXPECT_EQ((trace<FirstGradient<decltype(f)>, std::tuple<Float<2>, Int<2>>, Float<3>>().count(Op::index_add)), 1);
}

TEST(Indexing, IntegersPassThroughAGradientUntouched) {
  const auto f = [](const auto& t, const auto& i) { return ts::embedding(t, i); };
  const auto out = run(trace<FirstGradient<decltype(f)>, std::tuple<Float<2>, Int<2>>, Float<3>>().view(),
                       {table, ids, Array({2, 2, 3}, 1)});
  EXPECT_EQ(out.at(2).data, ids.data);
}

TEST(Indexing, GradientOfScatter) {
  UntypedProgram program;
  const ts::Value rows = program.argument(3), index = program.argument(2, 0, ts::DType::i32),
                  like = program.argument(2);
  const Node node{.op = Op::index_add, .dtype = ts::DType::f32, .rank = 2};
  program.output_gradients((rows * rows).make(node, {(rows * rows).id, index.id, like.id}));
  const Program finished = program.finish();
  const std::vector<Array> arguments{random_array({2, 2, 3}, 4), ids, table, random_array({4, 3}, 5)};
  // Operands with gradients: the rows; also the table, of which only the shape is used.
  const auto out = run(finished.view(), arguments);
  const auto loss = [&](const auto& at) { return run(finished.view(), at)[0].data[0]; };
  expect_near(out.at(1), finite_difference(loss, arguments, 0), 1e-6);
  EXPECT_EQ(out.at(2).data, std::vector<double>(12, 0));
}

}  // namespace
