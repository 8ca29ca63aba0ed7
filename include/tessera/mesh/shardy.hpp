#ifndef TESSERA_MESH_SHARDY_HPP
#define TESSERA_MESH_SHARDY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/named_sub_axis.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sub_axes.hpp>
#include <tessera/mesh/text_reader.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A Shardy sharding: a Sharding, plus dims that propagation may split further (open dims) and axes that are declared
/// replicated. Priorities of dims are kept as `Sharding::priority`.
struct ShardySharding {
  Name mesh_name{"mesh"};  ///< empty where the text contains the mesh itself: `<mesh<["x"=2]>, [{"x"}]>`
  Sharding sharding;
  std::uint8_t open_dims = 0;    ///< one bit a dim: `{"x", ?}`
  std::uint16_t replicated = 0;  ///< one bit a mesh axis: `replicated={"y"}`

  friend constexpr bool operator==(const ShardySharding&, const ShardySharding&) = default;
};

namespace detail {
/// Consecutive axes of a mesh that are all sub-axes of one axis, in order.
struct AxisRun {
  NamedSubAxis sub_axis;
  int end = 0;
  std::int64_t size = 1;
  bool whole = false;

  constexpr AxisRun(const Mesh& mesh, int axis)
      : sub_axis(sub_axis_of(mesh, axis)), end(axis + 1), size(mesh.axis_size(axis)) {
    if (sub_axis.size > 0 && sub_axis.before == 1)
      for (; end < mesh.rank() && follows(sub_axis_of(mesh, end)); ++end) size *= mesh.axis_size(end);
    whole = sub_axis.size > 0 && sub_axis.before == 1;
    if (!whole) name_ = mesh.axes()[static_cast<std::size_t>(axis)].name.view();
  }
  constexpr std::string_view name() const { return whole ? sub_axis.axis : name_; }
  static constexpr NamedSubAxis sub_axis_of(const Mesh& mesh, int axis) {
    return named_sub_axis(mesh.axes()[static_cast<std::size_t>(axis)].name.view());
  }

 private:
  constexpr bool follows(const NamedSubAxis& next) const {
    return next.size > 0 && next.axis == sub_axis.axis && next.before == size;
  }
  std::string_view name_;
};

/// `["data"=2, "model"=4], device_ids=[...]`.
inline std::string shardy_mesh_body(const Mesh& mesh) {
  std::string out = "[";
  const char* separator = "";
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const detail::AxisRun run(mesh, axis);
    out += concat_text(separator, "\"", run.name(), "\"=", run.size);
    separator = ", ";
    axis = run.end - 1;
  }
  out += "]";
  if (!mesh.order().empty()) {
    out += ", device_ids=[";
    for (std::int64_t i = 0; i < mesh.size(); ++i) out += concat_text(i ? ", " : "", mesh.order()[i]);
    out += "]";
  }
  return out;
}
}  // namespace detail

/// `sdy.mesh @mesh = <["data"=2, "model"=4]>`, with sub-axes joined to their axis, and `device_ids=[...]` where ids are
/// not row-major.
inline std::string shardy_mesh_text(const Mesh& mesh, std::string_view name = "mesh") {
  return concat_text("sdy.mesh @", name, " = <", detail::shardy_mesh_body(mesh), ">");
}

/// `#sdy.sharding<@mesh, [{"x"}, {"y", ?}p1], replicated={"z"}, unreduced=max{"w"}>`; sums are `unreduced={"w"}`.
inline std::string shardy_text(const ShardySharding& from, const Mesh& mesh) {
  const Sharding& sharding = from.sharding;
  if (!sharding.cuts.empty()) {
    ShardySharding refined = from;
    refined.sharding = refined_sharding(sharding, mesh, sharding.cuts);
    return shardy_text(refined, refined_mesh(mesh, sharding.cuts));
  }
  std::string list;
  const auto add = [&](const NamedSubAxis& sub_axis) {
    list += concat_text(list.empty() ? "" : ", ", "\"", sub_axis.axis, "\"");
    if (sub_axis.size > 0) list += concat_text(":(", sub_axis.before, ")", sub_axis.size);
  };
  const auto axes_of = [&](unsigned mask) {
    list.clear();
    detail::JoinedAxes axes(mesh);
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (mask >> axis & 1) axes.add(axis, add);
    axes.flush(add);
    return list;
  };
  std::string out = "#sdy.sharding<";
  if (from.mesh_name.view().empty())
    out += concat_text("mesh<", detail::shardy_mesh_body(mesh), ">, [");
  else
    out += concat_text("@", from.mesh_name.view(), ", [");
  for (int dim = 0; dim < sharding.rank; ++dim) {
    list.clear();
    detail::JoinedAxes axes(mesh);
    for (std::uint8_t axis : sharding.dims[dim]) axes.add(axis, add);
    axes.flush(add);
    if (from.open_dims >> dim & 1) list += list.empty() ? "?" : ", ?";
    out += concat_text(dim ? ", " : "", "{", list, "}");
    if (sharding.priority[dim] != 0) out += concat_text("p", static_cast<int>(sharding.priority[dim]));
  }
  out += "]";
  if (from.replicated != 0) out += concat_text(", replicated={", axes_of(from.replicated), "}");
  if (sharding.unreduced != 0) {
    const bool sums = sharding.reduction == Reduction::sum;
    out += concat_text(", unreduced=", sums ? "" : name_of(sharding.reduction), "{", axes_of(sharding.unreduced), "}");
  }
  return out + ">";
}
inline std::string shardy_text(const Sharding& sharding, const Mesh& mesh) {
  return shardy_text(ShardySharding{.sharding = sharding}, mesh);
}

namespace detail {

/// A parser of Shardy's text, with a member function for each production of the grammar.
class ShardyParser {
 public:
  constexpr explicit ShardyParser(std::string_view source) : source_(source), reader_{source} {}

  constexpr Mesh mesh() {
    (void)reader_.take("#");
    if (reader_.take("sdy.sharding<")) {  // a sharding that contains its mesh
      expect(reader_.take("mesh"));
      return mesh_body();
    }
    if (reader_.take("sdy.mesh")) {
      expect(reader_.take("@"));
      expect(!reader_.take_name().empty());
      expect(reader_.take("="));
    }
    const Mesh read = mesh_body();
    expect(reader_.done());
    return read;
  }
  /// `<["x"=2], device_ids=[...]>`.
  constexpr Mesh mesh_body() {
    expect(reader_.take("<") && reader_.take("["));
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
    expect(reader_.take(">"));
    return Mesh(axes, DeviceOrder(ids.data(), ids.size()));
  }

  constexpr ShardySharding sharding(const Mesh& mesh) {
    ShardySharding out;
    (void)reader_.take("#");
    expect(reader_.take("sdy.sharding<"));
    if (reader_.take("@")) {
      const std::string_view name = reader_.take_name();
      expect(!name.empty());
      out.mesh_name = Name(name);
    } else {
      expect(reader_.take("mesh"));
      out.mesh_name = Name("");
      const Mesh own = mesh_body();
      if (!(own == joined(mesh)))
        fail(errc::mesh_mismatch, "[shardy] mesh: '", source_, "' is for ", own.text(), ", not for ", mesh.text(),
             "; ts::parse_shardy_mesh(text) gives the mesh in the text");
    }
    expect(reader_.take(",") && reader_.take("["));
    SubAxisSharding by_sub_axis;
    SubAxisList replicated;
    if (!reader_.take("]")) {
      do dim(mesh, out, by_sub_axis);
      while (reader_.take(","));
      expect(reader_.take("]"));
    }
    while (reader_.take(",")) {
      if (reader_.take("replicated")) {
        expect(reader_.take("="));
        axis_set(mesh, replicated);
      } else {
        expect(reader_.take("unreduced") && reader_.take("="));
        for (int kind = 0; kind < reduction_count; ++kind)
          if (reader_.take(name_of(static_cast<Reduction>(kind))))
            out.sharding.reduction = static_cast<Reduction>(kind);
        axis_set(mesh, by_sub_axis.unreduced);
      }
    }
    expect(reader_.take(">") && reader_.done());
    by_sub_axis.unreduced = in_mesh_order(by_sub_axis.unreduced);
    replicated = in_mesh_order(replicated);
    AxisCuts cuts = by_sub_axis.cuts(mesh);
    add_cuts(replicated, mesh, cuts);
    require(by_sub_axis.write(out.sharding, mesh, cuts), "too many axes on one dim");
    const SubAxisTable table = sub_axes(mesh, cuts);
    unsigned used = 0;
    for (const SubAxisList& list : by_sub_axis.dims) use(list, mesh, table, used);
    use(by_sub_axis.unreduced, mesh, table, used);
    const unsigned before = used;
    use(replicated, mesh, table, used);
    out.replicated = static_cast<std::uint16_t>(used & ~before);
    if (out.replicated == 0) out.sharding = with_fewest_cuts(out.sharding, mesh);
    return out;
  }

 private:
  /// The mesh before its axes were cut into sub-axes.
  static constexpr Mesh joined(const Mesh& mesh) {
    AxisTable axes;
    for (int axis = 0; axis < mesh.rank();) {
      const AxisRun run(mesh, axis);
      axes.push_back({Name(run.name()), static_cast<int>(run.size)});
      axis = run.end;
    }
    return Mesh(axes, mesh.order());
  }
  constexpr void dim(const Mesh& mesh, ShardySharding& out, SubAxisSharding& by_sub_axis) {
    Sharding& sharding = out.sharding;
    require(sharding.rank < max_rank, "more than 8 dims");
    const int at = sharding.rank++;
    expect(reader_.take("{"));
    if (!reader_.take("}")) {
      do {
        if (reader_.take("?")) {
          out.open_dims = static_cast<std::uint8_t>(out.open_dims | 1u << at);
          break;
        }
        axes(mesh, by_sub_axis.dims[at]);
      } while (reader_.take(","));
      expect(reader_.take("}"));
    }
    if (!reader_.take("p")) return;
    std::int32_t priority = 0;
    expect(reader_.take(priority) && priority >= 0 && priority <= 255);
    sharding.priority[at] = static_cast<std::uint8_t>(priority);
  }
  constexpr void axis_set(const Mesh& mesh, SubAxisList& list) {
    expect(reader_.take("{"));
    do axes(mesh, list);
    while (reader_.take(","));
    expect(reader_.take("}"));
  }
  /// The axes of the mesh that an axis of the text stands for: an axis, the sub-axes that it was cut into, or a
  /// sub-axis.
  constexpr void axes(const Mesh& mesh, SubAxisList& list) {
    const Name name = quoted();
    NamedSubAxis wanted{name.view()};
    if (reader_.take(":")) {
      expect(reader_.take("(") && reader_.take(wanted.before) && reader_.take(")") && reader_.take(wanted.size));
      expect(wanted.before > 0 && wanted.size > 0);
    }
    require(list.size() + max_axes <= list.capacity(), "too many axes");
    const Name whole = detail::name_of(wanted);
    const AxisSet found = axes_named(mesh, whole.view());
    for (const std::uint8_t axis : found) add_sub_axis(list, {axis, 1, mesh.axis_size(axis)});
    if (!found.empty()) return;
    const SubAxis sub_axis = sub_axis_named(mesh, whole.view());
    if (sub_axis.size > 1) add_sub_axis(list, sub_axis);
    if (sub_axis.size > 0) return;
    if (wanted.size > 0 && !axes_named(mesh, name.view()).empty())
      fail(errc::spec_axis, "[shardy] sub-axis: '", name.view(), "':(", wanted.before, ")", wanted.size,
           " does not consist of axes of ", mesh.text(), ": '", source_,
           "'; ts::shardy_mesh(mesh, {text}) splits the axes of the mesh accordingly");
    fail(errc::spec_axis, "[shardy] unknown axis '", name.view(), "': '", source_, "' on ", mesh.text());
  }
  /// Marks the axes in a list as used.
  constexpr void use(const SubAxisList& list, const Mesh& mesh, const SubAxisTable& table, unsigned& used) const {
    for (const SubAxis& sub_axis : list)
      for_each_index(sub_axis, table, [&](std::uint8_t axis) {
        if (used >> axis & 1)
          fail(errc::spec_axis, "[shardy] axis '", named_sub_axis(mesh.axis_name(sub_axis.axis).view()).axis,
               "' is used twice: '", source_, "' on ", mesh.text());
        used |= 1u << axis;
      });
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
      fail(errc::sharding_string, "[shardy] syntax: can't read '", source_, "' from '", reader_.rest, "' on");
  }

  std::string_view source_;
  TextReader reader_;
};

}  // namespace detail

/// The mesh with its axes cut into the sub-axes of these texts, such as `"x":(1)2`, for parsing and printing shardings
/// by sub-axes. Devices and their order are unchanged. Errors: those of refined_mesh.
constexpr Mesh shardy_mesh(const Mesh& mesh, std::initializer_list<std::string_view> texts) {
  Growable<NamedSubAxis> named;
  for (std::string_view text : texts)
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t suffix = text[at] == '"' && at > 0 ? detail::sub_axis_suffix(text.substr(at + 1)) : 0;
      if (suffix == 0) continue;
      const std::size_t begin = text.substr(0, at).rfind('"') + 1;
      NamedSubAxis sub_axis{text.substr(begin, at - begin)};
      detail::TextReader reader{text.substr(at + 3)};
      if (reader.take(sub_axis.before) && reader.take(")") && reader.take(sub_axis.size)) named.push_back(sub_axis);
    }
  return refined_mesh(mesh, named.data(), named.size());
}

/// Parses `#sdy.sharding<@mesh, [{"x"}, {}]>` on a mesh, the text of shardy_text. A sub-axis, `"x":(1)2`, is that axis
/// of a mesh that has it (see shardy_mesh), otherwise a sub-axis of x. A mesh in the text must be this mesh. Errors:
/// `mesh_mismatch`; `sharding_string` for other text; `spec_axis` for an axis that is unknown or used twice, and for a
/// sub-axis that the axes of the mesh don't make up; `not_divisible` for a sub-axis that does not divide its axis.
constexpr ShardySharding parse_shardy(std::string_view source, const Mesh& mesh) {
  return detail::ShardyParser(source).sharding(mesh);
}
/// Reads `sdy.mesh @mesh = <["x"=2]>`, that text from `<` on, or the mesh that a sharding contains in place of a name.
/// The mesh of a tensor on one device, `<[], device_ids=[3]>`, has only that device.
constexpr Mesh parse_shardy_mesh(std::string_view source) { return detail::ShardyParser(source).mesh(); }

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
