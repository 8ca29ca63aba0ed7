#ifndef TESSERA_RUNTIME_STEPS_CONTRACTION_STEP_HPP
#define TESSERA_RUNTIME_STEPS_CONTRACTION_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/sort_distinct.hpp>
#include <tessera/graph/ir/attributes/einsum_labels.hpp>
#include <tessera/kernels/gemm/contraction.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/steps/adjacent_terms.hpp>
#include <tessera/runtime/steps/passed_products.hpp>
#include <tessera/runtime/steps/sum_in_place.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Runs an einsum on all shards, divided into items that write disjoint boxes of the result. An operand that many items
/// read is packed first, once for all places that read the same shard. An addend's box is copied into the result just
/// before the item accumulates onto it, so that it is in the cache.
///
/// A step that the plan fuses with the einsum runs item by item: an epilogue on each box while it is in the cache, a
/// rounding to the 16 bits of the operands as the result is stored, a sum of parts by accumulating into the summed
/// result.
template <DTypeSet Types> class ContractionStep final : public PreparedStep {
 public:
  TESSERA_PLANNING explicit ContractionStep(const StepContext& c)
      : dtype_(c.graph.operand_node(c.units[c.step.unit].space, 0).dtype),
        has_addend_(c.units[c.step.unit].addend >= 0) {
    const FrameLayout& layout = c.layout;
    const PlanStep& step = c.step;
    const Node& node = c.graph[c.units[c.step.unit].space];
    const EinsumLabels labels = EinsumLabels::of(node);
    const WorkGrid work(layout, step);
    const int out = step.outputs[0], addend = has_addend_ ? step.inputs.back() : -1;
    int operands[2] = {-1, -1};  // values of the plan; -1: a host scalar
    for (std::size_t i = 0; i < step.inputs.size(); ++i)
      if (const int operand = c.units.input(c.step.unit, static_cast<int>(i)).operand; operand >= 0)
        operands[operand] = step.inputs[i];
    for (int k = 0; k < 2; ++k)
      host_scalars_[k] = operands[k] < 0 ? c.graph.operand(c.units[c.step.unit].space, k) : -1;
    const int a = operands[0], b = operands[1];
    const auto works_at = [&](int w) {
      const Coordinates at = work.coordinates(w);
      return work.stores(at, layout.value(out).sharding) && layout.holds(out, at);
    };
    places_.reserve(static_cast<std::size_t>(work.count()));
    for (int w = 0; w < work.count(); ++w) {
      if (!works_at(w)) continue;
      const Coordinates at = work.coordinates(w);
      Place place;
      kernels::ContractionShape shape;
      std::int8_t dense[32];
      for (auto& d : dense) d = -1;
      auto add = [&](int value, const std::int8_t* own, kernels::ContractionShape::Labels& to,
                     kernels::Strides& strides, std::int32_t& pointer) {
        if (value < 0) return;
        const ValueLayout& of = layout[value];
        const int shard = of.index(at);
        const Shape local = extents(of.boxes[static_cast<std::size_t>(shard)]);
        for (std::size_t d = 0; d < local.size(); ++d) {
          const std::int8_t label = own[d];
          if (dense[label] < 0) {
            dense[label] = static_cast<std::int8_t>(shape.extents.size());
            shape.extents.push_back(local[d]);
          }
          std::int64_t& known = shape.extents[static_cast<std::size_t>(dense[label])];
          // A singleton dim is broadcast against a longer dim with the same label: stride 0.
          const bool repeats = local[d] == 1 && known != 1;
          if (known == 1) known = local[d];
          to.push_back(dense[label]);
          strides.push_back(repeats ? 0 : of.strides[static_cast<std::size_t>(shard)][d]);
        }
        pointer = of.first + shard;
      };
      add(a, labels.a, shape.a, shape.a_strides, place.a);
      add(b, labels.b, shape.b, shape.b_strides, place.b);
      add(out, labels.out, shape.out, shape.out_strides, place.out);
      // The operand a was added before the longer extent of b was known, so its singleton dims get stride 0 here.
      for (std::size_t d = 0; d < shape.a.size(); ++d)
        if (layout[a].boxes[static_cast<std::size_t>(place.a - layout[a].first)].end[d] -
                layout[a].boxes[static_cast<std::size_t>(place.a - layout[a].first)].begin[d] ==
            1)
          shape.a_strides[d] = 0;
      place.shape = shared(shape);
      if (addend >= 0 && adds_at(at, layout.value(out).sharding, layout.value(addend).sharding)) {
        const int shard = layout[addend].index(at);
        place.addend = layout[addend].first + shard;
        addend_strides_.resize(places_.size());
        addend_strides_.push_back(layout[addend].strides[static_cast<std::size_t>(shard)]);
      }
      place.work = w;
      place.destination = static_cast<int>(places_.size());
      places_.push_back(std::move(place));
    }
    if (step.fusion == Fusion::sum)
      sum_in_place(c, a, b);
    else
      make_items(static_cast<int>(places_.size()));
    epilogue_ = c.epilogue;
    if (step.fusion == Fusion::into_result) passed_.add_in_result(layout, out, *c.next);
    if (step.fusion == Fusion::rounding) round(layout, out, *c.next);
  }

  std::int64_t scratch_bytes() const override {
    return std::max(packed_bytes_ + passed_bytes_, joined_ ? joined_->scratch_bytes() : 0);
  }
  std::int64_t table_bytes() const override {
    return static_cast<std::int64_t>(places_.size() * sizeof(Place)) + terms_.table_bytes() +
           (joined_ ? joined_->table_bytes() : 0);
  }
  std::int64_t moved_bytes() const override { return sum_.moved_bytes(); }

  void run(Frame& frame) const override {
    sum_.count();
    if (items_ == 0) return;
    if (joined_ && terms_.are_adjacent(frame)) return joined_->run(frame);
    passed_.place(frame);
    if (pack_pieces_ > 0) pack(frame);
    const Cost cost = Cost::flops(flops_ / static_cast<double>(items_));
    std::int64_t begin = 0;
    for (const std::int64_t end : turns_) {
      parallel_for(end - begin, cost, [&](std::int64_t i) { run_sum(frame, begin + i); });
      begin = end;
    }
  }

 private:
  struct Place {
    int shape = 0, plan = 0;                             ///< indices in shapes_ and plans_, which equal places share
    std::int32_t a = -1, b = -1, out = -1, addend = -1;  ///< pointers in the frame; -1: a host scalar, or no addend
    std::int32_t rounded = -1, bias = -1;  ///< pointers of the rounded result that replaces `out`, and of its bias row
    std::int64_t first_item = 0;
    int work = 0;
    int destination = 0;       ///< the first of the consecutive places that accumulate into the same result
    bool joins = false;        ///< accumulates onto what an earlier turn (see turns_) left in the result
    std::int64_t packed = -1;  ///< offset in scratch of the packed operand; -1: each item packs its own panels
    std::int64_t first_piece = 0,
                 piece_count = 0;  ///< tasks of the packing; 0 if an earlier place packs the same shard
  };
  const Epilogue* epilogue_ = nullptr;
  SumInPlace sum_;
  std::shared_ptr<const ContractionStep> joined_;  ///< see join_terms()
  AdjacentTerms terms_;                            ///< what `joined_` requires of the addresses
  PassedProducts passed_;
  DType dtype_;
  bool has_addend_;
  int host_scalars_[2];  // by operand: its node if it is a host scalar, -1 if it is a tensor
  Growable<Place> places_;
  Growable<kernels::Strides> addend_strides_;  // by place; empty for a place without addend
  /// The plan of a product by shape and by how many places read each operand, which decides what is packed.
  struct Product {
    int shape, readers_of_a, readers_of_b;
    kernels::ContractionPlan plan;
  };
  Growable<kernels::ContractionShape> shapes_;
  Growable<Product> plans_;
  Growable<int> packers_;  // places with piece_count > 0, in the order of first_piece
  std::int64_t items_ = 0;
  Growable<std::int64_t> turns_;  // ends of ranges of items; a range starts when the previous range is done
  bool by_columns_ = false;       // all places read one packed operand: item k of all places runs before item k + 1
  std::int64_t packed_bytes_ = 0, pack_pieces_ = 0, passed_bytes_ = 0;
  double flops_ = 0;

  static bool adds_at(const Coordinates& at, const Sharding& out, const Sharding& addend) {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (((out.unreduced & ~addend.unreduced) >> axis & 1) != 0 && at[axis] != 0) return false;
    return true;
  }

  /// Lets each place store its result rounded to the type of its operands, without the f32 result. Where the kernel
  /// cannot round (strides that differ, say), the f32 result goes to scratch and the epilogue rounds it.
  TESSERA_PLANNING void round(const FrameLayout& layout, int made, const PlanStep& rounding) {
    const int bias = rounding.inputs.size() < 2 ? -1 : rounding.inputs[rounding.inputs[0] == made ? 1 : 0];
    const ValueLayout &own = layout[made], &target = layout[rounding.outputs[0]];
    for (Place& place : places_) {
      const auto shard = static_cast<std::size_t>(place.out - own.first);
      const Coordinates at = own.grid.coordinates(static_cast<int>(shard));
      const auto to = static_cast<std::size_t>(target.index(at));
      const Shape extent = extents(own.boxes[shard]);
      bool direct = plan_of(place).can_round(bias >= 0) && own.strides[shard] == target.strides[to];
      if (bias >= 0) {
        const auto row = static_cast<std::size_t>(layout[bias].index(at));
        direct = direct && layout[bias].strides[row][0] == 1 &&
                 extents(layout[bias].boxes[row])[0] == extent[extent.size() - 1];
        place.bias = layout[bias].first + static_cast<std::int32_t>(row);
      }
      if (direct) {
        place.rounded = target.first + static_cast<std::int32_t>(to);
        continue;
      }
      passed_.add_in_scratch(place.out, packed_bytes_ + passed_bytes_);
      passed_bytes_ += (volume(extent) * own.element + block_alignment - 1) / block_alignment * block_alignment;
    }
  }

  /// Lets the places of one sum accumulate into its memory one after another, item by item, so that no part is stored.
  TESSERA_PLANNING void sum_in_place(const StepContext& c, int a, int b) {
    sum_ = SumInPlace(c.layout, *c.next);
    for (Place& place : places_) place.out = sum_.target(place.out);
    Growable<SortedPair> order;  // of the places: by result, then by index
    for (std::size_t p = 0; p < places_.size(); ++p) order.push_back({places_[p].out, static_cast<std::int64_t>(p)});
    sort_distinct(order);
    const Growable<Place> unsorted = places_;
    for (std::size_t p = 0; p < order.size(); ++p) places_[p] = unsorted[static_cast<std::size_t>(order[p].second)];
    int sums = 0;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      const bool first = p == 0 || places_[p].out != places_[p - 1].out;
      places_[p].destination = first ? static_cast<int>(p) : places_[p - 1].destination;
      sums += first ? 1 : 0;
    }
    if (may_be_in_arena(c, a) && may_be_in_arena(c, b)) join_terms(c.layout, a, b, sums);
    if (!make_items(sums)) take_turns(sums);
  }
  /// Whether the elements of an operand can be in the arena: not those of a host scalar (-1) or of the caller's
  /// argument.
  static bool may_be_in_arena(const StepContext& c, int v) {
    while (v >= 0 && c.layout.value(v).role == ValueRole::view) v = c.layout.value(v).view_of;
    return v >= 0 && (c.in_body || c.layout.value(v).role != ValueRole::argument);
  }
  /// Where the operands of all parts of a sum lie one behind another in memory, as the shards of an intermediate do,
  /// the sum is one product with the terms of all parts: docs/decisions/0010.
  TESSERA_PLANNING void join_terms(const FrameLayout& layout, int a, int b, int sums) {
    if (has_addend_ || sums == static_cast<int>(places_.size())) return;
    auto joined = std::make_shared<ContractionStep>(*this);
    AdjacentTerms terms;
    joined->sum_ = {};
    joined->places_.clear(), joined->shapes_.clear();
    for (std::size_t p = 0, end = 0; p < places_.size(); p = end) {
      Place place = places_[p];
      const AdjacentTerms::Operands values{a, b}, first{place.a, place.b};
      for (end = p + 1; end < places_.size() && places_[end].out == place.out; ++end)
        if (const Place& part = places_[end];
            part.shape != place.shape || !terms.add(layout, values, first, {part.a, part.b}, end - p))
          return;
      kernels::ContractionShape shape = shapes_[static_cast<std::size_t>(place.shape)];
      if (!terms.join(layout, values, first, end - p, shape)) return;
      place.shape = joined->shared(shape), place.destination = static_cast<int>(joined->places_.size());
      joined->places_.push_back(place);
    }
    joined->make_items(sums);
    joined_ = std::move(joined);
    terms_ = std::move(terms);
  }
  /// If the places that add to one sum are divided into different items, runs them in turns: turn t runs the t-th place
  /// of each sum.
  TESSERA_PLANNING void take_turns(int sums) {
    Growable<Growable<Place>> turns;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      const std::size_t turn = p - static_cast<std::size_t>(places_[p].destination);
      if (turn >= turns.size()) turns.resize(turn + 1);
      turns[turn].push_back(places_[p]);
    }
    places_.clear();
    for (std::size_t t = 0; t < turns.size(); ++t)
      for (const Place& place : turns[t]) {
        places_.push_back(place);
        places_.back().destination = static_cast<int>(places_.size()) - 1;
        places_.back().joins = t > 0;
      }
    make_items(sums);
    turns_.clear();
    std::size_t last = 0;
    for (const auto& turn : turns) {
      last += turn.size();
      turns_.push_back(last < places_.size() ? places_[last].first_item : items_);
    }
  }

  /// Divides the work of all places into items. Returns false if places of one destination have different items.
  TESSERA_PLANNING bool make_items(int destinations) {
    items_ = packed_bytes_ = pack_pieces_ = 0;
    flops_ = 0;
    plans_.clear();
    bool alike = true;
    const int threads = std::max(1, parallelism() / std::max(destinations, 1));
    const Growable<int> readers_of_a = readers(&Place::a), readers_of_b = readers(&Place::b);
    for (std::size_t p = 0; p < places_.size(); ++p) {
      Place& place = places_[p];
      place.plan = planned(place.shape, readers_of_a[static_cast<std::size_t>(place.a + 1)],
                           readers_of_b[static_cast<std::size_t>(place.b + 1)], threads);
      place.packed = -1;
      place.first_piece = place.piece_count = 0;
      place.first_item = items_;
      flops_ += plan_of(place).flops();
      if (place.destination == static_cast<int>(p))
        items_ += plan_of(place).item_count();
      else
        alike = alike && plan_of(place).cuts_as(plan_of(places_[static_cast<std::size_t>(place.destination)]));
    }
    turns_.assign(1, items_);
    dispatch<Types>(
        dtype_, [&]<class T>() { share_packing<T>(); }, [] {});
    by_columns_ = destinations == static_cast<int>(places_.size()) && !places_.empty() && places_[0].packed >= 0;
    for (const Place& place : places_)
      by_columns_ = by_columns_ && place.packed == places_[0].packed && plan_of(place).cuts_as(plan_of(places_[0]));
    return alike;
  }

  const kernels::ContractionPlan& plan_of(const Place& place) const {
    return plans_[static_cast<std::size_t>(place.plan)].plan;
  }
  // Shards have few distinct shapes, however many devices there are, so the last few entries contain most matches.
  static constexpr std::size_t looked_at = 16;
  TESSERA_PLANNING int shared(const kernels::ContractionShape& shape) {
    for (std::size_t s = shapes_.size(); s > 0 && s + looked_at > shapes_.size(); --s)
      if (shapes_[s - 1] == shape) return static_cast<int>(s - 1);
    shapes_.push_back(shape);
    return static_cast<int>(shapes_.size()) - 1;
  }
  TESSERA_PLANNING int planned(int shape, int readers_of_a, int readers_of_b, int threads) {
    for (std::size_t p = plans_.size(); p > 0 && p + looked_at > plans_.size(); --p) {
      const Product& product = plans_[p - 1];
      if (product.shape == shape && product.readers_of_a == readers_of_a && product.readers_of_b == readers_of_b)
        return static_cast<int>(p - 1);
    }
    plans_.push_back({shape, readers_of_a, readers_of_b,
                      kernels::ContractionPlan(
                          shapes_[static_cast<std::size_t>(shape)],
                          {.parallelism = threads, .readers_of_a = readers_of_a, .readers_of_b = readers_of_b})});
    return static_cast<int>(plans_.size()) - 1;
  }

  /// By pointer + 1: how many places read the shard.
  Growable<int> readers(std::int32_t Place::*operand) const {
    Growable<int> count(1, 0);
    for (const Place& place : places_) {
      const auto at = static_cast<std::size_t>(place.*operand + 1);
      if (at >= count.size()) count.resize(at + 1, 0);
      ++count[at];
    }
    return count;
  }

  struct ItemOf {
    std::size_t place;
    std::int64_t item;
  };
  ItemOf find_item(std::int64_t i) const {
    const auto count = static_cast<std::int64_t>(places_.size());
    // Consecutive items belong to different places and read the same packed panel, which stays in the cache.
    if (by_columns_) return {static_cast<std::size_t>(i % count), i / count};
    std::size_t p = 0, high = places_.size();
    while (high - p > 1) {  // finds the last place with first_item <= i
      const std::size_t middle = (p + high) / 2;
      (places_[middle].first_item <= i ? p : high) = middle;
    }
    p = static_cast<std::size_t>(places_[p].destination);
    return {p, i - places_[p].first_item};
  }

  /// Allocates scratch for packed operands up to most_bytes. Places that pack the same shard in the same way share it.
  template <class T> TESSERA_PLANNING void share_packing() {
    constexpr std::int64_t most_bytes = std::int64_t(1) << 27;
    packers_.clear();
    // Linked lists of the places that pack a shard: `latest` by shard + 1, `before` by place.
    Growable<int> latest, before(places_.size(), -1);
    for (std::size_t p = 0; p < places_.size(); ++p) {
      Place& place = places_[p];
      const std::int32_t shard = plan_of(place).packs_first() ? place.a : place.b;
      const auto at = static_cast<std::size_t>(shard + 1);
      if (at >= latest.size()) latest.resize(at + 1, -1);
      int same = latest[at];
      while (same >= 0 && !plan_of(places_[static_cast<std::size_t>(same)]).packs_as(plan_of(place)))
        same = before[static_cast<std::size_t>(same)];
      const std::int64_t bytes = plan_of(place).template packed_size<T>() * static_cast<std::int64_t>(sizeof(T));
      if (same >= 0) {
        place.packed = places_[static_cast<std::size_t>(same)].packed;
      } else if (bytes > 0 && shard >= 0 && packed_bytes_ + bytes <= most_bytes) {
        before[p] = latest[at];
        latest[at] = static_cast<int>(p);
        place.packed = packed_bytes_;
        place.first_piece = pack_pieces_;
        if constexpr (is_floating_v<T>) place.piece_count = plan_of(place).template pack_count<T>();
        if (place.piece_count > 0) packers_.push_back(static_cast<int>(p));
        pack_pieces_ += place.piece_count;
        packed_bytes_ += (bytes + block_alignment - 1) / block_alignment * block_alignment;
      }
    }
  }

  void pack(Frame& frame) const {
    const Cost cost = Cost::bytes(2 * static_cast<double>(packed_bytes_) / static_cast<double>(pack_pieces_));
    parallel_for(pack_pieces_, cost, [&](std::int64_t piece) {
      const auto after = std::upper_bound(packers_.begin(), packers_.end(), piece, [&](std::int64_t wanted, int p) {
        return wanted < places_[static_cast<std::size_t>(p)].first_piece;
      });
      const Place* const own = &places_[static_cast<std::size_t>(*std::prev(after))];
      dispatch<Types>(
          dtype_,
          [&]<class T>() {
            if constexpr (is_floating_v<T>)
              plan_of(*own).pack(piece - own->first_piece, operand<T>(frame, own->a), operand<T>(frame, own->b),
                                 reinterpret_cast<T*>(frame.scratch + own->packed));
          },
          [] {});
    });
  }

  /// Null for a host scalar.
  template <class T> static T* operand(const Frame& frame, std::int32_t at) {
    return at < 0 ? nullptr : reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(at)]);
  }

  /// Runs item i for each place that accumulates into the same result, in the order of the places.
  void run_sum(Frame& frame, std::int64_t i) const {
    const auto [first, item] = find_item(i);
    dispatch<Types>(
        dtype_,
        [&]<class T>() {
          const int destination = places_[first].destination;
          for (std::size_t p = first; p < places_.size() && places_[p].destination == destination; ++p)
            run_item<T>(frame, places_[p], item, p > first || places_[p].joins);
        },
        [&] { fail(errc::dtype_mismatch, "[einsum] dtype: ", name_of(dtype_), " is not supported"); });
  }

  /// Bytes from an element of the product to the element that the epilogue reads beside it; 0 if there is none.
  template <class Out> std::uintptr_t beside(const Frame& frame, const Place& place, const Out* out) const {
    const char* const made = reinterpret_cast<const char*>(out);
    const char* const other = epilogue_->beside(frame, place.work, made, dtype_v<Out>,
                                                shapes_[static_cast<std::size_t>(place.shape)].out_strides);
    return other == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(other) - reinterpret_cast<std::uintptr_t>(made);
  }

  template <class T> void run_item(Frame& frame, const Place& place, std::int64_t item, bool joins) const {
    using Out = kernels::product_t<T>;
    Out* out = operand<Out>(frame, place.out);
    const Out* addend = operand<Out>(frame, place.addend);
    const bool adds = addend != nullptr;
    if (adds && addend != out) {
      const kernels::Strides& out_strides = shapes_[static_cast<std::size_t>(place.shape)].out_strides;
      const kernels::Strides& addend_strides = addend_strides_[static_cast<std::size_t>(&place - places_.data())];
      const kernels::OutputRegion region = plan_of(place).rows_of(item);
      std::int64_t from = 0, to = 0;
      for (std::size_t d = 0; d < region.begin.size(); ++d) {
        from += region.begin[d] * addend_strides[d];
        to += region.begin[d] * out_strides[d];
      }
      kernels::strided_copy(out + to, out_strides, addend + from, addend_strides, region.extent, sizeof(Out));
    }
    const auto number = [&](int k) {
      return host_scalars_[k] < 0 ? T{} : frame.numbers[static_cast<std::size_t>(host_scalars_[k])].template as<T>();
    };
    const T a = number(0), b = number(1);
    const T* packed = place.packed < 0 ? nullptr : reinterpret_cast<const T*>(frame.scratch + place.packed);
    const bool follows = epilogue_ != nullptr && place.rounded < 0;
    struct Follow {
      const Epilogue* epilogue;
      Frame* frame;
      int work;
    } const follow{epilogue_, &frame, place.work};
    const kernels::FinishedBox finished{[](const void* context, const kernels::OutputRegion& box) {
                                          const Follow& of = *static_cast<const Follow*>(context);
                                          of.epilogue->run_box(*of.frame, of.work, box.begin, box.extent);
                                        },
                                        &follow, follows ? beside<Out>(frame, place, out) : 0};
    plan_of(place).run(
        item, place.a < 0 ? &a : operand<T>(frame, place.a), place.b < 0 ? &b : operand<T>(frame, place.b), out,
        adds || joins, Out(1), packed, follows ? finished : kernels::FinishedBox{},
        place.rounded < 0
            ? kernels::RoundedResult<T>{}
            : kernels::RoundedResult<T>{operand<T>(frame, place.rounded), operand<float>(frame, place.bias)});
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
