#ifndef TESSERA_GRAPH_TRACE_STACK_HPP
#define TESSERA_GRAPH_TRACE_STACK_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/graph/trace/body.hpp>

namespace tessera {

/// n layers of one structure. A traced function traces the block once, whatever n is: calling the stack is one repeat
/// node, forward and backward. All layers have the same shapes, Dims and Scalars.
template <class Block> class Stack {
 public:
  using block = Block;

  constexpr Stack() = default;
  explicit Stack(std::vector<Block> layers) : layers_(std::move(layers)) {}
  /// Makes layer i with make(i). Errors: `structure` for n < 0.
  template <class Make> Stack(int n, Make&& make) {
    if (n < 0) fail(errc::structure, "[stack] number of layers: ", n, " is negative");
    layers_.reserve(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) layers_.push_back(make(i));
  }

  constexpr int size() const { return static_cast<int>(layers_.size()); }
  constexpr Block& operator[](int i) { return layers_[static_cast<std::size_t>(i)]; }
  constexpr const Block& operator[](int i) const { return layers_[static_cast<std::size_t>(i)]; }
  constexpr std::vector<Block>& layers() { return layers_; }
  constexpr const std::vector<Block>& layers() const { return layers_; }

  /// Applies all layers in order: x = layer(x, extra...), where x is a tensor, or a tuple or plain struct of tensors.
  /// Each layer returns tensors with the element types, ranks and shapes of its x; their shardings may differ. For
  /// values that each layer takes or makes itself, such as a cache, scan over the Stack: see ts::scan.
  template <class X, class... Extra> constexpr auto operator()(const X& x, const Extra&... extra) const;

  /// The number of layers as a leaf: inside a trace, its placeholder.
  constexpr Dim count() const { return count_.traced() ? count_ : Dim(size()); }
  constexpr void set_count(const Dim& count) {
    if (count.traced())
      count_ = count;
    else
      layers_.resize(static_cast<std::size_t>(count.value()));
  }

 private:
  std::vector<Block> layers_;
  Dim count_{};  // a placeholder, in a trace of a block without tensors
};

namespace detail {

/// Visits the leaves of an argument of a block. A plain number is a constant of the block, not a leaf.
template <class T> constexpr void for_each_tensor(T& object, auto& visitor) {
  if constexpr (!std::is_arithmetic_v<std::remove_const_t<T>>) for_each_leaf(object, visitor);
}

<<<<<<< HEAD
/// Makes each tensor of a structure an argument of a body. Dims and Scalars are copied into the body as sources, with
/// their index among the program's arguments.
struct BindArguments {
  Module* module;
  int body;
  int next;
  bool sliced;  ///< the outer values have a leading dim of layers
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (SymOperand<Leaf> || StoredOperand<Leaf>) {
      Value outer;
      if constexpr (SymOperand<Leaf>)
        outer = leaf.value;
      else
        outer = leaf.placeholder();
      if (outer.rank() != Leaf::rank + (sliced ? 1 : 0))
        module->refuse(errc::structure,
                       "[stack] operands: an extra argument of a Stack is a field of all layers, or a field of the "
                       "Stack was replaced by a tensor without a dim of layers");
      Node type = outer.node();
      if (sliced) {
        type.rank = static_cast<std::uint8_t>(type.rank - 1);
        type.singletons = static_cast<std::uint8_t>(type.singletons >> 1);
      }
      const int id = module->graph(body).add(build::argument_node(type, next++));
      leaf = Leaf(Value{module, body, id, type.source});
    } else if (leaf.traced()) {
      // The body has its own nodes for the Dims and Scalars of the program.
      const Node node = leaf.placeholder().node();
      if (node.arity > 0)
        module->refuse(errc::unsupported, "[stack] extra argument: a computed Dim or Scalar can't be an argument of a "
                                          "Stack; compute the number inside the block");
      leaf = Leaf(Value{module, body, module->graph(body).add(node), node.source});
    }
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// The result of a layer, checked to have the type of its first argument x, since the next layer takes it.
template <class Result> constexpr Value returned_by_a_layer(const Value& x, const Result& result) {
  if constexpr (TensorOperand<Result>) {
    const Value value = lower(x, result);
    if (!same_static_shape(value.node(), x.node()))
      value.refuse(
          errc::shape_mismatch,
          "[stack] shape of a layer: the argument and the result of a layer have equal shapes, but here only one "
          "of them has static extent 1, as from keepdims, in some dim");
    return value;
  } else {
    return x;  // a static_assert has said what is wrong
  }
}

=======
>>>>>>> flow
/// A traced call of a Stack: one repeat node, whose body is the traced block.
template <class Block, class X, class... Extra>
constexpr X run_stack(const Stack<Block>& stack, const X& x, const Extra&... extra) {
<<<<<<< HEAD
  if (stack.layers().empty() || x.value.module == nullptr)
    fail(errc::structure,
         "[stack] call: a Stack can be called only inside a traced function, and only with at least 1 layer");
  Module* module = x.value.module;
  const int outer = x.value.graph;

  Growable<std::int32_t> operands{x.value.id};
  CollectValues stacked, invariant;
  for_each_leaf(stack[0], stacked);
  (for_each_tensor(extra, invariant), ...);
  for (const Value& v : stacked.values) operands.push_back(v.id);
  for (const Value& v : invariant.values) operands.push_back(v.id);
  const bool counted = stacked.values.empty();
  if (counted) operands.push_back(stack.count().placeholder().id);

  const int body = module->add_graph();
  BindArguments bind{module, body, 0, false};
=======
  const Value context = trace_in(x);
  if (stack.layers().empty() || context.module == nullptr)
    fail(errc::structure, "[stack] layers: a Stack is called inside a traced function, and has at least one layer");
  BodyTrace body(*context.module, {});
  BindLeaves bind{body, BindLeaves::Kind::carried};
>>>>>>> flow
  X carried = x;
  for_each_leaf(carried, bind);
  bind.kind = BindLeaves::Kind::layer;
  Block layer = stack[0];
  for_each_leaf(layer, bind);
  bind.kind = BindLeaves::Kind::captured;
  std::tuple<Extra...> captured(extra...);
  std::apply([&](auto&... own) { (for_each_tensor(own, bind), ...); }, captured);
  const X result = std::apply([&](const auto&... own) { return as_carry(context, layer(carried, own...)); }, captured);
  GiveLeaves give{body, true};
  for_each_leaf(result, give);
  const Source source = trace_in(result).node().source;  // calling a stack, an operator(), captures no line
  const Value made = body.close(counts_layers_v<Block> ? stack.count().placeholder() : context, source);
  X last = x;
  ProjectLeaves project{made, body};
  for_each_leaf(last, project);
  return last;
}

}  // namespace detail

template <class Block>
template <class X, class... Extra>
constexpr auto Stack<Block>::operator()(const X& x, const Extra&... extra) const {
  constexpr bool is_outside = !detail::holds_local_v<X>;
  constexpr bool is_flat = !detail::BlockLeaves::of<Block>().stack && !(detail::BlockLeaves::of<Extra>().stack || ...);
<<<<<<< HEAD
  static_assert(is_tensor,
                "tessera: the first argument of a Stack is the tensor that is passed from layer to layer; all "
                "further arguments are the same for each layer");
  static_assert(
      is_outside,
      "tessera: a Stack can't be called inside a ts::shard_map; call ts::shard_map inside the block of the Stack");
  static_assert(
      is_flat, "tessera: the layers of a ts::Stack can't contain a ts::Stack or take a ts::Stack as an argument; use a "
               "std::array of blocks inside of a layer");
  if constexpr (is_tensor && is_outside && is_flat) {
    // Computed here so that compilers report an error in a layer with few lines of context.
    using Carried = decltype(detail::as_sym(x));
    using Result = decltype(std::declval<const Block&>()(std::declval<const Carried&>(), detail::settle(extra)...));
    constexpr bool is_one = TensorOperand<Result>;
    static_assert(is_one,
                  "tessera: a layer of a Stack must return a single tensor, the first argument of the next layer");
    if constexpr (is_one) {
=======
  static_assert(is_outside, "tessera: a Stack is called outside of a ts::shard_map; call shard_map inside its block");
  static_assert(is_flat, "tessera: the layers of a Stack have no Stack inside, and take none as an argument; a "
                         "std::array of blocks can be inside");
  if constexpr (is_outside && is_flat) {
    // Computed here so that compilers report an error in a layer with few lines of context.
    using Carried = detail::carry_t<X>;
    using Result = detail::carry_t<std::remove_cvref_t<decltype(std::declval<const Block&>()(
        std::declval<const Carried&>(), detail::settle(extra)...))>>;
    constexpr bool is_model = Model<Carried> && !NumberOperand<X> && !detail::holds_number_v<X>;
    static_assert(is_model, "tessera: a Stack carries a tensor from layer to layer, or a tuple or plain struct of "
                            "tensors: its first argument; further arguments are the same for every layer");
    constexpr bool is_one = !TensorOperand<Carried> || TensorOperand<Result>;
    static_assert(is_one, "tessera: a layer of a Stack returns one tensor, which the next layer is given");
    constexpr bool same = std::is_same_v<Result, Carried>;
    static_assert(same || TensorOperand<Carried>,
                  "tessera: a layer of a Stack returns another structure than it is given, which the next layer could "
                  "not take: it returns tensors of the same element types and ranks, in the same structure");
    if constexpr (is_one && TensorOperand<Carried>) {
>>>>>>> flow
      constexpr bool same_type = std::is_same_v<typename Result::element, typename Carried::element>;
      constexpr bool same_rank = Result::rank == Carried::rank;
      static_assert(
          same_type,
          "tessera: the result of a layer of a Stack must have the element type of the layer's first argument; "
          "convert the result with ts::cast");
      static_assert(same_rank,
<<<<<<< HEAD
                    "tessera: the result of a layer of a Stack must have the rank of the layer's first argument; for a "
                    "constant, use ts::full_like");
      if constexpr (same_type && same_rank)
        return detail::run_stack(*this, detail::as_sym(x), detail::settle(extra)...);
      else
        return detail::as_sym(x);
    } else {
      return detail::as_sym(x);
=======
                    "tessera: a layer of a Stack returns another rank than it is given, which the next layer could not "
                    "take; for a constant, ts::full_like");
>>>>>>> flow
    }
    if constexpr (same && is_model)
      return detail::run_stack(*this, detail::as_carry(detail::trace_in(x), x), detail::settle(extra)...);
    else if constexpr (is_model)
      return detail::as_carry(detail::trace_in(x), x);
    else
      return x;
  } else {
    return x;
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
