#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_1F1B_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_1F1B_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/graph/transform/vjp.hpp>
#include <tessera/ops/cond.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/custom_gradient.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/parallel/pipeline/pipeline_schedule.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>

namespace tessera {

namespace detail {

constexpr auto zeros_of(const auto& model, Here at) {
  return optim::tree_map([at](auto p) { return zeros_like(p, at); }, model);
}
constexpr auto added(const auto& a, const auto& b) {
  return optim::tree_map([](auto p, auto q) { return p + q; }, a, b);
}

/// The schedule 1F1B as one loop, whose ticks go forward and backward. Backward units are those of the forward pass
/// with the chunks in reverse; stage s of S has backward unit u in tick u + passed - 1 + S - 1 - s, so that a
/// microbatch returns in the tick in which it has passed all stages.
template <FixedString Axis, int Chunks, class Stages, class Parts, class Head, class Loss, class Targets>
struct OneForwardOneBackward {
  using Schedule = PipelineSchedule<Axis, Chunks>;
  static constexpr int last_chunk = Chunks - 1;

  const Schedule& schedule;
  const Stages& stages;
  const Parts& parts;  ///< the microbatches, [microbatches, batch, ...]
  const Head& head;
  const Loss& loss;
  const Targets& targets;  ///< a tuple, in microbatches like x
  Here at;

  /// How many ticks after its first one a microbatch returns.
  constexpr Dim before_return() const { return schedule.passed() - 1; }

  /// What all stages make in a tick, and of what, from what they made before.
  constexpr auto go_forward(const auto& number, const auto& made_before) const {
    const auto make = [&](const auto& before) {
      const auto chunks = schedule.chunk_of(as_sym(number - schedule.stage_numbers()));
      const auto enters = as_sym(logical_and(equal(schedule.stage_numbers(), 0, at), equal(chunks, 0, at), at));
      const auto next = dynamic_index<0>(parts, schedule.microbatch_of(number), at);
      const auto input =
          schedule.where(enters, unsqueeze<0>(next, at), schedule.template sent_by<1>(std::get<0>(before)));
      return std::tuple(stages(input, chunks), input);
    };
    return run_where(as_sym(number < schedule.units() + schedule.last_stage()), make,
                     std::tuple(made_before, made_before), at);
  }

  /// Adds the loss of the microbatch that has passed all stages, and its gradient, to those of the microbatches before:
  /// `before` has the sums of the losses and of the head's gradients, and zeros for the cotangent of what a stage
  /// makes.
  constexpr auto add_loss(const auto& number, const auto& made, const auto& before) const {
    const Dim last_stage = schedule.last_stage();
    const auto add = [&](const auto& sums) {
      const auto of_microbatch = [&](const auto& both) {
        const auto leaving = schedule.microbatch_of(as_sym(number - last_stage));
        return std::apply(
            [&](const auto&... t) {
              return loss(std::get<0>(both), std::get<1>(both), as_sym(dynamic_index<0>(t, leaving, at))...);
            },
            targets);
      };
      const auto found = value_and_grad(of_microbatch)(std::tuple(head, as_sym(schedule.of_stage(last_stage, made))));
      return std::tuple(std::get<0>(sums) + std::get<0>(found),
                        added(std::get<1>(sums), std::get<0>(std::get<1>(found))), std::get<1>(std::get<1>(found)));
    };
    return run_where(schedule.is_of_chunk(as_sym(number - last_stage), last_chunk), add, before, at);
  }

  /// Adds the gradients of all stages' backward units; `before` has their sum, and the cotangents that the stages sent.
  /// `kept` has the inputs of this tick and of those before it, `cotangent` is that of the last stage.
  constexpr auto go_backward(const auto& number, const auto& kept, const auto& cotangent, const auto& before) const {
    const Dim last_stage = schedule.last_stage();
    const auto add = [&](const auto& sums) {
      const auto unit = as_sym(number - before_return() - last_stage + schedule.stage_numbers());
      const auto chunks = as_sym(last_chunk - schedule.chunk_of(unit));
      const auto returns =
          as_sym(logical_and(equal(schedule.stage_numbers(), last_stage, at), equal(chunks, last_chunk, at), at));
      const auto cotangents =
          schedule.where(returns, unsqueeze<0>(cotangent, at), schedule.template sent_by<-1>(std::get<1>(sums)));
      const auto recorded = vjp([](const auto& own, const auto& v, const auto& c) { return own(v, c); }, stages,
                                inputs_before(kept, chunks), chunks);
      const auto pulled = std::get<1>(recorded)(cotangents);
      return std::tuple(added(std::get<0>(sums), std::get<0>(pulled)), std::get<1>(pulled));
    };
    return run_where(as_sym(number >= before_return()), add, before, at);
  }
  /// The inputs of all stages for this tick's backward units.
  constexpr auto inputs_before(const auto& kept, const auto& chunks) const {
    constexpr int rank = std::remove_cvref_t<decltype(kept)>::rank;
    const auto stages_ahead = before_return() - (chunks * schedule.stages() + schedule.stage_numbers());
    const auto age = with_trailing_dims<rank>(schedule.counted_to(before_return() * 2 + 1), at);
    const auto of_stage = with_trailing_dims<rank - 1>(as_sym(stages_ahead * 2), at);
    return as_sym(sum<0>(select(equal(age, of_stage, at), kept, 0.0, at), at));
  }

  template <class X> using Microbatch = Sym<typename X::element, X::rank - 1>;
  template <class... Ts>
  static auto element_of_loss(const std::tuple<Ts...>&) -> typename std::remove_cvref_t<
      decltype(std::declval<const Loss&>()(std::declval<const Head&>(), std::declval<const Microbatch<Parts>&>(),
                                           std::declval<const Microbatch<Ts>&>()...))>::element;

  /// The mean loss, and its gradients with respect to stages, x and head.
  constexpr auto run(const Dim& microbatches) const {
    // Before a stage has a microbatch it computes with the first one, in vain: zeros could make infinities.
    const auto first = as_sym(squeeze<0>(schedule.spread(slice<0>(parts, 0, 1, at)), at));
    const auto kept =
        as_sym(index_select<0>(unsqueeze<0>(first, at), schedule.counted_to(before_return() * 2 + 1) * 0, at));
    const auto no_cotangent = as_sym(zeros_like(squeeze<0>(slice<0>(parts, 0, 1, at), at), at));
    using Element = decltype(element_of_loss(std::declval<const Targets&>()));
    const Sym<Element, 0> no_loss(value_behind(parts).number(0, dtype_v<Element>));

    const auto tick = [&](const auto& carry, const auto& number) {
      const auto forward = go_forward(number, std::get<0>(carry));
      const auto inputs = concat<0>(unsqueeze<0>(std::get<1>(forward), at),
                                    slice<0>(std::get<2>(carry), 0, before_return() * 2, at), at);
      const auto sums =
          add_loss(number, std::get<0>(forward), std::tuple(std::get<5>(carry), std::get<4>(carry), no_cotangent));
      const auto backward =
          go_backward(number, inputs, std::get<2>(sums), std::tuple(std::get<3>(carry), std::get<1>(carry)));
      return std::tuple(std::tuple(std::get<0>(forward), std::get<1>(backward), inputs, std::get<0>(backward),
                                   std::get<1>(sums), std::get<0>(sums)),
                        std::get<1>(backward));
    };
    const auto init =
        std::tuple(first, as_sym(zeros_like(first, at)), kept, zeros_of(stages, at), zeros_of(head, at), no_loss);
    const Dim last_stage = schedule.last_stage();
    const auto all = scan(tick, init, schedule.counted_to(schedule.units() + last_stage + before_return()), {}, at);
    const auto& last = std::get<0>(all);
    const auto of_x =
        index_select<0>(std::get<1>(all), schedule.unit_with_chunk(last_chunk) + before_return() + last_stage, at);
    const auto x_sum = as_sym(batch_of(schedule.of_stage(0, movedim<1, 0>(of_x, at)), at));
    const auto mean_of = [&](const auto& sums) {
      return optim::tree_map([&](auto p) { return p / microbatches; }, sums);
    };
    return std::tuple(as_sym(std::get<5>(last) / microbatches),
                      std::tuple(mean_of(std::get<3>(last)), mean_of(x_sum), mean_of(std::get<4>(last))));
  }
};

}  // namespace detail

/// The loss of a model whose layers are a pipeline, by the schedule 1F1B (PipeDream-Flush): inside a traced function,
///
///     const auto loss = ts::pipeline_1f1b(
///         [](const auto& last, const auto& out, const auto& wanted) { return ts::cross_entropy(last(out), wanted); },
///         model.stages, x, 8, model.head, labels);
///
/// is the mean over 8 microbatches of `loss(head, layers(x), labels)`, a tensor of rank 0. x is [batch, ...], and so
/// are the labels: a tensor, or a tuple of tensors for a loss with more arguments. Its gradients with respect to
/// stages, x and head are computed together with it: a microbatch goes backward as soon as it has passed the last
/// stage, and a stage keeps the inputs of the microbatches in between, at most 2 C S - 1 for S stages with C chunks,
/// however many there are; the rest is computed again. Only the loss: use ts::pipeline_gpipe.
///
/// A stage works in M C of M C + S - 1 ticks forward and as many backward, if S divides the number of microbatches M.
/// Errors: shape_mismatch unless the microbatches divide the batch. Communication: M C + S - 1 permutes of a
/// microbatch's activations, as many of its cotangents, an all_reduce of its result for each microbatch, and an
/// all_reduce of the gradient of x. A plan counts each for every tick, M C + (C + 1) S - 2. Tensors that `loss`
/// captures get no gradient. Source: Narayanan et al., 2104.04473.
template <FixedString Axis, class Block, int Chunks, TensorOperand X, SizeOperand M, class Loss, class Head,
          class Targets>
constexpr auto pipeline_1f1b(const Loss& loss, const Stack<PipelineStage<Axis, Block, Chunks>>& stages, const X& x,
                             const M& microbatches, const Head& head, const Targets& targets,
                             Here at = Here::current()) {
  const auto forward = [&](const auto& own_stages, const auto& own_x, const auto& own_head) {
    const auto in_parts = [&](const auto& batch) {
      return detail::as_sym(detail::microbatches_of(batch, microbatches, at));
    };
    const auto listed = [&] {
      if constexpr (detail::is_tuple_v<Targets>)
        return std::apply([&](const auto&... t) { return std::tuple(in_parts(t)...); }, targets);
      else
        return std::tuple(in_parts(targets));
    }();
    const auto parts = in_parts(own_x);
    const detail::PipelineSchedule<Axis, Chunks> schedule(detail::value_behind(parts), microbatches, at);
    return detail::OneForwardOneBackward<Axis, Chunks, std::remove_cvref_t<decltype(own_stages)>,
                                         std::remove_const_t<decltype(parts)>, std::remove_cvref_t<decltype(own_head)>,
                                         Loss, std::remove_const_t<decltype(listed)>>{
        schedule, own_stages, parts, own_head, loss, listed, at}
        .run(Dim(microbatches));
  };
  const auto backward = [](const auto& gradients, const auto& cotangent) {
    const auto times = [&](const auto& gradient) {
      return optim::tree_map([&](auto g) { return cast<typename decltype(g)::element>(g * cotangent); }, gradient);
    };
    return std::apply([&](const auto&... each) { return std::tuple(times(each)...); }, gradients);
  };
  return custom_vjp(forward, backward)(stages, x, head);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
