#ifndef TESSERA_GRAPH_TRANSFORM_VJP_HPP
#define TESSERA_GRAPH_TRANSFORM_VJP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/planning.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Arguments of a function: the items of a tuple, or a single argument.
template <class T> constexpr auto as_arguments(const T& given) {
  if constexpr (is_tuple_v<T>)
    return settle(std::apply([](const auto&... items) { return std::tuple(items...); }, given));
  else
    return std::tuple(settle(given));
}

/// What of the arguments' types an answer has: one item stands for itself.
template <class Tuple> constexpr auto without_tuple(const Tuple& items) {
  if constexpr (std::tuple_size_v<Tuple> == 1)
    return std::get<0>(items);
  else
    return items;
}

/// The floating tensors of `given`, which must match those of a structure in number, element type and rank.
template <class T>
constexpr Growable<std::int32_t> matched(const T& given, const Value& context, const Growable<std::int32_t>& like,
                                         const char* rule) {
  const auto structure = as_carry(context, given);
  Floating found = floating_of(structure);
  bool same = found.ids.size() == like.size();
  for (std::size_t k = 0; k < like.size() && same; ++k) {
    Value own = context.with(found.ids[k]);
    const Node& wanted = context.with(like[k]).node();
    if (own.node().is_constant()) own = build::broadcast(build::cast(own, wanted.dtype), context.with(like[k]));
    found.ids[k] = own.id;
    same = own.dtype() == wanted.dtype && own.rank() == wanted.rank;
  }
  if (same) return found.ids;
  context.refuse(errc::structure, rule);
  Growable<std::int32_t> zeros;
  for (std::int32_t id : like) zeros.push_back(build::broadcast(context.with(id).number(0), context.with(id)).id);
  return zeros;
}

/// The results of a function as functions of variables in the place of its arguments.
template <class Arguments, class Result> struct Recorded {
  Arguments arguments;  ///< the variables
  Result result;
  Floating sources, results;
  Value context{};

  /// The cotangents of the arguments for those of the results.
  constexpr Growable<std::int32_t> pull(const Growable<std::int32_t>& cotangents) const {
    return differentiate(context, results.ids, cotangents, sources.ids);
  }
  constexpr void check_place(const char* rule) const {
    if (context.module->current != context.graph) context.refuse(errc::structure, rule);
  }
};

template <class F, class Arguments> constexpr auto record(const F& f, const Arguments& given, Source source) {
  const Value found = trace_in(given);
  if (found.module == nullptr)
    fail(errc::unsupported, "[vjp] outside of a traced function: call ts::vjp, ts::jvp, ts::linearize and ts::hvp "
                            "inside a function of ts::compile");
  Arguments arguments = given;
  Floating sources = make_variables(arguments);
  const Arguments& inside = arguments;
  auto result = settle(std::apply([&](const auto&... own) { return f(own...); }, inside));
  Floating results = floating_of(result);
  const Value context = here(found).at(source);
  return Recorded<Arguments, decltype(result)>{std::move(arguments), std::move(result), std::move(sources),
                                               std::move(results), context};
}

template <class Arguments, class Result> struct Pullback {
  Recorded<Arguments, Result> recorded;

  template <class Cotangent> constexpr auto operator()(const Cotangent& cotangent) const {
    recorded.check_place("[vjp] pullback: it is called in the body of another ts::scan or ts::Stack than ts::vjp");
    const Growable<std::int32_t> given =
        matched(cotangent, recorded.context, recorded.results.ids,
                "[vjp] cotangent: it must have the structure, element types and ranks of the function's result");
    Arguments gradients = recorded.arguments;
    replace_floating(gradients, recorded.context, recorded.pull(given));
    return without_tuple(gradients);
  }
};

/// The derivative as a linear function of tangents. Pulling cotangents back is linear in them, and the transpose of
/// that pushes tangents forward.
template <class Arguments, class Result> class Linearized {
 public:
  constexpr explicit Linearized(Recorded<Arguments, Result> recorded) : recorded_(std::move(recorded)) {
    for (std::int32_t id : recorded_.results.ids) {
      const Value like = recorded_.context.with(id);
      cotangents_.push_back(as_variable(build::broadcast(like.number(0), like)).id);
    }
    pulled_ = recorded_.pull(cotangents_);
  }

  template <class... Tangents> constexpr auto operator()(const Tangents&... tangents) const {
    return push(std::tuple(tangents...));
  }
  template <class Tangents> constexpr auto push(const Tangents& tangents) const {
    recorded_.check_place("[linearize] call: it is called in the body of another ts::scan or ts::Stack than "
                          "ts::linearize");
    const Growable<std::int32_t> given =
        matched(tangents, recorded_.context, recorded_.sources.ids,
                "[jvp] tangents: they must have the structure, element types and ranks of the function's arguments");
    Result made = recorded_.result;
    replace_floating(made, recorded_.context, differentiate(recorded_.context, pulled_, given, cotangents_));
    return made;
  }
  constexpr const Result& result() const { return recorded_.result; }

 private:
  Recorded<Arguments, Result> recorded_;
  Growable<std::int32_t> cotangents_, pulled_;
};

}  // namespace detail

/// Inside a traced function: `auto [y, pullback] = ts::vjp(f, x, ...)`, as jax.vjp. y is f(x, ...); pullback(cotangent)
/// is the product of a cotangent of y with the Jacobian of f: a structure like x, or a tuple of these for several
/// arguments. It can be called several times.
///
/// Arguments and y are tensors or structures of tensors. Integer tensors, Dims and Scalars have no gradient and are
/// copied. Errors: structure for a cotangent unlike y.
template <class F, class... Primals> constexpr auto vjp(const F& f, const Primals&... primals) {
  const auto arguments = std::tuple<decltype(detail::settle(primals))...>(detail::settle(primals)...);
  const Value context = detail::trace_in(arguments);
  auto recorded = detail::record(f, arguments, context.source);
  auto y = recorded.result;
  using Made = detail::Pullback<std::remove_const_t<decltype(arguments)>, decltype(y)>;
  return std::tuple(std::move(y), Made{std::move(recorded)});
}

/// Inside a traced function: `auto [y, f_jvp] = ts::linearize(f, x, ...)`, as jax.linearize. f_jvp(tangent, ...) is the
/// product of the Jacobian of f with tangents of its arguments, in the structure of y. Nothing but what the product
/// needs is computed. Errors: structure for tangents unlike the arguments.
template <class F, class... Primals> constexpr auto linearize(const F& f, const Primals&... primals) {
  const auto arguments = std::tuple<decltype(detail::settle(primals))...>(detail::settle(primals)...);
  const Value context = detail::trace_in(arguments);
  auto recorded = detail::record(f, arguments, context.source);
  auto y = recorded.result;
  detail::Linearized made(std::move(recorded));
  return std::tuple(std::move(y), std::move(made));
}

/// Inside a traced function: (f(x), the product of f's Jacobian with the tangent v), as jax.jvp. For a function of
/// several arguments, x and v are tuples of these: `ts::jvp(f, std::tuple(x, w), std::tuple(v, u))`.
template <class F, class Primals, class Tangents>
constexpr auto jvp(const F& f, const Primals& primals, const Tangents& tangents) {
  const auto arguments = detail::as_arguments(primals);
  const Value context = detail::trace_in(arguments);
  const detail::Linearized made(detail::record(f, arguments, context.source));
  return std::tuple(made.result(), made.push(tangents));
}

/// Inside a traced function: the product of the Hessian of a scalar function f at x with v, a structure like x. For a
/// function of several arguments, x and v are tuples of these.
template <class F, class Primals, class Direction>
constexpr auto hvp(const F& f, const Primals& primals, const Direction& direction) {
  const auto arguments = detail::as_arguments(primals);
  const auto gradient = [&](const auto&... own) {
    return grad([&](const auto& all) { return std::apply(f, all); })(std::tuple(own...));
  };
  const Value context = detail::trace_in(arguments);
  const auto recorded = detail::record(gradient, arguments, context.source);
  const Growable<std::int32_t> given =
      detail::matched(direction, recorded.context, recorded.sources.ids,
                      "[hvp] direction: it must have the structure, element types and ranks of the arguments");
  auto made = recorded.arguments;
  detail::replace_floating(made, recorded.context, recorded.pull(given));
  return detail::without_tuple(made);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
