#ifndef TESSERA_OPS_INDEXING_EMBEDDING_HPP
#define TESSERA_OPS_INDEXING_EMBEDDING_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera {

namespace detail {

struct EmbeddingTag {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class Table, class Indices> struct result {
    using type = typename Table::type;
    static constexpr int rank = Table::rank - 1 + Indices::rank;
    using Checks = decltype([] {
      static_assert(
          std::is_same_v<typename Indices::type, std::int32_t> || std::is_same_v<typename Indices::type, std::int64_t>,
          "tessera: the indices of embedding and index_select must be std::int32_t or std::int64_t; use "
          "ts::cast<std::int32_t>(indices)");
      static_assert(Table::rank >= 1,
                    "tessera: the table of embedding must have at least one dim, the dim of its rows");
      static_assert(rank <= max_rank, "tessera: a tensor has at most 8 dims");
    });
  };
  static constexpr Value emit(Value context, Value table, Value indices) {
    const int lead = indices.rank();
    Node made{.op = Op::embedding, .dtype = table.dtype(), .rank = static_cast<std::uint8_t>(lead + table.rank() - 1)};
    made.singletons = static_cast<std::uint8_t>(indices.node().singletons | (table.node().singletons >> 1) << lead);
    return table.at(context.source).make(made, {table.id, indices.id});
  }
};

}  // namespace detail

/// Rows of a table at integer indices: table [N, row...] and indices [i...] give [i..., row...]. The gradient adds the
/// rows of the cotangent into a table of zeros. Errors: dim_range for an index outside of [0, N). Communication: over a
/// split N the result is a partial value, to which each shard of the table contributes its rows.
template <TensorArgument Table, TensorArgument Indices>
constexpr auto embedding(const Table& table, const Indices& indices, Here at = Here::current()) {
  return call<detail::EmbeddingTag>(Source::from(at), table, indices);
}
/// The same, with a row whose gradient is zero, that of `Padding`: padding_idx of F.embedding. -1 is the last row.
///
///     ts::embedding<0>(table, tokens)     // row 0, of tokens that fill up short texts, is not trained
template <std::int64_t Padding, TensorArgument Table, TensorArgument Indices>
constexpr auto embedding(const Table& table, const Indices& indices, Here at = Here::current()) {
  const detail::FunctionCall named("embedding", table);
  static_assert(Table::rank == 2, "tessera: the table of embedding with a padding row is a matrix [classes, features]");
  const auto rows = embedding(table, indices, at);
  const auto is_padding = [&] {
    if constexpr (Padding >= 0)
      return equal(indices, Padding, at);
    else
      return equal(indices, extent<0>(table, at) + Padding, at);
  }();
  return select(unsqueeze<Indices::rank>(is_padding, at), stop_gradient(rows, at), rows, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
