#ifndef TESSERA_OPS_SHARD_MAP_LOCAL_VALUE_HPP
#define TESSERA_OPS_SHARD_MAP_LOCAL_VALUE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/shape.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/shard_map/shard_map_text.hpp>

namespace tessera::detail {

/// A local value in the graph: one leading dim for each axis in `varying`, then the `rank` dims of a device's shard.
struct LocalValue {
  Value value{};
  unsigned varying = 0;
  int rank = 0;
};

[[noreturn]] inline void fail_local_rank() {
  fail(errc::capacity,
       "[shard_map] rank: dims of a local value and axes along which the value varies are at most 8 together");
}

/// A value of this type in place of one whose computation does not compile.
constexpr Value stand_in(const Value& context, DType dtype, int rank) {
  if (context.module == nullptr) return {};
  return build::insert_singletons(context.number(0, dtype), (1u << rank) - 1, rank);
}

/// The position of an axis's leading dim.
constexpr int lead_of(unsigned varying, int axis) { return bit_count(varying & ((1u << axis) - 1)); }

/// The axes whose leading dim has its full extent; along the others the values are equal so far. `before`: the dims in
/// front of the leading dims, such as the layers of a Stack.
constexpr unsigned extending(const LocalValue& x, int before = 0) {
  unsigned axes = 0;
  for (int axis = 0, at = before; axis < ShardMapText::max_names && x.value.rank() > before; ++axis)
    if ((x.varying >> axis & 1u) != 0 && !x.value.is_singleton(at++)) axes |= 1u << axis;
  return axes;
}

/// x with a leading dim for each axis in `all`, of extent 1 where it has none, and then singleton dims up to `rank`.
/// Host scalars stay as they are.
constexpr Value aligned(const LocalValue& x, unsigned all, int rank) {
  if ((x.varying == all && x.rank == rank) || x.value.rank() == 0) return x.value;
  unsigned singletons = 0;
  int leads = 0;
  for (int axis = 0; axis < ShardMapText::max_names; ++axis) {
    if ((all >> axis & 1u) == 0) continue;
    if ((x.varying >> axis & 1u) == 0) singletons |= 1u << leads;
    ++leads;
  }
  if (leads + rank > max_rank) fail_local_rank();
  for (int d = x.rank; d < rank; ++d) singletons |= 1u << (leads + d - x.rank);
  return build::insert_singletons(x.value, singletons, leads + rank);
}

/// x with leading dims only for axes in `kept`. Errors: structure if it differs along another axis.
constexpr LocalValue narrowed(const LocalValue& x, unsigned kept) {
  if ((extending(x) & ~kept) != 0)
    x.value.refuse(errc::structure,
                   "[shard_map] result: a result varies along an axis that its out spec does not name; "
                   "reduce the result with ts::psum, ts::pmean or ts::pmax");
  unsigned singletons = 0;
  for (int axis = 0, at = 0; axis < ShardMapText::max_names; ++axis) {
    if ((x.varying >> axis & 1u) == 0) continue;
    if ((kept >> axis & 1u) == 0) singletons |= 1u << at;
    ++at;
  }
  return {singletons != 0 ? build::drop_singletons(x.value, singletons) : x.value, x.varying & kept, x.rank};
}

// A tensor in a struct holds a local value with leading dims for all axes. Its graph index is stored inverted (~graph),
// so that code outside of the shard_map does not take it for a value of the program, which has other dims.
constexpr Value kept_in_struct(const ShardMapText& text, const LocalValue& x) {
  Value value = aligned(x, (1u << text.axis_count) - 1, x.rank);
  value.graph = ~value.graph;
  return value;
}
/// The value in the graph in which it was made.
constexpr Value value_in_struct(Value value, Source source) {
  if (value.module == nullptr || value.graph >= 0)
    fail(errc::unsupported, "[shard_map] captured value: a local value is combined with a value from outside of the "
                            "shard_map; pass the outside value as an argument, with a spec");
  value.graph = ~value.graph;
  return value.at(source);
}
constexpr LocalValue taken_from_struct(const ShardMapText& text, Value value, int rank, Source source) {
  return {here(value_in_struct(value, source)), (1u << text.axis_count) - 1, rank};
}

/// x without the leading dims of extent 1.
constexpr Value without_singletons(const LocalValue& x) {
  unsigned singletons = 0;
  const unsigned kept = extending(x);
  for (int axis = 0, at = 0; axis < ShardMapText::max_names && x.value.rank() > 0; ++axis) {
    if ((x.varying >> axis & 1u) == 0) continue;
    if ((kept >> axis & 1u) == 0) singletons |= 1u << at;
    ++at;
  }
  return build::drop_singletons(x.value, singletons);
}

constexpr Value axis_size_of(const Value& context, const Name& axis) {
  return context.make({.op = Op::axis_size, .dtype = DType::i64, .labels = pack_axis(axis)}, {});
}

/// The spec of a local value: the leading dims of axes in `named` are split by their axes, and optionally dim `dim` by
/// `axis`.
constexpr PartitionSpec lead_spec(const ShardMapText& text, const Value& x, unsigned varying, unsigned named,
                                  int dim = -1, int axis = -1) {
  PartitionSpec spec;
  for (int d = 0; d < x.rank(); ++d) spec.entries.push_back(none);
  for (int a = 0, at = 0; a < text.axis_count; ++a) {
    if ((varying >> a & 1u) == 0) continue;
    if ((named >> a & 1u) != 0 && !x.is_singleton(at))
      spec.entries[static_cast<std::size_t>(at)] = SpecEntry(text.axes[a]);
    ++at;
  }
  if (dim >= 0) spec.entries[static_cast<std::size_t>(dim)] = SpecEntry(text.axes[axis]);
  return spec;
}

/// x with a constraint on the axes of the shard_map; over all other axes of the mesh the partitioner chooses.
constexpr Value placed(const ShardMapText& text, const Value& x, const PartitionSpec& spec,
                       const PartitionSpec* cotangent = nullptr) {
  Node made{.op = Op::constraint, .dtype = x.dtype(), .rank = x.node().rank, .singletons = x.node().singletons};
  PartitionSpec axes;
  for (int axis = 0; axis < text.axis_count; ++axis) axes.entries.push_back(SpecEntry(text.axes[axis]));
  const int own = x.module->add_spec(spec), of_cotangent = cotangent ? x.module->add_spec(*cotangent) : 0;
  const int about = x.module->add_spec(axes);
  if (own > 127 || of_cotangent > 127 || about > 126)
    x.refuse(errc::capacity, "[shard_map] number of specs: a program has more than 127 specs");
  Constraint{own, cotangent ? CotangentSharding::own_spec : CotangentSharding::alike,
             static_cast<std::int8_t>(of_cotangent), static_cast<std::int8_t>(about)}
      .write(made);
  return x.make(made, {x.id});
}

/// x with its leading dims split: each device holds its own value.
constexpr Value pinned(const ShardMapText& text, const Value& x, unsigned varying) {
  return placed(text, x, lead_spec(text, x, varying, varying));
}

/// x with leading dims for all axes in `all`, those in `wanted` broadcast to their full extents.
constexpr Value extended(const ShardMapText& text, const LocalValue& x, unsigned all, unsigned wanted) {
  const Value value = aligned(x, all, x.rank);
  const unsigned missing = wanted & ~extending({value, all, x.rank});
  if (missing == 0) return value;
  const int rank = bit_count(all) + x.rank;
  Value like{};
  if (rank > max_rank) fail_local_rank();
  for (int axis = 0; axis < text.axis_count; ++axis) {
    if ((missing >> axis & 1u) == 0) continue;
    const Value positions = build::insert_singletons(build::arange(axis_size_of(value, text.axes[axis])),
                                                     ((1u << rank) - 1) & ~(1u << lead_of(all, axis)), rank);
    like = like.module == nullptr ? positions : like + positions;
  }
  if (value.rank() > 0) like = like + build::iota(value, rank - 1, DType::i32);
  return pinned(text, build::broadcast(value, like), all);
}
constexpr Value extended(const ShardMapText& text, const LocalValue& x, unsigned all) {
  return extended(text, x, all, all);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
