#ifndef TESSERA_OPS_CONTRACTION_CONTRACTION_ROWS_HPP
#define TESSERA_OPS_CONTRACTION_CONTRACTION_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/ir/precision.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/graph/transform/simplify.hpp>
#include <tessera/ops/contraction/split_product.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// The result dims of static extent 1: those with extent 1 in every operand that has their label.
constexpr std::uint8_t einsum_singletons(const EinsumLabels& labels, const Node& a, const Node& b, int rank) {
  unsigned singletons = (1u << rank) - 1;
  for (int d = 0; d < rank; ++d) {
    for (int i = 0; i < a.rank; ++i)
      if (labels.a[i] == labels.out[d] && !a.is_singleton(i)) singletons &= ~(1u << d);
    for (int i = 0; i < b.rank; ++i)
      if (labels.b[i] == labels.out[d] && !b.is_singleton(i)) singletons &= ~(1u << d);
  }
  return static_cast<std::uint8_t>(singletons);
}
/// Operands of bf16 and f16 give an f32 result.
constexpr Value einsum(Value a, Value b, const EinsumLabels& labels, Precision precision = Precision::full) {
  require_arithmetic(a);
  Node made{.op = Op::einsum,
            .dtype = computed_as(a.dtype()),
            .labels = labels.pack(),
            .value = static_cast<double>(static_cast<int>(precision))};
  while (made.rank < max_rank && labels.out[made.rank] >= 0) ++made.rank;
  made.singletons = einsum_singletons(labels, a.node(), b.node(), made.rank);
  return a.make(made, {a.id, b.id});
}

}  // namespace tessera::build

namespace tessera::ops {

/// Throws shape_mismatch. An einsum that is a matmul is reported as "matmul".
[[noreturn]] inline void fail_einsum(const ShapeContext& c, const EinsumLabels& labels, std::int8_t label) {
  int windows = c.graph.operand(c.id, 0);
  while (c.graph[windows].op == Op::rearrange) windows = c.graph.operand(windows, 0);
  if (row_of(c.graph[windows]).windows != nullptr) {
    int image = c.graph.operand(windows, 0);  // the operand here has the windows of the image
    while (c.graph[image].op == Op::rearrange) image = c.graph.operand(image, 0);
    const std::string_view function = c.node().source.function();
    fail(errc::shape_mismatch, "[", function.empty() ? "conv" : function,
         "] in-features differ: ", shape_text(c.graph[image].dtype, c.shapes[image]), " x ",
         shape_text(shown_dtype(c, 1), c.operand(1)), ", of [batch, spatial..., in] and [taps..., in, out]",
         c.node().source);
  }
  const int rank_a = c.graph.operand_node(c.id, 0).rank, rank_b = c.graph.operand_node(c.id, 1).rank;
  bool matrices =
      rank_a > 0 && rank_b > 0 && labels.a[rank_a - 1] == label && labels.b[rank_b > 1 ? rank_b - 2 : 0] == label;
  for (int d = 0; d < rank_b - 2; ++d) matrices = matrices && labels.b[d] == labels.a[d];
  if (matrices) fail_shapes(c, "inner dims differ", "matmul");
  std::string equation;
  const auto add = [&](const std::int8_t* own, int rank) {
    for (int d = 0; d < rank; ++d) equation += static_cast<char>('a' + own[d]);
  };
  add(labels.a, rank_a);
  equation += ',';
  add(labels.b, rank_b);
  equation += "->";
  add(labels.out, c.node().rank);
  fail_shapes(c, concat_text("dims that share a label differ in ", equation));
}

/// The extent of each label; checks that dims with the same label have the same extent.
constexpr Shape einsum_shape(const ShapeContext& c) {
  const EinsumLabels labels = EinsumLabels::of(c.node());
  std::int64_t extent[EinsumLabels::count];
  for (auto& n : extent) n = 1;
  bool known[EinsumLabels::count]{};
  for (int i = 0; i < 2; ++i) {
    const Node& x = c.graph.operand_node(c.id, i);
    const std::int8_t* own = i == 0 ? labels.a : labels.b;
    for (int d = 0; d < x.rank; ++d) {
      if (x.is_singleton(d)) continue;
      const std::int64_t n = c.operand(i)[static_cast<std::size_t>(d)];
      if (known[own[d]] && extent[own[d]] != n) fail_einsum(c, labels, own[d]);
      extent[own[d]] = n;
      known[own[d]] = true;
    }
  }
  Shape shape;
  for (int d = 0; d < c.node().rank; ++d) shape.push_back(extent[labels.out[d]]);
  return shape;
}

constexpr void einsum_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const EinsumLabels labels = EinsumLabels::of(graph[id]);
  std::int8_t factor[EinsumLabels::count];
  for (auto& f : factor) f = -1;
  for (int i = 0; i < 2; ++i) {
    const Node& x = graph.operand_node(id, i);
    const std::int8_t* own = i == 0 ? labels.a : labels.b;
    DimFactors& dims = rule.operands.emplace_back();
    for (int d = 0; d < x.rank; ++d) {
      if (x.is_singleton(d)) continue;
      if (factor[own[d]] < 0) factor[own[d]] = static_cast<std::int8_t>(rule.add(FactorKind::reduction));
      dims.dims[d].push_back(factor[own[d]]);
    }
  }
  for (int d = 0; d < graph[id].rank; ++d) {
    const std::int8_t f = factor[labels.out[d]];
    if (f < 0) continue;
    rule.kinds[static_cast<std::size_t>(f)] = FactorKind::pass;
    rule.result.dims[d].push_back(f);
  }
}

/// The cotangent of one operand is the contraction of the result's cotangent with the other operand. Labels that only
/// this operand has were summed, so they are broadcast. A singleton dim was broadcast against the other operand's dim,
/// so that dim is summed.
constexpr void einsum_operand_gradient(Gradient& r, int operand) {
  if (!r.needs(operand)) return;
  const EinsumLabels labels = EinsumLabels::of(r.node());
  const std::int8_t* own = operand == 0 ? labels.a : labels.b;
  const std::int8_t* other = operand == 0 ? labels.b : labels.a;
  const Value x = r.x(operand), partner = r.x(1 - operand), g = build::cast(r.full_g(), x.dtype());
  EinsumLabels made;
  for (int d = 0; d < max_rank; ++d) made.a[d] = made.b[d] = made.out[d] = -1;
  for (int d = 0; d < g.rank(); ++d) made.a[d] = labels.out[d];
  for (int d = 0; d < partner.rank(); ++d) made.b[d] = other[d];
  int out = 0;
  unsigned alone = 0;
  for (int d = 0; d < x.rank(); ++d) {
    bool found = false;
    for (int i = 0; i < g.rank(); ++i) found = found || made.a[i] == own[d];
    for (int i = 0; i < partner.rank(); ++i) found = found || made.b[i] == own[d];
    if (found && !x.is_singleton(d))
      made.out[out++] = own[d];
    else
      alone |= 1u << d;
  }
  const Value product =
      build::cast(build::einsum(g, partner, made, static_cast<Precision>(r.node().index())), x.dtype());
  r.add(operand, build::broadcast(build::insert_singletons(product, alone, x.rank()), x));
}

constexpr BrokenRule check_einsum(const NodeCheck& c) {
  const Node &node = c.node(), &a = c.x(0), &b = c.x(1);
  const EinsumLabels labels = EinsumLabels::of(node);
  const std::int8_t* lists[] = {labels.a, labels.b, labels.out};
  const int ranks[] = {a.rank, b.rank, node.rank};
  for (int list = 0; list < 3; ++list)
    for (int d = 0; d < max_rank; ++d) {
      const int label = lists[list][d];
      if ((d < ranks[list]) != (label >= 0) || label >= EinsumLabels::count)
        return "each dim has a label, and there are no other labels";
      for (int e = 0; e < d; ++e)
        if (label >= 0 && lists[list][e] == label) return "a label occurs once in an operand";
    }
  for (int d = 0; d < node.rank; ++d) {
    bool found = false;
    for (int list = 0; list < 2; ++list)
      for (int e = 0; e < ranks[list]; ++e) found = found || lists[list][e] == labels.out[d];
    if (!found) return "a label of the result is a label of an operand";
  }
  if (node.singletons != build::einsum_singletons(labels, a, b, node.rank))
    return "a dim of the result has static extent 1 if it has that in all operands";
  return node.dtype == computed_as(a.dtype) && a.dtype == b.dtype
             ? BrokenRule{}
             : "operands have equal element types, and the result has that of the products";
}

/// The dim of examples is a label: of both operands, or of the operand that differs between examples.
constexpr Batched batch_einsum(const Batch& b) {
  EinsumLabels labels = EinsumLabels::of(b.node());
  std::int8_t* const lists[] = {labels.a, labels.b, labels.out};
  bool used[EinsumLabels::count]{};
  for (const std::int8_t* list : lists)
    for (int d = 0; d < max_rank; ++d)
      if (list[d] >= 0) used[list[d]] = true;
  std::int8_t free = 0;
  while (used[free]) ++free;
  for (int i = 0; i < 3; ++i) {
    if (i < 2 && !b.differs(i)) continue;
    for (int d = max_rank - 1; d > 0; --d) lists[i][d] = lists[i][d - 1];
    lists[i][0] = free;
  }
  Node made = b.batched();
  made.labels = labels.pack();
  return b.make(made, batched_operands(b, 0));
}

inline std::string einsum_text(const ProgramView&, const GraphView& graph, int id) {
  const EinsumLabels labels = EinsumLabels::of(graph[id]);
  std::string text;
  auto list = [&](const std::int8_t* own, int rank) {
    for (int d = 0; d < rank; ++d) text += tessera::detail::label_name(own[d]);
  };
  list(labels.a, graph.operand_node(id, 0).rank);
  text += ',';
  list(labels.b, graph.operand_node(id, 1).rank);
  text += "->";
  list(labels.out, graph[id].rank);
  return text;
}

struct EinsumOp {
  static constexpr OpRow row{.name = "einsum",
                             .unit = UnitKind::contraction,
                             .arity = 2,
                             .linear = Linearity::each,
                             .shape = einsum_shape,
                             .sharding = einsum_sharding,
                             .partial = always_partial};
  static constexpr GradientRule gradient = [](Gradient& r) {
    einsum_operand_gradient(r, 0);
    einsum_operand_gradient(r, 1);
  };
  static constexpr SimplifyRule simplify = [](Graph& made, const Node& node, const std::int32_t* operands) {
    const bool splits = node.value != 0 && made[operands[0]].dtype == DType::f32;
    return splits ? split_product(made, node, operands) : -1;
  };
  static constexpr BatchRule batch = batch_einsum;
  static constexpr CheckRule check = check_einsum;
  static constexpr AttributeText attributes = einsum_text;
};

using ContractionOperations = OperationList<EinsumOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
