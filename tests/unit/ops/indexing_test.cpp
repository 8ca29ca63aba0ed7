#include <algorithm>
#include <cmath>

#include "../../support/untyped.hpp"

#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/index_put.hpp>

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

// Starts as lax.dynamic_slice documents them: clamped so that the slice is in range; negative ones count from the end.
TEST(Indexing, DynamicSlice) {
  const auto slice = [](const auto& v, const auto& at) { return ts::dynamic_slice<1>(v, at, 2); };
  const auto one = [](const auto& v, const auto& at) { return ts::dynamic_index<-1>(v, at); };
  const Array x = random_array({3, 5}, 6);
  for (const int start : {0, 2, 3, 4, 9, -1, -2, -4, -7}) {
    SCOPED_TRACE(start);
    const std::vector<Array> arguments{x, Array::number(start)};
    const std::int64_t from_front = start < 0 ? start + 5 : start;
    const Array out = run(trace<decltype(slice), Float<2>, Int<0>>().view(), arguments)[0];
    const Array single = run(trace<decltype(one), Float<2>, Int<0>>().view(), arguments)[0];
    ASSERT_EQ(out.shape, (Shape{3, 2}));
    ASSERT_EQ(single.shape, (Shape{3}));
    for_each_index(out.shape, [&](const Shape& i) {
      EXPECT_EQ(out.at(i), x.at({i[0], i[1] + std::clamp<std::int64_t>(from_front, 0, 3)}));
      EXPECT_EQ(single.at({i[0]}), x.at({i[0], std::clamp<std::int64_t>(from_front, 0, 4)}));
    });
    check_gradient<Float<2>, Int<0>>(slice, arguments);
    check_gradient<Float<2>, Int<0>>(one, arguments);
  }
}

TEST(Indexing, DynamicUpdateSlice) {
  const auto update = [](const auto& v, const auto& u, const auto& at) {
    return ts::dynamic_update_slice<0>(v * v, u * u, at);
  };
  const auto one = [](const auto& v, const auto& u, const auto& at) { return ts::dynamic_update_index<1>(v, u, at); };
  const Array x = random_array({5, 3}, 7), two = random_array({2, 3}, 8), column = random_array({5}, 9);
  for (const int start : {0, 1, 3, 4, -1, -3}) {
    SCOPED_TRACE(start);
    const std::int64_t first = std::clamp(start < 0 ? start + 5 : start, 0, 3),
                       place = std::clamp(start < 0 ? start + 3 : start, 0, 2);
    const Array out =
        run(trace<decltype(update), Float<2>, Float<2>, Int<0>>().view(), {x, two, Array::number(start)})[0];
    const Array columns =
        run(trace<decltype(one), Float<2>, Float<1>, Int<0>>().view(), {x, column, Array::number(start)})[0];
    for_each_index(x.shape, [&](const Shape& i) {
      const bool inside = i[0] >= first && i[0] < first + 2;
      EXPECT_EQ(out.at(i), std::pow(inside ? two.at({i[0] - first, i[1]}) : x.at(i), 2));
      EXPECT_EQ(columns.at(i), i[1] == place ? column.at({i[0]}) : x.at(i));
    });
    check_gradient<Float<2>, Float<2>, Int<0>>(update, {x, two, Array::number(start)});
  }
  const auto none = [](const auto& v, const auto& u, const auto& at) { return ts::dynamic_update_slice<0>(v, u, at); };
  EXPECT_EQ(
      run(trace<decltype(none), Float<2>, Float<2>, Int<0>>().view(), {x, Array({0, 3}), Array::number(1)})[0].data,
      x.data);
}

// Row by row in the order of the indices, which name some rows twice and some not at all.
TEST(Indexing, RowsPutAtIndices) {
  const auto f = [](const auto& v, const auto& i, const auto& rows, const auto& columns) {
    return std::tuple(ts::index_copy<0>(v, i, rows), ts::index_copy<-1>(v, i, columns), ts::index_add<0>(v, i, rows),
                      ts::index_add<1>(v, i, columns), ts::index_fill<0>(v, i, 0.5),
                      ts::index_fill<1>(v, i, ts::sum(rows)), ts::take(v, i));
  };
  const Array x = random_array({5, 4}, 11), rows = random_array({4, 4}, 12), columns = random_array({5, 4}, 13);
  const Array at({4}, {2, 0, 2, 3});
  const auto got = run(trace<decltype(f), Float<2>, Int<1>, Float<2>, Float<2>>().view(), {x, at, rows, columns});
  std::vector<Array> want(6, x);
  double total = 0;
  for (const double v : rows.data) total += v;
  for (std::int64_t k = 0; k < 4; ++k)
    for (std::int64_t j = 0; j < 5; ++j) {
      const auto place = static_cast<std::int64_t>(at.at({k}));
      if (j < 4) {
        want[0].at({place, j}) = rows.at({k, j});
        want[2].at({place, j}) += rows.at({k, j});
        want[4].at({place, j}) = 0.5;
      }
      want[1].at({j, place}) = columns.at({j, k});
      want[3].at({j, place}) += columns.at({j, k});
      want[5].at({j, place}) = total;
    }
  for (std::size_t k = 0; k < 6; ++k) expect_near(got[k], want[k], 1e-15, std::to_string(k));
  EXPECT_EQ(got[6].data, (std::vector<double>{x.at({0, 2}), x.at({0, 0}), x.at({0, 2}), x.at({0, 3})}));
  const auto smooth = [](const auto& v, const auto& i, const auto& r, const auto& c) {
    return ts::index_copy<0>(v * v, i, r * r) * ts::index_copy<1>(v, i, c) +
           ts::index_add<1>(v * v, i, c) * ts::index_fill<0>(v, i, ts::sum(r));
  };
  check_gradient<Float<2>, Int<1>, Float<2>, Float<2>>(smooth, {x, at, rows, columns});
}

TEST(Indexing, OneIndexForEachDim) {
  const auto f = [](const auto& v, const auto& i, const auto& j, const auto& rows) {
    const auto places = std::tuple(i, j);
    return std::tuple(ts::index(v, places), ts::index_put(v, places, rows), ts::index_put<true>(v, places, rows),
                      ts::index(v, std::tuple(ts::unsqueeze<1>(i), j)), ts::index(v, std::tuple(i, j, j)));
  };
  const Array x = random_array({3, 4, 2}, 14), rows = random_array({3, 2}, 15);
  const Array i({3}, {2, 0, 2}), j({3}, {1, 0, 1});
  const auto got = run(trace<decltype(f), Float<3>, Int<1>, Int<1>, Float<2>>().view(), {x, i, j, rows});
  Array set = x, sum = x;
  for (std::int64_t k = 0; k < 3; ++k) {
    const auto at = [&](const Array& of, std::int64_t n) { return static_cast<std::int64_t>(of.at({n})); };
    EXPECT_EQ(got[4].at({k}), x.at({at(i, k), at(j, k), at(j, k)}));
    for (std::int64_t e = 0; e < 2; ++e) {
      EXPECT_EQ(got[0].at({k, e}), x.at({at(i, k), at(j, k), e}));
      set.at({at(i, k), at(j, k), e}) = rows.at({k, e});
      sum.at({at(i, k), at(j, k), e}) += rows.at({k, e});
      for (std::int64_t l = 0; l < 3; ++l) EXPECT_EQ(got[3].at({k, l, e}), x.at({at(i, k), at(j, l), e}));
    }
  }
  EXPECT_EQ(got[1].data, set.data);
  expect_near(got[2], sum, 1e-15);
  const auto smooth = [](const auto& v, const auto& a, const auto& b, const auto& r) {
    return ts::index(ts::index_put(v * v, std::tuple(a, b), r * r), std::tuple(b, a)) *
           ts::index(ts::index_put<true>(v, std::tuple(b, b), r), std::tuple(a, b));
  };
  check_gradient<Float<3>, Int<1>, Int<1>, Float<2>>(smooth, {x, i, j, rows});
}

}  // namespace
