#ifndef TESSERA_NN_MOE_HPP
#define TESSERA_NN_MOE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/contraction/ragged_dot.hpp>
#include <tessera/ops/cumulative/cumulative.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/sorting/sort.hpp>

namespace tessera::nn {

/// Gated MLPs, one for each expert: down(silu(gate(x)) up(x)). Dim 0 of each tensor is the experts, so a mesh axis can
/// split them.
template <Element T = float> struct Experts {
  ShardedTensor<T, 3> gate, up;  ///< [experts, features, hidden]
  ShardedTensor<T, 3> down;      ///< [experts, hidden, features]

  static constexpr std::array field_names{"gate", "up", "down"};
  /// The result of each expert for x [groups, experts, tokens, features], or for the same x [tokens, features].
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    const auto of = [&](const auto& weight) {
      if constexpr (X::rank == 4)
        return einsum<"gecf,efh->gech">(x, detail::as_met_by<X>(weight, at), at);
      else
        return einsum<"nf,efh->enh">(x, detail::as_met_by<X>(weight, at), at);
    };
    const auto inner = silu(of(gate), at) * of(up);
    if constexpr (X::rank == 4)
      return einsum<"gech,ehf->gecf">(inner, detail::as_met_by<X>(down, at), at);
    else
      return einsum<"enh,ehf->enf">(inner, detail::as_met_by<X>(down, at), at);
  }
  /// The results for rows [groups, rows, features] that are sorted by expert, `sizes` [groups, experts] of each expert,
  /// times the weights [groups, rows]. The hidden features are multiplied by the weights, so that the gradients of the
  /// weights need no results.
  template <class X, class Sizes, class Weights>
  constexpr auto sorted(const X& rows, const Sizes& sizes, const Weights& weights, Here at = Here::current()) const {
    const auto of = [&](const auto& weight, const auto& x) {
      return ragged_dot(x, detail::as_met_by<X>(weight, at), sizes, at);
    };
    return of(down, silu(of(gate, rows), at) * of(up, rows) * unsqueeze<2>(weights, at));
  }
};

/// Which tokens the experts of a mixture compute.
enum class Dispatch : std::uint8_t {
  dense,     ///< each expert computes all tokens; no token is dropped
  capacity,  ///< each expert computes its first `capacity` tokens; its result for others is 0
  /// As `capacity`, but for each sequence of the batch, so devices with different sequences count separately. Only
  /// tokens are sent, to the devices of their experts and back (expert parallelism).
  sequence_capacity,
  /// sequence_capacity with room for all tokens of a sequence in each expert, so that no token is dropped. Sends and
  /// computes as much as if each token had chosen all experts.
  dropless,
  /// Each expert computes exactly the tokens that chose it: the tokens of each sequence are sorted by expert for a
  /// ts::ragged_dot. For experts that are whole on each device, or split along `hidden`.
  ragged,
};

namespace detail {

/// x [G, N, F] whose G is no static extent, since the indices of its tokens have none.
struct SequencesTag {
  template <class X> using result = X;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    if (!x.is_singleton(x.shifted(0, 3))) return x;
    const Value tokens = tessera::detail::MergeTag<3, 0, 1>::emit(context, x);
    return tessera::detail::SplitTag<2, 0, 2>::emit(context, tokens, build::extent(x, x.shifted(1, 3)));
  }
};
/// For each row of `like` [G, N, F] the sum of the rows [G, R, F] with its index, [G, R, 1], in the order of the rows.
struct SumOfRowsTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class X, class Indices, class Like> using result = X;
  static constexpr Value emit(Value context, Value x, Value indices, Value like) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    return build::cast(build::scatter_add(x, x.rank() - 2, indices, like), type);
  }
};

/// Marks tokens that are sent to the experts, so that the plan says why they are sent.
struct ToExpertsTag {
  template <class X> using result = X;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return build::alike(x, x, {.of_experts = true});
  }
};
/// The results of experts, which go back to the devices of their tokens before they are combined.
struct FromExpertsTag {
  template <class Made, class Tokens> using result = Made;
  static constexpr Value emit(Value context, Value made, Value tokens) {
    made = made.at(context.source);
    return build::alike(made, build::alike(tokens.at(context.source), made), {.of_experts = true});
  }
};

}  // namespace detail

/// A mixture of experts: y = sum over the chosen experts of weight * expert(x). For each token the `choices` most
/// probable experts of softmax(router(x)) are chosen; the weights are their normalised probabilities.
///
///     const auto [y, balance, z] = moe(x);                          // x, y [batch, time, features]
///     const auto loss = loss_of(y) + 0.01 * balance + 0.001 * z;
/// `balance` is experts * sum over the experts of (chosen tokens / tokens) * mean probability; its minimum is
/// `choices`, if all experts are chosen equally often; its gradient is that of the probabilities. `z` is the mean of
/// logsumexp(logits)^2. The router computes in f32. With a capacity, first choices have priority over second ones, and
/// earlier tokens over later ones.
///
/// Errors: shape_mismatch for more choices than experts. Communication: with split experts each device computes its
/// own, and the results are summed by an all_reduce; with a split batch and Dispatch::capacity the tokens are counted
/// over all devices. With Dispatch::sequence_capacity or Dispatch::dropless, and the batch and the experts split by one
/// axis, 2 all_to_alls forward and 2 for the gradients, of batch x experts x capacity x features, where the capacity of
/// dropless is the time; the plan calls them requested, with the reason "expert parallelism". With Dispatch::ragged no
/// tokens are sent: the weights of experts split by the axis of the batch are gathered; for other splits see
/// docs/parallelism.md. Sources: Shazeer et al., 1701.06538; GShard, 2006.16668; capacity and balance: Switch,
/// 2101.03961, with all choices counted, as in Mixtral, 2401.04088; z: ST-MoE, 2202.08906; ragged: MegaBlocks,
/// 2211.15841.
template <Element T = float, Dispatch How = Dispatch::dense> struct MoE {
  Linear<T, false> router;  ///< [features, experts]
  Experts<T> experts;
  Dim choices;   ///< of experts for each token
  Dim capacity;  ///< tokens of an expert, for a Dispatch with a capacity; see expert_capacity

  static constexpr std::array field_names{"router", "experts", "choices", "capacity"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    constexpr bool is_batch = has_rank<X>(3);
    static_assert(is_batch, "tessera: a mixture of experts takes x of [batch, time, features]");
    if constexpr (is_batch)
      return mixture(x, at);
    else
      return std::tuple(x, x, x);  // so that compilers report no errors of what follows
  }

 private:
  template <class X> static constexpr bool has_rank(int rank) {
    if constexpr (TensorOperand<X>)
      return X::rank == rank;
    else
      return false;
  }
  template <class X> constexpr auto mixture(const X& x, Here at) const {
    const auto tokens = merge_dims<0, 1>(x, at);                         // [N, F]
    const auto logits = matmul(cast<T>(tokens, at), router.weight, at);  // [N, E]
    const auto probabilities = softmax<1>(logits, at);
    const auto best = topk<1>(probabilities, choices, at);
    const auto count = extent<1>(logits, at);
    const auto chosen = one_hot<T>(best.indices, count, at);               // [N, K, E]
    const auto weights = best.values / sum<1>(best.values, keepdims, at);  // [N, K]
    const auto y = [&] {
      if constexpr (How == Dispatch::dense) {
        return dense(tokens, chosen, weights, at);
      } else if constexpr (How == Dispatch::capacity) {
        const auto whole = [&](const auto& of) { return unsqueeze<0>(of, at); };
        return squeeze<0>(dispatched(whole(tokens), whole(chosen), whole(weights), capacity, at), at);
      } else if constexpr (How == Dispatch::ragged) {
        const auto by_sequence = [&](const auto& of) { return split_dim<0>(of, extent<1>(x, at), at); };
        const auto sequences = call<detail::SequencesTag>(Source::from(at), x);
        return merge_dims<0, 1>(sorted(sequences, by_sequence(best.indices), by_sequence(weights), count, at), at);
      } else {
        const Dim room = How == Dispatch::dropless ? Dim(extent<1>(x, at)) : capacity;
        const auto by_sequence = [&](const auto& of) { return split_dim<0>(of, extent<1>(x, at), at); };
        return merge_dims<0, 1>(dispatched(x, by_sequence(chosen), by_sequence(weights), room, at), at);
      }
    }();                                                 // [N, F]
    const auto share = mean<0>(sum<1>(chosen, at), at);  // [E]
    const auto balance = sum(share * mean<0>(probabilities, at), at) * count;
    const auto log_sum = logsumexp<1>(logits, at);
    return std::tuple(cast<typename X::element>(split_dim<0>(y, extent<1>(x, at), at), at), balance,
                      mean(log_sum * log_sum, at));
  }
  constexpr auto dense(const auto& tokens, const auto& chosen, const auto& weights, Here at) const {
    using Element = typename std::remove_cvref_t<decltype(tokens)>::element;
    const auto combine = sum<1>(chosen * unsqueeze<2>(weights, at), at);  // [N, E]
    return einsum<"ne,enf->nf">(cast<Element>(combine, at), experts(tokens, at), at);
  }
  /// Tokens [G, N, F] in groups, the experts of each token [G, N, K] and its weights.
  constexpr auto sorted(const auto& tokens, const auto& chosen, const auto& weights, const auto& count, Here at) const {
    using Element = typename std::remove_cvref_t<decltype(tokens)>::element;
    const auto expert = merge_dims<1, 2>(chosen, at);                         // [G, R] of each row: a choice of a token
    const auto sizes = sum<1>(one_hot<std::int32_t>(expert, count, at), at);  // [G, E]
    const auto order = argsort<1>(expert, at);
    const auto token = unsqueeze<2>(floor_divide(order, choices, at), at);  // [G, R, 1]
    const auto own = gather<1>(merge_dims<1, 2>(weights, at), order, at);   // [G, R]
    const auto made = experts.sorted(gather<1>(tokens, token, at), sizes, cast<Element>(own, at), at);
    return call<detail::SumOfRowsTag>(Source::from(at), made, token, tokens);
  }
  /// Tokens [G, N, F] in groups, in each of which an expert has room for so many; chosen [G, N, K, E], weights [G, N,
  /// K].
  constexpr auto dispatched(const auto& tokens, const auto& chosen, const auto& weights, const Dim& room,
                            Here at) const {
    using Element = typename std::remove_cvref_t<decltype(tokens)>::element;
    // How many tokens chose the expert before, where first choices come before second ones. bf16 counts up to 256 only.
    const auto counted = cast<computed_t<T>>(chosen, at);
    const auto in_order = merge_dims<1, 2>(transpose<0, 2, 1, 3>(counted, at), at);  // [G, K N, E]
    const auto before = cumsum<1, CumulativeOptions{.exclusive = true}>(in_order, at);
    const auto place = split_dim<1>(sum<2>(before * in_order, at), extent<1>(tokens, at), at);  // [G, K, N]
    // A position beyond the capacity is no class of one_hot, which gives zeros.
    const auto slot = one_hot<T>(cast<std::int32_t>(place, at), room, at);  // [G, K, N, C]
    const auto slots = transpose<0, 2, 1, 3>(slot, at);                     // [G, N, K, C]
    const auto dispatch = einsum<"gnke,gnkc->gnec">(chosen, slots, at);
    const auto combine = einsum<"gnke,gnkc->gnec">(chosen * unsqueeze<3>(weights, at), slots, at);
    const auto own = einsum<"gnec,gnf->gecf">(cast<Element>(dispatch, at), tokens, at);
    const auto sent = call<detail::ToExpertsTag>(Source::from(at), own);
    const auto made = call<detail::FromExpertsTag>(Source::from(at), experts(sent, at), own);
    return einsum<"gnec,gecf->gnf">(cast<Element>(combine, at), made, at);
  }
};

/// A capacity of each expert: factor * tokens * choices / experts, rounded up.
inline std::int64_t expert_capacity(std::int64_t tokens, std::int64_t experts, std::int64_t choices,
                                    double factor = 1.25) {
  const double exact = factor * static_cast<double>(tokens) * static_cast<double>(choices);
  return static_cast<std::int64_t>(std::ceil(exact / static_cast<double>(experts)));
}

/// A mixture of experts. `expert_axis`, if the mesh has it, splits the experts; the hidden features are split like
/// those of an MLP. `capacity` is for dispatches with a capacity. Errors: `option` unless 1 <= choices <= experts;
/// `mesh_axis` for an `expert_axis` that is given and that the mesh lacks.
template <Element T = float, Dispatch How = Dispatch::dense>
MoE<T, How> moe(Key key, Extent features, Extent hidden, Extent experts, Dim choices, const ShardingStrategy& strategy,
                Dim capacity = 0, std::string_view expert_axis = "expert", double stddev = 0.02,
                Here at = Here::current()) {
  if (choices.value() < 1 || choices.value() > experts.value)
    fail(errc::option, "[moe] choices: ", choices.value(), " of ", experts.value, " experts", Source::from(at));
  if ((How == Dispatch::capacity || How == Dispatch::sequence_capacity) && capacity.value() < 1)
    fail(errc::option, "[moe] capacity: ", capacity.value(), " is not at least 1; see ts::nn::expert_capacity",
         Source::from(at));
  const bool splits_experts = tessera::detail::has_optional_axis("moe", strategy.mesh, expert_axis, "expert", at);
  const SpecEntry of_experts = splits_experts ? SpecEntry(expert_axis) : SpecEntry(none);
  const auto spec = [&](Role role) {
    PartitionSpec made{of_experts};
    for (const SpecEntry& entry : strategy.weight(role).entries) made.entries.push_back(entry);
    return made;
  };
  const auto [first, second, third, fourth] = split<4>(key);
  const auto width = static_cast<computed_t<T>>(stddev);
  return {linear<T, false>(first, features, experts, single(strategy.mesh), Role::column, stddev),
          {normal<T>(second, {experts, features, hidden}, strategy.mesh, spec(Role::column), 0, width),
           normal<T>(third, {experts, features, hidden}, strategy.mesh, spec(Role::column), 0, width),
           normal<T>(fourth, {experts, hidden, features}, strategy.mesh, spec(Role::row), 0, width)},
          choices,
          capacity};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
