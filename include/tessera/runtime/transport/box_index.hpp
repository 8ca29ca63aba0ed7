#ifndef TESSERA_RUNTIME_TRANSPORT_BOX_INDEX_HPP
#define TESSERA_RUNTIME_TRANSPORT_BOX_INDEX_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/sort_distinct.hpp>
#include <tessera/mesh/box.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime {

/// Finds the boxes that overlap a query box. If the boxes form a grid, as the shards of a sharding do, the lookup is a
/// binary search per dim; otherwise all boxes are tested.
class BoxIndex {
 public:
  explicit BoxIndex(Growable<Box> boxes) : boxes_(std::move(boxes)) {
    const std::size_t rank = boxes_.empty() ? 0 : boxes_[0].begin.size();
    std::size_t cells = 1;
    is_grid_ = true;
    for (std::size_t dim = 0; dim < rank && is_grid_; ++dim) {
      auto& cuts = cuts_[dim];
      for (const Box& box : boxes_)
        if (!box.empty()) cuts.push_back({box.begin[dim], box.end[dim]});
      sort_distinct(cuts);
      for (std::size_t i = 1; i < cuts.size(); ++i) is_grid_ = is_grid_ && cuts[i - 1].second <= cuts[i].first;
      cells *= cuts.size();
      is_grid_ = is_grid_ && cells <= 4 * boxes_.size();
    }
    if (is_grid_) fill_cells(cells);
  }

  const Box& operator[](std::size_t i) const { return boxes_[i]; }

  /// Calls found(i, overlap) for each box i whose intersection with `box` is not empty.
  template <class Found> void for_each_overlap(const Box& box, Found found) const {
    if (box.empty() || boxes_.empty()) return;
    if (!is_grid_) {
      for (std::size_t i = 0; i < boxes_.size(); ++i) visit(i, box, found);
      return;
    }
    std::array<std::size_t, max_rank> low{}, high{}, at{};
    const std::size_t rank = box.begin.size();
    for (std::size_t dim = 0; dim < rank; ++dim) {
      const auto& cuts = cuts_[dim];
      const auto cuts_while = [&](auto holds) {
        return static_cast<std::size_t>(std::partition_point(cuts.begin(), cuts.end(), holds) - cuts.begin());
      };
      low[dim] = cuts_while([&](const SortedPair& cut) { return cut.second <= box.begin[dim]; });
      high[dim] = cuts_while([&](const SortedPair& cut) { return cut.first < box.end[dim]; });
      if (low[dim] >= high[dim]) return;
      at[dim] = low[dim];
    }
    for (;;) {
      std::size_t cell = 0;
      for (std::size_t dim = 0; dim < rank; ++dim) cell = cell * cuts_[dim].size() + at[dim];
      if (cells_[cell] >= 0) visit(static_cast<std::size_t>(cells_[cell]), box, found);
      std::size_t dim = rank;
      while (dim > 0 && ++at[dim - 1] == high[dim - 1]) {
        --dim;
        at[dim] = low[dim];
      }
      if (dim == 0) return;
    }
  }

 private:
  Growable<Box> boxes_;
  std::array<Growable<SortedPair>, max_rank> cuts_;  // distinct intervals of the boxes in each dim
  Growable<int> cells_;                              // index of the box in each cell of the grid, or -1
  bool is_grid_ = false;

  void fill_cells(std::size_t cells) {
    cells_.assign(cells, -1);
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      const Box& box = boxes_[i];
      if (box.empty()) continue;
      std::size_t cell = 0;
      for (std::size_t dim = 0; dim < box.begin.size(); ++dim) {
        const auto& cuts = cuts_[dim];
        const auto at = std::lower_bound(cuts.begin(), cuts.end(), SortedPair{box.begin[dim], box.end[dim]});
        cell = cell * cuts.size() + static_cast<std::size_t>(at - cuts.begin());
      }
      if (cells_[cell] >= 0)
        fail(errc::graph_invalid, "[reshard] one source for each element: sources ", cells_[cell], " and ", i,
             " have the same box");
      cells_[cell] = static_cast<int>(i);
    }
  }

  template <class Found> void visit(std::size_t i, const Box& box, Found& found) const {
    if (const Box overlap = intersect(boxes_[i], box); !overlap.empty()) found(i, overlap);
  }
};

}  // namespace tessera::runtime

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
