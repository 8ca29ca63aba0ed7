#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_1F1B_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_1F1B_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>

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

/// The schedule 1F1B as one loop, whose ticks go forward and backward. Backward units are those of the forward pass
/// with the chunks in reverse; stage s of S has backward unit u in tick u + passed - 1 + S - 1 - s, so that a
/// microbatch returns in the tick in which it has passed all stages.
template <FixedString Axis, int Chunks> struct OneForwardOneBackward {
  using Schedule = PipelineSchedule<Axis, Chunks>;
  static constexpr int last_chunk = Chunks - 1;

  /// The inputs of all stages for this tick's backward passes. `kept` has the inputs of this tick and those before it.
  static constexpr auto inputs_before(const Schedule& schedule, const auto& kept, const auto& chunks, Here at) {
    constexpr int rank = std::remove_cvref_t<decltype(kept)>::rank;
    const auto stages_ahead = schedule.passed() - 1 - (chunks * schedule.stages() + schedule.stage_numbers());
    const auto age = with_trailing_dims<rank>(schedule.counted_to(schedule.passed() * 2 - 1), at);
    const auto of_stage = with_trailing_dims<rank - 1>(as_sym(stages_ahead * 2), at);
    return as_sym(sum<0>(select(equal(age, of_stage, at), kept, 0.0, at), at));
  }

  /// The mean loss, and its gradients with respect to stages, x and head.
  template <class Loss, class Targets>
  static constexpr auto run(const Loss& loss, const auto& stages, const auto& x, const auto& head,
                            const Targets& targets, const auto& microbatches, Here at) {
    const auto parts = microbatches_of(x, microbatches, at);
    const Schedule schedule(value_behind(parts), microbatches, at);
    const Dim last_stage = schedule.last_stage(), before_return = schedule.passed() - 1;
    const auto target_parts = std::apply(
        [&](const auto&... t) { return std::tuple(as_sym(microbatches_of(t, microbatches, at))...); }, targets);

    const auto zeros_of = [at](const auto& model) {
      return optim::tree_map([at](auto p) { return zeros_like(p, at); }, model);
    };
    const auto added = [](const auto& a, const auto& b) {
      return optim::tree_map([](auto p, auto q) { return p + q; }, a, b);
    };
    using Element = decltype(std::apply(
        [&](const auto&... t) { return typename std::remove_cvref_t<decltype(loss(head, x, t...))>::element(); },
        targets));
    const Sym<Element, 0> no_loss(value_behind(parts).number(0, dtype_v<Element>));
    const auto ticks = schedule.counted_to(schedule.units() + last_stage + before_return);
    const auto no_cotangent = as_sym(zeros_like(squeeze<0>(slice<0>(parts, 0, 1, at), at), at));
    const auto tick = [&](const auto& carry, const auto& number) {
      const auto& [made_before, sent_back, kept_before, stage_sum, head_sum, total] = carry;
      const auto goes_forward = as_sym(number < schedule.units() + last_stage);
      const auto goes_backward = as_sym(number >= before_return);
      const auto is_through = schedule.is_of_chunk(as_sym(number - last_stage), last_chunk);

      const auto forward = run_where(
          goes_forward,
          [&](const auto& before) {
            const auto chunks = schedule.chunk_of(as_sym(number - schedule.stage_numbers()));
            const auto enters = as_sym(logical_and(equal(schedule.stage_numbers(), 0, at), equal(chunks, 0, at), at));
            const auto next = dynamic_index<0>(parts, schedule.microbatch_of(number), at);
            const auto own =
                schedule.where(enters, unsqueeze<0>(next, at), schedule.template sent_by<1>(std::get<0>(before)));
            return std::tuple(stages(own, chunks), own);
          },
          std::tuple(made_before, made_before), at);
      const auto& made = std::get<0>(forward);
      const auto& input = std::get<1>(forward);
      const auto kept = concat<0>(unsqueeze<0>(input, at), slice<0>(kept_before, 0, before_return * 2, at), at);

      const auto loss_sums = run_where(
          is_through,
          [&](const auto& before) {
            const auto [value, gradient] = value_and_grad([&](const auto& both) {
              const auto leaving = schedule.microbatch_of(as_sym(number - last_stage));
              return std::apply(
                  [&](const auto&... t) {
                    return loss(std::get<0>(both), std::get<1>(both), as_sym(dynamic_index<0>(t, leaving, at))...);
                  },
                  target_parts);
            })(std::tuple(head, as_sym(schedule.of_stage(last_stage, made))));
            return std::tuple(std::get<0>(before) + value, added(std::get<1>(before), std::get<0>(gradient)),
                              std::get<1>(gradient));
          },
          std::tuple(total, head_sum, no_cotangent), at);
      const auto& cotangent = std::get<2>(loss_sums);

      const auto [new_stage_sum, back] = run_where(
          goes_backward,
          [&](const auto& before) {
            const auto unit = as_sym(number - before_return - last_stage + schedule.stage_numbers());
            const auto chunks = as_sym(last_chunk - schedule.chunk_of(unit));
            const auto returns =
                as_sym(logical_and(equal(schedule.stage_numbers(), last_stage, at), equal(chunks, last_chunk, at), at));
            const auto cotangents = schedule.where(returns, unsqueeze<0>(cotangent, at),
                                                   schedule.template sent_by<-1>(std::get<1>(before)));
            const auto [y, pullback] = vjp([](const auto& own, const auto& v, const auto& c) { return own(v, c); },
                                           stages, inputs_before(schedule, kept, chunks, at), chunks);
            const auto pulled = pullback(cotangents);
            return std::tuple(added(std::get<0>(before), std::get<0>(pulled)), std::get<1>(pulled));
          },
          std::tuple(stage_sum, sent_back), at);
      return std::tuple(std::tuple(made, back, kept, new_stage_sum, std::get<1>(loss_sums), std::get<0>(loss_sums)),
                        back);
    };

    // Before a stage has a microbatch it computes with the first one, in vain: zeros could make infinities.
    const auto first = as_sym(squeeze<0>(schedule.spread(slice<0>(parts, 0, 1, at)), at));
    const auto kept =
        as_sym(index_select<0>(unsqueeze<0>(first, at), schedule.counted_to(before_return * 2 + 1) * 0, at));
    const auto init = std::tuple(first, as_sym(zeros_like(first, at)), kept, zeros_of(stages), zeros_of(head), no_loss);
    const auto [last, back] = scan(tick, init, ticks, {}, at);
    const auto of_x = index_select<0>(back, schedule.unit_with_chunk(last_chunk) + before_return + last_stage, at);
    const auto x_sum = as_sym(batch_of(schedule.of_stage(0, movedim<1, 0>(of_x, at)), at));
    const auto mean_of = [&](const auto& sums) {
      return optim::tree_map([&](auto p) { return p / Dim(microbatches); }, sums);
    };
    return std::tuple(as_sym(std::get<5>(last) / Dim(microbatches)),
                      std::tuple(mean_of(std::get<3>(last)), mean_of(x_sum), mean_of(std::get<4>(last))));
  }
};

}  // namespace detail

/// The loss of a model whose layers are a pipeline, by the schedule 1F1B (PipeDream-Flush): inside a traced function,
///
///     const auto loss = ts::pipeline_1f1b(
///         [](const auto& head, const auto& y, const auto& labels) { return ts::cross_entropy(head(y), labels); },
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
    const auto run = [&](const auto& listed) {
      return detail::OneForwardOneBackward<Axis, Chunks>::run(loss, own_stages, own_x, own_head, listed, microbatches,
                                                              at);
    };
    if constexpr (detail::is_tuple_v<Targets>)
      return run(targets);
    else
      return run(std::tuple(targets));
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
