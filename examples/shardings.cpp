// Shows meshes, specs, shardings and pictures of them, without any tensor. docs/spmd.md explains this file block by
// block, with what each block prints.

#include <cstdint>
#include <iostream>

#include <tessera/mesh/hybrid_mesh.hpp>
#include <tessera/mesh/make_mesh.hpp>
#include <tessera/mesh/shardy.hpp>
#include <tessera/mesh/svg.hpp>
#include <tessera/static.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

static_assert(mesh.size() == 8 && mesh.axis_size(mesh.axis_index("model")) == 4);
static_assert(mesh.device_at({1, 2}) == 6);
static_assert(mesh.coordinates_of(6) == ts::Coordinates{1, 2});

constexpr ts::Sharding rows = ts::resolve({"data"}, mesh, 2);
constexpr ts::Sharding tiles = ts::resolve({"data", "model"}, mesh, 2);
constexpr ts::Sharding merged = ts::resolve({ts::none, {"model", "data"}}, mesh, 2);

void meshes() {
  std::cout << mesh.text() << " " << ts::logical_mesh_text(mesh) << "\n";

  const ts::Mesh snake({{"x", 2}, {"y", 2}}, {0, 1, 3, 2});  // devices in an order of its own
  std::cout << snake.text() << " " << ts::logical_mesh_text(snake) << "\n";

  const ts::Mesh plain = ts::unnamed_mesh({2, 4});  // its axes are named 0 and 1
  const ts::Mesh line = ts::mesh_1d(8, "data");
  std::cout << plain.text() << " " << line.text() << " " << (ts::parse_mesh("data=8") == line) << "\n";
}

void parts() {
  const ts::SubMesh model = mesh["model"];
  std::cout << model.devices().list_text() << "\n";                // the devices of the model axis with device 0
  std::cout << model.containing(5).devices().list_text() << "\n";  // those with device 5
  std::cout << mesh[{"model", "data"}].mesh().text() << "\n";
}

void specs() {
  for (const char* spec : {"{data,model}", "{data,-}", "{-,(model,data)}", "{}"})
    std::cout << spec << " is " << ts::hlo_sharding(ts::resolve(ts::parse_spec(spec), mesh, 2), mesh).text() << "\n";
  try {
    ts::resolve({"data", "modle"}, mesh, 2);
  } catch (const ts::error& e) {
    std::cout << e.what() << "\n";
  }
}

void boxes() {
  const ts::Shape shape{5, 8};
  for (int device : {0, 3, 4}) {
    const ts::Box box = ts::device_box(shape, rows, mesh, device);
    std::cout << "device " << device << ": rows " << box.begin[0] << " to " << box.end[0] << ", replica "
              << ts::replica_id(mesh, rows, device) << "\n";
  }
  const ts::ElementLocation place = ts::locate({3, 7}, shape, tiles, mesh);
  std::cout << "element 3,7 is element " << place.index[0] << "," << place.index[1] << " of shard " << place.shard
            << "\n";
}

void pictures() {
  std::cout << ts::visualize_sharding(tiles, mesh);
  std::cout << ts::visualize_sharding(merged, mesh, {.device_kind = "TPU", .max_columns = 4});
}

void large() {
  constexpr ts::Mesh pod({{"data", 1000}, {"model", 100}});
  constexpr ts::Sharding weights = ts::resolve({"model", "data"}, pod, 2);
  static_assert(ts::hlo_sharding(weights, pod).devices.size() == 100'000);
  static_assert(ts::device_box({8192, 8192}, weights, pod, 54'321).begin == ts::Shape{1722, 4887});
  std::cout << ts::hlo_sharding(weights, pod).text() << "\n";
  std::cout << ts::visualize_sharding(weights, pod, {.max_rows = 3, .max_columns = 4});
}

constexpr ts::Sharding halves = ts::resolve({ts::sub_axis("model", 1, 2), ts::sub_axis("model", 2, 2)}, mesh, 2);

struct TwoRows {
  constexpr auto operator()(auto x) const { return ts::split_dim<0>(x, 4); }  // [8/model] to [2, 4]
};
constexpr ts::Plan plan_of(const ts::PartitionSpec& spec) {
  return ts::plan(TwoRows{}, mesh, ts::abstract<float>({8}, spec));
}
static_assert(plan_of({"model"}).main().steps.empty());            // nothing moves
static_assert(plan_of({{"model", "data"}}).main().steps.empty());  // {model:(1)2,(model:(2)2,data)}

void sub_axes() {
  std::cout << ts::text(halves, mesh) << " is " << ts::hlo_sharding(halves, mesh).text() << "\n";
  std::cout << ts::text(ts::resolve({{"model:(1)2", "model:(2)2"}}, mesh, 1), mesh) << "\n";  // both halves: the axis
  for (int device : {1, 2}) {
    const ts::Box box = ts::device_box({2, 4}, halves, mesh, device);
    std::cout << "device " << device << ": row " << box.begin[0] << ", columns from " << box.begin[1] << "\n";
  }
}

void hybrid() {
  const ts::Mesh pods =
      ts::hybrid_mesh({.inner = {1, 4}, .outer = {2, 1}, .axes = {"data", "model"}}, ts::Torus{{2, 2, 1}, 2});
  std::cout << pods.text() << " " << ts::logical_mesh_text(pods) << "\n";

  const ts::Mesh shared =  // model gets one and a half dims of the torus
      ts::hybrid_mesh({.inner = {2, 8}, .axes = {"data", "model"}, .split_dims = true}, ts::Torus{{4, 4}, 1});
  std::cout << shared.text() << "\n";
}

void strings() {
  const ts::HloSharding hlo = ts::hlo_sharding(rows, mesh);
  std::cout << hlo.text() << "\n" << hlo.text(ts::HloForm::v1) << "\n" << ts::name_of(hlo.type()) << "\n";
  std::cout << ts::shardy_text(rows, mesh) << "\n" << ts::shardy_mesh_text(mesh) << "\n";

  const auto other = ts::parse_hlo_sharding("{devices=[2,1,4]3,2,1,0,7,6,5,4 last_tile_dim_replicate}");
  std::cout << (other == hlo) << "\n";  // the same groups of replicas

  const char* const parts = R"(#sdy.sharding<@mesh, [{"model":(2)2}, {"data"}]>)";
  const ts::Sharding minor = ts::parse_shardy(parts, mesh).sharding;
  std::cout << ts::text(minor, mesh) << " " << ts::shardy_text(minor, mesh) << "\n";

  const ts::Mesh refined = ts::shardy_mesh(mesh, {parts});
  const ts::Sharding axes = ts::parse_shardy(parts, refined).sharding;
  std::cout << refined.text() << " " << ts::same_placement(axes, refined, minor, mesh) << "\n";
  std::cout << ts::shardy_mesh_text(refined) << "\n" << ts::hlo_sharding(axes, refined).text() << "\n";
}

int main() {
  std::cout << std::boolalpha;
  meshes();
  parts();
  specs();
  boxes();
  pictures();
  large();
  sub_axes();
  hybrid();
  strings();
}
