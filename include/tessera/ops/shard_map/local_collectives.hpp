#ifndef TESSERA_OPS_SHARD_MAP_LOCAL_COLLECTIVES_HPP
#define TESSERA_OPS_SHARD_MAP_LOCAL_COLLECTIVES_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>

#include <tessera/base/shape.hpp>
#include <tessera/ops/shard_map/local.hpp>
#include <tessera/ops/shard_map/routes.hpp>

namespace tessera {

namespace detail {

/// The bits of the axes that a collective names, checked. `Varies`: the value has to vary along all of them.
template <bool Varies, class X, FixedString... Axes> constexpr unsigned axes_of_call() {
  constexpr bool is_local = LocalOperand<X>;
  static_assert(is_local,
                "tessera: a collective over a named axis takes local values, inside a ts::shard_map; of a tensor in a "
                "struct, write ts::local_of(own.up, x), where x is any local value");
  static_assert(sizeof...(Axes) > 0,
                "tessera: a collective needs at least one mesh axis, as in ts::psum<\"model\">(x)");
  if constexpr (LocalOperand<X> && sizeof...(Axes) > 0) {
    constexpr ShardMapText text = X::region::text;
    constexpr bool known = ((text.find(Axes.view()) >= 0) && ...);
    static_assert(known,
                  "tessera: an axis of the collective is not a manual axis of the shard_map; name the axis in a spec, "
                  "or after a ';' as in \"{data} -> {data}; model\"");
    if constexpr (known) {
      constexpr unsigned mask = (0u | ... | (1u << text.find(Axes.view())));
      static_assert(!Varies || (X::varying & mask) == mask,
                    "tessera: the value does not vary along the axis of the collective: its devices hold equal values; "
                    "if you mean this, write ts::pvary<\"axis\">(x)");
      static_assert(bit_count(mask) == sizeof...(Axes), "tessera: an axis is given twice to a collective");
      if constexpr (!Varies || (X::varying & mask) == mask) return mask;
    }
  }
  return 0;
}
/// The result of a call that does not compile; with it no further errors follow.
template <class X> constexpr auto not_made(const X& x) {
  if constexpr (LocalOperand<X>)
    return Local<typename X::element, X::rank, typename X::region, 0>(
        stand_in(x.value, dtype_v<typename X::element>, X::rank));
  else
    return x;
}
constexpr int only_axis(unsigned mask) { return bit_count(mask - 1); }

template <class X> constexpr LocalValue local_at(const X& x, const Here& at) {
  return {here(x.value).at(Source::from(at)), X::varying, X::rank};
}
/// The axes along which a collective over `Mask` needs full leading dims. In regions with structs, whose types don't
/// tell what varies, only those of `Mask`.
template <unsigned Mask, class X> constexpr unsigned wanted_over(const X& x) {
  if constexpr (X::region::structs) {
    if ((Mask & ~extending({x.value, X::varying, X::rank})) != 0)
      x.value.refuse(errc::structure,
                     "[shard_map] collective: the value does not vary along the axis of the collective; "
                     "if you mean this, write ts::pvary<\"axis\">(x)");
    return Mask;
  } else {
    return X::varying;
  }
}
template <class X, unsigned Varying> using varying_t = Local<typename X::element, X::rank, typename X::region, Varying>;

template <Op O, unsigned Mask, class X> constexpr auto reduce_over(const X& x, const Here& at) {
  if constexpr (Mask == 0) {
    return detail::not_made(x);
  } else {
    constexpr unsigned left = X::varying & ~Mask;
    const ShardMapText& text = X::region::text;
    unsigned dims = 0;
    for (int axis = 0; axis < text.axis_count; ++axis)
      if ((Mask >> axis & 1u) != 0) dims |= 1u << lead_of(X::varying, axis);
    const Value whole = extended(text, local_at(x, at), X::varying, wanted_over<Mask>(x));
    return varying_t<X, left>(pinned(text, build::reduce(O, whole, dims, false), left));
  }
}

/// A permute along one axis.
template <unsigned Mask, class X, class Routes>
constexpr auto permute_over(const X& x, const Here& at, const Routes& routes) {
  if constexpr (Mask == 0) {
    return not_made(x);
  } else {
    constexpr int lead = lead_of(X::varying, only_axis(Mask));
    const ShardMapText& text = X::region::text;
    const Value sent = pinned(text, extended(text, local_at(x, at), X::varying, wanted_over<Mask>(x)), X::varying);
    Growable<std::int32_t> operands{sent.id};
    add_routes(sent, operands, routes);
    return X(permuted(sent, operands, lead));
  }
}

/// One factor for each dim of a value with leading dims.
struct LocalFactors {
  Factors f{};
  Value sizes[max_rank]{};
  constexpr int add(int in_dim) {
    if (f.count == max_rank) fail_local_rank();
    f.in_dim[f.count] = static_cast<std::int8_t>(in_dim);
    return f.count++;
  }
};

}  // namespace detail

/// The sum of a local value over all devices along the axes; replicated over these axes. Gradient: each device gets the
/// cotangent of the sum. Errors: does not compile for an axis along which the value does not vary. Communication: one
/// all_reduce. Source: lax.psum of JAX, with varying types.
template <FixedString... Axes, class X> constexpr auto psum(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axes...>();
  return detail::reduce_over<Op::sum, mask>(x, at);
}
/// The elementwise maximum (minimum) over devices. Gradient: devices that share the extreme get equal parts. Otherwise
/// as psum.
template <FixedString... Axes, class X> constexpr auto pmax(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axes...>();
  return detail::reduce_over<Op::max, mask>(x, at);
}
template <FixedString... Axes, class X> constexpr auto pmin(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axes...>();
  return detail::reduce_over<Op::min, mask>(x, at);
}
/// The mean over devices: psum divided by their number.
template <FixedString... Axes, class X> constexpr auto pmean(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axes...>();
  if constexpr (mask == 0) {
    return detail::not_made(x);
  } else {
    static_assert(is_floating_v<typename X::element>, "tessera: pmean takes float, double, bf16 and f16 tensors");
    auto made = detail::reduce_over<Op::sum, mask>(x, at);
    const Value sum = made.value.at(Source::from(at));
    Value count = sum.number(1, DType::i64);
    for (int axis = 0; axis < X::region::text.axis_count; ++axis)
      if ((mask >> axis & 1u) != 0) count = count * detail::axis_size_of(sum, X::region::text.axes[axis]);
    const Value share = sum.number(1, DType::f64) / build::cast(count, DType::f64);
    return decltype(made)(sum * build::cast(share, sum.dtype()));
  }
}

/// Marks a value that is replicated over the axes as varying along them. Arithmetic with varying values does this by
/// itself. Gradient: psum. No communication.
template <FixedString... Axes, class X> constexpr auto pvary(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<false, X, Axes...>();
  if constexpr (mask == 0) {
    return detail::not_made(x);
  } else {
    constexpr bool structs = X::region::structs;
    static_assert(structs || (X::varying & mask) == 0, "tessera: the value already varies along the axis of pvary");
    constexpr unsigned all = X::varying | mask;
    const detail::LocalValue own = detail::local_at(x, at);
    const Value made = structs || own.value.rank() == 0
                           ? detail::extended(X::region::text, own, all, structs ? mask : all)
                           : detail::aligned(own, all, X::rank);
    return detail::varying_t<X, all>(made);
  }
}

/// The sum over devices along the axis, of which device i keeps the i-th part along dim D; that dim becomes extent /
/// devices. Gradient: all_gather. Errors: not_divisible. Communication: one reduce_scatter.
template <FixedString Axis, int D, class X> constexpr auto psum_scatter(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axis>();
  if constexpr (mask == 0) {
    return detail::not_made(x);
  } else {
    constexpr int axis = detail::only_axis(mask), lead = detail::lead_of(X::varying, axis);
    constexpr unsigned left = X::varying & ~mask;
    constexpr int leads = detail::bit_count(left), dim = leads + detail::checked_dim<D, X::rank>();
    const detail::ShardMapText& text = X::region::text;
    const Value whole = detail::pinned(
        text, detail::extended(text, detail::local_at(x, at), X::varying, detail::wanted_over<mask>(x)), X::varying);
    const Value sum = build::sum_of(whole, 1u << lead, false);
    const PartitionSpec apart = detail::lead_spec(text, sum, left, left, dim, axis);
    const PartitionSpec together = detail::lead_spec(text, sum, left, left);
    const Value parts = detail::placed(text, detail::placed(text, sum, apart, &together), apart);
    // [leads, .., (device rest), ..] -> [leads with device, .., rest, ..]
    detail::LocalFactors made;
    int device = 0;
    for (int d = 0; d < parts.rank(); ++d) {
      if (d == dim) made.sizes[device = made.add(d)] = detail::axis_size_of(parts, text.axes[axis]);
      made.add(d);
    }
    int at_position = 0;
    for (int out = 0, f = 0; out < X::rank + leads + 1; ++out) {
      if (f == device) ++f;
      made.f.order[at_position] = static_cast<std::int8_t>(out == lead ? device : f++);
      made.f.out_dim[at_position++] = static_cast<std::int8_t>(out);
    }
    return X(detail::rearrange(parts, parts.rank(), parts.rank() + 1, made.f, made.sizes, {leads}));
  }
}

/// Sends local values between devices along an axis; a device to which no route leads gets zeros. Gradient: the inverse
/// permutation. Errors: shape_mismatch for a route from or to a device that does not exist, and for two routes with one
/// source or one destination. Communication: one permute.
///
///     auto next = ts::ppermute<"model">(x, ts::Shift(1));               // a ring
///     auto swapped = ts::ppermute<"model">(x, {{0, 1}, {1, 0}});
template <FixedString Axis, class X>
constexpr auto ppermute(const X& x, const Shift& shift, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axis>();
  return detail::permute_over<mask>(x, at, shift);
}
template <FixedString Axis, class X>
constexpr auto ppermute(const X& x, std::initializer_list<Route> routes, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<true, X, Axis>();
  return detail::permute_over<mask>(x, at, routes);
}

/// The index of the device along the axis, an i32 scalar. `x` is any local value. No communication.
template <FixedString Axis, class X> constexpr auto axis_index(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<false, X, Axis>();
  if constexpr (mask == 0) {
    return detail::not_made(x);
  } else {
    const detail::ShardMapText& text = X::region::text;
    const Value context = here(x.value).at(Source::from(at));
    const Value size = detail::axis_size_of(context, text.axes[detail::only_axis(mask)]);
    return Local<std::int32_t, 0, typename X::region, mask>(detail::pinned(text, build::arange(size), mask));
  }
}
/// The number of devices along the axis. `x` is any local value.
template <FixedString Axis, class X> constexpr Dim axis_size(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = detail::axes_of_call<false, X, Axis>();
  if constexpr (mask == 0)
    return Dim(1);
  else
    return Dim(detail::axis_size_of(here(x.value).at(Source::from(at)), X::region::text.axes[detail::only_axis(mask)]));
}

namespace collective {

/// Concatenates the local values of all devices along the axis in dim D; the result is replicated over the axis.
/// `all_gather(ts::unsqueeze<D>(x))` stacks them in a new dim. Gradient: psum_scatter. Communication: one all_gather.
template <FixedString Axis, int D, class X> constexpr auto all_gather(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = tessera::detail::axes_of_call<true, X, Axis>();
  if constexpr (mask == 0) {
    return tessera::detail::not_made(x);
  } else {
    namespace td = tessera::detail;
    constexpr int axis = td::only_axis(mask), lead = td::lead_of(X::varying, axis);
    constexpr unsigned left = X::varying & ~mask;
    constexpr int leads = td::bit_count(left), dim = leads + td::checked_dim<D, X::rank>();
    const td::ShardMapText& text = X::region::text;
    const Value whole = td::extended(text, td::local_at(x, at), X::varying, td::wanted_over<mask>(x));
    // [leads with device, .., own, ..] -> [leads, .., (device own), ..]
    td::LocalFactors made;
    for (int d = 0; d < whole.rank(); ++d) made.add(d);
    int position = 0;
    for (int out = 0, f = 0; out < whole.rank() - 1; ++out) {
      const auto place = [&](int factor) {
        made.f.order[position] = static_cast<std::int8_t>(factor);
        made.f.out_dim[position++] = static_cast<std::int8_t>(out);
      };
      if (out == dim) place(lead);
      if (f == lead) ++f;
      place(f++);
    }
    const Value joined = td::rearrange(whole, whole.rank(), whole.rank() - 1, made.f, nullptr);
    const PartitionSpec apart = td::lead_spec(text, joined, left, left, dim, axis);
    const PartitionSpec together = td::lead_spec(text, joined, left, left);
    return td::varying_t<X, left>(td::placed(text, td::placed(text, joined, apart), together, &apart));
  }
}

/// Cuts each local value along dim Split into as many parts as there are devices along the axis; part i goes to device
/// i, which concatenates the parts that it gets along dim Concat. Gradient: the inverse all_to_all. Errors:
/// not_divisible. Communication: one all_to_all.
template <FixedString Axis, int Split, int Concat, class X>
constexpr auto all_to_all(const X& x, Here at = Here::current()) {
  constexpr unsigned mask = tessera::detail::axes_of_call<true, X, Axis>();
  if constexpr (mask == 0) {
    return tessera::detail::not_made(x);
  } else {
    namespace td = tessera::detail;
    constexpr int axis = td::only_axis(mask), lead = td::lead_of(X::varying, axis);
    constexpr int leads = td::bit_count(X::varying);
    constexpr int split = leads + td::checked_dim<Split, X::rank>(), join = leads + td::checked_dim<Concat, X::rank>();
    const td::ShardMapText& text = X::region::text;
    const Value whole = td::extended(text, td::local_at(x, at), X::varying, td::wanted_over<mask>(x));
    // [source, .., (device rest), .., own, ..] -> [device, .., rest, .., (source own), ..]
    td::LocalFactors made;
    int device = 0, own[max_rank]{};
    for (int d = 0; d < whole.rank(); ++d) {
      if (d == split) made.sizes[device = made.add(d)] = td::axis_size_of(whole, text.axes[axis]);
      own[d] = made.add(d);
    }
    int position = 0;
    for (int out = 0; out < whole.rank(); ++out) {
      const auto place = [&](int factor) {
        made.f.order[position] = static_cast<std::int8_t>(factor);
        made.f.out_dim[position++] = static_cast<std::int8_t>(out);
      };
      if (out == join) place(own[lead]);
      place(out == lead ? device : own[out]);
    }
    const Value turned = td::rearrange(whole, whole.rank(), whole.rank(), made.f, made.sizes, {leads});
    const PartitionSpec before = td::lead_spec(text, turned, X::varying, X::varying & ~mask, join, axis);
    const PartitionSpec after = td::lead_spec(text, turned, X::varying, X::varying);
    return X(td::placed(text, td::placed(text, turned, before), after, &before));
  }
}

}  // namespace collective

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
