#ifndef TESSERA_OPS_CHECKPOINT_HPP
#define TESSERA_OPS_CHECKPOINT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/base/error.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/gradient_rows.hpp>

namespace tessera {

// What a checkpointed function keeps for its gradient, as jax.checkpoint_policies.
inline constexpr CheckpointPolicy nothing_saveable{CheckpointPolicy::Kind::nothing};
inline constexpr CheckpointPolicy everything_saveable{CheckpointPolicy::Kind::everything};
/// A policy of ts::checkpoint that keeps the results of products: einsum, matmul, convolutions.
inline constexpr CheckpointPolicy dots_saveable{CheckpointPolicy::Kind::dots};
/// Keeps the results of products without batch dims, which both operands and the result have: the product of a Linear,
/// but not the scores q k^T of attention.
inline constexpr CheckpointPolicy dots_with_no_batch_dims_saveable{CheckpointPolicy::Kind::dots_without_batch_dims};
/// dots_with_no_batch_dims_saveable by its name in JAX, which moves these values to the memory of the host. Here
/// devices are threads of the host, so the values are in its memory already.
inline constexpr CheckpointPolicy offload_dot_with_no_batch_dims = dots_with_no_batch_dims_saveable;
/// Keeps all values but those of ts::with_sharding and ts::mark_sharding: a value that is resharded in the forward pass
/// is resharded again in the backward pass.
inline constexpr CheckpointPolicy all_but_constraints_saveable{CheckpointPolicy::Kind::all_but_constraints};

namespace detail {
template <class... Names>
constexpr CheckpointPolicy policy_of_names(CheckpointPolicy::Kind kind, const Names&... names) {
  static_assert(sizeof...(Names) <= CheckpointPolicy::max_names, "tessera: a policy of names takes up to 8 names");
  return {kind, CheckpointPolicy::Kind::nothing, {Name(names)...}};
}
}  // namespace detail

/// Keeps the values that ts::checkpoint_name gives one of these names, of which there are up to 8.
template <class... Names> constexpr CheckpointPolicy save_only_these_names(const Names&... names) {
  return detail::policy_of_names(CheckpointPolicy::Kind::names, names...);
}
/// save_only_these_names: the memory of the host is that of the devices. See offload_dot_with_no_batch_dims.
template <class... Names> constexpr CheckpointPolicy save_and_offload_only_these_names(const Names&... names) {
  return save_only_these_names(names...);
}
/// Keeps the values that have a name other than these names.
template <class... Names> constexpr CheckpointPolicy save_any_names_but_these(const Names&... names) {
  return detail::policy_of_names(CheckpointPolicy::Kind::names_but, names...);
}
/// Keeps all values but those that have one of these names.
template <class... Names> constexpr CheckpointPolicy save_anything_except_these_names(const Names&... names) {
  return detail::policy_of_names(CheckpointPolicy::Kind::everything_but, names...);
}
/// Keeps the values that either policy keeps. Errors: option for a policy that is itself of two, and for two policies
/// of names.
constexpr CheckpointPolicy save_from_both_policies(const CheckpointPolicy& a, const CheckpointPolicy& b) {
  using Kind = CheckpointPolicy::Kind;
  if (a.other != Kind::nothing || b.other != Kind::nothing || (a.has_names() && b.has_names()))
    fail(errc::option, "[checkpoint] save_from_both_policies: it joins two policies, one of which has names at most");
  CheckpointPolicy made = a.has_names() ? a : b;
  made.other = a.has_names() ? b.kind : a.kind;
  return made;
}

namespace detail {

template <FixedString Text> struct CheckpointNameTag {
  static_assert(Text.view().size() <= Name::max_length, "tessera: the name of a value has at most 15 characters");
  template <class A> using result = A;
  static constexpr Value emit(Value context, Value x) {
    const Node& node = x.node();
    return x.at(context.source)
        .make({.op = Op::name,
               .dtype = node.dtype,
               .rank = node.rank,
               .singletons = node.singletons,
               .labels = pack_axis(Name(Text.view()))},
              {x.id});
  }
};

/// Marks the nodes that a traced function adds to a graph as those of one checkpoint.
class OpenCheckpoint {
 public:
  constexpr OpenCheckpoint(const Value& context, const CheckpointPolicy& policy)
      : context_(context), first_(context.module->graph(context.module->current).size()) {
    if (context.module->regions.size() >= 255)
      context.refuse(errc::capacity, "[checkpoint] number: a program has at most 255 calls of checkpointed functions; "
                                     "write repeated layers as a ts::Stack");
    context.module->regions.push_back(policy);
    region_ = static_cast<std::uint8_t>(context.module->regions.size());
  }
  constexpr void close() {
    for (auto id = static_cast<std::size_t>(first_); id < nodes().size(); ++id) nodes().data()[id].region = region_;
  }
  /// As close(), but checkpoints inside of this one keep their own policies.
  constexpr void close_around_others() {
    for (auto id = static_cast<std::size_t>(first_); id < nodes().size(); ++id) {
      std::uint8_t& region = nodes().data()[id].region;
      const Growable<CheckpointPolicy>& regions = context_.module->regions;
      if (region == 0 || regions[static_cast<std::size_t>(region - 1)].kind == regions[region_ - 1u].kind)
        region = region_;
    }
  }

 private:
  constexpr Growable<Node>& nodes() { return context_.module->graph(context_.module->current).nodes; }

  Value context_;
  int first_;
  std::uint8_t region_ = 0;
};

}  // namespace detail

/// x with a name for the policy of a checkpoint around it, such as ts::save_only_these_names.
template <FixedString Text, TensorArgument X> constexpr auto checkpoint_name(const X& x, Here at = Here::current()) {
  return call<detail::CheckpointNameTag<Text>>(Source::from(at), x);
}

/// Inside a traced function: f, whose gradient computes f's values again instead of keeping them in memory, as
/// jax.checkpoint and torch.utils.checkpoint. Kept are f's arguments, and the values that the policy names.
///
///     const auto block = ts::checkpoint([&](const auto& x) { return layer(x); }, ts::dots_saveable);
///
/// Values are those of f, bit for bit; so are random numbers. In the block of a ts::Stack, the backward pass keeps the
/// input of each layer. A checkpoint inside a checkpoint has the policy of the outer one. Errors: capacity for more
/// than 255 calls in one program. Communication: that of f, again in the gradient. Source: Chen et al., 1604.06174.
template <class F> constexpr auto checkpoint(const F& f, CheckpointPolicy policy = nothing_saveable) {
  return [f, policy](const auto&... given) {
    const auto arguments = std::tuple<decltype(detail::settle(given))...>(detail::settle(given)...);
    const Value context = detail::trace_in(arguments);
    if (context.module == nullptr)
      fail(errc::unsupported, "[checkpoint] outside of a traced function: call it inside a function of ts::compile");
    detail::OpenCheckpoint region(context, policy);
    auto result = detail::settle(detail::applied(f, arguments));
    region.close();
    return result;
  };
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
