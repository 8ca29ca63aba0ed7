#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_LAYERS_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_LAYERS_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/trace/sym.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/parallel/pipeline/pipeline_schedule.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>

// What the schedules of a pipeline share: layers with further arguments, applied to a value of all stages.

namespace tessera::detail {

/// The arguments of a layer after x: a tuple, or a single one.
template <class T> constexpr auto as_tuple(const T& given) {
  if constexpr (is_tuple_v<T>)
    return std::apply([](const auto&... items) { return std::tuple(items...); }, given);
  else
    return std::tuple(given);
}
template <class T> struct AreStageArguments : std::bool_constant<Operand<T>> {};
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
struct AreStageArguments<Tuple<Ts...>> : std::bool_constant<(Operand<Ts> && ...)> {};
template <class T> struct AreTensors : std::bool_constant<TensorOperand<T>> {};
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
struct AreTensors<Tuple<Ts...>> : std::bool_constant<(TensorOperand<Ts> && ...)> {};

template <class Batched, class Shared> constexpr void check_stage_arguments() {
  static_assert(
      AreTensors<Batched>::value,
      "tessera: what a layer of a pipeline gets for each microbatch is a tensor [batch, ...], or a std::tuple "
      "of such tensors");
  static_assert(
      AreStageArguments<Shared>::value,
      "tessera: what is the same for all microbatches of a pipeline is a tensor, a ts::Dim or a ts::Scalar, or "
      "a std::tuple of these");
}

/// A tuple of the results of f for each item of a tuple.
constexpr auto each_of(const auto& items, const auto& f) {
  return std::apply([&](const auto&... item) { return std::tuple(f(item)...); }, items);
}
/// The items of a tuple that have a gradient.
constexpr auto floating_items(const auto& items) {
  const auto own = []<class T>(const T& item) {
    if constexpr (!TensorOperand<T>)
      return std::tuple();
    else if constexpr (is_floating_v<typename T::element>)
      return std::tuple(as_sym(item));
    else
      return std::tuple();
  };
  return std::apply([&](const auto&... item) { return std::tuple_cat(own(item)...); }, items);
}

/// What all layers share, with a leading dim of stages: each stage sums its own gradient, until the last tick.
template <FixedString Axis, int Chunks>
constexpr auto shared_by_stages(const PipelineSchedule<Axis, Chunks>& schedule, const auto& shared) {
  return each_of(shared, [&]<class T>(const T& item) {
    if constexpr (TensorOperand<T>)
      return as_sym(schedule.to_stages(as_sym(item)));
    else
      return item;
  });
}

/// All layers of every stage's chunk, applied to the stage's entry of x, [stages, batch, ...]. Further arguments of the
/// layers are in a tuple; tensors have a leading dim of stages too.
template <FixedString Axis, class Block, int Chunks>
constexpr auto apply_layers(const Stack<PipelineStage<Axis, Block, Chunks>>& stages,
                            const PipelineSchedule<Axis, Chunks>& schedule, const auto& x, const auto& chunks,
                            const auto& arguments, Here at) {
  const auto layer = [&](const auto& before, const auto& stage) {
    const auto& [value, numbers] = before;
    const auto next =
        std::apply([&, &value = value, &numbers = numbers](
                       const auto&... extra) { return as_sym(stage.apply(value, numbers, chunks, extra...)); },
                   arguments);
    return std::tuple(std::tuple(next, as_sym(numbers + schedule.passed())), std::tuple());
  };
  const auto first = as_sym(chunks * schedule.stages() + schedule.stage_numbers());
  return std::get<0>(std::get<0>(scan(layer, std::tuple(as_sym(x), first), stages, {}, at)));
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
