#ifndef TESSERA_RUNTIME_STEPS_STEP_CODE_HPP
#define TESSERA_RUNTIME_STEPS_STEP_CODE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/steps/along_step.hpp>
#include <tessera/runtime/steps/attention_step.hpp>
#include <tessera/runtime/steps/contraction_step.hpp>
#include <tessera/runtime/steps/cumulative_step.hpp>
#include <tessera/runtime/steps/custom_step.hpp>
#include <tessera/runtime/steps/data_movement_step.hpp>
#include <tessera/runtime/steps/indexed_step.hpp>
#include <tessera/runtime/steps/ragged_step.hpp>
#include <tessera/runtime/steps/random_step.hpp>
#include <tessera/runtime/steps/repeat_step.hpp>
#include <tessera/runtime/steps/row_exchange_step.hpp>
#include <tessera/runtime/steps/sort_step.hpp>
#include <tessera/runtime/steps/windows/fold_windows_step.hpp>
#include <tessera/runtime/steps/windows/window_step.hpp>
#endif

namespace tessera::runtime {

/// The unit kinds of a program, each with the element types of the first operands: only their code is instantiated.
struct StepNeeds {
  DTypeSet types[unit_kinds];  ///< by UnitKind; 0: the program has no such unit
  /// by reduction: element types of cumulative operations, of scatters that combine elements, of partial values
  ReducedTypes cumulative, scattered, partial;

  constexpr StepNeeds() {
    for (DTypeSet& own : types) own = 0;  // as in ReducedTypes
  }
  constexpr DTypeSet operator[](UnitKind kind) const { return types[static_cast<std::size_t>(kind)]; }
  constexpr void add(UnitKind kind, DType type) {
    DTypeSet& own = types[static_cast<std::size_t>(kind)];
    own = static_cast<DTypeSet>(own | set_of(type));
  }
  static constexpr StepNeeds everything() {
    StepNeeds all;
    all.cumulative = all_cumulative_types;
    all.scattered = all_scattered_types;
    all.partial = all_partial_types;
    for (DTypeSet& types : all.types) types = all_dtypes;
    for (const UnitKind kind : {UnitKind::contraction, UnitKind::cumulative, UnitKind::fold, UnitKind::ragged})
      all.types[static_cast<std::size_t>(kind)] = number_dtypes;
    all.types[static_cast<std::size_t>(UnitKind::sort)] = computed_dtypes;
    all.types[static_cast<std::size_t>(UnitKind::attention)] = floating_dtypes;
    return all;
  }
};

#if TESSERA_HAS_DEFINITIONS
namespace detail {

using Graphs = Growable<std::unique_ptr<PreparedGraph>>;

template <class Step> std::unique_ptr<PreparedStep> make_step(const StepContext& context, const Graphs&) {
  return std::unique_ptr<PreparedStep>(new Step(context));  // so that no std::unique_ptr<Step> is instantiated
}
template <class = void> std::unique_ptr<PreparedStep> make_repeat(const StepContext& context, const Graphs& graphs) {
  return std::unique_ptr<PreparedStep>(new RepeatStep<>(context, *graphs[static_cast<std::size_t>(context.step.body)]));
}

template <class = void>
std::unique_ptr<PreparedStep> make_data_movement(const StepContext& context, const Graphs& graphs) {
  const OpRow& row = row_of(context.graph[context.units[context.step.unit].root]);
  if (row.windows != nullptr) return make_step<WindowStep<>>(context, graphs);
  return row.offset != nullptr || row.permutation != nullptr ? make_step<RowExchangeStep<>>(context, graphs)
                                                             : make_step<DataMovementStep<>>(context, graphs);
}

template <StepNeeds Needs, UnitKind Kind> constexpr StepFactory step_factory() {
  if constexpr (Needs[Kind] == 0 || Kind == UnitKind::fused)
    return nullptr;
  else if constexpr (Kind == UnitKind::contraction)
    return &make_step<ContractionStep<Needs[Kind]>>;
  else if constexpr (Kind == UnitKind::indexed)
    return &make_step<IndexedStep<Needs[Kind]>>;
  else if constexpr (Kind == UnitKind::random)
    return &make_step<RandomStep<>>;
  else if constexpr (Kind == UnitKind::custom)
    return &make_step<CustomStep<>>;
  else if constexpr (Kind == UnitKind::repeat)
    return &make_repeat<>;
  else if constexpr (Kind == UnitKind::cumulative)
    return &make_step<CumulativeStep<Needs.cumulative>>;
  else if constexpr (Kind == UnitKind::fold)
    return &make_step<FoldWindowsStep<Needs[Kind]>>;
  else if constexpr (Kind == UnitKind::sort)
    return &make_step<SortStep<Needs[Kind]>>;
  else if constexpr (Kind == UnitKind::along)
    return &make_step<AlongStep<Needs[Kind], Needs.scattered>>;
  else if constexpr (Kind == UnitKind::attention)
    return &make_step<AttentionStep<Needs[Kind]>>;
  else if constexpr (Kind == UnitKind::ragged)
    return &make_step<RaggedStep<Needs[Kind]>>;
  else
    return &make_data_movement<>;
}

template <StepNeeds Needs>
inline constexpr StepCode code_for = []<std::size_t... K>(std::index_sequence<K...>) {
  return StepCode{{step_factory<Needs, static_cast<UnitKind>(K)>()...}, &kernels::strided_reduce<Needs.partial>};
}(std::make_index_sequence<unit_kinds>{});

}  // namespace detail
#endif

#ifdef TESSERA_COMPILED
/// The code of all steps for all types, compiled once in tessera::compiled.
const StepCode& every_step_code();
template <StepNeeds> const StepCode& step_code() { return every_step_code(); }
#if TESSERA_HAS_DEFINITIONS
const StepCode& every_step_code() { return detail::code_for<StepNeeds::everything()>; }
#endif
#else
/// Header-only: instantiates only the steps that the program needs.
template <StepNeeds Needs> const StepCode& step_code() { return detail::code_for<Needs>; }
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
