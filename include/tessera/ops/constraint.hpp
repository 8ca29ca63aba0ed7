#ifndef TESSERA_OPS_CONSTRAINT_HPP
#define TESSERA_OPS_CONSTRAINT_HPP

#include <tessera/mesh/partition_spec.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera {

/// Inside a traced function: x, laid out as the spec says from here on, and its cotangent too. The value is that of x.
/// Errors: spec_rank when the spec is longer than the rank; spec_axis, when the program is planned, for axes that the
/// mesh lacks. Communication: whatever brings x into that layout.
template <TensorOperand X>
constexpr auto with_sharding(const X& x, const PartitionSpec& spec, Here at = Here::current()) {
  const Value context = trace_of(x).at(Source::from(at));
  if (context.module == nullptr)
    fail(errc::unsupported, "[with_sharding] outside of a trace: it is for values inside a traced function");
  if (spec.entries.size() > X::rank)
    fail(errc::spec_rank, "[with_sharding] spec: it has more entries than the value has dims");
  const Value value = lower(context, x);
  PartitionSpec whole = spec;
  for (int lead = value.rank() - X::rank; lead > 0; --lead) whole.entries.insert(0, SpecEntry(none));
  const Node made{.op = Op::constraint,
                  .dtype = value.dtype(),
                  .rank = value.node().rank,
                  .unit = value.node().unit,
                  .value = static_cast<double>(context.module->add_spec(whole))};
  return Sym<typename X::element, X::rank>(value.at(context.source).make(made, {value.id}));
}

}  // namespace tessera

#endif
