#ifndef TESSERA_MESH_SHARDY_HPP
#define TESSERA_MESH_SHARDY_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/text_reader.hpp>

namespace tessera {

/// A sharding as Shardy writes it. Beside ours it has dims that propagation may split further, and axes that are
/// promised to replicate. Its priority of a dim is kept as ours, a way to store.
struct ShardySharding {
  Name mesh_name{"mesh"};
  Sharding sharding;
  std::uint8_t open_dims = 0;    ///< one bit a dim: `{"x", ?}`
  std::uint16_t replicated = 0;  ///< one bit a mesh axis: `replicated={"y"}`

  friend constexpr bool operator==(const ShardySharding&, const ShardySharding&) = default;
};

/// `sdy.mesh @mesh = <["data"=2, "model"=4]>`, with `device_ids=[...]` where ids are not laid row-major.
inline std::string shardy_mesh_text(const Mesh& mesh, std::string_view name = "mesh") {
  std::string out = concat_text("sdy.mesh @", name, " = <[");
  const char* separator = "";
  for (const Axis& axis : mesh.axes()) {
    out += concat_text(separator, "\"", axis.name.view(), "\"=", axis.size);
    separator = ", ";
  }
  out += "]";
  if (!mesh.order().empty()) {
    out += ", device_ids=[";
    for (std::int64_t i = 0; i < mesh.size(); ++i) out += concat_text(i ? ", " : "", mesh.order()[i]);
    out += "]";
  }
  return out + ">";
}

/// `#sdy.sharding<@mesh, [{"x"}, {"y", ?}p1], replicated={"z"}, unreduced={"w"}>`. Shardy has no word for the kind of
/// reduction: it sums.
inline std::string shardy_text(const ShardySharding& from, const Mesh& mesh) {
  const Sharding& sharding = from.sharding;
  const auto quoted = [&](int axis) { return concat_text("\"", mesh.axis_name(axis).view(), "\""); };
  const auto axes_of = [&](unsigned mask) {
    std::string list;
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (mask >> axis & 1) list += (list.empty() ? "" : ", ") + quoted(axis);
    return list;
  };
  std::string out = concat_text("#sdy.sharding<@", from.mesh_name.view(), ", [");
  for (int dim = 0; dim < sharding.rank; ++dim) {
    std::string list;
    for (std::uint8_t axis : sharding.dims[dim]) list += (list.empty() ? "" : ", ") + quoted(axis);
    if (from.open_dims >> dim & 1) list += list.empty() ? "?" : ", ?";
    out += concat_text(dim ? ", " : "", "{", list, "}");
    if (sharding.priority[dim] != 0) out += concat_text("p", static_cast<int>(sharding.priority[dim]));
  }
  out += "]";
  if (from.replicated != 0) out += concat_text(", replicated={", axes_of(from.replicated), "}");
  if (sharding.unreduced != 0) out += concat_text(", unreduced={", axes_of(sharding.unreduced), "}");
  return out + ">";
}
inline std::string shardy_text(const Sharding& sharding, const Mesh& mesh) {
  return shardy_text(ShardySharding{.sharding = sharding}, mesh);
}

namespace detail {

/// Reads Shardy's text; a member a production.
class ShardyParser {
 public:
  constexpr explicit ShardyParser(std::string_view source) : source_(source), reader_{source} {}

  constexpr Mesh mesh() {
    if (reader_.take("sdy.mesh")) {
      expect(reader_.take("@"));
      expect(!reader_.take_name().empty());
      expect(reader_.take("="));
    }
    expect(reader_.take("<[") || (reader_.take("<") && reader_.take("[")));
    AxisTable axes;
    if (!reader_.take("]")) {
      do {
        const Name name = quoted();
        std::int32_t size = 0;
        expect(reader_.take("=") && reader_.take(size));
        check_axis_count(axes.size() + 1);
        axes.push_back({name, size});
      } while (reader_.take(","));
      expect(reader_.take("]"));
    }
    Growable<std::int32_t> ids;
    if (reader_.take(",")) {
      expect(reader_.take("device_ids") && reader_.take("=") && reader_.take("["));
      do {
        std::int32_t id = 0;
        expect(reader_.take(id));
        ids.push_back(id);
      } while (reader_.take(","));
      expect(reader_.take("]"));
    }
    expect(reader_.take(">") && reader_.done());
    return Mesh(axes, DeviceOrder(ids.data(), ids.size()));
  }

  constexpr ShardySharding sharding(const Mesh& mesh) {
    ShardySharding out;
    (void)reader_.take("#");
    expect(reader_.take("sdy.sharding<") && reader_.take("@"));
    const std::string_view name = reader_.take_name();
    expect(!name.empty());
    out.mesh_name = Name(name);
    expect(reader_.take(",") && reader_.take("["));
    unsigned used = 0;
    if (!reader_.take("]")) {
      do dim(mesh, out, used);
      while (reader_.take(","));
      expect(reader_.take("]"));
    }
    while (reader_.take(",")) {
      if (reader_.take("replicated")) {
        axis_set(mesh, out.replicated, used);
      } else {
        expect(reader_.take("unreduced"));
        axis_set(mesh, out.sharding.unreduced, used);
      }
    }
    expect(reader_.take(">") && reader_.done());
    return out;
  }

 private:
  constexpr void dim(const Mesh& mesh, ShardySharding& out, unsigned& used) {
    Sharding& sharding = out.sharding;
    require(sharding.rank < max_rank, "too many dims");
    const int at = sharding.rank++;
    expect(reader_.take("{"));
    if (!reader_.take("}")) {
      do {
        if (reader_.take("?")) {
          out.open_dims = static_cast<std::uint8_t>(out.open_dims | 1u << at);
          break;
        }
        require(sharding.dims[at].size() < max_axes_per_dim, "too many axes on one dim");
        sharding.dims[at].push_back(static_cast<std::uint8_t>(axis(mesh, used)));
      } while (reader_.take(","));
      expect(reader_.take("}"));
    }
    if (!reader_.take("p")) return;
    std::int32_t priority = 0;
    expect(reader_.take(priority) && priority >= 0 && priority <= 255);
    sharding.priority[at] = static_cast<std::uint8_t>(priority);
  }
  constexpr void axis_set(const Mesh& mesh, std::uint16_t& mask, unsigned& used) {
    expect(reader_.take("=") && reader_.take("{"));
    do mask = static_cast<std::uint16_t>(mask | 1u << axis(mesh, used));
    while (reader_.take(","));
    expect(reader_.take("}"));
  }
  constexpr int axis(const Mesh& mesh, unsigned& used) {
    const Name name = quoted();
    if (reader_.take(":")) fail_part_of(name);
    if (!mesh.has_axis(name.view()))
      fail(errc::spec_axis, "[shardy] axis '", name.view(), "' is unknown: '", source_, "' on ", mesh.text());
    const int index = mesh.axis_index(name.view());
    if (used >> index & 1)
      fail(errc::spec_axis, "[shardy] axis '", name.view(), "' is used twice: '", source_, "' on ", mesh.text());
    used |= 1u << index;
    return index;
  }
  /// `"x":(1)2` is the part of size 2 of axis x that comes after parts of size 1 in all.
  [[noreturn]] void fail_part_of(const Name& name) {
    std::int32_t before = 0, size = 0;
    expect(reader_.take("(") && reader_.take(before) && reader_.take(")") && reader_.take(size));
    fail(errc::unsupported, "[shardy] whole axes: '", name.view(), "' is taken in parts in '", source_,
         "'; give the mesh an axis for each part, here one of size ", size, before > 1 ? " after " : "",
         before > 1 ? concat_text("others of ", before) : "");
  }
  constexpr Name quoted() {
    expect(reader_.take("\""));
    const std::string_view name = reader_.take_name();
    expect(is_axis_name(name) && reader_.take("\""));
    return Name(name);
  }
  constexpr void require(bool holds, std::string_view problem) const {
    if (!holds) fail(errc::sharding_string, "[shardy] sharding: ", problem, " in '", source_, "'");
  }
  constexpr void expect(bool matches) const {
    if (!matches)
      fail(errc::sharding_string, "[shardy] sharding: '", source_, "' stops making sense at '", reader_.rest, "'");
  }

  std::string_view source_;
  TextReader reader_;
};

}  // namespace detail

/// Reads `#sdy.sharding<@mesh, [{"x"}, {}]>` on a mesh, as shardy_text prints it.
/// Errors: `sharding_string` for other text, `spec_axis` for an axis that is unknown or used twice, `unsupported` for
/// parts of axes.
constexpr ShardySharding parse_shardy(std::string_view source, const Mesh& mesh) {
  return detail::ShardyParser(source).sharding(mesh);
}
/// Reads `sdy.mesh @mesh = <["x"=2]>`, or the part from `<` on.
constexpr Mesh parse_shardy_mesh(std::string_view source) { return detail::ShardyParser(source).mesh(); }

}  // namespace tessera

#endif
