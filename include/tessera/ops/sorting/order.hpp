#ifndef TESSERA_OPS_SORTING_ORDER_HPP
#define TESSERA_OPS_SORTING_ORDER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// The order of a sort. NaN is the largest value.
enum class Order : std::int8_t { ascending, descending };

constexpr Order order_of(const Node& argsort) { return static_cast<Order>(argsort.labels[1]); }
constexpr Labels pack_order(int dim, Order order) {
  Labels labels = pack_dim(dim);
  labels[1] = static_cast<std::int8_t>(order);
  return labels;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
