#ifndef TESSERA_OPS_CUSTOM_CUSTOM_CALL_ROWS_HPP
#define TESSERA_OPS_CUSTOM_CUSTOM_CALL_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/custom_function.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/data_movement/rearrange_rows.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/reduction/reduce.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// Broadcasts the batch dims of the operands of a custom call against each other, trailing batch dims aligned.
constexpr void align_batches(const CallSignature& signature, Value* x) {
  const int count = signature.operand_count;
  int batch = 0;
  for (int i = 0; i < count; ++i) {
    const int own = x[i].rank() - signature.operands[i].rank;
    batch = own > batch ? own : batch;
  }
  const unsigned dims = (1u << batch) - 1;
  unsigned extends = 0;
  for (int i = 0; i < count; ++i) {
    const int core = signature.operands[i].rank, missing = batch + core - x[i].rank();
    x[i] = insert_singletons(x[i], (1u << missing) - 1, batch + core);
    extends |= ~unsigned{x[i].node().singletons} & dims;
  }
  Value given[CallSignature::max_values];
  for (int i = 0; i < count; ++i) given[i] = x[i];
  for (int i = 0; i < count; ++i) {
    if ((x[i].node().singletons & extends) == 0) continue;
    // The sum has the batch dims of all operands. Only its shape is used, so it is never computed.
    const int core = signature.operands[i].rank;
    Value like = x[i];
    for (int k = 0; k < count; ++k) {
      if (k == i) continue;
      const int other = signature.operands[k].rank;
      Value batches = sum_of(given[k], ((1u << other) - 1) << batch, false);
      like = like + cast(insert_singletons(batches, ((1u << core) - 1) << batch, batch + core), like.dtype());
    }
    x[i] = broadcast(x[i], like);
  }
}

/// Result k of a custom call. `row` has the function; the operands have equal batch dims.
constexpr Value custom_call(const OpRow& row, const Value* x, int k) {
  const CustomFunction& function = *row.custom;
  const CallSignature& signature = function.signature;
  const CallSignature::Core& core = signature.results[k];
  const int batch = x[0].rank() - signature.operands[0].rank;
  unsigned singletons = x[0].node().singletons & ((1u << batch) - 1);
  std::int32_t ids[CallSignature::max_values]{};
  for (int i = 0; i < signature.operand_count; ++i) ids[i] = x[i].id;
  for (int d = 0; d < core.rank; ++d) {
    bool single = core.labels[d] == '1';
    for (int i = 0; i < signature.operand_count; ++i)
      for (int e = 0; e < signature.operands[i].rank; ++e)
        single = single || (signature.operands[i].labels[e] == core.labels[d] && x[i].is_singleton(batch + e));
    if (single) singletons |= 1u << (batch + d);
  }
  Node made{.op = Op::custom_call,
            .dtype = function.results[k],
            .rank = static_cast<std::uint8_t>(batch + core.rank),
            .singletons = static_cast<std::uint8_t>(singletons),
            .labels = CustomCall{function.id, k}.pack()};
  made.row = &row;
  return x[0].make(made, ids, signature.operand_count);
}
/// Result k of the call whose gradient a rule computes.
constexpr Value result_of_call(const Gradient& r, int k) {
  Value x[CallSignature::max_values];
  for (int i = 0; i < r.arity(); ++i) x[i] = r.x(i);
  return custom_call(row_of(r.node()), x, k);
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr Shape custom_shape(const ShapeContext& c) {
  const CustomFunction& function = *row_of(c.node()).custom;
  const CallSignature& signature = function.signature;
  const CallSignature::Core& core = signature.results[CustomCall::of(c.node()).result];
  const auto batch = static_cast<std::size_t>(c.node().rank - core.rank);
  CallExtents extents;
  Shape shape;
  for (int i = 0; i < signature.operand_count; ++i) {
    const Shape& x = c.operand(i);
    for (std::size_t d = 0; d < batch; ++d) {
      if (i == 0) shape.push_back(x[d]);
      if (x[d] != shape[d]) fail_shapes(c, "batch dims of the operands differ");
    }
    const CallSignature::Core& own = signature.operands[i];
    const bool square = own.rank == 2 && own.labels[0] == own.labels[1] && CallExtents::is_letter(own.labels[0]);
    if (square && x[batch] != x[batch + 1]) fail_shapes(c, "the matrix must be square");
    for (int d = 0; d < own.rank; ++d) {
      const char label = own.labels[d];
      if (!extents.bind(label, x[batch + static_cast<std::size_t>(d)]))
        fail_shapes(c, concat_text("extents of ", label, " differ"));
    }
  }
  for (int d = 0; d < core.rank; ++d) {
    const char label = core.labels[d];
    if (extents[label] < 0 && function.extent != nullptr) extents.bind(label, function.extent(label, extents));
    if (extents[label] < 0) fail_shapes(c, concat_text("the extent of ", label, " is not known or negative"));
    shape.push_back(extents[label]);
  }
  if (elements_of(shape) < 0) fail_large(c);
  return shape;
}

/// Batch dims may be split, core dims may not. The factors of all results of a call are the same, in the same order.
constexpr void custom_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const Node& node = graph[id];
  const CallSignature& signature = row_of(node).custom->signature;
  const CallSignature::Core& core = signature.results[CustomCall::of(node).result];
  const int batch = node.rank - core.rank;
  std::int8_t of_batch[max_rank]{}, of_letter[26]{};
  for (int d = 0; d < batch; ++d)
    of_batch[d] = static_cast<std::int8_t>(node.is_singleton(d) ? -1 : rule.add(FactorKind::pass));
  for (std::int8_t& factor : of_letter) factor = -1;
  const std::int8_t fixed = static_cast<std::int8_t>(rule.add(FactorKind::replicate));
  const auto number = [&](const CallSignature::Core& own) {
    for (int d = 0; d < own.rank; ++d)
      if (CallExtents::is_letter(own.labels[d]) && of_letter[own.labels[d] - 'a'] < 0)
        of_letter[own.labels[d] - 'a'] = static_cast<std::int8_t>(rule.add(FactorKind::replicate));
  };
  for (int i = 0; i < signature.operand_count; ++i) number(signature.operands[i]);
  for (int k = 0; k < signature.result_count; ++k) number(signature.results[k]);
  const auto dims_of = [&](const Node& x, const CallSignature::Core& own) {
    DimFactors dims;
    for (int d = 0; d < batch; ++d)
      if (of_batch[d] >= 0 && !x.is_singleton(d)) dims.dims[d].push_back(of_batch[d]);
    for (int d = 0; d < own.rank; ++d)
      if (!x.is_singleton(batch + d))
        dims.dims[batch + d].push_back(CallExtents::is_letter(own.labels[d]) ? of_letter[own.labels[d] - 'a'] : fixed);
    return dims;
  };
  for (int i = 0; i < signature.operand_count; ++i)
    rule.operands.push_back(dims_of(graph.operand_node(id, i), signature.operands[i]));
  rule.result = dims_of(node, core);
}

constexpr BrokenRule check_custom(const NodeCheck& c) {
  const CustomFunction* const function = row_of(c.node()).custom;
  if (function == nullptr || function->id != CustomCall::of(c.node()).function)
    return "the row of a custom call has its function";
  const CallSignature& signature = function->signature;
  const int k = CustomCall::of(c.node()).result;
  if (c.node().arity != signature.operand_count) return "a custom call has the operands of its signature";
  if (k < 0 || k >= signature.result_count || function->results[k] != c.node().dtype)
    return "a custom call has the type of a result of its function";
  for (int i = 0; i < c.node().arity; ++i)
    if (c.x(i).rank - signature.operands[i].rank != c.node().rank - signature.results[k].rank)
      return "operands and results of a custom call have equal batch dims";
  return {};
}

struct CustomCallOp {
  /// The row of each function differs from it in its name and in `custom`.
  static constexpr OpRow row{
      .name = "custom_call",
      .unit = UnitKind::custom,
      .arity = any_arity,
      .shape = custom_shape,
      .sharding = custom_sharding,
      .joins = [](const Node& x, const Node& y) { return CustomCall::of(x).function == CustomCall::of(y).function; }};
  static constexpr GradientRule gradient = [](Gradient& r) {
    if (const GradientRule own = row_of(r.node()).custom->gradient; own != nullptr) return own(r);
    r.y().refuse(errc::unsupported,
                 "[custom_call] gradient: the function of a ts::custom_call has no gradient; call it in the function "
                 "of a ts::custom_vjp");
  };
  static constexpr BatchRule batch = batch_leading;  // a batch dim
  static constexpr CheckRule check = check_custom;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const bool several = row_of(graph[id]).custom->signature.result_count > 1;
    return several ? std::to_string(CustomCall::of(graph[id]).result) : std::string();
  };
};

using CustomCallOperations = OperationList<CustomCallOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
