#include <set>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/mesh.hpp>

namespace {

using tessera::errc;
using tessera::Mesh;
using tessera_test::expect_error;

TEST(MeshTest, LaysDevicesRowMajor) {
  const Mesh mesh({{"data", 2}, {"model", 4}});
  int device = 0;
  for (int data = 0; data < 2; ++data)
    for (int model = 0; model < 4; ++model, ++device) {
      EXPECT_EQ(mesh.device_at({data, model}), device);
      EXPECT_EQ(mesh.coordinates_of(device), (tessera::Coordinates{data, model}));
    }
}

TEST(MeshTest, AnExplicitOrderPlacesDevices) {
  const Mesh mesh({{"x", 2}, {"y", 3}}, {5, 3, 1, 4, 2, 0});
  EXPECT_EQ(mesh.device_at({0, 0}), 5);
  EXPECT_EQ(mesh.device_at({0, 2}), 1);
  EXPECT_EQ(mesh.device_at({1, 1}), 2);
  EXPECT_EQ(mesh.coordinates_of(4), (tessera::Coordinates{1, 0}));
}

TEST(MeshTest, CoordinatesAndDevicesAreInverse) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    std::set<int> devices;
    for (int device = 0; device < mesh.size(); ++device) {
      const tessera::Coordinates place = mesh.coordinates_of(device);
      ASSERT_EQ(place.size(), static_cast<std::size_t>(mesh.rank()));
      ASSERT_EQ(mesh.device_at(place), device);
      std::int64_t position = 0;
      for (int axis = 0; axis < mesh.rank(); ++axis) position = position * mesh.axis_size(axis) + place[axis];
      devices.insert(static_cast<int>(position));
    }
    ASSERT_EQ(static_cast<std::int64_t>(devices.size()), mesh.size());
    ASSERT_EQ(tessera::parse_mesh(mesh.text()), mesh) << mesh.text();
    ASSERT_EQ(tessera::parse_mesh(mesh.text()).hash(), mesh.hash());
  }
}

TEST(MeshTest, NoAxesIsOneDevice) {
  const Mesh mesh;
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_EQ(mesh.rank(), 0);
  EXPECT_EQ(mesh.device_at({}), 0);
  EXPECT_EQ(mesh.text(), "mesh()");
  EXPECT_EQ(mesh, Mesh({}));
}

TEST(MeshTest, ARowMajorOrderIsTheDefaultOrder) {
  const Mesh plain({{"x", 2}, {"y", 2}});
  const Mesh spelled({{"x", 2}, {"y", 2}}, {0, 1, 2, 3});
  EXPECT_EQ(plain, spelled);
  EXPECT_EQ(plain.hash(), spelled.hash());
  EXPECT_EQ(spelled.text(), "mesh(x=2,y=2)");
}

TEST(MeshTest, MeshesDifferByNameSizeAndOrder) {
  const Mesh meshes[] = {Mesh(),
                         Mesh({{"x", 1}}),
                         Mesh({{"x", 4}}),
                         Mesh({{"y", 4}}),
                         Mesh({{"x", 2}, {"y", 2}}),
                         Mesh({{"y", 2}, {"x", 2}}),
                         Mesh({{"x", 2}, {"y", 2}}, {3, 2, 1, 0})};
  std::set<std::uint64_t> hashes;
  for (const Mesh& a : meshes) {
    hashes.insert(a.hash());
    for (const Mesh& b : meshes) EXPECT_EQ(a == b, &a == &b);
  }
  EXPECT_EQ(hashes.size(), std::size(meshes));
}

TEST(MeshTest, BadAxesAreErrors) {
  expect_error(
      errc::mesh_axis,
      [] {
        Mesh({{"data", 0}});
      },
      "data", "0");
  expect_error(
      errc::mesh_axis,
      [] {
        Mesh({{"data", -2}});
      },
      "data", "-2");
  expect_error(
      errc::mesh_axis,
      [] {
        Mesh({{"x", 2}, {"y", 2}, {"x", 2}});
      },
      "'x'", "twice");
  expect_error(
      errc::mesh_axis,
      [] {
        Mesh({{"", 2}});
      },
      "axis name");
  for (const char* name : {"-", "a,b", "a b", "{", "a=", "(x)", "x*"})
    expect_error(
        errc::mesh_axis,
        [&] {
          Mesh({{name, 2}});
        },
        name);
  expect_error(errc::capacity, [] { Mesh({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}}); });
  expect_error(errc::mesh_devices, [] { Mesh({{"x", 1 << 20}, {"y", 1 << 20}, {"z", 1 << 30}}); });
}

TEST(MeshTest, OrdersThatAreNoPermutationAreErrors) {
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 4}}, {0, 1, 2});
      },
      "3", "4");
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 3}}, {0, 1, 1});
      },
      "1 is given twice");
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 3}}, {0, 1, 3});
      },
      "from 0 to 2", "3");
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 3}}, {0, 1, -1});
      },
      "-1");
}

TEST(MeshTest, AxesAreFoundByName) {
  const Mesh mesh({{"data", 2}, {"model", 4}});
  EXPECT_EQ(mesh.axis_index("model"), 1);
  EXPECT_EQ(mesh.axis_name(0), tessera::Name("data"));
  EXPECT_EQ(mesh.axis_size(1), 4);
  EXPECT_TRUE(mesh.has_axis("data"));
  EXPECT_FALSE(mesh.has_axis("dat"));
  EXPECT_FALSE(mesh.has_axis(""));
  expect_error(
      errc::mesh_axis, [&] { (void)mesh.axis_index("modle"); }, "'modle'", "data=2", "model=4");
  expect_error(
      errc::mesh_axis, [&] { (void)mesh.axis_size(2); }, "2");
  expect_error(
      errc::mesh_axis, [&] { (void)mesh.axis_name(-1); }, "-1");
}

TEST(MeshTest, PlacesOutsideAreErrors) {
  const Mesh mesh({{"data", 2}, {"model", 4}});
  expect_error(
      errc::mesh_devices, [&] { (void)mesh.device_at({0}); }, "1 given for 2");
  expect_error(
      errc::mesh_devices,
      [&] {
        (void)mesh.device_at({0, 4});
      },
      "4", "model");
  expect_error(
      errc::mesh_devices,
      [&] {
        (void)mesh.device_at({-1, 0});
      },
      "-1", "data");
  expect_error(
      errc::mesh_devices, [&] { (void)mesh.coordinates_of(8); }, "8");
  expect_error(
      errc::mesh_devices, [&] { (void)mesh.coordinates_of(-1); }, "-1");
}

TEST(MeshTest, ReadsWhatACommandLineGives) {
  EXPECT_EQ(tessera::parse_mesh("data=2,model=4"), Mesh({{"data", 2}, {"model", 4}}));
  EXPECT_EQ(tessera::parse_mesh(" mesh( data = 2 , model = 4 ) "), Mesh({{"data", 2}, {"model", 4}}));
  EXPECT_EQ(tessera::parse_mesh("x=2;order=1,0"), Mesh({{"x", 2}}, {1, 0}));
  EXPECT_EQ(tessera::parse_mesh(""), Mesh());
  EXPECT_EQ(tessera::parse_mesh("mesh()"), Mesh());
  for (const char* text : {"data", "data=", "data=x", "=2", "data=2,", "data=2 model=4", "mesh(data=2", "data=2)",
                           "data=2;", "data=2;order=", "data=2;order=1,0,", "data=99999999999", ",", "data=2x"})
    expect_error(
        errc::mesh_axis, [&] { (void)tessera::parse_mesh(text); }, text);
  expect_error(
      errc::mesh_axis, [] { (void)tessera::parse_mesh("data=0"); }, "at least 1");
  expect_error(
      errc::mesh_axis, [] { (void)tessera::parse_mesh("x=2,x=2"); }, "twice");
  expect_error(errc::mesh_devices, [] { (void)tessera::parse_mesh("x=2;order=1"); });
}

}  // namespace
