#ifndef TESSERA_RUNTIME_TRANSPORT_RESHARD_PLAN_HPP
#define TESSERA_RUNTIME_TRANSPORT_RESHARD_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/memory/past_caches.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/box_index.hpp>
#include <tessera/runtime/transport/holders.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

class ProcessMoves;

/// The copies and reductions that redistribute shards. Computed once, then run repeatedly on different addresses
/// without allocating.
///
/// Declare the shards first, then fill() each destination. The parts of a partial value are combined in the order of
/// their sources, however many threads run, so results are bitwise reproducible. The memory of a destination overlaps
/// no other destination and no source, except that it may be that of its `source_of`, which then needs no copy.
/// Errors: `graph_invalid` for inconsistent shards, `dtype_mismatch` for a reduction that the dtype does not have (of
/// 8-bit floats, sums of bool).
class ReshardPlan {
 public:
  TESSERA_PLANNING explicit ReshardPlan(DType type, Reduction reduction = Reduction::sum,
                                        kernels::ReduceFunction reduce = &kernels::strided_reduce<>)
      : type_(type), reduction_(reduction), reduce_(reduce) {
    with_monoid(reduction, [&]<class M>() {
      dispatch<M::dtypes>(
          type,
          [&]<class T>() {
            const T value = M::template identity<T>();
            std::memcpy(identity_.data(), &value, sizeof value);
          },
          [] {});
    });
  }

  /// `held_by`: the devices that hold the shard. By default all shards are on one device, and nothing is sent.
  TESSERA_PLANNING int add_destination(const Box& box, const kernels::Strides& strides, const Holders& held_by = {}) {
    source_of_.push_back(none);
    return add_shard(destinations_, {box, strides, held_by});
  }
  int add_source(const Box& box, const kernels::Strides& strides, const Holders& held_by = {}) {
    return add_shard(sources_, {box, strides, held_by});
  }
  int add_destination(const Box& box) { return add_destination(box, kernels::contiguous_strides(extents(box))); }
  int add_source(const Box& box) { return add_source(box, kernels::contiguous_strides(extents(box))); }

  /// Fills each destination from the sources that overlap its box. With `partials` > 1, `sources` is a sequence of
  /// groups of that many shards of equal box, each group the parts of a partial value.
  TESSERA_PLANNING void fill(std::span<const int> destinations, std::span<const int> sources, int partials = 1) {
    if (partials < 1 || sources.size() % static_cast<std::size_t>(partials) != 0)
      fail(errc::graph_invalid, "[reshard] groups of parts: ", sources.size(), " sources do not divide into groups of ",
           partials);
    if (partials > 1) check_arithmetic();
    Growable<Box> boxes;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Box& box = shard(sources_, sources[i]).box;
      if (i % static_cast<std::size_t>(partials) == 0)
        boxes.push_back(box);
      else if (!(box == boxes.back()))
        fail(errc::graph_invalid, "[reshard] boxes of parts: source ", sources[i],
             " and the first part of its value differ");
    }
    const int first = static_cast<int>(inputs_.size());
    inputs_.append(sources.data(), sources.data() + sources.size());
    const BoxIndex index(std::move(boxes));
    for (int destination : destinations) {
      const Shard& to = shard(destinations_, destination);
      std::int64_t missing = to.box.empty() ? 0 : volume(extents(to.box));
      index.for_each_overlap(to.box, [&](std::size_t group, const Box& overlap) {
        const int input = first + static_cast<int>(group) * partials;
        add_piece({destination, input, partials, 0, overlap, 0});
        const std::int64_t elements = volume(extents(overlap));
        missing -= elements;
        moved_ += elements * static_cast<std::int64_t>(size_of(type_)) * sends(to.held_by, partials, [&](int i) {
                    return shard(sources_, inputs_[static_cast<std::size_t>(input + i)]).held_by;
                  });
        const Shard& from = shard(sources_, inputs_[static_cast<std::size_t>(input)]);
        if (partials == 1 && from.box == to.box && from.strides == to.strides)
          source_of_[static_cast<std::size_t>(destination)] = inputs_[static_cast<std::size_t>(input)];
      });
      if (missing != 0)
        fail(errc::graph_invalid, "[reshard] one source for each element: ", missing < 0 ? -missing : missing,
             " elements of destination ", destination, missing < 0 ? " are in two sources" : " are in no source");
    }
  }

  /// Fills a box of a destination from sources that all contain it: copies one source, reduces several in this order.
  TESSERA_PLANNING void combine(int destination, std::span<const int> sources, const Box& box) {
    const Shard& to = shard(destinations_, destination);
    const int first = static_cast<int>(inputs_.size());
    inputs_.append(sources.data(), sources.data() + sources.size());
    if (sources.size() == 1)
      if (const Shard& from = shard(sources_, sources[0]);
          from.box == to.box && from.strides == to.strides && box == to.box)
        source_of_[static_cast<std::size_t>(destination)] = sources[0];
    if (!box.empty()) add_piece({destination, first, static_cast<int>(sources.size()), 0, box, 0});
  }

  /// Fills a destination that has no source with the identity of the reduction: zeros for a sum.
  TESSERA_PLANNING void fill_identity(int destination) {
    const Box& box = shard(destinations_, destination).box;
    if (!box.empty()) add_piece({destination, 0, 0, 0, box, 0});
  }

  /// Calls f(destination, span of sources, box) for each box that is filled: from no source with the identity.
  template <class F> void for_each_piece(const F& f) const {
    for (const Piece& piece : pieces_)
      f(piece.destination,
        std::span<const int>(inputs_.data() + piece.first_input, static_cast<std::size_t>(piece.inputs)), piece.box);
  }

  DType dtype() const { return type_; }
  Reduction reduction() const { return reduction_; }
  kernels::ReduceFunction reduce_function() const { return reduce_; }
  const Holders& destination_holders(int index) const { return shard(destinations_, index).held_by; }
  const Holders& source_holders(int index) const { return shard(sources_, index).held_by; }
  const kernels::Strides& destination_strides(int index) const { return shard(destinations_, index).strides; }
  const kernels::Strides& source_strides(int index) const { return shard(sources_, index).strides; }
  int destination_count() const { return static_cast<int>(destinations_.size()); }
  int source_count() const { return static_cast<int>(sources_.size()); }
  const Box& destination_box(int index) const { return shard(destinations_, index).box; }
  const Box& source_box(int index) const { return shard(sources_, index).box; }
  /// The source with the same box and strides as this destination, so that they can share a buffer; or `none`.
  int source_of(int destination) const { return source_of_[static_cast<std::size_t>(destination)]; }
  static constexpr int none = -1;
  std::int64_t table_bytes() const {
    return static_cast<std::int64_t>((destinations_.size() + sources_.size()) * sizeof(Shard) +
                                     pieces_.size() * sizeof(Piece) + inputs_.size() * sizeof(int));
  }
  /// Bytes that a run reads and writes.
  std::int64_t bytes() const { return bytes_; }
  /// Bytes sent between devices in a run, summed over all devices: see `sends`.
  std::int64_t moved_bytes() const { return moved_; }
  /// What a transport between processes computes from this plan when it first runs; null before.
  std::shared_ptr<const ProcessMoves>& process_moves() const { return process_moves_; }

  /// Runs on shards at these addresses, which are in the order of add_destination() and add_source().
  void run(std::span<void* const> destinations, std::span<const void* const> sources) const {
    if (destinations.size() != destinations_.size() || sources.size() != sources_.size())
      fail(errc::graph_invalid, "[reshard] shards: ", destinations.size(), " destinations and ", sources.size(),
           " sources are given, but the plan has ", destinations_.size(), " and ", sources_.size());
    const std::int64_t quanta = (weight_ + quantum - 1) / quantum;
    // Within the caches moves are three times as fast: a second thread pays only for larger moves, and ranges are
    // longer.
    const Cost cost = Cost::bytes(weight_ <= in_caches ? quantum / 3.0 : quantum);
    const bool past_caches = written_ >= past_caches_from();
    parallel_ranges(quanta, cost, [&](std::int64_t begin, std::int64_t end) {
      run_weights(begin * quantum, std::min(end * quantum, weight_), destinations.data(), sources.data(), past_caches);
    });
  }

 private:
  struct Shard {
    Box box;
    kernels::Strides strides;
    Holders held_by;
  };
  /// A box of one destination. Inputs: 0 fills it with the identity, 1 copies, more reduce a partial value.
  struct Piece {
    int destination;
    int first_input;
    int inputs;
    int split;  // the dim along which threads divide the piece
    Box box;
    std::int64_t weight_end;  // sum of the weights of all pieces up to and including this one
  };

  // Threads divide the total weight into quanta. Weight of a piece: bytes read and written, plus a fixed overhead.
  static constexpr std::int64_t quantum = std::int64_t{64} << 10;
  static constexpr std::int64_t piece_weight = 512;
  static constexpr std::int64_t in_caches = std::int64_t{16} << 20;
  // A piece whose slices along the split dim are larger becomes one piece per slice, divided along a further dim.
  static constexpr std::int64_t largest_slice = std::int64_t{512} << 10;

  DType type_;
  Reduction reduction_;
  kernels::ReduceFunction reduce_;
  std::array<std::byte, 8> identity_{};  // of the reduction, as one element
  Growable<Shard> destinations_, sources_;
  Growable<int> source_of_;
  Growable<int> inputs_;
  Growable<Piece> pieces_;
  std::int64_t weight_ = 0;
  std::int64_t bytes_ = 0, written_ = 0, moved_ = 0;
  mutable std::shared_ptr<const ProcessMoves> process_moves_;

  static const Shard& shard(const Growable<Shard>& shards, int index) {
    if (index < 0 || index >= static_cast<int>(shards.size()))
      fail(errc::graph_invalid, "[reshard] shard: index ", index, " is out of range for ", shards.size(), " shards");
    return shards[static_cast<std::size_t>(index)];
  }

  TESSERA_PLANNING int add_shard(Growable<Shard>& shards, const Shard& added) {
    const auto& [box, strides, held_by] = added;
    const std::size_t rank = !destinations_.empty() ? destinations_[0].box.begin.size()
                             : !sources_.empty()    ? sources_[0].box.begin.size()
                                                    : box.begin.size();
    if (box.begin.size() != rank || box.end.size() != rank || strides.size() != rank)
      fail(errc::graph_invalid, "[reshard] equal ranks: a shard of rank ", box.begin.size(), " with ", strides.size(),
           " strides is added to shards of rank ", rank);
    shards.push_back(added);
    return static_cast<int>(shards.size()) - 1;
  }

  void check_arithmetic() const {
    if (!combines(reduction_, type_))
      fail(errc::dtype_mismatch, "[reshard] partial values: the reduction ", name_of(reduction_),
           " is not defined for ", name_of(type_));
  }

  TESSERA_PLANNING void add_piece(Piece piece) {
    const auto size = static_cast<std::int64_t>(size_of(type_));
    const Shape shape = extents(piece.box);
    const kernels::Strides& strides = destinations_[static_cast<std::size_t>(piece.destination)].strides;
    std::size_t split = 0;
    const auto magnitude = [&](std::size_t dim) { return strides[dim] < 0 ? -strides[dim] : strides[dim]; };
    for (std::size_t dim = 1; dim < shape.size(); ++dim)
      if (shape[split] == 1 || (shape[dim] > 1 && magnitude(dim) > magnitude(split))) split = dim;
    piece.split = static_cast<int>(split);
    const std::int64_t bytes = volume(shape) * size;
    const std::int64_t slices = shape.empty() ? 1 : shape[split];
    if (slices > 1 && slices * size < bytes && bytes / slices > largest_slice) {
      for (std::int64_t i = 0; i < slices; ++i) {
        Piece slice = piece;
        slice.box.begin[split] += i;
        slice.box.end[split] = slice.box.begin[split] + 1;
        add_piece(slice);
      }
      return;
    }
    bytes_ += bytes * (piece.inputs + 1);
    written_ += bytes;
    weight_ += bytes * (piece.inputs + 1) + piece_weight;
    piece.weight_end = weight_;
    pieces_.push_back(piece);
  }

  void run_weights(std::int64_t begin, std::int64_t end, void* const* destinations, const void* const* sources,
                   bool past_caches) const {
    auto piece =
        std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.weight_end <= begin; });
    std::int64_t piece_begin = piece == pieces_.begin() ? 0 : piece[-1].weight_end;
    for (; piece != pieces_.end() && piece_begin < end; piece_begin = (piece++)->weight_end) {
      const auto weight = static_cast<double>(piece->weight_end - piece_begin);
      const auto split = static_cast<std::size_t>(piece->split);
      const std::int64_t slices = piece->box.begin.empty() ? 1 : piece->box.end[split] - piece->box.begin[split];
      // Two adjacent ranges round their common boundary alike, so that exactly one of them runs each slice.
      const auto slice_at = [&](std::int64_t at) {
        at = std::clamp<std::int64_t>(at - piece_begin, 0, piece->weight_end - piece_begin);
        const auto slice = static_cast<std::int64_t>(static_cast<double>(at) / weight * static_cast<double>(slices));
        // With many thin slices, boundaries are multiples of 64, so that two threads don't write the same cache line.
        return slices < 1024 || slice == slices ? slice : slice / 64 * 64;
      };
      const std::int64_t first = slice_at(begin), last = slice_at(end);
      if (first < last) run_slices(*piece, first, last, destinations, sources, past_caches);
    }
  }

  void run_slices(const Piece& piece, std::int64_t first, std::int64_t last, void* const* destinations,
                  const void* const* sources, bool past_caches) const {
    Box box = piece.box;
    if (!box.begin.empty()) {
      const auto split = static_cast<std::size_t>(piece.split);
      box.end[split] = box.begin[split] + last;
      box.begin[split] += first;
    }
    const auto size = static_cast<std::int64_t>(size_of(type_));
    const auto offset_in = [&](const Shard& shard) {
      std::int64_t offset = 0;
      for (std::size_t dim = 0; dim < box.begin.size(); ++dim)
        offset += (box.begin[dim] - shard.box.begin[dim]) * shard.strides[dim];
      return offset * size;
    };
    const auto input = [&](int i) {
      return static_cast<std::size_t>(inputs_[static_cast<std::size_t>(piece.first_input + i)]);
    };
    const auto source = [&](std::size_t id) {
      return static_cast<const std::byte*>(sources[id]) + offset_in(sources_[id]);
    };
    const Shard& to = destinations_[static_cast<std::size_t>(piece.destination)];
    void* const base = destinations[piece.destination];
    std::byte* const out = static_cast<std::byte*>(base) + offset_in(to);
    const Shape shape = extents(box);
    if (piece.inputs == 0) return kernels::strided_fill(out, to.strides, shape, identity_.data(), size_of(type_));
    if (piece.inputs == 1) {
      const std::size_t id = input(0);
      if (sources[id] == base && source_of(piece.destination) == static_cast<int>(id)) return;
      return kernels::strided_copy(type_, out, to.strides, source(id), sources_[id].strides, shape, past_caches);
    }
    // In order, in batches that fit a small array: each later batch accumulates into the destination.
    constexpr int batch = 32;
    std::array<kernels::StridedSource, batch> parts;
    for (int i = 0; i < piece.inputs; i += batch) {
      const int count = std::min(batch, piece.inputs - i);
      for (int k = 0; k < count; ++k) {
        const std::size_t id = input(i + k);
        parts[static_cast<std::size_t>(k)] = {source(id), sources_[id].strides};
      }
      reduce_(type_, reduction_, out, to.strides,
              std::span<const kernels::StridedSource>(parts.data(), static_cast<std::size_t>(count)), shape, i > 0,
              past_caches);
    }
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
