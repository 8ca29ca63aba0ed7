#ifndef TESSERA_OPS_ELEMENTWISE_SELECT_HPP
#define TESSERA_OPS_ELEMENTWISE_SELECT_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/graph/ir/value.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::build {

/// x cast to another element type; x itself if it has that type.
constexpr Value cast(Value x, DType type) {
  const Node& from = x.node();
  if (from.dtype == type) return x;
  if (from.is_constant()) return x.make({.dtype = type, .labels = from.labels, .value = from.value}, {});
  // x was widened by a cast, from bf16 to f32, say: casting back gives the original.
  if (from.op == Op::cast && widens(type, from.dtype))
    if (const Value origin = x.with(x.module->graph(x.graph).operand(x.id, 0)); origin.dtype() == type) return origin;
  return x.make({.op = Op::cast, .dtype = type, .rank = from.rank, .singletons = from.singletons}, &x.id, 1);
}
/// x cast so that the parts of a partial value are rounded, and their sum is a sum of rounded parts.
constexpr Value cast_parts(Value x, DType type) {
  const Node& from = x.node();
  return x.make(
      {.op = Op::cast, .dtype = type, .rank = from.rank, .singletons = from.singletons, .labels = pack_cast_of_parts()},
      {x.id});
}
[[noreturn]] inline void fail_number_is_no_value_of_the_element_type(double number, DType type, Source source) {
  const bool prints_whole = number > -9e18 && number < 9e18;
  fail(errc::dtype_mismatch,
       "[number] range: ", prints_whole ? std::to_string(static_cast<long long>(number)) : std::to_string(number),
       " is not a value of ", name_of(type), source);
}
/// The rule that a number breaks, as the message about constants in a trace has it.
constexpr const char* broken_rule(NumberRule rule) {
  if (rule == NumberRule::rate) return "[dropout] rate: the rate is not between 0 and 1";
  if (rule == NumberRule::probability) return "[distributions] probs: the probability is not between 0 and 1";
  if (rule == NumberRule::quantile) return "[quantile] q: q is not between 0 and 1";
  if (rule == NumberRule::positive) return "[distributions] parameter: the parameter is not above 0";
  if (rule == NumberRule::top_p) return "[top_p_logits] p: p is not between 0 and 1";
  if (rule == NumberRule::min_p) return "[min_p_logits] p: p is not between 0 and 1";
  if (rule == NumberRule::rotary_factor) return "[rotary_embedding] factor: the factor is not 1 or more";
  if (rule == NumberRule::rotary_context)
    return "[rotary_embedding] original_max_position_embeddings: the number of positions is not above 0";
  if (rule == NumberRule::rotary_range)
    return "[rotary_embedding] high_freq_factor - low_freq_factor: the difference is not above 0";
  return "[number] range: the number is not a value of the element type";
}
[[noreturn]] inline void fail_option(NumberRule rule, double number, Source source) {
  const std::string_view text = broken_rule(rule);
  fail(errc::option, text.substr(0, text.find(": ") + 2), number, text.substr(text.find(" is not ")), source);
}
constexpr void check_number(NumberRule rule, DType type, double number, Source source) {
  if (keeps(rule, type, number)) return;
  if (rule != NumberRule::of_its_type) fail_option(rule, number, source);
  fail_number_is_no_value_of_the_element_type(number, type, source);
}
constexpr Value checked_cast(Value x, DType type, NumberRule rule) {
  const Node& from = x.node();
  if (from.is_constant()) {
    if (__builtin_is_constant_evaluated() && !keeps(rule, type, from.value))
      x.refuse(rule == NumberRule::of_its_type ? errc::dtype_mismatch : errc::option, broken_rule(rule));
    else
      check_number(rule, type, from.value, x.source);
    return x.number(from.value, type);
  }
  return x.make({.op = Op::cast, .dtype = type, .labels = pack_rule(rule)}, &x.id, 1);
}
/// A cast of a cotangent: leaves out a detour through a type of 16 or 8 bits, since a cotangent may be more precise
/// than the value.
constexpr Value uncast(Value x, DType type) {
  if (const Node& from = x.node(); from.op == Op::cast && computed_as(from.dtype) != from.dtype)
    if (const Value origin = x.with(x.module->graph(x.graph).operand(x.id, 0)); origin.dtype() == type) return origin;
  return cast(x, type);
}
constexpr Value select(Value condition, Value yes, Value no) {
  Node made{.op = Op::select, .dtype = yes.dtype()};
  broadcast_type(made, yes.node(), no.node());
  const Node branches = made;
  broadcast_type(made, condition.node(), branches);
  return yes.make(made, {condition.id, yes.id, no.id});
}

/// The earliest value in the graph that has the shape of x by construction. Shapes are read from it, so that x does not
/// stay alive, or is recomputed, only for its shape.
constexpr Value shape_source(Value x) {
  const Graph& graph = x.module->graph(x.graph);
  for (;;) {
    const Node& node = graph[x.id];
    if (has_operand(row_of(node).shape_only, 0) && same_static_shape(graph.operand_node(x.id, 0), node)) {
      x.id = graph.operand(x.id, 0);
      continue;
    }
    if (row_of(node).kind != OpKind::elementwise) return x;
    int next = -1;
    for (int i = 0; i < node.arity && next < 0; ++i)
      if (same_static_shape(graph.operand_node(x.id, i), node)) next = graph.operand(x.id, i);
    if (next < 0) return x;
    x.id = next;
  }
}

/// A parameter as it is stored, for a gradient that reads only its shape: a wrapper does not gather it again for that.
constexpr Value stored_parameter(Value x) {
  const Graph& graph = x.module->graph(x.graph);
  while (graph[x.id].op == Op::barrier || (row_of(graph[x.id]).constrains && Constraint::of(graph[x.id]).of_parameter))
    x.id = graph.operand(x.id, 0);
  return x;
}

constexpr Value broadcast(Value x, Value like) {
  if (same_static_shape(x.node(), like.node())) return x;
  like = shape_source(like);
  return x.make(
      {.op = Op::broadcast, .dtype = x.dtype(), .rank = like.node().rank, .singletons = like.node().singletons},
      {x.id, like.id});
}

/// A broadcast that compares extents when the program is planned; of broadcasts within an operation, the operation
/// does.
constexpr Value checked_broadcast(Value x, Value like, MadeBy by) {
  return x.make({.op = Op::broadcast,
                 .dtype = x.dtype(),
                 .rank = like.node().rank,
                 .singletons = like.node().singletons,
                 .labels = pack_maker(by)},
                {x.id, like.id});
}
constexpr Value of_shape(Value x, Value like, MadeBy by) {
  const Value source = shape_source(like);
  // A static singleton dim of `like` that x lacks has an extent in x that no broadcast can state.
  const bool is_stated = (like.node().singletons & ~x.node().singletons) == 0;
  if (by == MadeBy::operation || like.node().rank == 0 || !is_stated || shape_source(x).id == source.id) return x;
  return checked_broadcast(x, source, by);
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr double select(double condition, double yes, double no) { return condition != 0 ? yes : no; }

/// Operands: a condition, the value where it is true, the value where it is false.
struct SelectOp : ElementwiseOperation<3> {
  static constexpr std::string_view name = "select";
  static constexpr Linearity linear = Linearity::choice;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    return c.x(0).dtype == DType::bool_ ? check_types(c, 1) : BrokenRule("the element type of the condition is bool");
  };
  static TESSERA_INLINE constexpr auto value(const auto& condition, const auto& yes, const auto& no) {
    return select(condition, yes, no);
  }
  static constexpr HostNumber host(const HostContext& c) {
    return c.operand(0).real() != 0 ? c.operand(1) : c.operand(2);
  }
  static constexpr void gradient(Gradient& r) {
    const Value zero = r.x(1).number(0);
    r.add(1, build::select(r.x(0), r.g(), zero));
    r.add(2, build::select(r.x(0), zero, r.g()));
  }
};

/// `value` is the identity: the code that computes with it converts between the element types.
struct CastOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "cast";
  static constexpr CheckRule check = check_broadcast;
  static constexpr bool of_integers = true, converts = true;
  static TESSERA_INLINE constexpr auto value(const auto& x) { return x; }
  static constexpr int simplify(Graph& made, const Node& node, const std::int32_t* operands) {
    const Node& from = made[operands[0]];
    if (!from.is_constant() || !keeps(number_rule(node), node.dtype, number_of(from).real())) return -1;
    const HostNumber number = number_of(from);
    Node constant{.dtype = node.dtype, .value = number.real()};
    if (node.dtype == DType::bool_)
      constant.value = number.real() != 0;
    else if (!is_floating(node.dtype))
      constant = integer_node(number.integer(), node.dtype);
    constant.source = node.source;
    return made.add(constant);
  }
  static constexpr HostNumber host(const HostContext& c) {
    const Node& node = c.node();
    const HostNumber from = c.operand(0);
    // While a plan is made, Scalars are 0, and there is a mesh.
    if (keeps(number_rule(node), node.dtype, 0) || c.mesh == nullptr)
      build::check_number(number_rule(node), node.dtype, from.real(), node.source);
    if (node.dtype == DType::bool_) return from.real() != 0;
    if (!is_floating(node.dtype)) return from.integer();
    return node.dtype == DType::f64 ? from : rounded_to(node.dtype, from.real());
  }
  static constexpr void gradient(Gradient& r) { r.add(0, build::uncast(r.g(), r.x(0).dtype())); }
};

constexpr Shape broadcast_operation_shape(const ShapeContext& c) {
  const MadeBy by = maker_of(c.node());
  const char* rule = "only dims of extent 1 are repeated";
  if (by == MadeBy::operation) return broadcast_shape(c);
  if (by == MadeBy::vjp) rule = "a cotangent must have the shape of the function's result";
  if (by == MadeBy::jvp) rule = "a tangent must have the shape of its argument";
  if (by == MadeBy::custom_vjp) rule = "a cotangent that backward returns must have the shape of its argument";
  if (by == MadeBy::hvp) rule = "a direction must have the shape of its argument";
  return broadcast_shape(c, rule, name_of(by));
}

/// Broadcasts the first operand to the shape of the second, of which only the shape is used.
struct BroadcastOp {
  static constexpr OpRow row{.name = "broadcast",
                             .kind = OpKind::elementwise,
                             .arity = 2,
                             .linear = Linearity::first,
                             .shape = broadcast_operation_shape,
                             .sharding = elementwise_sharding,
                             .number = [](double x, double, double) { return x; },
                             .host = [](const HostContext& c) { return c.operand(0); },
                             .flops = 0,
                             .shape_only = 1u << 1,
                             .repeats = true,
                             .recomputed = true};
  static constexpr bool by_part = false, divides_in_xsimd = false;
  static constexpr BatchRule batch = [](const Batch& b) {
    return b.make(b.batched(), {b.aligned(0, b.node().rank).id, b.full(1).id});
  };
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (const BrokenRule broken = check_broadcast(c); !broken.empty()) return broken;
    if (c.node().dtype != c.x(0).dtype) return BrokenRule("the result has the element type of its operands");
    return same_static_shape(c.node(), c.x(1)) ? BrokenRule{} : "the result has the shape of the second operand";
  };
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto&) { return x; }
  static constexpr int simplify(Graph& made, const Node& node, const std::int32_t* operands) {
    return maker_of(node) == MadeBy::operation && same_static_shape(made[operands[0]], node) ? operands[0] : -1;
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g()); }
};

using SelectOperations = OperationList<SelectOp, CastOp, BroadcastOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {

/// The type of two operands of select: of two numbers f32, or i32 if both are integers, as in JAX.
template <class A, class B> struct Selected : Promote<A, B> {};
template <class A, class B>
  requires(is_number_v<typename A::type> && is_number_v<typename B::type>)
struct Selected<A, B> {
  static constexpr bool whole = std::is_same_v<typename A::type, Number<NumberKind::integer>> &&
                                std::is_same_v<typename B::type, Number<NumberKind::integer>>;
  static constexpr DType dtype = whole ? DType::i32 : DType::f32;
  using type = element_t<dtype>;
  static constexpr int rank = 0;
};

/// A number as a condition: whether it is not 0.
constexpr Value as_condition(Value x) {
  if (x.node().is_constant()) return x.integer(number_of(x.node()).real() != 0 ? 1 : 0, DType::bool_);
  return build::cast(x, DType::bool_);
}

struct SelectTag {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class C, class A, class B> struct result {
    using Checks = decltype([] {
      static_assert(std::is_same_v<typename C::type, bool> || is_number_v<typename C::type>,
                    "tessera: the condition of select must be a bool tensor");
    });
    using type = typename Selected<A, B>::type;
    static constexpr int rank = C::rank > Selected<A, B>::rank ? C::rank : Selected<A, B>::rank;
  };
  template <class C, class A, class B> static constexpr void convert(Value& condition, Value& yes, Value& no) {
    if (condition.dtype() != DType::bool_) condition = as_condition(condition);
    yes = convert_operand<A>(yes, Selected<A, B>::dtype);
    no = convert_operand<B>(no, Selected<A, B>::dtype);
  }
  static constexpr Value emit(Value context, Value condition, Value yes, Value no) {
    return build::select(condition, yes.at(context.source), no);
  }
};

template <class To> struct CastTag {
  template <class A> using result = Typed<To, A::rank>;
  static constexpr Value emit(Value context, Value x) { return build::cast(x.at(context.source), dtype_v<To>); }
};

}  // namespace detail

/// `yes` where the condition is true, `no` elsewhere (torch.where, jnp.where). The condition is a bool tensor, or one
/// number for all elements: a bool, a Scalar such as `step < 100`, or a Dim, which hold unless they are 0. All three
/// are broadcast against each other, `yes` and `no` promoted; of two numbers f32, or i32 if both are integers. Elements
/// that are not selected have no effect: NaN in them does not propagate, and their gradient is 0. Errors:
/// shape_mismatch. Communication: a reshard where the operands' shardings differ.
template <TensorArgument C, Operand A, Operand B>
constexpr auto select(const C& condition, const A& yes, const B& no, Here at = Here::current()) {
  return call<detail::SelectTag>(Source::from(at), condition, yes, no);
}

template <NumberOperand C, Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto select(const C& condition, const A& yes, const B& no, Here at = Here::current()) {
  return call<detail::SelectTag>(Source::from(at), condition, yes, no);
}
/// `select` by its name in PyTorch, NumPy and JAX.
template <Operand C, Operand A, Operand B>
  requires(TensorOperand<C> || TensorOperand<A> || TensorOperand<B>)
constexpr auto where(const C& condition, const A& yes, const B& no, Here at = Here::current()) {
  return call<detail::SelectTag>(Source::from(at), condition, yes, no);
}

/// x cast to element type `To`. Floating to integer truncates towards zero; values outside of the integer type become
/// its nearest value, and NaN becomes 0, as in JAX. Integers wrap around. To bool: x != 0. To a narrower floating type:
/// rounds to the nearest, ties to even; values beyond its range become infinite, of f8_e4m3 NaN.
template <Element To, TensorArgument X> constexpr auto cast(const X& x, Here at = Here::current()) {
  return call<detail::CastTag<To>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
