#ifndef TESSERA_OPS_INDEXING_INDEXED_ROWS_HPP
#define TESSERA_OPS_INDEXING_INDEXED_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

/// An index that is outside of its dim, in the place of an index of several merged dims: one number, below all indices
/// that programs have, so that the error can name the dim, the index and the extent, the last two in 29 bits: larger
/// ones are given as their bound.
struct OutsideIndex {
  static constexpr std::int64_t first = -(std::int64_t{1} << 62), range = std::int64_t{1} << 29;
  std::int64_t dim, index, extent;

  static constexpr bool is_one(std::int64_t merged) { return merged <= first; }
  static constexpr OutsideIndex of(std::int64_t merged) {
    const std::int64_t packed = first - merged;
    return {packed / range / (2 * range), packed / range % (2 * range) - range, packed % range};
  }
  /// "7 is outside of dim 1, of extent 5".
  TESSERA_PLANNING std::string text() const {
    const bool is_bound = index == range - 1 || index == -range;
    return concat_text(is_bound ? "an index beyond " : "", index, " is outside of dim ", dim, ", of extent ", extent);
  }
};

/// Throws dim_range, for an index of the operation, or of the function that it is part of, that is outside of
/// `where`.
[[noreturn]] inline void fail_index(std::string_view operation, std::int64_t index, std::string_view where,
                                    const Source& source) {
  const std::string_view function = source.function();
  if (OutsideIndex::is_one(index))
    fail(errc::dim_range, "[", function.empty() ? operation : function,
         "] index in range: ", OutsideIndex::of(index).text(), source);
  fail(errc::dim_range, "[", operation, "] index in range: ", index, " is outside ", where,
       function.empty() || function == operation ? "" : " in ", function == operation ? "" : function, source);
}

/// embedding: operands table [N, row...] and indices [i...]; result [i..., row...].
constexpr Shape embedding_shape(const ShapeContext& c) {
  Shape shape = c.operand(1);
  for (std::size_t d = 1; d < c.operand(0).size(); ++d) shape.push_back(c.operand(0)[d]);
  return shape;
}

/// index_add: operands rows [i..., row...], indices [i...] and a table [N, row...], of which only the shape is used.
constexpr Shape index_add_shape(const ShapeContext& c) {
  const Shape &rows = c.operand(0), &indices = c.operand(1), &table = c.operand(2);
  for (std::size_t d = 0; d < rows.size(); ++d)
    if (rows[d] != (d < indices.size() ? indices[d] : table[d - indices.size() + 1]))
      fail_shapes(c, "rows have the dims of the indices, then those of a row of the table");
  return table;
}

/// The dim N is a summed factor: each shard of the table contributes its own rows, and zeros for the others. A table of
/// 8-bit floats, which have no sums, is made whole.
constexpr void indexed_sharding(const GraphView& graph, int id, FactorRule& rule, int table, int indices, int rows) {
  const Node& index = graph.operand_node(id, indices);
  const bool gathers = table == 0;
  const Node& shape = gathers ? graph.operand_node(id, table) : graph[id];
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
  DimFactors table_dims, index_dims, row_dims;
  const FactorKind taken = is_float8(shape.dtype) ? FactorKind::replicate : FactorKind::reduction;
  table_dims.dims[0].push_back(static_cast<std::int8_t>(rule.add(gathers ? taken : FactorKind::pass)));
  for (int d = 0; d < index.rank; ++d)
    if (!index.is_singleton(d)) {
      index_dims.dims[d].push_back(
          static_cast<std::int8_t>(rule.add(gathers ? FactorKind::pass : FactorKind::reduction)));
      row_dims.dims[d] = index_dims.dims[d];
    }
  for (int d = 1; d < shape.rank; ++d)
    if (!shape.is_singleton(d)) {
      table_dims.dims[d].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
      row_dims.dims[d - 1 + index.rank] = table_dims.dims[d];
    }
  rule.operands[static_cast<std::size_t>(indices)] = index_dims;
  if (gathers) {
    rule.operands[0] = table_dims;
    rule.result = row_dims;
  } else {
    rule.operands[static_cast<std::size_t>(rows)] = row_dims;
    rule.operands[2] = table_dims;
    rule.result = table_dims;
  }
}

/// Checks that `rows` has the rows of `table` at the indices of operand 1.
constexpr BrokenRule check_rows(const NodeCheck& c, const Node& table, const Node& rows) {
  const Node& index = c.x(1);
  if (is_floating(index.dtype) || index.dtype == DType::bool_) return "indices are integers";
  if (table.rank < 1 || rows.rank != index.rank + table.rank - 1 || rows.dtype != table.dtype ||
      rows.singletons != (index.singletons | (table.singletons >> 1) << index.rank))
    return "the rows have the dims of the indices, then those of a row of the table";
  return {};
}

/// The indices of operand 1 that differ between examples as those of a gather along dim 1 of [examples, rows, row...]:
/// one dim, after which a row has `row` dims.
constexpr Value indices_along_dim(const Batch& b, int row) {
  Value indices = b.full(1);
  const int rank = indices.rank() - 1;
  if (rank == 0) indices = build::insert_singletons(indices, 2, 2);
  if (rank > 1) indices = build::merge_dims(indices, 1, rank);
  return build::insert_singletons(indices, ((1u << row) - 1) << 2, 2 + row);
}

/// Rows [examples, i..., row...] as [examples, all i, row...], and back.
constexpr Value with_one_index_dim(const Batch& b, Value rows) {
  const int rank = b.one(1).rank;
  if (rank == 0) return build::insert_singletons(rows, 2, rows.rank() + 1);
  return rank == 1 ? rows : build::merge_dims(rows, 1, rank);
}
constexpr Value with_index_dims(const Batch& b, Value rows) {
  const Node& index = b.one(1);
  if (index.rank == 0) return build::drop_singletons(rows, 2);
  return index.rank == 1 ? rows : build::split_dim_as(rows, 1, b.full(1), 1, index.rank);
}

/// With own tables, examples are a dim of the rows if they share the indices; else their indices are along a dim.
constexpr Batched batch_embedding(const Batch& b) {
  if (!b.differs(0)) return b.make(b.batched(), batched_operands(b, 2));
  const int indices = b.one(1).rank, row = b.one(0).rank - 1;
  if (!b.differs(1)) {
    const Value tables = build::move_dim(b.x(0), 0, 1);
    Node made = b.node();
    made.rank = static_cast<std::uint8_t>(indices + 1 + row);
    made.singletons = static_cast<std::uint8_t>(b.one(1).singletons | (tables.node().singletons >> 1) << indices);
    const Batched rows = b.make(made, {tables.id, b.x(1).id});
    return Batch::all(build::move_dim(tables.with(rows.id), indices, 0));
  }
  return Batch::all(with_index_dims(b, build::gather(b.x(0), 1, indices_along_dim(b, row))));
}
constexpr Batched batch_index_add(const Batch& b) {
  const int indices = b.one(1).rank, row = b.one(2).rank - 1;
  if (b.differs(1))
    return Batch::all(build::scatter_add(with_one_index_dim(b, b.full(0)), 1, indices_along_dim(b, row), b.full(2)));
  if (!b.differs(0)) {
    const Batched made = b.make(b.node(), {b.x(0).id, b.x(1).id, b.shape_of_one(2).id});
    return {made.id, -1};
  }
  const Value tables = build::move_dim(b.full(2), 0, 1), rows = build::move_dim(b.x(0), 0, indices);
  Node made = b.node();
  made.rank = tables.node().rank;
  made.singletons = tables.node().singletons;
  return Batch::all(build::move_dim(tables.with(b.make(made, {rows.id, b.x(1).id, tables.id}).id), 1, 0));
}

struct EmbeddingOp {
  static constexpr OpRow row{
      .name = "embedding",
      .unit = UnitKind::indexed,
      .arity = 2,
      .linear = Linearity::first,
      .shape = embedding_shape,
      .sharding = [](const GraphView& g, int id, FactorRule& rule) { indexed_sharding(g, id, rule, 0, 1, -1); },
      .partial = always_partial,
      .flops = 0};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value table = build::stored_parameter(r.x(0)), g = build::cast(r.full_g(), computed_as(table.dtype()));
    const Value sums = g.make(
        {.op = Op::index_add, .dtype = g.dtype(), .rank = table.node().rank, .singletons = table.node().singletons},
        {g.id, r.x(1).id, table.id});
    r.add(0, build::cast(sums, table.dtype()));
  };
  static constexpr BatchRule batch = batch_embedding;
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_rows(c, c.x(0), c.node()); };
};

struct IndexAddOp {
  static constexpr OpRow row{
      .name = "index_add",
      .unit = UnitKind::indexed,
      .arity = 3,
      .linear = Linearity::first,
      .shape = index_add_shape,
      .sharding = [](const GraphView& g, int id, FactorRule& rule) { indexed_sharding(g, id, rule, 2, 1, 0); },
      .partial = always_partial,
      .shape_only = 1u << 2,
      .scatters = true};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value rows = r.x(0), g = r.full_g();
    r.add(0,
          g.make(
              {.op = Op::embedding, .dtype = g.dtype(), .rank = rows.node().rank, .singletons = rows.node().singletons},
              {g.id, r.x(1).id}));
  };
  static constexpr BatchRule batch = batch_index_add;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (!same_static_shape(c.node(), c.x(2))) return BrokenRule("the result has the dims of the table");
    return check_rows(c, c.node(), c.x(0));
  };
};

using IndexedOperations = OperationList<EmbeddingOp, IndexAddOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
