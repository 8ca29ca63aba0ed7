#ifndef TESSERA_MESH_PARTITION_SPEC_HPP
#define TESSERA_MESH_PARTITION_SPEC_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/text_reader.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The maximum number of mesh axes that can split one dim.
inline constexpr int max_axes_per_dim = 4;

namespace detail {
constexpr void check_entry_count(std::size_t count) {
  if (count > max_rank)
    fail(errc::capacity, "[spec] number of entries: ", count, "; a tensor has at most ", max_rank, " dims");
}
constexpr void check_entry_axes(std::size_t count) {
  if (count > max_axes_per_dim)
    fail(errc::capacity, "[spec] axes of a dim: ", count, "; at most ", max_axes_per_dim, " axes can split a dim");
}
}  // namespace detail

struct NoAxis {};

/// The entry of a dim that no mesh axis splits.
inline constexpr NoAxis none{};

/// A mesh axis in a spec, by name or by index.
struct AxisRef {
  Name name;

  constexpr AxisRef(const char* axis) : name(axis) {}
  constexpr AxisRef(std::string_view axis) : name(axis) {}
  constexpr AxisRef(const Name& axis) : name(axis) {}
  AxisRef(std::nullptr_t) = delete;
  template <class Index>
    requires(std::is_integral_v<Index> && !std::is_same_v<Index, bool> && !std::is_same_v<Index, char>)
  constexpr AxisRef(Index axis) {
    if (axis < Index{0})
      fail(errc::spec_axis, "[spec] axis index: ", static_cast<std::int64_t>(axis), " is negative; axes count from 0");
    if (axis > Index{99}) fail(errc::spec_axis, "[spec] axis index: ", static_cast<std::int64_t>(axis), " exceeds 99");
    name = detail::name_of_index(static_cast<int>(axis));
  }
  template <class T>
    requires(!std::is_convertible_v<T, std::string_view> && !std::is_convertible_v<T, Name> &&
             (!std::is_integral_v<T> || std::is_same_v<T, bool> || std::is_same_v<T, char>))
  constexpr AxisRef(const T&) {
    static_assert(sizeof(T) == 0,
                  "tessera: an entry of a spec is ts::none, the name or the index of an axis, or a list of axes");
  }
};

/// A sub-axis of a mesh axis, for a spec, as Shardy's `"x":(before)size`: `before` is the product of the sizes of more
/// significant sub-axes. For an axis x of 4 devices, sub_axis("x", 1, 2) is the more significant half of the coordinate
/// and sub_axis("x", 2, 2) the less significant half. "x:(1)2" is the same as text. Errors: `spec_axis`.
constexpr AxisRef sub_axis(const AxisRef& axis, std::int32_t before, std::int32_t size) {
  if (before < 1 || size < 2)
    fail(errc::spec_axis, "[spec] sub_axis: of '", axis.name.view(), "', size ", size, " after ", before,
         " devices; the size is at least 2, and the number of devices before at least 1");
  return AxisRef(detail::name_of_sub_axis(axis.name.view(), before, size));
}

/// The axes that split one dim: none, one, or a list, the most significant first.
struct SpecEntry {
  InlineVector<Name, max_axes_per_dim> axes;
  std::uint8_t priority =
      0;  ///< 0: split in computations too; above 0: split only in storage, and gathered when it is used

  constexpr SpecEntry() = default;
  constexpr SpecEntry(NoAxis) {}
  template <class Axis>
    requires(!std::is_same_v<Axis, SpecEntry> && !std::is_same_v<Axis, NoAxis>)
  constexpr SpecEntry(const Axis& axis) : axes{AxisRef(axis).name} {}
  constexpr SpecEntry(std::initializer_list<AxisRef> list) {
    detail::check_entry_axes(list.size());
    for (const AxisRef& axis : list) axes.push_back(axis.name);
  }

  friend constexpr bool operator==(const SpecEntry&, const SpecEntry&) = default;
};

/// How a tensor is sharded over a mesh, as jax.sharding.PartitionSpec: for each dim, the axes that split it, by name or
/// by index. Dims beyond the last entry are not split; the spec of a rank-0 tensor is `{}`. Each axis splits at most
/// one dim. In a list the first axis is the most significant. Errors: `spec_axis` for a negative index; `resolve`
/// checks names and repetitions against a mesh.
///
///     ts::shard(x, mesh, {"data", ts::none, {"x", "y"}})
///     ts::shard(y, mesh, {ts::sub_axis("x", 1, 2), ts::sub_axis("x", 2, 2)})      // an axis in sub-axes
struct PartitionSpec {
  InlineVector<SpecEntry, max_rank> entries;

  constexpr PartitionSpec() = default;
  constexpr PartitionSpec(std::initializer_list<SpecEntry> list)
      : entries((detail::check_entry_count(list.size()), list)) {}

  /// This spec for storage only: the tensor is gathered when it is used, as FSDP does with weights.
  constexpr PartitionSpec gathered_on_use() const {
    PartitionSpec spec = *this;
    for (SpecEntry& entry : spec.entries) entry.priority = entry.axes.empty() ? 0 : 1;
    return spec;
  }
  /// The same for the entry of one dim; the axes of other entries also split computations.
  constexpr PartitionSpec gathered_on_use(int dim) const {
    if (dim < 0 || dim >= static_cast<int>(entries.size()))
      fail(errc::dim_range, "[spec] gathered_on_use: dim ", dim, " of a spec with ", entries.size(), " entries");
    PartitionSpec spec = *this;
    SpecEntry& entry = spec.entries[static_cast<std::size_t>(dim)];
    entry.priority = entry.axes.empty() ? 0 : 1;
    return spec;
  }

  /// "{data,-,(x,y)}"; `*` marks an entry that is gathered on use. parse_spec parses this text.
  std::string text() const {
    std::string out = "{";
    for (const SpecEntry& entry : entries) {
      if (out.size() > 1) out += ",";
      if (entry.axes.empty()) out += "-";
      if (entry.axes.size() > 1) out += "(";
      for (std::size_t i = 0; i < entry.axes.size(); ++i) out += concat_text(i ? "," : "", entry.axes[i].view());
      if (entry.axes.size() > 1) out += ")";
      if (entry.axes.empty() || entry.priority == 0) continue;
      out += "*";
      if (entry.priority > 1) out += std::to_string(entry.priority);
    }
    return out + "}";
  }

  friend constexpr bool operator==(const PartitionSpec&, const PartitionSpec&) = default;
};

/// Parses "{data,-,(x,y)}", with or without the braces: the text of PartitionSpec::text().
constexpr PartitionSpec parse_spec(std::string_view text) {
  detail::TextReader reader{text};
  const auto expect = [&](bool matches) {
    if (!matches)
      fail(errc::spec_axis, "[spec] syntax: can't read '", text, "' from '", reader.rest,
           "' on; a spec is written {data,-,(x,y)}");
  };
  const auto take_axis = [&] {
    const std::string_view name = reader.take_name();
    expect(detail::is_axis_name(name));
    return Name(name);
  };

  PartitionSpec spec;
  const bool wrapped = reader.take("{");
  if (wrapped ? reader.take("}") : reader.done()) {
    expect(reader.done());
    return spec;
  }
  do {
    SpecEntry entry;
    if (reader.take("(")) {
      do {
        detail::check_entry_axes(entry.axes.size() + 1);
        entry.axes.push_back(take_axis());
      } while (reader.take(","));
      expect(reader.take(")"));
    } else if (const std::string_view name = reader.take_name(); name != "-") {
      expect(!name.empty());
      entry.axes.push_back(Name(name));
    }
    if (!entry.axes.empty() && reader.take("*")) {
      int priority = 1;
      if (reader.take(priority)) expect(priority >= 1 && priority <= 255);
      entry.priority = static_cast<std::uint8_t>(priority);
    }
    detail::check_entry_count(spec.entries.size() + 1);
    spec.entries.push_back(entry);
  } while (reader.take(","));
  if (wrapped) expect(reader.take("}"));
  expect(reader.done());
  return spec;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
