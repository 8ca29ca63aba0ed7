#ifndef TESSERA_RUNTIME_STEPS_STEP_CODE_HPP
#define TESSERA_RUNTIME_STEPS_STEP_CODE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/separate.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/executable.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/steps/attention_step.hpp>
#include <tessera/runtime/steps/contraction_step.hpp>
#include <tessera/runtime/steps/fold_step.hpp>
#include <tessera/runtime/steps/indexed_step.hpp>
#include <tessera/runtime/steps/layout_step.hpp>
#include <tessera/runtime/steps/random_step.hpp>
#include <tessera/runtime/steps/repeat_step.hpp>
#include <tessera/runtime/steps/scan_step.hpp>
#include <tessera/runtime/steps/sort_step.hpp>
#endif

namespace tessera::runtime {

/// What steps are compiled for: the kinds of unit that a program has, and the element types that each kind meets.
struct StepNeeds {
  std::uint32_t kinds = 0;  ///< a bit for each UnitKind
  DTypeSet products = 0, attentions = 0, folds = 0, sorted = 0, moved = 0;
  ReducedTypes scans, partial;  ///< by what they scan with, and by how partial values combine

  constexpr void add(UnitKind kind) { kinds |= 1u << static_cast<unsigned>(kind); }
  constexpr bool has(UnitKind kind) const { return (kinds >> static_cast<unsigned>(kind) & 1u) != 0; }
  static constexpr StepNeeds everything() {
    return {.kinds = (1u << unit_kinds) - 1,
            .products = number_dtypes,
            .attentions = floating_dtypes,
            .folds = number_dtypes,
            .sorted = all_dtypes,
            .moved = all_dtypes,
            .scans = all_scanned_types,
            .partial = all_partial_types};
  }
};

/// Steps as code: how to make the step of each UnitKind, and the reduction of partial values.
struct StepCode {
  std::array<StepFactory, unit_kinds> factories{};
  kernels::ReduceFunction reduce = nullptr;
};

#if TESSERA_HAS_DEFINITIONS
namespace detail {

using Graphs = std::vector<std::unique_ptr<PreparedGraph>>;

template <class Step> std::unique_ptr<PreparedStep> make_step(const StepContext& context, const Graphs&) {
  return std::make_unique<Step>(context);
}
inline std::unique_ptr<PreparedStep> make_repeat(const StepContext& context, const Graphs& graphs) {
  return std::make_unique<RepeatStep>(context, *graphs[static_cast<std::size_t>(context.step.body)]);
}

template <StepNeeds Needs, UnitKind Kind> constexpr StepFactory step_factory() {
  if constexpr (!Needs.has(Kind) || Kind == UnitKind::fused)
    return nullptr;
  else if constexpr (Kind == UnitKind::contraction)
    return &make_step<ContractionStep<Needs.products>>;
  else if constexpr (Kind == UnitKind::indexed)
    return &make_step<IndexedStep>;
  else if constexpr (Kind == UnitKind::random)
    return &make_step<RandomStep>;
  else if constexpr (Kind == UnitKind::repeat)
    return &make_repeat;
  else if constexpr (Kind == UnitKind::scan)
    return &make_step<ScanStep<Needs.scans>>;
  else if constexpr (Kind == UnitKind::fold)
    return &make_step<FoldStep<Needs.folds>>;
  else if constexpr (Kind == UnitKind::sort)
    return &make_step<SortStep<Needs.sorted, Needs.moved>>;
  else if constexpr (Kind == UnitKind::attention)
    return &make_step<AttentionStep<Needs.attentions>>;
  else
    return &make_step<LayoutStep>;
}

template <StepNeeds Needs>
inline constexpr StepCode code_for = []<std::size_t... K>(std::index_sequence<K...>) {
  return StepCode{{step_factory<Needs, static_cast<UnitKind>(K)>()...}, &kernels::strided_reduce_as<Needs.partial>};
}(std::make_index_sequence<unit_kinds>{});

}  // namespace detail
#endif

#ifdef TESSERA_SEPARATE
/// Compiled once for all programs, whatever they need.
const StepCode& every_step_code();
template <StepNeeds> const StepCode& step_code() { return every_step_code(); }
#if TESSERA_HAS_DEFINITIONS
const StepCode& every_step_code() { return detail::code_for<StepNeeds::everything()>; }
#endif
#else
/// What a program does not need, no code is generated for.
template <StepNeeds Needs> const StepCode& step_code() { return detail::code_for<Needs>; }
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
