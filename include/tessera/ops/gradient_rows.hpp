#ifndef TESSERA_OPS_GRADIENT_ROWS_HPP
#define TESSERA_OPS_GRADIENT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/graph/transform/simplify.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Operands of a custom gradient: the first result, the cotangents of the `results` results on which the gradients were
/// traced, `count` values, and their gradients. Each other result is a custom_result.
struct CustomGradient {
  std::int32_t count = 0, results = 1;

  static constexpr CustomGradient of(const Node& node) {
    const auto packed = std::bit_cast<Packed>(node.labels);
    return {packed.count, packed.results};
  }
  constexpr Labels pack() const { return std::bit_cast<Labels>(Packed{count, results, {}}); }

 private:
  struct Packed {
    std::int32_t count, results;
    std::uint64_t rest[2];
  };
};

namespace ops {

// Operations that return their first operand. All but `barrier` only tell a gradient something, and are removed when a
// program is simplified.

constexpr OpRow unchanged_row(std::string_view name, std::int8_t arity) {
  return {.name = name,
          .unit = UnitKind::constraint,
          .arity = arity,
          .linear = Linearity::first,
          .shape = like_shape,
          .sharding = like_sharding,
          .flops = 0,
          .recomputed = true};
}
constexpr Batched batch_first_operand(const Batch& b) { return b.make(b.batched(), batched_operands(b, 1)); }
constexpr int first_operand(Graph&, const Node&, const std::int32_t* operands) { return operands[0]; }

/// A value with respect to which a gradient is computed. It is not shared with equal values.
struct VariableOp {
  static constexpr OpRow row = unchanged_row("variable", 1);
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, r.g()); };
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr BatchRule batch = batch_first_operand;
  static constexpr CheckRule check = check_like_operand;
};

/// A value that a gradient treats as a constant.
struct StopGradientOp {
  static constexpr OpRow row = unchanged_row("stop_gradient", 1);
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr BatchRule batch = batch_first_operand;
  static constexpr CheckRule check = check_like_operand;
};

struct NameOp {
  static constexpr OpRow row = unchanged_row("name", 1);
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, r.g()); };
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr BatchRule batch = batch_first_operand;
  static constexpr CheckRule check = check_like_operand;
};

struct CustomGradientOp {
  static constexpr OpRow row = [] {
    OpRow made = unchanged_row("custom_gradient", any_arity);
    made.shape_only = 3;  // the gradient of operand 0 is the given one
    made.recomputed = false;
    return made;
  }();
  static constexpr GradientRule gradient = [](Gradient& r) {
    const auto [count, results] = CustomGradient::of(r.node());
    const int behind = 1 + results;
    Growable<std::int32_t> gradients, traced_on, cotangents;
    for (int i = 0; i < count; ++i) gradients.push_back(r.operand(behind + count + i).id);
    for (int k = 0; k < results; ++k) {
      const Value on = r.operand(1 + k), own = k == 0 ? r.full_g() : r.cotangent_of_reader(Op::custom_result, k);
      traced_on.push_back(on.id);
      cotangents.push_back(own.module != nullptr ? own.id : build::broadcast(on.number(0), on).id);
    }
    const Growable<std::int32_t> made = tessera::detail::substitute(r.module(), r.y().graph, traced_on, cotangents,
                                                                    gradients, [&](int id) { return r.again(id).id; });
    for (int i = 0; i < count; ++i) r.add(behind + i, r.y().with(made[static_cast<std::size_t>(i)]));
  };
  /// The cotangents are those of the results, so they differ between examples if the results do. A gradient is summed
  /// over dims that it has in front of those of its operand, since a dim of examples comes before these.
  static constexpr BatchRule batch = [](const Batch& b) {
    const auto [count, results] = CustomGradient::of(b.node());
    Growable<std::int32_t> operands = batched_operands(b, (2u << results) - 1);
    for (int own = 1 + results; own <= results + count; ++own) {
      const int gradient = own + count, more = b.one(gradient).rank - b.one(own).rank;
      if (more <= 0 || !b.differs(own)) continue;
      const Value full = b.full(gradient);
      operands[static_cast<std::size_t>(gradient)] =
          build::cast(build::sum_of(full, ((1u << more) - 1) << 1), full.dtype()).id;
    }
    return b.make(b.batched(), operands);
  };
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr CheckRule check = check_like_operand;
};

/// A further result of a function with a custom gradient: operand 0, which gets no cotangent. Operand 1 is the
/// custom_gradient; its rule looks for the cotangent of this node, and runs even if only this node has one.
struct CustomResultOp {
  static constexpr OpRow row = [] {
    OpRow made = unchanged_row("custom_result", 2);
    made.shape_only = 1;
    made.recomputed = false;
    return made;
  }();
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(1, r.operand(1).number(0)); };
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr BatchRule batch = batch_first_operand;
  static constexpr CheckRule check = check_like_operand;
};

/// What a gradient recomputes reads its operands through barriers: equal expressions stay different from the originals,
/// and wait for operand 1, a cotangent.
struct BarrierOp {
  static constexpr OpRow row = [] {
    OpRow made = unchanged_row("barrier", 2);
    made.shape_only = 2;
    made.after = 2;
    return made;
  }();
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, r.g()); };
  static constexpr BatchRule batch = batch_first_operand;
  static constexpr CheckRule check = check_like_operand;
};

using GradientOperations =
    OperationList<VariableOp, StopGradientOp, NameOp, CustomGradientOp, CustomResultOp, BarrierOp>;

}  // namespace ops
}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
