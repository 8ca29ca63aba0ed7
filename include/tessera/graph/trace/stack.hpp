#ifndef TESSERA_GRAPH_TRACE_STACK_HPP
#define TESSERA_GRAPH_TRACE_STACK_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/changing_scalars.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/graph/trace/trace_types.hpp>

namespace tessera {

/// n layers of one structure. A traced function traces the block once, whatever n is: calling the stack is one repeat
/// node, forward and backward. All layers have the same shapes, Dims and Scalars.
template <class Block> class Stack {
 public:
  using block = Block;

  constexpr Stack() = default;
  explicit Stack(Growable<Block> layers) : layers_(std::move(layers)) {}
  /// Of the layers in a std::vector or another container.
  template <class Layers>
    requires(!std::is_same_v<Layers, Stack>) && requires(const Layers& layers) { Block(*layers.begin()); }
  explicit Stack(const Layers& layers) {
    layers_.reserve(layers.size());
    for (const Block& layer : layers) layers_.push_back(layer);
  }
  /// Makes layer i with make(i). Errors: `structure` for n < 0.
  template <class Make> Stack(int n, Make&& make) {
    if (n < 0) fail(errc::structure, "[stack] number of layers: ", n, " is negative");
    layers_.reserve(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) layers_.push_back(make(i));
  }

  constexpr int size() const { return static_cast<int>(layers_.size()); }
  constexpr Block& operator[](int i) { return layers_[static_cast<std::size_t>(i)]; }
  constexpr const Block& operator[](int i) const { return layers_[static_cast<std::size_t>(i)]; }
  constexpr Growable<Block>& layers() { return layers_; }
  constexpr const Growable<Block>& layers() const { return layers_; }

  /// A loop over the layers does not compile: in a traced function there is one layer, with the tensors of all.
  template <class B = Block> constexpr const B* begin() const {
    static_assert(std::is_void_v<B>,
                  "tessera: call a ts::Stack, blocks(x), or scan over it, ts::scan(f, x, blocks), in "
                  "place of a loop over its layers; outside of a traced function, loop over "
                  "blocks.layers()");
    return nullptr;
  }
  template <class B = Block> constexpr const B* end() const { return nullptr; }

  /// Applies all layers in order: x = layer(x, extra...), where x is a tensor, or a tuple or plain struct of tensors.
  /// Each layer returns tensors with the element types, ranks and shapes of its x; their shardings may differ. For
  /// values that each layer takes or makes itself, such as a cache, scan over the Stack: see ts::scan.
  TESSERA_LAYER_OPERATOR(called)

  /// The number of layers as a leaf: inside a trace, its placeholder.
  constexpr Dim count() const { return count_.traced() ? count_ : Dim(size()); }
  constexpr void set_count(const Dim& count) {
    if (count.traced())
      count_ = count;
    else
      layers_.resize(static_cast<std::size_t>(count.value()));
  }

 private:
  template <class X, class... Extra> constexpr auto called(Here at, const X& x, const Extra&... extra) const;

  Growable<Block> layers_;
  Dim count_{};  // a placeholder, in a trace of a block without tensors
};

namespace detail {

/// Visits the leaves of an argument of a block. A plain number is a constant of the block, not a leaf.
template <class T> constexpr void for_each_tensor(T& object, auto& visitor) {
  if constexpr (!std::is_arithmetic_v<std::remove_const_t<T>>) for_each_leaf(object, visitor);
}

/// A traced call of a Stack: one repeat node, whose body is the traced block.
template <class Block, class X, class... Extra>
constexpr X run_stack(Here at, const Stack<Block>& stack, const X& x, const Extra&... extra) {
  const LayerCall call(at, x);
  const Value context = trace_in(x);
  if (stack.layers().empty())
    fail(errc::structure, "[stack] call: a Stack can be called only with at least 1 layer", Source::from(at));
  BodyTrace body(*context.module, {});
  BindLeaves bind{body, BindLeaves::Kind::carried};
  X carried = x;
  for_each_leaf(carried, bind);
  bind.kind = BindLeaves::Kind::layer;
  Block layer = stack[0];
  for_each_leaf(layer, bind);
  bind.kind = BindLeaves::Kind::captured;
  std::tuple<Extra...> captured(extra...);
  std::apply([&](auto&... own) { (for_each_tensor(own, bind), ...); }, captured);
  const X result = std::apply([&](const auto&... own) { return as_carry(context, layer(carried, own...)); }, captured);
  const Source source = at.line() != 0 ? context.at(Source::from(at)).source : trace_in(result).node().source;
  if (const Value inside{context.module, context.module->current, -1, source};
      ChangingScalars().find(inside, carried, result))
    inside.refuse(errc::structure,
                  "[stack] result of a layer: a layer changes a ts::Scalar in a struct; use a tensor of rank 0 in its "
                  "place");
  GiveLeaves give{body, true};
  for_each_leaf(result, give);
  const Value made = body.close(counts_layers_v<Block> ? stack.count().placeholder() : context, source);
  X last = x;
  ProjectLeaves project{made, body};
  for_each_leaf(last, project);
  return last;
}

/// A call of a Stack in the function of a shard_map: a scan over its layers, which may widen what is passed from layer
/// to layer (see ops/shard_map/local_carry.hpp).
template <class Block, class X, class... Extra>
constexpr auto run_local_stack(Here at, const Stack<Block>& stack, const X& x, const Extra&... extra) {
  const LayerCall call(at, x);
  const auto step = [&](const auto& carried, const auto& layer) {
    return std::tuple(layer(carried, extra...), std::tuple());
  };
  return std::get<0>(scan(step, x, stack, false, Source::from(at)));
}

}  // namespace detail

template <class Block>
template <class X, class... Extra>
constexpr auto Stack<Block>::called(Here at, const X& x, const Extra&... extra) const {
  constexpr bool is_local = detail::holds_local_v<X>;
  constexpr bool is_flat = !detail::BlockLeaves::of<Block>().stack && !(detail::BlockLeaves::of<Extra>().stack || ...);
  static_assert(
      is_flat, "tessera: the layers of a ts::Stack can't contain a ts::Stack or take a ts::Stack as an argument; use a "
               "std::array of blocks inside of a layer");
  // Computed here so that compilers report an error in a layer with few lines of context.
  using Carried = detail::carry_t<X>;
  using Layer = const detail::Callable<is_flat, Block, 1 + sizeof...(Extra)>;
  constexpr bool sound = requires { std::declval<Layer&>()(std::declval<const Carried&>(), detail::settle(extra)...); };
  using Returned = typename detail::ReturnedBy<sound, Layer&, const Carried, decltype(detail::settle(extra))...>::type;
  constexpr bool is_taken = !std::is_same_v<Returned, detail::NoCall>;
  static_assert(
      is_taken,
      "tessera: the layers of a ts::Stack can't be called with these arguments; compare their number and types "
      "with the parameters of the layer's operator()");
  if constexpr (!std::is_base_of_v<detail::NoResult, Returned>) {
    using Result = detail::carry_t<std::remove_cvref_t<Returned>>;
    constexpr bool is_model = Model<Carried> && !NumberOperand<X> && !detail::holds_number_v<X>;
    static_assert(is_model,
                  "tessera: the first argument of a Stack is what is passed from layer to layer: a tensor, or a "
                  "tuple or plain struct of tensors; all further arguments are the same for each layer");
    constexpr bool is_one = !TensorOperand<Carried> || TensorOperand<Result>;
    static_assert(is_one,
                  "tessera: a layer of a Stack must return a single tensor, the first argument of the next layer");
    constexpr bool same = is_local || std::is_same_v<Result, Carried>;
    static_assert(
        same || TensorOperand<Carried>,
        "tessera: the result of a layer of a Stack must have the structure of the layer's first argument, with "
        "tensors of the same element types and ranks");
    if constexpr (is_one && TensorOperand<Carried>) {
      constexpr bool same_type = std::is_same_v<typename Result::element, typename Carried::element>;
      constexpr bool same_rank = Result::rank == Carried::rank;
      static_assert(
          same_type,
          "tessera: the result of a layer of a Stack must have the element type of the layer's first argument; "
          "convert the result with ts::cast");
      static_assert(same_rank,
                    "tessera: the result of a layer of a Stack must have the rank of the layer's first argument; for a "
                    "constant, use ts::full_like");
    }
    detail::require_trace("stack", "a Stack", Source::from(at), *this, x, extra...);
    if constexpr (is_local && is_model)
      return detail::run_local_stack(at, *this, x, detail::settle(extra)...);
    else if constexpr (same && is_model)
      return detail::run_stack(at, *this, detail::as_carry(detail::trace_in(x), x), detail::settle(extra)...);
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
