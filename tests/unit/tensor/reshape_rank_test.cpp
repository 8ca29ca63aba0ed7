// Shapes of five dims and more: a sharding rule lists at most four factors of a dim, so such a rearrange is two.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using Floats = std::vector<float>;
Floats counted(int n) {
  Floats values;
  for (int k = 0; k < n; ++k) values.push_back(static_cast<float>(k));
  return values;
}
template <class X> void expect_counted(const X& x, const ts::Shape& shape) {
  const auto stored = ts::eval(x);
  EXPECT_EQ(ts::shape(stored), shape);
  EXPECT_EQ(ts::to_host(stored), counted(static_cast<int>(ts::size(stored))));
}

// Row-major order is kept, so the elements of any shape are 0, 1, 2, ...
TEST(ReshapeRank, KeepsRowMajorOrder) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{{"x", "y"}}}) {
    const auto line = ts::shard(counted(64), {64}, mesh, spec);
    expect_counted(ts::reshape(line, {2, 2, 2, 2, 4}), {2, 2, 2, 2, 4});
    expect_counted(ts::reshape(line, {2, 2, -1, 2, 2, 2}), {2, 2, 2, 2, 2, 2});
    expect_counted(ts::reshape(line, {1, 2, 2, 2, 2, 2, 1, 2}), {1, 2, 2, 2, 2, 2, 1, 2});
  }
  const auto six = ts::shard(counted(96), {2, 2, 2, 2, 2, 3}, mesh, {"x", ts::none, "y"});
  expect_counted(ts::reshape(six, {-1}), {96});
  expect_counted(ts::reshape(six, {4, 2, 3, 2, 2}), {4, 2, 3, 2, 2});
  expect_counted(ts::merge_dims<0, 4>(six), {32, 3});
  expect_counted(ts::merge_dims<1, 5>(six), {2, 48});
  const auto eight = ts::shard(counted(256), {2, 2, 2, 2, 2, 2, 2, 2}, mesh, {"x"});
  expect_counted(ts::reshape(eight, {16, 16}), {16, 16});
  expect_counted(ts::merge_dims<0, 7>(eight), {256});
}

// The patches of an image, [H / 2, 2, W / 2, 2, C] in another order, against loops on the host.
TEST(ReshapeRank, PatchesOfAnImage) {
  const ts::Mesh mesh({{"x", 2}});
  static constexpr auto patches = ts::compile([](const auto& x) {
    const auto parts = ts::reshape(x, {-1, 2, 2, 3, 2, 3});
    return ts::reshape(ts::transpose<0, 1, 3, 2, 4, 5>(parts), {-1, 6, 12});
  });
  const auto x = ts::shard(counted(4 * 4 * 6 * 3), {4, 4, 6, 3}, mesh, {"x"});
  const auto found = ts::to_host(patches(x));
  for (int b = 0, at = 0; b < 4; ++b)
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j)
        for (int k = 0; k < 2; ++k)
          for (int l = 0; l < 2; ++l)
            for (int c = 0; c < 3; ++c)
              EXPECT_EQ(found[static_cast<std::size_t>(at++)],
                        static_cast<float>(((b * 4 + 2 * i + k) * 6 + 2 * j + l) * 3 + c));
}

TEST(ReshapeRank, GradientAndExamples) {
  const ts::Mesh mesh({{"x", 2}});
  static constexpr auto gradient = ts::compile([](const auto& x, const auto& w) {
    return ts::grad([&](const auto& v) { return ts::sum(ts::reshape(v, {2, 2, 2, 2, 2}) * w); })(x);
  });
  const auto w = ts::shard(counted(32), {2, 2, 2, 2, 2}, mesh, {"x"});
  EXPECT_EQ(ts::to_host(gradient(ts::zeros({32}, mesh), w)), counted(32));
  EXPECT_EQ(ts::to_host(gradient(ts::zeros({8, 4}, mesh, {"x"}), w)), counted(32));
  static constexpr auto mapped = ts::compile([](const auto& x) {
    return ts::vmap([](const auto& v) { return ts::reshape(v, {2, 2, 2, 2, 2}); })(x);
  });
  EXPECT_EQ(ts::to_host(mapped(ts::shard(counted(96), {3, 32}, mesh))), counted(96));
}

TEST(ReshapeRank, OtherNumbersOfElements) {
  const ts::Mesh mesh;
  const auto message = [&](const auto& f) -> std::string {
    try {
      (void)f();
    } catch (const ts::error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto six = ts::zeros({2, 2, 2, 2, 2, 3}, mesh);
  EXPECT_NE(message([&] {
              return ts::eval(ts::reshape(six, {2, 2, 2, 2, 5}));
            }).find("[reshape] number of elements: f32[2,2,2,2,2,3] has 96"),
            std::string::npos)
      << message([&] {
           return ts::eval(ts::reshape(six, {2, 2, 2, 2, 5}));
         });
}

}  // namespace
