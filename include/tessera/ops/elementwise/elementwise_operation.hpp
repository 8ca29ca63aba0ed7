#ifndef TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_OPERATION_HPP
#define TESSERA_OPS_ELEMENTWISE_ELEMENTWISE_OPERATION_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <type_traits>

#include <tessera/base/here.hpp>
#include <tessera/base/inline.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/expression/expr.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/operation.hpp>

namespace tessera::ops {

inline constexpr std::string_view only_known_ones =
    "; an extent of 1 broadcasts if it is 1 for all calls, as behind ts::unsqueeze or in ts::broadcast_to";

/// The shape of operands broadcast against each other: trailing dims are aligned, only dims of static extent 1 repeat.
TESSERA_PLANNING constexpr Shape broadcast_shape(const ShapeContext& c, const char* why, std::string_view name) {
  const Node& node = c.node();
  Shape shape(node.rank, 1);
  for (int i = 0; i < node.arity; ++i) {
    const Node& operand = c.graph.operand_node(c.id, i);
    const Shape& own = c.operand(i);
    for (int d = 0; d < operand.rank; ++d) {
      if (operand.is_singleton(d)) continue;
      const auto out = static_cast<std::size_t>(d + node.rank - operand.rank);
      const std::int64_t extent = own[static_cast<std::size_t>(d)];
      bool first = true;
      for (int j = 0; j < i; ++j) {
        const Node& other = c.graph.operand_node(c.id, j);
        const int at = static_cast<int>(out) - (node.rank - other.rank);
        if (at >= 0 && !other.is_singleton(at)) first = false;
      }
      if (first)
        shape[out] = extent;
      else if (shape[out] != extent)
        fail_shapes(c, concat_text(why, name.empty() && (extent == 1 || shape[out] == 1) ? only_known_ones : ""), name);
    }
  }
  return shape;
}

constexpr Shape broadcast_shape(const ShapeContext& c) { return broadcast_shape(c, "shapes can't be broadcast", {}); }

/// Each dim of the result is a factor, shared by the operands that have the dim.
constexpr void elementwise_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const Node& node = graph[id];
  for (int d = 0; d < node.rank; ++d)
    if (!node.is_singleton(d)) rule.result.dims[d].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
  for (int i = 0; i < node.arity; ++i) {
    const Node& operand = graph.operand_node(id, i);
    DimFactors& dims = rule.operands.emplace_back();
    for (int d = 0; d < operand.rank; ++d)
      if (!operand.is_singleton(d)) dims.dims[d] = rule.result.dims[d + node.rank - operand.rank];
  }
}

/// Checks that the dims of the result are those of the operands, broadcast against each other.
constexpr BrokenRule check_broadcast(const NodeCheck& c) {
  Node made{.rank = c.x(0).rank, .singletons = c.x(0).singletons};
  for (int i = 1; i < c.node().arity; ++i) {
    const Node before = made;
    build::broadcast_type(made, before, c.x(i));
  }
  return same_static_shape(c.node(), made) ? BrokenRule{} : "the result has the dims of its operands, broadcast";
}
/// Checks that operands from `first` on have one element type, and that the result's type follows from it.
constexpr BrokenRule check_types(const NodeCheck& c, int first) {
  if (const BrokenRule broken = check_broadcast(c); !broken.empty()) return broken;
  const Node& node = c.node();
  const DType type = c.x(first).dtype;
  for (int i = first + 1; i < node.arity; ++i)
    if (c.x(i).dtype != type) return "operands have equal element types";
  if (node.dtype == row_of(node).result_type(type)) return {};
  return row_of(node).predicate ? "the element type of a comparison is bool"
                                : "the result has the element type of its operands";
}
constexpr BrokenRule check_elementwise(const NodeCheck& c) { return check_types(c, 0); }

constexpr Batched batch_elementwise(const Batch& b) {
  Growable<std::int32_t> operands;
  for (int i = 0; i < b.arity(); ++i) operands.push_back(b.aligned(i, b.node().rank).id);
  return b.make(b.batched(), operands);
}

struct AnyElementwiseOperation {};

/// Defaults of elementwise operations. An operation adds its `name` and
///   value     the operation on one element of each operand, one template for doubles, exact integers and SIMD lanes:
///             lanes have the same operators and functions, found by argument-dependent lookup. Comparisons return
///             bools or masks.
///   gradient  as in every operation
template <int Arity> struct ElementwiseOperation : AnyElementwiseOperation {
  static constexpr std::int8_t arity = Arity;
  static constexpr Linearity linear = Linearity::no;
  static constexpr std::uint8_t flops = 1;        ///< per element
  static constexpr std::uint8_t lane_cost = 1;    ///< per element, in units of a vector addition
  static constexpr bool folds_constants = false;  ///< with constant operands, the compiler can compute `value`
  static constexpr bool of_integers = false;      ///< integers are computed exactly: `value` takes ExactIntegers
  static constexpr bool of_bools = true;          ///< operands may be bools
  static constexpr bool of_floats = true;         ///< operands may be of floating types
  static constexpr bool fractional = false;       ///< integer and bool operands give f32
  static constexpr bool predicate = false;        ///< results are bools
  static constexpr bool divides = false;          ///< by the second operand
  static constexpr bool adds = false;             ///< computes the sum of its operands
  static constexpr bool converts = false;         ///< changes the element type of its operand
  static constexpr CheckRule check = check_elementwise;
  static constexpr BatchRule batch = batch_elementwise;
  /// `value` takes xsimd batches instead of lanes: for functions that xsimd has
  static constexpr bool by_part = false;
  /// xsimd's function divides or takes a root: where its quotients of floats are estimates, they are computed in double
  static constexpr bool divides_in_xsimd = false;
};

namespace detail {
template <class Operation, class T> constexpr auto value_of(T a, T b, T c) {
  if constexpr (Operation::arity == 1)
    return Operation::value(a);
  else if constexpr (Operation::arity == 2)
    return Operation::value(a, b);
  else
    return Operation::value(a, b, c);
}
template <class Operation> constexpr double number_of(double a, double b, double c) {
  return static_cast<double>(value_of<Operation>(a, b, c));
}
template <class Operation> constexpr IntegerResult integer_of(std::int64_t a, std::int64_t b, std::int64_t& result) {
  const auto made = value_of<Operation>(ExactInteger{a}, ExactInteger{b}, ExactInteger{});
  if constexpr (Operation::predicate) {
    result = made;
    return IntegerResult::known;
  } else {
    result = made.value;
    return made.result;
  }
}
template <class Operation> constexpr OpRow elementwise_row() {
  OpRow row{.name = Operation::name,
            .kind = OpKind::elementwise,
            .arity = Operation::arity,
            .linear = Operation::linear,
            .shape = broadcast_shape,
            .sharding = elementwise_sharding,
            .number = number_of<Operation>,
            .folds_constants = Operation::folds_constants,
            .predicate = Operation::predicate,
            .fractional = Operation::fractional,
            .of_bools = Operation::of_bools,
            .divides = Operation::divides,
            .adds = Operation::adds,
            .converts = Operation::converts,
            .flops = Operation::flops,
            .lane_cost = Operation::lane_cost,
            .recomputed = true};
  if constexpr (requires { Operation::host; }) row.host = Operation::host;
  if constexpr (Operation::of_integers) row.integers = integer_of<Operation>;
  return row;
}
}  // namespace detail

template <std::derived_from<AnyElementwiseOperation> Operation>
inline constexpr OpRow row_v<Operation> = row_of_rules(
    detail::elementwise_row<Operation>(), requires { Operation::simplify; });

}  // namespace tessera::ops

namespace tessera::build {

template <class Operation> constexpr Value apply(Value x) { return unary(ops::op_v<Operation>, x); }
template <class Operation> constexpr Value apply(Value x, Value y) { return binary(ops::op_v<Operation>, x, y); }

}  // namespace tessera::build

namespace tessera {

namespace detail {

/// Refuses element types without arithmetic. A function, so that the check is compiled once for each element type.
template <class T> constexpr bool require_arithmetic() {
  static_assert(!is_float8_v<T>, "tessera: f8_e4m3 and f8_e5m2 are storage types without arithmetic; write "
                                 "ts::cast<float>(x) or ts::cast<ts::bf16>(x) first");
  return true;
}

template <class A, class B> constexpr DType promoted() {
  require_arithmetic<A>(), require_arithmetic<B>();
  return promote(dtype_v<A>, dtype_v<B>);
}
template <class A, NumberKind Kind> constexpr DType promoted_with(Number<Kind>) {
  require_arithmetic<A>();
  return promote(dtype_v<A>, Kind);
}

/// Element type and rank of two operands, at least one a tensor, after promotion.
template <class A, class B> struct Promote {
  static constexpr DType dtype = [] {
    if constexpr (is_number_v<typename A::type>)
      return promoted_with<typename B::type>(typename A::type{});
    else if constexpr (is_number_v<typename B::type>)
      return promoted_with<typename A::type>(typename B::type{});
    else
      return promoted<typename A::type, typename B::type>();
  }();
  using type = element_t<dtype>;
  static constexpr int rank = A::rank > B::rank ? A::rank : B::rank;
};

/// Element type and rank of any number of operands that are broadcast against each other and promoted.
template <class A, class... More> struct MeetAll : A {};
template <class A, class B> struct Both : Typed<typename Promote<A, B>::type, Promote<A, B>::rank> {};
template <class A, class B>
  requires(is_number_v<typename A::type> && is_number_v<typename B::type>)
struct Both<A, B> : Typed<Number<NumberKind::floating>, 0> {};
template <class A, class B, class... More> struct MeetAll<A, B, More...> : MeetAll<Both<A, B>, More...> {};

/// Casts an operand to the promoted type. Errors: dtype_mismatch for an integer literal that is no value of that type.
template <class Typed> constexpr Value convert_operand(Value x, DType type) {
  const bool is_whole = std::is_same_v<typename Typed::type, Number<NumberKind::integer>>;
  if (is_whole && !is_floating(type) && x.dtype() != type) return build::checked_cast(x, type, NumberRule::of_its_type);
  return build::cast(x, type);
}

/// Functions of one operand, in expressions and traces.
template <class Operation> struct Unary {
  static constexpr const OpRow& row = ops::row_v<Operation>;
  template <class A> struct result : A {
    using Checks = decltype([] {
      static_assert(!std::is_same_v<typename A::type, bool> || row.of_bools || row.fractional,
                    "tessera: this operation takes numbers; a bool tensor needs ts::cast<float>(x) first");
    });
    static_assert(require_arithmetic<typename A::type>());
    static constexpr DType meets_in =
        row.fractional ? floating_type(dtype_v<typename A::type>) : dtype_v<typename A::type>;
    using type = element_t<row.result_type(meets_in)>;
  };
  template <class A> static constexpr void convert(Value& x) {
    if constexpr (row.fractional) x = build::cast(x, floating_type(x.dtype()));
  }
  static constexpr Value emit(Value context, Value x) {
    return build::unary(ops::op_v<Operation>, x.at(context.source));
  }
};

/// Functions of two operands, in expressions and traces.
template <class Operation> struct Binary {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  static constexpr const OpRow& row = ops::row_v<Operation>;
  template <class A, class B>
  static constexpr DType meets_in = row.fractional ? floating_type(Promote<A, B>::dtype) : Promote<A, B>::dtype;
  template <class A, class B> struct result {
    using Checks = decltype([] {
      static_assert(meets_in<A, B> != DType::bool_ || row.of_bools,
                    "tessera: this operation takes numbers; a bool tensor needs ts::cast<float>(x) first");
    });
    using type = element_t<row.result_type(meets_in<A, B>)>;
    static constexpr int rank = Promote<A, B>::rank;
  };
  template <class A, class B> static constexpr void convert(Value& x, Value& y) {
    x = convert_operand<A>(x, meets_in<A, B>);
    y = convert_operand<B>(y, meets_in<A, B>);
  }
  static constexpr Value emit(Value context, Value x, Value y) {
    return build::binary(ops::op_v<Operation>, x.at(context.source), y);
  }
};

}  // namespace detail

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
