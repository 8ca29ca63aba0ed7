#ifndef TESSERA_DATA_COLUMN_HPP
#define TESSERA_DATA_COLUMN_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::data {

/// The index of a row and the epoch that it is read for. Random augmentation derives its keys from both.
struct Row {
  std::int64_t index = 0, epoch = 0;
};

/// One column of a data set, such as its images: rows() rows of the shape row_shape(), of which read() writes one in
/// row-major order. A loader reads many rows at the same time on several threads. Columns of the library: Array,
/// Windows, generate(), map().
template <class C>
concept Column = Element<typename C::element> && requires(const C& column, Row row, typename C::element* to) {
  { C::row_rank } -> std::convertible_to<int>;
  { column.rows() } -> std::convertible_to<std::int64_t>;
  { column.row_shape() } -> std::convertible_to<Shape>;
  column.read(row, to);
};

namespace detail {
/// The estimated time of reading a row: by the column's cost(), or that of copying the row.
template <Column C> Cost cost_of(const C& column) {
  if constexpr (requires { column.cost(); })
    return column.cost();
  else
    return Cost::bytes(2.0 * sizeof(typename C::element) * static_cast<double>(volume(column.row_shape())));
}
}  // namespace detail

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
