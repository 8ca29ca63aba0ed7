#ifndef TESSERA_MESH_SHARDY_HPP
#define TESSERA_MESH_SHARDY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/mesh/axis_parts.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/text_reader.hpp>

namespace tessera {

/// A sharding as Shardy writes it. Beside ours it has dims that propagation may split further, and axes that are
/// promised to replicate. Its priority of a dim is kept as ours, a way to store.
struct ShardySharding {
  Name mesh_name{"mesh"};  ///< empty where the text holds the mesh itself: `<mesh<["x"=2]>, [{"x"}]>`
  Sharding sharding;
  std::uint8_t open_dims = 0;    ///< one bit a dim: `{"x", ?}`
  std::uint16_t replicated = 0;  ///< one bit a mesh axis: `replicated={"y"}`

  friend constexpr bool operator==(const ShardySharding&, const ShardySharding&) = default;
};

namespace detail {
/// Axes of a mesh from one on that are all parts of one axis, in order.
struct AxisRun {
  AxisPart part;
  int end = 0;
  std::int64_t size = 1;
  bool whole = false;

  constexpr AxisRun(const Mesh& mesh, int axis) : part(part_of(mesh, axis)), end(axis + 1), size(mesh.axis_size(axis)) {
    if (part.size > 0 && part.before == 1)
      for (; end < mesh.rank() && follows(part_of(mesh, end)); ++end) size *= mesh.axis_size(end);
    whole = part.size > 0 && part.before == 1;
    if (!whole) name_ = mesh.axes()[static_cast<std::size_t>(axis)].name.view();
  }
  constexpr std::string_view name() const { return whole ? part.axis : name_; }
  static constexpr AxisPart part_of(const Mesh& mesh, int axis) {
    return axis_part(mesh.axes()[static_cast<std::size_t>(axis)].name.view());
  }

 private:
  constexpr bool follows(const AxisPart& next) const {
    return next.size > 0 && next.axis == part.axis && next.before == size;
  }
  std::string_view name_;
};

/// Axes as Shardy writes them: parts that follow each other are one, all parts of an axis are the axis.
class ShardyAxes {
 public:
  explicit ShardyAxes(const Mesh& mesh) : mesh_(mesh) {}
  void add(int axis) {
    const AxisPart part = AxisRun::part_of(mesh_, axis);
    if (last_.size > 0 && part.size > 0 && part.axis == last_.axis && part.before == last_.before * last_.size) {
      last_.size *= part.size;
      return;
    }
    flush();
    last_ = part;
    any_ = true;
  }
  std::string text() {
    flush();
    return text_;
  }

 private:
  void flush() {
    if (!any_) return;
    text_ += concat_text(text_.empty() ? "" : ", ", "\"", last_.axis, "\"");
    std::int64_t whole = 1;
    for (int axis = 0; axis < mesh_.rank(); ++axis)
      if (const AxisPart part = AxisRun::part_of(mesh_, axis); part.axis == last_.axis && part.size > 0)
        whole *= part.size;
    if (last_.size > 0 && (last_.before > 1 || last_.size != whole))
      text_ += concat_text(":(", last_.before, ")", last_.size);
    any_ = false;
    last_ = {};
  }
  const Mesh& mesh_;
  AxisPart last_{};
  bool any_ = false;
  std::string text_;
};
}  // namespace detail

namespace detail {
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

/// `sdy.mesh @mesh = <["data"=2, "model"=4]>`, axes that were cut into parts as one, with `device_ids=[...]` where ids
/// are not laid row-major.
inline std::string shardy_mesh_text(const Mesh& mesh, std::string_view name = "mesh") {
  return concat_text("sdy.mesh @", name, " = <", detail::shardy_mesh_body(mesh), ">");
}

/// `#sdy.sharding<@mesh, [{"x"}, {"y", ?}p1], replicated={"z"}, unreduced=max{"w"}>`; sums are `unreduced={"w"}`.
inline std::string shardy_text(const ShardySharding& from, const Mesh& mesh) {
  const Sharding& sharding = from.sharding;
  const auto axes_of = [&](unsigned mask) {
    detail::ShardyAxes list(mesh);
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (mask >> axis & 1) list.add(axis);
    return list.text();
  };
  std::string out = "#sdy.sharding<";
  if (from.mesh_name.view().empty())
    out += concat_text("mesh<", detail::shardy_mesh_body(mesh), ">, [");
  else
    out += concat_text("@", from.mesh_name.view(), ", [");
  for (int dim = 0; dim < sharding.rank; ++dim) {
    detail::ShardyAxes axes(mesh);
    for (std::uint8_t axis : sharding.dims[dim]) axes.add(axis);
    std::string list = axes.text();
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

/// Reads Shardy's text; a member a production.
class ShardyParser {
 public:
  constexpr explicit ShardyParser(std::string_view source) : source_(source), reader_{source} {}

  constexpr Mesh mesh() {
    (void)reader_.take("#");
    if (reader_.take("sdy.sharding<")) {  // the mesh that a sharding holds
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
        fail(errc::mesh_mismatch, "[shardy] mesh: '", source_, "' is about ", own.text(), ", not ", mesh.text(),
             "; ts::parse_shardy_mesh(text) reads it");
    }
    expect(reader_.take(",") && reader_.take("["));
    unsigned used = 0;
    if (!reader_.take("]")) {
      do dim(mesh, out, used);
      while (reader_.take(","));
      expect(reader_.take("]"));
    }
    while (reader_.take(",")) {
      if (reader_.take("replicated")) {
        expect(reader_.take("="));
        axis_set(mesh, out.replicated, used);
      } else {
        expect(reader_.take("unreduced") && reader_.take("="));
        for (const Reduction kind : {Reduction::sum, Reduction::max, Reduction::min})
          if (reader_.take(name_of(kind))) out.sharding.reduction = kind;
        axis_set(mesh, out.sharding.unreduced, used);
      }
    }
    expect(reader_.take(">") && reader_.done());
    return out;
  }

 private:
  /// The mesh before its axes were cut into parts.
  static constexpr Mesh joined(const Mesh& mesh) {
    AxisTable axes;
    for (int axis = 0; axis < mesh.rank();) {
      const AxisRun run(mesh, axis);
      axes.push_back({Name(run.name()), static_cast<int>(run.size)});
      axis = run.end;
    }
    return Mesh(axes, mesh.order());
  }
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
        for (const std::uint8_t axis : axes(mesh, used)) {
          require(sharding.dims[at].size() < max_axes_per_dim, "too many axes on one dim");
          sharding.dims[at].push_back(axis);
        }
      } while (reader_.take(","));
      expect(reader_.take("}"));
    }
    if (!reader_.take("p")) return;
    std::int32_t priority = 0;
    expect(reader_.take(priority) && priority >= 0 && priority <= 255);
    sharding.priority[at] = static_cast<std::uint8_t>(priority);
  }
  constexpr void axis_set(const Mesh& mesh, std::uint16_t& mask, unsigned& used) {
    expect(reader_.take("{"));
    do
      for (const std::uint8_t axis : axes(mesh, used)) mask = static_cast<std::uint16_t>(mask | 1u << axis);
    while (reader_.take(","));
    expect(reader_.take("}"));
  }
  /// The axes of the mesh that an axis of the text is made of: itself, or its parts.
  constexpr InlineVector<std::uint8_t, max_axes> axes(const Mesh& mesh, unsigned& used) {
    const Name name = quoted();
    AxisPart wanted{name.view()};
    if (reader_.take(":")) {
      expect(reader_.take("(") && reader_.take(wanted.before) && reader_.take(")") && reader_.take(wanted.size));
      expect(wanted.before > 0 && wanted.size > 0);
    }
    InlineVector<std::uint8_t, max_axes> found;
    if (wanted.size == 0 && mesh.has_axis(name.view())) {
      found.push_back(static_cast<std::uint8_t>(mesh.axis_index(name.view())));
    } else {
      std::int64_t next = wanted.before;
      bool known = mesh.has_axis(name.view());
      const std::int64_t end = wanted.size == 0 ? INT32_MAX : std::int64_t{wanted.before} * wanted.size;
      for (int round = 0; round < mesh.rank() && next < end; ++round)
        for (int axis = 0; axis < mesh.rank(); ++axis) {
          const AxisPart part = AxisRun::part_of(mesh, axis);
          known = known || (part.size > 0 && part.axis == name.view());
          if (part.size == 0 || part.axis != name.view() || part.before != next || next >= end) continue;
          found.push_back(static_cast<std::uint8_t>(axis));
          next *= part.size;
        }
      if (!known)
        fail(errc::spec_axis, "[shardy] axis '", name.view(), "' is unknown: '", source_, "' on ", mesh.text());
      if (wanted.size > 0 && next != end)
        fail(errc::spec_axis, "[shardy] part of an axis: '", name.view(), "':(", wanted.before, ")", wanted.size,
             " is not made of axes of ", mesh.text(), " in '", source_, "'; ts::shardy_mesh(mesh, {text}) has it");
    }
    for (const std::uint8_t axis : found) {
      if (used >> axis & 1)
        fail(errc::spec_axis, "[shardy] axis '", name.view(), "' is used twice: '", source_, "' on ", mesh.text());
      used |= 1u << axis;
    }
    return found;
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

/// The mesh on which shardings that take axes in parts, `"x":(1)2`, can be read: its axes are cut where these texts cut
/// them. Devices and placements stay. Errors: those of refined_mesh.
constexpr Mesh shardy_mesh(const Mesh& mesh, std::initializer_list<std::string_view> texts) {
  Growable<AxisPart> parts;
  for (std::string_view text : texts)
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::size_t suffix = text[at] == '"' && at > 0 ? detail::part_suffix(text.substr(at + 1)) : 0;
      if (suffix == 0) continue;
      const std::size_t begin = text.substr(0, at).rfind('"') + 1;
      AxisPart part{text.substr(begin, at - begin)};
      detail::TextReader reader{text.substr(at + 3)};
      if (reader.take(part.before) && reader.take(")") && reader.take(part.size)) parts.push_back(part);
    }
  return refined_mesh(mesh, parts.data(), parts.size());
}

/// Reads `#sdy.sharding<@mesh, [{"x"}, {}]>` on a mesh, as shardy_text prints it. A part of an axis, `"x":(1)2`, is
/// read on a mesh that has it: see shardy_mesh. A mesh in the text must be this one. Errors: `mesh_mismatch`;
/// `sharding_string` for other text, `spec_axis` for an axis that is unknown or used twice, and for a part that the
/// axes of the mesh don't make up.
constexpr ShardySharding parse_shardy(std::string_view source, const Mesh& mesh) {
  return detail::ShardyParser(source).sharding(mesh);
}
/// Reads `sdy.mesh @mesh = <["x"=2]>`, the part from `<` on, or the mesh that a sharding holds in place of a name. The
/// mesh of a tensor that is on one device, `<[], device_ids=[3]>`, has that device alone.
constexpr Mesh parse_shardy_mesh(std::string_view source) { return detail::ShardyParser(source).mesh(); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
