#ifndef TESSERA_DATA_READ_ROWS_HPP
#define TESSERA_DATA_READ_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/data/column.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera::data::detail {

/// Copies the elements of a row that are in a box of the batch, whose dim 0 is that of rows, to their place in the box.
template <class T> void copy_part(const T* row, const Shape& row_shape, const Box& box, T* to) {
  const std::size_t last = row_shape.size() - 1;
  Shape at;
  for (std::size_t dim = 0; dim <= last; ++dim) at.push_back(box.begin[dim + 1]);
  const std::int64_t runs =
      volume(extents(box)) / (box.end[0] - box.begin[0]) / (box.end[last + 1] - box.begin[last + 1]);
  for (std::int64_t run = 0; run < runs; ++run) {
    std::int64_t from = 0;
    for (std::size_t dim = 0; dim <= last; ++dim) from = from * row_shape[dim] + at[dim];
    to = std::copy_n(row + from, box.end[last + 1] - box.begin[last + 1], to);
    // The next index of all dims but the last, like an odometer.
    for (std::size_t dim = last; dim-- > 0;) {
      if (++at[dim] < box.end[dim + 1]) break;
      at[dim] = box.begin[dim + 1];
    }
  }
}

/// A tensor of the chosen rows of a column. Each row is read once, into the shard that it lies in or, where several
/// shards have parts of it, by way of a buffer.
template <Column C>
auto read_rows(const C& column, const std::vector<Row>& chosen, const Mesh& mesh, const PartitionSpec& spec, Here at) {
  using T = typename C::element;
  constexpr int rank = C::row_rank + 1;
  const Shape row_shape = column.row_shape();
  const auto count = static_cast<std::int64_t>(chosen.size()), row_size = volume(row_shape);
  Shape shape{count};
  for (const std::int64_t extent : row_shape) shape.push_back(extent);
  const StoragePtr storage = tessera::detail::allocate("DataLoader", dtype_v<T>, shape, rank, mesh, spec, at);
  if (row_size > 0)
    parallel_for(count, cost_of(column), [&](std::int64_t i) {
      std::vector<unsigned char> buffer;
      for (int shard = 0; shard < storage->shard_count(); ++shard) {
        const Box& box = storage->box(shard);
        if (i < box.begin[0] || i >= box.end[0]) continue;
        const std::int64_t part = volume(extents(box)) / (box.end[0] - box.begin[0]);
        T* const to = static_cast<T*>(storage->data(shard)) + (i - box.begin[0]) * part;
        if (part == row_size) {
          column.read(chosen[static_cast<std::size_t>(i)], to);
        } else if (part > 0) {
          if (buffer.empty()) {
            buffer.resize(static_cast<std::size_t>(row_size) * sizeof(T));
            column.read(chosen[static_cast<std::size_t>(i)], reinterpret_cast<T*>(buffer.data()));
          }
          copy_part(reinterpret_cast<const T*>(buffer.data()), row_shape, box, to);
        }
      }
    });
  return tensor_of<T, rank>(storage);
}

}  // namespace tessera::data::detail

#include <tessera/base/pop_macros.hpp>

#endif
