#include <algorithm>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/hybrid_mesh.hpp>
#include <tessera/mesh/make_mesh.hpp>

namespace {

using tessera::DevicePlace;
using tessera::errc;
using tessera::hybrid_mesh;
using tessera::HybridShape;
using tessera::logical_mesh_text;
using tessera::Mesh;
using tessera::Torus;
using tessera_test::expect_error;

/// What a Torus says, device by device.
std::vector<DevicePlace> places_of(const Torus& torus) {
  std::vector<DevicePlace> places;
  for (int slice = 0; slice < torus.slices; ++slice) {
    std::int64_t in_slice = 1;
    for (std::int32_t dim : torus.dims) in_slice *= dim;
    for (std::int64_t i = 0; i < in_slice; ++i) {
      DevicePlace place{{}, slice};
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
  const std::vector<DevicePlace> places{{{0, 1, 0}, 0}, {{1, 0, 0}, 0}, {{0, 0, 0}, 0}, {{1, 1, 0}, 0},
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
          for (DevicePlace& place : moved) {
            place.slice = 10 * place.slice - 7;
            for (auto& x : place.coordinates) x += 3 + place.slice;
          }
          EXPECT_EQ(hybrid_mesh(shape, moved), symbolic);
        }
  EXPECT_GT(made, 40);
}

// A pod of v5p and more: nothing is kept per device.
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

TEST(HybridMeshTest, MistakesAreNamed) {
  const auto fails = [](errc id, HybridShape shape, Torus torus, const char* part) {
    expect_error(
        id, [&] { (void)hybrid_mesh(shape, torus); }, "[hybrid_mesh]", part);
    expect_error(
        id, [&] { (void)hybrid_mesh(shape, places_of(torus)); }, "[hybrid_mesh]", part);
  };
  fails(errc::mesh_devices, {{2, 2}, {2, 1}, {}}, {{2, 2}, 1}, "single slice");
  fails(errc::mesh_devices, {{2, 4}, {2, 1}, {}}, {{2, 2}, 2}, "4 for an inner shape of 2x4");
  fails(errc::mesh_devices, {{2, 2}, {3, 1}, {}}, {{2, 2}, 2}, "2 for an outer shape of 3x1");
  fails(errc::mesh_devices, {{2, 2}, {}, {}}, {{2, 2}, 2}, "2 for an outer shape of 1x1");
  fails(errc::mesh_axis, {{2, 2}, {1}, {}}, {{2, 2}, 1}, "2 and 1");
  fails(errc::mesh_axis, {{2, 2}, {}, {"x"}}, {{2, 2}, 1}, "1 names for 2 axes");
  fails(errc::mesh_axis, {{4, 0}, {}, {}}, {{2, 2}, 1}, "axis 1");
  fails(errc::mesh_devices, {{8, 2}, {}, {}}, {{4, 4}, 1}, "inner axis 1 of size 2");
  const auto places_fail = [](std::vector<DevicePlace> places, const char* part) {
    expect_error(
        errc::mesh_devices, [&] { (void)hybrid_mesh({.inner = {4}}, places); }, part);
  };
  places_fail({}, "none");
  places_fail({{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0}, 0}, {{1, 0}, 0}}, "2 and 3 of slice 0");
  places_fail({{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0}, 0}, {{2, 0}, 0}}, "full slices");
  places_fail({{{0, 0}, 0}, {{0, 1}, 0}, {{1, 0, 0}, 0}, {{1, 1}, 0}}, "3 and 2");
  places_fail({{{0}, 0}, {{1}, 0}, {{0}, 1}, {{2}, 1}}, "slices of one shape");
  places_fail({{{0}, 0}, {{1}, 0}, {{0}, 1}, {{0}, 2}}, "full slices");
  places_fail({{{0}, 0}, {{2'000'000'000}, 0}}, "spans");
  places_fail({{{-2'000'000'000}, 0}, {{2'000'000'000}, 0}}, "spans");
}

}  // namespace
