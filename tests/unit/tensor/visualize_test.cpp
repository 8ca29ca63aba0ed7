#include <thread>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/global_mesh.hpp>
#include <tessera/tensor/print/visualize.hpp>

namespace ts = tessera;

namespace {

const ts::Mesh mesh({{"data", 2}, {"model", 2}});

TEST(visualize, draws_where_a_tensor_lies) {
  const auto x = ts::zeros<float>({3, 4}, mesh, {"data"});
  EXPECT_EQ(ts::visualize_tensor_sharding(x), "┌────────────┐\n"
                                              "│ CPU [0, 1] │\n"
                                              "├────────────┤\n"
                                              "│ CPU [2, 3] │\n"
                                              "└────────────┘\n");
  EXPECT_EQ(ts::visualize_tensor_sharding(x, {.device_kind = "GPU"}).find("CPU"), std::string::npos);
  EXPECT_NE(ts::tensor_sharding_svg(x).find(">2:3<"), std::string::npos);
}

TEST(global_mesh, is_set_read_and_restored) {
  const auto expect_none = [] {
    tessera_test::expect_error(
        ts::errc::mesh_devices, [] { (void)ts::global_mesh(); }, "set_global_mesh");
  };
  expect_none();
  const ts::Mesh inner({{"x", 8}});
  {
    const ts::GlobalMeshScope scope(inner);
    EXPECT_EQ(ts::global_mesh(), inner);
    ts::set_global_mesh(mesh);
    EXPECT_EQ(ts::global_mesh(), mesh);
    {
      const ts::GlobalMeshScope within(inner);
      EXPECT_EQ(ts::global_mesh(), inner);
      ts::Mesh seen;
      std::thread([&] { seen = ts::global_mesh(); }).join();
      EXPECT_EQ(seen, inner);
    }
    EXPECT_EQ(ts::global_mesh(), mesh);
  }
  expect_none();
}

}  // namespace
