#ifndef TESSERA_OPS_CONTROL_FLOW_HPP
#define TESSERA_OPS_CONTROL_FLOW_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/carry_numbers.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/shard_map/local_carry.hpp>
#include <tessera/ops/vmap/example_struct.hpp>

namespace tessera {

/// Options of ts::scan.
struct ScanOptions {
  bool reverse = false;  ///< from the last step to the first
};

namespace detail {

/// Lists the tensors of a structure.
struct ListTensors {
  Growable<Value> values{};
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) values.push_back(here(turned(value_behind(leaf))));
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// Makes slices of xs as arguments of a body.
struct SliceOfBody {
  BodyTrace& body;
  /// The slice along dim `dim` of a value.
  constexpr Value operator()(const Value& x, int dim, Storage storage) const {
    return body.slice(build::move_dim(body.outside(x), dim, 0), storage);
  }
};
/// The layer of a Stack in a step.
template <class Take> struct TakeLayer {
  Take& take;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      const Value outer = turned(value_behind(leaf));
      const bool is_local = has_device_dims(leaf);
      if (!is_local && outer.rank() != Leaf::rank + 1)
        outer.refuse(errc::structure,
                     "[scan] operands: a Stack in xs has a field that is a Stack of all layers, or a field that was "
                     "replaced by a tensor without a dim of layers");
      replace_leaf(leaf, take(outer, 0, is_local ? Storage::block : Storage::layer));
    } else if (leaf.traced()) {
      leaf = Leaf(here(leaf.placeholder()));
    }
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// The xs of a scan whose steps run in groups (ts::unroll): each tensor as [groups, steps of a group, ...]. A step of
/// the scan gets a GroupOfSteps, in which each tensor is [steps of a group, ...].
template <class Xs> struct StepsInGroups {
  Xs xs;
  Growable<Value> tensors;
};
template <class Xs> struct GroupOfSteps {
  Xs xs;
  Growable<Value> tensors;
};
template <class T> inline constexpr bool is_in_groups_v = false;
template <class Xs> inline constexpr bool is_in_groups_v<StepsInGroups<Xs>> = true;
template <class Xs> struct LocalIn<StepsInGroups<Xs>> : LocalIn<Xs> {};
template <class Xs> constexpr Value trace_in(const StepsInGroups<Xs>& x) { return trace_in(x.xs); }

/// What the function of a scan gets of xs: a slice of each tensor without its leading dim, a layer of a Stack. A plain
/// struct of tensors arrives as a struct of its fields' slices if it is a template of the rank or of the types of
/// fields, else as a tuple of them, since its fields have fixed ranks. `take` makes the slices; see SliceOfBody.
/// `Like`: see TensorBeside.
template <class Like = void, class T, class Take> constexpr auto step_of(const T& x, Take& take) {
  if constexpr (is_in_groups_v<T>) {
    GroupOfSteps<decltype(T::xs)> group{x.xs, {}};
    for (const Value& tensor : x.tensors) group.tensors.push_back(take(tensor, 0, Storage::block));
    return group;
  } else if constexpr (TensorOperand<T>) {
    constexpr bool has_leading = T::rank > 0;
    static_assert(has_leading,
                  "tessera: xs of a scan are tensors with a leading dim of steps; capture values that are the "
                  "same in every step");
    constexpr int rank = has_leading ? T::rank - 1 : 0;
    if constexpr (LocalOperand<T>) {
      return with_rank_t<T, rank>(take(x.value, device_dims_v<T>, Storage::block));
    } else if constexpr (StoredOperand<T> && !std::is_void_v<Like>) {
      return step_of<Like>(Like::of_field(x, x.placeholder().source), take);
    } else if constexpr (StoredOperand<T>) {  // in a shard_map it stays a field, whose dims of devices its type lacks
      const Value outer = turned(x.placeholder());
      Value made = take(outer, has_device_dims(x) ? outer.rank() - T::rank : 0, Storage::block);
      if (has_device_dims(x)) made.graph = ~made.graph;
      return ShardedTensor<typename T::element, rank>(made);
    } else {
      return Sym<typename T::element, rank>(take(value_behind(x), 0, Storage::block));
    }
  } else if constexpr (NumberOperand<T>) {
    return x;
  } else if constexpr (is_stack_v<T>) {
    static_assert(!counts_layers_v<typename T::block>,
                  "tessera: a Stack that is scanned over has tensors in its layers, which count them");
    auto layer = x[0];
    TakeLayer<Take> layer_of{take};
    for_each_leaf(layer, layer_of);
    return layer;
  } else if constexpr (is_tuple_v<T> || is_array_v<T>) {
    return map_items(x, [&](const auto& item) { return step_of<Like>(item, take); });
  } else if constexpr (std::is_empty_v<T>) {
    return x;
  } else if constexpr (!std::is_void_v<example_t<T>>) {
    return with_fields(x, [&]<class... Fields>(const Fields&... fields) {
      return example_t<T>{as_field<example_t<Fields>>(step_of<Like>(fields, take))...};
    });
  } else {
    return with_fields(x, [&](const auto&... fields) {
      return std::tuple<decltype(step_of<Like>(fields, take))...>{step_of<Like>(fields, take)...};
    });
  }
}

/// The results y of all steps: tensors with a leading dim of steps; for a plain struct, a Stack of them.
/// `take(storage)` returns the next tensor. Dims and Scalars in a struct are the same in each step.
/// With `Nested` a struct may have Stacks, to be reduced: see ts::sum of a Stack.
template <bool Nested, class Take> class StackResults {
 public:
  constexpr StackResults(const BodyTrace& body, Take take) : body_(body), take_(take) {}

  template <class Y> constexpr auto operator()(const Y& y) {
    if constexpr (TensorOperand<Y>) {
      constexpr bool fits = Y::rank < max_rank;
      static_assert(fits, "tessera: y of ts::scan, and the result of the function of ts::map and ts::vmap, has at most "
                          "7 dims, since all of them together have a leading dim");
      using All = with_rank_t<Y, fits ? Y::rank + 1 : Y::rank>;
      if constexpr (LocalOperand<Y>)
        return All(build::move_dim(take_(Storage::block), 0, device_dims_v<Y>));
      else
        return All(take_(Storage::block));
    } else if constexpr (is_tuple_v<Y> || is_array_v<Y>) {
      return map_items(y, [&](const auto& item) { return (*this)(item); });
    } else {
      constexpr bool has_tensors = BlockLeaves::of<Y>().tensor && (Nested || !BlockLeaves::of<Y>().stack);
      static_assert(has_tensors, "tessera: y of ts::scan, and the result of the function of ts::map and ts::vmap, is a "
                                 "tensor, or a tuple or plain struct of tensors");
      Stack<Y> stack;
      stack.layers().push_back(y);
      for_each_leaf(stack[0], *this);
      return stack;
    }
  }
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>)
      replace_leaf(leaf, take_(has_device_dims(leaf) ? Storage::block : Storage::layers));
    else if (leaf.traced())
      leaf = Leaf(body_.number_outside(leaf.placeholder()));
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}

 private:
  const BodyTrace& body_;
  Take take_;
};

template <class T> inline constexpr bool is_two_v = false;
template <class First, class Second> inline constexpr bool is_two_v<std::pair<First, Second>> = true;
template <class First, class Second> inline constexpr bool is_two_v<std::tuple<First, Second>> = true;

/// The carry that a step returns.
template <class Result, class Like = void> struct ReturnedCarry {
  using type = void;
};
template <class Result, class Like>
  requires(is_two_v<Result>)
struct ReturnedCarry<Result, Like> {
  using type = carry_t<std::tuple_element_t<0, Result>, Like>;
};

/// Where a carry that a step returns differs in type from that of init: in an item of a tuple, or as a whole (-1).
template <class Init, class Returned> struct CarryDifference {
  static constexpr int item = -1;
  using of_init = Init;
  using of_step = Returned;
};
template <template <class...> class Tuple, class... Inits, class... Returned>
  requires(is_tuple_v<Tuple<Inits...>> && sizeof...(Inits) == sizeof...(Returned))
struct CarryDifference<Tuple<Inits...>, Tuple<Returned...>> {
  static constexpr int item = [] {
    int k = 0, found = -1;
    ((found = found < 0 && !std::is_same_v<Inits, Returned> ? k : found, ++k), ...);
    return found;
  }();
  static constexpr std::size_t at = item < 0 ? 0 : static_cast<std::size_t>(item);
  using of_init = std::tuple_element_t<at, Tuple<Inits...>>;
  using of_step = std::tuple_element_t<at, Tuple<Returned...>>;
};
/// Fails with the item of the carry and both types as template arguments, which compilers print. `auto` has the
/// assertion fail where a scan is called, not later, where a trace evaluates it.
template <int Item, class OfInit, class OfStep> constexpr auto check_carry() {
  constexpr bool same = std::is_same_v<OfInit, OfStep>;
  static_assert(same,
                "tessera: the function of a scan must return a carry with the element types, ranks and structure of "
                "init, and so must that of another loop; convert element types with ts::cast");
  return same;
}

/// Calls the function of a scan: f(carry, x), or f(carry) where xs is the number of steps.
template <class Like, class F, class Carry, class Xs>
constexpr auto call_step(const F& f, const Carry& carry, const Xs& xs, BodyTrace& body) {
  if constexpr (SizeOperand<Xs>) {
    return f(carry);
  } else {
    SliceOfBody take{body};
    return f(carry, step_of<Like>(xs, take));
  }
}

/// Calls the function of a scan to learn the type of its result.
template <class Like> struct StepCall {
  template <class F, class Carry, class Xs>
  constexpr auto operator()(const F& f, const Carry& carry, const Xs& xs, BodyTrace& body) const {
    return call_step<Like>(f, carry, xs, body);
  }
};

template <class Like, class F, class Carry, class Xs>
constexpr auto run_scan(const F& f, const Carry& first, const Xs& xs, const Value& context, bool reverse) {
  Value count = context;
  if constexpr (SizeOperand<Xs>) count = as_size(lower(context, Dim(xs)));
  const auto step = [&](const Value& inside, const Carry& carried, BodyTrace& body) {
    const auto result = call_step<Like>(f, carried, xs, body);
    const Carry next = widened<Carry>(as_carry<Like>(inside, std::get<0>(result)));
    const auto y = as_carry<Like>(inside, std::get<1>(result));
    return std::pair(next, y);
  };
  Carry init = first;
  return trace_carry<Like>(context, {.reverse = reverse, .scan = true}, init, step,
                           [&](BodyTrace& body, const Value& inside, const auto& y, const ChangingScalars& scalars) {
                             GiveLeaves give{body, false};
                             for_each_leaf(y, give);
                             const Value made = body.close(count, context.source);
                             Carry last = init;
                             ProjectLeaves project{made, body};
                             for_each_leaf(last, project);
                             scalars.project(made, project.next, last);
                             int next_output = body.carried();
                             const auto take = [&](Storage storage) {
                               const Graph& own = made.module->graph(inside.graph);
                               const Node type =
                                   build::stacked_type(own[own.outputs[static_cast<std::size_t>(next_output)]]);
                               return build::project(made, next_output++, type, storage);
                             };
                             return std::tuple(last, StackResults<false, decltype(take)>(body, take)(y));
                           });
}

template <class F, class Init, class Xs>
constexpr auto scan(const F& f, const Init& init, const Xs& xs, bool reverse, Source source) {
  using Like = local_in_t<Init, Xs>;
  using Carry = carry_t<Init, Like>;
  using Steps = carry_t<Xs, Like>;
  constexpr bool is_size = SizeOperand<Xs>;
  using Taken = std::conditional_t<is_size, Xs, Steps>;
  // Computed here so that compilers report an error in the function with few lines of context.
  using Result = returned_t<requires(const Carry& carry, const Taken& taken, BodyTrace& body) {
    call_step<Like>(f, carry, taken, body);
  }, StepCall<Like>, const F, const Carry, const Taken, BodyTrace>;
  constexpr bool sound = !std::is_same_v<Result, NoResult>;  // else the compiler has reported an error in f
  constexpr bool two = !sound || is_two_v<Result>;
  static_assert(
      two,
      "tessera: the function of a scan must return the carry and y, as a std::tuple or a std::pair; "
      "without y, return std::tuple() in its place; after an error in the function itself, this only follows from it");
  using Returned = typename ReturnedCarry<Result, Like>::type;
  constexpr bool same = !sound || (two && join_v<Carry, Returned>);
  constexpr bool adapts = two && !same && adapts_v<Init, Returned>;
  using Difference = CarryDifference<Carry, Returned>;
  if constexpr (two && !same && !adapts)
    check_carry<Difference::item, typename Difference::of_init, typename Difference::of_step>();
  static_assert(
      !holds_number_v<Init>,
      "tessera: a Dim or a Scalar in the carry of a scan would never change; capture it, or carry a tensor, of a "
      "key ts::key_data(key)");
  const auto context_of = [&] {
    const Value context = trace_in(init);
    return (context.module == nullptr ? trace_in(xs) : context).at(source);
  };
  if constexpr (sound && adapts) {
    return scan(f, adapted<Like, Returned>(context_of(), init), xs, reverse, source);
  } else if constexpr (sound && same && !std::is_same_v<joined_t<Carry, Returned>, Carry>) {
    return scan(f, widened<joined_t<Carry, Returned>>(as_carry<Like>(context_of(), init)), xs, reverse, source);
  } else if constexpr (sound && same) {
    const Value context = context_of();
    if (context.module == nullptr) fail_outside_of_trace("scan", "ts::scan", source);
    const Carry first = as_carry<Like>(context, init);
    if constexpr (is_size)
      return run_scan<Like>(f, first, xs, context, reverse);
    else
      return run_scan<Like>(f, first, as_carry<Like>(context, xs), context, reverse);
  } else if constexpr (sound && two && !holds_number_v<Init>) {
    // An error has been reported. The caller goes on with the carry that it gave, and with the right y.
    const auto keep = [&](const auto& carry, const auto&... x) {
      return std::tuple(carry, std::get<1>(f(carry, x...)));
    };
    return scan(keep, init, xs, reverse, source);
  } else if constexpr (!holds_number_v<Init>) {  // an error has been reported: what a caller may go on with
    return std::tuple(as_carry<Like>(context_of(), init), NoResult());
  } else {
    return std::tuple(init, NoResult());
  }
}

}  // namespace detail

/// Runs f step by step, as jax.lax.scan: `(carry, y) = f(carry, x)`, where x is the slice of xs at the step. Returns
/// the carry after the last step, and the y of all steps along a new leading dim:
///
///     auto [last, all] = ts::scan([&](const auto& h, const auto& x) {
///       const auto next = ts::tanh(ts::matmul(x, w) + ts::matmul(h, u));
///       return std::tuple(next, next);
///     }, h0, xs);                                                        // xs [T, B, D], all [T, B, H]
///
/// `init` is a tensor, or a tuple, pair, array or plain struct of tensors; a number in it becomes an f32 or an i32, or
/// takes the element type that f returns in its place, if that is another floating type or, for an integer, i64. f
/// returns a carry of the same element types, ranks and shapes; shardings may differ. f may capture values of the
/// traced function around it, which are the same in every step. `xs` is a tensor, a Stack, or a tuple, pair, array or
/// plain struct of these: x has for a tensor its slice, for a Stack its layer, for a struct that is a template of a
/// rank or of the types of its fields a struct of their slices, for any other struct a tuple of these. With a size as
/// xs, f(carry) runs that often. y is a tensor, or a tuple, pair or array of tensors, or `std::tuple()`; of a plain
/// struct, a Stack is returned. Without steps the carry is init.
///
/// One repeat node, as for a Stack: the body is traced, planned and compiled once, and runs in a loop. Random numbers
/// differ from step to step. The gradient is a scan in the opposite order; what of the forward steps it needs is kept
/// for each step, and elementwise operations are computed again. Sharding: the leading dim of xs is gathered if it is
/// split; all other dims stay as they are. Communication: that of the body, once a step. Errors: shape_mismatch for a
/// carry that changes its shape, structure for xs of different leading extents.
template <class F, class Init, class Xs>
constexpr auto scan(const F& f, const Init& init, const Xs& xs, ScanOptions options = {}, Here at = Here::current()) {
  if constexpr (detail::begins_in_a_trace<Init, Xs>())
    return detail::scan(f, init, xs, options.reverse, Source::from(at));
  else
    return std::tuple(detail::NoResult(), detail::NoResult());
}

/// Applies f to each slice of xs along its leading dim, one after the other, and stacks the results: jax.lax.map. xs
/// and the result of f are as in ts::scan. An elementwise or batched operation on the whole xs is faster where there is
/// one.
template <class F, class Xs> constexpr auto map(const F& f, const Xs& xs, Here at = Here::current()) {
  const auto step = [&](const auto&, const auto& x) { return std::tuple(std::tuple(), f(x)); };
  return std::get<1>(detail::scan(step, std::tuple(), xs, false, Source::from(at)));
}

namespace detail {

/// loop(the integers from `from` to `to` - 1), a vector of i32.
template <class From, class To, class Init, class Loop>
constexpr auto for_indices(const From& from, const To& to, const Init& init, Source source, const Loop& loop) {
  Value context = trace_in(init);
  for (const Value& other : {trace_of(from), trace_of(to)})
    if (context.module == nullptr) context = other;
  if (context.module == nullptr) fail_outside_of_trace("fori_loop", "ts::fori_loop", source);
  context = context.at(source);
  const Value first = as_size(lower(context, Dim(from))), count = as_size(lower(context, Dim(to))) - first;
  const Value steps = count.make(
      {.op = Op::arange, .dtype = DType::i32, .rank = 1, .labels = pack_maker(MadeBy::fori_loop)}, {count.id});
  return loop(tensor_beside_t<local_in_t<Init>, std::int32_t, 1>(steps + build::cast(first, DType::i32)));
}

}  // namespace detail

/// carry = f(i, carry) for i from `from` to `to` - 1: jax.lax.fori_loop. i is a rank-0 i32 tensor. The number of steps
/// is known when the program is planned; `to` less than `from` is an error. Otherwise as in ts::scan.
template <SizeOperand From, SizeOperand To, class F, class Init>
constexpr auto fori_loop(const From& from, const To& to, const F& f, const Init& init, Here at = Here::current()) {
  if constexpr (detail::begins_in_a_trace<From, To, Init>()) {
    const Source source = Source::from(at);
    return detail::for_indices(from, to, init, source, [&](const auto& indices) {
      const auto step = [&](const auto& carry, const auto& i) { return std::tuple(f(i, carry), std::tuple()); };
      return std::get<0>(detail::scan(step, init, indices, false, source));
    });
  } else {
    return detail::NoResult();
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
