#ifndef TESSERA_MESH_NAMED_SUB_AXIS_HPP
#define TESSERA_MESH_NAMED_SUB_AXIS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/text_reader.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A sub-axis of `size` devices; `before` is the product of the sizes of more significant sub-axes. Shardy writes
/// `"x":(before)size`; in a mesh whose axis x is cut, its name is `x:(before)size`.
struct NamedSubAxis {
  std::string_view axis;
  std::int32_t before = 1, size = 0;  ///< size 0: the whole axis
  friend constexpr bool operator==(const NamedSubAxis&, const NamedSubAxis&) = default;
};

/// The sub-axis that an axis name of a mesh stands for; of size 0 for an ordinary name.
constexpr NamedSubAxis named_sub_axis(std::string_view name) {
  const std::size_t base = detail::sub_axis_at(name);
  if (base == name.size()) return {name};
  NamedSubAxis sub_axis{name.substr(0, base)};
  detail::TextReader reader{name.substr(base + 2)};
  (void)(reader.take(sub_axis.before) && reader.take(")") && reader.take(sub_axis.size));
  return sub_axis;
}

/// The mesh with one axis cut into sub-axes of these sizes, the most significant first. Devices and their order are
/// unchanged. Errors: `mesh_axis` for an unknown axis and for an axis without a name, `not_divisible` for sizes whose
/// product is not that of the axis.
///
///     ts::split_axis(ts::Mesh({{"x", 16}}), "x", {2, 4, 2})       // mesh(x:(1)2=2,x:(2)4=4,x:(8)2=2)
constexpr Mesh split_axis(const Mesh& mesh, std::string_view axis, const std::int32_t* sizes, std::size_t count) {
  const int at = mesh.axis_index(axis);
  if (!mesh.is_named(at))
    fail(errc::mesh_axis, "[split_axis] axis name: axis ", at, " of ", mesh.text(),
         " is unnamed; only a named axis can be split");
  AxisTable axes;
  for (int a = 0; a < mesh.rank(); ++a) {
    if (a != at) {
      detail::check_axis_count(axes.size() + 1);
      axes.push_back(mesh.axes()[static_cast<std::size_t>(a)]);
      continue;
    }
    const NamedSubAxis own = named_sub_axis(mesh.axes()[static_cast<std::size_t>(a)].name.view());
    std::int64_t before = own.before, product = 1;
    for (std::size_t i = 0; i < count; ++i) {
      product *= sizes[i] > 0 && sizes[i] <= mesh.axis_size(at) ? sizes[i] : 0;
      detail::check_axis_count(axes.size() + 1);
      axes.push_back({detail::name_of_sub_axis(own.axis, before, sizes[i]), sizes[i]});
      before *= sizes[i];
    }
    if (product != mesh.axis_size(at))
      fail(errc::not_divisible, "[split_axis] sizes: the product of the sub-axis sizes is not the size of axis '", axis,
           "' of ", mesh.text());
  }
  return Mesh(axes, mesh.order());
}
constexpr Mesh split_axis(const Mesh& mesh, std::string_view axis, std::initializer_list<std::int32_t> sizes) {
  return split_axis(mesh, axis, sizes.begin(), sizes.size());
}

/// The mesh with its axes cut where these sub-axes begin and end, so that each sub-axis consists of axes of the result.
/// Errors: `mesh_axis` for an axis that the mesh lacks, `not_divisible` for sub-axes that don't divide their axis or
/// overlap partly.
constexpr Mesh refined_mesh(const Mesh& mesh, const NamedSubAxis* named, std::size_t count) {
  Mesh refined = mesh;
  for (int a = 0; a < mesh.rank(); ++a) {
    const Axis axis = mesh.axes()[static_cast<std::size_t>(a)];
    Growable<std::int32_t> cuts{1};  // ascending
    const auto cut = [&](std::int64_t at) {
      std::size_t i = 0;
      while (i < cuts.size() && cuts[i] < at) ++i;
      if (i < cuts.size() && cuts[i] == at) return;
      cuts.push_back(static_cast<std::int32_t>(at));
      for (std::size_t k = cuts.size() - 1; k > i; --k) {
        const std::int32_t moved = cuts[k];
        cuts[k] = cuts[k - 1];
        cuts[k - 1] = moved;
      }
    };
    for (std::size_t p = 0; p < count; ++p) {
      if (named[p].axis != axis.name.view() || named[p].size == 0) continue;
      if (named[p].before < 1 || named[p].size < 1 || axis.size % (std::int64_t{named[p].before} * named[p].size) != 0)
        fail(errc::not_divisible, "[sub_axis] size: \"", axis.name.view(), "\":(", named[p].before, ")", named[p].size,
             " does not divide the axis of size ", axis.size);
      cut(named[p].before);
      cut(std::int64_t{named[p].before} * named[p].size);
    }
    if (cuts.size() == 1) continue;
    cut(axis.size);
    Growable<std::int32_t> sizes;
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] % cuts[i - 1] != 0)
        fail(errc::not_divisible, "[sub_axis] sub-axes of '", axis.name.view(), "' overlap partly: ", cuts[i - 1],
             " does not divide ", cuts[i]);
      sizes.push_back(cuts[i] / cuts[i - 1]);
    }
    if (sizes.size() > 1) refined = split_axis(refined, axis.name.view(), sizes.data(), sizes.size());
  }
  for (std::size_t p = 0; p < count; ++p)
    if (named[p].size > 0) {
      bool known = false;
      for (const Axis& axis : mesh.axes()) known = known || axis.name.view() == named[p].axis;
      if (!known) (void)mesh.axis_index(named[p].axis);  // throws with the axis
    }
  return refined;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
