#ifndef TESSERA_OPS_CONSTRAINT_HPP
#define TESSERA_OPS_CONSTRAINT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/graph/ir/attributes/alike.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera {

namespace build {

/// A value in a sharding that another value shares, or, exactly, in the sharding that the other value has.
constexpr Value alike(const Value& of, const Value& other, Alike how = {}) {
  Node made{.op = Op::alike, .dtype = of.dtype(), .rank = of.node().rank, .singletons = of.node().singletons};
  how.write(made);
  return of.make(made, {of.id, other.id});
}

}  // namespace build

namespace detail {

/// Adds a spec to the trace's table, for a value of this rank, with unsplit leading dims in front; returns its index.
constexpr int constraint_spec(const Value& context, const PartitionSpec& spec, int rank, int node_rank) {
  if (static_cast<int>(spec.entries.size()) > rank)
    context.refuse(errc::spec_rank, "[with_sharding] spec: more entries than the tensor has dims");
  PartitionSpec whole = spec;
  for (int lead = node_rank - rank; lead > 0; --lead) whole.entries.insert(0, SpecEntry(none));
  return context.module->add_spec(whole);
}

template <TensorArgument X>
constexpr auto constrain(const X& x, const PartitionSpec& spec, CotangentSharding of_cotangent,
                         const PartitionSpec* cotangent, Source source) {
  static_assert(!LocalOperand<X>,
                "tessera: values inside a ts::shard_map have no sharding of their own; call ts::with_sharding on the "
                "arguments or the results of the shard_map");
  const Value context = trace_of(x).at(source);
  if (context.module == nullptr)
    fail(errc::unsupported, "[with_sharding] outside of a traced function: use ts::reshard for stored tensors", source);
  const Value value = lower(context, x);
  Node made{
      .op = Op::constraint, .dtype = value.dtype(), .rank = value.node().rank, .singletons = value.node().singletons};
  Constraint says{constraint_spec(context, spec, X::rank, value.rank()), of_cotangent};
  if (cotangent != nullptr) {
    const int own = constraint_spec(context, *cotangent, X::rank, value.rank());
    if (own > 127 || says.spec > 127)
      value.refuse(
          errc::capacity,
          "[with_sharding] number of specs: the spec of a cotangent must be among the first 128 specs of a program");
    says.cotangent_spec = static_cast<std::int8_t>(own);
  }
  says.write(made);
  return Sym<typename X::element, X::rank>(value.at(source).make(made, {value.id}));
}

/// A value with a sharding over one axis of the mesh; over other axes it stays as it is.
constexpr Value constrained_over(const Value& value, std::string_view axis, const PartitionSpec& spec,
                                 CotangentSharding cotangent, bool keeps_sums = false, bool of_parameter = false) {
  const int own = value.module->add_spec(spec), only = value.module->add_spec({SpecEntry(axis)});
  if (only > 126) value.refuse(errc::capacity, "[with_sharding] number of specs: a program has more than 127 specs");
  Node made{
      .op = Op::constraint, .dtype = value.dtype(), .rank = value.node().rank, .singletons = value.node().singletons};
  Constraint{own, cotangent, 0, static_cast<std::int8_t>(only), keeps_sums, of_parameter}.write(made);
  return value.make(made, {value.id});
}
constexpr PartitionSpec whole_spec(int rank) {
  PartitionSpec whole;
  for (int dim = 0; dim < rank; ++dim) whole.entries.push_back(none);
  return whole;
}
/// A parameter of a wrapper, gathered over one axis where it is only stored in parts. The planner chooses the sharding
/// of its cotangent.
constexpr Value gathered_over(const Value& value, std::string_view axis,
                              CotangentSharding cotangent = CotangentSharding::free) {
  return constrained_over(value, axis, whole_spec(value.rank()), cotangent, false, true);
}
/// A gradient that is not split over one axis, or whose terms are on the devices of the axis: readers reduce the sum.
/// Where a reader makes it alike to a parameter, it stays split as the parameter is for computations.
constexpr Value summed_over(const Value& value, std::string_view axis) {
  return constrained_over(value, axis, whole_spec(value.rank()), CotangentSharding::free, true, true);
}
/// A value of static rank `rank` whose dim `dim` is split over one axis, like that of its cotangent.
constexpr Value split_over(const Value& value, std::string_view axis, int dim, int rank) {
  PartitionSpec spec;
  for (int d = 0; d < value.rank(); ++d) spec.entries.push_back(none);
  spec.entries[static_cast<std::size_t>(value.leading(rank) + dim)] = SpecEntry(axis);
  return constrained_over(value, axis, spec, CotangentSharding::alike);
}

}  // namespace detail

/// Inside a traced function: x with the sharding of the spec, for its readers and for its cotangent. The elements don't
/// change. Errors: spec_rank when the spec has more entries than x has dims; spec_axis, when the program is planned,
/// for axes that the mesh lacks. Communication: the reshard of x to that sharding, if x has another sharding.
template <TensorArgument X>
constexpr auto with_sharding(const X& x, const PartitionSpec& spec, Here at = Here::current()) {
  return detail::constrain(x, spec, CotangentSharding::alike, nullptr, Source::from(at));
}
/// with_sharding with a different spec for the cotangent.
template <TensorArgument X>
constexpr auto with_sharding(const X& x, const PartitionSpec& spec, const PartitionSpec& cotangent,
                             Here at = Here::current()) {
  return detail::constrain(x, spec, CotangentSharding::own_spec, &cotangent, Source::from(at));
}

/// with_sharding only for x: the planner chooses the sharding of its cotangent.
template <TensorArgument X>
  requires(!StoredOperand<X>)
constexpr auto mark_sharding(const X& x, const PartitionSpec& spec, Here at = Here::current()) {
  return detail::constrain(x, spec, CotangentSharding::free, nullptr, Source::from(at));
}

/// Inside a traced function: x and y with equal shardings, which the planner chooses. The elements don't change.
/// Errors: shape_mismatch when their shapes differ. Communication: the reshard of one to the sharding of the other, if
/// they differ.
///
///     const auto [g, w] = ts::shard_as(gradient, weight);
template <TensorArgument X, TensorArgument Y>
constexpr auto shard_as(const X& x, const Y& y, Here at = Here::current()) {
  static_assert(!LocalOperand<X> && !LocalOperand<Y>,
                "tessera: values inside a ts::shard_map have no sharding of their own; call ts::shard_as on the "
                "arguments or the results of the shard_map");
  static_assert(X::rank == Y::rank, "tessera: the operands of shard_as must have equal ranks");
  const Source source = Source::from(at);
  Value context = trace_of(x);
  if (context.module == nullptr) context = trace_of(y);
  if (context.module == nullptr)
    fail(errc::unsupported, "[shard_as] outside of a traced function: use ts::reshard for stored tensors", source);
  const Value a = lower(context.at(source), x).at(source), b = lower(context.at(source), y).at(source);
  if (!same_static_shape(a.node(), b.node()))
    a.refuse(errc::shape_mismatch, "[shard_as] shapes differ: a dim has static extent 1 in only one of the operands");
  const Value first = build::alike(a, b), second = build::alike(b, first);
  return std::tuple(Sym<typename X::element, X::rank>(first), Sym<typename Y::element, Y::rank>(second));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
