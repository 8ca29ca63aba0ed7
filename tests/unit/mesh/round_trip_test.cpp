// Properties of all meshes and shardings, tried on generated ones; failures are shrunk to the smallest.
#if __has_include(<rapidcheck.h>)

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_string.hpp>
#include <tessera/mesh/shardy.hpp>

namespace {

using tessera::Mesh;
using tessera::Sharding;

/// From low to high - 1, over the whole range from the first try on.
int between(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high)); }

Mesh any_mesh() {
  tessera::AxisTable axes;
  std::int64_t size = 1;
  const int rank = between(0, 5);
  const bool named = between(0, 2) == 1;
  for (int axis = 0; axis < rank; ++axis) {
    const int extent = between(1, 5);
    axes.push_back(
        {named ? tessera::Name(std::string(1, static_cast<char>('a' + axis))) : tessera::detail::name_of_index(axis),
         extent});
    size *= extent;
  }
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < size; ++id) ids.push_back(id);
  const auto swaps = *rc::gen::container<std::vector<std::uint8_t>>(rc::gen::arbitrary<std::uint8_t>());
  for (std::size_t i = 0; i + 1 < swaps.size(); i += 2)
    std::swap(ids[swaps[i] % ids.size()], ids[swaps[i + 1] % ids.size()]);
  return Mesh(axes, tessera::DeviceOrder(ids.data(), ids.size()));
}

Sharding any_sharding(const Mesh& mesh, bool with_unreduced) {
  Sharding sharding = tessera::replicated(between(0, 4));
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const int place = between(-1, sharding.rank + (with_unreduced ? 1 : 0));
    if (place == sharding.rank) sharding.unreduced = static_cast<std::uint16_t>(sharding.unreduced | 1u << axis);
    if (place < 0 || place >= sharding.rank) continue;
    tessera::AxisList& axes = sharding.dims[place];
    axes.insert(static_cast<std::size_t>(between(0, static_cast<int>(axes.size()) + 1)),
                static_cast<std::uint8_t>(axis));
  }
  return sharding;
}

void expect_property(const char* what, const std::function<void()>& property) {
  EXPECT_TRUE(rc::check(what, property));
}

TEST(RoundTripTest, MeshesAreReadBack) {
  expect_property("parse(print(mesh)) == mesh", [] {
    const Mesh mesh = any_mesh();
    RC_ASSERT(tessera::parse_mesh(mesh.text()) == mesh);
    RC_ASSERT(tessera::parse_mesh(mesh.text()).hash() == mesh.hash());
    RC_ASSERT(tessera::parse_shardy_mesh(tessera::shardy_mesh_text(mesh)) == mesh);
  });
}

TEST(RoundTripTest, SpecsAreReadBack) {
  expect_property("resolve(parse(print(spec_of(sharding)))) == sharding", [] {
    const Mesh mesh = any_mesh();
    const Sharding sharding = any_sharding(mesh, false);
    RC_ASSERT(tessera::resolve(tessera::parse_spec(tessera::text(sharding, mesh)), mesh, sharding.rank) == sharding);
  });
}

TEST(RoundTripTest, HloShardingsAreReadBack) {
  expect_property("parse(print(hlo)) == hlo, in both forms, and canonical() changes nothing twice", [] {
    const Mesh mesh = any_mesh();
    const auto hlo = tessera::hlo_sharding(any_sharding(mesh, true), mesh);
    for (auto form : {tessera::HloForm::iota, tessera::HloForm::v1}) {
      const auto again = tessera::parse_hlo_sharding(hlo.text(form));
      RC_ASSERT(again == hlo);
      RC_ASSERT(again.hash() == hlo.hash());
      RC_ASSERT(again.text(form) == hlo.text(form));
      RC_ASSERT(again.canonical().text(form) == hlo.text(form));
    }
  });
}

TEST(RoundTripTest, ShardyShardingsAreReadBack) {
  expect_property("parse(print(sharding)) == sharding", [] {
    const Mesh mesh = any_mesh();
    const Sharding sharding = any_sharding(mesh, true);
    RC_ASSERT(tessera::parse_shardy(tessera::shardy_text(sharding, mesh), mesh).sharding == sharding);
  });
}

// Equality of HLO shardings is that of the boxes and the replicas they put on each device.
TEST(RoundTripTest, EqualityIsThatOfWhatDevicesHold) {
  expect_property("a == b exactly where every device has the same box", [] {
    const Mesh mesh = any_mesh();
    const Sharding a = any_sharding(mesh, false);
    Sharding b = any_sharding(mesh, false);
    b.rank = a.rank;
    for (int dim = 0; dim < tessera::max_rank; ++dim)
      if (dim >= a.rank) b.dims[dim].clear();
    const tessera::Shape shape(a.rank, 1 << 20);  // every tile of any of these meshes is a box of its own
    const auto x = tessera::hlo_sharding(a, mesh), y = tessera::hlo_sharding(b, mesh);
    bool same = true;
    for (int device = 0; device < mesh.size(); ++device)
      same = same && tessera::device_box(shape, a, mesh, device) == tessera::device_box(shape, b, mesh, device);
    RC_ASSERT((x == y) == same);
    RC_ASSERT(tessera::same_placement(a, mesh, b, mesh) == same);
  });
}

}  // namespace

#endif
