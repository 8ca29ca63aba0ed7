#include <type_traits>

#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_spec.hpp>
#include <tessera/mesh/sharding_string.hpp>
#include <tessera/mesh/sub_mesh.hpp>

namespace ts = tessera;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
static_assert(mesh.rank() == 2 && mesh.size() == 8 && mesh.axis_index("model") == 1);
static_assert(mesh.device_at({1, 2}) == 6 && mesh.coordinates_of(6) == ts::Coordinates{1, 2});
static_assert(mesh.hash() != ts::Mesh({{"data", 4}, {"model", 2}}).hash());
static_assert(ts::parse_mesh("data=2,model=4") == mesh);
static_assert(ts::Mesh() == ts::Mesh({}) && ts::Mesh({{"x", 2}}).rank() == 1);
static_assert(ts::Mesh({{"x", 2}, {"y", 2}}, {3, 2, 1, 0}).device_at({0, 0}) == 3);

// Braces as an argument of a function: each form must mean its number of entries.
constexpr std::size_t entries(const ts::PartitionSpec& spec) { return spec.entries.size(); }
static_assert(entries({}) == 0 && entries({"x"}) == 1 && entries({ts::none}) == 1);
static_assert(entries({"x", "y"}) == 2 && entries({{"x", "y"}}) == 1 && entries({"x", ts::none, {"y", "z"}}) == 3);
static_assert(ts::parse_spec("{data,-,(x,y)}") == ts::PartitionSpec({"data", ts::none, {"x", "y"}}));
static_assert(ts::PartitionSpec({0, ts::none, {1, "x"}}) == ts::parse_spec("{0,-,(1,x)}"),
              "an index is not a null name");

constexpr ts::Sharding sharding = ts::resolve({"data", "model"}, mesh, 3);
static_assert(sharding.used_axes() == 0b11 && !sharding.is_replicated() && sharding.hash() != 0);
static_assert(ts::resolve(ts::PartitionSpec({"data"}).gathered_on_use(), mesh, 1).priority[0] == 1);
static_assert(ts::spec_of(sharding, mesh) == ts::PartitionSpec({"data", "model", ts::none}));
static_assert(ts::extents(ts::shard_box({5, 8, 3}, sharding, mesh, {1, 2})) == ts::Shape{2, 2, 3});

constexpr ts::ShardGrid grid(mesh, ts::resolve({"model"}, mesh, 1));
static_assert(grid.count() == 4 && grid.replicas() == 2 && grid.index_of({1, 3}) == 3);
static_assert(grid.coordinates(3, 1) == ts::Coordinates{1, 3});
static_assert(ts::replica_id(mesh, ts::resolve({"model"}, mesh, 1), 7) == 1);

// Copied into every node of a plan, and kept in template arguments.
static_assert(std::is_trivially_copyable_v<ts::Sharding> && std::is_aggregate_v<ts::Sharding>);
static_assert(sizeof(ts::Sharding) <= 88);  // 8 bytes of which are the cuts of axes into sub-axes
template <ts::Sharding S> constexpr int rank_v = S.rank;
static_assert(rank_v<sharding> == 3);

// A whole sweep in one constant expression, well inside the default step limits of both compilers.
constexpr bool tiles(std::int64_t extent) {
  constexpr ts::Mesh cube({{"x", 4}, {"y", 4}, {"z", 4}});
  const ts::Sharding split = ts::resolve({{"y", "x"}, "z"}, cube, 2);
  const ts::ShardGrid shards(cube, split);
  std::int64_t total = 0;
  for (int shard = 0; shard < shards.count(); ++shard)
    total += ts::volume(ts::extents(ts::shard_box({extent, extent}, split, cube, shards.coordinates(shard))));
  return total == extent * extent;
}
static_assert(tiles(0) && tiles(1) && tiles(13) && tiles(64));

// Meshes of any size are constants of one size; their strings and boxes take no loop over devices.
constexpr ts::Mesh pod({{"data", 100}, {"expert", 10}, {"model", 100}});
constexpr ts::HloSharding pod_sharding = ts::hlo_sharding(ts::resolve({"model", "data"}, pod, 2), pod);
static_assert(pod_sharding ==
              ts::parse_hlo_sharding("{devices=[100,100,10]<=[100,10,100]T(2,0,1) last_tile_dim_replicate}"));
static_assert(pod_sharding.type() == ts::ShardingType::partially_replicated);
static_assert(ts::device_box({1000, 1000}, pod_sharding, 54321) == ts::Box{{210, 540}, {220, 550}});
static_assert(ts::device_box({1000, 1000}, ts::resolve({"model", "data"}, pod, 2), pod, 54321).begin[1] == 540);
static_assert(ts::locate({215, 549}, {1000, 1000}, ts::resolve({"model", "data"}, pod, 2), pod).index ==
              ts::Shape{5, 9});
static_assert(sizeof(ts::Mesh) <= 384 && std::is_trivially_copyable_v<ts::Mesh>);

static_assert(mesh["model"].containing(5).device_at({2}) == 6 && mesh[{"model", "data"}].device_at({2, 1}) == 6);
static_assert(mesh["data"].mesh() == ts::Mesh({{"data", 2}}) && mesh["data"].size() == 2);
static_assert(ts::resolve({0, 1}, ts::unnamed_mesh({2, 4}), 2) == ts::resolve({"data", "model"}, mesh, 2));
static_assert(ts::ShardingSpec{mesh, {"data", ts::none}, true}.global_shape({6, 3}, 2) == ts::Shape{12, 3});

}  // namespace
