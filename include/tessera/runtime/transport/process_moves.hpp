#ifndef TESSERA_RUNTIME_TRANSPORT_PROCESS_MOVES_HPP
#define TESSERA_RUNTIME_TRANSPORT_PROCESS_MOVES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/base/dtype.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/runtime/transport/communicator.hpp>
#include <tessera/runtime/transport/holders.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// What one process of several does of a ReshardPlan: which boxes it sends and receives, and what it copies and reduces
/// itself. Each process computes the same lists from the same plan, so that no process tells another what it sends.
///
/// A box that is copied goes from one holder of its source to each process that lacks the source. A box that is reduced
/// for several processes is divided among them: each reduces its chunk from all parts, in the order of the parts, and
/// sends the chunk to the others, as a reduce-scatter and an all-gather. Results therefore have the bits of
/// ReshardPlan::run. Small boxes are reduced by every process, which sends more bytes and waits once instead of twice.
class ProcessMoves {
 public:
  TESSERA_PLANNING ProcessMoves(const ReshardPlan& plan, int process, int processes)
      : own_(process), count_(processes), phases_{Phase(plan), Phase(plan)} {
    plan.for_each_piece([&](int destination, std::span<const int> sources, const Box& box) {
      const Growable<int> readers = processes_of(plan.destination_holders(destination));
      const std::int64_t bytes = volume(extents(box)) * static_cast<std::int64_t>(size_of(plan.dtype()));
      const bool divided =
          sources.size() > 1 && readers.size() > 1 && bytes > small && !have_all(plan, readers, sources);
      for (std::size_t r = 0; r < readers.size(); ++r) {
        const Box chunk = divided ? chunk_of(box, static_cast<std::int64_t>(r), readers.size()) : box;
        if (chunk.empty()) continue;
        deliver(plan, readers[r], destination, sources, chunk);
        if (!divided) continue;
        for (const int other : readers)
          if (other != readers[r]) share(plan, readers[r], other, destination, chunk);
      }
    });
    for (Phase& phase : phases_) phase.finish(plan);
  }

  /// Bytes of the memory that run() needs for messages.
  std::int64_t scratch_bytes() const { return std::max(phases_[0].scratch_bytes(), phases_[1].scratch_bytes()); }
  /// Bytes that this process sends in a run.
  std::int64_t sent_bytes() const { return phases_[0].sent_bytes() + phases_[1].sent_bytes(); }

  /// Calls exchange(sent, received) twice. Addresses are in the order of the plan; those of shards that this process
  /// does not hold are not read.
  template <class Exchange>
  void run(std::span<void* const> destinations, std::span<const void* const> sources, char* scratch,
           const Exchange& exchange) const {
    for (const Phase& phase : phases_) phase.run(destinations, sources, scratch, exchange);
  }

 private:
  /// Boxes of at most this many bytes are reduced by each process that needs the result.
  static constexpr std::int64_t small = 4096;
  /// A box of at least this many bytes is a message of its own, which needs no copy if its elements are consecutive in
  /// memory. Smaller boxes for one process travel in one message.
  static constexpr std::int64_t large = 32768;

  /// A box that travels between this process and another.
  struct Parcel {
    int process;
    int shard;  ///< in the plan: of what is sent, the source, or in the second phase the destination
    Box box;
    std::int64_t bytes = 0;
    std::int64_t offset = -1;   ///< in the scratch memory; -1: sent from, or received in, the shard itself
    std::int64_t in_shard = 0;  ///< bytes from the shard's address to the box
    int slot = -1;              ///< index in the ReshardPlan that packs or combines it
  };
  /// A box of a destination that this process fills from its own shards and from parcels.
  struct Filled {
    int destination;
    Box box;
    Growable<int> inputs;  ///< a source of the plan, or -1 - index of a received parcel
  };
  /// A message: one large parcel, or the range of the scratch memory with all small parcels for one process.
  struct Envelope {
    int process;
    int shard = -1;  ///< -1: in the scratch memory
    std::int64_t offset = 0, bytes = 0;
  };

  /// One exchange of messages, and what is computed from what arrives.
  class Phase {
   public:
    explicit Phase(const ReshardPlan& plan)
        : pack_(plan.dtype()), fill_(plan.dtype(), plan.reduction(), plan.reduce_function()) {}

    Growable<Parcel> sent, received;
    Growable<Filled> filled;
    bool of_results = false;  ///< the second phase: what is sent is a box of a destination

    std::int64_t scratch_bytes() const { return scratch_bytes_; }
    std::int64_t sent_bytes() const {
      std::int64_t sum = 0;
      for (const Envelope& envelope : outgoing_) sum += envelope.bytes;
      return sum;
    }

    TESSERA_PLANNING void finish(const ReshardPlan& plan) {
      for (Parcel& parcel : sent) {
        const Box& whole = of_results ? plan.destination_box(parcel.shard) : plan.source_box(parcel.shard);
        const kernels::Strides& strides =
            of_results ? plan.destination_strides(parcel.shard) : plan.source_strides(parcel.shard);
        settle(parcel, whole, strides, plan.dtype(), parcel.shard);
      }
      for (const Filled& own : filled) {
        if (own.inputs.size() != 1 || own.inputs[0] >= 0) continue;
        Parcel& parcel = received[static_cast<std::size_t>(-1 - own.inputs[0])];
        parcel.shard = own.destination;
        settle(parcel, plan.destination_box(own.destination), plan.destination_strides(own.destination), plan.dtype(),
               own.destination);
      }
      for (Parcel& parcel : received) parcel.bytes = bytes_of(parcel.box, plan.dtype());
      place(sent, outgoing_);
      place(received, incoming_);

      Growable<int> known(static_cast<std::size_t>(of_results ? plan.destination_count() : plan.source_count()), -1);
      for (Parcel& parcel : sent) {
        if (parcel.offset < 0) continue;
        int& source = known[static_cast<std::size_t>(parcel.shard)];
        if (source < 0) {
          source = of_results
                       ? pack_.add_source(plan.destination_box(parcel.shard), plan.destination_strides(parcel.shard))
                       : pack_.add_source(plan.source_box(parcel.shard), plan.source_strides(parcel.shard));
          packed_from_.push_back(parcel.shard);
        }
        const int slot = pack_.add_destination(parcel.box);
        packed_to_.push_back(parcel.offset);
        pack_.combine(slot, {&source, 1}, parcel.box);
      }

      Growable<int> sources(static_cast<std::size_t>(plan.source_count()), -1);
      Growable<int> destinations(static_cast<std::size_t>(plan.destination_count()), -1);
      Growable<int> inputs;
      for (const Filled& own : filled) {
        if (own.inputs.size() == 1 && own.inputs[0] < 0 &&
            received[static_cast<std::size_t>(-1 - own.inputs[0])].offset < 0)
          continue;  // it is received where it belongs
        int& destination = destinations[static_cast<std::size_t>(own.destination)];
        if (destination < 0) {
          destination =
              fill_.add_destination(plan.destination_box(own.destination), plan.destination_strides(own.destination));
          filled_.push_back(own.destination);
        }
        inputs.clear();
        for (const int input : own.inputs) {
          if (input >= 0) {
            int& source = sources[static_cast<std::size_t>(input)];
            if (source < 0) {
              source = fill_.add_source(plan.source_box(input), plan.source_strides(input));
              read_.push_back({input, 0});
            }
            inputs.push_back(source);
          } else {
            const Parcel& parcel = received[static_cast<std::size_t>(-1 - input)];
            inputs.push_back(fill_.add_source(parcel.box));
            read_.push_back({-1, parcel.offset});
          }
        }
        fill_.combine(destination, inputs, own.box);
      }
      pack_data_.resize(packed_from_.size()), pack_slots_.resize(packed_to_.size());
      fill_data_.resize(read_.size()), fill_slots_.resize(filled_.size());
      messages_[0].resize(outgoing_.size()), messages_[1].resize(incoming_.size());
      sent.clear(), received.clear(), filled.clear();
    }

    template <class Exchange>
    void run(std::span<void* const> destinations, std::span<const void* const> sources, char* scratch,
             const Exchange& exchange) const {
      const auto shard = [&](int index) -> const void* {
        return of_results ? destinations[static_cast<std::size_t>(index)] : sources[static_cast<std::size_t>(index)];
      };
      for (std::size_t i = 0; i < packed_from_.size(); ++i) pack_data_[i] = shard(packed_from_[i]);
      for (std::size_t i = 0; i < packed_to_.size(); ++i) pack_slots_[i] = scratch + packed_to_[i];
      pack_.run(pack_slots_, pack_data_);
      for (std::size_t i = 0; i < outgoing_.size(); ++i) {
        const Envelope& own = outgoing_[i];
        const char* const from = own.shard < 0 ? scratch : static_cast<const char*>(shard(own.shard));
        messages_[0][i] = {own.process, const_cast<char*>(from) + own.offset, own.bytes};
      }
      for (std::size_t i = 0; i < incoming_.size(); ++i) {
        const Envelope& own = incoming_[i];
        char* const to =
            own.shard < 0 ? scratch : static_cast<char*>(destinations[static_cast<std::size_t>(own.shard)]);
        messages_[1][i] = {own.process, to + own.offset, own.bytes};
      }
      exchange(std::span<const Message>(messages_[0]), std::span<const Message>(messages_[1]));
      for (std::size_t i = 0; i < read_.size(); ++i)
        fill_data_[i] =
            read_[i].shard < 0 ? scratch + read_[i].offset : sources[static_cast<std::size_t>(read_[i].shard)];
      for (std::size_t i = 0; i < filled_.size(); ++i)
        fill_slots_[i] = destinations[static_cast<std::size_t>(filled_[i])];
      fill_.run(fill_slots_, fill_data_);
    }

   private:
    struct Read {
      int shard;  ///< -1: a parcel
      std::int64_t offset;
    };
    ReshardPlan pack_, fill_;
    Growable<int> packed_from_, filled_;
    Growable<std::int64_t> packed_to_;
    Growable<Read> read_;
    Growable<Envelope> outgoing_, incoming_;
    std::int64_t scratch_bytes_ = 0;
    // Members so that run() does not allocate.
    mutable Growable<const void*> pack_data_, fill_data_;
    mutable Growable<void*> pack_slots_, fill_slots_;
    mutable Growable<Message> messages_[2];

    static std::int64_t bytes_of(const Box& box, DType dtype) {
      return volume(extents(box)) * static_cast<std::int64_t>(size_of(dtype));
    }
    /// Lets a large parcel whose elements are consecutive in the shard stay there.
    TESSERA_PLANNING static void settle(Parcel& parcel, const Box& whole, const kernels::Strides& strides, DType dtype,
                                        int shard) {
      parcel.bytes = bytes_of(parcel.box, dtype);
      if (parcel.bytes < large) return;
      const Shape extent = extents(parcel.box);
      std::int64_t expected = 1, first = 0;
      for (std::size_t d = extent.size(); d-- > 0;) {
        first += (parcel.box.begin[d] - whole.begin[d]) * strides[d];
        if (extent[d] == 1) continue;
        if (strides[d] != expected) return;
        expected *= extent[d];
      }
      parcel.slot = shard;
      parcel.in_shard = first * static_cast<std::int64_t>(size_of(dtype));
    }
    /// Assigns scratch memory, and the messages: of each process its large parcels, then its small ones together.
    TESSERA_PLANNING void place(Growable<Parcel>& parcels, Growable<Envelope>& envelopes) {
      constexpr std::int64_t line = 64;
      Growable<std::int32_t> order;
      for (std::size_t i = 0; i < parcels.size(); ++i) order.push_back(static_cast<std::int32_t>(i));
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return parcels[static_cast<std::size_t>(a)].process < parcels[static_cast<std::size_t>(b)].process;
      });
      for (std::size_t begin = 0; begin < order.size();) {
        const int process = parcels[static_cast<std::size_t>(order[begin])].process;
        std::size_t end = begin;
        while (end < order.size() && parcels[static_cast<std::size_t>(order[end])].process == process) ++end;
        for (std::size_t i = begin; i < end; ++i) {
          Parcel& parcel = parcels[static_cast<std::size_t>(order[i])];
          if (parcel.bytes < large) continue;
          if (parcel.slot >= 0) {
            envelopes.push_back({process, parcel.slot, parcel.in_shard, parcel.bytes});
            continue;
          }
          parcel.offset = scratch_bytes_;
          envelopes.push_back({process, -1, parcel.offset, parcel.bytes});
          scratch_bytes_ += (parcel.bytes + line - 1) / line * line;
        }
        const std::int64_t first = scratch_bytes_;
        for (std::size_t i = begin; i < end; ++i) {
          Parcel& parcel = parcels[static_cast<std::size_t>(order[i])];
          if (parcel.bytes >= large) continue;
          parcel.offset = scratch_bytes_;
          scratch_bytes_ += parcel.bytes;
        }
        if (scratch_bytes_ > first) envelopes.push_back({process, -1, first, scratch_bytes_ - first});
        scratch_bytes_ = (scratch_bytes_ + line - 1) / line * line;
        begin = end;
      }
    }
  };

  int own_, count_;
  Phase phases_[2];

  TESSERA_PLANNING Growable<int> processes_of(const Holders& holders) const {
    Growable<int> found;
    for (int process = 0; process < count_; ++process)
      if (holders.processes().contains(process)) found.push_back(process);
    return found;
  }
  static bool has(const ReshardPlan& plan, int process, int source) {
    return plan.source_holders(source).processes().contains(process);
  }
  static bool have_all(const ReshardPlan& plan, const Growable<int>& processes, std::span<const int> sources) {
    for (const int process : processes)
      for (const int source : sources)
        if (!has(plan, process, source)) return false;
    return true;
  }
  /// The process that sends a source to `reader`: the next after it that holds the source, so that holders share the
  /// work.
  int sender(const ReshardPlan& plan, int source, int reader) const {
    int process = reader;
    while (!has(plan, process, source)) process = (process + 1) % count_;
    return process;
  }
  /// Range k of n of a box, along the first dim that is long enough, or along the longest.
  static Box chunk_of(const Box& box, std::int64_t k, std::size_t n) {
    const Shape extent = extents(box);
    const auto parts = static_cast<std::int64_t>(n);
    std::size_t dim = 0;
    while (dim < extent.size() && extent[dim] < parts) ++dim;
    if (dim == extent.size())
      dim = static_cast<std::size_t>(std::max_element(extent.begin(), extent.end()) - extent.begin());
    Box chunk = box;
    chunk.begin[dim] = box.begin[dim] + extent[dim] * k / parts;
    chunk.end[dim] = box.begin[dim] + extent[dim] * (k + 1) / parts;
    return chunk;
  }
  /// Lets `reader` fill a box of a destination, from sources of its own and of others.
  TESSERA_PLANNING void deliver(const ReshardPlan& plan, int reader, int destination, std::span<const int> sources,
                                const Box& box) {
    Phase& phase = phases_[0];
    Filled made{destination, box, {}};
    for (const int source : sources) {
      const int from = sender(plan, source, reader);
      if (from == reader) {
        made.inputs.push_back(source);
        continue;
      }
      if (from == own_) phase.sent.push_back({reader, source, box});
      if (reader != own_) continue;
      phase.received.push_back({from, source, box});
      made.inputs.push_back(-static_cast<int>(phase.received.size()));
    }
    if (reader == own_) phase.filled.push_back(std::move(made));
  }
  /// Sends a reduced chunk of a destination on.
  TESSERA_PLANNING void share(const ReshardPlan&, int from, int to, int destination, const Box& box) {
    Phase& phase = phases_[1];
    phase.of_results = true;
    if (from == own_) phase.sent.push_back({to, destination, box});
    if (to != own_) return;
    phase.received.push_back({from, destination, box});
    phase.filled.push_back({destination, box, {-static_cast<int>(phase.received.size())}});
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
