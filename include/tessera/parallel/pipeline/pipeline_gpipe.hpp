#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_GPIPE_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_GPIPE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/stop_gradient.hpp>
#include <tessera/parallel/pipeline/pipeline_schedule.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>

namespace tessera {

/// The layers of a pipeline applied to a batch in microbatches: inside a traced function,
/// `ts::pipeline_gpipe(stages, x, 8)` is what `layers(x)` is of the Stack of which the stages were made. x is
/// [batch, ...], and so is the result, which all devices of the axis have.
///
/// With M microbatches, S stages and C chunks a stage computes in M C of M C + S - 1 ticks, if S divides M; in the
/// others it waits. The gradient runs the same ticks backward when all microbatches are through, so what the backward
/// pass needs is kept for all of them: ts::checkpoint in the block keeps less of each, ts::pipeline_1f1b keeps fewer.
/// Errors: shape_mismatch unless the microbatches divide the batch. Communication: M C + S - 1 permutes of a
/// microbatch's activations, and an all_reduce of the result; backward the same, for cotangents. Source: Huang et al.,
/// 1811.06965; Narayanan et al., 2104.04473 (chunks).
template <FixedString Axis, class Block, int Chunks, TensorOperand X, SizeOperand M>
constexpr auto pipeline_gpipe(const Stack<PipelineStage<Axis, Block, Chunks>>& stages, const X& x,
                              const M& microbatches, Here at = Here::current()) {
  const auto parts = detail::microbatches_of(x, microbatches, at);
  const detail::PipelineSchedule<Axis, Chunks> schedule(detail::value_behind(parts), microbatches, at);
  const auto spread = schedule.spread(parts);
  const auto ticks = schedule.counted_to(schedule.units() + schedule.last_stage());
  const auto entering = index_select<0>(spread, schedule.microbatch_of(ticks), at);
  const auto tick = [&](const auto& made, const auto& entry) {
    const auto& [number, next] = entry;
    const auto chunks = detail::as_sym(schedule.chunk_of(number - schedule.stage_numbers()));
    const auto enters = detail::as_sym(logical_and(equal(schedule.stage_numbers(), 0, at), equal(chunks, 0, at), at));
    const auto y = stages(schedule.where(enters, next, schedule.template sent_by<1>(made)), chunks);
    return std::tuple(y, y);
  };
  // Before a stage has a microbatch it computes with the first one, in vain: with zeros a gradient could be infinite.
  const auto first = stop_gradient(squeeze<0>(slice<0>(spread, 0, 1, at), at), at);
  const auto made = std::get<1>(scan(tick, first, std::tuple(ticks, entering), {}, at));
  const auto through = [&] {
    if constexpr (Chunks == 1)
      return slice<0>(made, schedule.last_stage(), Dim(microbatches), at);
    else
      return index_select<0>(made, schedule.unit_with_chunk(Chunks - 1) + schedule.last_stage(), at);
  }();
  return detail::batch_of(schedule.of_stage(schedule.last_stage(), movedim<1, 0>(through, at)), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
