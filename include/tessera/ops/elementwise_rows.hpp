#ifndef TESSERA_OPS_ELEMENTWISE_ROWS_HPP
#define TESSERA_OPS_ELEMENTWISE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/gradient.hpp>
#include <tessera/graph/row.hpp>
#include <tessera/graph/value.hpp>
#include <tessera/ops/row_entry.hpp>

namespace tessera::rows {

/// Shape of operands broadcast against each other: trailing dims aligned, only dims of static extent 1 repeat.
constexpr Shape broadcast_shape(const ShapeContext& c) {
  const Node& node = c.node();
  Shape shape(node.rank, 1);
  for (int i = 0; i < node.arity; ++i) {
    const Node& operand = c.graph.operand_node(c.id, i);
    const Shape& own = c.operand(i);
    for (int d = 0; d < operand.rank; ++d) {
      if (operand.is_unit(d)) continue;
      const auto out = static_cast<std::size_t>(d + node.rank - operand.rank);
      const std::int64_t extent = own[static_cast<std::size_t>(d)];
      bool first = true;
      for (int j = 0; j < i; ++j) {
        const Node& other = c.graph.operand_node(c.id, j);
        const int at = static_cast<int>(out) - (node.rank - other.rank);
        if (at >= 0 && !other.is_unit(at)) first = false;
      }
      if (first)
        shape[out] = extent;
      else if (shape[out] != extent)
        fail_shapes(c, "dims that meet differ; only dims of static extent 1 repeat");
    }
  }
  return shape;
}

/// Every dim is a factor of its own, shared by the operands that have it.
constexpr void elementwise_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const Node& node = graph[id];
  for (int d = 0; d < node.rank; ++d)
    if (!node.is_unit(d)) rule.result.dims[d].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
  for (int i = 0; i < node.arity; ++i) {
    const Node& operand = graph.operand_node(id, i);
    DimFactors& dims = rule.operands.emplace_back();
    for (int d = 0; d < operand.rank; ++d)
      if (!operand.is_unit(d)) dims.dims[d] = rule.result.dims[d + node.rank - operand.rank];
  }
}

constexpr OpRow elementwise(std::string_view name, std::int8_t arity, Linearity linear, GradientRule gradient,
                            std::uint8_t flops = 1, double (*fold)(double, double) = nullptr) {
  return {.name = name,
          .kind = OpKind::elementwise,
          .arity = arity,
          .linear = linear,
          .shape = broadcast_shape,
          .sharding = elementwise_sharding,
          .gradient = gradient,
          .fold = fold,
          .flops = flops};
}

/// p - 1, but 0 where p is: x^0 has no slope, and 0 x^-1 would be NaN at 0.
constexpr Value lowered_exponent(Value p) {
  if (p.node().op == Op::constant) return p.number(p.is_number(0) ? 0 : p.node().value - 1);
  return build::select(build::binary(Op::equal, p, p.number(0)), p.number(0), p - 1.0);
}

/// The gradient of an operation that gives one of two operands, the second where `yields` holds of them. Where they are
/// equal each gets half of the cotangent, as in JAX and PyTorch.
constexpr void share_choice(Gradient& r, Op yields) {
  const Value x = r.x(0), y = r.x(1), zero = x.number(0);
  const Value share = build::select(build::binary(Op::equal, x, y), r.g() * 0.5, r.g());
  if (r.needs(0)) r.add(0, build::select(build::binary(yields, x, y), zero, share));
  if (r.needs(1)) r.add(1, build::select(build::binary(yields, y, x), zero, share));
}

// A table, a row for each operation.
// clang-format off
// In a gradient rule g() is the cotangent, x(i) operand i, y() the result, add(i, v) hands v to operand i.
inline constexpr RowEntry elementwise_rows[] = {
    {Op::neg, elementwise("neg", 1, Linearity::first, [](Gradient& r) { r.add(0, -r.g()); }, 1,
                          [](double a, double) { return -a; })},
    {Op::abs, elementwise("abs", 1, Linearity::no,
                          [](Gradient& r) { r.add(0, r.g() * build::unary(Op::sign, r.x(0))); }, 1,
                          [](double a, double) { return a <= 0 ? 0 - a : a; })},
    {Op::exp, elementwise("exp", 1, Linearity::no, [](Gradient& r) { r.add(0, r.g() * r.y()); }, 12)},
    {Op::log, elementwise("log", 1, Linearity::no, [](Gradient& r) { r.add(0, r.g() / r.x(0)); }, 14)},
    {Op::sqrt, elementwise("sqrt", 1, Linearity::no, [](Gradient& r) { r.add(0, r.g() * 0.5 / r.y()); }, 4)},
    {Op::rsqrt, elementwise("rsqrt", 1, Linearity::no,
                            [](Gradient& r) { r.add(0, r.g() * -0.5 * (r.y() * r.y() * r.y())); }, 4)},
    {Op::tanh, elementwise("tanh", 1, Linearity::no, [](Gradient& r) { r.add(0, r.g() * (1.0 - r.y() * r.y())); }, 16)},
    {Op::sigmoid, elementwise("sigmoid", 1, Linearity::no,
                              [](Gradient& r) { r.add(0, r.g() * (r.y() * (1.0 - r.y()))); }, 16)},
    {Op::relu, elementwise("relu", 1, Linearity::no,
                           [](Gradient& r) {
                             Value x = r.x(0), zero = x.number(0);
                             r.add(0, build::select(build::binary(Op::greater, x, zero), r.g(), zero));
                           })},
    {Op::gelu, elementwise("gelu", 1, Linearity::no,
                           [](Gradient& r) {  // the tanh form: x/2 (1 + tanh(c (x + k x^3)))
                             constexpr double c = 0.79788456080286535588, k = 0.044715;
                             Value x = r.x(0), x2 = x * x;
                             Value t = build::unary(Op::tanh, x * (x2 * (c * k) + c));
                             Value rest = (1.0 - t * t) * x * (x2 * (1.5 * c * k) + 0.5 * c);
                             r.add(0, r.g() * (t * 0.5 + 0.5 + rest));
                           }, 22)},
    {Op::silu, elementwise("silu", 1, Linearity::no,
                           [](Gradient& r) {
                             Value x = r.x(0), s = build::unary(Op::sigmoid, x);
                             r.add(0, r.g() * (s * (x * (1.0 - s) + 1.0)));
                           }, 17)},
    {Op::sign, elementwise("sign", 1, Linearity::no, nullptr)},
    {Op::logical_not, elementwise("not", 1, Linearity::no, nullptr)},
    {Op::cast, elementwise("cast", 1, Linearity::no,
                           [](Gradient& r) { r.add(0, build::uncast(r.g(), r.x(0).dtype())); }, 1,
                           [](double a, double) { return a; })},
    {Op::add, elementwise("add", 2, Linearity::jointly, [](Gradient& r) { r.add(0, r.g()); r.add(1, r.g()); }, 1,
                          [](double a, double b) { return a + b; })},
    {Op::sub, elementwise("sub", 2, Linearity::jointly, [](Gradient& r) { r.add(0, r.g()); r.add(1, -r.g()); }, 1,
                          [](double a, double b) { return a - b; })},
    {Op::mul, elementwise("mul", 2, Linearity::each,
                          [](Gradient& r) { r.add(0, r.g() * r.x(1)); r.add(1, r.g() * r.x(0)); }, 1,
                          [](double a, double b) { return a * b; })},
    {Op::div, elementwise("div", 2, Linearity::first,
                          [](Gradient& r) {
                            r.add(0, r.g() / r.x(1));
                            r.add(1, -(r.g() * r.y() / r.x(1)));
                          }, 4, [](double a, double b) { return a / b; })},
    {Op::pow, elementwise("pow", 2, Linearity::no,
                          [](Gradient& r) {
                            Value x = r.x(0), p = r.x(1);
                            r.add(0, r.g() * p * build::binary(Op::pow, x, lowered_exponent(p)));
                            if (!r.needs(1)) return;
                            // Where the base is 0 the slope along the exponent is 0, not 0 * log 0.
                            Value zero = x.number(0);
                            Value flat = build::binary(Op::logical_and, build::binary(Op::equal, x, zero),
                                                       build::binary(Op::greater_equal, p, zero));
                            r.add(1, r.g() * r.y() * build::unary(Op::log, build::select(flat, x.number(1), x)));
                          }, 30)},
    {Op::minimum, elementwise("minimum", 2, Linearity::no, [](Gradient& r) { share_choice(r, Op::greater); }, 1,
                              [](double a, double b) { return b < a || b != b ? b : a; })},
    {Op::maximum, elementwise("maximum", 2, Linearity::no, [](Gradient& r) { share_choice(r, Op::less); }, 1,
                              [](double a, double b) { return a < b || b != b ? b : a; })},
    {Op::equal, elementwise("equal", 2, Linearity::no, nullptr)},
    {Op::not_equal, elementwise("not_equal", 2, Linearity::no, nullptr)},
    {Op::less, elementwise("less", 2, Linearity::no, nullptr)},
    {Op::less_equal, elementwise("less_equal", 2, Linearity::no, nullptr)},
    {Op::greater, elementwise("greater", 2, Linearity::no, nullptr)},
    {Op::greater_equal, elementwise("greater_equal", 2, Linearity::no, nullptr)},
    {Op::logical_and, elementwise("and", 2, Linearity::no, nullptr)},
    {Op::logical_or, elementwise("or", 2, Linearity::no, nullptr)},
    {Op::select, elementwise("select", 3, Linearity::choice,
                             [](Gradient& r) {
                               Value zero = r.x(1).number(0);
                               r.add(1, build::select(r.x(0), r.g(), zero));
                               r.add(2, build::select(r.x(0), zero, r.g()));
                             })},
    {Op::broadcast, {.name = "broadcast", .kind = OpKind::elementwise, .arity = 2,
                     .linear = Linearity::first, .shape = broadcast_shape,
                     .sharding = elementwise_sharding, .gradient = [](Gradient& r) { r.add(0, r.g()); }, .flops = 0,
                     .shape_only = 1u << 1}},
};
// clang-format on

}  // namespace tessera::rows

#include <tessera/base/pop_macros.hpp>

#endif
