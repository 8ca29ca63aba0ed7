#ifndef TESSERA_OPS_GRADIENT_ROWS_HPP
#define TESSERA_OPS_GRADIENT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/source_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Operands of a custom gradient: the value, the cotangent on which the gradients were traced, `count` values, and
/// their gradients.
struct CustomGradient {
  std::int32_t count = 0;

  static constexpr CustomGradient of(const Node& node) {
    CustomGradient made;
    for (int i = 3; i >= 0; --i)
      made.count = made.count << 8 | static_cast<std::uint8_t>(node.labels[static_cast<std::size_t>(i)]);
    return made;
  }
  constexpr Labels pack() const {
    Labels labels{};
    for (int i = 0; i < 4; ++i) labels[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(count >> (8 * i));
    return labels;
  }
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
constexpr int first_operand(Graph&, const Node&, const std::int32_t* operands) { return operands[0]; }

/// A value with respect to which a gradient is computed: different from all others, even from an equal one.
struct VariableOp {
  static constexpr OpRow row = unchanged_row("variable", 1);
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, r.g()); };
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr CheckRule check = check_like_operand;
};

/// A value that a gradient treats as a constant.
struct StopGradientOp {
  static constexpr OpRow row = unchanged_row("stop_gradient", 1);
  static constexpr SimplifyRule simplify = first_operand;
  static constexpr CheckRule check = check_like_operand;
};

struct NameOp {
  static constexpr OpRow row = unchanged_row("name", 1);
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, r.g()); };
  static constexpr SimplifyRule simplify = first_operand;
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
    const int count = CustomGradient::of(r.node()).count;
    const Graph& graph = r.module().graph(r.y().graph);
    Growable<std::int32_t> gradients;
    for (int i = 0; i < count; ++i) gradients.push_back(graph.operand(r.id(), 2 + count + i));
    const int traced_on = graph.operand(r.id(), 1);
    const Growable<std::int32_t> made =
        tessera::detail::substitute(r.module(), r.y().graph, traced_on, r.full_g().id, gradients);
    for (int i = 0; i < count; ++i) r.add(2 + i, r.y().with(made[static_cast<std::size_t>(i)]));
  };
  static constexpr SimplifyRule simplify = first_operand;
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
  static constexpr CheckRule check = check_like_operand;
};

using GradientOperations = OperationList<VariableOp, StopGradientOp, NameOp, CustomGradientOp, BarrierOp>;

}  // namespace ops
}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
