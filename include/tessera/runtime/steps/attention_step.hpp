#ifndef TESSERA_RUNTIME_STEPS_ATTENTION_STEP_HPP
#define TESSERA_RUNTIME_STEPS_ATTENTION_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/attention/attention_bf16.hpp>
#include <tessera/kernels/attention/attention_gradient.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/ops/attention/attention_form.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Attention or its gradients on all shards. A forward task is some tiles of queries of one head; a backward task is a
/// head, or a range of its keys if there are few heads. Each range of keys has its own gradient of the queries; these
/// are summed in order, so that results don't depend on the number of threads.
template <DTypeSet Types> class AttentionStep final : public PreparedStep {
 public:
  explicit AttentionStep(const StepContext& c)
      : backward_(AttentionForm::of_node(c.graph[c.units[c.step.unit].root]).is_gradient()) {
    const Unit& unit = c.units[c.step.unit];
    const Node& node = c.graph[unit.root];
    dtype_ = c.graph.operand_node(unit.root, 0).dtype;
    element_ = static_cast<std::int64_t>(size_of(computed_as(dtype_)));
    const AttentionForm form = AttentionForm::of_node(node);
    causal_ = form.causal;
    if (form.biased) is_mask_ = c.graph.operand_node(unit.root, form.bias()).dtype == DType::bool_;
    if (form.banded)
      lower_ = c.graph.operand(unit.root, form.lower()), upper_ = c.graph.operand(unit.root, form.lower() + 1);
    scale_ = c.graph.operand(unit.root, node.arity - 1);
    const WorkGrid work(c.layout, c.step);
    for (int w = 0; w < work.count(); ++w) add_place(c, work, work.coordinates(w));
    cut();
  }

  std::int64_t scratch_bytes() const override { return scratch_; }
  std::int64_t table_bytes() const override { return static_cast<std::int64_t>(places_.size() * sizeof(Place)); }

  void run(Frame& frame) const override {
    dispatch<Types>(
        dtype_, [&]<class T>() { backward_ ? run_backward<T>(frame) : run_forward<T>(frame); },
        [&] { fail(errc::dtype_mismatch, "[attention] dtype: ", name_of(dtype_), " is not supported"); });
  }

 private:
  /// One shard of an operand or result, with its strides along batch, position, head and width. pointer -1: not needed.
  struct ShardRows {
    std::int32_t pointer = -1;
    std::int64_t batch = 0, position = 0, head = 0, width = 1;
  };
  enum Role { q, k, v, out, lse, g, bias, dq, dk, dv, roles };
  struct Place {
    ShardRows parts[roles];
    kernels::AttentionShape shape;
    std::int64_t batch = 0, heads = 0, first_item = 0, partial = 0;
  };
  bool backward_, causal_ = false, is_mask_ = false;
  DType dtype_{};
  std::int64_t element_ = 4;                           ///< bytes of an element of a gradient
  std::int64_t queries_ = kernels::attention_queries;  ///< queries of a forward task
  int scale_ = -1, lower_ = -1, upper_ = -1;           ///< host scalars; bounds -1: no band
  Growable<Place> places_;
  std::int64_t items_ = 0, ranges_ = 1, scratch_ = 0;
  double flops_ = 0;

  void add_place(const StepContext& c, const WorkGrid& work, const Coordinates& at) {
    const Unit& unit = c.units[c.step.unit];
    const FrameLayout& layout = c.layout;
    Place place;
    bool stores = false;
    const auto add = [&](Role role, int value) {
      const ValueLayout& own = layout[value];
      const int shard = own.index(at);
      const kernels::Strides& s = own.strides[static_cast<std::size_t>(shard)];
      const Box& box = own.boxes[static_cast<std::size_t>(shard)];
      const Shape extent = extents(box);
      ShardRows& part = place.parts[role];
      part.pointer = own.first + shard;
      if (role == lse) {
        part = {part.pointer, s[0], s[2], s[1], 1};
      } else if (role == bias) {
        const Node& node = c.graph.operand_node(unit.root, AttentionForm::of_node(c.graph[unit.root]).bias());
        const auto stride = [&](int d) { return node.is_singleton(d) ? 0 : s[static_cast<std::size_t>(d)]; };
        part = {part.pointer, stride(0), stride(2), stride(1), stride(3)};
      } else {
        part = {part.pointer, s[0], s[1], s[2], s[3]};
        if (role == q) place.shape.first_position = box.begin[1];
        if (role == q || role == out || role == dq) place.shape.queries = extent[1];
        if (role == k || role == v) place.shape.keys = extent[1];
        if (role == q || role == k) place.shape.width = extent[3];
        if (role == v) place.shape.value_width = extent[3];
        place.batch = extent[0];
        place.heads = extent[2];
      }
    };
    static constexpr Role forward[] = {q, k, v, lse}, backward[] = {q, k, v, out, lse, g};
    for (int i = 0; i < unit.input_count; ++i) {
      const int operand = c.units.input(c.step.unit, i).operand;
      const bool is_bias = operand == AttentionForm::of_node(c.graph[unit.root]).bias();
      add(is_bias ? bias : (backward_ ? backward : forward)[operand], c.step.inputs[static_cast<std::size_t>(i)]);
    }
    for (int o = 0; o < unit.output_count; ++o) {
      const int value = c.step.outputs[static_cast<std::size_t>(o)];
      if (!work.stores(at, layout.value(value).sharding)) continue;
      const AttentionForm form = AttentionForm::of_node(c.graph[c.units.output(c.step.unit, o).node]);
      const Role role = form.result == AttentionResult::logarithms ? lse
                        : form.result == AttentionResult::output   ? out
                                                                   : Role(dq + form.of());
      add(role, value);
      stores = true;
    }
    place.shape.causal = causal_;
    // Where only the output is computed, the kernel finds the logarithms again: it does not read those of another unit.
    const AttentionForm first = AttentionForm::of_node(c.graph[c.units.output(c.step.unit, 0).node]);
    if (!backward_ && unit.output_count == 1 && first.result != AttentionResult::logarithms)
      place.parts[lse].pointer = -1;
    if (stores && place.batch * place.heads > 0) places_.push_back(place);
  }

  void cut() {
    std::int64_t heads = 0;
    for (const Place& place : places_) heads += place.batch * place.heads;
    const std::int64_t several = 4 * parallelism();
    // At least eight tasks; more for many threads, but at most four of a head: each takes memory for a gradient of
    // queries.
    if (backward_ && heads > 0) {
      const auto cut_into = [heads](std::int64_t tasks) { return (tasks + heads - 1) / heads; };
      ranges_ = std::max(cut_into(8), std::min<std::int64_t>(4, cut_into(several)));
    }
    // A task reads, packs or widens the keys once for its queries: as many as leave several tasks for each thread.
    for (queries_ = kernels::most_attention_queries; queries_ > kernels::attention_queries; queries_ /= 2) {
      std::int64_t tasks = 0;
      for (const Place& place : places_) tasks += place.batch * place.heads * tiles(place.shape);
      if (tasks >= several) break;
    }
    for (const Place& place : places_) ranges_ = std::min(ranges_, std::max<std::int64_t>(1, place.shape.keys / 256));
    for (Place& place : places_) {
      const kernels::AttentionShape& s = place.shape;
      const std::int64_t own = place.batch * place.heads;
      place.first_item = items_;
      items_ += own * (backward_ ? ranges_ : tiles(s));
      const double products = backward_ ? 3.0 * static_cast<double>(s.width) + 2.0 * static_cast<double>(s.value_width)
                                        : static_cast<double>(s.width + s.value_width);
      flops_ += static_cast<double>(own * s.queries * s.keys) * products * (s.causal ? 1 : 2);
      place.partial = scratch_;
      if (place.parts[dq].pointer >= 0) scratch_ += own * (ranges_ - 1) * s.queries * s.width * element_;
    }
  }
  std::int64_t tiles(const kernels::AttentionShape& s) const { return (s.queries + queries_ - 1) / queries_; }
  /// The first key of a range. Ranges have about equal work (fewer early keys if causal) and begin at a tile.
  std::int64_t range_begin(const kernels::AttentionShape& s, std::int64_t range) const {
    if (range == 0 || range == ranges_) return range == 0 ? 0 : s.keys;
    const double share = static_cast<double>(range) / static_cast<double>(ranges_);
    const double part = s.causal && s.first_position == 0 && s.queries >= s.keys ? 1 - std::sqrt(1 - share) : share;
    return static_cast<std::int64_t>(part * static_cast<double>(s.keys)) / kernels::attention_keys *
           kernels::attention_keys;
  }

  const Place& place_of(std::int64_t item) const {
    auto after = std::upper_bound(places_.begin(), places_.end(), item,
                                  [](std::int64_t i, const Place& place) { return i < place.first_item; });
    return *std::prev(after);
  }
  template <class T>
  kernels::HeadRows<T> rows(Frame& frame, const ShardRows& part, std::int64_t batch, std::int64_t head) const {
    if (part.pointer < 0) return {};
    T* data = reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(part.pointer)]);
    return {data + batch * part.batch + head * part.head, part.position, part.width};
  }
  kernels::AttentionShape shape_of(const Frame& frame, const Place& place) const {
    kernels::AttentionShape shape = place.shape;
    const auto number = [&](int id) { return frame.numbers[static_cast<std::size_t>(id)].real(); };
    shape.scale = number(scale_);
    if (lower_ < 0) return shape;
    // Bounds beyond any extent are no limits, and their sums with positions stay in range.
    const auto bound = [&](int id) { return static_cast<std::int64_t>(std::fmin(std::fmax(number(id), -1e15), 1e15)); };
    const std::int64_t lower = bound(lower_), upper = bound(upper_);
    shape.causal = true;
    shape.first_position += upper;
    shape.span = std::max<std::int64_t>(upper - lower, -1);
    return shape;
  }
  /// The shape of one head, with its bias.
  template <class T>
  kernels::AttentionShape with_bias(kernels::AttentionShape shape, Frame& frame, const ShardRows& part,
                                    std::int64_t batch, std::int64_t head) const {
    if (part.pointer < 0) return shape;
    shape.bias = {is_mask_ ? static_cast<const void*>(rows<const bool>(frame, part, batch, head).data)
                           : rows<const T>(frame, part, batch, head).data,
                  part.position, part.width, is_mask_};
    return shape;
  }
  Cost cost() const { return Cost::flops(flops_ / static_cast<double>(std::max<std::int64_t>(1, items_)) / 2); }

  template <class T> using Sum = computed_t<T>;

  template <class T> void run_forward(Frame& frame) const {
    parallel_for(items_, cost(), [&](std::int64_t i) {
      const Place& place = place_of(i);
      const std::int64_t item = i - place.first_item, count = tiles(place.shape);
      const std::int64_t head = item / count % place.heads, batch = item / count / place.heads;
      const kernels::AttentionShape shape =
          with_bias<Sum<T>>(shape_of(frame, place), frame, place.parts[bias], batch, head);
      const std::int64_t first = item % count * queries_;
      const auto read = [&](Role role) { return rows<const T>(frame, place.parts[role], batch, head); };
      const std::int64_t own = std::min(queries_, shape.queries - first);
      kernels::attend(shape, first, own, read(q), read(k), read(v), rows<T>(frame, place.parts[out], batch, head),
                      rows<Sum<T>>(frame, place.parts[lse], batch, head));
    });
  }

  template <class T> void run_backward(Frame& frame) const {
    parallel_for(items_, cost(), [&](std::int64_t i) {
      const Place& place = place_of(i);
      const std::int64_t item = i - place.first_item, range = item % ranges_;
      const std::int64_t head = item / ranges_ % place.heads, batch = item / ranges_ / place.heads;
      const kernels::AttentionShape shape =
          with_bias<Sum<T>>(shape_of(frame, place), frame, place.parts[bias], batch, head);
      const auto read = [&](Role role) { return rows<const T>(frame, place.parts[role], batch, head); };
      const auto write = [&](Role role) { return rows<Sum<T>>(frame, place.parts[role], batch, head); };
      std::conditional_t<is_half_v<T>, kernels::HalfAttentionGradient<T>, kernels::AttentionGradient<Sum<T>>> gradient{
          read(q), read(k),   read(v),   read(out), rows<const Sum<T>>(frame, place.parts[lse], batch, head),
          read(g), write(dq), write(dk), write(dv)};
      if (range > 0 && gradient.q_gradient.data != nullptr)
        gradient.q_gradient = {partial<Sum<T>>(frame, place, item / ranges_, range), shape.width, 1};
      kernels::attend_gradient(shape, gradient, range_begin(shape, range), range_begin(shape, range + 1));
    });
    if (ranges_ > 1) add_partials<Sum<T>>(frame);
  }
  template <class T> T* partial(Frame& frame, const Place& place, std::int64_t head, std::int64_t range) const {
    return reinterpret_cast<T*>(frame.scratch + place.partial) +
           (head * (ranges_ - 1) + range - 1) * place.shape.queries * place.shape.width;
  }
  template <class T> void add_partials(Frame& frame) const {
    for (const Place& place : places_) {
      if (place.parts[dq].pointer < 0) continue;
      const std::int64_t queries = place.shape.queries, columns = place.shape.width;
      parallel_for(place.batch * place.heads * queries,
                   Cost::bytes(static_cast<double>(columns * element_ * (ranges_ + 1))), [&](std::int64_t i) {
                     const std::int64_t head = i / queries, row = i % queries;
                     T* to = rows<T>(frame, place.parts[dq], head / place.heads, head % place.heads).at(row);
                     for (std::int64_t range = 1; range < ranges_; ++range) {
                       const T* from = partial<T>(frame, place, head, range) + row * columns;
                       for (std::int64_t c = 0; c < columns; ++c) to[c] += from[c];
                     }
                   });
    }
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
