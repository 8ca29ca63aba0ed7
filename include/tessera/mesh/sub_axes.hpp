#ifndef TESSERA_MESH_SUB_AXES_HPP
#define TESSERA_MESH_SUB_AXES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/named_sub_axis.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A sub-axis, by the index of its axis: `size` devices, after more significant sub-axes of `before` devices in all.
/// Shardy writes `"x":(before)size`. A whole axis has before = 1.
struct SubAxis {
  std::uint8_t axis = 0;
  std::int32_t before = 1, size = 1;
  friend constexpr bool operator==(const SubAxis&, const SubAxis&) = default;
};

/// The sub-axes into which the axes of a mesh are cut, in mesh order, the most significant of an axis first.
using SubAxisTable = InlineVector<SubAxis, max_axes>;

/// Where the axes of a mesh are cut into sub-axes: at most four cuts, each at a `before` below 8192. One word, 0 for no
/// cuts, with the cuts in ascending order, so that equal cuts are equal words.
struct AxisCuts {
  static constexpr int capacity = 4;
  static constexpr std::int32_t max_before = (1 << 13) - 1;
  std::uint64_t word = 0;  ///< sixteen bits a cut, ascending: the axis, from 1, above thirteen bits of `before`

  constexpr bool empty() const { return word == 0; }
  constexpr int size() const {
    int n = 0;
    while (n < capacity && (word >> 16 * n & 0xffff) != 0) ++n;
    return n;
  }
  constexpr int axis(int i) const { return static_cast<int>(word >> (16 * i + 13) & 7) - 1; }
  constexpr std::int32_t before(int i) const { return static_cast<std::int32_t>(word >> 16 * i & 0x1fff); }
  /// Adds a cut, unless it exists. False where there is no room for it.
  constexpr bool add(int cut_axis, std::int32_t cut_before) {
    if (cut_before > max_before) return false;
    const auto made = static_cast<std::uint64_t>(cut_axis + 1) << 13 | static_cast<std::uint64_t>(cut_before);
    const int count = size();
    int at = 0;
    while (at < count && (word >> 16 * at & 0xffff) < made) ++at;
    if (at < count && (word >> 16 * at & 0xffff) == made) return true;
    if (count == capacity) return false;
    const std::uint64_t below = (std::uint64_t{1} << 16 * at) - 1;
    word = (word & below) | made << 16 * at | (word & ~below) << 16;
    return true;
  }
  constexpr bool add(const AxisCuts& other) {
    for (int i = 0; i < other.size(); ++i)
      if (!add(other.axis(i), other.before(i))) return false;
    return true;
  }
  friend constexpr bool operator==(const AxisCuts&, const AxisCuts&) = default;
};

/// Whether a mesh can be cut in this way: each cut of an axis divides the next one and the axis, and the number of
/// sub-axes is at most max_axes.
constexpr bool can_cut(const Mesh& mesh, const AxisCuts& cuts) {
  int last = 1;
  for (int i = 0; i < cuts.size(); ++i) {
    const int axis = cuts.axis(i), before = cuts.before(i);
    if (i == 0 || cuts.axis(i - 1) != axis) last = 1;
    if (axis >= mesh.rank() || before <= last || before % last != 0) return false;
    if (before >= mesh.axis_size(axis) || mesh.axis_size(axis) % before != 0) return false;
    last = before;
  }
  return mesh.rank() + cuts.size() <= max_axes;
}

/// The sub-axes of a mesh. Errors: `not_divisible` for cuts that don't divide an axis or each other; `capacity` for
/// more than max_axes sub-axes.
constexpr SubAxisTable sub_axes(const Mesh& mesh, const AxisCuts& cuts) {
  detail::check_axis_count(static_cast<std::size_t>(mesh.rank() + cuts.size()));
  if (!can_cut(mesh, cuts))
    fail(errc::not_divisible, "[sub_axis] sub-axes on ", mesh.text(),
         ": their sizes don't divide the size of the axis, or they overlap partly");
  SubAxisTable made;
  const int count = cuts.size();
  int cut = 0;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    std::int32_t before = 1;
    for (; cut < count && cuts.axis(cut) == axis; ++cut) {
      made.push_back({static_cast<std::uint8_t>(axis), before, cuts.before(cut) / before});
      before = cuts.before(cut);
    }
    made.push_back({static_cast<std::uint8_t>(axis), before, mesh.axis_size(axis) / before});
  }
  return made;
}

/// The mesh with its axes cut: the same devices in the same order, and an axis for each sub-axis, in the order of the
/// table. Sub-axes of an axis without a name are named by its index, `0:(1)2`.
constexpr Mesh refined_mesh(const Mesh& mesh, const AxisCuts& cuts) {
  if (cuts.empty()) return mesh;
  AxisTable axes;
  for (const SubAxis& sub_axis : sub_axes(mesh, cuts)) {
    const Axis& whole = mesh.axes()[sub_axis.axis];
    if (sub_axis.size == whole.size && mesh.is_named(sub_axis.axis)) {
      axes.push_back(whole);
      continue;
    }
    const NamedSubAxis own = named_sub_axis(whole.name.view());
    axes.push_back(
        {detail::name_of_sub_axis(own.axis, std::int64_t{own.before} * sub_axis.before, sub_axis.size), sub_axis.size});
  }
  return Mesh(axes, mesh.order());
}

namespace detail {

using SubAxisList = InlineVector<SubAxis, 3 * max_axes>;

/// Appends a sub-axis to a list; joins it with the last one if it continues that.
constexpr void add_sub_axis(SubAxisList& list, const SubAxis& sub_axis) {
  if (sub_axis.before > 1 && !list.empty() && list.back().axis == sub_axis.axis &&
      std::int64_t{list.back().before} * list.back().size == sub_axis.before)
    list.back().size *= sub_axis.size;
  else
    list.push_back(sub_axis);
}
/// The sub-axes of a set, whose order has no meaning, in mesh order.
constexpr SubAxisList in_mesh_order(SubAxisList list) {
  for (std::size_t i = 1; i < list.size(); ++i)
    for (std::size_t k = i; k > 0; --k) {
      const SubAxis a = list[k - 1], b = list[k];
      if (a.axis < b.axis || (a.axis == b.axis && a.before <= b.before)) break;
      list[k - 1] = b;
      list[k] = a;
    }
  SubAxisList made;
  for (const SubAxis& sub_axis : list) add_sub_axis(made, sub_axis);
  return made;
}
/// Adds the cuts at which these sub-axes begin and end. Errors: `capacity`.
constexpr void add_cuts(const SubAxisList& list, const Mesh& mesh, AxisCuts& cuts) {
  for (const SubAxis& sub_axis : list) {
    const std::int64_t end = std::int64_t{sub_axis.before} * sub_axis.size;
    bool room = sub_axis.before == 1 || cuts.add(sub_axis.axis, sub_axis.before);
    if (end < mesh.axis_size(sub_axis.axis)) room = room && cuts.add(sub_axis.axis, static_cast<std::int32_t>(end));
    if (!room)
      fail(errc::capacity, "[sub_axis] number of sub-axes on ", mesh.text(), ": axes can be cut at ",
           AxisCuts::capacity, " positions in all, each after at most ", AxisCuts::max_before, " devices");
  }
}
/// Calls f(index) for the entries of a table that a sub-axis consists of.
template <class F> constexpr void for_each_index(const SubAxis& sub_axis, const SubAxisTable& table, F&& f) {
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i].axis == sub_axis.axis &&
        (table[i].before == sub_axis.before ||
         (table[i].before > sub_axis.before && table[i].before < std::int64_t{sub_axis.before} * sub_axis.size)))
      f(static_cast<std::uint8_t>(i));
}

/// A list of axes of a mesh as the user would write it: consecutive sub-axes of an axis are joined, to the axis itself
/// if they are all of it. Calls f(sub_axis) for each, of size 0 for a whole axis.
class JoinedAxes {
 public:
  constexpr explicit JoinedAxes(const Mesh& mesh) : mesh_(mesh) {}

  template <class F> constexpr void add(int axis, F&& f) {
    const NamedSubAxis sub_axis = named_sub_axis(mesh_.axes()[static_cast<std::size_t>(axis)].name.view());
    if (any_ && sub_axis.size > 0 && last_.size > 0 && sub_axis.axis == last_.axis &&
        sub_axis.before == std::int64_t{last_.before} * last_.size) {
      last_.size *= sub_axis.size;
      return;
    }
    flush(f);
    last_ = sub_axis;
    any_ = true;
  }
  template <class F> constexpr void flush(F&& f) {
    if (!any_) return;
    if (last_.size > 0 && last_.before == 1 && last_.size == size_of(last_.axis)) last_ = {last_.axis};
    f(last_);
    any_ = false;
  }

 private:
  const Mesh& mesh_;
  NamedSubAxis last_{};
  bool any_ = false;

  constexpr std::int64_t size_of(std::string_view axis) const {
    std::int64_t size = 1;
    for (const Axis& other : mesh_.axes())
      if (const NamedSubAxis sub_axis = named_sub_axis(other.name.view()); sub_axis.size > 0 && sub_axis.axis == axis)
        size *= sub_axis.size;
    return size;
  }
};
constexpr Name name_of(const NamedSubAxis& sub_axis) {
  return sub_axis.size == 0 ? Name(sub_axis.axis) : name_of_sub_axis(sub_axis.axis, sub_axis.before, sub_axis.size);
}
}  // namespace detail

/// The names of some axes of a mesh, one bit each, for messages: the sub-axes of a whole axis as that axis.
constexpr InlineVector<Name, max_axes> axis_names(const Mesh& mesh, unsigned axes) {
  InlineVector<Name, max_axes> names;
  detail::JoinedAxes list(mesh);
  const auto add = [&](const NamedSubAxis& sub_axis) { names.push_back(detail::name_of(sub_axis)); };
  for (int axis = 0; axis < mesh.rank(); ++axis)
    if (axes >> axis & 1u) list.add(axis, add);
  list.flush(add);
  return names;
}

/// Axes of a mesh, by their indices.
using AxisSet = InlineVector<std::uint8_t, max_axes>;

/// The axes of a mesh that a name stands for, the most significant first: the axis, or those that this axis or sub-axis
/// was cut into. Empty where the mesh has no such axes.
constexpr AxisSet axes_named(const Mesh& mesh, std::string_view name) {
  AxisSet found;
  if (mesh.has_axis(name)) {
    found.push_back(static_cast<std::uint8_t>(mesh.axis_index(name)));
    return found;
  }
  const NamedSubAxis wanted = named_sub_axis(name);
  const std::int64_t end = wanted.size == 0 ? INT64_MAX : std::int64_t{wanted.before} * wanted.size;
  std::int64_t next = wanted.before;
  for (bool more = true; more && next < end;) {
    more = false;
    for (int axis = 0; axis < mesh.rank() && !more; ++axis) {
      const NamedSubAxis sub_axis = named_sub_axis(mesh.axes()[static_cast<std::size_t>(axis)].name.view());
      if (sub_axis.size < 2 || sub_axis.axis != wanted.axis || sub_axis.before != next) continue;
      found.push_back(static_cast<std::uint8_t>(axis));
      next *= sub_axis.size;
      more = true;
    }
  }
  if (wanted.size > 0 && next != end) found.clear();
  return found;
}

/// The sub-axis of an axis of the mesh that a name stands for, such as `x:(1)2` of x; of size 0 where it stands for
/// none. All sub-axes of an axis of size 1 have size 1 and split nothing. Errors: `not_divisible` for a sub-axis that
/// does not divide its axis, or has fewer than two devices.
constexpr SubAxis sub_axis_named(const Mesh& mesh, std::string_view name) {
  const NamedSubAxis sub_axis = named_sub_axis(name);
  if (sub_axis.size == 0 || !mesh.has_axis(sub_axis.axis)) return {0, 1, 0};
  const int axis = mesh.axis_index(sub_axis.axis);
  if (mesh.axis_size(axis) == 1) return {static_cast<std::uint8_t>(axis), 1, 1};
  if (sub_axis.before < 1 || sub_axis.size < 2 ||
      mesh.axis_size(axis) % (std::int64_t{sub_axis.before} * sub_axis.size) != 0)
    fail(errc::not_divisible, "[sub_axis] '", name, "' on ", mesh.text(),
         ": the size of a sub-axis is at least 2, and divides the size of its axis, ", mesh.axis_size(axis));
  return {static_cast<std::uint8_t>(axis), sub_axis.before, sub_axis.size};
}

/// The axes of the mesh with these cuts that a name stands for, one bit each: for an axis all of its sub-axes; 0 for a
/// sub-axis that the cuts don't make up. Errors: `mesh_axis` for an axis that the mesh lacks.
constexpr unsigned axes_mask(const Mesh& given, const AxisCuts& cuts, std::string_view name) {
  unsigned mask = 0;
  if (given.has_axis(name)) {
    const int whole = given.axis_index(name);
    if (cuts.empty()) return 1u << whole;
    const SubAxisTable table = sub_axes(given, cuts);
    for (std::size_t i = 0; i < table.size(); ++i) mask |= table[i].axis == whole ? 1u << i : 0u;
    return mask;
  }
  for (std::uint8_t axis : axes_named(refined_mesh(given, cuts), name)) mask |= 1u << axis;
  if (mask == 0 && sub_axis_named(given, name).size == 0) (void)given.axis_index(name);  // throws for an unknown axis
  return mask;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
