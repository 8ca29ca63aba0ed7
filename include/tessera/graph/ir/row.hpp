#ifndef TESSERA_GRAPH_IR_ROW_HPP
#define TESSERA_GRAPH_IR_ROW_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/node.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera {

class Gradient;

/// How a pass that fuses operations takes one.
enum class OpKind : std::uint8_t {
  alone,        ///< in a unit of its own, of the kind that its row says
  source,       ///< arguments and numbers: nothing to compute
  index,        ///< a value that follows from its position alone
  elementwise,  ///< one result element from one element of each operand
  reduction,    ///< of the elements along some dims: see OpRow::reduction
};

/// What runs as one step: a fused group of nodes, or a node of its own.
enum class UnitKind : std::uint8_t {
  fused,
  contraction,  ///< einsum, and an addition to it
  layout,       ///< moves elements
  indexed,      ///< moves rows chosen by integers
  random,
  constraint,
  repeat,
  attention,  ///< softmax(q k) v by tiles, and its gradients: up to three results, see attention_form.hpp
  scan,       ///< cumsum
  sort,       ///< finds the order along one dim
  fold,       ///< adds runs of elements along one dim
  along,      ///< takes elements along one dim at integer indices, or adds them there
};
inline constexpr int unit_kinds = 12;

/// In which operands an operation is linear: where partial values may pass through.
enum class Linearity : std::uint8_t {
  no,
  jointly,  ///< in all operands together: add
  first,    ///< in the first alone
  each,     ///< in each alone: mul, einsum
  choice,   ///< in all but the first together: select
};

/// What a plan may do with a factor of an operation (after Shardy).
enum class FactorKind : std::uint8_t {
  pass,         ///< shards of the operands give shards of the result
  reduction,    ///< shards give partial values of the result
  permutation,  ///< shards give shards of the result once rows have crossed their borders
  replicate,    ///< must not be sharded
};

/// Which factors a dim consists of, major first. A dim of static extent 1 has none.
struct DimFactors {
  InlineVector<std::int8_t, 4> dims[max_rank]{};
};

/// Sharding rule of one operation: its factors, and the dims they stand behind.
struct FactorRule {
  InlineVector<FactorKind, 32> kinds;
  Growable<DimFactors> operands;
  DimFactors result;

  constexpr int add(FactorKind kind) {
    kinds.push_back(kind);
    return static_cast<int>(kinds.size()) - 1;
  }
};

/// What a shape rule sees: shapes of the operands, and numbers behind the operands that are sizes.
struct ShapeContext {
  GraphView graph;
  int id = 0;
  const Shape* shapes = nullptr;        ///< by node
  const HostNumber* numbers = nullptr;  ///< by node, for host scalars
  const Shape* arguments = nullptr;     ///< by argument index

  constexpr const Node& node() const { return graph[id]; }
  constexpr const Shape& operand(int i) const { return shapes[graph.operand(id, i)]; }
  constexpr std::int64_t number(int i) const { return numbers[graph.operand(id, i)].integer(); }
  constexpr bool has(int i) const { return graph.operand(id, i) >= 0; }
};

/// What the rule of a number on the host sees: the numbers before it, and what the program is planned or run for.
struct HostContext {
  GraphView graph;
  int id = 0;
  const Shape* shapes = nullptr;          ///< by node
  const HostNumber* numbers = nullptr;    ///< by node
  const HostNumber* arguments = nullptr;  ///< by argument index; null: not known
  const Mesh* mesh = nullptr;             ///< null: sizes of its axes are what `numbers` has

  constexpr const Node& node() const { return graph[id]; }
  constexpr HostNumber operand(int i) const { return numbers[graph.operand(id, i)]; }
};

/// When a source that is a number on the host is known. No device holds it, and it reaches kernels as a uniform.
enum class HostSource : std::uint8_t { no, planned, run };

using HostRule = HostNumber (*)(const HostContext&);
using ShapeRule = Shape (*)(const ShapeContext&);
using ShardingRule = void (*)(const GraphView&, int id, FactorRule&);
/// Whether the sharding rule of a node has a reduction, so that its result can be partial.
using PartialRule = bool (*)(const GraphView&, int id);
/// Of an operation that moves rows of one dim: the row of the result that row 0 of operand i becomes.
using OffsetRule = std::int64_t (*)(const ShapeContext&, int i);
/// Of an operation whose dims are made of factors: the extent of each.
using FactorExtentsRule = Shape (*)(const ShapeContext&);
/// Of an operation whose result can be a view: its strides over the memory of the operand, given the operand's. It
/// begins at the operand's first element, or where `offset` puts row 0 of the result.
using ViewRule = Shape (*)(const ShapeContext&, const Shape& strides);
/// How the operand of a view is sharded under a result that is sharded so; false where it can't be.
using UnderViewRule = bool (*)(const Node&, const Sharding& result, Sharding& operand);
/// Of a permutation of one dim: the place that the slice at `place` of the result comes from, -1 for zeros.
using PermutationRule = std::int64_t (*)(const ShapeContext&, std::int64_t place, std::int64_t extent);
/// Whether two nodes of one operation that have equal operands are made in one unit.
using JoinRule = bool (*)(const Node&, const Node&);
using GradientRule = void (*)(Gradient&);
/// What an elementwise operation makes of one number of each operand.
using NumberFunction = double (*)(double, double, double);
/// The same of integers, exactly.
using IntegerFunction = IntegerResult (*)(std::int64_t, std::int64_t, std::int64_t& result);

inline constexpr std::int8_t any_arity = -1;

/// Whether an operand is in a set of the first eight of them, bit i for operand i.
constexpr bool has_operand(std::uint8_t set, int operand) { return operand < 8 && (set >> operand & 1) != 0; }

/// All that is known of one operation. Passes ask the row and never switch over operations.
struct OpRow {
  std::string_view name;
  OpKind kind = OpKind::alone;
  UnitKind unit = UnitKind::fused;
  std::int8_t arity = 0;  ///< number of operands; any_arity: as many as there are
  Linearity linear = Linearity::no;
  ShapeRule shape = nullptr;
  ShardingRule sharding = nullptr;
  PartialRule partial = nullptr;               ///< null: shards never give partial values of the result
  OffsetRule offset = nullptr;                 ///< null: moves no rows
  FactorExtentsRule factor_extents = nullptr;  ///< null: each dim is a factor
  ViewRule view = nullptr;                     ///< null: no view, or one by factors
  UnderViewRule under_view = nullptr;          ///< null: a result is resharded on its own
  PermutationRule permutation = nullptr;
  Reduction reduction = Reduction::sum;  ///< of reductions and scans; of others, how partial values of results combine
  NumberFunction number = nullptr;       ///< of elementwise operations
  IntegerFunction integers = nullptr;    ///< null: integers are computed with as other numbers are
  HostRule host = nullptr;               ///< null: a number on the host is what `number` and `integers` make of it
  HostSource host_source = HostSource::no;
  bool folds = false;              ///< constants are computed when the program is compiled
  bool simplifies = false;         ///< has a SimplifyRule: set where rows are collected
  bool predicate = false;          ///< results are bools
  bool fractional = false;         ///< of integers and bools, results are f32
  bool of_bools = true;            ///< operands may be bools
  bool divides = false;            ///< by the second operand: numbers can't be where that is 0
  bool adds = false;               ///< the sum of its operands
  bool converts = false;           ///< the operand, in another element type
  std::uint8_t flops = 1;          ///< an element of the result
  std::uint8_t lane_cost = 1;      ///< an element of the result, in additions of vectors
  std::uint8_t shape_only = 0;     ///< bit i: operand i gives its shape, and its elements are never read
  bool optional_operands = false;  ///< operands after the first may be absent
  std::int8_t sharded_as = -1;     ///< an operand that the result is sharded as
  bool constrains = false;         ///< says how a value is sharded, see Constraint
  bool scatters = false;           ///< adds its first operand into zeros, at the indices that its second holds
  bool recomputed = false;         ///< cheap: a backward pass computes it again rather than keep it for each layer
  std::int8_t joins_operand = -1;  ///< an operand that is made in the same unit, for the first that reads it
  JoinRule joins = nullptr;        ///< of nodes with equal operands; null: each is in a unit of its own

  /// Of an elementwise operation: the element type of its result, given that in which its operands meet.
  constexpr DType result_type(DType operands) const { return predicate ? DType::bool_ : operands; }
};

/// The row of an operation. Rows stand in ops/, where both functions are defined. The gradient is no part of the row: a
/// program that has been traced needs no gradients any more, and must not pay for their code.
constexpr const OpRow& row_of(Op op);
constexpr const OpRow& row_of(const Node& node) { return *node.row; }
/// Null: the result does not depend smoothly on any operand.
constexpr GradientRule gradient_of(Op op);

constexpr bool always_partial(const GraphView&, int) { return true; }
constexpr bool can_be_partial(const GraphView& graph, int id) {
  const PartialRule partial = row_of(graph[id]).partial;
  return partial != nullptr && partial(graph, id);
}
/// How partial values that a node makes combine. There is no sum of bools: one of them holds what was looked up, the
/// others false.
constexpr Reduction combined_by(const Node& node) {
  const Reduction own = row_of(node).reduction;
  return combines(own, node.dtype) || node.dtype != DType::bool_ ? own : Reduction::max;
}

/// Marks the host scalars of a graph, rank-0 values made of numbers alone: 1, and 2 for one that depends on a Scalar,
/// which no plan knows.
constexpr Growable<std::uint8_t> host_scalars(const GraphView& graph) {
  Growable<std::uint8_t> host(static_cast<std::size_t>(graph.size), 0);
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
