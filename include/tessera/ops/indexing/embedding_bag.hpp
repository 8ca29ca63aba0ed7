#ifndef TESSERA_OPS_INDEXING_EMBEDDING_BAG_HPP
#define TESSERA_OPS_INDEXING_EMBEDDING_BAG_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/ops/indexing/index_put.hpp>
#include <tessera/ops/indexing/nonzero.hpp>

namespace tessera {

/// What an embedding_bag has of the rows of a bag.
enum class BagMode : std::uint8_t { sum, mean, max };

namespace detail {

template <BagMode Mode> struct EmbeddingBagTag {
  static constexpr const char* function = "embedding_bag";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class Table, class Indices, class Offsets, class... Weights>
  struct result : Typed<typename Table::type, 2> {
    using Checks = decltype([] {
      check_index_vector<Indices>();
      check_index_vector<Offsets>();
      static_assert(Table::rank == 2 && is_floating_v<typename Table::type>,
                    "tessera: the table of embedding_bag is a floating matrix");
      static_assert(((Mode == BagMode::sum && Weights::rank == 1 &&
                      std::is_same_v<typename Weights::type, typename Table::type>)&&...),
                    "tessera: weights are for sums: a vector of the element type of the table");
    });
  };
  static constexpr Value emit(Value context, Value table, Value indices, Value offsets, auto... weights) {
    indices = one_vector(indices, context);
    offsets = one_vector(offsets, context);
    table = table.at(context.source);
    const Value positions = counting_along(indices, 0), n = build::extent(indices, 0), one = n.number(1);
    // The bag of an index: how many bags begin at it or before it, without the first.
    const Value marks = build::scatter_add(build::broadcast(positions.number(1), counting_along(offsets, 0)), 0,
                                           offsets, build::arange(n + one));
    const Value bag = build::slice(build::cumsum(marks, 0, {}), 0, n.number(0), n) - positions.number(1);
    Value rows = EmbeddingTag::emit(context, table, indices);
    ((rows = rows * build::insert_singletons(weights.at(context.source), 2u, 2)), ...);
    const Value shape = build::insert_singletons(counting_along(offsets, 0), 2u, 2) +
                        build::insert_singletons(counting_along(table, 1), 1u, 2);
    const Value zero = build::broadcast(table.number(0), shape);
    if constexpr (Mode == BagMode::sum) return IndexAddTag<2, 0>::emit(context, zero, bag, rows);
    const DType wide = computed_as(table.dtype());
    const Value counts =
        build::scatter_add(build::broadcast(rows.number(1, wide), positions), 0, bag, counting_along(offsets, 0));
    const Value count = build::insert_singletons(counts, 2u, 2);
    if constexpr (Mode == BagMode::mean) {
      const Value sums = IndexAddTag<2, 0>::emit(context, zero, bag, rows);
      const Value mean = build::cast(sums, wide) / build::maximum(count, count.number(1));
      return build::cast(mean, table.dtype());
    } else {
      const Value least = build::broadcast(table.number(-std::numeric_limits<double>::infinity()), shape);
      const Value bags = build::broadcast(build::insert_singletons(bag, 2u, 2), rows);
      const Value most = build::scatter(least, 0, bags, rows, {.reduction = Reduction::max});
      return build::select(build::greater(count, count.number(0)), most, zero);
    }
  }
};

}  // namespace detail

/// The sums, means or maxima of the rows of a table [N, H] in bags of indices (F.embedding_bag): bag b has the indices
/// [K] from offsets[b] up to the next offset; the first offset is 0, and offsets [B] ascend. The result is [B, H], 0
/// for an empty bag: `embedding_bag<ts::BagMode::mean>(table, indices, offsets)`. Weights [K] multiply the rows of a
/// sum. Gradients: as embedding; rows that equal a maximum share its cotangent. Errors: dim_range for an index outside
/// of the table or a first offset above 0. Communication: of split indices the positions are gathered, and sums are
/// all-reduced.
template <BagMode Mode = BagMode::sum, TensorArgument Table, TensorArgument Indices, TensorArgument Offsets>
constexpr auto embedding_bag(const Table& table, const Indices& indices, const Offsets& offsets,
                             Here at = Here::current()) {
  return call<detail::EmbeddingBagTag<Mode>>(Source::from(at), table, indices, offsets);
}
template <BagMode Mode = BagMode::sum, TensorArgument Table, TensorArgument Indices, TensorArgument Offsets,
          TensorArgument Weights>
constexpr auto embedding_bag(const Table& table, const Indices& indices, const Offsets& offsets, const Weights& weights,
                             Here at = Here::current()) {
  return call<detail::EmbeddingBagTag<Mode>>(Source::from(at), table, indices, offsets, weights);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
