#ifndef TESSERA_OPS_SHARD_MAP_SHARD_MAP_HPP
#define TESSERA_OPS_SHARD_MAP_SHARD_MAP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/ops/shard_map/local_collectives.hpp>

namespace tessera {

namespace detail {

/// The spec of a value with leading dims, whose own dims are sharded by `spec`.
constexpr PartitionSpec with_leads(const ShardMapText& text, const LocalValue& x, const LocalSpec& spec) {
  PartitionSpec whole = lead_spec(text, x.value, x.varying, x.varying);
  const std::size_t leads = x.value.rank() < x.rank ? 0 : static_cast<std::size_t>(x.value.rank() - x.rank);
  const PartitionSpec own = spec.resolved(text.axes);
  for (std::size_t d = 0; d < own.entries.size(); ++d) whole.entries[leads + d] = own.entries[d];
  return whole;
}

/// Makes the local value of an argument: splits the axes of its spec off its dims, to leading dims after those of an
/// enclosing shard_map.
constexpr Value enter_shard_map(const ShardMapText& text, const LocalSpec& spec, const LocalValue& x) {
  const int rank = x.rank, leads = bit_count(x.varying);
  if (x.value.rank() != rank + leads) {
    x.value.refuse(errc::unsupported, "[shard_map] fields of all layers: call shard_map inside the block of the Stack");
    return outlined(x.value, x.value.dtype(), rank + bit_count(x.varying | spec.mask));
  }
  const Value whole = placed(text, x.value, with_leads(text, x, spec));
  LocalFactors made;
  int own[max_rank]{}, device[ShardMapText::max_names]{};
  for (int d = 0; d < leads; ++d) made.add(d);
  for (int d = 0; d < rank; ++d) {
    for (int i = 0; d < spec.rank && i < spec.count[d]; ++i) {
      const int axis = spec.axes[d][i];
      made.sizes[device[axis] = made.add(leads + d)] = axis_size_of(whole, text.axes[axis]);
    }
    own[d] = made.add(leads + d);
  }
  int position = 0;
  const auto place = [&](int factor) {
    made.f.order[position] = static_cast<std::int8_t>(factor);
    made.f.out_dim[position] = static_cast<std::int8_t>(position);
    ++position;
  };
  for (int d = 0; d < leads; ++d) place(d);
  for (int axis = 0; axis < text.axis_count; ++axis)
    if ((spec.mask >> axis & 1u) != 0) place(device[axis]);
  for (int d = 0; d < rank; ++d) place(own[d]);
  return rearrange(whole, leads + rank, position, made.f, made.sizes, {leads});
}

/// Makes a result from a local value: the leading dims of the axes in its spec are merged into its dims. Those of an
/// enclosing shard_map (`outer`) stay.
constexpr Value leave_shard_map(const ShardMapText& text, const LocalSpec& spec, const LocalValue& given,
                                unsigned outer = 0) {
  const LocalValue x = narrowed(given, outer | spec.mask);
  const unsigned all = x.varying | spec.mask;
  const Value whole = extended(text, x, all, spec.mask);
  const int leads = bit_count(all), staying = bit_count(all & ~spec.mask);
  LocalFactors made;
  for (int d = 0; d < whole.rank(); ++d) made.add(d);
  int position = 0;
  for (int out = 0; out < staying + x.rank; ++out) {
    const int d = out - staying;
    const auto place = [&](int factor) {
      made.f.order[position] = static_cast<std::int8_t>(factor);
      made.f.out_dim[position++] = static_cast<std::int8_t>(out);
    };
    for (int i = 0; d >= 0 && d < spec.rank && i < spec.count[d]; ++i) place(lead_of(all, spec.axes[d][i]));
    place(d < 0 ? out : leads + d);
  }
  const LocalValue left{rearrange(whole, whole.rank(), staying + x.rank, made.f, nullptr, {staying}), all & ~spec.mask,
                        x.rank};
  return placed(text, left.value, with_leads(text, left, spec));
}

/// A struct of tensors, or a Stack: the function of the shard_map gets it as such.
template <class X>
inline constexpr bool is_tensor_struct_v =
    is_stack_v<X> || (!Operand<X> && !is_tuple_v<X> && std::is_class_v<X> && std::is_aggregate_v<X>);
template <class X> inline constexpr bool takes_spec_v = TensorOperand<X> || is_tensor_struct_v<X>;

/// Counts the tensors of a struct; of a Stack, those of a layer.
struct CountTensors {
  int count = 0;
  template <class Leaf> constexpr void leaf(Leaf&) { count += StoredOperand<std::remove_const_t<Leaf>> ? 1 : 0; }
  template <class Block> constexpr void enter_stack(const Stack<Block>& stack) {
    if (stack.size() > 0) return;  // its layer follows
    Block layer{};
    for_each_leaf(layer, *this);
  }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class X> constexpr int tensors_of() {
  X object{};
  CountTensors counter;
  for_each_leaf(object, counter);
  return counter.count;
}
struct LocalLeaves {
  const ShardMapText& text;
  SpecItem item;
  Source source;
  int next = 0;
  bool in_stack = false;
  constexpr const LocalSpec& take(const LocalSpec* specs, int rank) {
    const LocalSpec& spec = specs[item.of_leaf(next++)];
    if (spec.rank > rank)
      fail(errc::spec_rank, "[shard_map] spec of a struct: more entries than a tensor of the struct has dims");
    return spec;
  }
  constexpr void enter_stack(const auto&) { in_stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }

 protected:
  /// f of a tensor; in a Stack, of each layer.
  template <class F>
  constexpr Value apply(const Value& x, const F& f, Storage slices = Storage::block,
                        Storage results = Storage::block) const {
    if (!in_stack) return f(x);
    BodyTrace body(*x.module, {.scan = true});
    const Value made = f(body.slice(x, slices).at(source));
    body.give(made);
    const Node type = build::stacked_type(made.node());
    return build::project(body.close(x, source), 0, type, results);
  }
};
struct EnterLeaves : LocalLeaves {
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>) {
      if (!leaf.traced())
        fail(errc::unsupported,
             "[shard_map] a struct of stored tensors: call shard_map inside a function of ts::compile");
      const LocalSpec& spec = take(text.in, Leaf::rank);
      const auto enter = [&](const Value& x) {
        const LocalValue entered{enter_shard_map(text, spec, {x, 0, Leaf::rank}), spec.mask, Leaf::rank};
        return aligned(entered, (1u << text.axis_count) - 1, Leaf::rank);
      };
      Value made = apply(here(leaf.placeholder()).at(source), enter, Storage::layer);
      made.graph = ~made.graph;
      leaf = Leaf(made);
    }
  }
};
struct LeaveLeaves : LocalLeaves {
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>) {
      const LocalSpec& spec = take(text.out, Leaf::rank);
      const auto leave = [&](const Value& x) {
        return leave_shard_map(text, spec, {x, (1u << text.axis_count) - 1, Leaf::rank});
      };
      const LocalValue local = taken_from_struct(text, leaf.placeholder(), Leaf::rank, source);
      leaf = Leaf(apply(local.value, leave, Storage::block, Storage::layers));
    }
  }
};
/// Finds the first tensor of a struct, which tells the trace to which it belongs.
struct FirstTensor {
  Value found{};
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>)
      if (found.module == nullptr) found = leaf.placeholder();
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class X> constexpr Value trace_of_argument(const X& x) {
  if constexpr (Operand<X>) {
    return trace_of(x);
  } else {
    FirstTensor first;
    for_each_leaf(x, first);
    return first.found;
  }
}
template <class X> constexpr decltype(auto) argument_in(const Value& context, const X& x) {
  if constexpr (Operand<X>)
    return lower(context, x);
  else
    return (x);
}

/// How many of the arguments before argument i have specs: the index of argument i's spec.
template <class... Xs> constexpr int tensors_before(std::size_t i) {
  const bool tensor[] = {takes_spec_v<Xs>..., false};
  int count = 0;
  for (std::size_t k = 0; k < i; ++k) count += tensor[k] ? 1 : 0;
  return count;
}

/// The axes of an enclosing shard_map along which an argument varies.
template <class X> constexpr unsigned outer_varying_of() {
  if constexpr (LocalOperand<X>)
    return X::varying;
  else
    return 0;
}
template <class... Xs> struct OuterRegion {
  using type = void;
};
template <class... Xs>
  requires(LocalOperand<Xs> || ...)
struct OuterRegion<Xs...> {
  using type = typename FirstLocal<Xs...>::type::region;
};
/// Whether all tensor arguments of a nested shard_map are local values of the enclosing one.
template <class Outer, class... Xs> constexpr bool of_one_region() {
  if constexpr (std::is_void_v<Outer>)
    return true;
  else
    return !Outer::structs && ((NumberOperand<Xs> || LocalOperandOf<Outer, Xs>::known) && ...);
}

/// The type of an argument inside the function, and how its value is made.
template <class Region, class X, int Spec> struct Entered {
  static_assert(std::is_same_v<X, Dim> || std::is_same_v<X, Scalar>,
                "tessera: the arguments of a shard_map are tensors, each with a spec, and ts::Dim and ts::Scalar, "
                "without a spec");
  using type = X;
  static constexpr type make(const Value& x, Source) { return type(x); }
};
template <class Region, TensorOperand X, int Spec> struct Entered<Region, X, Spec> {
  static constexpr LocalSpec spec = Region::text.in[Region::text.in_items[Spec].first];
  static_assert(Region::text.in_items[Spec].count == 1,
                "tessera: a list of specs [{..}, {..}] of a shard_map is for a struct, not for a tensor");
  static_assert(spec.rank <= X::rank, "tessera: an in spec of a shard_map has more entries than the argument has dims");
  static_assert(
      X::rank + bit_count(spec.mask) <= max_rank,
      "tessera: the dims of a tensor in a shard_map and the axes that split the tensor are at most 8 together");
  static constexpr unsigned varying = outer_varying_of<X>();
  using type = Local<typename X::element, X::rank, Region, varying | spec.mask>;
  static constexpr type make(const Value& x, Source) {
    return type(enter_shard_map(Region::text, spec, {x, varying, X::rank}));
  }
};
template <class Region, class X, int Spec>
  requires(is_tensor_struct_v<X>)
struct Entered<Region, X, Spec> {
  static constexpr SpecItem item = Region::text.in_items[Spec];
  static_assert(!item.list || item.count == tensors_of<X>(),
                "tessera: a list of specs of a shard_map has a spec for each tensor of the struct, in the order of the "
                "fields");
  using type = X;
  static constexpr type make(X x, Source source) {
    EnterLeaves enter{{Region::text, item, source}};
    for_each_leaf(x, enter);
    return x;
  }
};

/// Fails with the axis as a template argument, which compilers print.
template <Name Axis, bool Equal> constexpr bool check_axis_of_result() {
  static_assert(Equal, "tessera: a result of a shard_map varies along an axis that its out spec does not name; reduce "
                       "the result with ts::psum, ts::pmean or ts::pmax, or name the axis in the out spec");
  return true;
}
/// Whether a result of the function can be returned with its spec; if not, a static_assert says why.
template <class Region, class R, int Spec> constexpr bool may_leave() {
  constexpr bool whole = StoredOperand<R> || is_tensor_struct_v<R>;
  static_assert(
      LocalOperand<R> || whole,
      "tessera: the function of a shard_map returns a local tensor, a struct of tensors, or a tuple of these; a "
      "collective of a tensor in a struct takes ts::local_of(own.up, x), where x is any local value");
  constexpr SpecItem item = Region::text.out_items[Spec];
  if constexpr (whole) {
    static_assert(!item.list || item.count == tensors_of<R>(),
                  "tessera: a list of specs of a shard_map has a spec for each tensor of the struct, in the order of "
                  "the fields");
    return !item.list || item.count == tensors_of<R>();
  } else if constexpr (LocalOperand<R>) {
    static_assert(item.count == 1,
                  "tessera: a list of specs [{..}, {..}] of a shard_map is for a struct, not for a tensor");
    constexpr LocalSpec spec = Region::text.out[item.first];
    static_assert(std::is_same_v<typename R::region, Region>,
                  "tessera: the function of a shard_map returns a local value of a different shard_map");
    static_assert(spec.rank <= R::rank,
                  "tessera: an out spec of a shard_map has more entries than the result has dims");
    constexpr unsigned left = Region::structs ? 0 : R::varying & ~spec.mask & ~((1u << Region::text.outer) - 1);
    static_assert(check_axis_of_result<Region::text.axes[left == 0 ? 0 : only_axis(left & (~left + 1))], left == 0>());
    return spec.rank <= R::rank && left == 0;
  }
  return false;
}
template <class Region, int Spec, class R> constexpr auto leave_as_sym(const R& result, Source source) {
  constexpr SpecItem item = Region::text.out_items[Spec];
  if constexpr (LocalOperand<R>) {
    constexpr unsigned around = (1u << Region::text.outer) - 1;
    const Value left = leave_shard_map(Region::text, Region::text.out[item.first],
                                       {result.value.at(source), R::varying, R::rank}, around);
    if constexpr (std::is_void_v<typename Region::outer>)
      return Sym<typename R::element, R::rank>(left);
    else
      return Local<typename R::element, R::rank, typename Region::outer, R::varying & around>(left);
  } else {
    R whole = result;
    LeaveLeaves leave{{Region::text, item, source}};
    for_each_leaf(whole, leave);
    return whole;
  }
}

/// Results of a call that does not compile, so that no further errors follow.
template <class Outer, class Traced> constexpr auto unmade_results(const Value& context) {
  if constexpr (is_tuple_v<Traced>)
    return [&]<template <class...> class Tuple, class... Rs>(std::type_identity<Tuple<Rs...>>) {
      return std::tuple(unmade_results<Outer, Rs>(context)...);
    }(std::type_identity<Traced>());
  else if constexpr (LocalOperand<Traced> && !std::is_void_v<Outer>)
    return Local<typename Traced::element, Traced::rank, Outer, 0>(
        stand_in(context, dtype_v<typename Traced::element>, Traced::rank));
  else if constexpr (LocalOperand<Traced>)
    return Sym<typename Traced::element, Traced::rank>(
        stand_in(context, dtype_v<typename Traced::element>, Traced::rank));
  else
    return Sym<float, 0>(stand_in(context, DType::f32, 0));
}

/// Fails with the axis as a template argument, which compilers print.
template <Name Axis, bool Apart> constexpr bool check_axis_of_nested_shard_map() {
  static_assert(Apart,
                "tessera: an axis of the inner shard_map is a manual axis of the outer shard_map already; nested "
                "shard_maps need different axes");
  return Apart;
}
template <class Region> constexpr bool axes_apart() {
  constexpr int shared = Region::text.shared;
  return check_axis_of_nested_shard_map<Region::text.axes[shared < 0 ? 0 : shared], (shared < 0)>();
}

template <FixedString Text, class F, class... Xs> struct ShardMapTag {
  using Outer = typename OuterRegion<Xs...>::type;
  using Region = ShardMapRegion<Text, (is_tensor_struct_v<Xs> || ...), Outer>;
  static constexpr bool one_region = of_one_region<Outer, Xs...>();
  static constexpr bool apart = axes_apart<Region>();
  static constexpr int tensors = tensors_before<Xs...>(sizeof...(Xs));
  static constexpr bool right_count = (tensors == Region::text.ins || !Region::text.valid) && one_region && apart;

  /// Calls the function with the local values of these arguments; returns a local value or a tuple of them.
  template <class... Values> static constexpr auto run(const Value& context, const Values&... values) {
    const FieldsScope scope(*context.module, FieldsOfRegion<Region>::fields);
    return run(std::index_sequence_for<Xs...>(), context.source, values...);
  }
  template <std::size_t... I, class... Values>
  static constexpr auto run(std::index_sequence<I...>, Source source, const Values&... values) {
    return F{}(Entered<Region, Xs, tensors_before<Xs...>(I)>::make(values, source)...);
  }
  template <std::size_t... I> static constexpr bool callable(std::index_sequence<I...>) {
    return requires { F{}(typename Entered<Region, Xs, tensors_before<Xs...>(I)>::type()...); };
  }
  template <std::size_t... I>
    requires(std::is_empty_v<F> && Region::text.valid && right_count)
  static auto traced_as(std::index_sequence<I...>)
      -> decltype(F{}(typename Entered<Region, Xs, tensors_before<Xs...>(I)>::type()...));
  static auto traced_as(...) -> Local<float, 0, Region, 0>;
  using traced = decltype(traced_as(std::index_sequence_for<Xs...>()));
  static constexpr bool takes_arguments = [] {
    if constexpr (!std::is_empty_v<F> || !Region::text.valid || !right_count)
      return true;
    else
      return callable(std::index_sequence_for<Xs...>());
  }();
  static constexpr bool single = !is_tuple_v<traced>;
  static constexpr bool expression = single && LocalOperand<traced> && (Operand<Xs> && ...) && std::is_void_v<Outer>;
  /// Whether all results can be returned with their specs.
  static constexpr bool leaves = [] {
    if constexpr (!std::is_empty_v<F> || !Region::text.valid || !right_count || !takes_arguments)
      return false;
    else if constexpr (single)
      return may_leave<Region, traced, 0>();
    else
      return []<std::size_t... I>(std::index_sequence<I...>) {
        return (may_leave<Region, std::tuple_element_t<I, traced>, static_cast<int>(I)>() && ...);
      }(std::make_index_sequence<std::tuple_size_v<traced>>());
  }();

  // What an expression of stored tensors needs.
  template <class...> struct result {
    using type = typename traced::element;
    static constexpr int rank = traced::rank;
  };
  template <class... Values> static constexpr Value emit(Value context, const Values&... values) {
    return leave_as_sym<Region, 0>(run(context, values.at(context.source)...), context.source).value;
  }
};

}  // namespace detail

/// A function on local values as a function on global tensors; see shard_map.
template <FixedString Text, class F> class ShardMapped {
 public:
  constexpr explicit ShardMapped(Source source) : source_(source) {}

  template <class... Xs> constexpr auto operator()(const Xs&... xs) const {
    static_assert(
        ((Operand<Xs> || detail::is_tensor_struct_v<Xs>)&&...),
        "tessera: the arguments of a shard_map are tensors and structs of tensors, each with a spec, and ts::Dim and "
        "ts::Scalar, without a spec");
    static_assert(std::is_empty_v<F>,
                  "tessera: the function of a shard_map can't capture variables; pass them as arguments");
    using Tag = detail::ShardMapTag<Text, F, Xs...>;
    using Region = typename Tag::Region;
    constexpr int results = [] {
      if constexpr (Tag::single)
        return 1;
      else
        return static_cast<int>(std::tuple_size_v<typename Tag::traced>);
    }();
    static_assert(
        Tag::one_region,
        "tessera: the arguments of an inner shard_map are local values of the outer shard_map, not structs; pass "
        "other values as arguments of both");
    static_assert(Tag::right_count || !Tag::one_region || !Tag::apart,
                  "tessera: the number of in specs of the shard_map differs from the number of tensor arguments");
    static_assert(Tag::takes_arguments, "tessera: the function of the shard_map can't be called with these arguments");
    constexpr bool called = std::is_empty_v<F> && Region::text.valid && Tag::right_count && Tag::takes_arguments;
    static_assert(results == Region::text.outs || !called,
                  "tessera: the number of out specs of the shard_map differs from the number of results");
    if constexpr (!called || results != Region::text.outs || !Tag::leaves) {
      Value context{};
      ((context = context.module == nullptr ? detail::trace_of_argument(xs) : context), ...);
      return detail::unmade_results<typename Tag::Outer, typename Tag::traced>(context);
    } else if constexpr (Tag::expression) {
      return call<Tag>(source_, xs...);
    } else {
      Value context{};
      ((context = context.module == nullptr ? detail::trace_of_argument(xs) : context), ...);
      if (context.module == nullptr)
        fail(errc::unsupported,
             "[shard_map] stored tensors: with structs or several results, call shard_map inside a function "
             "of ts::compile");
      context = context.at(source_);
      const auto made = Tag::run(context, detail::argument_in(context, xs)...);
      if constexpr (Tag::single)
        return detail::leave_as_sym<Region, 0>(made, source_);
      else
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
          return std::tuple(detail::leave_as_sym<Region, I>(std::get<I>(made), source_)...);
        }(std::make_index_sequence<static_cast<std::size_t>(results)>());
    }
  }

 private:
  Source source_;
};

/// Maps a function of local shards, written for one device, over the devices of a mesh: each argument is split as its
/// spec says, the function runs on each device's shards, and the devices' results are joined as the spec of the result
/// says:
///
///     auto y = ts::shard_map<"{data,model}, {model} -> {data}">([](auto x, auto w) {
///       return ts::psum<"model">(ts::matmul(x, w));
///     })(x, w);
///
/// The text has a spec in braces for each argument, `->`, and a spec for each result (those of a tuple in order). The
/// spec of a struct is for all its tensors, of a Stack for those of each layer; `[{..}, {..}]` has one for each tensor,
/// in the order of their declaration.
/// Axes in the text are manual: the only communication along them is by the collectives inside. Manual axes that no
/// spec names follow after a `;`. All other axes of the mesh stay automatic: the planner propagates shardings over them
/// and reduces as it does outside.
///
/// Inside, operations work on local tensors, and a shard_map over other axes can be nested. A result that varies along
/// an axis which its spec does not name does not compile. A result that is replicated over an axis in its spec is
/// repeated along the dim. The gradient is that of the whole function, from the transposes of the collectives. Errors:
/// not_divisible where axes don't divide a dim; spec_axis for an axis that the mesh lacks. Communication: the reshards
/// of arguments to their specs, and the collectives inside. Source: shard_map of JAX, with varying types.
template <FixedString Text, class F> constexpr auto shard_map(F, Here at = Here::current()) {
  return ShardMapped<Text, F>(Source::from(at));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
