#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_SCHEDULE_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_SCHEDULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/sym.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/index_put.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/shard_map/axis_text.hpp>
#include <tessera/ops/shard_map/local_collectives.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>

namespace tessera::detail {

/// A batch in microbatches, [microbatches, batch, ...]. Microbatch i has the examples i, i + microbatches, ...: every
/// device has examples of each, so that none move.
template <TensorOperand X, SizeOperand M> constexpr auto microbatches_of(const X& x, const M& microbatches, Here at) {
  return movedim<1, 0>(call<SplitTag<X::rank, 0, 2, MadeBy::pipeline>>(Source::from(at), x, Dim(microbatches)), at);
}
template <TensorOperand X> constexpr auto batch_of(const X& microbatches, Here at) {
  return merge_dims<0, 1>(movedim<0, 1>(microbatches, at), at);
}

/// Adds dims of extent 1 after those of x, up to rank `Rank`.
template <int Rank, TensorOperand X> constexpr auto with_trailing_dims(const X& x, Here at) {
  if constexpr (X::rank >= Rank)
    return as_sym(x);
  else
    return with_trailing_dims<Rank>(unsqueeze<X::rank>(x, at), at);
}

/// Which stage of a pipeline computes what in which tick. In each tick every stage applies a chunk of its layers to a
/// microbatch, which the stage before had in the tick before. A microbatch passes all stages once for each chunk: after
/// the last stage it returns to the first. Microbatches go in groups, as many as there are stages, so that the first of
/// a group is back when the last has entered. A stage's work is a row of units: all microbatches of a group with the
/// first chunk, then with the second, then the next group. Stage s has unit u in tick u + s.
///
/// Values of all stages have a leading dim of stages, which is split over the mesh axis.
template <FixedString Axis, int Chunks> class PipelineSchedule {
 public:
  template <SizeOperand M>
  constexpr PipelineSchedule(const Value& context, const M& microbatches, Here at)
      : context_(context), stages_(axis_size_of(context, Axis.view())), microbatches_(microbatches), at_(at) {}

  constexpr Dim stages() const { return stages_; }
  constexpr Dim last_stage() const { return stages_ - 1; }
  /// How many stages a microbatch passes.
  constexpr Dim passed() const { return stages_ * Chunks; }
  constexpr Dim units() const {
    if constexpr (Chunks == 1)
      return microbatches_;
    else
      return (microbatches_ + last_stage()) / stages_ * passed();
  }

  /// 0, 1, ..., size - 1.
  constexpr Sym<std::int32_t, 1> counted_to(const Dim& size) const {
    return Sym<std::int32_t, 1>(build::arange(as_size(lower(context_, size))));
  }
  constexpr auto stage_numbers() const { return counted_to(stages_); }

  /// The microbatch, and the chunk, of a unit; within bounds for units that do not exist.
  constexpr auto microbatch_of(const auto& unit) const {
    const auto bounded = [&](const auto& m) { return as_sym(minimum(maximum(m, 0, at_), microbatches_ - 1, at_)); };
    if constexpr (Chunks == 1)
      return bounded(unit);
    else
      return bounded(floor_divide(unit, passed(), at_) * stages_ + remainder(unit, stages_, at_));
  }
  constexpr auto chunk_of(const auto& unit) const {
    return as_sym(floor_divide(remainder(unit, passed(), at_), stages_, at_));
  }
  /// Whether a unit is that of a microbatch with the given chunk.
  constexpr auto is_of_chunk(const auto& unit, int chunk) const {
    const auto exists = logical_and(unit >= 0, unit < units(), at_);
    if constexpr (Chunks == 1) {
      return as_sym(exists);
    } else {
      const auto whole_group = floor_divide(unit, passed(), at_) * stages_ + remainder(unit, stages_, at_);
      return as_sym(
          logical_and(logical_and(exists, whole_group < microbatches_, at_), equal(chunk_of(unit), chunk, at_), at_));
    }
  }
  /// The unit of each microbatch, in order, with the given chunk.
  constexpr auto unit_with_chunk(int chunk) const {
    const auto numbers = counted_to(microbatches_);
    if constexpr (Chunks == 1)
      return numbers;
    else
      return as_sym(floor_divide(numbers, stages_, at_) * passed() + stages_ * chunk +
                    remainder(numbers, stages_, at_));
  }

  /// Microbatches [microbatches, batch, ...] for all stages, [microbatches, stages, batch, ...].
  constexpr auto spread(const auto& x) const { return shard_map<with_axis<"{} -> {-,@}", Axis>()>(Spread{}, at_)(x); }
  /// A value that is the same for all stages, with a leading dim of stages.
  constexpr auto to_stages(const auto& x) const {
    return shard_map<with_axis<"{} -> {@}", Axis>()>(SpreadFirst{}, at_)(x);
  }
  /// Selects the microbatch that each stage has in each of some ticks: from microbatches [microbatches, batch, ...],
  /// which all devices have, and their numbers [ticks, stages], the result is [ticks, stages, batch, ...].
  constexpr auto of_ticks(const auto& x, const auto& numbers) const {
    return shard_map<with_axis<"{}, {-,@} -> {-,@}", Axis>()>(PickInTicks{}, at_)(x, numbers);
  }
  /// The same in one tick: `numbers` is [stages], the result [stages, batch, ...].
  constexpr auto of_tick(const auto& x, const auto& numbers) const {
    return shard_map<with_axis<"{}, {@} -> {@}", Axis>()>(PickInTick{}, at_)(x, numbers);
  }
  /// The sum of rows [ticks, stages, batch, ...] that belong to the microbatches `numbers`, [ticks, stages], shaped as
  /// `zeros`, [microbatches, batch, ...].
  constexpr auto sum_of_ticks(const auto& rows, const auto& numbers, const auto& zeros) const {
    const auto by_stage = [&](const auto& x) { return as_sym(merge_dims<0, 1>(movedim<1, 0>(x, at_), at_)); };
    return as_sym(index_add<0>(zeros, by_stage(numbers), by_stage(rows), at_));
  }
  /// What each stage gets from the stage before it (`By` 1) or after it (-1).
  template <int By> constexpr auto sent_by(const auto& x) const {
    return shard_map<with_axis<"{@} -> {@}", Axis>()>(Send<By>{}, at_)(x);
  }
  /// For each stage, `entering` if the condition, a vector, is true for the stage, otherwise `x`.
  constexpr auto where(const auto& stages, const auto& entering, const auto& x) const {
    constexpr int rank = std::remove_cvref_t<decltype(x)>::rank;
    return as_sym(select(with_trailing_dims<rank>(stages, at_), entering, x, at_));
  }
  /// The entry of one stage, [stages, batch, ...] to [batch, ...].
  template <TensorOperand X, Operand Stage> constexpr auto of_stage(const Stage& stage, const X& x) const {
    return sum<0>(where(as_sym(equal(stage_numbers(), stage, at_)), x, zeros_like(x, at_)), at_);
  }

 private:
  Value context_;
  Dim stages_, microbatches_;
  Here at_;

  struct Spread {
    constexpr auto operator()(const auto& x) const { return unsqueeze<1>(pvary<Axis>(x)); }
  };
  struct SpreadFirst {
    constexpr auto operator()(const auto& x) const { return unsqueeze<0>(pvary<Axis>(x)); }
  };
  struct PickInTicks {
    constexpr auto operator()(const auto& x, const auto& numbers) const {
      return unsqueeze<1>(index_select<0>(x, merge_dims<0, 1>(numbers)));
    }
  };
  struct PickInTick {
    constexpr auto operator()(const auto& x, const auto& numbers) const { return index_select<0>(x, numbers); }
  };
  template <int By> struct Send {
    constexpr auto operator()(const auto& x) const { return ppermute<Axis>(x, tessera::Shift(By)); }
  };
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
