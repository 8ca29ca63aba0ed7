#ifndef TESSERA_MESH_SHARDING_STRING_HPP
#define TESSERA_MESH_SHARDING_STRING_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/text_reader.hpp>

namespace tessera {

/// Two spellings of the devices in an HLO sharding: a transposed range where there is one, or every id.
enum class HloForm : std::uint8_t { iota, v1 };

/// An HLO sharding string, taken apart: what XLA programs and their tools exchange.
struct HloSharding {
  enum class Kind : std::uint8_t { unannotated, replicated, maximal, manual, unreduced, tiled };
  enum class Subgroup : std::uint8_t { manual, unreduced, replicated };

  Kind kind = Kind::unannotated;
  std::vector<std::int64_t> tile;     ///< tiles a dim, then the size of each subgroup
  std::vector<Subgroup> subgroups;    ///< what the last dims of the tile mean
  std::vector<std::int32_t> devices;  ///< row-major over the tile; of a maximal sharding, the one device

  /// Dims of the tensor that the tile covers.
  std::size_t rank() const { return tile.size() - subgroups.size(); }
  /// The one spelling of a sharding: no subgroup of size one, replicas in ascending order, `replicated` by its name.
  HloSharding canonical() const;
  /// As XLA prints it; empty when unannotated. parse_hlo_sharding reads it back.
  std::string text(HloForm form = HloForm::iota) const;

  friend bool operator==(const HloSharding&, const HloSharding&) = default;
};

namespace detail {

/// `<=[dims]T(order)`: a range reshaped to dims, then transposed.
struct IotaOrder {
  std::vector<std::int64_t> dims;
  std::vector<std::int32_t> order;

  std::vector<std::int32_t> expand() const {
    std::vector<std::int64_t> strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    std::vector<std::int32_t> ids{0};
    for (std::int32_t dim : order) {
      std::vector<std::int32_t> next;
      next.reserve(ids.size() * static_cast<std::size_t>(dims[dim]));
      for (std::int32_t id : ids)
        for (std::int64_t i = 0; i < dims[dim]; ++i) next.push_back(id + static_cast<std::int32_t>(i * strides[dim]));
      ids = std::move(next);
    }
    return ids;
  }

  /// The shortest form that expands to `ids`; without dims when there is none.
  static IotaOrder of(const std::vector<std::int32_t>& ids) {
    struct Run {
      std::int64_t length, stride;
    };
    // From minor to major, each run is as long as its ids keep one stride: runs that could merge have merged.
    const std::int64_t count = static_cast<std::int64_t>(ids.size());
    std::vector<Run> runs;
    for (std::int64_t block = 1; block < count;) {
      Run run{1, ids[block]};
      while (run.length * block < count && ids[run.length * block] == run.length * run.stride) ++run.length;
      block *= run.length;
      runs.push_back(run);
    }
    IotaOrder iota;
    for (std::size_t r = runs.size(); r-- > 0;) {
      std::int32_t wider = 0;
      for (const Run& other : runs) wider += other.stride > runs[r].stride;
      iota.order.push_back(wider);
    }
    iota.dims.resize(runs.size());
    for (std::size_t r = 0; r < runs.size(); ++r) {
      std::int64_t& length = iota.dims[iota.order[runs.size() - 1 - r]];
      if (length != 0) return {};
      length = runs[r].length;
    }
    if (runs.empty()) iota = {{1}, {0}};
    return iota.expand() == ids ? iota : IotaOrder{};
  }
};

template <class Number>
void append_list(std::string& out, const std::vector<Number>& numbers, std::string_view separator = ",") {
  for (std::size_t i = 0; i < numbers.size(); ++i) out += concat_text(i ? separator : "", numbers[i]);
}

inline std::string_view name_of(HloSharding::Subgroup subgroup) {
  constexpr std::string_view names[] = {"manual", "unreduced", "replicated"};
  return names[static_cast<std::size_t>(subgroup)];
}

/// Reads one sharding string; a member a production.
class HloParser {
 public:
  explicit HloParser(std::string_view source) : source_(source), reader_{source} {}

  HloSharding parse() {
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
      sharding.devices.push_back(number());
    } else {
      expect(reader_.take("devices="));
      tiled(sharding);
    }
    expect(reader_.take("}") && reader_.done());
    return sharding;
  }

 private:
  // Far above any machine; bounds what a short iota string can make us allocate.
  static constexpr std::int64_t max_devices = std::int64_t{1} << 22;

  void tiled(HloSharding& sharding) {
    sharding.kind = HloSharding::Kind::tiled;
    sharding.tile = sizes();
    if (reader_.take("<=")) {
      IotaOrder iota{sizes(), {}};
      const auto rank = static_cast<std::int32_t>(iota.dims.size());
      for (std::int32_t dim = 0; dim < rank; ++dim) iota.order.push_back(dim);
      if (reader_.take("T(")) {
        iota.order = {number()};
        while (reader_.take(",")) iota.order.push_back(number());
        expect(reader_.take(")"));
        require(is_permutation(iota.order, rank), "the transposition is no permutation of the dims");
      }
      require(count(iota.dims) == count(sharding.tile), "tile and device counts differ");
      sharding.devices = iota.expand();
    } else {
      do sharding.devices.push_back(number());
      while (reader_.take(","));
      const auto given = static_cast<std::int64_t>(sharding.devices.size());
      require(given == count(sharding.tile), "tile and device counts differ");
      require(is_permutation(sharding.devices, static_cast<std::int32_t>(given)),
              "the devices are no permutation of 0, 1, 2, ...");
    }
    if (reader_.take("last_tile_dim_replicate")) {
      sharding.subgroups = {HloSharding::Subgroup::replicated};
    } else if (reader_.take("last_tile_dims={")) {
      do sharding.subgroups.push_back(subgroup());
      while (reader_.take(","));
      expect(reader_.take("}"));
    }
    require(sharding.subgroups.size() <= sharding.tile.size(), "more subgroups than tile dims");
  }

  HloSharding::Subgroup subgroup() {
    using Subgroup = HloSharding::Subgroup;
    for (Subgroup s : {Subgroup::manual, Subgroup::unreduced, Subgroup::replicated})
      if (reader_.take(name_of(s))) return s;
    expect(false);
    return Subgroup::manual;
  }
  std::int32_t number() {
    std::int32_t value = 0;
    expect(reader_.take(value) && value >= 0);
    return value;
  }
  std::vector<std::int64_t> sizes() {
    expect(reader_.take("["));
    std::vector<std::int64_t> list;
    do {
      list.push_back(number());
      require(list.back() > 0, "a size of zero");
    } while (reader_.take(","));
    expect(reader_.take("]"));
    return list;
  }
  std::int64_t count(const std::vector<std::int64_t>& list) const {
    std::int64_t product = 1;
    for (std::int64_t size : list) {
      require(size <= max_devices / product, "more devices than 2^22");
      product *= size;
    }
    return product;
  }
  static bool is_permutation(const std::vector<std::int32_t>& list, std::int32_t size) {
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (std::int32_t value : list) {
      if (value >= size || seen[value]) return false;
      seen[value] = true;
    }
    return static_cast<std::int32_t>(list.size()) == size;
  }
  void require(bool holds, std::string_view problem) const {
    if (!holds) fail(errc::sharding_string, "[hlo] sharding string: ", problem, " in '", source_, "'");
  }
  void expect(bool matches) const {
    if (!matches)
      fail(errc::sharding_string, "[hlo] sharding string: '", source_, "' stops making sense at '", reader_.rest, "'");
  }

  std::string_view source_;
  TextReader reader_;
};

}  // namespace detail

inline HloSharding HloSharding::canonical() const {
  if (kind != Kind::tiled) return *this;
  const auto count = static_cast<std::int64_t>(devices.size());
  if (!subgroups.empty() && tile.back() == count) {
    constexpr Kind kinds[] = {Kind::manual, Kind::unreduced, Kind::replicated};
    HloSharding whole;
    whole.kind = kinds[static_cast<std::size_t>(subgroups.back())];
    return whole;
  }
  HloSharding out = *this;
  for (std::size_t group = subgroups.size(); group-- > 0;) {
    if (out.tile[out.rank() + group] != 1) continue;
    out.tile.erase(out.tile.begin() + static_cast<std::ptrdiff_t>(out.rank() + group));
    out.subgroups.erase(out.subgroups.begin() + static_cast<std::ptrdiff_t>(group));
  }
  if (out.subgroups.size() < subgroups.size()) return out.canonical();
  if (!out.subgroups.empty() && out.subgroups.back() == Subgroup::replicated) {
    const auto size = static_cast<std::size_t>(out.tile.back());
    for (std::size_t begin = 0; begin < out.devices.size(); begin += size)
      for (std::size_t i = begin + 1; i < begin + size; ++i)
        for (std::size_t j = i; j > begin && out.devices[j] < out.devices[j - 1]; --j)
          std::swap(out.devices[j], out.devices[j - 1]);
  }
  return out;
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
      return concat_text("{maximal device=", devices.at(0), "}");
    case Kind::tiled:
      break;
  }
  std::string out = "{devices=[";
  detail::append_list(out, tile);
  out += "]";
  detail::IotaOrder iota;
  if (form == HloForm::iota) iota = detail::IotaOrder::of(devices);
  if (iota.dims.empty()) {
    detail::append_list(out, devices);
  } else {
    out += "<=[";
    detail::append_list(out, iota.dims);
    out += "]";
    if (iota.dims.size() > 1) {
      out += "T(";
      detail::append_list(out, iota.order);
      out += ")";
    }
  }
  if (subgroups.size() == 1 && subgroups[0] == Subgroup::replicated) {
    out += " last_tile_dim_replicate";
  } else if (!subgroups.empty()) {
    out += " last_tile_dims={";
    for (std::size_t i = 0; i < subgroups.size(); ++i) out += concat_text(i ? ", " : "", detail::name_of(subgroups[i]));
    out += "}";
  }
  return out + "}";
}

/// Reads a sharding string: both forms of tiles, replicated, maximal, manual, unreduced; empty is unannotated.
/// Errors: `sharding_string` for anything else, and for tiles that their devices don't fill.
inline HloSharding parse_hlo_sharding(std::string_view source) { return detail::HloParser(source).parse(); }

/// The tile assignment of a sharding, canonical: the mesh transposed to the axes of the dims, then unreduced axes,
/// then the rest, which replicate. HLO has no word for the kind of reduction.
inline HloSharding hlo_sharding(const Sharding& sharding, const Mesh& mesh) {
  HloSharding out;
  out.kind = HloSharding::Kind::tiled;
  std::vector<int> axes;  // of the transposed mesh, major first
  for (int dim = 0; dim < sharding.rank; ++dim) {
    for (std::uint8_t axis : sharding.dims[dim]) axes.push_back(axis);
    out.tile.push_back(shard_count(sharding, mesh, dim));
  }
  const auto add_subgroup = [&](HloSharding::Subgroup subgroup, unsigned mask) {
    out.subgroups.push_back(subgroup);
    out.tile.push_back(1);
    for (int axis = 0; axis < mesh.rank(); ++axis) {
      if (!(mask >> axis & 1)) continue;
      axes.push_back(axis);
      out.tile.back() *= mesh.axis_size(axis);
    }
  };
  if (sharding.unreduced != 0) add_subgroup(HloSharding::Subgroup::unreduced, sharding.unreduced);
  add_subgroup(HloSharding::Subgroup::replicated, ~unsigned{sharding.used_axes()});

  out.devices.reserve(static_cast<std::size_t>(mesh.size()));
  Coordinates place(static_cast<std::size_t>(mesh.rank()), 0);
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    std::int64_t position = i;
    for (std::size_t a = axes.size(); a-- > 0; position /= mesh.axis_size(axes[a]))
      place[axes[a]] = static_cast<int>(position % mesh.axis_size(axes[a]));
    out.devices.push_back(mesh.device_at(place));
  }
  return out.canonical();
}

}  // namespace tessera

#endif
