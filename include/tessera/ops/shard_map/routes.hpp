#ifndef TESSERA_OPS_SHARD_MAP_ROUTES_HPP
#define TESSERA_OPS_SHARD_MAP_ROUTES_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>

#include <tessera/graph/trace/expression/expr.hpp>
#include <tessera/ops/data_movement/shape.hpp>

namespace tessera {

/// A ppermute in which each device sends to the device `by` positions further along the axis, cyclically.
struct Shift {
  Dim by;
  constexpr explicit Shift(const Dim& positions) : by(positions) {}
};
/// One transfer of a ppermute: the device with index `from` along the axis sends to device `to`.
struct Route {
  int from = 0, to = 0;
};

namespace detail {

/// The operands of a permute after the first.
constexpr void add_routes(const Value& sent, Growable<std::int32_t>& operands, const tessera::Shift& shift) {
  operands.push_back(as_size(lower(sent, shift.by)).id);
}
constexpr void add_routes(const Value& sent, Growable<std::int32_t>& operands, std::initializer_list<Route> routes) {
  for (const Route& route : routes) {
    operands.push_back(sent.number(route.from, DType::i64).id);
    operands.push_back(sent.number(route.to, DType::i64).id);
  }
}
/// The slices of a dim, sent along routes. `operands`: the value and its routes.
constexpr Value permuted(const Value& sent, const Growable<std::int32_t>& operands, int dim) {
  const Node& type = sent.node();
  return sent.make({.op = Op::permute,
                    .dtype = type.dtype,
                    .rank = type.rank,
                    .singletons = type.singletons,
                    .labels = pack_dim(dim)},
                   operands.data(), static_cast<int>(operands.size()));
}

}  // namespace detail

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
