#ifndef TESSERA_OPS_SHARD_MAP_LOCAL_HPP
#define TESSERA_OPS_SHARD_MAP_LOCAL_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>

#include <tessera/base/shape.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map/local_value.hpp>

namespace tessera {

namespace detail {

template <class Region> struct FieldsOfRegion {
  static constexpr unsigned differing(const Value& x, int rank, int layers) {
    return extending({x, Region::all, rank}, layers);
  }
  static constexpr Value spread(const Value& x, int rank, int layers, unsigned axes) {
    if ((axes & ~differing(x, rank, layers)) == 0) return x;
    constexpr int leads = bit_count(Region::all);
    const Value behind = layers == 0 ? x : build::move_dim(x, 0, leads);
    const Value made = extended(Region::text, {behind, Region::all, rank + layers}, Region::all, axes);
    return layers == 0 ? made : build::move_dim(made, leads, 0);
  }
  static constexpr FieldsOfDevices fields{differing, spread};
};
/// While it lives, loops know the shard_map whose function is being traced.
class FieldsScope {
 public:
  constexpr FieldsScope(Module& module, const FieldsOfDevices& fields) : module_(module), before_(module.fields) {
    module.fields = &fields;
  }
  constexpr ~FieldsScope() { module_.fields = before_; }
  FieldsScope(const FieldsScope&) = delete;
  FieldsScope& operator=(const FieldsScope&) = delete;

 private:
  Module& module_;
  const FieldsOfDevices* before_;
};

}  // namespace detail

/// A tensor inside the function of a shard_map: the shard that one device holds. `Varying` has a bit for each axis (in
/// the order of the text) along which devices hold different values. It is part of the type, so that a result that
/// differs between devices can't be returned as one that is replicated.
///
/// In the graph it is a global array with a leading dim for each axis in `Varying`, split by that axis. A leading dim
/// of static extent 1 means that the devices' values are equal so far.
template <class T, int Rank, class Region, unsigned Varying>
struct Local : LocalTag, Operators<Local<T, Rank, Region, Varying>> {
  using element = T;
  using region = Region;
  static constexpr int rank = Rank;
  static constexpr unsigned varying = Varying;
  template <int Other> using with_rank = Local<T, Other, Region, Varying>;
  template <class U, int Other, unsigned Along> using with = Local<U, Other, Region, Along>;
  template <unsigned Along> using varying_along = Local<T, Rank, Region, Along>;
  Value value{};

  constexpr Local() = default;
  constexpr explicit Local(Value v) : value(v) {}
  template <class B> constexpr auto operator=(const B&) const&& { detail::no_assignment<B>(); }
  /// The value as the content of a tensor in a struct.
  constexpr Value kept() const { return detail::kept_in_struct(Region::text, {value, Varying, Rank}); }
  /// A tensor of a struct as a local value, in the graph in which it was made.
  template <class X> static constexpr auto of_field(const X& x, Source source) {
    return with<typename X::element, X::rank, Region::all>(detail::value_in_struct(x.placeholder(), source));
  }
  /// The value with a leading dim of full extent for each axis along which it varies. With structs in the region, types
  /// do not say along which axes that is, but extents do.
  constexpr Value of_all_devices() const {
    return Region::structs ? value : detail::extended(Region::text, {value, Varying, Rank}, Varying);
  }
  /// The axes along which the values of devices differ, and those along which the type says that they may.
  constexpr unsigned differing() const { return detail::extending({value, Varying, Rank}); }
  constexpr unsigned declared() const { return Region::structs ? differing() : Varying; }
  /// The value with a dim for each axis in `all`, of extent 1 where it has none.
  constexpr Value with_dims_for(unsigned all) const { return detail::aligned({here(value), Varying, Rank}, all, Rank); }
  /// The value with a dim for each axis along which it varies, of full extent for those in `axes`.
  constexpr Local spread(unsigned axes) const {
    const Value made = detail::extended(Region::text, {here(value), Varying, Rank}, Varying, axes);
    const int missing = Rank + detail::bit_count(Varying) - made.rank();
    return Local(build::insert_singletons(made, (1u << missing) - 1, made.rank() + missing));
  }
  /// The axes along which a tensor of all layers of a Stack differs; its dim of layers is in front of those of devices.
  static constexpr unsigned differing_layers(const Value& layers, int layer_rank) {
    return detail::FieldsOfRegion<Region>::differing(layers, layer_rank, 1);
  }
  static constexpr Value spread_layers(const Value& layers, int layer_rank, unsigned axes) {
    return detail::FieldsOfRegion<Region>::spread(layers, layer_rank, 1, axes);
  }
  /// The value without dims of devices: it is the same on all of them.
  constexpr Value shared() const { return detail::narrowed({here(value), Varying, Rank}, 0).value; }
  /// 1 where a condition holds on any device.
  constexpr Value on_any_device() const {
    const Value each = build::cast(build::cast(here(value), DType::bool_), DType::i32);
    return detail::pinned(Region::text, build::reduce(Op::max, each, (1u << each.rank()) - 1, false), 0);
  }
};

namespace detail {

/// A product with the leading dims as labels: of both operands, or of one.
template <class Tag>
constexpr Value local_product(Value context, unsigned all, const LocalValue& a, const LocalValue& b) {
  const Value x = without_singletons(a), y = without_singletons(b);
  const unsigned in_x = extending(a), in_y = extending(b);
  const EinsumLabels local = Tag::labels(a.rank, b.rank);
  int rank_out = 0;
  while (rank_out < max_rank && local.out[rank_out] >= 0) ++rank_out;
  EinsumLabels labels{};
  for (int d = 0; d < max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
  const auto write = [](std::int8_t* to, unsigned leads, const std::int8_t* own, int rank) {
    int at = 0;
    for (int axis = 0; axis < ShardMapText::max_names; ++axis)
      if ((leads >> axis & 1u) != 0) to[at++] = static_cast<std::int8_t>(EinsumLabels::count - 1 - axis);
    if (at + rank > max_rank) fail_local_rank();
    for (int d = 0; d < rank; ++d) to[at++] = own[d];
  };
  write(labels.a, in_x, local.a, a.rank);
  write(labels.b, in_y, local.b, b.rank);
  write(labels.out, in_x | in_y, local.out, rank_out);
  return aligned({Tag::product(x.at(context.source), y, labels), in_x | in_y, rank_out}, all, rank_out);
}

/// Broadcasts a value to the shape of another value, and to leading dims that the other value lacks.
template <class Tag>
constexpr Value spread_local(const ShardMapText& text, Value context, unsigned all, const LocalValue& x,
                             const LocalValue& like) {
  const bool spreads = (x.varying & ~extending(like)) != 0;
  return Tag::emit(context, x.varying == 0 ? x.value : aligned(x, all, like.rank),
                   spreads ? extended(text, like, all) : aligned(like, all, like.rank));
}

/// x with its leading dims, one for each of `axes`, merged into one dim; with `Batch` dim 0 of each device's value too.
template <bool Batch> constexpr Value merge_leads(const ShardMapText& text, const LocalValue& x, unsigned axes) {
  const int leads = bit_count(axes);
  const Value whole = extended(text, {without_singletons(x), extending(x), x.rank}, axes);
  if (leads + (Batch ? 1 : 0) < 2) return whole;
  Factors f{};
  for (int d = 0; d < whole.rank(); ++d) {
    f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
    f.out_dim[d] = static_cast<std::int8_t>(d < leads ? 0 : d - leads + (Batch ? 0 : 1));
    ++f.count;
  }
  return rearrange(whole, whole.rank(), x.rank + (Batch ? 0 : 1), f, nullptr);
}
/// The inverse: splits the dims of devices off a result, which then has a leading dim for each axis in `all`.
template <bool Batch>
constexpr Value split_leads(const ShardMapText& text, const Value& made, unsigned axes, unsigned all) {
  const int leads = bit_count(axes), rank = made.rank() - (Batch || axes == 0 ? 0 : 1);
  if (leads + (Batch ? 1 : 0) < 2) return aligned({made, axes, rank}, all, rank);
  if (leads + rank > max_rank) fail_local_rank();
  Factors f{};
  Value sizes[max_rank]{};
  for (int d = 0; d < leads + rank; ++d) {
    f.in_dim[d] = static_cast<std::int8_t>(d < leads ? 0 : d - leads + (Batch ? 0 : 1));
    f.order[d] = f.out_dim[d] = static_cast<std::int8_t>(d);
    ++f.count;
  }
  const int given = Batch ? leads : leads - 1;  // of a merged dim, one extent follows from the others
  for (int axis = 0, at = 0; axis < text.axis_count && at < given; ++axis)
    if ((axes >> axis & 1u) != 0) sizes[at++] = axis_size_of(made, text.axes[axis]);
  return aligned({rearrange(made, made.rank(), leads + rank, f, sizes), axes, rank}, all, rank);
}

/// The name that a message about a function has for it.
template <class Tag>
inline constexpr const char* name_v = [] {
  if constexpr (requires { Tag::name; })
    return Tag::name;
  else if constexpr (requires { Tag::function; })
    return Tag::function;
  else
    return "";
}();
/// Makes a function of the values of one device, and then for all devices, as vmap does for examples.
template <class Tag, class... Xs>
constexpr Value map_local(const ShardMapText& text, const Value& context, unsigned all, const Xs&... xs) {
  const unsigned axes = (0u | ... | extending(xs));
  if (axes == 0) return split_leads<true>(text, Tag::emit(context, without_singletons(xs)...), 0, all);
  Module& module = *context.module;
  const Value merged[] = {extending(xs) == 0 ? without_singletons(xs) : merge_leads<false>(text, xs, axes)...};
  const bool differs[] = {extending(xs) != 0 ...};
  BodyTrace body(module, {.scan = true});
  const Value inside{&module, module.current, -1, context.source};
  Value own[sizeof...(xs)];
  for (std::size_t i = 0; i < sizeof...(xs); ++i)  // all slices before what is captured
    if (differs[i]) own[i] = body.slice(merged[i], Storage::block);
  for (std::size_t i = 0; i < sizeof...(xs); ++i)
    if (!differs[i]) own[i] = here(merged[i]);
  body.give([&]<std::size_t... I>(std::index_sequence<I...>) {
    return Tag::emit(inside, own[I]...);
  }(std::index_sequence_for<Xs...>()));
  for (int id = 0; id < module.graph(inside.graph).size(); ++id)
    if (module.graph(inside.graph)[id].rank == max_rank)
      context.refuse(errc::capacity,
                     "[shard_map] rank: where operands such as weights differ between devices, the operation makes "
                     "tensors of 8 dims on each device, and of 9 dims for all of them; call it outside of the "
                     "shard_map",
                     name_v<Tag>);
  const OpenBody one = body.end();
  const Value around{&module, one.around, -1, context.source};
  const Growable<Batched> arguments = batched_arguments(body, around);
  BatchGraph made(module, one.graph, one.around, arguments);
  return split_leads<false>(text, around.with(made.output(0, true).id), axes, all);
}

/// x [devices, ...] with the devices in front of the features of dim `dim` of one device.
constexpr Value devices_into(const Value& x, int dim) {
  Factors f{};
  for (int d = 0; d < x.rank(); ++d) {
    const int from = d < dim ? d + 1 : d == dim ? 0 : d;
    f.in_dim[d] = static_cast<std::int8_t>(d);
    f.order[d] = static_cast<std::int8_t>(from);
    f.out_dim[d] = static_cast<std::int8_t>(d <= dim ? d : d - 1);
    ++f.count;
  }
  return rearrange(x, x.rank(), x.rank() - 1, f, nullptr);
}
/// The inverse of this for the last dim: [devices, ...].
constexpr Value devices_of_features(const Value& made, const Value& devices) {
  Factors f{};
  const int last = made.rank() - 1;
  Value sizes[max_rank]{};
  sizes[last] = devices;
  for (int d = 0; d <= made.rank(); ++d) {
    f.in_dim[d] = static_cast<std::int8_t>(d < last ? d : last);
    f.order[d] = static_cast<std::int8_t>(d == 0 ? last : d <= last ? d - 1 : d);
    f.out_dim[d] = static_cast<std::int8_t>(d);
    ++f.count;
  }
  return rearrange(made, made.rank(), made.rank() + 1, f, sizes);
}
/// A convolution whose weights differ between devices, as one in which the features of each device are groups. The last
/// option is the number of groups.
template <class Tag, class... Options>
constexpr Value group_local(const ShardMapText& text, Value context, unsigned all, unsigned axes, const LocalValue& x,
                            const LocalValue& w, const Options&... options) {
  Value devices = context.integer(1, DType::i64);
  for (int axis = 0; axis < text.axis_count; ++axis)
    if ((axes >> axis & 1u) != 0) devices = devices * axis_size_of(context, text.axes[axis]);
  Value numbers[] = {options.value...};
  Value& groups = numbers[sizeof...(options) - 1];
  groups = build::cast(groups, DType::i64) * devices;
  const Value images = devices_into(merge_leads<false>(text, x, axes), x.rank - 1);
  const Value weights = devices_into(merge_leads<false>(text, w, axes), Tag::grouped_dim);
  const Value made = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return Tag::emit(context, images.at(context.source), weights, numbers[I]...);
  }(std::index_sequence_for<Options...>());
  return split_leads<false>(text, devices_of_features(made, devices), axes, all);
}

/// How many of its operands have a batch as dim 0; by default all tensors have one.
template <class Tag>
inline constexpr int batched_v = [] {
  if constexpr (requires { Tag::batched; })
    return Tag::batched;
  else
    return max_rank;
}();
/// Merges the leading dims into the batch and splits them off the result. Where an operand without a batch differs
/// between devices, the function is mapped, or the devices become groups: the dim of the weights that these divide is
/// `grouped_dim`, -1 for none.
template <class Tag, class... Xs>
constexpr Value batch_local(const ShardMapText& text, Value context, unsigned all, const Xs&... xs) {
  const unsigned axes = (0u | ... | extending(xs));
  unsigned differs = 0;
  int operand = 0;
  ((differs |= (extending(xs) != 0 ? 1u : 0u) << operand++), ...);
  if constexpr (requires { Tag::grouped_dim; })
    if (Tag::grouped_dim >= 0 && differs >> batched_v<Tag> != 0)
      return group_local<Tag>(text, context, all, axes, xs...);
  if (axes == 0 || differs >> batched_v<Tag> != 0) return map_local<Tag>(text, context, all, xs...);
  operand = 0;
  const auto merged = [&](const LocalValue& x) {
    const bool has_batch = operand++ < batched_v<Tag> && x.rank > 0;
    return has_batch ? merge_leads<true>(text, x, axes).at(context.source) : without_singletons(x);
  };
  const Value values[] = {merged(xs)...};
  const Value made = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return Tag::emit(context, values[I]...);
  }(std::index_sequence_for<Xs...>());
  return split_leads<true>(text, made, axes, all);
}

/// Emits a function on values with leading dims, in the way that its `leading_dims` says.
template <class Tag, class... Xs>
constexpr Value emit_local(const ShardMapText& text, Value context, unsigned all, const Xs&... xs) {
  constexpr ops::LeadingDims leading = ops::leading_dims_v<Tag>;
  if constexpr (leading == ops::LeadingDims::labels) {
    return local_product<Tag>(context, all, xs...);
  } else if constexpr (leading == ops::LeadingDims::like) {
    return spread_local<Tag>(text, context, all, xs...);
  } else if constexpr (leading == ops::LeadingDims::batch) {
    return batch_local<Tag>(text, context, all, xs...);
  } else if constexpr (leading == ops::LeadingDims::mapped) {
    return map_local<Tag>(text, context, all, xs...);
  } else if constexpr (leading == ops::LeadingDims::extended) {
    return Tag::emit(context, extended(text, xs, all)...);
  } else if constexpr (leading == ops::LeadingDims::aligned) {
    int rank = 0;
    ((rank = xs.rank > rank ? xs.rank : rank), ...);
    return Tag::emit(context, (xs.varying == 0 ? xs.value : aligned(xs, all, rank))...);
  } else {
    return Tag::emit(context, aligned(xs, all, xs.rank)...);
  }
}

template <class... Xs> struct FirstLocal;
template <class X, class... Rest> struct FirstLocal<X, Rest...> : FirstLocal<Rest...> {};
template <LocalOperand X, class... Rest> struct FirstLocal<X, Rest...> {
  using type = X;
};

/// Whether an operand may be combined with values of a region, and along which axes it varies: scalars along none;
/// tensors of structs, and expressions of them, along all.
template <class Region, class X> struct LocalOperandOf {
  static constexpr bool known = NumberOperand<X>;
  static constexpr unsigned varying = 0;
};
template <class Region, LocalOperand X> struct LocalOperandOf<Region, X> {
  static constexpr bool known = std::is_same_v<typename X::region, Region>;
  static constexpr unsigned varying = X::varying;
};
template <class Region, StoredOperand X> struct LocalOperandOf<Region, X> {
  static constexpr bool known = Region::structs;
  static constexpr unsigned varying = Region::all;
};
template <class Region, class Tag, class... Xs> struct LocalOperandOf<Region, Expr<Tag, Xs...>> {
  static constexpr bool known = (LocalOperandOf<Region, Xs>::known && ...);
  static constexpr unsigned varying = (0u | ... | LocalOperandOf<Region, Xs>::varying);
};

/// What an expression is in a region, from values that are given in braces: so they are made in the order written.
template <class Region, class X> struct LocalCallOf {
  LocalValue made;
  template <class... Values> constexpr explicit LocalCallOf(Value context, Values... values) {
    Emission<X>::convert(values.value...);
    constexpr unsigned varying = LocalOperandOf<Region, X>::varying;
    made = {emit_local<typename X::tag>(Region::text, context, varying, values...), varying, X::rank};
    // What is made of shapes or of values without dims of devices, such as indices, is the same on all of them.
    constexpr int leads = bit_count(varying);
    if (leads > 0 && X::rank > 0 && made.value.rank() == X::rank)
      made.value = build::insert_singletons(made.value, (1u << leads) - 1, leads + X::rank);
  }
};

template <class Region, class X> constexpr LocalValue local_value(Value context, const X& x) {
  if constexpr (LocalOperand<X>)
    return {here(x.value).at(context.source), X::varying, X::rank};
  else if constexpr (StoredOperand<X>)
    return taken_from_struct(Region::text, x.placeholder(), X::rank, context.source);
  else if constexpr (ExprOperand<X>)
    return x.operands.apply([own = context.at(x.source)](const auto&... operands) {
      return LocalCallOf<Region, X>{own, local_value<Region>(own, operands)...}.made;
    });
  else
    return {lower(context, x), 0, 0};
}

template <class Tag, class... Operands> struct LocalCall {
  using Region = typename FirstLocal<Operands...>::type::region;
  using Result = typename Tag::template result<typed_of<Operands>...>;
  static constexpr unsigned all = (0u | ... | LocalOperandOf<Region, Operands>::varying);
  static constexpr bool known = (LocalOperandOf<Region, Operands>::known && ...);
  static_assert(
      known,
      "tessera: a local value is combined with a value from outside of the shard_map; pass the outside value as an "
      "argument, with a spec");
  static constexpr bool fits = Result::rank + bit_count(all) <= max_rank;
  static_assert(fits,
                "tessera: the dims of a local value of a shard_map and the axes along which it varies are at most "
                "8 together");

  static constexpr auto make(Source source, const Operands&... operands) {
    using Made = Local<typename Result::type, Result::rank, Region, all>;
    if constexpr (!known || !fits) {
      return Made();
    } else {
      Value context{};
      ((context = context.module == nullptr && LocalOperand<Operands> ? trace_of(operands) : context), ...);
      context = context.at(source);
      if (context.module->outline)
        return Made(outlined(context, dtype_v<typename Result::type>, Result::rank + bit_count(all)));
      return Made(
          LocalCallOf<Region, Expr<Tag, Operands...>>{context, local_value<Region>(context, operands)...}.made.value);
    }
  }
};

}  // namespace detail

/// A tensor of a struct as a local value, inside a shard_map that takes the struct: collectives take only local values.
/// `like` is any local value. No communication.
template <class X, LocalOperand Like> constexpr auto local_of(const X& x, const Like& like, Here at = Here::current()) {
  using Region = typename Like::region;
  static_assert(StoredOperand<X> || ExprOperand<X>, "tessera: local_of takes a tensor that is a field of a struct");
  static_assert(Region::structs, "tessera: local_of is only for a shard_map with a struct among its arguments");
  const Value context = here(like.value).at(Source::from(at));
  return Local<typename X::element, X::rank, Region, Region::all>(detail::local_value<Region>(context, x).value);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
