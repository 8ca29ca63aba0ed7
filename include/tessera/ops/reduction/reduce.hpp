#ifndef TESSERA_OPS_REDUCTION_REDUCE_HPP
#define TESSERA_OPS_REDUCTION_REDUCE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/attributes/reduced.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/ops/elementwise/select.hpp>

namespace tessera::build {

/// Sets the rank and static singleton dims of a reduction's result.
constexpr void reduced_dims(Node& made, const Node& from, const Reduced& reduced) {
  for (int d = 0; d < from.rank; ++d) {
    if (reduced.has(d) && !reduced.keep) continue;
    if (reduced.has(d) || from.is_singleton(d))
      made.singletons = static_cast<std::uint8_t>(made.singletons | 1u << made.rank);
    ++made.rank;
  }
}
/// Reduces a bit set of dims; `position`: the elements are positions, of which there has to be one.
constexpr Value reduce(Op op, Value x, unsigned dims, bool keep, PositionOf position = PositionOf::nothing) {
  const Reduction reduction = row_of(op).reduction;
  const DType whole = reduced_type(reduction, x.dtype()), partial = partial_type(reduction, x.dtype());
  if (dims == 0) return cast(x, whole);
  if (x.dtype() != partial) return cast(reduce(op, cast(x, partial), dims, keep, position), whole);
  require_arithmetic(x);
  const Reduced reduced{static_cast<std::uint8_t>(dims), keep, false, position};
  Node made{.op = op, .dtype = x.dtype(), .labels = reduced.pack()};
  reduced_dims(made, x.node(), reduced);
  return x.make(made, {x.id});
}

/// The number of elements along a bit set of dims, an i64 host scalar.
constexpr Value element_count(Value x, unsigned dims) {
  Value count = x.number(1, DType::i64);
  for (int d = 0; d < x.rank(); ++d)
    if ((dims >> d & 1) != 0) count = count * extent(x, d);
  return count;
}

constexpr Value sum_of(Value x, unsigned dims, bool keep) { return reduce(Op::sum, x, dims, keep); }
constexpr Value max_of(Value x, unsigned dims, bool keep = false) { return reduce(Op::max, x, dims, keep); }
constexpr Value sum_to(Value x, Value like) {
  const Node &from = x.node(), &to = like.node();
  const int missing = from.rank - to.rank;
  const unsigned lead = missing > 0 ? (1u << missing) - 1 : 0u;
  unsigned singletons = (missing >= 0 ? unsigned{to.singletons} << missing : unsigned{to.singletons} >> -missing) &
                        ~unsigned{from.singletons};
  if (missing > 0) {
    x = sum_of(x, lead);
    singletons >>= missing;
  }
  return sum_of(x, singletons, true);
}

}  // namespace tessera::build

#include <tessera/base/pop_macros.hpp>

#endif
