#ifndef TESSERA_OPS_ATTENTION_ATTENTION_ROWS_HPP
#define TESSERA_OPS_ATTENTION_ATTENTION_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/attention/attention_form.hpp>
#include <tessera/ops/contraction/contraction_rows.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

/// The factors of all three attention nodes, in this order.
namespace attention_factor {
inline constexpr std::int8_t batch = 0, heads = 1, queries = 2, keys = 3, width = 4, value_width = 5;
}

/// Checks the shapes q [b, t, h, d], k [b, s, h, d], v [b, s, h, e], bias [b, h, t, s].
constexpr void check_attention_shapes(const ShapeContext& c, bool has_values) {
  const Shape &q = c.operand(0), &k = c.operand(1);
  const int given = has_values ? 3 : 2;  // the others are made by ts::attention
  if (q[0] != k[0]) fail_shapes(c, "queries and keys differ in batch", "attention", given);
  if (q[2] != k[2])
    fail_shapes(c, "queries and keys differ in heads; ts::repeat_heads(k, q) repeats those of keys", "attention",
                given);
  if (q[3] != k[3]) fail_shapes(c, "queries and keys differ in width", "attention", given);
  if (const AttentionForm form = AttentionForm::of_node(c.node()); form.biased && !has_values) {
    const Node& bias = c.graph.operand_node(c.id, form.bias());
    const std::int64_t wanted[] = {q[0], q[2], q[1], k[1]};
    for (int d = 0; d < 4; ++d)
      if (!bias.is_singleton(d) && c.operand(form.bias())[d] != wanted[d])
        fail_shapes(c, "a bias or mask is not of [batch, heads, time, keys] of queries and keys", "attention", 3);
  }
  if (!has_values) return;
  const Shape& v = c.operand(2);
  if (v[0] != k[0] || v[1] != k[1] || v[2] != k[2])
    fail_shapes(c, "keys and values differ in batch, time or heads", "attention", given);
}

/// Whether a node sums over queries: the gradients of keys and values.
constexpr bool sums_over_queries(const GraphView& graph, int id) {
  const AttentionForm form = AttentionForm::of_node(graph[id]);
  return form.is_gradient() && form.of() != 0;
}
/// Batch, heads and queries may be split; keys and widths may not. Sums over split queries are partial.
constexpr void attention_sharding(const GraphView& graph, int id, FactorRule& rule) {
  using namespace attention_factor;
  const Node& node = graph[id];
  const bool over_queries = sums_over_queries(graph, id);
  for (int f = 0; f < 6; ++f)
    rule.add(f > queries                    ? FactorKind::replicate
             : f == queries && over_queries ? FactorKind::reduction
                                            : FactorKind::pass);
  const auto dims_of = [](const Node& x, std::initializer_list<std::int8_t> factors) {
    DimFactors dims;
    int d = 0;
    for (std::int8_t factor : factors) {
      if (!x.is_singleton(d)) dims.dims[d].push_back(factor);
      ++d;
    }
    return dims;
  };
  const auto like_q = [&](const Node& x) { return dims_of(x, {batch, queries, heads, width}); };
  const auto like_k = [&](const Node& x) { return dims_of(x, {batch, keys, heads, width}); };
  const auto like_v = [&](const Node& x) { return dims_of(x, {batch, keys, heads, value_width}); };
  const auto like_out = [&](const Node& x) { return dims_of(x, {batch, queries, heads, value_width}); };
  const auto like_lse = [&](const Node& x) { return dims_of(x, {batch, heads, queries}); };
  const auto operand = [&](int i) -> const Node& { return graph.operand_node(id, i); };
  const AttentionForm form = AttentionForm::of_node(node);
  rule.operands = {like_q(operand(0)), like_k(operand(1))};
  if (node.op == Op::attention_lse) {
    rule.result = like_lse(node);
  } else {
    rule.operands.push_back(like_v(operand(2)));
    if (node.op == Op::attention) {
      rule.operands.push_back(like_lse(operand(3)));
      rule.result = like_out(node);
    } else {
      rule.operands.push_back(like_out(operand(3)));
      rule.operands.push_back(like_lse(operand(4)));
      rule.operands.push_back(like_out(operand(5)));
      rule.result = form.of() == 0 ? like_q(node) : form.of() == 1 ? like_k(node) : like_v(node);
    }
  }
  if (form.biased) rule.operands.push_back(dims_of(operand(form.bias()), {batch, heads, queries, keys}));
  for (int i = form.host_scalars(); i > 0; --i) rule.operands.emplace_back();
}

/// Attention with its scores in memory, for the derivatives that no kernel computes: those of lse, of gradients, and by
/// a bias.
struct DenseAttention {
  Value q, k, scale;
  AttentionForm form;
  Value lower{}, upper{};  ///< of a band
  Value bias{};            ///< if biased

  /// Of the operands of a node of attention.
  constexpr DenseAttention(const Gradient& r)
      : q(build::cast(r.x(0), computed_as(r.x(0).dtype()))), k(build::cast(r.x(1), computed_as(r.x(1).dtype()))),
        scale(r.x(r.arity() - 1)), form(AttentionForm::of_node(r.node())) {
    if (form.banded) lower = r.x(form.lower()), upper = r.x(form.lower() + 1);
    if (form.biased) bias = r.x(form.bias());
  }
  constexpr bool is_masked() const { return form.biased && bias.dtype() == DType::bool_; }
  /// Whether the bias is a number, which may have a gradient.
  constexpr bool adds() const { return form.biased && bias.dtype() != DType::bool_; }

  static constexpr EinsumLabels labels(const char (&a)[5], const char (&b)[5], const char (&out)[5]) {
    EinsumLabels made;
    for (int d = 0; d < max_rank; ++d) {
      made.a[d] = d < 4 ? static_cast<std::int8_t>(a[d] - 'a') : std::int8_t{-1};
      made.b[d] = d < 4 ? static_cast<std::int8_t>(b[d] - 'a') : std::int8_t{-1};
      made.out[d] = d < 4 ? static_cast<std::int8_t>(out[d] - 'a') : std::int8_t{-1};
    }
    return made;
  }
  /// exp(scores - lse), 0 where a key is excluded: [b, h, t, s].
  constexpr Value weights(Value lse) const {
    // A query without keys has logarithm -inf. See kernels::least_score.
    lse = build::maximum(lse, lse.number(-1e29));
    Value shifted = build::einsum(q, k, labels("bthd", "bshd", "bhts")) * scale;
    if (adds()) shifted = shifted + bias;
    shifted = shifted - build::insert_singletons(lse, 1u << 3, 4);
    if (is_masked()) shifted = build::select(bias, shifted, shifted.number(-1e30));
    if (form.causal) {
      const Value seen = build::less_equal(build::iota(shifted, 3, DType::i32), build::iota(shifted, 2, DType::i32));
      shifted = build::select(seen, shifted, shifted.number(-1e30));
    } else if (form.banded) {
      const Value key = build::iota(shifted, 3, DType::i64), query = build::iota(shifted, 2, DType::i64);
      const Value seen =
          build::logical_and(build::greater_equal(key, query + lower), build::less_equal(key, query + upper));
      shifted = build::select(seen, shifted, shifted.number(-1e30));
    }
    return build::exp(shifted);
  }
  /// The cotangent of the scores, [b, h, t, s], for weights, values, output and its cotangent.
  constexpr Value slopes(Value own, Value v, Value out, Value g) const {
    const Value each = build::einsum(g, v, labels("bthe", "bshe", "bhts"));
    EinsumLabels rows = labels("bthe", "bthe", "bhte");
    rows.out[3] = -1;
    return own * (each - build::insert_singletons(build::einsum(g, out, rows), 1u << 3, 4));
  }
  constexpr Value of_scores(Value slopes, int operand) const {
    slopes = slopes * scale;
    return operand == 0 ? build::einsum(slopes, k, labels("bhts", "bshd", "bthd"))
                        : build::einsum(slopes, q, labels("bhts", "bthd", "bshd"));
  }
};

constexpr Value wide(Value x) { return build::cast(x, computed_as(x.dtype())); }

/// The cotangent of operand `of`, whose value is `operand`.
constexpr Value attention_cotangent(AttentionForm form, int of, const Value& operand, const std::int32_t* operands,
                                    int arity) {
  Node made = operand.node();
  made.op = Op::attention_grad;
  made.dtype = computed_as(made.dtype);
  made.value = 0;
  form.result = static_cast<AttentionResult>(of);
  made.labels = form.pack();
  return operand.make(made, operands, arity);
}

/// The gradients of attention whose bias has one: its cotangent is that of the scores, so all scores are stored anyway,
/// and products of these are faster than to compute them again.
constexpr void learned_bias_gradient(Gradient& r, const DenseAttention& dense, Value g) {
  const Value weights = dense.weights(r.x(3)), slopes = dense.slopes(weights, wide(r.x(2)), wide(r.y()), wide(g));
  r.add(dense.form.bias(), slopes);
  const Value scaled = build::cast(slopes * dense.scale, r.x(0).dtype());
  const auto add = [&](int operand, const Value& product) {  // of bf16 and f16 a product is f32
    r.add(operand, build::cast(product, r.x(operand).dtype()));
  };
  if (r.needs(0)) add(0, build::einsum(scaled, r.x(1), DenseAttention::labels("bhts", "bshd", "bthd")));
  if (r.needs(1)) add(1, build::einsum(scaled, r.x(0), DenseAttention::labels("bhts", "bthd", "bshd")));
  if (!r.needs(2)) return;
  const Value rounded = build::cast(weights, g.dtype());
  add(2, build::einsum(rounded, g, DenseAttention::labels("bhts", "bthe", "bshe")));
}

constexpr void attention_gradient(Gradient& r) {
  const Value g = build::cast(r.full_g(), r.node().dtype);
  const AttentionForm form = AttentionForm::of_node(r.node());
  if (form.biased && r.needs(form.bias()))
    if (const DenseAttention dense(r); dense.adds()) return learned_bias_gradient(r, dense, g);
  std::int32_t operands[10] = {r.x(0).id, r.x(1).id, r.x(2).id, r.y().id, r.x(3).id, g.id};
  int arity = 6;
  for (int i = form.bias(); i < r.arity(); ++i) operands[arity++] = r.x(i).id;
  for (int i = 0; i < 3; ++i)
    if (r.needs(i))
      r.add(i, build::cast(attention_cotangent(form, i, g.with(r.x(i).id), operands, arity), r.x(i).dtype()));
}

constexpr void attention_lse_gradient(Gradient& r) {
  const DenseAttention dense(r);
  const Value slopes = dense.weights(r.y()) * build::insert_singletons(r.full_g(), 1u << 3, 4);
  for (int i = 0; i < 2; ++i)
    if (r.needs(i)) r.add(i, build::cast(dense.of_scores(slopes, i), r.x(i).dtype()));
  if (dense.adds() && r.needs(2)) r.add(2, slopes);
}

/// The gradient of a gradient: writes the first gradient as operations on stored scores, and differentiates these.
constexpr void attention_second_gradient(Gradient& r) {
  const Value v = wide(r.x(2)), out = wide(r.x(3)), lse = r.x(4), g = wide(r.x(5)), cotangent = r.full_g();
  const DenseAttention dense(r);
  const AttentionForm& form = dense.form;
  const Value weights = dense.weights(lse);
  Value written = weights;
  if (form.of() == 2) {
    written = build::einsum(weights, g, DenseAttention::labels("bhts", "bthe", "bshe"));
  } else {
    written = dense.of_scores(dense.slopes(weights, v, out, g), form.of());
  }
  Growable<std::int32_t> operands;
  const int tensors = dense.adds() ? 7 : 6;
  for (int i = 0; i < tensors; ++i) operands.push_back(r.x(i).id);
  Gradient::Sweep sweep = make_sweep(r.module(), cotangent.graph, operands);
  sweep.cotangents[static_cast<std::size_t>(written.id)] = cotangent.id;
  for (int id = written.id; id >= 0; --id) {
    const auto at = static_cast<std::size_t>(id);
    if (!sweep.wanted[at] || sweep.cotangents[at] < 0) continue;
    bool is_operand = false;
    for (int i = 0; i < tensors; ++i)
      if (operands[static_cast<std::size_t>(i)] == id) {
        is_operand = true;
        r.add(i, cotangent.with(sweep.cotangents[at]));
        break;
      }
    if (is_operand) continue;
    Gradient inner(sweep, id);
    gradient_of(r.module().graph(cotangent.graph)[id].op)(inner);
  }
}

constexpr BrokenRule check_attention(const NodeCheck& c) {
  const Node &node = c.node(), &q = c.x(0), &k = c.x(1);
  const bool plain = node.op == Op::attention_lse;
  const bool is_gradient = node.op == Op::attention_grad;
  const AttentionForm form = AttentionForm::of_node(node);
  if (is_gradient && (form.of() < 0 || form.of() > 2))
    return "an attention_grad is the gradient of queries, keys or values";
  if (!is_gradient && form.result != (plain ? AttentionResult::logarithms : AttentionResult::output))
    return "the kind of result is an attribute of the node";
  const DType type = q.dtype, wide = computed_as(type);
  if (node.arity != form.tensors() + form.host_scalars()) return "a band has a lower and an upper bound";
  if (form.banded && form.causal) return "a band is not causal too: its upper bound is";
  if (form.biased)
    if (const Node& bias = c.x(form.bias()); bias.rank != 4 || (bias.dtype != DType::bool_ && bias.dtype != wide))
      return "a bias or mask has rank 4 and the type of scores, or bool";
  for (int i = form.lower(); i < node.arity - 1; ++i)
    if (c.x(i).dtype != DType::i64 || c.x(i).rank != 0) return "the bounds of a band are numbers of i64";
  for (int i = 0; i < form.bias(); ++i)
    if (const bool sum = !plain && i == (is_gradient ? 4 : 3); c.x(i).dtype != (sum ? wide : type))
      return "operands have equal element types";
  if (c.x(node.arity - 1).dtype != wide) return "operands have equal element types";
  if (node.dtype != (plain || is_gradient ? wide : type))
    return "the element type of the result follows from that of the operands";
  if (!is_floating(type)) return "operands have a floating element type";
  if (c.x(node.arity - 1).rank != 0) return "the scale has rank 0";
  if (q.rank != 4 || k.rank != 4 || (!plain && c.x(2).rank != 4)) return "queries, keys and values have rank 4";
  const auto singleton = [](const Node& a, int d) { return static_cast<unsigned>(a.is_singleton(d)); };
  const unsigned lse = singleton(q, 0) | singleton(q, 2) << 1 | singleton(q, 1) << 2;
  if (plain)
    return node.rank == 3 && node.singletons == lse ? BrokenRule{} : "the result has a logsumexp for each query";
  const unsigned out = (q.singletons & 7u) | singleton(c.x(2), 3) << 3;
  if (const Node& rows = c.x(is_gradient ? 4 : 3); rows.rank != 3 || rows.singletons != lse)
    return "the logsumexp operand has an element for each query";
  if (!is_gradient)
    return node.rank == 4 && node.singletons == out
               ? BrokenRule{}
               : "the result has the dims of the queries and the width of the values";
  for (int i : {3, 5})
    if (c.x(i).rank != 4 || c.x(i).singletons != out)
      return "the cotangent has the dims of the queries and the width of the values";
  const Node& of = c.x(form.of());
  return node.rank == of.rank && node.singletons == of.singletons ? BrokenRule{}
                                                                  : "a gradient has the shape of its operand";
}

/// A bias or mask, operand i, for the examples and batches of attention.
constexpr Value batched_bias(const Batch& b, int i) {
  const bool shared = b.one(i).is_singleton(0);
  if (shared && !b.differs(i)) return b.x(i);
  Value x = b.full(i);
  if (shared && b.one(0).is_singleton(0)) return build::drop_singletons(x, 2);
  if (shared) {  // only the shape of the sum is used, so it is never computed
    const Value batches = build::arange(build::extent(b.full(0), 1));
    x = build::broadcast(x, build::insert_singletons(batches, 0b11101u, 5) + build::cast(x, DType::i32));
  }
  return build::merge_dims(x, 0, 1);
}

/// Examples are part of the batch dim. The parts of one attention run in one unit if they read each other's results
/// directly, so a merge undoes the split of such a result.
constexpr Batched batch_attention(const Batch& b) {
  const Value count = b.count();
  const AttentionForm form = AttentionForm::of_node(b.node());
  Growable<std::int32_t> operands;
  for (int i = 0; i < b.arity(); ++i) {
    if (form.biased && i == form.bias()) {
      operands.push_back(batched_bias(b, i).id);
      continue;
    }
    if (b.one(i).rank == 0) {
      operands.push_back(b.x(i).id);
      continue;
    }
    const Value x = b.full(i);
    const Node& from = x.node();
    const Graph& graph = x.module->graph(x.graph);
    const bool is_split = from.op == Op::rearrange && from.arity > 2 && graph.operand(x.id, 1) == count.id &&
                          graph.operand_node(x.id, 0).op == b.one(i).op;
    operands.push_back(is_split                   ? graph.operand(x.id, 0)
                       : b.one(i).is_singleton(0) ? build::drop_singletons(x, 2).id
                                                  : build::merge_dims(x, 0, 1).id);
  }
  Node made = b.node();
  const bool was_singleton = made.is_singleton(0);
  made.singletons = static_cast<std::uint8_t>(made.singletons & ~1u);
  const Value result = count.with(b.make(made, operands).id);
  if (was_singleton) return Batch::all(build::insert_singletons(result, 2, result.rank() + 1));
  return Batch::all(build::split_dim(result, 0, count));
}

struct AttentionLseOp {
  static constexpr OpRow row{.name = "attention_lse",
                             .unit = UnitKind::attention,
                             .arity = any_arity,
                             .shape =
                                 [](const ShapeContext& c) {
                                   check_attention_shapes(c, false);
                                   return Shape{c.operand(0)[0], c.operand(0)[2], c.operand(0)[1]};
                                 },
                             .sharding = attention_sharding};
  static constexpr GradientRule gradient = attention_lse_gradient;
  static constexpr BatchRule batch = batch_attention;
  static constexpr CheckRule check = check_attention;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const AttentionForm form = AttentionForm::of_node(graph[id]);
    return std::string(form.causal ? "causal" : form.banded ? "band" : "");
  };
};

struct AttentionOp {
  static constexpr OpRow row{.name = "attention",
                             .unit = UnitKind::attention,
                             .arity = any_arity,
                             .shape =
                                 [](const ShapeContext& c) {
                                   check_attention_shapes(c, true);
                                   Shape shape = c.operand(0);
                                   shape[3] = c.operand(2)[3];
                                   return shape;
                                 },
                             .sharding = attention_sharding,
                             .joins_operand = 3};
  static constexpr GradientRule gradient = attention_gradient;
  static constexpr BatchRule batch = batch_attention;
  static constexpr CheckRule check = check_attention;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const AttentionForm form = AttentionForm::of_node(graph[id]);
    return std::string(form.causal ? "causal" : form.banded ? "band" : "");
  };
};

struct AttentionGradOp {
  static constexpr OpRow row{.name = "attention_grad",
                             .unit = UnitKind::attention,
                             .arity = any_arity,
                             .shape =
                                 [](const ShapeContext& c) {
                                   check_attention_shapes(c, true);
                                   return c.operand(AttentionForm::of_node(c.node()).of());
                                 },
                             .sharding = attention_sharding,
                             .partial = sums_over_queries,
                             .joins =
                                 [](const Node& x, const Node& y) {
                                   const AttentionForm a = AttentionForm::of_node(x), b = AttentionForm::of_node(y);
                                   return a.causal == b.causal && a.banded == b.banded && a.biased == b.biased;
                                 }};
  static constexpr GradientRule gradient = attention_second_gradient;
  static constexpr BatchRule batch = batch_attention;
  static constexpr CheckRule check = check_attention;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const AttentionForm form = AttentionForm::of_node(graph[id]);
    return concat_text(form.of() == 0   ? "q"
                       : form.of() == 1 ? "k"
                                        : "v",
                       form.causal   ? ", causal"
                       : form.banded ? ", band"
                                     : "");
  };
};

using AttentionOperations = OperationList<AttentionLseOp, AttentionOp, AttentionGradOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
