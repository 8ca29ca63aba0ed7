#ifndef TESSERA_MESH_SHARDING_STRING_HPP
#define TESSERA_MESH_SHARDING_STRING_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/device_order.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/text_reader.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The text form of the devices in an HLO sharding: a transposed iota if possible, or a list of ids.
enum class HloForm : std::uint8_t { iota, v1 };

/// The kind of an HLO sharding.
enum class ShardingType : std::uint8_t {
  unannotated,
  replicated,
  maximal,
  tiled,
  partially_replicated,
  manual,
  unreduced
};

constexpr std::string_view name_of(ShardingType type) {
  constexpr std::string_view names[] = {"unannotated",          "replicated", "maximal",  "tiled",
                                        "partially replicated", "manual",     "unreduced"};
  return names[static_cast<std::size_t>(type)];
}

/// A parsed HLO sharding string, the text that XLA and its tools exchange.
/// Two shardings are equal if each device holds the same tile in the same role, however they are written; hashes agree.
/// Devices in the order of a transposed iota take no time or memory each. Errors: `capacity` from ==, canonical() and
/// replica_id() for more than max_listed_devices devices, if the sizes of the tile don't divide those of the transposed
/// iota; from text() if it would have to list more devices.
struct HloSharding {
  enum class Kind : std::uint8_t { unannotated, replicated, maximal, manual, unreduced, tiled };
  enum class Subgroup : std::uint8_t { manual, unreduced, replicated };

  Kind kind = Kind::unannotated;
  InlineVector<std::int64_t, max_rank + 4> tile;  ///< number of tiles per dim, then the size of each subgroup
  InlineVector<Subgroup, 4> subgroups;            ///< the meaning of the last dims of the tile
  DeviceOrder devices;                            ///< row-major over the tile; of a maximal sharding, its one device

  /// The number of the tensor's dims that the tile covers.
  constexpr std::size_t rank() const { return tile.size() - subgroups.size(); }
  /// The number of tiles that the dims of the tensor are cut into.
  constexpr std::int64_t tile_count() const {
    std::int64_t count = 1;
    for (std::size_t dim = 0; dim < rank(); ++dim) count *= tile[dim];
    return count;
  }
  constexpr ShardingType type() const;
  /// The canonical form: subgroups merged by kind and in the order manual, unreduced, replicated, without those of size
  /// one; replicas in ascending order; `replicated` as such.
  constexpr HloSharding canonical() const;
  constexpr std::uint64_t hash() const;
  /// The text that XLA prints; empty for an unannotated value. parse_hlo_sharding parses it.
  std::string text(HloForm form = HloForm::iota) const;

  friend constexpr bool operator==(const HloSharding& a, const HloSharding& b) {
    if (a.kind == b.kind && a.tile == b.tile && a.subgroups == b.subgroups && a.devices == b.devices) return true;
    const HloSharding x = a.canonical_tile(), y = b.canonical_tile();
    if (x.kind != y.kind || !(x.tile == y.tile) || !(x.subgroups == y.subgroups)) return false;
    return x.kind == Kind::tiled ? a.canonical().devices == b.canonical().devices : x.devices == y.devices;
  }

 private:
  static constexpr std::size_t max_tile_dims = max_rank + 4;
  /// canonical() without the devices; `order` gets, for each dim of the canonical tile, the dim of this tile.
  constexpr HloSharding canonical_tile(int* order, std::size_t& axes) const;
  constexpr HloSharding canonical_tile() const {
    int order[max_tile_dims]{};
    std::size_t axes = 0;
    return canonical_tile(order, axes);
  }
};

namespace detail {

constexpr std::string_view name_of(HloSharding::Subgroup subgroup) {
  constexpr std::string_view names[] = {"manual", "unreduced", "replicated"};
  return names[static_cast<std::size_t>(subgroup)];
}

/// A parser of one sharding string, with a member function for each production of the grammar.
class HloParser {
 public:
  constexpr explicit HloParser(std::string_view source) : source_(source), reader_{source} {}

  constexpr HloSharding parse() {
    using Kind = HloSharding::Kind;
    HloSharding sharding;
    if (reader_.done()) return sharding;
    expect(reader_.take("{"));
    if (reader_.take("replicated")) {
      sharding.kind = Kind::replicated;
    } else if (reader_.take("manual")) {
      sharding.kind = Kind::manual;
    } else if (reader_.take("unreduced")) {
      sharding.kind = Kind::unreduced;
    } else if (reader_.take("maximal")) {
      sharding.kind = Kind::maximal;
      expect(reader_.take("device="));
      sharding.devices = {number()};
    } else {
      expect(reader_.take("devices="));
      tiled(sharding);
    }
    expect(reader_.take("}") && reader_.done());
    return sharding;
  }

 private:
  using Numbers = Growable<std::int32_t>;

  constexpr void tiled(HloSharding& sharding) {
    sharding.kind = HloSharding::Kind::tiled;
    const Numbers tile = sizes();
    require(tile.size() <= sharding.tile.capacity(), "more than 8 dims");
    for (std::int32_t size : tile) sharding.tile.push_back(size);
    if (reader_.take("<=")) {
      const Numbers dims = sizes();
      Numbers order;
      for (std::size_t dim = 0; dim < dims.size(); ++dim) order.push_back(static_cast<std::int32_t>(dim));
      if (reader_.take("T(")) {
        order = numbers();
        expect(reader_.take(")"));
      }
      require(count(dims) == count(tile), "the sizes in devices=[...] and in <=[...] have different products");
      require(transposed_range(dims.data(), dims.size(), order.data(), order.size(), sharding.devices),
              "the numbers in T(...) are not a permutation of the dims");
    } else {
      const Numbers devices = numbers();
      const auto given = static_cast<std::int64_t>(devices.size());
      require(given == count(tile), "the product of the sizes in devices=[...] is not the number of devices listed");
      require(is_permutation(devices), "the listed devices are not a permutation of 0, 1, 2, ...");
      sharding.devices = DeviceOrder(devices.data(), devices.size());
    }
    if (reader_.take("last_tile_dim_replicate")) {
      sharding.subgroups = {HloSharding::Subgroup::replicated};
    } else if (reader_.take("last_tile_dims={")) {
      do {
        require(sharding.subgroups.size() < sharding.subgroups.capacity(), "too many entries in last_tile_dims");
        sharding.subgroups.push_back(subgroup());
      } while (reader_.take(","));
      expect(reader_.take("}"));
    }
    require(sharding.subgroups.size() <= sharding.tile.size(), "more entries in last_tile_dims than tile dims");
    require(sharding.rank() <= max_rank, "more than 8 dims");
  }

  constexpr HloSharding::Subgroup subgroup() {
    using Subgroup = HloSharding::Subgroup;
    for (Subgroup s : {Subgroup::manual, Subgroup::unreduced, Subgroup::replicated})
      if (reader_.take(name_of(s))) return s;
    expect(false);
    return Subgroup::manual;
  }
  constexpr std::int32_t number() {
    std::int32_t value = 0;
    expect(reader_.take(value) && value >= 0);
    return value;
  }
  constexpr Numbers numbers() {
    Numbers list;
    do list.push_back(number());
    while (reader_.take(","));
    return list;
  }
  constexpr Numbers sizes() {
    expect(reader_.take("["));
    const Numbers list = numbers();
    for (std::int32_t size : list) require(size > 0, "a size is zero");
    expect(reader_.take("]"));
    return list;
  }
  constexpr std::int64_t count(const Numbers& list) const {
    std::int64_t product = 1;
    for (std::int32_t size : list) {
      require(size <= INT32_MAX / product, "more than 2^31 devices");
      product *= size;
    }
    return product;
  }
  static constexpr bool is_permutation(const Numbers& list) {
    Growable<bool> seen(list.size());
    for (std::int32_t value : list) {
      const auto at = static_cast<std::size_t>(value);
      if (at >= list.size() || seen[at]) return false;
      seen[at] = true;
    }
    return true;
  }
  constexpr void require(bool holds, std::string_view problem) const {
    if (!holds) fail(errc::sharding_string, "[hlo] sharding string: ", problem, " in '", source_, "'");
  }
  constexpr void expect(bool matches) const {
    if (!matches)
      fail(errc::sharding_string, "[hlo] syntax: can't read '", source_, "' from '", reader_.rest,
           "' on; a sharding is written {replicated} or {devices=[2,4]<=[8]}");
  }

  std::string_view source_;
  TextReader reader_;
};

}  // namespace detail

constexpr HloSharding HloSharding::canonical_tile(int* order, std::size_t& axes) const {
  if (kind != Kind::tiled) return *this;
  const std::size_t dims = rank();
  HloSharding out;
  out.kind = Kind::tiled;
  for (; axes < dims; ++axes) {
    order[axes] = static_cast<int>(axes);
    out.tile.push_back(tile[axes]);
  }
  for (Subgroup wanted : {Subgroup::manual, Subgroup::unreduced, Subgroup::replicated}) {
    std::int64_t size = 1;
    for (std::size_t group = 0; group < subgroups.size(); ++group) {
      if (subgroups[group] != wanted) continue;
      order[axes++] = static_cast<int>(dims + group);
      size *= tile[dims + group];
    }
    if (size == 1) continue;
    out.subgroups.push_back(wanted);
    out.tile.push_back(size);
  }
  const std::int64_t count = devices.size();
  if (count == out.tile_count() * (out.subgroups.empty() ? 1 : out.tile.back()) && out.tile_count() == 1) {
    constexpr Kind kinds[] = {Kind::manual, Kind::unreduced, Kind::replicated};
    HloSharding whole;
    whole.kind = out.subgroups.empty() ? Kind::replicated : kinds[static_cast<std::size_t>(out.subgroups.back())];
    return whole;
  }
  return out;
}

constexpr HloSharding HloSharding::canonical() const {
  int order[max_tile_dims]{};
  std::size_t axes = 0;
  HloSharding out = canonical_tile(order, axes);
  if (out.kind != Kind::tiled) return out;
  out.devices = devices.transposed(tile.data(), order, axes);
  if (!out.subgroups.empty() && out.subgroups.back() == Subgroup::replicated)
    out.devices = out.devices.ascending_in_groups(out.tile.back());
  return out;
}

constexpr std::uint64_t HloSharding::hash() const {
  HloSharding one = canonical_tile();
  // Shardings that differ only in devices which can't be listed share a hash.
  if (one.kind == Kind::tiled && devices.size() <= max_listed_devices) one = canonical();
  std::uint64_t hash = hash_mix(0, static_cast<std::uint64_t>(one.kind));
  for (std::int64_t size : one.tile) hash = hash_mix(hash, static_cast<std::uint64_t>(size));
  for (Subgroup group : one.subgroups) hash = hash_mix(hash, static_cast<std::uint64_t>(group));
  return hash_mix(hash, one.devices.hash());
}

constexpr ShardingType HloSharding::type() const {
  constexpr ShardingType types[] = {ShardingType::unannotated, ShardingType::replicated, ShardingType::maximal,
                                    ShardingType::manual,      ShardingType::unreduced,  ShardingType::tiled};
  const HloSharding one = canonical_tile();
  if (one.kind != Kind::tiled || one.subgroups.empty()) return types[static_cast<std::size_t>(one.kind)];
  if (one.subgroups.contains(Subgroup::manual)) return ShardingType::manual;
  if (one.subgroups.contains(Subgroup::unreduced)) return ShardingType::unreduced;
  return ShardingType::partially_replicated;
}

inline std::string HloSharding::text(HloForm form) const {
  switch (kind) {
    case Kind::unannotated:
      return {};
    case Kind::replicated:
      return "{replicated}";
    case Kind::manual:
      return "{manual}";
    case Kind::unreduced:
      return "{unreduced}";
    case Kind::maximal:
      return concat_text("{maximal device=", devices[0], "}");
    case Kind::tiled:
      break;
  }
  std::string out = "{devices=[";
  for (std::size_t dim = 0; dim < tile.size(); ++dim) out += concat_text(dim ? "," : "", tile[dim]);
  out += "]";
  if (form == HloForm::iota && devices.is_counter())
    out += concat_text("<=", devices.counter_text());
  else if (devices.is_counter() && devices.size() > max_listed_devices)
    fail(errc::capacity, "[hlo] listed devices: ", devices.size(), ", but at most ", max_listed_devices,
         " can be listed; use HloForm::iota, which writes an iota with a transposition");
  else
    out += devices.list_text();
  if (subgroups.size() == 1 && subgroups[0] == Subgroup::replicated) {
    out += " last_tile_dim_replicate";
  } else if (!subgroups.empty()) {
    out += " last_tile_dims={";
    for (std::size_t i = 0; i < subgroups.size(); ++i) out += concat_text(i ? ", " : "", detail::name_of(subgroups[i]));
    out += "}";
  }
  return out + "}";
}

/// Parses a sharding string: both forms of tiles, replicated, maximal, manual, unreduced; an empty text is unannotated.
/// Errors: `sharding_string` for any other text, and for devices that don't fill the tile.
constexpr HloSharding parse_hlo_sharding(std::string_view source) { return detail::HloParser(source).parse(); }

/// The HLO sharding of a Sharding, canonical: the mesh transposed to the axes of the dims, then unreduced axes, then
/// replicated axes. HLO can't express the kind of reduction.
constexpr HloSharding hlo_sharding(const Sharding& sharding, const Mesh& mesh) {
  if (!sharding.cuts.empty())
    return hlo_sharding(refined_sharding(sharding, mesh, sharding.cuts), refined_mesh(mesh, sharding.cuts));
  HloSharding out;
  out.kind = HloSharding::Kind::tiled;
  int axes[max_axes]{};  // of the transposed mesh, the most significant first
  std::int64_t sizes[max_axes]{};
  std::size_t count = 0;
  for (int axis = 0; axis < mesh.rank(); ++axis) sizes[axis] = mesh.axis_size(axis);
  for (int dim = 0; dim < sharding.rank; ++dim) {
    for (std::uint8_t axis : sharding.dims[dim]) axes[count++] = axis;
    out.tile.push_back(shard_count(sharding, mesh, dim));
  }
  const auto add_subgroup = [&](HloSharding::Subgroup subgroup, unsigned mask) {
    out.subgroups.push_back(subgroup);
    out.tile.push_back(1);
    for (int axis = 0; axis < mesh.rank(); ++axis) {
      if (!(mask >> axis & 1)) continue;
      axes[count++] = axis;
      out.tile.back() *= mesh.axis_size(axis);
    }
  };
  if (sharding.unreduced != 0) add_subgroup(HloSharding::Subgroup::unreduced, sharding.unreduced);
  add_subgroup(HloSharding::Subgroup::replicated, ~unsigned{sharding.used_axes()});
  const DeviceOrder order = mesh.order().empty() ? DeviceOrder::range(mesh.size()) : mesh.order();
  out.devices = order.transposed(sizes, axes, count);
  return out.canonical();
}

/// The indices that a device holds under an HLO sharding: all indices if it does not tile; none on the other devices of
/// a maximal sharding. Errors: `rank_mismatch`, and `mesh_devices` for a device that the tile lacks.
constexpr Box device_box(const Shape& shape, const HloSharding& sharding, int device) {
  Box box{Shape(shape.size(), 0), shape};
  if (sharding.kind == HloSharding::Kind::maximal && device != sharding.devices[0]) box.end = box.begin;
  if (sharding.kind != HloSharding::Kind::tiled) return box;
  if (sharding.rank() != shape.size())
    fail(errc::rank_mismatch, "[hlo] rank: the shape has rank ", shape.size(), ", the sharding has rank ",
         sharding.rank());
  const std::int64_t position = sharding.devices.position_of(device);
  if (position == sharding.devices.size())
    fail(errc::mesh_devices, "[hlo] device id: ", device, " is not among the ", sharding.devices.size(),
         " devices of the sharding");
  std::int64_t tile = position / (sharding.devices.size() / sharding.tile_count());
  for (std::size_t dim = shape.size(); dim-- > 0; tile /= sharding.tile[dim]) {
    const std::int64_t chunk = shape[dim] / sharding.tile[dim] + (shape[dim] % sharding.tile[dim] != 0);
    const std::int64_t begin = tile % sharding.tile[dim] * chunk;
    box.begin[dim] = begin < shape[dim] ? begin : shape[dim];
    box.end[dim] = box.begin[dim] + (chunk < shape[dim] - box.begin[dim] ? chunk : shape[dim] - box.begin[dim]);
  }
  return box;
}

/// Which replica of its shard a device holds: 0 if each device has its own tile; the index in the group of replicas if
/// there are groups; the id of the device if all devices hold everything.
constexpr std::int64_t replica_id(const HloSharding& sharding, int device) {
  using Kind = HloSharding::Kind;
  const HloSharding one = sharding.canonical();
  if (one.kind == Kind::replicated || one.kind == Kind::unannotated) return device;
  if (one.kind != Kind::tiled || one.subgroups.empty() || one.subgroups.back() != HloSharding::Subgroup::replicated)
    return 0;
  return one.devices.position_of(device) % one.tile.back();
}

/// Whether two shardings, on any meshes, place the same indices on each device, with the same pending reduction.
constexpr bool same_placement(const Sharding& a, const Mesh& mesh_a, const Sharding& b, const Mesh& mesh_b) {
  if (a.rank != b.rank || mesh_a.size() != mesh_b.size()) return false;
  const HloSharding one = hlo_sharding(a, mesh_a);
  if (!(one == hlo_sharding(b, mesh_b))) return false;
  return one.type() != ShardingType::unreduced || a.reduction == b.reduction;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
