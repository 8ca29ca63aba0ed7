#ifndef TESSERA_GRAPH_TRANSFORM_VJP_HPP
#define TESSERA_GRAPH_TRANSFORM_VJP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Arguments of a function: the items of a tuple, or a single argument. Types are written out: of a tuple of one tuple,
/// std::tuple(items...) would be that tuple.
template <class T> constexpr auto as_arguments(const T& given) {
  if constexpr (is_tuple_v<T>)
    return settle(
        std::apply([]<class... Items>(const Items&... items) { return std::tuple<Items...>(items...); }, given));
  else
    return std::tuple(settle(given));
}

/// The items of a tuple as a result for the user: a single item is returned without the tuple.
template <class Tuple> constexpr auto without_tuple(const Tuple& items) {
  if constexpr (std::tuple_size_v<Tuple> == 1)
    return std::get<0>(items);
  else
    return items;
}

/// The floating tensors of `given`. Their number, element types and ranks must be those of a structure, otherwise
/// `rule` is the error; their shapes must be those of `shapes`, which are compared when the program is planned.
template <class T>
constexpr Growable<std::int32_t> matched(const T& given, const Value& context, const Growable<std::int32_t>& like,
                                         const Growable<std::int32_t>& shapes, MadeBy by, const char* rule) {
  const auto structure = as_carry(context, given);
  Floating found = floating_of(structure);
  bool same = found.ids.size() == like.size();
  for (std::size_t k = 0; k < like.size() && same; ++k) {
    Value own = context.with(found.ids[k]);
    const Node& wanted = context.with(like[k]).node();
    if (own.node().is_constant()) own = build::broadcast(build::cast(own, wanted.dtype), context.with(shapes[k]));
    same = own.dtype() == wanted.dtype && own.rank() == wanted.rank;
    found.ids[k] = same ? build::of_shape(own, context.with(shapes[k]), by).id : own.id;
  }
  if (same) return found.ids;
  context.refuse(errc::structure, rule);
  Growable<std::int32_t> zeros;
  for (std::int32_t id : like) zeros.push_back(build::broadcast(context.with(id).number(0), context.with(id)).id);
  return zeros;
}
template <class T>
constexpr Growable<std::int32_t> matched(const T& given, const Value& context, const Growable<std::int32_t>& like,
                                         MadeBy by, const char* rule) {
  return matched(given, context, like, like, by, rule);
}

/// A function that is recorded in the graph of `context`: values that depend on variables.
struct RecordedFunction {
  Value context{};
  Growable<std::int32_t> variables, values;

  constexpr Growable<std::int32_t> pull(const Growable<std::int32_t>& cotangents) const {
    return differentiate(context, values, cotangents, variables);
  }
};

/// A recorded function, copied to the body of a loop that is being traced: the nodes between its variables and its
/// values are copied, and read all other values from outside of the body.
class CopiedFunction {
 public:
  constexpr explicit CopiedFunction(const RecordedFunction& outside)
      : from_(outside.context), depends_(graph().nodes.size()), copied_(graph().nodes.size(), -1) {
    for (std::int32_t id : outside.variables) depends_[at(id)] = 1;
    while (mark()) {
    }
    Growable<std::uint8_t> wanted(depends_.size());
    for (const Growable<std::int32_t>* list : {&outside.variables, &outside.values})
      for (std::int32_t id : *list) wanted[at(id)] = 1;
    for (int id = graph().size() - 1; id >= 0; --id)
      for (int i = 0; i < graph()[id].arity && wanted[at(id)] != 0 && depends_[at(id)] != 0; ++i)
        if (const int operand = graph().operand(id, i); operand >= 0) wanted[at(operand)] = 1;
    const int to = from_.module->current;
    for (int id = 0; id < static_cast<int>(wanted.size()); ++id)
      if (wanted[at(id)] != 0) copied_[at(id)] = copy(id, to);
    made_.context = {from_.module, to, -1, from_.source};
    for (std::int32_t id : outside.variables) made_.variables.push_back(copied_[at(id)]);
    for (std::int32_t id : outside.values) made_.values.push_back(copied_[at(id)]);
  }
  constexpr const RecordedFunction& made() const { return made_; }

 private:
  Value from_;
  Growable<std::uint8_t> depends_;  // on the variables
  Growable<std::int32_t> copied_;
  RecordedFunction made_;

  static constexpr std::size_t at(int id) { return static_cast<std::size_t>(id); }
  constexpr const Graph& graph() const { return from_.module->graph(from_.graph); }

  constexpr std::int32_t copy(int id, int to) {
    if (depends_[at(id)] == 0) return brought_to(from_.with(id), from_.module->open.size()).id;
    Growable<std::int32_t> operands;
    for (int i = 0; i < graph()[id].arity; ++i)
      operands.push_back(graph().operand(id, i) < 0 ? -1 : copied_[at(graph().operand(id, i))]);
    return copy_node(*from_.module, from_.graph, id, operands, to);
  }
  /// Marks the nodes that depend on marked nodes. A custom gradient is copied together with what was traced on its
  /// cotangents, which are variables of zeros; returns whether such variables were newly marked.
  constexpr bool mark() {
    bool more = false;
    for (int id = 0; id < graph().size(); ++id) {
      for (int i = 0; i < graph()[id].arity && depends_[at(id)] == 0; ++i)
        if (const int operand = graph().operand(id, i); operand >= 0 && !has_operand(row_of(graph()[id]).shape_only, i))
          depends_[at(id)] = depends_[at(operand)];
      for (int i = 0; i < graph()[id].arity && depends_[at(id)] != 0; ++i)
        if (const int operand = graph().operand(id, i);
            operand >= 0 && depends_[at(operand)] == 0 && is_variable_of_zeros(operand))
          depends_[at(operand)] = 1, more = true;
    }
    return more;
  }
  constexpr bool is_variable_of_zeros(int id) const {
    return graph()[id].is_variable() && is_known_zero(graph(), graph().operand(id, 0));
  }
};

/// A recorded function in the graph that is being traced. `rule`: the error where that is not inside the graph of
/// `outside`.
constexpr RecordedFunction function_here(const RecordedFunction& outside, const char* rule) {
  Module& module = *outside.context.module;
  if (module.current == outside.context.graph || module.refusal.text != nullptr) return outside;
  bool is_around = outside.context.graph == 0;
  for (const OpenBody& body : module.open) is_around = is_around || body.graph == outside.context.graph;
  if (is_around) return CopiedFunction(outside).made();
  outside.context.refuse(errc::structure, rule);
  return outside;
}

/// A function that was traced on variables in place of its arguments: the variables and the results.
template <class Arguments, class Result> struct Recorded {
  Arguments arguments;  ///< the variables
  Result result;
  RecordedFunction function;
};

/// The trace of the arguments of a derivative. Errors: `unsupported` outside of a trace; `line` is that of the call, if
/// it is known.
template <class Arguments>
constexpr Value trace_of_derivative(const char* name, const Arguments& given, Source line = {}) {
  const Value found = trace_in(given);
  if (found.module == nullptr)
    fail(errc::unsupported, "[", name, "] outside of a traced function: call ts::", name,
         " inside a function of ts::compile", line);
  return found;
}
template <class F, class Arguments> constexpr auto record(const F& f, const Arguments& given, Source source) {
  const Value found = trace_in(given);
  Arguments arguments = given;
  Floating sources = make_variables(arguments);
  const Arguments& inside = arguments;
  auto result = settle(applied(f, inside));
  Floating results = floating_of(result);
  const Value context = here(found).at(source);
  return Recorded<Arguments, decltype(result)>{
      std::move(arguments), std::move(result), {context, std::move(sources.ids), std::move(results.ids)}};
}

template <class Arguments, class Result> struct Pullback {
  Recorded<Arguments, Result> recorded;

  template <class Cotangent> constexpr auto operator()(const Cotangent& cotangent, Here at = Here::current()) const {
    const RecordedFunction own = function_here(
        recorded.function, "[vjp] pullback: it is called outside of the body of the loop in which ts::vjp is called");
    const Growable<std::int32_t> given =
        matched(cotangent, own.context.at(Source::from(at)), own.values, MadeBy::vjp,
                "[vjp] cotangent: it must have the structure, element types and ranks of the function's result");
    Arguments gradients = recorded.arguments;
    replace_floating(gradients, own.context, own.pull(given));
    return without_tuple(gradients);
  }
};

/// The derivative as a linear function of tangents. Pulling cotangents back is linear in them, and the transpose of
/// that pushes tangents forward.
template <class Arguments, class Result> class Linearized {
 public:
  constexpr explicit Linearized(Recorded<Arguments, Result> recorded) : recorded_(std::move(recorded)) {
    const RecordedFunction& own = recorded_.function;
    pulled_.context = own.context;
    for (std::int32_t id : own.values) {
      const Value like = own.context.with(id);
      pulled_.variables.push_back(as_variable(build::broadcast(like.number(0), like)).id);
    }
    pulled_.values = own.pull(pulled_.variables);
  }

  template <class... Tangents> constexpr auto operator()(const Tangents&... tangents) const {
    return push(std::tuple(tangents...));
  }
  /// `source`: the line of errors; by default that of the arguments.
  template <class Tangents> constexpr auto push(const Tangents& tangents, Source source = {}) const {
    const RecordedFunction own = function_here(
        pulled_, "[linearize] call: it is outside of the body of the loop in which ts::linearize is called");
    // Shapes are those of the arguments, not of the gradients, which would be computed only for their shapes. The body
    // of a loop reads them outside.
    const bool is_here = own.context.graph == recorded_.function.context.graph;
    Growable<std::int32_t> shapes;
    for (const std::int32_t id : recorded_.function.variables)
      shapes.push_back(is_here ? id : here(build::shape_source(recorded_.function.context.with(id))).id);
    const Growable<std::int32_t> given =
        matched(tangents, source.line != 0 ? own.context.at(source) : own.context,
                is_here ? recorded_.function.variables : own.values, shapes, MadeBy::jvp,
                "[jvp] tangents: they must have the structure, element types and ranks of the function's arguments");
    Result made = recorded_.result;
    replace_floating(made, own.context, own.pull(given));
    return made;
  }
  constexpr const Result& result() const { return recorded_.result; }

 private:
  Recorded<Arguments, Result> recorded_;
  RecordedFunction pulled_;  ///< the gradients of the arguments, as functions of cotangents of the results
};

template <class F, class... Primals> constexpr auto vjp_at(Source line, const F& f, const Primals&... primals) {
  const auto arguments = std::tuple<decltype(settle(primals))...>(settle(primals)...);
  const Value context = trace_of_derivative("vjp", arguments, line);
  auto recorded = record(f, arguments, context.source);
  auto y = recorded.result;
  using Made = Pullback<std::remove_const_t<decltype(arguments)>, decltype(y)>;
  return std::tuple(std::move(y), Made{std::move(recorded)});
}
template <class F, class... Primals> constexpr auto linearize_at(Source line, const F& f, const Primals&... primals) {
  const auto arguments = std::tuple<decltype(settle(primals))...>(settle(primals)...);
  const Value context = trace_of_derivative("linearize", arguments, line);
  auto recorded = record(f, arguments, context.source);
  auto y = recorded.result;
  Linearized made(std::move(recorded));
  return std::tuple(std::move(y), std::move(made));
}

}  // namespace detail

/// Inside a traced function: `auto [y, pullback] = ts::vjp(f, x, ...)`, as jax.vjp. y is f(x, ...); pullback(cotangent)
/// is the product of a cotangent of y with the Jacobian of f: a structure like x, or a tuple of these for several
/// arguments. It can be called several times, also in a ts::vmap, or in the body of a loop, which computes again there
/// what depends on x.
///
/// Arguments and y are tensors or structures of tensors. Integer tensors, Dims and Scalars have no gradient and are
/// copied. Errors: structure for a cotangent unlike y.
template <class F, class X> constexpr auto vjp(const F& f, const X& x, Here at = Here::current()) {
  return detail::vjp_at(Source::from(at), f, x);
}
template <class F, class X, class Y> constexpr auto vjp(const F& f, const X& x, const Y& y, Here at = Here::current()) {
  return detail::vjp_at(Source::from(at), f, x, y);
}
template <class F, class P1, class P2, class P3>
constexpr auto vjp(const F& f, const P1& p1, const P2& p2, const P3& p3, Here at = Here::current()) {
  return detail::vjp_at(Source::from(at), f, p1, p2, p3);
}
template <class F, class P1, class P2, class P3, class P4>
constexpr auto vjp(const F& f, const P1& p1, const P2& p2, const P3& p3, const P4& p4, Here at = Here::current()) {
  return detail::vjp_at(Source::from(at), f, p1, p2, p3, p4);
}
template <class F, class P1, class P2, class P3, class P4, class P5>
constexpr auto vjp(const F& f, const P1& p1, const P2& p2, const P3& p3, const P4& p4, const P5& p5,
                   Here at = Here::current()) {
  return detail::vjp_at(Source::from(at), f, p1, p2, p3, p4, p5);
}
template <class F, class P1, class P2, class P3, class P4, class P5, class P6>
constexpr auto vjp(const F& f, const P1& p1, const P2& p2, const P3& p3, const P4& p4, const P5& p5, const P6& p6,
                   Here at = Here::current()) {
  return detail::vjp_at(Source::from(at), f, p1, p2, p3, p4, p5, p6);
}
template <class F, class... Primals>
  requires(sizeof...(Primals) > 6)
constexpr auto vjp(const F& f, const Primals&... primals) {
  return detail::vjp_at({}, f, primals...);
}

/// Inside a traced function: `auto [y, f_jvp] = ts::linearize(f, x, ...)`, as jax.linearize. f_jvp(tangent, ...) is the
/// product of the Jacobian of f with tangents of its arguments, in the structure of y. Nothing but what the product
/// needs is computed. Errors: structure for tangents unlike the arguments.
template <class F, class X> constexpr auto linearize(const F& f, const X& x, Here at = Here::current()) {
  return detail::linearize_at(Source::from(at), f, x);
}
template <class F, class X, class Y>
constexpr auto linearize(const F& f, const X& x, const Y& y, Here at = Here::current()) {
  return detail::linearize_at(Source::from(at), f, x, y);
}
template <class F, class P1, class P2, class P3>
constexpr auto linearize(const F& f, const P1& p1, const P2& p2, const P3& p3, Here at = Here::current()) {
  return detail::linearize_at(Source::from(at), f, p1, p2, p3);
}
template <class F, class P1, class P2, class P3, class P4>
constexpr auto linearize(const F& f, const P1& p1, const P2& p2, const P3& p3, const P4& p4,
                         Here at = Here::current()) {
  return detail::linearize_at(Source::from(at), f, p1, p2, p3, p4);
}
template <class F, class P1, class P2, class P3, class P4, class P5>
constexpr auto linearize(const F& f, const P1& p1, const P2& p2, const P3& p3, const P4& p4, const P5& p5,
                         Here at = Here::current()) {
  return detail::linearize_at(Source::from(at), f, p1, p2, p3, p4, p5);
}
template <class F, class P1, class P2, class P3, class P4, class P5, class P6>
constexpr auto linearize(const F& f, const P1& p1, const P2& p2, const P3& p3, const P4& p4, const P5& p5, const P6& p6,
                         Here at = Here::current()) {
  return detail::linearize_at(Source::from(at), f, p1, p2, p3, p4, p5, p6);
}
template <class F, class... Primals>
  requires(sizeof...(Primals) > 6)
constexpr auto linearize(const F& f, const Primals&... primals) {
  return detail::linearize_at({}, f, primals...);
}

/// Inside a traced function: (f(x), the product of f's Jacobian with the tangent v), as jax.jvp. For a function of
/// several arguments, x and v are tuples of these: `ts::jvp(f, std::tuple(x, w), std::tuple(v, u))`.
template <class F, class Primals, class Tangents>
constexpr auto jvp(const F& f, const Primals& primals, const Tangents& tangents, Here at = Here::current()) {
  const auto arguments = detail::as_arguments(primals);
  const Value context = detail::trace_of_derivative("jvp", arguments, Source::from(at));
  const detail::Linearized made(detail::record(f, arguments, context.source));
  return std::tuple(made.result(), made.push(tangents, Source::from(at)));
}

/// Inside a traced function: the product of the Hessian of a scalar function f at x with v, a structure like x. For a
/// function of several arguments, x and v are tuples of these.
template <class F, class Primals, class Direction>
constexpr auto hvp(const F& f, const Primals& primals, const Direction& direction, Here at = Here::current()) {
  const auto arguments = detail::as_arguments(primals);
  const auto gradient = [&]<class... Own>(const Own&... own) {
    return grad([&](const auto& all) { return detail::applied(f, all); }, at)(std::tuple<Own...>(own...));
  };
  const Value context = detail::trace_of_derivative("hvp", arguments, Source::from(at));
  const auto recorded = detail::record(gradient, arguments, context.source);
  const Growable<std::int32_t> given = detail::matched(
      direction, recorded.function.context.at(Source::from(at)), recorded.function.variables, MadeBy::hvp,
      "[hvp] direction: it must have the structure, element types and ranks of the arguments");
  auto made = recorded.arguments;
  detail::replace_floating(made, recorded.function.context, recorded.function.pull(given));
  return detail::without_tuple(made);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
