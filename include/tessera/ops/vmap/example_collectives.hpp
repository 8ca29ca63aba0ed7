#ifndef TESSERA_OPS_VMAP_EXAMPLE_COLLECTIVES_HPP
#define TESSERA_OPS_VMAP_EXAMPLE_COLLECTIVES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/shard_map/axis_text.hpp>
#include <tessera/ops/shard_map/routes.hpp>
#include <tessera/ops/vmap/example_rows.hpp>

namespace tessera {

/// The name of the axis along which ts::vmap maps: `ts::axis_name<"batch">`. Collectives in the function of the vmap
/// reduce over it.
template <FixedString Axis> struct AxisName {
  static_assert(Axis.view().size() <= Name::max_length, "tessera: the name of an axis has at most 15 characters");
  static constexpr Name name{Axis.view()};
};
template <FixedString Axis> inline constexpr AxisName<Axis> axis_name{};

namespace detail {

/// A tensor in the function of a vmap; the collectives of local values are in shard_map/local_collectives.hpp.
template <class X>
concept ExampleOperand = TensorOperand<X> && !LocalOperand<X>;

template <FixedString Axis>
inline constexpr auto without_axis =
    with_axis<"[vmap] collective over the axis '@': the call is in the function of no ts::vmap with "
              "ts::axis_name<\"@\">, and the operand is not a local value of a ts::shard_map",
              Axis>();
/// The index of the example in the vmap over an axis, in the graph that is being traced.
template <FixedString Axis> constexpr Value index_of_example(const Value& context) {
  if (context.module == nullptr)
    fail(errc::unsupported, "[vmap] collective outside of a traced function: it is for the function of a ts::vmap");
  Module& module = *context.module;
  for (std::size_t depth = module.open.size(); depth > 0; --depth)
    if (const OpenBody& body = module.open[depth - 1]; body.axis.view() == Axis.view())
      return here({&module, body.graph, body.index_of_example, context.source});
  context.refuse(errc::structure, without_axis<Axis>.text);
  return context.integer(0, DType::i32);
}
template <class X> constexpr Value example_value(const X& x, const Here& at) {
  return as_sym(x).value.at(Source::from(at));
}
constexpr Value examples_of(const Value& index) { return build::extent(build::gather_examples(index, index, 0), 0); }

template <FixedString... Axes, class X> constexpr Value sum_over_examples(const X& x, const Here& at) {
  static_assert(sizeof...(Axes) > 0, "tessera: a collective needs at least one axis, as in ts::psum<\"batch\">(x)");
  Value sum = here(example_value(x, at));
  ((sum = build::sum_examples(sum, index_of_example<Axes>(sum))), ...);
  return sum;
}
template <Op O, FixedString... Axes, class X> constexpr auto extreme_over_examples(const X& x, const Here& at) {
  static_assert(sizeof...(Axes) > 0, "tessera: a collective needs at least one axis, as in ts::pmax<\"batch\">(x)");
  static_assert(X::rank + 2 <= max_rank, "tessera: the operand of a ts::pmax over the examples of a ts::vmap has at "
                                         "most 6 dims");
  Value best = here(example_value(x, at));
  ((best = build::reduce(O, build::gather_examples(best, index_of_example<Axes>(best), 0), 1u, false)), ...);
  return Sym<typename X::element, X::rank>(best);
}

template <FixedString Axis, class Routes, class X>
constexpr auto permute_examples(const X& x, const Routes& routes, const Here& at) {
  static_assert(X::rank + 2 <= max_rank, "tessera: the operand of a ppermute over the examples of a ts::vmap has at "
                                         "most 6 dims");
  const Value own = here(example_value(x, at)), index = index_of_example<Axis>(own);
  const Value all = build::gather_examples(own, index, 0);
  Growable<std::int32_t> operands{all.id};
  add_routes(all, operands, routes);
  return Sym<typename X::element, X::rank>(build::own_example(permuted(all, operands, 0), index, 0));
}
/// The factors of a rearrange, in the order of the operand's dims, then in that of the result's.
struct ExampleFactors {
  Factors f{};
  Value sizes[max_rank]{};
  int placed = 0;
  constexpr int add(int in_dim) {
    f.in_dim[f.count] = static_cast<std::int8_t>(in_dim);
    return f.count++;
  }
  constexpr void place(int factor, int out_dim) {
    f.order[placed] = static_cast<std::int8_t>(factor);
    f.out_dim[placed++] = static_cast<std::int8_t>(out_dim);
  }
};

}  // namespace detail

// Collectives by the name of the axis of a ts::vmap, as in JAX: reductions over its examples, whose results are the
// same for all of them. The vmap may be any that is around the call, also with a loop, a branch or another vmap
// between. A gradient that is taken in the function is that of the sum of all examples' losses, as in JAX.
// Communication: where examples are split, that of the reduction over a split dim. Errors: `structure` for a name that
// no vmap around has.

/// The sum of x over the examples of the vmap, or of several vmaps, the same for all examples. Communication of these
/// collectives: that of an operation along the dim of examples, such as an all_reduce of one example's size for a sum
/// over split examples; none if examples are not split.
template <FixedString... Axes, detail::ExampleOperand X> constexpr auto psum(const X& x, Here at = Here::current()) {
  return Sym<typename X::element, X::rank>(detail::sum_over_examples<Axes...>(x, at));
}
/// The mean over the examples. Otherwise as psum.
template <FixedString... Axes, detail::ExampleOperand X> constexpr auto pmean(const X& x, Here at = Here::current()) {
  static_assert(is_floating_v<typename X::element>, "tessera: pmean takes float, double, bf16 and f16 tensors");
  const Value sum = detail::sum_over_examples<Axes...>(x, at);
  Value count = sum.number(1, DType::i64);
  ((count = count * detail::examples_of(detail::index_of_example<Axes>(sum))), ...);
  const Value share = sum.number(1, DType::f64) / build::cast(count, DType::f64);
  return Sym<typename X::element, X::rank>(sum * build::cast(share, sum.dtype()));
}
/// The elementwise maximum (minimum) over the examples. Gradient: examples that share the extreme get equal parts.
template <FixedString... Axes, detail::ExampleOperand X> constexpr auto pmax(const X& x, Here at = Here::current()) {
  return detail::extreme_over_examples<Op::max, Axes...>(x, at);
}
template <FixedString... Axes, detail::ExampleOperand X> constexpr auto pmin(const X& x, Here at = Here::current()) {
  return detail::extreme_over_examples<Op::min, Axes...>(x, at);
}
/// The sum over the examples, of which example i keeps the i-th part along dim D; that dim becomes extent / examples.
/// Errors: not_divisible.
template <FixedString Axis, int D, detail::ExampleOperand X>
constexpr auto psum_scatter(const X& x, Here at = Here::current()) {
  static_assert(X::rank + 2 <= max_rank,
                "tessera: the operand of a psum_scatter over the examples of a ts::vmap has at "
                "most 6 dims");
  constexpr int dim = detail::checked_dim<D, X::rank>();
  const Value sum = detail::sum_over_examples<Axis>(x, at), index = detail::index_of_example<Axis>(sum);
  // [.., (example rest), ..] -> [example, .., rest, ..]
  detail::ExampleFactors made;
  int example = 0, own[max_rank]{};
  for (int d = 0; d < X::rank; ++d) {
    if (d == dim) made.sizes[example = made.add(d)] = detail::examples_of(index);
    own[d] = made.add(d);
  }
  made.place(example, 0);
  for (int d = 0; d < X::rank; ++d) made.place(own[d], d + 1);
  const Value parts = detail::rearrange(sum, X::rank, X::rank + 1, made.f, made.sizes);
  return Sym<typename X::element, X::rank>(build::own_example(parts, index, 0));
}
/// The value of the example from which a route leads to this one; zeros where none does.
template <FixedString Axis, detail::ExampleOperand X>
constexpr auto ppermute(const X& x, const Shift& shift, Here at = Here::current()) {
  return detail::permute_examples<Axis>(x, shift, at);
}
template <FixedString Axis, detail::ExampleOperand X>
constexpr auto ppermute(const X& x, std::initializer_list<Route> routes, Here at = Here::current()) {
  return detail::permute_examples<Axis>(x, routes, at);
}
/// The index of the example, an i32 scalar. `x` is any tensor of the traced function.
template <FixedString Axis, detail::ExampleOperand X> constexpr auto axis_index(const X& x, Here at = Here::current()) {
  return Sym<std::int32_t, 0>(detail::index_of_example<Axis>(here(detail::example_value(x, at))));
}
/// The number of examples. `x` is any tensor of the traced function.
template <FixedString Axis, detail::ExampleOperand X> constexpr Dim axis_size(const X& x, Here at = Here::current()) {
  return Dim(detail::examples_of(detail::index_of_example<Axis>(here(detail::example_value(x, at)))));
}

namespace collective {

/// Concatenates the values of all examples in dim D; the result is the same for all examples.
/// `all_gather(ts::unsqueeze<D>(x))` stacks them in a new dim.
template <FixedString Axis, int D, tessera::detail::ExampleOperand X>
constexpr auto all_gather(const X& x, Here at = Here::current()) {
  namespace td = tessera::detail;
  constexpr int dim = td::checked_dim<D, X::rank>();
  static_assert(X::rank + 1 <= max_rank - 1,
                "tessera: the operand of an all_gather over the examples of a ts::vmap has "
                "at most 6 dims");
  const Value own = here(td::example_value(x, at));
  const Value all = build::gather_examples(own, td::index_of_example<Axis>(own), dim);
  // [.., examples, own, ..] -> [.., (examples own), ..]
  Factors f{};
  for (int d = 0; d < all.rank(); ++d) {
    if (all.is_singleton(d)) continue;
    f.in_dim[static_cast<int>(f.count)] = static_cast<std::int8_t>(d);
    f.order[static_cast<int>(f.count)] = f.count;
    f.out_dim[static_cast<int>(f.count++)] = static_cast<std::int8_t>(d > dim ? d - 1 : d);
  }
  return Sym<typename X::element, X::rank>(build::rearrange(all, X::rank, f, nullptr));
}

/// Cuts each value along dim Split into as many parts as there are examples; part i goes to example i, which
/// concatenates the parts that it gets along dim Concat. Errors: not_divisible.
template <FixedString Axis, int Split, int Concat, tessera::detail::ExampleOperand X>
constexpr auto all_to_all(const X& x, Here at = Here::current()) {
  namespace td = tessera::detail;
  static_assert(X::rank + 2 <= max_rank, "tessera: the operand of an all_to_all over the examples of a ts::vmap has at "
                                         "most 6 dims");
  constexpr int split = td::checked_dim<Split, X::rank>(), join = td::checked_dim<Concat, X::rank>();
  const Value value = here(td::example_value(x, at)), index = td::index_of_example<Axis>(value);
  const Value all = build::gather_examples(value, index, 0);
  // [source, .., (example rest), .., own, ..] -> [example, .., rest, .., (source own), ..]
  td::ExampleFactors made;
  const int source = made.add(0);
  int example = 0, own[max_rank]{};
  for (int d = 0; d < X::rank; ++d) {
    if (d == split) made.sizes[example = made.add(d + 1)] = td::examples_of(index);
    own[d] = made.add(d + 1);
  }
  made.place(example, 0);
  for (int d = 0; d < X::rank; ++d) {
    if (d == join) made.place(source, d + 1);
    made.place(own[d], d + 1);
  }
  const Value parts = td::rearrange(all, X::rank + 1, X::rank + 1, made.f, made.sizes);
  return Sym<typename X::element, X::rank>(build::own_example(parts, index, 0));
}

}  // namespace collective

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
