// The examples of docs/tensors.md, and of two sections of docs/ops.md. The last tests compare the texts.

#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xtensor.hpp>

#include <tessera/interop/dlpack.hpp>
#include <tessera/interop/eigen.hpp>
#include <tessera/interop/range_v3.hpp>
#include <tessera/interop/xtensor.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

// The lines are those of the page.
// clang-format off

TEST(tensors_page, runs) {
  auto small = ts::shard<float>({{1, 2.5}, {3, 4.25}, {5, 6}}, mesh, {"data"});   // [3/data, 2]

  std::vector<double> values(12 * 64, 0.5);
  auto x = ts::shard(values, {12, 64}, mesh, {"data", "model"});                  // [12/data, 64/model]

  auto w = ts::zeros<float>({64, 256}, mesh, {ts::none, "model"});
  auto b = ts::full<float>({256}, 0.1f, mesh, {"model"});
  auto scale = ts::full<float>({}, 2.f, mesh);
  auto positions = ts::arange<std::int32_t>(128, mesh);
  EXPECT_EQ(ts::size(w) + ts::size(b) + ts::size(positions), 64 * 256 + 256 + 128);

  auto [up, down] = ts::split<2>(ts::Key(42));
  auto w1 = ts::normal<float>(up, {64, 256}, mesh, {ts::none, "model"}, 0, 0.02f);      // mean, deviation
  auto w2 = ts::uniform<float>(down, {256, 64}, mesh, {"model"}, -0.1f, 0.1f);          // [low, high)
  auto layer_key = ts::fold_in(ts::Key(42), 7);                                         // of layer 7
  EXPECT_FALSE(layer_key == up);
  EXPECT_EQ(ts::shape(w2), (ts::Shape{256, 64}));

  auto elsewhere = ts::normal<float>(up, {64, 256}, ts::Mesh({{"x", 16}}), {"x"}, 0, 0.02f);
  bool equal = ts::to_host(elsewhere) == ts::to_host(w1);                               // true
  EXPECT_TRUE(equal);

  {
    tessera_test::Output output;
    std::cout << small << "\n";
    EXPECT_EQ(output.text(), R"([[1.   2.5 ]
 [3.   4.25]
 [5.   6.  ]]
f32[3,2]{data,-} on mesh(data=2,model=2)
)");
  }
  EXPECT_EQ(ts::to_string(small, {.edge_items = 2, .precision = 3}), ts::to_string(small));

  ts::shape(small);             // {3, 2}
  ts::size(small);              // 6
  ts::sharding(small);          // dim 0 over axis 0
  ts::mesh(small);              // mesh
  ts::sharded_type_text(small);       // "f32[3,2]{data,-}"
  EXPECT_EQ(ts::shape(small), (ts::Shape{3, 2}));
  EXPECT_EQ(ts::size(small), 6);
  EXPECT_EQ(ts::sharding(small).dims[0], ts::AxisList{0});
  EXPECT_EQ(ts::mesh(small), mesh);
  EXPECT_EQ(ts::sharded_type_text(small), "f32[3,2]{data,-}");

  std::vector<float> host = ts::to_host(small);      // row-major
  std::vector<double> buffer(12 * 64);
  ts::to_host(x, buffer);                            // into memory that is there
  float two = ts::item(scale);                       // of one element, such as a loss
  EXPECT_EQ(host, (std::vector<float>{1, 2.5, 3, 4.25, 5, 6}));
  EXPECT_EQ(buffer, values);
  EXPECT_EQ(two, 2.f);

  {
    tessera_test::Output output;
    for (const auto& shard : ts::local_shards(small))
      std::cout << "device " << shard.device << ", replica " << shard.replica_id << ", " << ts::text(shard.box) << ", "
                << shard.data.size() << " elements\n";
    EXPECT_EQ(output.text(), R"(device 0, replica 0, [0:2,0:2], 4 elements
device 1, replica 1, [0:2,0:2], 4 elements
device 2, replica 0, [2:3,0:2], 2 elements
device 3, replica 1, [2:3,0:2], 2 elements
)");
  }

  ts::device_bytes(small, 0);   // 16
  ts::stored_bytes(small);      // 24
  EXPECT_EQ(ts::device_bytes(small, 0), 16);
  EXPECT_EQ(ts::stored_bytes(small), 24);

  auto again = ts::from_local_shards(mesh, {"data"}, {3, 2}, ts::local_shards(small));
  EXPECT_EQ(ts::to_host(again), host);

  ts::load_local_shards(again, ts::local_shards(small));
  EXPECT_EQ(ts::to_host(again), host);
  ts::update_shards(again, [](const ts::Box& box, std::span<float> shard) {
    for (float& value : shard) value += static_cast<float>(box.begin[0]);
  });
  EXPECT_EQ(ts::to_host(again), (std::vector<float>{1, 2.5, 3, 4.25, 7, 8}));
  ts::all_equal(again, small);    // false: the same shape and elements, in any sharding?
  ts::same_sharded_type(again, small);  // true: element type, shape, mesh and sharding
  ts::sharded_type_hash(again);         // the same for tensors of one sharded type
  EXPECT_FALSE(ts::all_equal(again, small));
  EXPECT_TRUE(ts::same_sharded_type(again, small));

  auto columns = ts::reshard(small, {ts::none, "model"});              // the same value, split by columns
  auto moved = ts::reshard(small, ts::Mesh({{"x", 3}}), {"x"});        // on another mesh
  EXPECT_EQ(ts::to_host(columns), host);
  EXPECT_EQ(ts::to_host(moved), host);
  auto like = ts::reshard(columns, ts::sharding(small));  // in the sharding of another tensor
  auto whole = ts::full_tensor(small);                    // on every device
  EXPECT_TRUE(ts::all_equal(like, small) && ts::all_equal(whole, small));

  ts::ShardedTensor<float, 2> sums = ts::cumsum<0>(small);             // [[1, 2.5], [4, 6.75], [9, 12.75]]
  ts::ShardedTensor<float, 2> falling = ts::sort<0, ts::Order::descending>(small);   // [[5, 6], [3, 4.25], [1, 2.5]]
  auto [best, places] = ts::topk<0>(small, 2);                         // [[5, 6], [3, 4.25]] and [[2, 2], [1, 1]]
  EXPECT_EQ(ts::to_host(sums), (std::vector<float>{1, 2.5, 4, 6.75, 9, 12.75}));
  EXPECT_EQ(ts::to_host(falling), (std::vector<float>{5, 6, 3, 4.25, 1, 2.5}));
  EXPECT_EQ(ts::to_host(ts::eval(best)), (std::vector<float>{5, 6, 3, 4.25}));
  EXPECT_EQ(ts::to_host(ts::eval(places)), (std::vector<std::int32_t>{2, 2, 1, 1}));
  tessera_test::expect_error(ts::errc::dim_range, [&] { ts::eval(ts::gather<0>(small, places + 1)); },
                             "[gather]", "index in range: 3 is outside a dim of extent 3 at ", "doc_test.cpp:");

  auto image = ts::ones<float>({2, 5, 5, 3}, mesh, {"data"});          // [batch, height, width, in-features]
  auto taps = ts::ones<float>({3, 3, 3, 4}, mesh, {ts::none, ts::none, ts::none, "model"});
  ts::ShardedTensor<float, 4> y = ts::conv2d(image, taps, {.strides = {2, 2}, .padding = {1, 1}});   // [2, 3, 3, 4]
  EXPECT_EQ(ts::shape(y), (ts::Shape{2, 3, 3, 4}));
  EXPECT_EQ(ts::to_host(y)[0], 12.f);       // 2 x 2 elements of 3 features in the corner
  EXPECT_EQ(ts::to_host(y)[4 * 4], 27.f);   // 3 x 3 in the middle

  auto transposed = ts::ones<float>({3, 3, 4, 3}, mesh);               // [taps, in-features, out-features]
  ts::ShardedTensor<float, 4> z = ts::conv_transpose2d(y, transposed, {.strides = {2, 2}, .padding = {1, 1}});   // [2, 5, 5, 3]
  EXPECT_EQ(ts::shape(z), (ts::Shape{2, 5, 5, 3}));
  EXPECT_EQ(ts::to_host(z)[0], 4 * 12.f);                         // the window in the corner alone, of 4 features
  EXPECT_EQ(ts::to_host(z)[(5 + 1) * 3], 4 * (12 + 18 + 18 + 27.f));   // four windows meet

  auto some = ts::rows_of(x, {5, 9});                                  // [begin, end): rows 5 to 8, the same spec
  EXPECT_EQ(ts::shape(some), (ts::Shape{4, 64}));
  std::vector<std::int64_t> sizes;
  for (auto batch : ts::views::batches(values, {12, 64}, 5, mesh, {"data"}, ts::Ragged::keep))
    sizes.push_back(ts::shape(batch)[0]);                              // 5, 5, 2
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{5, 5, 2}));

  Eigen::MatrixXf matrix = Eigen::MatrixXf::Random(6, 4);              // column-major, indices stay what they are
  auto from_eigen = ts::shard(matrix, mesh, {"data", "model"});        // ShardedTensor<float, 2>
  auto back = ts::to_eigen<Eigen::MatrixXf>(from_eigen);
  auto corner = ts::eigen_view(ts::local_shards(from_eigen)[0]);       // Eigen::Map of what device 0 holds
  EXPECT_EQ(back, matrix);
  EXPECT_EQ(corner, matrix.topLeftCorner(3, 2));

  xt::xtensor<double, 3> array = xt::ones<double>({4, 3, 2});
  auto from_xtensor = ts::shard(array * 2.0, mesh, {"data"});          // expressions are evaluated
  auto as_array = ts::to_xtensor(from_xtensor);
  EXPECT_EQ(as_array, array * 2.0);

  ts::dlpack::DLManagedTensorVersioned* shared = ts::to_dlpack(small, 2);     // what device 2 holds, not copied
  auto taken = ts::from_dlpack<float, 2>(shared, mesh, {ts::none, "model"});  // copied into shards, given back
  EXPECT_EQ(ts::to_host(taken), (std::vector<float>{5, 6}));

  const auto mistake = [&] {
    ts::shard(values, {12, 65}, mesh);
  };
  tessera_test::expect_error(ts::errc::host_data, mistake,
                             R"([shard] element count: 768 values for f64[12,65], which has 780 at )");
}

TEST(tensors_page, holds_the_lines_of_this_file) { tessera_test::expect_lines({.name = "tensors.md", .lines = 57, .left_out = [](std::string_view line) { return line.find("train.cpp:41") != line.npos; }}, __FILE__); }
TEST(operations_page, holds_the_lines_of_this_file) {
  tessera_test::expect_lines({.name = "ops.md", .section = "Operations along one dim", .lines = 3}, __FILE__);
  tessera_test::expect_lines({.name = "ops.md", .section = "Convolutions", .lines = 5}, __FILE__);
}
