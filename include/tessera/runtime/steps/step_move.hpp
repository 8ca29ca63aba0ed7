#ifndef TESSERA_RUNTIME_STEPS_STEP_MOVE_HPP
#define TESSERA_RUNTIME_STEPS_STEP_MOVE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <span>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/transport/holders.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>
#include <tessera/runtime/transport/transport.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// What a step moves between devices while it computes, such as halos: a ReshardPlan, and where in a Frame its shards
/// are.
class StepMove {
 public:
  /// A byte offset from a pointer of the frame, or from the start of its scratch memory.
  struct Address {
    std::int32_t pointer = scratch;
    std::int64_t offset = 0;
  };
  static constexpr std::int32_t scratch = -1;
  static constexpr std::int32_t elsewhere = -2;  ///< only other processes hold the shard

  StepMove() : StepMove(DType::f32) {}  // moves nothing
  TESSERA_PLANNING explicit StepMove(DType type, Reduction reduction = Reduction::sum,
                                     kernels::ReduceFunction reduce = &kernels::no_reduction)
      : plan_(type, reduction, reduce) {}

  /// Declares a shard and returns its index. `at`: the address of the first element of the box.
  TESSERA_PLANNING int add_source(const Box& box, const kernels::Strides& strides, const Holders& held_by, Address at) {
    sources_.push_back(here(at, held_by));
    source_data_.push_back(nullptr);
    return plan_.add_source(box, strides, held_by);
  }
  TESSERA_PLANNING int add_destination(const Box& box, const kernels::Strides& strides, const Holders& held_by,
                                       Address at) {
    destinations_.push_back(here(at, held_by));
    destination_data_.push_back(nullptr);
    return plan_.add_destination(box, strides, held_by);
  }
  ReshardPlan& plan() { return plan_; }
  const ReshardPlan& plan() const { return plan_; }

  std::int64_t table_bytes() const {
    return plan_.table_bytes() +
           static_cast<std::int64_t>((destinations_.size() + sources_.size()) * (sizeof(Address) + sizeof(void*)));
  }

  void run(const Frame& frame) const {
    const auto address = [&](const Address& at) -> char* {
      if (at.pointer == elsewhere) return nullptr;
      char* const base = at.pointer == scratch ? frame.scratch : frame.pointers[static_cast<std::size_t>(at.pointer)];
      return base == nullptr ? nullptr : base + at.offset;  // null: an empty shard
    };
    for (std::size_t i = 0; i < destinations_.size(); ++i) destination_data_[i] = address(destinations_[i]);
    for (std::size_t i = 0; i < sources_.size(); ++i) source_data_[i] = address(sources_[i]);
    Transport::current().move(plan_, destination_data_, source_data_);
  }

 private:
  ReshardPlan plan_;
  Growable<Address> destinations_, sources_;

  static Address here(const Address& at, const Holders& held_by) {
    return held_by.processes().contains(process_index()) ? at : Address{elsewhere, 0};
  }
  // Members so that run() does not allocate: an allocation that failed halfway would leave donated arguments partly
  // overwritten.
  mutable Growable<void*> destination_data_;
  mutable Growable<const void*> source_data_;
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
