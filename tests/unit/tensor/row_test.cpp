// x[i], the rows of a tensor, as PyTorch and JAX have it.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

constexpr std::int64_t rows = 5, columns = 3;
std::vector<float> numbers() {
  std::vector<float> made;
  for (int k = 0; k < rows * columns; ++k) made.push_back(static_cast<float>(k * k - 7 * k));
  return made;
}
/// Row i of the matrix, computed on the host.
std::vector<float> row(std::int64_t i) {
  const auto all = numbers();
  const auto at = i < 0 ? i + rows : i;
  return {all.begin() + at * columns, all.begin() + (at + 1) * columns};
}
const ts::PartitionSpec specs[] = {{}, {"x"}, {ts::none, "x"}};

TEST(Row, OfAStoredTensor) {
  const ts::Mesh mesh({{"x", 2}});
  for (const auto& spec : specs) {
    const auto x = ts::shard(numbers(), {rows, columns}, mesh, spec);
    for (std::int64_t i = -rows; i < rows; ++i) {
      EXPECT_EQ(ts::to_host(ts::eval(x[i])), row(i));
      EXPECT_EQ(ts::to_host(ts::eval(x[ts::Dim(i)])), row(i));
      EXPECT_EQ(ts::to_host(ts::eval(x[ts::Scalar(i)])), row(i));
      EXPECT_EQ(ts::to_host(ts::eval(x[ts::full<std::int32_t>({}, static_cast<std::int32_t>(i), mesh)])), row(i));
      const auto wide = ts::full<std::int64_t>({}, i, mesh);
      EXPECT_EQ(ts::to_host(ts::eval(x[wide])), row(i));
      EXPECT_EQ(ts::to_host(ts::eval(x[wide * 1])), row(i));
    }
    EXPECT_EQ(ts::item(x[2][1]), row(2)[1]);
    EXPECT_EQ(ts::item((x * 2.f)[-1][-1]), 2 * row(4)[2]);
    EXPECT_EQ(ts::item(x[std::uint8_t{3}][0]), row(3)[0]);
  }
}

TEST(Row, NegativeAndOutOfRangeAsSelect) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard(numbers(), {rows, columns}, mesh, {"x"});
  const auto message = [&](const auto& f) -> std::string {
    try {
      (void)f();
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), ts::errc::shape_mismatch);
      return e.what();
    }
    return "no error";
  };
  // clang-format off
  const std::string own = message([&] { return ts::eval(x[5]); }), line = "row_test.cpp:" + std::to_string(__LINE__);
  const std::string select = message([&] { return ts::eval(ts::select<0>(x, 5)); });
  // clang-format on
  EXPECT_EQ(own.substr(0, own.find(" at ")), select.substr(0, select.find(" at ")));
  EXPECT_NE(own.find("[select] index 5 is outside of dim 0 of f32[5,3]"), std::string::npos) << own;
  EXPECT_NE(own.find(line), std::string::npos) << own;
  EXPECT_NE(message([&] { return ts::eval(x[-6]); }).find("index -6 is outside of dim 0"), std::string::npos);
}

TEST(Row, InATrace) {
  static constexpr auto f = ts::compile([](const auto& x, const auto& i, const ts::Dim& d, const ts::Scalar& s) {
    return std::tuple(x[1], x[-1], x[d], x[s], x[i], x[i - 1], x[2][i - 2], x[ts::extent<0>(x) - 2]);
  });
  for (const int devices : {1, 2}) {
    const ts::Mesh mesh({{"x", devices}});
    for (const auto& spec : specs) {
      const auto x = ts::shard(numbers(), {rows, columns}, mesh, spec);
      const auto i = ts::full<std::int32_t>({}, 3, mesh);
      const auto [one, last, of_dim, of_scalar, of_tensor, before, element, second_last] =
          f(x, i, ts::Dim(2), ts::Scalar(4));
      EXPECT_EQ(ts::to_host(one), row(1));
      EXPECT_EQ(ts::to_host(last), row(4));
      EXPECT_EQ(ts::to_host(of_dim), row(2));
      EXPECT_EQ(ts::to_host(of_scalar), row(4));
      EXPECT_EQ(ts::to_host(of_tensor), row(3));
      EXPECT_EQ(ts::to_host(before), row(2));
      EXPECT_EQ(ts::item(element), row(2)[1]);
      EXPECT_EQ(ts::to_host(second_last), row(3));
    }
  }
}

TEST(Row, GradientIsThatOfSelect) {
  const ts::Mesh mesh({{"x", 2}});
  static constexpr auto of_row = ts::compile(
      [](const auto& x) { return ts::grad([](const auto& v) { return ts::sum(v[1] * v[1] + v[-2][0]); })(x); });
  const auto found = ts::to_host(of_row(ts::shard(numbers(), {rows, columns}, mesh, {"x"})));
  for (std::int64_t k = 0; k < rows * columns; ++k) {
    const std::int64_t r = k / columns, c = k % columns;
    const float want = (r == 1 ? 2 * row(1)[static_cast<std::size_t>(c)] : 0.f) + (r == 3 && c == 0 ? 3.f : 0.f);
    EXPECT_FLOAT_EQ(found[static_cast<std::size_t>(k)], want);
  }
}

TEST(Row, InALoopAVmapAndAShardMap) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard(numbers(), {rows, columns}, mesh);
  static constexpr auto looped = ts::compile([](const auto& v) {
    return ts::fori_loop(
        0, ts::extent<0>(v), [&](const auto& i, const auto& sum) { return sum + v[i]; }, v[0] * 0.f);
  });
  const auto sums = ts::to_host(looped(x));
  for (std::size_t c = 0; c < columns; ++c) {
    float want = 0;
    for (std::int64_t r = 0; r < rows; ++r) want += row(r)[c];
    EXPECT_FLOAT_EQ(sums[c], want);
  }
  static constexpr auto mapped = ts::compile([](const auto& v, const auto& at) {
    return std::tuple(ts::vmap([](const auto& own) { return own[-1]; })(v),
                      ts::vmap([](const auto& own, const auto& i) { return own[i]; })(v, at));
  });
  const std::vector<std::int32_t> places{0, 2, 1, 1, 0};
  const auto [last, each] = mapped(x, ts::shard(places, mesh, {"x"}));
  for (std::int64_t r = 0; r < rows; ++r) {
    EXPECT_EQ(ts::to_host(last)[static_cast<std::size_t>(r)], row(r)[2]);
    EXPECT_EQ(ts::to_host(each)[static_cast<std::size_t>(r)],
              row(r)[static_cast<std::size_t>(places[static_cast<std::size_t>(r)])]);
  }
  // Each of two devices has two rows of four.
  static constexpr auto local = ts::compile([](const auto& v) {
    return ts::shard_map<"{x,-} -> {x}, {x}">(
        [](const auto& own) { return std::tuple(own[1], own[ts::axis_index<"x">(own)]); })(v);
  });
  const auto four = numbers();
  const auto [second, own] =
      local(ts::shard(std::vector<float>(four.begin(), four.begin() + 4 * columns), {4, columns}, mesh, {"x"}));
  for (std::size_t c = 0; c < columns; ++c) {
    EXPECT_EQ(ts::to_host(second)[c], row(1)[c]);
    EXPECT_EQ(ts::to_host(second)[columns + c], row(3)[c]);
    EXPECT_EQ(ts::to_host(own)[c], row(0)[c]);
    EXPECT_EQ(ts::to_host(own)[columns + c], row(3)[c]);
  }
}

struct Block {
  ts::ShardedTensor<float, 2> weight;
  constexpr auto operator()(const auto& x) const { return x * weight[0] + weight[1][0]; }
};
TEST(Row, OfAFieldOfALayer) {
  const ts::Mesh mesh;
  const std::vector<Block> blocks{{ts::shard<float>({{1, 2, 3}, {4, 0, 0}}, mesh)},
                                  {ts::shard<float>({{2, 1, 0}, {-1, 0, 0}}, mesh)}};
  const ts::Stack<Block> layers(blocks);
  static constexpr auto f = ts::compile([](const auto& all, const auto& x) { return all(x); });
  EXPECT_EQ(ts::to_host(f(layers, ts::shard<float>({1, 10, 100}, mesh))), (std::vector<float>{9, 23, -1}));
}

}  // namespace
