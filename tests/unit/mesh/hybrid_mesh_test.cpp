#include <algorithm>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/hybrid_mesh.hpp>
#include <tessera/mesh/make_mesh.hpp>

namespace {

using tessera::DeviceCoordinates;
using tessera::errc;
using tessera::hybrid_mesh;
using tessera::HybridShape;
using tessera::logical_mesh_text;
using tessera::Mesh;
using tessera::Torus;
using tessera_test::expect_error;

/// The meaning of a Torus, device by device.
std::vector<DeviceCoordinates> places_of(const Torus& torus) {
  std::vector<DeviceCoordinates> places;
  for (int slice = 0; slice < torus.slices; ++slice) {
    std::int64_t in_slice = 1;
    for (std::int32_t dim : torus.dims) in_slice *= dim;
    for (std::int64_t i = 0; i < in_slice; ++i) {
      DeviceCoordinates place{{}, slice};
      std::int64_t rest = i;
      for (std::int32_t dim : torus.dims) {
        place.coordinates.push_back(static_cast<std::int32_t>(rest % dim));
        rest /= dim;
      }
      places.push_back(place);
    }
  }
  return places;
}

// Two slices of 2x2x1 whose ids are scattered: the mesh that PyTorch/XLA makes of them.
TEST(HybridMeshTest, ScatteredIdsLieAsInTheReference) {
  const std::vector<DeviceCoordinates> places{{{0, 1, 0}, 0}, {{1, 0, 0}, 0}, {{0, 0, 0}, 0}, {{1, 1, 0}, 0},
                                              {{0, 0, 0}, 1}, {{1, 1, 0}, 1}, {{0, 1, 0}, 1}, {{1, 0, 0}, 1}};
  const Mesh mesh = hybrid_mesh({.inner = {2, 2}, .outer = {2, 1}}, places);
  EXPECT_EQ(logical_mesh_text(mesh), "[[2, 1], [0, 3], [4, 7], [6, 5]]");
  EXPECT_EQ(mesh.shape(), (tessera::Coordinates{4, 2}));
  EXPECT_EQ(tessera::parse_mesh(mesh.text()), mesh);
}

// By hand, from the rule: the last axis takes as many dims as multiply to it, the first such; ids run x fastest.
TEST(HybridMeshTest, AxesAreLaidOnTheTorus) {
  const auto laid = [](std::vector<std::int32_t> shape, Torus torus) {
    return logical_mesh_text(hybrid_mesh({.inner = std::move(shape)}, torus));
  };
  EXPECT_EQ(laid({2, 2}, {{2, 2}}), "[[0, 1], [2, 3]]");  // last axis on x, first on y
  EXPECT_EQ(laid({4}, {{2, 2}}), "[0, 2, 1, 3]");         // one axis on x and y, x major
  EXPECT_EQ(laid({1, 4}, {{2, 2}}), "[[0, 2, 1, 3]]");
  EXPECT_EQ(laid({2, 4}, {{4, 2, 1}}), "[[0, 1, 2, 3], [4, 5, 6, 7]]");
  EXPECT_EQ(laid({4, 2}, {{4, 2, 1}}), "[[0, 4], [1, 5], [2, 6], [3, 7]]");
  EXPECT_EQ(laid({8}, {{4, 2, 1}}), "[0, 4, 1, 5, 2, 6, 3, 7]");
  EXPECT_EQ(laid({8}, {{2, 2, 2}}), "[0, 4, 2, 6, 1, 5, 3, 7]");
  EXPECT_EQ(laid({2, 4}, {{2, 2, 2}}), "[[0, 2, 1, 3], [4, 6, 5, 7]]");  // 4 on x and y, 2 on z
  EXPECT_EQ(laid({4, 2}, {{2, 2, 2}}), "[[0, 1], [4, 5], [2, 3], [6, 7]]");
  EXPECT_EQ(laid({2, 2, 2}, {{2, 2, 2}}), "[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]");
}

TEST(HybridMeshTest, SlicesAreBlocksAlongTheOuterShape) {
  // Two slices along the first axis; along the last axis they alternate with the inner index.
  EXPECT_EQ(logical_mesh_text(hybrid_mesh({.inner = {2, 2}, .outer = {2, 1}}, Torus{{2, 2}, 2})),
            "[[0, 1], [2, 3], [4, 5], [6, 7]]");
  EXPECT_EQ(logical_mesh_text(hybrid_mesh({.inner = {2, 2}, .outer = {1, 2}}, Torus{{2, 2}, 2})),
            "[[0, 1, 4, 5], [2, 3, 6, 7]]");
  const Mesh named = hybrid_mesh({.inner = {1, 4}, .outer = {2, 1}, .axes = {"data", "model"}}, Torus{{2, 2, 1}, 2});
  EXPECT_EQ(named.axes(), Mesh({{"data", 2}, {"model", 4}}).axes());
  EXPECT_EQ(logical_mesh_text(named), "[[0, 2, 1, 3], [4, 6, 5, 7]]");
}

// All shapes on all tori of up to 16 devices in up to four slices: both ways to say where devices are agree, the last
// axis of a slice is laid on the dims that an exhaustive search of subsets prefers, and ids far apart change nothing.
TEST(HybridMeshTest, PlacesAndTorusAgree) {
  std::mt19937 random(13);
  int made = 0;
  for (const Torus& torus : {Torus{{2, 2}, 1}, Torus{{2, 2, 1}, 2}, Torus{{2, 2, 2}, 4}, Torus{{4, 2, 1}, 2},
                             Torus{{4, 4}, 1}, Torus{{2, 3, 2}, 3}, Torus{{4, 2, 1, 2}, 2}})
    for (std::int32_t a = 1; a <= 16; ++a)
      for (std::int32_t b = 1; a * b <= 16; ++b)
        for (std::int32_t c = 1; a * b * c <= 16; ++c) {
          std::int64_t in_slice = 1;
          for (std::int32_t dim : torus.dims) in_slice *= dim;
          if (a * b * c != in_slice) continue;
          HybridShape shape{{a, b, c}, {1, 1, 1}, {}};
          shape.outer[random() % 3] = torus.slices;
          Mesh symbolic;
          try {
            symbolic = hybrid_mesh(shape, torus);
          } catch (const tessera::error& e) {  // an axis that would have to split a dim
            EXPECT_EQ(e.id(), errc::mesh_devices) << e.what();
            expect_error(errc::mesh_devices, [&] { (void)hybrid_mesh(shape, places_of(torus)); });
            continue;
          }
          ++made;
          EXPECT_EQ(hybrid_mesh(shape, places_of(torus)), symbolic);
          auto moved = places_of(torus);
          for (DeviceCoordinates& place : moved) {
            place.slice = 10 * place.slice - 7;
            for (auto& x : place.coordinates) x += 3 + place.slice;
          }
          EXPECT_EQ(hybrid_mesh(shape, moved), symbolic);
        }
  EXPECT_GT(made, 40);
}

// A pod of v5p, and larger: no memory per device.
TEST(HybridMeshTest, LargeTopologiesStaySymbolic) {
  const Mesh mesh =
      hybrid_mesh({.inner = {16, 560}, .outer = {12, 1}, .axes = {"data", "model"}}, Torus{{16, 20, 28}, 12});
  EXPECT_EQ(mesh.size(), 107'520);
  EXPECT_TRUE(mesh.order().is_counter());
  EXPECT_EQ(mesh.device_at({0, 1}), 16 * 20);  // model on y and z, z fastest
  EXPECT_EQ(mesh.device_at({0, 28}), 16);
  EXPECT_EQ(mesh.device_at({1, 0}), 1);  // data on the slices, then on x
  EXPECT_EQ(mesh.device_at({16, 0}), 16 * 20 * 28);
}

/// The mesh that parts[dim][axis] of a torus make: along a dim the last axis has the nearest places, along an axis the
/// first dim is the major one.
std::vector<int> mesh_of_parts(const Torus& torus, const std::vector<std::vector<int>>& parts) {
  const std::size_t axes = parts[0].size();
  std::vector<std::int64_t> sizes(axes, 1);
  std::int64_t count = 1;
  for (const auto& dim : parts)
    for (std::size_t a = 0; a < axes; ++a) sizes[a] *= dim[a];
  for (std::int64_t size : sizes) count *= size;
  std::vector<int> devices;
  for (std::int64_t position = 0; position < count; ++position) {
    std::vector<std::int64_t> index(axes);
    std::int64_t rest = position;
    for (std::size_t a = axes; a-- > 0; rest /= sizes[a]) index[a] = rest % sizes[a];
    std::vector<std::vector<std::int64_t>> digit(parts.size(), std::vector<std::int64_t>(axes));
    for (std::size_t a = 0; a < axes; ++a)
      for (std::size_t dim = parts.size(); dim-- > 0; index[a] /= parts[dim][a])
        digit[dim][a] = index[a] % parts[dim][a];
    std::int64_t id = 0, stride = 1;
    for (std::size_t dim = 0; dim < parts.size(); ++dim) {
      std::int64_t place = 0;
      for (std::size_t a = 0; a < axes; ++a) place = place * parts[dim][a] + digit[dim][a];
      id += place * stride;
      stride *= torus.dims[dim];
    }
    devices.push_back(static_cast<int>(id));
  }
  return devices;
}

std::vector<int> devices_of(const Mesh& mesh) {
  std::vector<int> devices;
  for (std::int64_t i = 0; i < mesh.size(); ++i)
    devices.push_back(mesh.order().empty() ? static_cast<int>(i) : mesh.order()[i]);
  return devices;
}

// The first six are the tables of mesh_utils' own tests, the others come from its rule by hand.
TEST(HybridMeshTest, DimsAreSplitAsInTheReference) {
  struct Row {
    Torus torus;
    std::vector<std::int32_t> shape;
    std::vector<std::vector<int>> parts;  // of each dim, by axis
  };
  for (const Row& row :
       {Row{{{4, 4, 4}, 1}, {2, 1, 32}, {{1, 1, 4}, {1, 1, 4}, {2, 1, 2}}},
        Row{{{4, 4, 4}, 1}, {8, 8, 1}, {{1, 4, 1}, {2, 2, 1}, {4, 1, 1}}},
        Row{{{4, 4, 8}, 1}, {2, 2, 8, 4}, {{1, 1, 1, 4}, {2, 2, 1, 1}, {1, 1, 8, 1}}},
        Row{{{4, 4, 8}, 1}, {2, 4, 1, 16}, {{1, 1, 1, 4}, {1, 1, 1, 4}, {2, 4, 1, 1}}},
        Row{{{4, 8, 8}, 1}, {1, 128, 2}, {{1, 2, 2}, {1, 8, 1}, {1, 8, 1}}},
        Row{{{8, 8, 1}, 1}, {2, 1, 32, 1}, {{1, 1, 8, 1}, {2, 1, 4, 1}, {1, 1, 1, 1}}},
        Row{{{4, 4, 4}, 1}, {2, 2, 16}, {{1, 1, 4}, {1, 1, 4}, {2, 2, 1}}},
        Row{{{4, 4, 4}, 1}, {4, 2, 8}, {{1, 1, 4}, {1, 2, 2}, {4, 1, 1}}},
        Row{{{8, 8}, 1}, {2, 4, 8}, {{1, 1, 8}, {2, 4, 1}}}, Row{{{12, 2}, 1}, {3, 8}, {{3, 4}, {1, 2}}}}) {
    const HybridShape shape{.inner = row.shape, .split_dims = true};
    EXPECT_EQ(devices_of(hybrid_mesh(shape, row.torus)), mesh_of_parts(row.torus, row.parts));
    EXPECT_EQ(hybrid_mesh(shape, places_of(row.torus)), hybrid_mesh(shape, row.torus));
  }
  EXPECT_EQ(logical_mesh_text(hybrid_mesh({.inner = {2, 2}, .split_dims = true}, Torus{{4}, 1})), "[[0, 1], [2, 3]]");
  // Where whole dims suffice, no dim is split, and the mesh is the same.
  EXPECT_EQ(hybrid_mesh({.inner = {4, 8}, .outer = {2, 1}, .split_dims = true}, Torus{{4, 8}, 2}),
            hybrid_mesh({.inner = {4, 8}, .outer = {2, 1}}, Torus{{4, 8}, 2}));
}

// Every shape of three axes on many tori: each device is there once, and the devices of the last axes together are a
// box of the torus, whatever the places along the others.
TEST(HybridMeshTest, AxesThatShareDimsAreContiguous) {
  int shared = 0;
  for (const Torus& torus : {Torus{{16}, 1}, Torus{{4, 4}, 1}, Torus{{8, 2, 1}, 1}, Torus{{2, 3, 4}, 1},
                             Torus{{6, 6}, 1}, Torus{{4, 4, 4}, 1}, Torus{{12, 5}, 1}, Torus{{2, 4, 2, 3}, 1}}) {
    const std::vector<DeviceCoordinates> places = places_of(torus);
    const auto count = static_cast<std::int32_t>(places.size());
    for (std::int32_t a = 1; a <= count; ++a)
      for (std::int32_t b = 1; b <= count / a; ++b) {
        if (count % (a * b) != 0) continue;
        const HybridShape shape{.inner = {a, b, count / a / b}, .split_dims = true};
        const Mesh mesh = hybrid_mesh(shape, torus);
        try {
          EXPECT_EQ(hybrid_mesh({.inner = shape.inner}, torus), mesh);
        } catch (const tessera::error&) {
          ++shared;
        }
        ASSERT_EQ(hybrid_mesh(shape, places), mesh);
        const std::vector<int> devices = devices_of(mesh);
        std::vector<int> sorted = devices;
        std::sort(sorted.begin(), sorted.end());
        for (std::int32_t i = 0; i < count; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
        for (const std::int32_t run : {count / a, count / a / b}) {
          for (std::int32_t first = 0; first < count; first += run) {
            std::vector<std::int32_t> low(torus.dims.size(), count), high(torus.dims.size(), -1);
            for (std::int32_t i = first; i < first + run; ++i)
              for (std::size_t dim = 0; dim < torus.dims.size(); ++dim) {
                const std::int32_t at =
                    places[static_cast<std::size_t>(devices[static_cast<std::size_t>(i)])].coordinates[dim];
                low[dim] = std::min(low[dim], at);
                high[dim] = std::max(high[dim], at);
              }
            std::int32_t box = 1;
            for (std::size_t dim = 0; dim < torus.dims.size(); ++dim) box *= high[dim] - low[dim] + 1;
            ASSERT_EQ(box, run) << mesh.text();
          }
        }
      }
  }
  EXPECT_GT(shared, 100);
}

// More digits than an order can have: kept as a list.
TEST(HybridMeshTest, ManySharedDims) {
  const Torus torus{{16, 16, 16, 16}, 1};
  const HybridShape shape{.inner = {9, 1, 1, 1, 1, 1}, .split_dims = true};
  expect_error(
      errc::mesh_devices, [&] { (void)hybrid_mesh(shape, torus); }, "65536 for an inner shape of 9x");
  std::vector<tessera::Digit> digits;
  for (int d = 0; d < 14; ++d) digits.push_back({2, 1 << d});
  const tessera::DeviceOrder order = tessera::detail::order_of(digits);  // bits reversed
  EXPECT_FALSE(order.is_counter());
  EXPECT_EQ(order[1], 1 << 13);
  EXPECT_EQ(order[1 << 13], 1);
}

TEST(HybridMeshTest, MistakesAreNamed) {
  const auto fails = [](errc id, HybridShape shape, Torus torus, const char* part) {
    expect_error(
        id, [&] { (void)hybrid_mesh(shape, torus); }, "[hybrid_mesh]", part, " at hybrid_mesh_test.cpp:");
    expect_error(
        id, [&] { (void)hybrid_mesh(shape, places_of(torus)); }, "[hybrid_mesh]", part, " at hybrid_mesh_test.cpp:");
  };
  fails(errc::mesh_devices, {{2, 2}, {2, 1}, {}}, {{2, 2}, 1}, "single slice");
  fails(errc::mesh_devices, {{2, 4}, {2, 1}, {}}, {{2, 2}, 2}, "4 for an inner shape of 2x4");
  fails(errc::mesh_devices, {{2, 2}, {3, 1}, {}}, {{2, 2}, 2}, "2 for an outer shape of 3x1");
  fails(errc::mesh_devices, {{2, 2}, {}, {}}, {{2, 2}, 2}, "2 for an outer shape of 1x1");
  fails(errc::mesh_axis, {{2, 2}, {1}, {}}, {{2, 2}, 1}, "inner has 2 sizes, outer 1");
  fails(errc::mesh_axis, {{2, 2}, {}, {"x"}}, {{2, 2}, 1}, "1 names for 2 axes");
  fails(errc::mesh_axis, {{4, 0}, {}, {}}, {{2, 2}, 1}, "axis 1");
  fails(errc::mesh_devices, {{8, 2}, {}, {}}, {{4, 4}, 1}, "inner axis 1 of size 2");
  fails(errc::mesh_devices, {{8, 2}, {}, {}}, {{4, 4}, 1}, "split_dims");
  const auto places_fail = [](std::vector<DeviceCoordinates> places, const char* part) {
    expect_error(
        errc::mesh_devices, [&] { (void)hybrid_mesh({.inner = {4}}, places); }, part, " at hybrid_mesh_test.cpp:");
  };
  places_fail({}, "the list of devices is empty");
  places_fail({{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0}, 0}, {{1, 0}, 0}}, "2 and 3 of slice 0");
  places_fail({{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0}, 0}, {{2, 0}, 0}}, "full slices");
  places_fail({{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0, 0}, 0}, {{1, 1}, 0}}, "a device has 3, the first device has 2");
  places_fail({{{0}, 0}, {{1}, 0}, {{0}, 1}, {{2}, 1}}, "slices of equal shapes");
  places_fail({{{0}, 0}, {{1}, 0}, {{0}, 1}, {{0}, 2}}, "full slices");
  places_fail({{{0}, 0}, {{2'000'000'000}, 0}}, "have a range of");
  places_fail({{{-2'000'000'000}, 0}, {{2'000'000'000}, 0}}, "have a range of");
}

}  // namespace
