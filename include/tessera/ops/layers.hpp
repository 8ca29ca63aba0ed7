#ifndef TESSERA_OPS_LAYERS_HPP
#define TESSERA_OPS_LAYERS_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

namespace detail {

/// A tensor of a Stack, whose layers may have memory of their own, in one block.
constexpr Value in_one_block(const Value& layers) {
  if (!is_in_layers(layers.node())) return layers;
  Module& module = *layers.module;
  const int body = module.add_graph();
  Node layer = layers.node();
  layer.rank = static_cast<std::uint8_t>(layer.rank - 1);
  layer.singletons = static_cast<std::uint8_t>(layer.singletons >> 1);
  module.graph(body).outputs.push_back(
      module.graph(body).add(stored_as(Storage::layer, build::argument_node(layer, 0))));
  const Value made = layers.make(Repeat{.stacked = 1, .scan = true}.node(body, layers.source), {layers.id});
  return build::project(made, 0, layers.node());
}

/// A tensor of a layer, in all layers; with Nested, a tensor of a Stack in a layer.
template <bool Nested = false, class Leaf> constexpr auto of_all_layers(const Leaf& leaf, Source source) {
  const Value outer = turned(value_behind(leaf));
  if (outer.module != nullptr && has_device_dims(leaf))
    outer.at(source).refuse(errc::unsupported, "[stack] field of all layers in the function of a shard_map: write "
                                               "ts::all_layers(stack, field, x), where x is any local value");
  if (outer.module == nullptr)
    fail(errc::unsupported, "[stack] outside of a traced function: stored layers are tensors of their own", source);
  constexpr int rank = Leaf::rank + (Nested ? 2 : 1);
  static_assert(rank <= max_rank, "tessera: a tensor of all layers has at most 8 dims");
  if (outer.rank() != rank)
    outer.at(source).refuse(errc::structure,
                            "[stack] field: it is not a tensor of the layers, but a field of a Stack in "
                            "them, or was replaced by a tensor without a dim of layers");
  return Sym<typename Leaf::element, rank>(in_one_block(here(outer).at(source)));
}

/// The same in the function of a shard_map, as a local value.
template <class Like, class Leaf> constexpr auto local_of_layers(const Leaf& leaf, Source source) {
  using Region = typename Like::region;
  static_assert(Region::structs, "tessera: all_layers with a local value is for the Stack of a shard_map");
  constexpr int rank = Leaf::rank + 1;
  static_assert(rank <= max_rank, "tessera: a tensor of all layers has at most 8 dims");
  const Value layers = taken_from_struct(Region::text, leaf.placeholder(), Leaf::rank, source).value;
  const int leads = layers.rank() - rank;
  if (leads != bit_count(Region::all))
    layers.refuse(errc::structure, "[stack] field: it is not a tensor of the layers, but was replaced by a tensor "
                                   "without a dim of layers");
  return typename Like::template with<typename Leaf::element, rank, Region::all>(build::move_dim(layers, 0, leads));
}

/// Replaces the tensors of all layers by their sums or means.
template <bool Mean> struct ReduceLayers {
  Source source;
  bool in_stack = false;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      if (!in_stack && has_device_dims(leaf))  // the dims of devices, behind the dim of layers, stay
        replace_leaf(leaf, reduced(here(turned(value_behind(leaf)))));
      else
        leaf = Leaf(reduced(in_stack ? of_all_layers<true>(leaf, source).value : of_all_layers(leaf, source).value));
    }
  }
  constexpr void enter_stack(const auto&) { in_stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }

 private:
  constexpr Value reduced(const Value& layers) const {
    return Reduce<ops::SumOp, Mean, false, 0>::emit(layers.at(source), layers, layers.rank(), 1);
  }
};
template <bool Mean, class Block> constexpr Block reduce_layers(const Stack<Block>& stack, Here at) {
  if (stack.layers().empty()) fail(errc::structure, "[stack] reduction: the Stack has no layers", Source::from(at));
  Block made = stack[0];
  ReduceLayers<Mean> visitor{Source::from(at)};
  for_each_leaf(made, visitor);
  return made;
}

}  // namespace detail

/// Inside a traced function: a tensor of the layers of a Stack, as one tensor with a leading dim of layers. `field` is
/// a pointer to a member, or a function of a layer that returns a reference to the tensor:
///
///     const auto each = ts::vmap([](const auto& m, const auto& x) { return ts::grad(loss)(m, x); },
///                                ts::in_axes<ts::not_mapped, 0>)(model, xs);        // a Stack of gradients
///     const auto of_weight = ts::all_layers(each, &Model::weight);                     // [examples, in, out]
///
/// Communication: none, and for a result of ts::vmap no copy. In the function of a ts::shard_map the result is a local
/// value; `like` is any other local value.
template <class Block, class Field>
constexpr auto all_layers(const Stack<Block>& stack, const Field& field, Here at = Here::current()) {
  if (stack.layers().empty()) fail(errc::structure, "[stack] all_layers: the Stack has no layers", Source::from(at));
  if constexpr (std::is_member_object_pointer_v<Field>)
    return detail::of_all_layers(stack[0].*field, Source::from(at));
  else
    return detail::of_all_layers(field(stack[0]), Source::from(at));
}
template <class Block, class Field, LocalOperand Like>
constexpr auto all_layers(const Stack<Block>& stack, const Field& field, const Like&, Here at = Here::current()) {
  if (stack.layers().empty()) fail(errc::structure, "[stack] all_layers: the Stack has no layers", Source::from(at));
  if constexpr (std::is_member_object_pointer_v<Field>)
    return detail::local_of_layers<Like>(stack[0].*field, Source::from(at));
  else
    return detail::local_of_layers<Like>(field(stack[0]), Source::from(at));
}

/// Inside a traced function: a layer whose tensors are the sums, or the means, of those of all layers, such as the
/// gradient of a batch from the clipped gradients of its examples. Results of ts::vmap may have a Stack in them.
template <int Dim, class Block>
  requires(Dim == 0)
constexpr Block sum(const Stack<Block>& stack, Here at = Here::current()) {
  return detail::reduce_layers<false>(stack, at);
}
template <int Dim, class Block>
  requires(Dim == 0)
constexpr Block mean(const Stack<Block>& stack, Here at = Here::current()) {
  return detail::reduce_layers<true>(stack, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
