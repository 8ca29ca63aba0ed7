#ifndef TESSERA_GRAPH_IR_ROW_HPP
#define TESSERA_GRAPH_IR_ROW_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/defined_in_ops.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/node.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera {

class Gradient;
struct CustomFunction;

/// How the fusion pass treats an operation.
enum class OpKind : std::uint8_t {
  alone,        ///< in a unit of its own, of the row's `unit` kind
  source,       ///< an argument or constant: nothing to compute
  index,        ///< a function only of the element's position: fused into any reader
  elementwise,  ///< each result element from one element of each operand
  reduction,    ///< of the elements along some dims: see OpRow::reduction
};

/// Kinds of units. A unit is what runs as one step: a fused group of nodes, or a single node.
enum class UnitKind : std::uint8_t {
  fused,
  contraction,    ///< an einsum, and an addition to its result
  data_movement,  ///< moves elements: reshape, slice, pad, concat, ...
  indexed,        ///< reads or adds rows at integer indices: embedding, index_add
  random,
  constraint,
  repeat,
  attention,   ///< softmax(q k) v computed by tiles, and its gradients: up to three results, see attention_form.hpp
  cumulative,  ///< cumulative sum and others along one dim
  sort,        ///< the indices that sort one dim
  fold,        ///< adds windows into dims
  along,       ///< reads, replaces or combines elements along one dim at integer indices: gather, scatter
  custom,      ///< calls a function of dense arrays, once for each batch entry: up to eight results
  ragged,      ///< a product in which each group of rows has its own matrix, or its gradient
};
inline constexpr int unit_kinds = 14;

/// In which operands an operation is linear, so that it can be applied to partial values before they are reduced.
enum class Linearity : std::uint8_t {
  no,
  jointly,  ///< in all operands together: add
  first,    ///< in the first operand: neg, div
  each,     ///< in each operand while the others are fixed: mul, einsum
  choice,   ///< in all but the first operand together: select
};

/// What splitting a factor of an operation among devices means (after Shardy).
enum class FactorKind : std::uint8_t {
  pass,         ///< shards of the operands give shards of the result
  reduction,    ///< shards of the operands give partial values of the result
  permutation,  ///< shards of the operands give shards of the result after an exchange of rows near the borders (halo)
  replicate,    ///< the factor can't be split
};

/// The factors of which each dim consists, the most significant first. A dim of static extent 1 has none.
struct DimFactors {
  InlineVector<std::int8_t, 4> dims[max_rank]{};
};

/// The sharding rule of one operation: its factors, and which dims consist of them.
struct FactorRule {
  InlineVector<FactorKind, 32> kinds;
  Growable<DimFactors> operands;
  DimFactors result;

  constexpr int add(FactorKind kind) {
    kinds.push_back(kind);
    return static_cast<int>(kinds.size()) - 1;
  }
};

/// The input of a shape rule: the shapes of the operands, and the values of operands that are sizes.
struct ShapeContext {
  GraphView graph;
  int id = 0;
  const Shape* shapes = nullptr;        ///< by node
  const HostNumber* numbers = nullptr;  ///< by node; values of host scalars
  const Shape* arguments = nullptr;     ///< by argument index
  const std::uint8_t* host = nullptr;   ///< by node, as host_scalars; null: all sizes are known

  constexpr const Node& node() const { return graph[id]; }
  constexpr const Shape& operand(int i) const { return shapes[graph.operand(id, i)]; }
  constexpr std::int64_t number(int i) const {
    if (host != nullptr && host[graph.operand(id, i)] == 2) fail_unknown_size();
    return numbers[graph.operand(id, i)].integer();
  }
  constexpr bool has(int i) const { return graph.operand(id, i) >= 0; }
  /// Reports that a size depends on a number that is known only when the program runs.
  [[noreturn]] void fail_unknown_size() const;
};

/// A dim of which an operation takes windows, or into which it adds them. Element k of window r is row
/// r * stride + k * dilation - before of the dim; rows outside of [0, extent) are padding.
struct WindowedDim {
  std::int32_t line = 0, runs = 0;  ///< the dim itself; the dim of windows, which the dim of their elements follows
  std::int64_t extent = 0, count = 0, size = 1;  ///< of the dim; how many windows of how many elements
  std::int64_t stride = 1, dilation = 1, before = 0;

  /// Rows from the first element of a window to its last.
  constexpr std::int64_t span() const { return (size - 1) * dilation + 1; }
};
using WindowedDims = InlineVector<WindowedDim, 3>;

/// The input of a HostRule, which computes a host scalar: values of earlier nodes, and what is known of the call.
struct HostContext {
  GraphView graph;
  int id = 0;
  const Shape* shapes = nullptr;          ///< by node
  const HostNumber* numbers = nullptr;    ///< by node
  const HostNumber* arguments = nullptr;  ///< by argument index; null: not known
  const Mesh* mesh = nullptr;             ///< null: axis_size nodes keep the sizes that `numbers` has

  constexpr const Node& node() const { return graph[id]; }
  constexpr HostNumber operand(int i) const { return numbers[graph.operand(id, i)]; }
};

/// When the value of a source that is a host scalar is known: when planning, or only when running. Devices don't store
/// host scalars; kernels get them as arguments.
enum class HostSource : std::uint8_t { no, planned, run };

using HostRule = HostNumber (*)(const HostContext&);
using ShapeRule = Shape (*)(const ShapeContext&);
using ShardingRule = void (*)(const GraphView&, int id, FactorRule&);
/// Whether shards of a node's operands can give partial values of its result.
using PartialRule = bool (*)(const GraphView&, int id);
/// For an operation that moves rows of one dim: the row of the result to which row 0 of operand i moves.
using OffsetRule = std::int64_t (*)(const ShapeContext&, int i);
/// For an operation that takes windows, or adds them: its windowed dims.
using WindowsRule = WindowedDims (*)(const ShapeContext&);
/// For an operation whose dims consist of factors: the extent of each factor.
using FactorExtentsRule = Shape (*)(const ShapeContext&);
/// For an operation whose result can be a view: the strides of the result over the operand's memory, from the operand's
/// strides. The view begins at the operand's first element, or where `offset` puts row 0 of the result.
using ViewRule = Shape (*)(const ShapeContext&, const Shape& strides);
/// For a permutation of slices of one dim: the index of the slice that becomes slice `position` of the result; -1:
/// zeros.
using PermutationRule = std::int64_t (*)(const ShapeContext&, std::int64_t position, std::int64_t extent);
/// Whether two nodes of one operation with equal operands are computed in one unit.
using JoinRule = bool (*)(const Node&, const Node&);
/// How the partial results of a node combine.
using ReductionRule = Reduction (*)(const Node&);
using GradientRule = void (*)(Gradient&);
/// An elementwise operation on doubles; an operation of arity 1 or 2 ignores the other arguments.
using NumberFunction = double (*)(double, double, double);
/// An elementwise operation on integers, computed exactly.
using IntegerFunction = IntegerResult (*)(std::int64_t, std::int64_t, std::int64_t& result);

inline constexpr std::int8_t any_arity = -1;

/// Whether bit `operand` is set in a set of the first eight operands.
constexpr bool has_operand(std::uint8_t set, int operand) { return operand < 8 && (set >> operand & 1) != 0; }

/// Everything that passes need to know about one operation: they read its row, and never switch over operations.
struct OpRow {
  std::string_view name;
  OpKind kind = OpKind::alone;
  UnitKind unit = UnitKind::fused;
  std::int8_t arity = 0;  ///< number of operands; any_arity: it varies
  Linearity linear = Linearity::no;
  ShapeRule shape = nullptr;
  ShardingRule sharding = nullptr;
  PartialRule partial = nullptr;               ///< null: shards never give partial values of the result
  OffsetRule offset = nullptr;                 ///< null: moves no rows
  FactorExtentsRule factor_extents = nullptr;  ///< null: each dim is one factor
  ViewRule view = nullptr;  ///< null: the result is no view, or a view that `factor_extents` describes
  PermutationRule permutation = nullptr;
  WindowsRule windows = nullptr;  ///< null: has no windowed dims
  /// of reductions and cumulative operations: what they compute; of others: how partial results combine
  Reduction reduction = Reduction::sum;
  ReductionRule combine = nullptr;     ///< of others where an attribute says how partial results combine
  NumberFunction number = nullptr;     ///< of elementwise operations
  IntegerFunction integers = nullptr;  ///< null: integers are computed with `number`
  HostRule host = nullptr;             ///< null: host scalars are computed with `number` and `integers`
  HostSource host_source = HostSource::no;
  bool folds_constants = false;  ///< with constant operands, the compiler computes the result
  bool simplifies = false;       ///< has a SimplifyRule: set where rows are collected
  bool predicate = false;        ///< results are bools
  bool fractional = false;       ///< integer and bool operands give f32
  bool of_bools = true;          ///< operands may be bools
  bool divides = false;          ///< by the second operand, which may not be a host scalar of value 0
  bool adds = false;             ///< computes the sum of its operands
  bool converts = false;         ///< changes the element type of its operand
  std::uint8_t flops = 1;        ///< per element of the result
  std::uint8_t lane_cost = 1;    ///< per element of the result, in units of a vector addition
  std::uint8_t shape_only = 0;   ///< bit i: only the shape of operand i is used, not its elements
  /// bit i: operand i is computed before the node; it is not read
  std::uint8_t after = 0;
  bool optional_operands = false;  ///< operands after the first may be absent
  std::int8_t sharded_as = -1;     ///< the index of an operand whose sharding the result has; -1: none
  bool reverses = false;           ///< puts the elements along its dim in reverse order
  bool repeats = false;            ///< a broadcast: repeats the elements of its first operand
  bool constrains = false;         ///< a constraint on the sharding of a value, see Constraint
  /// combines its first operand, at the indices of its second operand, with its third operand; with zeros if of that
  /// only the shape is used
  bool scatters = false;
  bool recomputed = false;  ///< cheap: a backward pass recomputes it instead of storing it for each layer
  /// the index of an operand that is computed in the same unit as the first node that reads it; -1: none
  std::int8_t joins_operand = -1;
  JoinRule joins = nullptr;  ///< for nodes with equal operands; null: each has a unit of its own
  /// of custom calls: the function; each has a row of its own, which `custom_call` nodes are made with
  const CustomFunction* custom = nullptr;

  /// The element type of an elementwise result, for operands that are promoted to this type.
  constexpr DType result_type(DType operands) const { return predicate ? DType::bool_ : operands; }
};

TESSERA_DEFINED_IN_OPS_BEGIN
/// The row of an operation; defined in ops/rows.hpp. The gradient is not in the row, so that a program that has been
/// traced does not compile the code of gradients.
constexpr const OpRow& row_of(Op op);
constexpr const OpRow& row_of(const Node& node) { return *node.row; }
inline void ShapeContext::fail_unknown_size() const {
  fail(errc::unsupported, "[", node().row->name,
       "] size: it depends on a ts::Scalar or on a number of an expression, which is "
       "known only when the program runs; give a ts::Dim",
       node().source);
}
/// Null: the result has no gradient with respect to any operand.
constexpr GradientRule gradient_of(Op op);
TESSERA_DEFINED_IN_OPS_END

/// Whether a node can run in one unit with another node.
constexpr bool joins_others(const OpRow& row) { return row.joins != nullptr || row.joins_operand >= 0; }

constexpr bool always_partial(const GraphView&, int) { return true; }
constexpr bool can_be_partial(const GraphView& graph, int id) {
  const PartialRule partial = row_of(graph[id]).partial;
  return partial != nullptr && partial(graph, id);
}
/// How the partial results of a node combine. Bools have no sum: for a lookup in a split bool table, one device holds
/// the value and the others hold false, so they combine by max.
constexpr Reduction combined_by(const Node& node) {
  const OpRow& row = row_of(node);
  const Reduction own = row.combine != nullptr ? row.combine(node) : row.reduction;
  return combines(own, node.dtype) || node.dtype != DType::bool_ ? own : Reduction::max;
}

/// Whether all elements of a value are 0 in every call: the value is the constant 0, or a broadcast of it.
constexpr bool is_known_zero(const auto& graph, int id) {
  if (row_of(graph[id]).repeats) id = graph.operand(id, 0);
  return graph[id].is_constant() && graph[id].value == 0;
}

/// Marks the host scalars of a graph: rank-0 values computed only from constants, extents, Dims and Scalars. 1: known
/// when the program is planned; 2: depends on a Scalar, so it is known only in a call; 0: no host scalar.
constexpr Growable<std::uint8_t> host_scalars(const GraphView& graph) {
  Growable<std::uint8_t> host(static_cast<std::size_t>(graph.size));
  for (int id = 0; id < graph.size; ++id) {
    const Node& node = graph[id];
    const OpRow& row = row_of(node);
    const bool is_source = row.host_source != HostSource::no;
    bool is = node.rank == 0 && (is_source || row.kind == OpKind::elementwise);
    std::uint8_t mark = row.host_source == HostSource::run ? 2 : 1;
    if (is && !is_source)
      for (int i = 0; i < node.arity; ++i) {
        const std::uint8_t own = host[static_cast<std::size_t>(graph.operand(id, i))];
        is = is && own != 0;
        if (own > mark) mark = own;
      }
    host[static_cast<std::size_t>(id)] = is ? mark : 0;
  }
  return host;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
