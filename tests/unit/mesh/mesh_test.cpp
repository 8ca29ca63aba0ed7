#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/make_mesh.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sub_mesh.hpp>

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

TEST(MeshTest, ErrorsOfAConstructorNameItsLine) {
  const auto line_of = [](const auto& f) -> std::uint32_t {
    try {
      f();
    } catch (const tessera::error& e) {
      EXPECT_NE(std::string_view(e.source().file).find("mesh_test.cpp"), std::string_view::npos) << e.what();
      return e.source().line;
    }
    return 0;
  };
  // clang-format off
  EXPECT_EQ(line_of([] { Mesh({{"data", 0}}); }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { Mesh({{"data", 2}, {"data", 2}}); }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { const Mesh mesh = {{"data", 2}, {"", 2}}; }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { Mesh({{"data", 2}}, {0, 0}); }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { Mesh({{"data", 2}}, {0, 1, 2}); }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { (void)tessera::mesh_1d(0); }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { (void)tessera::unnamed_mesh({2, 0}); }), static_cast<std::uint32_t>(__LINE__));
  EXPECT_EQ(line_of([] { (void)tessera::unnamed_mesh({1, 1, 1, 1, 1, 1, 1}); }), static_cast<std::uint32_t>(__LINE__));
  // clang-format on
  constexpr Mesh constant({{"data", 2}, {"model", 4}});
  static_assert(constant.size() == 8);
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
  const char* seven = "[mesh] number of axes: 7; a mesh has at most 6";
  expect_error(
      errc::capacity,
      [] {
        Mesh({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}});
      },
      seven);
  expect_error(
      errc::capacity, [] { (void)tessera::parse_mesh("a=1,b=1,c=1,d=1,e=1,f=1,g=1"); }, seven);
  expect_error(
      errc::capacity,
      [] {
        (void)tessera::make_mesh({0}, {1, 1, 1, 1, 1, 1, 1});
      },
      seven);
  expect_error(
      errc::capacity,
      [] {
        (void)tessera::unnamed_mesh({1, 1, 1, 1, 1, 1, 1});
      },
      seven);
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

// Lists that look like digits until each id is checked to occur once.
TEST(MeshTest, RepeatedIdsAreErrorsHoweverTheyAreGiven) {
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 4}}, {0, 1, 1, 2});
      },
      "1 is given twice");
  expect_error(
      errc::mesh_devices, [] { (void)tessera::parse_mesh("x=4;order=0,1,1,2"); }, "1 is given twice");
  expect_error(
      errc::mesh_devices,
      [] {
        (void)tessera::make_mesh({0, 1, 2, 1, 2, 3, 2, 3, 4}, {3, 3});
      },
      "is given twice");
}

// Each wrong id is looked at once, not compared with all other ids.
TEST(MeshTest, ManyWrongIdsAreFoundInLinearTime) {
  std::vector<std::int32_t> ids(1'000'000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = 5'000'000 + static_cast<std::int32_t>(i * 7919 % ids.size());
  expect_error(
      errc::mesh_devices,
      [&] {
        (void)tessera::make_mesh(ids, {1000, 1000});
      },
      "from 0 to 999999");
  ids[3] = ids[999'998];
  expect_error(
      errc::mesh_devices,
      [&] {
        (void)tessera::make_mesh(ids, {1000, 1000});
      },
      "is given twice");
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
        errc::mesh_axis, [&] { (void)tessera::parse_mesh(text); }, text, " at mesh_test.cpp:");
  expect_error(
      errc::mesh_axis, [] { (void)tessera::parse_mesh("data=0"); }, "at least 1", " at mesh_test.cpp:");
  expect_error(
      errc::capacity, [] { (void)tessera::parse_mesh("a_name_that_is_long=2"); }, "15 characters",
      " at mesh_test.cpp:");
  expect_error(
      errc::mesh_axis, [] { (void)tessera::parse_mesh("x=2,x=2"); }, "twice");
  expect_error(
      errc::mesh_devices, [] { (void)tessera::parse_mesh("x=2;order=1"); }, " at mesh_test.cpp:");
}

TEST(MeshTest, AxesWithoutNamesAreTheirIndices) {
  const Mesh mesh = tessera::unnamed_mesh({2, 4});
  EXPECT_EQ(mesh.shape(), (tessera::Coordinates{2, 4}));
  EXPECT_EQ(mesh.axis_name(1), tessera::Name("1"));
  EXPECT_FALSE(mesh.is_named(0));
  EXPECT_EQ(mesh.text(), "mesh(0=2,1=4)");
  EXPECT_EQ(tessera::parse_mesh(mesh.text()), mesh);
  EXPECT_EQ(tessera::mesh_1d(8).text(), "mesh(0=8)");
  EXPECT_EQ(tessera::mesh_1d(8, "data"), Mesh({{"data", 8}}));
  // The axes of a mesh with names have indices too.
  const Mesh named({{"data", 2}, {"model", 4}});
  EXPECT_TRUE(named.is_named(0));
  EXPECT_EQ(named.axis_index("1"), 1);
  EXPECT_FALSE(named.has_axis("2"));
  expect_error(
      errc::mesh_axis,
      [] {
        Mesh({{"1", 2}, {"0", 2}});
      },
      "'1'", "axis 0");
}

TEST(MeshTest, IdsRepeatBeforeTheyAreOutOfRange) {
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 4}}, {7, 0, 1, 7});
      },
      "7 is given twice");
  expect_error(
      errc::mesh_devices,
      [] {
        Mesh({{"x", 4}}, {7, 1, 0, 1});
      },
      "1 is given twice");
}

TEST(MeshTest, LargeOrdersAreCountersOrKeptOnce) {
  const tessera::DeviceOrder turned = tessera::DeviceOrder::of_digits({{100, 1}, {1000, 100}});
  const Mesh counted({{"x", 100}, {"y", 1000}}, turned);
  EXPECT_EQ(counted.text(), "mesh(x=100,y=1000;order=[1000,100]T(1,0))");
  EXPECT_EQ(tessera::parse_mesh(counted.text()), counted);
  EXPECT_EQ(counted.device_at({3, 7}), 703);
  EXPECT_EQ(counted.coordinates_of(703), (tessera::Coordinates{3, 7}));

  std::mt19937 random(8);
  std::vector<std::int32_t> ids(1000);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  const Mesh listed({{"x", 10}, {"y", 100}}, tessera::DeviceOrder(ids.data(), ids.size()));
  const Mesh again = tessera::parse_mesh(listed.text());
  EXPECT_EQ(again, listed);
  EXPECT_EQ(again.hash(), listed.hash());
  for (int device = 0; device < 1000; ++device) ASSERT_EQ(listed.device_at(listed.coordinates_of(device)), device);
  std::swap(ids[0], ids[999]);
  EXPECT_NE(listed, Mesh({{"x", 10}, {"y", 100}}, tessera::DeviceOrder(ids.data(), ids.size())));
  for (const char* text : {"x=4;order=[2,2]T(0,0)", "x=4;order=[2,2]T(1)", "x=4;order=[0,2]T(1,0)"})
    expect_error(
        errc::mesh_devices, [&] { (void)tessera::parse_mesh(text); }, text, " at mesh_test.cpp:");
}

TEST(MakeMeshTest, ChecksInTheOrderOfTheReference) {
  using tessera::make_mesh;
  EXPECT_EQ(make_mesh({0, 1, 2, 3}, {2, 2}, {"x", "y"}, 4), Mesh({{"x", 2}, {"y", 2}}));
  EXPECT_EQ(make_mesh({3, 2, 1, 0}, {2, 2}), tessera::unnamed_mesh({2, 2}, {3, 2, 1, 0}));
  // Each case breaks the rule that it names, and all rules that are checked later.
  const auto broken = [](errc id, const char* message, std::vector<std::int32_t> ids, std::vector<int> sizes,
                         std::vector<tessera::Name> names) {
    expect_error(
        id, [&] { (void)make_mesh(ids, sizes, names, 5); }, message, " at mesh_test.cpp:");
  };
  broken(errc::mesh_devices, "4 ids for 5 devices", {9, 9, 0, 1}, {2, 3}, {"x", "x", "z"});
  broken(errc::mesh_axis, "3 names for 2 axes", {9, 9, 0, 1, 2}, {2, 3}, {"x", "x", "z"});
  broken(errc::mesh_axis, "'x' is given twice", {9, 9, 0, 1, 2}, {2, 3}, {"x", "x"});
  broken(errc::mesh_devices, "5 ids for 6 devices", {9, 9, 0, 1, 2}, {2, 3}, {"x", "y"});
  broken(errc::mesh_devices, "9 is given twice", {9, 9, 0, 1, 2}, {1, 5}, {"x", "y"});
  broken(errc::mesh_devices, "9, but ids are from 0 to 4", {9, 3, 0, 1, 2}, {1, 5}, {"x", "y"});
}

TEST(MakeMeshTest, TheLogicalMeshIsNestedLists) {
  EXPECT_EQ(tessera::logical_mesh_text(Mesh({{"x", 2}, {"y", 2}}, {3, 1, 2, 0})), "[[3, 1], [2, 0]]");
  EXPECT_EQ(tessera::logical_mesh_text(tessera::unnamed_mesh({2, 1, 2})), "[[[0, 1]], [[2, 3]]]");
  EXPECT_EQ(tessera::logical_mesh_text(Mesh()), "0");
}

TEST(SubMeshTest, HoldsTheDevicesThatShareTheOtherCoordinates) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    tessera::SubMesh part = mesh[{}];
    std::vector<int> axes;
    if (mesh.rank() > 0) axes.push_back(static_cast<int>(random() % static_cast<unsigned>(mesh.rank())));
    if (mesh.rank() > 1) axes.push_back((axes[0] + 1) % mesh.rank());
    if (axes.size() == 1) part = mesh[mesh.axis_name(axes[0]).view()];
    if (axes.size() == 2) part = mesh[{mesh.axis_name(axes[0]), mesh.axis_name(axes[1])}];
    std::set<std::vector<int>> parts;
    for (int device = 0; device < mesh.size(); ++device) {
      const tessera::SubMesh mine = part.containing(device);
      const tessera::Coordinates place = mesh.coordinates_of(device);
      std::vector<int> ids;
      for (int other = 0; other < mesh.size(); ++other) {
        bool same = true;
        for (int axis = 0; axis < mesh.rank(); ++axis)
          same =
              same && (std::count(axes.begin(), axes.end(), axis) || mesh.coordinates_of(other)[axis] == place[axis]);
        ASSERT_EQ(mine.contains(other), same);
        if (same) ids.push_back(other);
        if (same) ASSERT_EQ(mine.device_at(mine.coordinates_of(other)), other);
      }
      const tessera::DeviceOrder devices = mine.devices();
      std::vector<int> found;
      for (std::int64_t i = 0; i < devices.size(); ++i) found.push_back(devices[i]);
      std::sort(found.begin(), found.end());
      ASSERT_EQ(found, ids);
      parts.insert(ids);
    }
    ASSERT_EQ(static_cast<std::int64_t>(parts.size()), part.parent().size() / part.size());
  }
}

TEST(SubMeshTest, AxesAreThoseThatWereNamedInTheirOrder) {
  const Mesh mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}});
  EXPECT_EQ(mesh["tp"].devices(), (tessera::DeviceOrder{0, 1}));
  EXPECT_EQ(mesh["pp"].containing(3).devices(), (tessera::DeviceOrder{3, 7}));
  const tessera::SubMesh turned = mesh[{"tp", "pp"}].containing(2);
  EXPECT_EQ(turned.devices(), (tessera::DeviceOrder{2, 6, 3, 7}));
  EXPECT_EQ(turned.mesh(), Mesh({{"tp", 2}, {"pp", 2}}));
  EXPECT_EQ(turned.coordinates_of(7), (tessera::Coordinates{1, 1}));
  EXPECT_EQ(tessera::unnamed_mesh({2, 3})["1"].mesh(), tessera::unnamed_mesh({3}));
  expect_error(
      errc::mesh_axis, [&] { (void)mesh["xp"]; }, "'xp'", "mesh(pp=2,dp=2,tp=2)");
  expect_error(
      errc::mesh_axis,
      [&] {
        (void)mesh[{"tp", "tp"}];
      },
      "'tp'", "twice");
  expect_error(
      errc::mesh_devices, [&] { (void)mesh["tp"].coordinates_of(2); }, "2", "mesh(pp=2");
  expect_error(
      errc::mesh_devices, [&] { (void)mesh["tp"].device_at({2}); }, "2", "tp");
}

}  // namespace
