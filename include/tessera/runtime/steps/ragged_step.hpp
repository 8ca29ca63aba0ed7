#ifndef TESSERA_RUNTIME_STEPS_RAGGED_STEP_HPP
#define TESSERA_RUNTIME_STEPS_RAGGED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/gemm/ragged_gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/ops/contraction/ragged_rows.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// ragged_dot and ragged_outer. The sizes of groups are known only in a call, so each run first cuts its work into
/// tasks: rows of one matrix for ragged_dot, a box of one group's matrix for ragged_outer. A shard of rows or of groups
/// works on the rows and groups that it holds.
template <DTypeSet Types> class RaggedStep final : public PreparedStep {
 public:
  TESSERA_PLANNING explicit RaggedStep(const StepContext& c) {
    const Node& node = c.graph[c.units[c.step.unit].root];
    const FrameLayout& layout = c.layout;
    const PlanStep& step = c.step;
    sums_rows_ = node.op == build::ragged_outer_op;
    transposed_ = !sums_rows_ && ops::is_transposed(node);
    dtype_ = layout.value(step.inputs[0]).dtype;
    size_dtype_ = layout.value(step.inputs[2]).dtype;
    const WorkGrid work(layout, step);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (work.stores(at, layout.value(step.outputs[0]).sharding) && layout.holds(step.outputs[0], at))
        add_place(c, node, at);
    }
    std::int64_t ends = 0;
    for (Place& place : places_) {
      place.first_end = ends;
      ends += volume(place.lead) * place.groups;
    }
    ends_.resize(static_cast<std::size_t>(ends));
  }

  void run(Frame& frame) const override {
    find_ends(frame);
    dispatch<Types>(
        dtype_, [&]<class T>() { sums_rows_ ? run_outer<T>(frame) : run_dot<T>(frame); },
        [&] { fail(errc::dtype_mismatch, "[ragged_dot] dtype: ", name_of(dtype_), " is not supported"); });
  }

 private:
  /// One array of a place. Strides along leading dims that it shares are 0.
  struct Array {
    std::int32_t pointer = -1;
    kernels::Strides lead;
    std::int64_t first = 0, row = 0, column = 0;  ///< strides: of groups, rows and columns

    std::int64_t offset(const Shape& extents, std::int64_t index) const {
      std::int64_t at = 0;
      for (std::size_t d = extents.size(); d-- > 0; index /= extents[d]) at += index % extents[d] * lead[d];
      return at;
    }
  };
  /// `left` has rows [m, k], `right` rows [m, n], `matrix` is [groups, k, n].
  struct Place {
    Array left, right, matrix, sizes;
    Shape lead;                                         ///< extents of the leading dims
    Shape kept, summed;                                 ///< of those that matrices have, and of the others
    std::int64_t m = 0, k = 0, n = 0;                   ///< of this shard
    std::int64_t first_row = 0, rows = 0;               ///< m is a range of so many rows
    std::int64_t groups = 0, first_group = 0, own = 0;  ///< all groups, and those of this shard
    std::int64_t first_end = 0;                         ///< index in ends_
    std::int64_t steps() const { return volume(lead); }
  };
  /// Rows of ragged_dot that one matrix multiplies, or that no matrix does (matrix < 0), which become 0.
  struct Task {
    int place;
    std::int64_t matrix, first, count, rows;
  };

  Growable<Place> places_;
  DType dtype_{}, size_dtype_{};
  bool sums_rows_ = false, transposed_ = false;
  // Values of one run; members so that run() does not allocate.
  mutable Growable<std::int64_t> ends_;  // by place, leading index and group
  mutable Growable<Task> tasks_;
  mutable Growable<kernels::RowSegment> segments_;

  template <class T> static T* at(const Frame& frame, const Array& array) {
    return reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(array.pointer)]);
  }

  TESSERA_PLANNING void add_place(const StepContext& c, const Node& node, const Coordinates& at) {
    const FrameLayout& layout = c.layout;
    const int values[] = {c.step.inputs[0], c.step.inputs[1], c.step.inputs[2], c.step.outputs[0]};
    const Node* const types[] = {&c.graph.operand_node(c.units[c.step.unit].root, 0),
                                 &c.graph.operand_node(c.units[c.step.unit].root, 1),
                                 &c.graph.operand_node(c.units[c.step.unit].root, 2), &node};
    const std::size_t lead = types[0]->rank - 2;
    Place place;
    Box boxes[4];
    Array arrays[4];
    place.lead = Shape(lead, 1);
    for (int i = 0; i < 4; ++i) {
      const ValueLayout& own = layout[values[i]];
      const auto shard = static_cast<std::size_t>(own.index(at));
      boxes[i] = own.boxes[shard];
      arrays[i].pointer = own.first + static_cast<std::int32_t>(shard);
      const kernels::Strides& strides = own.strides[shard];
      for (std::size_t d = 0; d < lead; ++d) {
        const bool shares = types[i]->is_singleton(static_cast<int>(d));
        arrays[i].lead.push_back(shares ? 0 : strides[d]);
        if (!shares) place.lead[d] = boxes[i].end[d] - boxes[i].begin[d];
      }
      arrays[i].first = strides[lead];
      if (strides.size() == lead + 2) arrays[i].row = strides[lead], arrays[i].column = strides[lead + 1];
      if (strides.size() == lead + 3) arrays[i].row = strides[lead + 1], arrays[i].column = strides[lead + 2];
    }
    const int matrix = sums_rows_ ? 3 : 1, right = sums_rows_ ? 1 : 3;
    place.left = arrays[0], place.matrix = arrays[matrix], place.right = arrays[right], place.sizes = arrays[2];
    if (transposed_) std::swap(place.matrix.row, place.matrix.column);
    const auto extent = [&](int i, std::size_t d) { return boxes[i].end[lead + d] - boxes[i].begin[lead + d]; };
    place.m = extent(0, 0), place.k = extent(0, 1), place.n = extent(right, 1);
    place.first_row = boxes[0].begin[lead];
    place.rows = layout.value(values[0]).shape[lead];
    place.groups = layout.value(values[2]).shape[lead];
    place.first_group = boxes[matrix].begin[lead];
    place.own = extent(matrix, 0);
    for (std::size_t d = 0; d < lead; ++d) {
      const bool sums = types[matrix]->is_singleton(static_cast<int>(d));
      place.kept.push_back(sums ? 1 : place.lead[d]);
      place.summed.push_back(sums ? place.lead[d] : 1);
    }
    places_.push_back(std::move(place));
  }

  void find_ends(const Frame& frame) const {
    constexpr DTypeSet index_types = static_cast<DTypeSet>(set_of(DType::i32) | set_of(DType::i64));
    dispatch<index_types>(
        size_dtype_,
        [&]<class I>() {
          for (const Place& place : places_)
            for (std::int64_t l = 0; l < place.steps(); ++l)
              kernels::find_group_ends(at<I>(frame, place.sizes) + place.sizes.offset(place.lead, l), place.sizes.first,
                                       place.groups, place.rows, ends_.data() + place.first_end + l * place.groups);
        },
        [&] {
          fail(errc::dtype_mismatch, "[ragged_dot] dtype of group sizes: ", name_of(size_dtype_),
               " is neither i32 nor i64");
        });
  }
  /// The rows of group g (-1: none, at the first row) of leading index l up to its end, as rows of the place's shard.
  std::int64_t end_of(const Place& place, std::int64_t l, std::int64_t g) const {
    const std::int64_t end = g < 0 ? 0 : ends_[static_cast<std::size_t>(place.first_end + l * place.groups + g)];
    return std::clamp<std::int64_t>(end - place.first_row, 0, place.m);
  }

  // ---- ragged_dot

  void add_rows(int p, std::int64_t matrix, std::int64_t l, std::int64_t begin, std::int64_t end,
                std::int64_t most) const {
    const Place& place = places_[static_cast<std::size_t>(p)];
    const std::int64_t left = place.left.offset(place.lead, l), right = place.right.offset(place.lead, l);
    while (begin < end) {
      const bool joins =
          !tasks_.empty() && tasks_.back().place == p && tasks_.back().matrix == matrix && tasks_.back().rows < most;
      if (!joins) tasks_.push_back({p, matrix, static_cast<std::int64_t>(segments_.size()), 0, 0});
      Task& task = tasks_.back();
      const std::int64_t taken = std::min(end - begin, most - task.rows);
      segments_.push_back({left + begin * place.left.row, right + begin * place.right.row, taken});
      ++task.count;
      task.rows += taken;
      begin += taken;
    }
  }
  /// Tasks of about `most` rows, each of one matrix: of one leading index after another, or of all of them if they
  /// share the matrices.
  void cut_rows(std::int64_t most) const {
    tasks_.clear(), segments_.clear();
    for (int p = 0; p < static_cast<int>(places_.size()); ++p) {
      const Place& place = places_[static_cast<std::size_t>(p)];
      if (place.m * place.n == 0) continue;
      const std::int64_t last = place.first_group + place.own - 1;
      const auto group = [&](std::int64_t l, std::int64_t g) {
        add_rows(p, place.matrix.offset(place.lead, l) + (g - place.first_group) * place.matrix.first, l,
                 end_of(place, l, g - 1), end_of(place, l, g), most);
      };
      if (volume(place.kept) == 1)
        for (std::int64_t g = place.first_group; g <= last; ++g)
          for (std::int64_t l = 0; l < place.steps(); ++l) group(l, g);
      else
        for (std::int64_t l = 0; l < place.steps(); ++l)
          for (std::int64_t g = place.first_group; g <= last; ++g) group(l, g);
      for (std::int64_t l = 0; l < place.steps(); ++l) {
        const bool none = place.own == 0;
        add_rows(p, -1, l, 0, none ? place.m : end_of(place, l, place.first_group - 1), most);
        add_rows(p, -1, l, none ? place.m : end_of(place, l, last), place.m, most);
      }
    }
  }

  template <class T> void run_dot(Frame& frame) const {
    std::int64_t rows = 0, k = 0, n = 0;
    for (const Place& place : places_) {
      rows += place.m * place.steps();
      k = std::max(k, place.k), n = std::max(n, place.n);
    }
    if (rows == 0 || n == 0) return;
    const std::int64_t threads = parallelism();
    // Packing a matrix costs as much as 13 rows of its product, so that a task has many rows where it can.
    cut_rows(std::clamp<std::int64_t>(rows / (8 * threads) / 32 * 32, 128, 1024));
    const auto tasks = static_cast<std::int64_t>(tasks_.size());
    // Columns are cut if there are few tasks, or if a packed matrix would not stay in a cache.
    constexpr std::int64_t least_columns = 128, packed_bytes = 1 << 22;
    const std::int64_t wide = std::max<std::int64_t>(packed_bytes / (4 * std::max<std::int64_t>(k, 1)), least_columns);
    const std::int64_t cuts = std::clamp<std::int64_t>(4 * threads / std::max<std::int64_t>(tasks, 1), 1,
                                                       std::max<std::int64_t>(n / least_columns, 1));
    const std::int64_t columns = (std::min((n + cuts - 1) / cuts, wide) + 31) / 32 * 32;
    const std::int64_t parts = (n + columns - 1) / columns;
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(k) * static_cast<double>(n);
    parallel_for(tasks * parts, Cost::flops(flops / static_cast<double>(std::max<std::int64_t>(tasks * parts, 1))),
                 [&](std::int64_t i) {
                   multiply<T>(frame, tasks_[static_cast<std::size_t>(i / parts)], i % parts * columns, columns);
                 });
  }
  template <class T>
  void multiply(const Frame& frame, const Task& task, std::int64_t column, std::int64_t width) const {
    const Place& place = places_[static_cast<std::size_t>(task.place)];
    const std::int64_t n = std::min(width, place.n - column);
    if (n <= 0) return;
    using Out = kernels::product_t<T>;
    Out* const out = at<Out>(frame, place.right) + column * place.right.column;
    const kernels::RowSegment* const segments = segments_.data() + task.first;
    if (task.matrix < 0) {
      for (std::int64_t s = 0; s < task.count; ++s)
        kernels::strided_fill_zero(out + segments[s].c, kernels::Strides{place.right.row, place.right.column},
                                   Shape{segments[s].rows, n}, sizeof(Out));
      return;
    }
    const T* const matrix = at<T>(frame, place.matrix) + task.matrix + column * place.matrix.column;
    kernels::multiply_segments(
        kernels::Gemm<T>{0, n, place.k, at<T>(frame, place.left), place.left.row, place.left.column, matrix,
                         place.matrix.row, place.matrix.column, out, place.right.row, place.right.column},
        segments, task.count);
  }

  // ---- ragged_outer

  template <class T> void run_outer(Frame& frame) const {
    std::int64_t matrices = 0, k = 0, n = 0, rows = 0;
    for (const Place& place : places_) {
      matrices += volume(place.kept) * place.own;
      rows += place.m * place.steps();
      k = std::max(k, place.k), n = std::max(n, place.n);
    }
    if (matrices == 0 || k == 0 || n == 0) return;
    // Boxes of a matrix: enough of them for all threads, and small enough for a cache, since several segments add to a
    // box.
    constexpr std::int64_t least = 64, most_elements = 1 << 17;
    const std::int64_t wanted =
        std::max((8 * parallelism() + matrices - 1) / matrices, (k * n + most_elements - 1) / most_elements);
    const std::int64_t by_rows = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(k / least, 1)),
                       by_columns = std::clamp<std::int64_t>((wanted + by_rows - 1) / by_rows, 1,
                                                             std::max<std::int64_t>(n / least, 1));
    const std::int64_t height = ((k + by_rows - 1) / by_rows + 31) / 32 * 32,
                       width = ((n + by_columns - 1) / by_columns + 31) / 32 * 32;
    const std::int64_t high = (k + height - 1) / height, parts = high * ((n + width - 1) / width);
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(k) * static_cast<double>(n);
    parallel_for(matrices * parts, Cost::flops(flops / static_cast<double>(matrices * parts)), [&](std::int64_t i) {
      std::int64_t left = i / parts;
      std::size_t p = 0;
      for (; left >= volume(places_[p].kept) * places_[p].own; ++p) left -= volume(places_[p].kept) * places_[p].own;
      add_outer<T>(frame, places_[p], left / places_[p].own, left % places_[p].own, i % parts % high * height, height,
                   i % parts / high * width, width);
    });
  }
  /// The box from (row, column) of the matrix of the shard's group g, at index `kept` of the leading dims of matrices.
  template <class T>
  void add_outer(const Frame& frame, const Place& place, std::int64_t kept, std::int64_t g, std::int64_t row,
                 std::int64_t height, std::int64_t column, std::int64_t width) const {
    using Out = kernels::product_t<T>;
    height = std::min(height, place.k - row), width = std::min(width, place.n - column);
    if (height <= 0 || width <= 0) return;
    const std::int64_t terms = volume(place.summed);
    auto* const ranges = kernels::thread_scratch<kernels::Scratch::ragged_ranges, kernels::ContractedRange>(
        static_cast<std::size_t>(terms));
    std::int64_t count = 0;
    const kernels::Strides steps = kernels::contiguous_strides(place.lead);
    const auto index_in = [&](const Shape& extents, std::int64_t index) {
      std::int64_t made = 0;
      for (std::size_t d = extents.size(); d-- > 0; index /= extents[d]) made += index % extents[d] * steps[d];
      return made;
    };
    const std::int64_t first = index_in(place.kept, kept), group = place.first_group + g;
    for (std::int64_t s = 0; s < terms; ++s) {
      const std::int64_t l = first + index_in(place.summed, s), begin = end_of(place, l, group - 1),
                         end = end_of(place, l, group);
      if (begin < end)
        ranges[count++] = {place.left.offset(place.lead, l) + begin * place.left.row,
                           place.right.offset(place.lead, l) + begin * place.right.row, end - begin};
    }
    Out* const out = at<Out>(frame, place.matrix) + place.matrix.offset(place.kept, kept) + g * place.matrix.first +
                     row * place.matrix.row + column * place.matrix.column;
    const T* const a = at<T>(frame, place.left);
    const T* const b = at<T>(frame, place.right);
    kernels::multiply_ranges(
        kernels::Gemm<T>{height, width, 0, count == 0 ? nullptr : a + row * place.left.column, place.left.column,
                         place.left.row, count == 0 ? nullptr : b + column * place.right.column, place.right.row,
                         place.right.column, out, place.matrix.row, place.matrix.column},
        ranges, count);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
