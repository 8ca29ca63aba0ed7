#ifndef TESSERA_OPS_CONSTRAINT_ROWS_HPP
#define TESSERA_OPS_CONSTRAINT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/attributes/alike.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

constexpr Shape alike_shape(const ShapeContext& c) {
  if (!(c.operand(0) == c.operand(1))) fail_shapes(c, "shapes differ", "shard_as");
  return c.operand(0);
}
constexpr BrokenRule check_constraint(const NodeCheck& c) {
  return c.node().index() >= 0 ? check_like_operand(c) : "a constraint has a spec";
}
constexpr BrokenRule check_alike(const NodeCheck& c) {
  return same_static_shape(c.node(), c.x(1)) ? check_like_operand(c) : "operands have equal static shapes";
}

struct ConstraintOp {
  static constexpr OpRow row{.name = "constraint",
                             .unit = UnitKind::constraint,
                             .arity = 1,
                             .linear = Linearity::first,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 0,
                             .constrains = true,
                             .recomputed = true};
  /// A number is on the host, and has no sharding.
  static constexpr int simplify(Graph& made, const Node&, const std::int32_t* operands) {
    return is_host_number(made, operands[0]) ? operands[0] : -1;
  }
  static constexpr GradientRule gradient = [](Gradient& r) {
    Node made = r.node();
    const Constraint own = Constraint::of(made);
    if (own.cotangent == CotangentSharding::free || is_host_number(r.g())) return r.add(0, r.g());
    if (own.cotangent == CotangentSharding::stored) {
      if (!r.g().node().is_projection()) return r.add(0, r.g());
      Constraint{own.spec, CotangentSharding::free, 0, own.about, true, own.of_parameter}.write(made);
      const Value sum = r.y().make(made, {r.full_g().id});
      Node alike{.op = Op::alike, .dtype = made.dtype, .rank = made.rank, .singletons = made.singletons};
      Alike{.exactly = true}.write(alike);
      return r.add(0, sum.make(alike, {sum.id, r.operand(0).id}));
    }
    if (own.cotangent == CotangentSharding::own_spec)  // the cotangent's own cotangent has the spec of the value
      Constraint{own.cotangent_spec, own.cotangent, static_cast<std::int8_t>(own.spec), own.about}.write(made);
    r.add(0, r.y().make(made, {r.full_g().id}));
  };
  /// The spec is for one example: the dim of examples may be split over the axes that it does not name.
  static constexpr BatchRule batch = [](const Batch& b) -> Batched {
    Constraint own = Constraint::of(b.node());
    Module& module = b.module();
    const auto behind_examples = [&](int spec) {
      PartitionSpec whole = module.specs[static_cast<std::size_t>(spec)];
      whole.entries.insert(0, SpecEntry(none));
      return module.add_spec(whole);
    };
    if (own.about < 0) {
      bool names_axes = false;
      for (const SpecEntry& entry : module.specs[static_cast<std::size_t>(own.spec)].entries)
        names_axes = names_axes || !entry.axes.empty();
      if (!names_axes) return Batch::all(b.full(0));
      if (own.spec > 126) return {};
      own.about = static_cast<std::int8_t>(own.spec);
    }
    own.spec = behind_examples(own.spec);
    if (own.cotangent == CotangentSharding::own_spec)
      own.cotangent_spec = static_cast<std::int8_t>(behind_examples(own.cotangent_spec));
    Node made = b.batched();
    own.write(made);
    return b.make(made, batched_operands(b, 1));
  };
  static constexpr CheckRule check = check_constraint;
  static constexpr AttributeText attributes = [](const ProgramView& program, const GraphView& graph, int id) {
    return program.specs[graph[id].index()].text();
  };
};

// The first operand with the sharding of the second, whose elements are not read.
struct AlikeOp {
  static constexpr OpRow row{.name = "alike",
                             .unit = UnitKind::constraint,
                             .arity = 2,
                             .linear = Linearity::first,
                             .shape = alike_shape,
                             .sharding =
                                 [](const GraphView& graph, int id, FactorRule& rule) {
                                   like_sharding(graph, id, rule);
                                   rule.operands[1] = rule.operands[0];
                                   rule.operands[0] = {};  // operand 0 is resharded to the sharding of the result
                                 },
                             .flops = 0,
                             .shape_only = 2,
                             .sharded_as = 1,
                             .recomputed = true};
  /// Numbers are on the host, and have no sharding.
  static constexpr int simplify(Graph& made, const Node&, const std::int32_t* operands) {
    return is_host_number(made, operands[0]) || is_host_number(made, operands[1]) ? operands[0] : -1;
  }
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Alike own = Alike::of(r.node());
    if (!own.of_experts || is_host_number(r.g())) return r.add(0, r.g());
    Node made = r.node();
    Alike{.of_experts = true}.write(made);
    const Value g = r.full_g();
    r.add(0, r.y().make(made, {g.id, g.id}));
  };
  static constexpr BatchRule batch = [](const Batch& b) { return b.make(b.batched(), batched_operands(b, 3)); };
  static constexpr CheckRule check = check_alike;
};

using ConstraintOperations = OperationList<ConstraintOp, AlikeOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
