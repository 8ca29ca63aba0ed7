#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_GPIPE_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_GPIPE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/stop_gradient.hpp>
#include <tessera/parallel/pipeline/pipeline_layers.hpp>
#include <tessera/parallel/pipeline/pipeline_schedule.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>

namespace tessera {

/// Applies the layers of a pipeline to a batch in microbatches, by the schedule GPipe. In a traced function,
/// `ts::pipeline_gpipe(stages, x, 8)` equals `layers(x)`, where `layers` is the Stack from which the stages were made.
/// x is [batch, ...], and so is the result, which all devices of the axis have.
///
/// For layers with more arguments, `ts::pipeline_gpipe(stages, x, 8, batched, shared)` is `layers(x, batched...,
/// shared...)`. `batched` is a tensor or a std::tuple of tensors, [batch, ...] each, such as a mask or the output of an
/// encoder, which are split into microbatches like x. `shared` is a tensor, a Dim or a Scalar, or a std::tuple of
/// these, such as tables of rotary embeddings or a key, and is the same for all microbatches. Both have gradients.
/// Random numbers differ in each layer and microbatch, and from those of the layers on one device.
///
/// With M microbatches, S stages and C chunks a stage computes in M C of M C + S - 1 ticks, if S divides M; in the
/// others it waits. The backward pass runs the same ticks in reverse after all microbatches have gone forward, so
/// values for it are kept for all microbatches: ts::checkpoint in the block keeps fewer of them per microbatch,
/// ts::pipeline_1f1b keeps those of fewer microbatches. Errors: not_divisible unless the microbatches divide the
/// batch. Communication: M C + S - 1 permutes of a microbatch's activations, and an all_reduce of the result; backward
/// the same, for cotangents, and an all_reduce of each gradient of a further argument. Source: Huang et al.,
/// 1811.06965; Narayanan et al., 2104.04473 (chunks).
template <FixedString Axis, class Block, int Chunks, TensorOperand X, SizeOperand M, class Batched,
          class Shared = std::tuple<>>
  requires(!std::is_same_v<Batched, Here>)
constexpr auto pipeline_gpipe(const Stack<PipelineStage<Axis, Block, Chunks>>& stages, const X& x,
                              const M& microbatches, const Batched& batched, const Shared& shared = {},
                              Here at = Here::current()) {
  detail::check_stage_arguments<Batched, Shared>();
  const auto parts = detail::microbatches_of(x, microbatches, at);
  const detail::PipelineSchedule<Axis, Chunks> schedule(detail::value_behind(parts), microbatches, at);
  const auto spread = schedule.spread(parts);
  const auto ticks = schedule.counted_to(schedule.units() + schedule.last_stage());
  const auto entering = index_select<0>(spread, schedule.microbatch_of(ticks), at);
  const auto own_batched = detail::each_of(detail::as_tuple(batched), [&](const auto& each) {
    const auto units = detail::as_sym(unsqueeze<1>(ticks, at) - unsqueeze<0>(schedule.stage_numbers(), at));
    return detail::as_sym(schedule.of_ticks(detail::as_sym(detail::microbatches_of(each, microbatches, at)),
                                            detail::as_sym(schedule.microbatch_of(units))));
  });
  const auto own_shared = detail::shared_by_stages(schedule, detail::as_tuple(shared));
  const auto tick = [&](const auto& made, const auto& entry) {
    const auto& [number, next, extra] = entry;
    const auto chunks = detail::as_sym(schedule.chunk_of(number - schedule.stage_numbers()));
    const auto enters = detail::as_sym(logical_and(equal(schedule.stage_numbers(), 0, at), equal(chunks, 0, at), at));
    const auto y =
        detail::apply_layers(stages, schedule, schedule.where(enters, next, schedule.template sent_by<1>(made)), chunks,
                             std::tuple_cat(extra, own_shared), at);
    return std::tuple(y, y);
  };
  // Before a stage has a microbatch it computes with the first microbatch, whose results are not used: with zeros a
  // gradient could be infinite.
  const auto first = stop_gradient(squeeze<0>(slice<0>(spread, 0, 1, at), at), at);
  const auto made = std::get<1>(scan(tick, first, std::tuple(ticks, entering, own_batched), {}, at));
  const auto through = [&] {
    if constexpr (Chunks == 1)
      return slice<0>(made, schedule.last_stage(), Dim(microbatches), at);
    else
      return index_select<0>(made, schedule.unit_with_chunk(Chunks - 1) + schedule.last_stage(), at);
  }();
  return detail::batch_of(schedule.of_stage(schedule.last_stage(), movedim<1, 0>(through, at)), at);
}
template <FixedString Axis, class Block, int Chunks, TensorOperand X, SizeOperand M>
constexpr auto pipeline_gpipe(const Stack<PipelineStage<Axis, Block, Chunks>>& stages, const X& x,
                              const M& microbatches, Here at = Here::current()) {
  return pipeline_gpipe(stages, x, microbatches, std::tuple(), std::tuple(), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
