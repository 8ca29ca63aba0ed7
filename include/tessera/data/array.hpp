#ifndef TESSERA_DATA_ARRAY_HPP
#define TESSERA_DATA_ARRAY_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/column.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/tensor/extent.hpp>
#include <tessera/tensor/storage/allocate.hpp>

namespace tessera::data {

/// A column in memory, or in a file that is mapped into memory: an array [rows, row_shape...] in row-major order.
/// Copies share the memory.
template <Element T, int RowRank> class Array {
 public:
  using element = T;
  static constexpr int row_rank = RowRank;

  /// `owner` keeps the memory of `values` alive; if it is null, the caller must. Errors: `host_data` if the number of
  /// values is not that of the shape's elements; those of creating tensors for the shape.
  Array(std::shared_ptr<const void> owner, std::span<const T> values, const Shape& shape, Here at = Here::current())
      : owner_(std::move(owner)), data_(values.data()) {
    tessera::detail::check_shape("data::Array", dtype_v<T>, shape, RowRank + 1, at);
    if (static_cast<std::uint64_t>(volume(shape)) != values.size())
      fail(errc::host_data, "[data::Array] element count: ", values.size(), " values for ",
           shape_text(dtype_v<T>, shape), ", which has ", volume(shape), Source::from(at));
    rows_ = shape[0];
    for (std::size_t dim = 1; dim < shape.size(); ++dim) row_shape_.push_back(shape[dim]);
    row_size_ = volume(row_shape_);
  }

  std::int64_t rows() const { return rows_; }
  const Shape& row_shape() const { return row_shape_; }
  std::span<const T> row(std::int64_t index) const {
    return {data_ + index * row_size_, static_cast<std::size_t>(row_size_)};
  }
  /// All values, row by row.
  std::span<const T> values() const { return {data_, static_cast<std::size_t>(rows_ * row_size_)}; }
  void read(Row row, T* to) const { std::copy_n(data_ + row.index * row_size_, row_size_, to); }

 private:
  std::shared_ptr<const void> owner_;
  const T* data_ = nullptr;
  std::int64_t rows_ = 0, row_size_ = 0;
  Shape row_shape_;
};

/// A column that owns the values of a vector.
///
///     const auto images = ts::data::array(std::move(pixels), {60000, 28, 28});
template <Element T, std::size_t Rank>
Array<T, static_cast<int>(Rank) - 1> array(std::vector<T> values, const Extent (&shape)[Rank],
                                           Here at = Here::current()) {
  static_assert(!std::is_same_v<T, bool>, "tessera: std::vector<bool> has no array of bool; use bytes and data::map");
  auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  const std::span<const T> seen(*kept);
  return {std::move(kept), seen, tessera::detail::shape_from(shape), at};
}
/// A column whose rows are single elements, such as labels.
template <Element T> Array<T, 0> array(std::vector<T> values, Here at = Here::current()) {
  const auto rows = static_cast<std::int64_t>(values.size());
  return array(std::move(values), {rows}, at);
}

/// A column that refers to values which outlive it.
template <Element T, std::size_t Rank>
Array<T, static_cast<int>(Rank) - 1> view(std::span<const T> values, const Extent (&shape)[Rank],
                                          Here at = Here::current()) {
  return {nullptr, values, tessera::detail::shape_from(shape), at};
}

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
