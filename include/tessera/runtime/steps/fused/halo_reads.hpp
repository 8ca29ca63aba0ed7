#ifndef TESSERA_RUNTIME_STEPS_FUSED_HALO_READS_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_HALO_READS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/partition/plan/fragments/fragment_halos.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/memory/stored_grid.hpp>
#include <tessera/runtime/steps/step_move.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/holders.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// The halos of a fused step: boxes of other devices' shards that its assembled operands read, and their copies at the
/// start of the step's scratch memory.
class HaloReads {
 public:
  /// The copy of a box, contiguous.
  struct Copied {
    HaloBox halo;
    std::int64_t offset = 0;  ///< in scratch, in bytes
  };

  TESSERA_PLANNING explicit HaloReads(const StepContext& c) : layout_(&c.layout) {
    const FragmentHalos halos(c.layout.plan(), c.step, c.layout.mesh());
    if (halos.axes() == 0) return;
    grid_ = halos.grid();
    HaloTotals sent(grid_, c.step.source);
    for (int place = 0; place < grid_.count(); ++place) {
      first_.push_back(static_cast<std::int32_t>(copied_.size()));
      const Coordinates at = grid_.coordinates(place);
      for (const HaloBox& halo : halos.read_by(at)) {
        add(halo, Holders(c.layout.mesh(), halos.axes(), at));
        sent.add(halo, c.layout.value(halo.value).dtype, at);
      }
    }
    first_.push_back(static_cast<std::int32_t>(copied_.size()));
    collectives_ = sent.collectives();
  }

  std::int64_t bytes() const { return bytes_; }
  std::int64_t moved_bytes() const {
    std::int64_t moved = 0;
    for (const Move& own : moves_) moved += own.move.plan().moved_bytes();
    return moved;
  }
  std::int64_t table_bytes() const {
    std::int64_t bytes = static_cast<std::int64_t>(copied_.size() * sizeof(Copied));
    for (const Move& own : moves_) bytes += own.move.table_bytes();
    return bytes;
  }

  /// The copy that contains a box of a value on the device at `at`; null where this device has the box. Copies may
  /// overlap, so a copy that contains one element of a box need not have all.
  const Copied* find(int value, const Box& read, const Coordinates& at) const {
    if (first_.empty()) return nullptr;
    const auto place = static_cast<std::size_t>(grid_.index_of(at));
    for (std::int32_t i = first_[place]; i < first_[place + 1]; ++i) {
      const Copied& own = copied_[static_cast<std::size_t>(i)];
      bool inside = own.halo.value == value;
      for (std::size_t d = 0; d < read.begin.size() && inside; ++d)
        inside = own.halo.box.begin[d] <= read.begin[d] && read.end[d] <= own.halo.box.end[d];
      if (inside) return &own;
    }
    return nullptr;
  }

  /// Copies all boxes, and counts what they send.
  void receive(const Frame& frame) const {
    if (moves_.empty()) return;
    if (CommunicationScope* scope = CommunicationScope::innermost(); scope != nullptr)
      for (const CollectiveInfo& one : collectives_) scope->add(layout_->mesh(), one);
    for (const Move& own : moves_) own.move.run(frame);
  }

 private:
  /// The copies of one value.
  struct Move {
    std::int32_t value;
    StepMove move;
  };

  const FrameLayout* layout_;
  ShardGrid grid_;
  Growable<std::int32_t> first_;  // by place of the grid: its first copy; then the number of copies
  Growable<Copied> copied_;
  Growable<Move> moves_;
  Growable<CollectiveInfo> collectives_;  // counted from the copies
  std::int64_t bytes_ = 0;

  TESSERA_PLANNING void add(const HaloBox& halo, const Holders& readers) {
    const ValueLayout& value = (*layout_)[halo.value];
    const int shard = value.index(halo.holder);
    const auto from = static_cast<std::size_t>(shard);
    std::int64_t first = 0;
    for (std::size_t d = 0; d < halo.box.begin.size(); ++d)
      first += (halo.box.begin[d] - value.boxes[from].begin[d]) * value.strides[from][d];
    StepMove& move = move_of(halo.value);
    const int source = move.add_source(halo.box, value.strides[from], layout_->holders(halo.value, shard),
                                       {value.first + shard, first * value.element});
    const int destination = move.add_destination(halo.box, kernels::contiguous_strides(extents(halo.box)), readers,
                                                 {StepMove::scratch, bytes_});
    move.plan().fill({&destination, 1}, {&source, 1});
    copied_.push_back({halo, bytes_});
    const std::int64_t bytes = volume(extents(halo.box)) * value.element;
    bytes_ += (bytes + block_alignment - 1) / block_alignment * block_alignment;
  }
  StepMove& move_of(std::int32_t value) {
    for (Move& own : moves_)
      if (own.value == value) return own.move;
    moves_.push_back({value, StepMove(layout_->value(value).dtype)});
    return moves_.back().move;
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
