#ifndef TESSERA_MESH_PARTITION_SPEC_HPP
#define TESSERA_MESH_PARTITION_SPEC_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/mesh/text_reader.hpp>

namespace tessera {

/// Most mesh axes that can split one dim.
inline constexpr int max_axes_per_dim = 4;

struct NoAxis {};

/// The entry of a dim that no mesh axis splits.
inline constexpr NoAxis none{};

/// How one dim is split: by nothing, by an axis, or by a list of axes, major first.
struct SpecEntry {
  InlineVector<Name, max_axes_per_dim> axes;
  std::uint8_t priority = 0;  ///< 0: computed on as it lies; above: a way to store, which yields to other uses

  constexpr SpecEntry() = default;
  constexpr SpecEntry(NoAxis) {}
  constexpr SpecEntry(const char* axis) : axes{Name(axis)} {}
  constexpr SpecEntry(std::string_view axis) : axes{Name(axis)} {}
  constexpr SpecEntry(const Name& axis) : axes{axis} {}
  constexpr SpecEntry(std::initializer_list<Name> list) : axes(list) {}
  SpecEntry(int) = delete;  // a literal 0 would pass for a null name

  friend constexpr bool operator==(const SpecEntry&, const SpecEntry&) = default;
};

/// How a tensor lies on a mesh: an entry a dim, by axis names. Dims past the last entry are not split.
///
///     ts::shard(x, mesh, {"data", ts::none, {"x", "y"}})
struct PartitionSpec {
  InlineVector<SpecEntry, max_rank> entries;

  constexpr PartitionSpec() = default;
  constexpr PartitionSpec(std::initializer_list<SpecEntry> list) : entries(list) {}

  /// The same spec as a way to store only: the tensor is gathered where it is used, as FSDP does with weights.
  constexpr PartitionSpec gathered_on_use() const {
    PartitionSpec spec = *this;
    for (SpecEntry& entry : spec.entries) entry.priority = entry.axes.empty() ? 0 : 1;
    return spec;
  }
  /// The same for one entry: the axes of the others keep splitting the computation.
  constexpr PartitionSpec gathered_on_use(int dim) const {
    if (dim < 0 || dim >= static_cast<int>(entries.size()))
      fail(errc::dim_range, "[spec] gathered_on_use: dim ", dim, " of ", entries.size(), " entries");
    PartitionSpec spec = *this;
    SpecEntry& entry = spec.entries[static_cast<std::size_t>(dim)];
    entry.priority = entry.axes.empty() ? 0 : 1;
    return spec;
  }

  /// "{data,-,(x,y)}"; a star marks an entry that is gathered on use. parse_spec reads it back.
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

/// Reads "{data,-,(x,y)}", with or without the braces, as PartitionSpec::text() prints it.
constexpr PartitionSpec parse_spec(std::string_view text) {
  detail::TextReader reader{text};
  const auto expect = [&](bool matches) {
    if (!matches)
      fail(errc::spec_axis, "[spec] text like {data,-,(x,y)}: '", text, "' stops making sense at '", reader.rest, "'");
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
      do entry.axes.push_back(take_axis());
      while (reader.take(","));
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
    spec.entries.push_back(entry);
  } while (reader.take(","));
  if (wrapped) expect(reader.take("}"));
  expect(reader.done());
  return spec;
}

}  // namespace tessera

#endif
