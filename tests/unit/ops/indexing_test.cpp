#include <algorithm>
#include <cmath>

#include "../../support/untyped.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/embedding_bag.hpp>
#include <tessera/ops/indexing/index_mode.hpp>
#include <tessera/ops/indexing/index_put.hpp>
#include <tessera/ops/indexing/nonzero.hpp>
#include <tessera/ops/indexing/segment.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/ops/sorting/unique.hpp>
#include <tessera/partition/propagation/shapes.hpp>

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

// jax.ops.segment_sum, segment_max, segment_min and segment_prod; segment_mean and segment_softmax by their
// definitions.
TEST(Indexing, ReductionsOfSegments) {
  using Ids = ts::ShardedTensor<std::int32_t, 1>;
  const Array x = random_array({6, 2}, 7, 0.5, 2), of({6}, {3, 0, 3, 0, 1, 3});
  const auto all = [](const auto& rows, const auto& ids) {
    return std::tuple(ts::segment_sum(rows, ids, 5), ts::segment_mean(rows, ids, 5), ts::segment_max(rows, ids, 5),
                      ts::segment_min(rows, ids, 5), ts::segment_prod(rows, ids, 5), ts::segment_softmax(rows, ids, 5));
  };
  const std::vector<Array> got = run(trace<decltype(all), Float<2>, Ids>().view(), {x, of});
  for (std::int64_t segment = 0; segment < 5; ++segment)
    for (std::int64_t c = 0; c < 2; ++c) {
      double sum = 0, count = 0, most = -INFINITY, least = INFINITY, product = 1, weights = 0;
      for (std::int64_t r = 0; r < 6; ++r) {
        if (of.at({r}) != static_cast<double>(segment)) continue;
        const double v = x.at({r, c});
        sum += v, count += 1, most = std::max(most, v), least = std::min(least, v), product *= v,
                              weights += std::exp(v);
      }
      EXPECT_NEAR(got[0].at({segment, c}), sum, 1e-12);
      EXPECT_NEAR(got[1].at({segment, c}), sum / std::max(count, 1.0), 1e-12);
      EXPECT_EQ(got[2].at({segment, c}), most);
      EXPECT_EQ(got[3].at({segment, c}), least);
      EXPECT_NEAR(got[4].at({segment, c}), product, 1e-12);
      for (std::int64_t r = 0; r < 6; ++r)
        if (of.at({r}) == static_cast<double>(segment))
          EXPECT_NEAR(got[5].at({r, c}), std::exp(x.at({r, c})) / weights, 1e-12);
    }
  check_gradient<Float<2>, Ids>([](const auto& r, const auto& i) { return ts::segment_mean(r * r, i, 5); }, {x, of});
  check_gradient<Float<2>, Ids>([](const auto& r, const auto& i) { return ts::segment_softmax(r, i, 5); }, {x, of});
  check_gradient<Float<1>, Ids>([](const auto& r, const auto& i) { return ts::segment_sum(r * r, i, 5); },
                                {random_array({6}, 8), of});
  const auto whole = [](const auto& rows, const auto& ids) {
    return std::pair(ts::segment_max(rows, ids, 3), ts::segment_min(rows, ids, 3));
  };
  using Numbers = ts::ShardedTensor<std::uint8_t, 1>;
  const auto numbers = run(trace<decltype(whole), Numbers, Ids>().view(), {Array({2}, {7, 9}), Array({2}, {2, 2})});
  EXPECT_EQ(numbers[0].data, (std::vector<double>{0, 0, 9}));
  EXPECT_EQ(numbers[1].data, (std::vector<double>{255, 255, 7}));
}

TEST(Indexing, MistakesOfSegmentsNameTheirFunction) {
  const auto sums = [](const auto& rows, const auto& ids) { return ts::segment_sum(rows, ids, 5); };
  const std::vector<ts::Shape> shapes{{4, 2}, {3}};
  tessera_test::expect_error(
      ts::errc::shape_mismatch,
      [&] {
        ts::infer_shapes(trace<decltype(sums), Float<2>, ts::ShardedTensor<std::int32_t, 1>>().view(), shapes.data(),
                         nullptr);
      },
      "f32[4,2] x i32[3] x f32[5,2] in segment_sum at ", "indexing_test.cpp:");
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

// The modes of jnp.take, take_along_axis and x.at[...], without indices from the end.
TEST(Indexing, IndicesOutsideOfTheirDim) {
  const std::int64_t n = 5;
  const Array x = random_array({n, 4}, 11), along = random_array({3, 4}, 12), rows = random_array({6, 4}, 13),
              columns = random_array({n, 3}, 14);
  const Array at({3, 4}, {2, -1, 5, 4, 0, 9, 1, -7, 3, 3, 3, 5}), at_rows({6}, {4, 5, -1, 0, 4, 100}),
      at_columns({3}, {7, 2, -2});
  const auto lookups = [](const auto& v, const auto& i, const auto& r, const auto& c) {
    using enum ts::IndexMode;
    return std::tuple(ts::gather<0, clip>(v, i), ts::gather<0, fill>(v, i, 0.5), ts::embedding<clip>(v, r),
                      ts::embedding<fill>(v, r, -1), ts::index_select<1, clip>(v, c), ts::index_select<1, fill>(v, c),
                      ts::index_select<0, fill>(ts::cast<std::int32_t>(v * 9.0), r));
  };
  const auto found =
      run(trace<decltype(lookups), Float<2>, Int<2>, Int<1>, Int<1>>().view(), {x, at, at_rows, at_columns});
  const auto expect_lookup = [](const Array& got, const Array& index, const auto& near, double filled,
                                const auto& element) {
    for_each_index(got.shape, [&](const Shape& i) {
      const std::int64_t wanted = near(i, index);
      const auto [extent, value] = element(i, wanted);
      const bool inside = wanted >= 0 && wanted < extent;
      EXPECT_TRUE(got.at(i) == (inside ? value : filled) || (!inside && std::isnan(filled) && std::isnan(got.at(i))));
    });
  };
  const auto integer = [](double v) { return static_cast<std::int64_t>(v); };
  const auto clamped = [](std::int64_t i, std::int64_t extent) { return std::clamp<std::int64_t>(i, 0, extent - 1); };
  const auto own = [&](const Shape& i, const Array& index) { return integer(index.at(i)); };
  const auto own_clamped = [&](const Shape& i, const Array& index) { return clamped(integer(index.at(i)), n); };
  const auto of_row = [&](const Shape& i, const Array& index) { return integer(index.at({i[0]})); };
  const auto of_row_clamped = [&](const Shape& i, const Array& index) { return clamped(integer(index.at({i[0]})), n); };
  const auto of_column = [&](const Shape& i, const Array& index) { return integer(index.at({i[1]})); };
  const auto of_column_clamped = [&](const Shape& i, const Array& index) {
    return clamped(integer(index.at({i[1]})), 4);
  };
  const auto down = [&](const Shape& i, std::int64_t row) {
    return std::pair(n, row >= 0 && row < n ? x.at({row, i[1]}) : 0);
  };
  const auto across = [&](const Shape& i, std::int64_t column) {
    return std::pair(std::int64_t{4}, column >= 0 && column < 4 ? x.at({i[0], column}) : 0);
  };
  const auto whole = [&](const Shape& i, std::int64_t row) {
    return std::pair(n, row >= 0 && row < n ? std::trunc(x.at({row, i[1]}) * 9) : 0);
  };
  expect_lookup(found[0], at, own_clamped, 0, down);
  expect_lookup(found[1], at, own, 0.5, down);
  expect_lookup(found[2], at_rows, of_row_clamped, 0, down);
  expect_lookup(found[3], at_rows, of_row, -1, down);
  expect_lookup(found[4], at_columns, of_column_clamped, 0, across);
  expect_lookup(found[5], at_columns, of_column, NAN, across);
  expect_lookup(found[6], at_rows, of_row, -2147483648.0, whole);

  const auto writes = [](const auto& v, const auto& i, const auto& source, const auto& r, const auto& of_rows,
                         const auto& c, const auto& of_columns) {
    using enum ts::IndexMode;
    return std::tuple(ts::scatter<0, drop>(v, i, source), ts::scatter<0, clip>(v, i, source),
                      ts::scatter_add<0, drop>(v, i, source), ts::scatter_add<0, clip>(v, i, source),
                      ts::index_copy<0, drop>(v, r, of_rows), ts::index_copy<1, clip>(v, c, of_columns),
                      ts::index_add<0, clip>(v, r, of_rows), ts::index_add<1, drop>(v, c, of_columns));
  };
  const std::vector<Array> arguments{x, at, along, at_rows, rows, at_columns, columns};
  const auto written =
      run(trace<decltype(writes), Float<2>, Int<2>, Float<2>, Int<1>, Float<2>, Int<1>, Float<2>>().view(), arguments);
  std::vector<Array> want(8, x);
  const auto write = [&](Array& to, bool clips, bool adds, Shape place, std::size_t dim, double value) {
    const std::int64_t extent = dim == 0 ? n : 4;
    if (clips) place[dim] = clamped(place[dim], extent);
    if (place[dim] < 0 || place[dim] >= extent) return;
    to.at(place) = adds ? to.at(place) + value : value;
  };
  for_each_index(along.shape, [&](const Shape& i) {
    for (const std::size_t k : {0, 1, 2, 3})
      write(want[k], k % 2 == 1, k >= 2, {integer(at.at(i)), i[1]}, 0, along.at(i));
  });
  for_each_index(rows.shape, [&](const Shape& i) {
    for (const std::size_t k : {4, 6})
      write(want[k], k == 6, k == 6, {integer(at_rows.at({i[0]})), i[1]}, 0, rows.at(i));
  });
  for_each_index({3, n}, [&](const Shape& i) {
    for (const std::size_t k : {5, 7})
      write(want[k], k == 5, k == 7, {i[1], integer(at_columns.at({i[0]}))}, 1, columns.at({i[1], i[0]}));
  });
  for (std::size_t k = 0; k < 8; ++k) expect_near(written[k], want[k], 1e-15, std::to_string(k));

  check_gradient<Float<2>, Int<2>, Int<1>>(
      [](const auto& v, const auto& i, const auto& r) {
        using enum ts::IndexMode;
        const auto filled = ts::embedding<fill>(v * v, r, 2);
        const auto nearest = ts::index_select<0, clip>(v, r);
        return ts::sum<0>(ts::gather<0, fill>(v * v, i, 0) * ts::gather<0, clip>(v, i)) + ts::sum<0>(filled * nearest);
      },
      {x, at, at_rows});
  check_gradient<Float<2>, Int<2>, Float<2>, Int<1>, Float<2>>(
      [](const auto& v, const auto& i, const auto& source, const auto& r, const auto& of_rows) {
        using enum ts::IndexMode;
        return ts::scatter<0, drop>(v * v, i, source * source) * ts::scatter_add<0, drop>(v, i, source) +
               ts::index_copy<0, drop>(v * v, r, of_rows) * ts::index_add<0, drop>(v, r, of_rows);
      },
      {x, at, along, at_rows, rows});
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

// A mask is broadcast to the tensor from which it selects, as in torch.masked_select, which refuses other shapes too.
TEST(Indexing, AMaskHasTheShapeOfWhatItSelectsFrom) {
  const auto select = [](const auto& v, const auto& mask) { return ts::masked_select(v, mask > 0, 3); };
  const auto by_row = [](const auto& v, const auto& mask) {
    return ts::masked_select(v, ts::unsqueeze<1>(mask) > 0, 3);
  };
  const Array vector({4}, {1, 2, 3, 4}), matrix({3, 2}, {1, 2, 3, 4, 5, 6});
  const Program of_vector = trace<decltype(select), Float<1>, Float<1>>();
  const Program of_matrix = trace<decltype(select), Float<2>, Float<2>>();
  const Program of_columns = trace<decltype(select), Float<2>, Float<1>>();
  const Program of_rows = trace<decltype(by_row), Float<2>, Float<1>>();
  EXPECT_EQ(run(of_vector.view(), {vector, Array({4}, {0, 1, 0, 1})})[0].data, (std::vector<double>{2, 4, 0}));
  EXPECT_EQ(run(of_columns.view(), {matrix, Array({2}, {0, 1})})[0].data, (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(run(of_rows.view(), {matrix, Array({3}, {0, 1, 1})})[0].data, (std::vector<double>{3, 4, 5}));
  const auto refused = [](const Program& program, const Shape& of_x, const Shape& of_mask, const char* text) {
    const ts::Shape shapes[] = {of_x, of_mask};
    const ts::HostNumber numbers[] = {0, 0};
    tessera_test::expect_error(
        ts::errc::shape_mismatch, [&] { ts::infer_shapes(program.view(), shapes, numbers); }, text,
        "indexing_test.cpp:");
  };
  refused(of_vector, {4}, {5},
          "[masked_select] the mask must have the shape of the tensor from which it selects: f32[4] x f32[5]");
  refused(of_vector, {4}, {3}, "f32[4] x f32[3]");
  refused(of_matrix, {3, 2}, {3, 3}, "f32[3,2] x f32[3,3]");
  refused(of_columns, {3, 2}, {3}, "bool[3] x f32[3,2] in masked_select");
  refused(of_rows, {3, 2}, {2}, "bool[2,1] x f32[3,2] in masked_select");
}

// jnp.nonzero, argwhere and x[mask] with sizes below and above the number of elements that hold.
TEST(Indexing, ElementsForWhichAConditionHolds) {
  const auto f = [](const auto& v, const auto& s, const ts::Dim& k) {
    const auto mask = v > 0;
    const auto [i, j] = ts::nonzero(mask, k, -1);
    return std::tuple(i, j, ts::argwhere<std::int64_t>(mask, k), ts::masked_select(v, mask, k, 7),
                      ts::masked_scatter(v, mask, s), ts::argwhere(s, k));
  };
  const Array v({3, 4}, {1, -1, 2, 0, -3, -4, -5, 6, 0, 7, 8, -2}), s({5}, {10, 0, 30, 40, 50});
  const std::vector<std::int64_t> flat{0, 2, 7, 9, 10}, nonzero{0, 2, 3, 4};
  const Program program = trace<decltype(f), Float<2>, Float<1>, ts::Dim>();
  for (const std::int64_t k : {0, 2, 5, 9}) {
    SCOPED_TRACE(k);
    const auto got = run(program.view(), {v, s, Array::number(static_cast<double>(k))});
    ASSERT_EQ(got[2].shape, (Shape{k, 2}));
    for (std::int64_t e = 0; e < k; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const bool found = at < flat.size();
      EXPECT_EQ(got[0].at({e}), found ? flat[at] / 4 : -1);
      EXPECT_EQ(got[1].at({e}), found ? flat[at] % 4 : -1);
      EXPECT_EQ(got[2].at({e, 0}), found ? flat[at] / 4 : 0);
      EXPECT_EQ(got[2].at({e, 1}), found ? flat[at] % 4 : 0);
      EXPECT_EQ(got[3].at({e}), found ? v.data[static_cast<std::size_t>(flat[at])] : 7);
      EXPECT_EQ(got[5].at({e, 0}), at < nonzero.size() ? nonzero[at] : 0);
    }
    EXPECT_EQ(got[4].data, (std::vector<double>{10, -1, 0, 0, -3, -4, -5, 30, 0, 40, 50, -2}));
  }
  const auto smooth = [](const auto& a, const auto& mask, const auto& b) {
    return ts::masked_scatter(a * a, mask, b * b) * ts::sum(ts::masked_select(a * a * a, mask, 4));
  };
  check_gradient<Float<2>, ts::ShardedTensor<bool, 2>, Float<1>>(
      smooth, {random_array({3, 2}, 16), Array({3, 2}, {1, 0, 0, 1, 1, 0}), random_array({4}, 17)});
}

// jnp.unique with a size, and torch.unique_consecutive.
TEST(Indexing, DistinctElements) {
  const double nan = std::nan("");
  const auto f = [](const auto& v, const ts::Dim& k) {
    const auto all = ts::unique(v, k);
    const auto runs = ts::unique_consecutive(v, k);
    return std::tuple(all.values, all.counts, all.inverse, all.count, runs.values, runs.counts, runs.inverse,
                      runs.count);
  };
  using Values = std::vector<double>;
  const Program program = trace<decltype(f), Float<2>, ts::Dim>();
  const Array v({2, 4}, {3, 1, 1, 2, 2, 3, 3, 3});
  const auto got = run(program.view(), {v, Array::number(5)});
  EXPECT_EQ(got[0].data, (Values{1, 2, 3, 1, 1}));
  EXPECT_EQ(got[1].data, (Values{2, 2, 4, 0, 0}));
  EXPECT_EQ(got[2].data, (Values{2, 0, 0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(got[3].data, Values{3});
  EXPECT_EQ(got[4].data, (Values{3, 1, 2, 3, 3}));
  EXPECT_EQ(got[5].data, (Values{1, 2, 2, 3, 0}));
  EXPECT_EQ(got[6].data, (Values{0, 1, 1, 2, 2, 3, 3, 3}));
  EXPECT_EQ(got[7].data, Values{4});
  const auto few = run(program.view(), {v, Array::number(2)});
  EXPECT_EQ(few[0].data, (Values{1, 2}));
  EXPECT_EQ(few[1].data, (Values{2, 2}));
  EXPECT_EQ(few[3].data, Values{3});
  const auto numbers = run(program.view(), {Array({1, 4}, {nan, 0, nan, 0}), Array::number(2)});
  EXPECT_EQ(numbers[0].data[0], 0);
  EXPECT_TRUE(std::isnan(numbers[0].data[1]));
  EXPECT_EQ(numbers[1].data, (Values{2, 2}));
  const auto none = run(program.view(), {Array({0, 1}), Array::number(2)});
  EXPECT_EQ(none[0].data, (Values{0, 0}));
  EXPECT_EQ(none[3].data, Values{0});
}

// Bags of 2, 0, 3 and 0 rows.
TEST(Indexing, Bags) {
  const auto f = [](const auto& t, const auto& i, const auto& o, const auto& w) {
    return std::tuple(ts::embedding_bag(t, i, o), ts::embedding_bag<ts::BagMode::mean>(t, i, o),
                      ts::embedding_bag<ts::BagMode::max>(t, i, o), ts::embedding_bag(t, i, o, w));
  };
  const Array i({5}, {3, 0, 3, 2, 3}), offsets({4}, {0, 2, 2, 5}), w = random_array({5}, 18);
  const auto got = run(trace<decltype(f), Float<2>, Int<1>, Int<1>, Float<1>>().view(), {table, i, offsets, w});
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t e = 0; e < 3; ++e) {
      const auto first = static_cast<std::int64_t>(offsets.at({b})),
                 last = b == 3 ? 5 : static_cast<std::int64_t>(offsets.at({b + 1}));
      double sum = 0, weighted = 0, most = last > first ? -INFINITY : 0;
      for (std::int64_t k = first; k < last; ++k) {
        const double row = table.at({static_cast<std::int64_t>(i.at({k})), e});
        sum += row;
        weighted += row * w.at({k});
        most = std::max(most, row);
      }
      EXPECT_NEAR(got[0].at({b, e}), sum, 1e-15);
      EXPECT_NEAR(got[1].at({b, e}), last > first ? sum / static_cast<double>(last - first) : 0, 1e-15);
      EXPECT_EQ(got[2].at({b, e}), most);
      EXPECT_NEAR(got[3].at({b, e}), weighted, 1e-15);
    }
  const auto smooth = [](const auto& t, const auto& at, const auto& o, const auto& weights) {
    return ts::embedding_bag(t, at, o, weights) + ts::embedding_bag<ts::BagMode::mean>(t * t, at, o);
  };
  check_gradient<Float<2>, Int<1>, Int<1>, Float<1>>(smooth, {table, i, offsets, w});
  const auto most = [](const auto& t, const auto& at, const auto& o) {
    return ts::embedding_bag<ts::BagMode::max>(t * t, at, o);
  };
  check_gradient<Float<2>, Int<1>, Int<1>>(most, {table, Array({4}, {3, 0, 2, 1}), Array({3}, {0, 3, 3})});
}

TEST(Indexing, Distances) {
  const auto f = [](const auto& v, const auto& u) {
    return std::tuple(ts::cdist(v, u), ts::cdist(v, u, 1), ts::pdist(v), ts::logical_xor(v, u < 0));
  };
  const Array v = random_array({3, 4}, 19), u = random_array({3, 4}, 20);
  const auto got = run(trace<decltype(f), Float<2>, Float<2>>().view(), {v, u});
  ASSERT_EQ(got[2].shape, (Shape{3}));
  std::int64_t pair = 0;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      double squares = 0, sums = 0, own = 0;
      for (std::int64_t k = 0; k < 4; ++k) {
        squares += std::pow(v.at({i, k}) - u.at({j, k}), 2);
        sums += std::fabs(v.at({i, k}) - u.at({j, k}));
        own += std::pow(v.at({i, k}) - v.at({j, k}), 2);
      }
      EXPECT_NEAR(got[0].at({i, j}), std::sqrt(squares), 1e-14);
      EXPECT_NEAR(got[1].at({i, j}), sums, 1e-14);
      if (j > i) {
        EXPECT_NEAR(got[2].at({pair}), std::sqrt(own), 1e-14);
        ++pair;
      }
      EXPECT_EQ(got[3].at({i, j}), (v.at({i, j}) != 0) != (u.at({i, j}) < 0));
    }
  check_gradient<Float<2>, Float<2>>([](const auto& a, const auto& b) { return ts::cdist(a, b) * ts::cdist(a, b, 1); },
                                     {v, u}, first_order);
  check_gradient<Float<2>>([](const auto& a) { return ts::pdist(a); }, {v}, first_order);
}

}  // namespace
