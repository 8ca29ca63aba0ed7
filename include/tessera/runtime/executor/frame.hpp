#ifndef TESSERA_RUNTIME_EXECUTOR_FRAME_HPP
#define TESSERA_RUNTIME_EXECUTOR_FRAME_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/data_movement/factors.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/memory/stored_grid.hpp>
#include <tessera/runtime/steps/step_observer.hpp>
#include <tessera/runtime/transport/holders.hpp>

namespace tessera::runtime {

/// The shards of one value of a plan in memory. Shard `s` of layer `l` has index `l * grid.count() + s`; for a value
/// stacked over layers, the box of a shard covers one layer: it has extent 1 along dim 0.
struct ValueLayout {
  ShardGrid grid;
  int layers = 1;
  int first = 0;             ///< index in Frame::pointers of the first shard
  std::int64_t element = 4;  ///< bytes of one element
  Growable<Box> boxes;
  Growable<kernels::Strides> strides;  ///< in elements
  Growable<std::int64_t> offsets;      ///< in bytes, from the value's block; for a view, from shard root_shard
  Growable<std::int32_t> root_shard;   ///< for a view: the shard of the viewed value with the same memory
  Growable<std::uint8_t> elsewhere;    ///< by shard of a layer: only other processes hold it; empty: no shard

  /// Whether this process holds a shard. The address of another shard is never read or written.
  bool is_here(int shard) const {
    return elsewhere.empty() || elsewhere[static_cast<std::size_t>(shard % grid.count())] == 0;
  }
  int shards() const { return static_cast<int>(boxes.size()); }
  int index(const Coordinates& at, int layer = 0) const { return layer * grid.count() + grid.index_of(at); }
};

/// The memory of a running graph: the address of each shard of each value, and the host scalars.
struct Frame {
  Growable<char*> pointers;
  Growable<HostNumber> numbers;  ///< by node
  char* arena = nullptr;
  char* scratch = nullptr;  ///< temporary memory, which the next step overwrites
  Frame* frames = nullptr;  ///< the frames of all graphs of the program, by graph
  Frame* around = nullptr;  ///< of a body: the frame of the graph whose repeat runs it
  std::int64_t layer = -1;  ///< the current layer in the body of a repeat; -1 elsewhere
  StepObserver* observer = nullptr;

  template <class T = char> T* at(const ValueLayout& layout, int shard) const {
    return reinterpret_cast<T*>(pointers[static_cast<std::size_t>(layout.first + shard)]);
  }
};

/// The layout of all values of one graph: the part of their description that is equal in every run.
class FrameLayout {
 public:
  FrameLayout(const GraphView& graph, const GraphPlan& plan, const Mesh& mesh) : plan_(plan), mesh_(mesh) {
    values_.reserve(plan.values.size());
    for (std::size_t v = 0; v < plan.values.size(); ++v) add(graph, plan.values[v]);
  }

  const ValueLayout& operator[](int value) const { return values_[static_cast<std::size_t>(value)]; }
  const PlanValue& value(int v) const { return plan_.values[static_cast<std::size_t>(v)]; }
  const GraphPlan& plan() const { return plan_; }
  const Mesh& mesh() const { return mesh_; }
  /// Whether the device at these coordinates has a part of a partial value; without one, no memory is allocated.
  bool holds(int v, const Coordinates& at) const { return value(v).parts.holds(mesh_, at); }
  TESSERA_PLANNING Holders holders(int v, int shard) const {
    const ShardGrid& grid = values_[static_cast<std::size_t>(v)].grid;
    return {mesh_, value(v).sharding.used_axes(), grid.coordinates(shard % grid.count())};
  }
  int pointer_count() const { return pointers_; }

  /// Points intermediates into the arena.
  void place_intermediates(Frame& frame) const {
    frame.pointers.resize(static_cast<std::size_t>(pointers_));
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const PlanValue& value = plan_.values[v];
      if (!value.in_arena()) continue;
      for (int s = 0; s < values_[v].shards(); ++s)
        frame.pointers[static_cast<std::size_t>(values_[v].first + s)] =
            frame.arena + value.offset + values_[v].offsets[static_cast<std::size_t>(s)];
    }
  }
  /// Points each view into the memory of the value that it views, whose pointers must be set already.
  void place_views(Frame& frame) const {
    for (std::size_t v = 0; v < values_.size(); ++v) {
      const PlanValue& value = plan_.values[v];
      if (value.role != ValueRole::view) continue;
      const ValueLayout& root = values_[static_cast<std::size_t>(value.view_of)];
      for (int s = 0; s < values_[v].shards(); ++s) {
        char* const first = frame.at(root, values_[v].root_shard[static_cast<std::size_t>(s)]);
        frame.pointers[static_cast<std::size_t>(values_[v].first + s)] =
            first == nullptr ? nullptr : first + values_[v].offsets[static_cast<std::size_t>(s)];
      }
    }
  }

 private:
  const GraphPlan& plan_;
  const Mesh& mesh_;
  Growable<ValueLayout> values_;
  int pointers_ = 0;

  TESSERA_PLANNING void add(const GraphView& graph, const PlanValue& value) {
    ValueLayout layout;
    layout.grid = stored_grid(mesh_, value.sharding);
    layout.layers = value.stacked ? static_cast<int>(value.shape[0]) : 1;
    layout.element = static_cast<std::int64_t>(size_of(value.dtype));
    layout.first = pointers_;
    const auto shards = static_cast<std::size_t>(layout.layers) * static_cast<std::size_t>(layout.grid.count());
    layout.boxes.reserve(shards);
    layout.strides.reserve(shards);
    layout.offsets.reserve(shards);
    if (value.role == ValueRole::view) layout.root_shard.reserve(shards);
    if (spans_processes(mesh_))
      for (int s = 0; s < layout.grid.count(); ++s)
        layout.elsewhere.push_back(is_held_here(mesh_, layout.grid, s) ? 0 : 1);
    std::int64_t bytes = 0;
    for (int l = 0; l < layout.layers; ++l)
      for (int s = 0; s < layout.grid.count(); ++s) {
        const Coordinates at = layout.grid.coordinates(s);
        Box box = shard_box(value.shape, value.sharding, mesh_, at);
        if (value.stacked) {
          box.begin[0] = l;
          box.end[0] = l + 1;
        }
        layout.boxes.push_back(box);
        if (value.role == ValueRole::assembled) continue;  // it has no memory of its own
        if (value.role == ValueRole::view) {
          add_view_shard(graph, value, layout, at, l);
          continue;
        }
        Shape stored = extents(box);
        if (value.rows_once) {
          const ShapeContext context{graph, value.node, plan_.shapes.data(), plan_.numbers.data(), nullptr};
          const WindowedDims dims = row_of(graph[value.node]).windows(context);
          stored = ops::covered_rows(dims, stored);
          layout.strides.push_back(ops::overlapping_strides(dims, kernels::contiguous_strides(stored)));
        } else {
          layout.strides.push_back(kernels::contiguous_strides(stored));
        }
        layout.offsets.push_back(bytes);
        const bool has = layout.is_here(s) && value.parts.holds(mesh_, at);
        const std::int64_t own = has ? volume(stored) * layout.element : 0;
        bytes += (own + block_alignment - 1) / block_alignment * block_alignment;
      }
    if (value.in_arena() && bytes > value.stored_bytes)
      fail(errc::graph_invalid, "[frame] value ", values_.size(), ": its shards have ", bytes,
           " bytes, but the plan keeps ", value.stored_bytes);
    if (value.role != ValueRole::assembled) pointers_ += layout.shards();
    values_.push_back(std::move(layout));
  }

  TESSERA_PLANNING void add_view_shard(const GraphView& graph, const PlanValue& value, ValueLayout& layout,
                                       const Coordinates& at, int layer) {
    const PlanValue& root = plan_.values[static_cast<std::size_t>(value.view_of)];
    const ValueLayout& of = values_[static_cast<std::size_t>(value.view_of)];
    const int shard = of.index(at, root.stacked ? layer : 0);
    layout.root_shard.push_back(shard);
    const kernels::Strides& from = of.strides[static_cast<std::size_t>(shard)];
    const OpRow& row = row_of(graph[value.node]);
    if (row.factor_extents != nullptr) {
      layout.strides.push_back(
          rearranged(graph, value.node, root.sharding, of.boxes[static_cast<std::size_t>(shard)], from));
      layout.offsets.push_back(0);
      return;
    }
    const ShapeContext context{graph, value.node, plan_.shapes.data(), plan_.numbers.data(), nullptr};
    layout.strides.push_back(row.view != nullptr ? row.view(context, from) : from);
    const auto dim = static_cast<std::size_t>(dim_of(graph[value.node]));
    std::int64_t first = row.offset != nullptr ? -row.offset(context, 0) * from[dim] : 0;  // in elements
    if (row.windows != nullptr)
      for (const WindowedDim& own : row.windows(context))
        first -= own.before * from[static_cast<std::size_t>(own.line)];
    layout.offsets.push_back(first * layout.element);
  }

 public:
  /// Extents that the factors of a rearrange have inside the shard `operand` of its operand, sharded by `sharding`.
  /// Example: dim (h d) with h = 8, d = 64, sharded by an axis of size 4, has the factors h = 2, d = 64 in each shard.
  TESSERA_PLANNING Shape local_factors(const GraphView& graph, int node, const Sharding& sharding,
                                       const Box& operand) const {
    const ShapeContext context{graph, node, plan_.shapes.data(), plan_.numbers.data(), nullptr};
    Shape factors = ops::factor_extents(context);
    const Factors f = Factors::of(graph[node]);
    for (int p = 0; p < f.count;) {
      int end = p + 1;
      while (end < f.count && f.in_dim[end] == f.in_dim[p]) ++end;
      const int dim = f.in_dim[p];
      // The only factor that is longer than 1 has the rows of the dim, which axes may split unevenly.
      int longer = 0, only = p;
      for (int q = p; q < end; ++q)
        if (factors[static_cast<std::size_t>(q)] != 1) ++longer, only = q;
      const bool simple = end == p + 1 || longer == 1;
      if (simple) {
        const auto d = static_cast<std::size_t>(dim);
        factors[static_cast<std::size_t>(only)] = operand.end[d] - operand.begin[d];
      }
      // Mesh axes split the major factor of a merged dim first, and the next factor once the major has extent 1.
      // Each axis divides a factor evenly.
      std::size_t next = 0;
      for (int q = p; q < end && !simple; ++q) {
        std::int64_t& left = factors[static_cast<std::size_t>(q)];
        while (next < sharding.dims[dim].size() && left > 1) left /= mesh_.axis_size(sharding.dims[dim][next++]);
      }
      p = end;
    }
    return factors;
  }
  /// Strides of the factors, from the strides `from` of the operand's dims.
  static kernels::Strides factor_strides(const Factors& f, const Shape& factors, const kernels::Strides& from) {
    kernels::Strides strides(static_cast<std::size_t>(f.count), 0);
    for (int p = f.count - 1; p >= 0; --p) {
      const auto own = static_cast<std::size_t>(p);
      const bool minor = p + 1 < f.count && f.in_dim[p + 1] == f.in_dim[p];
      strides[own] = minor ? strides[own + 1] * factors[own + 1] : from[static_cast<std::size_t>(f.in_dim[p])];
    }
    return strides;
  }

 private:
  TESSERA_PLANNING kernels::Strides rearranged(const GraphView& graph, int node, const Sharding& sharding,
                                               const Box& operand, const kernels::Strides& from) const {
    const Factors f = Factors::of(graph[node]);
    const Shape factors = local_factors(graph, node, sharding, operand);
    const kernels::Strides strides = factor_strides(f, factors, from);
    kernels::Strides out(graph[node].rank, 0);
    if (volume(factors) == 0) return out;
    for (int d = 0; d < graph[node].rank; ++d) {
      // Factors merge into one strided dim if each stride is the next factor's stride times its extent.
      std::int64_t expected = -1;
      for (int p = f.count - 1; p >= 0; --p) {
        if (f.out_dim[p] != d) continue;
        const auto factor = static_cast<std::size_t>(f.order[p]);
        if (factors[factor] == 1) continue;
        if (expected < 0)
          out[static_cast<std::size_t>(d)] = strides[factor];
        else if (strides[factor] != expected)
          fail(errc::graph_invalid, "[rearrange] view: the dims to merge are not contiguous in memory");
        expected = strides[factor] * factors[factor];
      }
    }
    return out;
  }
};

/// Writes a host scalar as a rank-0 tensor.
inline void write_number(DType dtype, void* to, const HostNumber& number) {
  dispatch(
      dtype, [&]<class T>() { *static_cast<T*>(to) = number.as<T>(); }, [] {});
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
