#ifndef TESSERA_OPS_SHARD_MAP_SHARD_MAP_TEXT_HPP
#define TESSERA_OPS_SHARD_MAP_SHARD_MAP_TEXT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/partition_spec.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// One spec of a shard_map: for each dim, the indices of its axes in the list of the text's axes.
struct LocalSpec {
  std::int8_t rank = 0;
  std::int8_t count[max_rank]{};
  std::int8_t axes[max_rank][max_axes_per_dim]{};
  unsigned mask = 0;  ///< one bit an axis

  constexpr PartitionSpec resolved(const Name* names) const {
    PartitionSpec spec;
    for (int d = 0; d < rank; ++d) {
      SpecEntry entry;
      for (int i = 0; i < count[d]; ++i) entry.axes.push_back(names[axes[d][i]]);
      spec.entries.push_back(entry);
    }
    return spec;
  }
};

/// The text of one argument or result: one spec for all its tensors, or a list with a spec for each.
struct SpecItem {
  std::int8_t first = 0, count = 0;
  bool list = false;
  constexpr int of_leaf(int leaf) const { return first + (list ? leaf : 0); }
};

/// The text of a shard_map, such as "{data,-}, [{x}, {}] -> {data,x}; y", parsed at compile time: specs of the
/// arguments and results, and manual axes that no spec names.
struct ShardMapText {
  static constexpr int max_specs = 16, max_names = 8;
  LocalSpec in[max_specs], out[max_specs];
  SpecItem in_items[max_specs], out_items[max_specs];
  int ins = 0, outs = 0, axis_count = 0;  ///< numbers of arguments, of results, and of axes
  Name axes[max_names];
  bool valid = false, twice = false;
  int outer = 0;    ///< how many of the axes, the first, are those of the enclosing shard_map
  int shared = -1;  ///< the index of one of these that this shard_map names as well, -1: none

 private:  // comes first since clang needs the definition of what a constexpr constructor calls
  constexpr bool add(std::string_view name, LocalSpec& spec, int dim) {
    if (!is_axis_name(name) || name.size() > Name::max_length) return false;
    int axis = find(name);
    if (axis < 0) {
      if (axis_count == max_names) return false;
      axis = axis_count++;
      axes[axis] = Name(name);
    }
    if (axis < outer) shared = axis;
    if (dim < 0) return true;
    if (spec.count[dim] == max_axes_per_dim) return false;
    twice = twice || (spec.mask >> axis & 1u) != 0;
    spec.mask |= 1u << axis;
    spec.axes[dim][static_cast<int>(spec.count[dim]++)] = static_cast<std::int8_t>(axis);
    return true;
  }
  constexpr bool read_spec(TextReader& reader, LocalSpec& spec) {
    if (!reader.take("{")) return false;
    if (reader.take("}")) return true;
    do {
      if (spec.rank == max_rank) return false;
      const int dim = spec.rank++;
      if (reader.take("(")) {
        do
          if (!add(reader.take_name(), spec, dim)) return false;
        while (reader.take(","));
        if (!reader.take(")")) return false;
      } else if (const std::string_view name = reader.take_name(); name != "-" && !add(name, spec, dim)) {
        return false;
      }
    } while (reader.take(","));
    return reader.take("}");
  }
  constexpr bool read_items(TextReader& reader, LocalSpec* specs, SpecItem* items, int& count) {
    int next = 0;
    do {
      if (count == max_specs) return false;
      SpecItem& item = items[count++];
      item.first = static_cast<std::int8_t>(next);
      item.list = reader.take("[");
      do {
        if (next == max_specs || !read_spec(reader, specs[next++])) return false;
        ++item.count;
      } while (item.list && reader.take(","));
      if (item.list && !reader.take("]")) return false;
    } while (reader.take(","));
    return true;
  }

 public:
  constexpr explicit ShardMapText(std::string_view text, const ShardMapText* around = nullptr) {
    if (around != nullptr)
      for (outer = axis_count = around->axis_count; const Name& axis : around->axes) axes[&axis - around->axes] = axis;
    const std::size_t arrow = text.find("->");
    if (arrow == std::string_view::npos) return;
    TextReader left{text.substr(0, arrow)}, right{text.substr(arrow + 2)};
    if (!read_items(left, in, in_items, ins) || !left.done()) return;
    if (!read_items(right, out, out_items, outs)) return;
    LocalSpec more;
    if (right.take(";")) {
      do
        if (!add(right.take_name(), more, -1)) return;
      while (right.take(","));
    }
    valid = right.done();
  }

  /// The index of an axis; -1 for an axis that the text does not name.
  constexpr int find(std::string_view name) const {
    for (int i = 0; i < axis_count; ++i)
      if (axes[i].view() == name) return i;
    return -1;
  }
};

/// The type by which local values of different shard_maps are told apart. `Structs`: it takes structs. The types of
/// their tensors don't tell what varies, so these count as varying along all axes, and the trace finds out. `Outer`:
/// the region of the enclosing shard_map, whose axes come first; void: none.
template <FixedString Text, bool Structs, class Outer = void> struct ShardMapRegion {
  static constexpr ShardMapText text = [] {
    if constexpr (std::is_void_v<Outer>)
      return ShardMapText(Text.view());
    else
      return ShardMapText(Text.view(), &Outer::text);
  }();
  using outer = Outer;
  static constexpr bool structs = Structs;
  static constexpr unsigned all = (1u << text.axis_count) - 1;
  static_assert(
      text.valid,
      "tessera: the specs of a shard_map are written \"{data,-}, {-,model} -> {data,model}\": a spec in braces for "
      "each argument, or [{..}, {..}] with a spec for each tensor of a struct, then the specs of "
      "the results; manual axes that no spec names follow after a ';'");
  static_assert(!text.twice, "tessera: an axis occurs twice in a spec of a shard_map");
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
