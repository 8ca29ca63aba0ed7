#ifndef TESSERA_RUNTIME_STEPS_RESHARD_STEP_HPP
#define TESSERA_RUNTIME_STEPS_RESHARD_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <span>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>
#include <tessera/runtime/transport/transport.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Reshards one value: all collectives of the plan's step in one pass, without intermediate values between them.
class ReshardStep final : public PreparedStep {
 public:
  TESSERA_PLANNING ReshardStep(const FrameLayout& layout, const PlanStep& step, kernels::ReduceFunction reduce)
      : plan_(layout.value(step.inputs[0]).dtype, layout.value(step.inputs[0]).sharding.reduction, reduce),
        from_(layout[step.inputs[0]]), to_(layout[step.outputs[0]]), mesh_(layout.mesh()), step_(step) {
    const Sharding& source = layout.value(step.inputs[0]).sharding;
    const Sharding& target = layout.value(step.outputs[0]).sharding;
    for (int s = 0; s < from_.shards(); ++s)
      plan_.add_source(from_.boxes[static_cast<std::size_t>(s)], from_.strides[static_cast<std::size_t>(s)],
                       layout.holders(step.inputs[0], s));
    for (int s = 0; s < to_.shards(); ++s)
      plan_.add_destination(to_.boxes[static_cast<std::size_t>(s)], to_.strides[static_cast<std::size_t>(s)],
                            layout.holders(step.outputs[0], s));

    // Along `reduced` axes parts are combined; along `kept` axes the value stays unreduced, and part i moves to part i.
    const auto reduced = static_cast<std::uint16_t>(source.unreduced & ~target.unreduced);
    Sharding kept;
    kept.unreduced = static_cast<std::uint16_t>(source.unreduced & target.unreduced);
    const ShardGrid kept_grid(layout.mesh(), kept);
    Sharding parts;
    parts.unreduced = reduced;
    const ShardGrid parts_grid(layout.mesh(), parts);
    Sharding dims = source;
    dims.unreduced = 0;
    const ShardGrid dims_grid(layout.mesh(), dims);
    Growable<Growable<int>> targets(static_cast<std::size_t>(kept_grid.count()));
    for (int s = 0; s < to_.grid.count(); ++s)
      targets[static_cast<std::size_t>(kept_grid.index_of(to_.grid.coordinates(s)))].push_back(s);
    Growable<int> destinations, sources, held;
    for (int k = 0; k < kept_grid.count(); ++k) {
      const Coordinates kept_at = kept_grid.coordinates(k);
      held.clear();
      for (int p = 0; p < parts_grid.count(); ++p) {
        Coordinates at = parts_grid.coordinates(p);
        overlay(at, kept_at, kept.unreduced);
        if (layout.holds(step.inputs[0], at)) held.push_back(p);
      }
      const bool joins = to_.layers != from_.layers;  // stacks the layers of a Stack into one tensor
      for (int l = 0; l < to_.layers; ++l) {
        destinations.clear();
        sources.clear();
        for (const int s : targets[static_cast<std::size_t>(k)]) destinations.push_back(l * to_.grid.count() + s);
        for (int own = joins ? 0 : l; own < (joins ? from_.layers : l + 1); ++own)
          for (int s = 0; s < dims_grid.count(); ++s)
            for (const int p : held) {
              Coordinates at = dims_grid.coordinates(s);
              overlay(at, kept_at, kept.unreduced);
              overlay(at, parts_grid.coordinates(p), reduced);
              sources.push_back(from_.index(at, own));
            }
        if (held.empty())
          for (const int destination : destinations) plan_.fill_identity(destination);
        else
          plan_.fill(destinations, sources, static_cast<int>(held.size()));
      }
    }
  }

  std::int64_t table_bytes() const override { return plan_.table_bytes(); }
  std::int64_t moved_bytes() const override { return plan_.moved_bytes(); }

  void run(Frame& frame) const override {
    if (CommunicationScope* scope = CommunicationScope::innermost())
      for (const CollectiveInfo& collective : step_.collectives) scope->add(mesh_, collective);
    Transport::current().move(
        plan_,
        {reinterpret_cast<void* const*>(&frame.pointers[static_cast<std::size_t>(to_.first)]),
         static_cast<std::size_t>(to_.shards())},
        {reinterpret_cast<const void* const*>(&frame.pointers[static_cast<std::size_t>(from_.first)]),
         static_cast<std::size_t>(from_.shards())});
  }

 private:
  ReshardPlan plan_;
  const ValueLayout& from_;
  const ValueLayout& to_;
  const Mesh& mesh_;
  const PlanStep& step_;

  static void overlay(Coordinates& to, const Coordinates& from, std::uint16_t axes) {
    for (std::size_t axis = 0; axis < to.size(); ++axis)
      if ((axes >> axis & 1) != 0) to[axis] = from[axis];
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
