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

/// Copies the elements of a row that are in a box of rows to consecutive places.
template <class T> void copy_part(const T* row, const Shape& row_shape, const Box& box, T* to) {
  const std::size_t last = row_shape.size() - 1;
  Shape at = box.begin;
  const std::int64_t run_size = box.end[last] - box.begin[last], runs = volume(extents(box)) / run_size;
  for (std::int64_t run = 0; run < runs; ++run) {
    std::int64_t from = 0;
    for (std::size_t dim = 0; dim <= last; ++dim) from = from * row_shape[dim] + at[dim];
    to = std::copy_n(row + from, run_size, to);
    // The next index of all dims but the last, like an odometer.
    for (std::size_t dim = last; dim-- > 0;) {
      if (++at[dim] < box.end[dim]) break;
      at[dim] = box.begin[dim];
    }
  }
}

/// A tensor of the chosen rows of a column, which are its dim `batch_dim`. Each row is read once, into the shard that
/// that has it or, where several shards have parts of it or its elements are not consecutive, by way of a buffer.
template <Column C>
auto read_rows(const C& column, const std::vector<Row>& chosen, const Mesh& mesh, const PartitionSpec& spec,
               std::size_t batch_dim, Here at) {
  using T = typename C::element;
  constexpr int rank = C::row_rank + 1;
  const Shape row_shape = column.row_shape();
  const auto count = static_cast<std::int64_t>(chosen.size()), row_size = volume(row_shape);
  Shape shape = row_shape;
  shape.insert(batch_dim, count);
  const StoragePtr storage = tessera::detail::allocate("DataLoader", dtype_v<T>, shape, rank, mesh, spec, at);
  if (row_size > 0)
    parallel_for(count, cost_of(column), [&](std::int64_t i) {
      std::vector<unsigned char> buffer, part_buffer;
      for (int shard = 0; shard < storage->shard_count(); ++shard) {
        if (!storage->holds(shard)) continue;
        const Box& box = storage->box(shard);
        const std::int64_t first = box.begin[batch_dim], rows = box.end[batch_dim] - first;
        if (i < first || i >= first + rows) continue;
        Box of_row = box;
        of_row.begin.erase(batch_dim);
        of_row.end.erase(batch_dim);
        const std::int64_t part = volume(extents(of_row));
        if (part == 0) continue;
        // The part of a row is `part / run` runs, each `rows * run` elements after the one before.
        std::int64_t run = 1;
        for (std::size_t dim = batch_dim; dim < row_shape.size(); ++dim) run *= of_row.end[dim] - of_row.begin[dim];
        T* const to = static_cast<T*>(storage->data(shard)) + (i - first) * run;
        if (part == row_size && part == run) {
          column.read(chosen[static_cast<std::size_t>(i)], to);
          continue;
        }
        if (buffer.empty()) {
          buffer.resize(static_cast<std::size_t>(row_size) * sizeof(T));
          column.read(chosen[static_cast<std::size_t>(i)], reinterpret_cast<T*>(buffer.data()));
        }
        const T* const row = reinterpret_cast<const T*>(buffer.data());
        if (part == run) {
          copy_part(row, row_shape, of_row, to);
          continue;
        }
        part_buffer.resize(static_cast<std::size_t>(part) * sizeof(T));
        T* const own = reinterpret_cast<T*>(part_buffer.data());
        copy_part(row, row_shape, of_row, own);
        for (std::int64_t k = 0; k < part / run; ++k) std::copy_n(own + k * run, run, to + k * rows * run);
      }
    });
  return tensor_of<T, rank>(storage);
}

}  // namespace tessera::data::detail

#include <tessera/base/pop_macros.hpp>

#endif
