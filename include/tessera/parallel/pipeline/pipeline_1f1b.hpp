#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_1F1B_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_1F1B_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
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
#include <tessera/ops/custom/custom_gradient.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/parallel/pipeline/pipeline_layers.hpp>
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
template <FixedString Axis, int Chunks, class Stages, class Parts, class Head, class Loss, class Targets, class Batched,
          class Shared>
struct OneForwardOneBackward {
  using Schedule = PipelineSchedule<Axis, Chunks>;
  static constexpr int last_chunk = Chunks - 1;

  const Schedule& schedule;
  const Stages& stages;
  const Parts& parts;  ///< the microbatches, [microbatches, batch, ...]
  const Head& head;
  const Loss& loss;
  const Targets& targets;  ///< a tuple, in microbatches like x
  const Batched& batched;  ///< a tuple, in microbatches like x
  const Shared& shared;    ///< a tuple, in which tensors have a leading dim of stages
  Here at;

  /// How many ticks after its first one a microbatch returns.
  constexpr Dim before_return() const { return schedule.passed() - 1; }

  /// What the layers get for the microbatches of these units, one for each stage.
  constexpr auto batched_of(const auto& units) const {
    const auto numbers = as_sym(schedule.microbatch_of(units));
    return each_of(batched, [&](const auto& each) { return as_sym(schedule.of_tick(each, numbers)); });
  }
  constexpr auto layers_of(const auto& own_stages, const auto& x, const auto& chunks, const auto& own_batched,
                           const auto& own_shared) const {
    const auto graphs = [&] { return static_cast<int>(value_behind(x).module->graphs.size()); };
    const int before = graphs();
    const auto made = apply_layers(own_stages, schedule, x, chunks, std::tuple_cat(own_batched, own_shared), at);
    for (int g = before; g < graphs(); ++g) {
      const Graph& graph = made.value.module->graph(g);
      for (int i = 0; i < graph.size(); ++i)
        if (row_of(graph[i]).unit == UnitKind::random)
          made.value.refuse(
              errc::unsupported,
              "[pipeline_1f1b] layers: they draw random numbers, and other ones when they are computed again in the "
              "backward pass; pass draws as values of each microbatch, or call ts::pipeline_gpipe");
    }
    return made;
  }

  /// What all stages compute in a tick, from what they computed in the tick before.
  constexpr auto go_forward(const auto& number, const auto& made_before) const {
    const auto make = [&](const auto& before) {
      const auto unit = as_sym(number - schedule.stage_numbers());
      const auto chunks = schedule.chunk_of(unit);
      const auto enters = as_sym(logical_and(equal(schedule.stage_numbers(), 0, at), equal(chunks, 0, at), at));
      const auto next = dynamic_index<0>(parts, schedule.microbatch_of(number), at);
      const auto input =
          schedule.where(enters, unsqueeze<0>(next, at), schedule.template sent_by<1>(std::get<0>(before)));
      return std::tuple(layers_of(stages, input, chunks, batched_of(unit), shared), input);
    };
    return run_where(as_sym(number < schedule.units() + schedule.last_stage()), make,
                     std::tuple(made_before, made_before), Source::from(at));
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
    return run_where(schedule.is_of_chunk(as_sym(number - last_stage), last_chunk), add, before, Source::from(at));
  }

  /// Adds the gradients of all stages' backward units. `before` has the sums of those of the stages and of what is
  /// shared, the cotangents that the stages sent, and zeros for the gradients of what a microbatch has. `kept` has the
  /// inputs of this tick and of those before it, `cotangent` is that of the last stage.
  constexpr auto go_backward(const auto& number, const auto& kept, const auto& cotangent, const auto& before) const {
    const Dim last_stage = schedule.last_stage();
    const auto add = [&](const auto& sums) {
      const auto unit = backward_units(number);
      const auto chunks = as_sym(last_chunk - schedule.chunk_of(unit));
      const auto returns =
          as_sym(logical_and(equal(schedule.stage_numbers(), last_stage, at), equal(chunks, last_chunk, at), at));
      const auto cotangents =
          schedule.where(returns, unsqueeze<0>(cotangent, at), schedule.template sent_by<-1>(std::get<1>(sums)));
      const auto recorded = vjp([&](const auto& own, const auto& v, const auto& c, const auto& own_batched,
                                    const auto& own_shared) { return layers_of(own, v, c, own_batched, own_shared); },
                                stages, inputs_before(kept, chunks), chunks, batched_of(unit), shared);
      const auto pulled = std::get<1>(recorded)(cotangents);
      return std::tuple(added(std::get<0>(sums), std::get<0>(pulled)), std::get<1>(pulled),
                        added(std::get<2>(sums), floating_items(std::get<4>(pulled))),
                        floating_items(std::get<3>(pulled)));
    };
    return run_where(as_sym(number >= before_return()), add, before, Source::from(at));
  }
  /// The backward units of all stages in a tick; for ticks [ticks, 1], those of each tick: [ticks, stages].
  constexpr auto backward_units(const auto& number) const {
    return as_sym(number - before_return() - schedule.last_stage() + schedule.stage_numbers());
  }
  /// The gradients of the microbatches, from the gradients of all ticks [ticks, stages, batch, ...]: each stage adds to
  /// the gradients of its microbatches.
  constexpr auto added_to_microbatches(const auto& gradients, const auto& of_batch, const Dim& ticks) const {
    const auto numbers = as_sym(schedule.microbatch_of(backward_units(unsqueeze<1>(schedule.counted_to(ticks), at))));
    return schedule.sum_of_ticks(gradients, numbers, as_sym(zeros_like(of_batch, at)));
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
    // Before a stage has a microbatch it computes with the first microbatch, whose results are not used: zeros could
    // make infinities.
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
      const auto no_gradients = each_of(floating_items(batched), [&](const auto& each) {
        return as_sym(zeros_like(schedule.of_tick(each, schedule.stage_numbers() * 0), at));
      });
      const auto backward =
          go_backward(number, inputs, std::get<2>(sums),
                      std::tuple(std::get<3>(carry), std::get<1>(carry), std::get<6>(carry), no_gradients));
      return std::tuple(std::tuple(std::get<0>(forward), std::get<1>(backward), inputs, std::get<0>(backward),
                                   std::get<1>(sums), std::get<0>(sums), std::get<2>(backward)),
                        std::tuple(std::get<1>(backward), std::get<3>(backward)));
    };
    const auto init = std::tuple(first, as_sym(zeros_like(first, at)), kept, zeros_of(stages, at), zeros_of(head, at),
                                 no_loss, zeros_of(floating_items(shared), at));
    const Dim last_stage = schedule.last_stage(), ticks = schedule.units() + last_stage + before_return();
    const auto all = scan(tick, init, schedule.counted_to(ticks), {}, at);
    const auto& last = std::get<0>(all);
    const auto of_x = index_select<0>(std::get<0>(std::get<1>(all)),
                                      schedule.unit_with_chunk(last_chunk) + before_return() + last_stage, at);
    const auto x_sum = as_sym(batch_of(schedule.of_stage(0, movedim<1, 0>(of_x, at)), at));
    const auto batched_sums = [&]<std::size_t... I>(const auto& given, const auto& found, std::index_sequence<I...>) {
      return std::tuple(as_sym(batch_of(added_to_microbatches(std::get<I>(found), std::get<I>(given), ticks), at))...);
    };
    const auto given = floating_items(batched);
    const auto of_batched =
        batched_sums(given, std::get<1>(std::get<1>(all)),
                     std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(given)>>>());
    const auto of_shared = each_of(std::get<6>(last), [&](const auto& each) { return as_sym(sum<0>(each, at)); });
    const auto mean_of = [&](const auto& sums) {
      return optim::tree_map([&](auto p) { return p / microbatches; }, sums);
    };
    return std::tuple(as_sym(std::get<5>(last) / microbatches),
                      std::tuple(mean_of(std::get<3>(last)), mean_of(x_sum), mean_of(std::get<4>(last)),
                                 mean_of(of_batched), mean_of(of_shared)));
  }
};

}  // namespace detail

/// The loss of a model whose layers are a pipeline, by the schedule 1F1B (PipeDream-Flush): inside a traced function,
///
///     const auto loss = ts::pipeline_1f1b(
///         [](const auto& last, const auto& out, const auto& wanted) { return ts::cross_entropy(last(out), wanted); },
///         model.stages, x, 8, model.head, labels);
/// is the mean over 8 microbatches of `loss(head, layers(x), labels)`, a tensor of rank 0. x is [batch, ...], and so
/// are the labels: a tensor, or a tuple of tensors for a loss with more arguments. The gradients with respect to
/// stages, x and head are computed in the same loop: the backward pass of a microbatch begins as soon as it has passed
/// the last stage. Until then a stage keeps the inputs of its layers, at most 2 C S - 1 for S stages with C chunks and
/// any number of microbatches; other values are recomputed. Only the loss is returned: for the result of the layers,
/// use ts::pipeline_gpipe. `ts::pipeline_1f1b(loss, stages, x, 8, head, labels, batched, shared)` is for layers with
/// more arguments than x, as in ts::pipeline_gpipe; their gradients are computed in the same loop. Layers are computed
/// twice, so layers that draw random numbers are the error `unsupported`: draw a dropout mask outside, and pass it in
/// `batched`.
///
/// A stage works in M C of M C + S - 1 ticks forward and as many backward, if S divides the number of microbatches M.
/// Errors: not_divisible unless the microbatches divide the batch. Communication: M C + S - 1 permutes of a
/// microbatch's activations, as many of its cotangents, an all_reduce of its result for each microbatch, and an
/// all_reduce of the gradient of x and of each other argument. A plan counts each for every tick, M C + (C + 1) S
/// - 2. Tensors that `loss` captures get no gradient. Source: Narayanan et al., 2104.04473.
template <FixedString Axis, class Block, int Chunks, TensorOperand X, SizeOperand M, class Loss, class Head,
          class Targets, class Batched, class Shared = std::tuple<>>
  requires(!std::is_same_v<Batched, Here>)
constexpr auto pipeline_1f1b(const Loss& loss, const Stack<PipelineStage<Axis, Block, Chunks>>& stages, const X& x,
                             const M& microbatches, const Head& head, const Targets& targets, const Batched& batched,
                             const Shared& shared = {}, Here at = Here::current()) {
  detail::check_stage_arguments<Batched, Shared>();
  const auto forward = [&](const auto& own_stages, const auto& own_x, const auto& own_head, const auto& own_batched,
                           const auto& own_shared) {
    const auto in_parts = [&](const auto& batch) {
      return detail::as_sym(detail::microbatches_of(batch, microbatches, at));
    };
    const auto listed = detail::each_of(detail::as_tuple(targets), in_parts);
    const auto parts = in_parts(own_x);
    const auto batched_parts = detail::each_of(own_batched, in_parts);
    const detail::PipelineSchedule<Axis, Chunks> schedule(detail::value_behind(parts), microbatches, at);
    const auto shared_parts = detail::shared_by_stages(schedule, own_shared);
    return detail::OneForwardOneBackward<
               Axis, Chunks, std::remove_cvref_t<decltype(own_stages)>, std::remove_const_t<decltype(parts)>,
               std::remove_cvref_t<decltype(own_head)>, Loss, std::remove_const_t<decltype(listed)>,
               std::remove_const_t<decltype(batched_parts)>, std::remove_const_t<decltype(shared_parts)>>{
        schedule, own_stages, parts, own_head, loss, listed, batched_parts, shared_parts, at}
        .run(Dim(microbatches));
  };
  const auto backward = [](const auto& gradients, const auto& cotangent) {
    const auto times = [&](const auto& gradient) {
      return optim::tree_map([&](auto g) { return cast<typename decltype(g)::element>(g * cotangent); }, gradient);
    };
    return std::apply([&](const auto&... each) { return std::tuple(times(each)...); }, gradients);
  };
  return custom_vjp(forward, backward)(stages, x, head, detail::as_tuple(batched), detail::as_tuple(shared));
}
template <FixedString Axis, class Block, int Chunks, TensorOperand X, SizeOperand M, class Loss, class Head,
          class Targets>
constexpr auto pipeline_1f1b(const Loss& loss, const Stack<PipelineStage<Axis, Block, Chunks>>& stages, const X& x,
                             const M& microbatches, const Head& head, const Targets& targets,
                             Here at = Here::current()) {
  return pipeline_1f1b(loss, stages, x, microbatches, head, targets, std::tuple(), std::tuple(), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
