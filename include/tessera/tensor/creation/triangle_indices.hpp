#ifndef TESSERA_TENSOR_CREATION_TRIANGLE_INDICES_HPP
#define TESSERA_TENSOR_CREATION_TRIANGLE_INDICES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera {

namespace detail {
/// Rows, then columns, of the elements for which the column minus the row is from `low` to `high`.
template <class T>
ShardedTensor<T, 2> band_indices(std::string_view op, std::int64_t rows, std::int64_t columns, std::int64_t low,
                                 std::int64_t high, const Mesh& mesh, const PartitionSpec& spec, Here at) {
  if (rows < 0 || columns < 0)
    fail(errc::dim_range, "[", op, "] extents: ", rows, " x ", columns, " are below 0", Source::from(at));
  low = std::clamp(low, -rows, columns), high = std::clamp(high, -rows, columns);  // any offset: sums don't overflow
  std::vector<T> row, column;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = std::max<std::int64_t>(0, i + low); j < std::min(columns, i + high + 1); ++j) {
      row.push_back(static_cast<T>(i));
      column.push_back(static_cast<T>(j));
    }
  const auto count = static_cast<std::int64_t>(row.size());
  row.insert(row.end(), column.begin(), column.end());
  return shard<2>(row, Shape{2, count}, mesh, spec, at);
}
}  // namespace detail

/// The indices of the lower triangle of a matrix, [2, count]: rows, then columns, in row-major order
/// (torch.tril_indices). `offset` is that of ts::tril: 1 includes the diagonal above the main one, -1 excludes the main
/// one. T is an integer type, by default i64, as in PyTorch. Errors: dim_range for negative extents.
///
///     const auto below = ts::tril_indices(3, 3, mesh);   // (0,0) (1,0) (1,1) (2,0) (2,1) (2,2)
template <Element T = std::int64_t>
ShardedTensor<T, 2> tril_indices(std::int64_t rows, std::int64_t columns, const Mesh& mesh, std::int64_t offset = 0,
                                 const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::band_indices<T>("tril_indices", rows, columns, -rows, offset, mesh, spec, at);
}
/// The indices of the upper triangle (torch.triu_indices); `offset` is that of ts::triu.
template <Element T = std::int64_t>
ShardedTensor<T, 2> triu_indices(std::int64_t rows, std::int64_t columns, const Mesh& mesh, std::int64_t offset = 0,
                                 const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::band_indices<T>("triu_indices", rows, columns, offset, columns, mesh, spec, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
