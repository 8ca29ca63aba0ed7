#ifndef TESSERA_DATA_MAP_HPP
#define TESSERA_DATA_MAP_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/column.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/extent.hpp>
#include <tessera/tensor/key.hpp>
#include <tessera/tensor/storage/allocate.hpp>

namespace tessera::data {

/// The assumed cost of a user's function for one row: high enough that each row of a batch is a task.
inline constexpr Cost function_of_user{5000};

namespace detail {
template <Element T, int RowRank, class F> class Generated {
 public:
  using element = T;
  static constexpr int row_rank = RowRank;

  Generated(std::int64_t rows, const Shape& row_shape, F function, Here at)
      : rows_(rows), row_shape_(row_shape), function_(std::move(function)) {
    if (rows < 0) fail(errc::option, "[data::generate] number of rows: ", rows, " is negative", Source::from(at));
    tessera::detail::check_shape("data::generate", dtype_v<T>, row_shape, RowRank, at);
  }
  std::int64_t rows() const { return rows_; }
  const Shape& row_shape() const { return row_shape_; }
  Cost cost() const { return function_of_user; }
  void read(Row row, T* to) const {
    const std::span<T> out(to, static_cast<std::size_t>(volume(row_shape_)));
    if constexpr (std::invocable<const F&, Row, std::span<T>>)
      function_(row, out);
    else
      function_(row.index, out);
  }

 private:
  std::int64_t rows_;
  Shape row_shape_;
  F function_;
};

template <Column C, Element T, int RowRank, class F> class Mapped {
 public:
  using element = T;
  static constexpr int row_rank = RowRank;

  Mapped(C column, const Shape& row_shape, F function, Here at)
      : column_(std::move(column)), row_shape_(row_shape), function_(std::move(function)) {
    tessera::detail::check_shape("data::map", dtype_v<T>, row_shape, RowRank, at);
  }
  std::int64_t rows() const { return column_.rows(); }
  const Shape& row_shape() const { return row_shape_; }
  Cost cost() const { return cost_of(column_) + function_of_user; }
  void read(Row row, T* to) const {
    using From = typename C::element;
    // The row of the column, in memory of this thread that later rows use again.
    thread_local std::vector<std::byte> memory;
    std::vector<std::byte> bytes = std::move(memory);
    const auto size = static_cast<std::size_t>(volume(column_.row_shape()));
    bytes.resize(size * sizeof(From));
    From* const from = reinterpret_cast<From*>(bytes.data());
    column_.read(row, from);
    const std::span<const From> in(from, size);
    const std::span<T> out(to, static_cast<std::size_t>(volume(row_shape_)));
    if constexpr (std::invocable<const F&, std::span<const From>, std::span<T>, Row>)
      function_(in, out, row);
    else
      function_(in, out);
    memory = std::move(bytes);
  }

 private:
  C column_;
  Shape row_shape_;
  F function_;
};
}  // namespace detail

/// A column computed by a function, as __getitem__ of torch.utils.data.Dataset: function(index, row) writes row `index`
/// into `row`, a std::span<T> of the elements of row_shape. For random rows, take a ts::data::Row instead of the index,
/// and derive a Key from its index and epoch. The function runs on several threads at a time. The loader rethrows its
/// exceptions.
///
///     const auto squares = ts::data::generate<float>(1000, {8}, [](std::int64_t i, std::span<float> row) {
///       for (std::size_t k = 0; k < row.size(); ++k) row[k] = static_cast<float>(i * i) + static_cast<float>(k);
///     });
template <Element T, std::size_t RowRank, class F>
auto generate(std::int64_t rows, const Extent (&row_shape)[RowRank], F function, Here at = Here::current()) {
  return detail::Generated<T, static_cast<int>(RowRank), F>(rows, tessera::detail::shape_from(row_shape),
                                                            std::move(function), at);
}

/// The same for rows that are single elements, such as labels: function(index), or function(row) of a ts::data::Row,
/// returns the element.
///
///     const auto parities = ts::data::generate<std::int32_t>(1000, [](std::int64_t i) { return i % 2; });
template <Element T, class F>
  requires(std::invocable<const F&, Row> || std::invocable<const F&, std::int64_t>)
auto generate(std::int64_t rows, F function, Here at = Here::current()) {
  const auto one = [function = std::move(function)](Row row, std::span<T> out) {
    if constexpr (std::invocable<const F&, Row>)
      out[0] = static_cast<T>(function(row));
    else
      out[0] = static_cast<T>(function(row.index));
  };
  return detail::Generated<T, 0, decltype(one)>(rows, {}, one, at);
}

/// A column computed from the rows of another column: function(in, out) reads a std::span of the row of `column` and
/// writes the std::span<T> `out`; with a third parameter, a ts::data::Row, from which random augmentation derives its
/// key:
///
///     const auto noisy = ts::data::map<float>(images, {28, 28}, [=](auto in, auto out, ts::data::Row row) {
///       const ts::Key own = ts::fold_in(ts::fold_in(key, row.epoch), row.index);
///       ...
template <Element T, Column C, std::size_t RowRank, class F>
auto map(C column, const Extent (&row_shape)[RowRank], F function, Here at = Here::current()) {
  return detail::Mapped<C, T, static_cast<int>(RowRank), F>(std::move(column), tessera::detail::shape_from(row_shape),
                                                            std::move(function), at);
}
/// The same element by element, with rows of the same shape: `ts::data::map<float>(bytes, [](auto x) { return x /
/// 255.0f; })`.
template <Element T, Column C, class F>
  requires std::invocable<const F&, typename C::element>
auto map(C column, F function, Here at = Here::current()) {
  const auto each = [function = std::move(function)](std::span<const typename C::element> in, std::span<T> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(function(in[i]));
  };
  const Shape row_shape = column.row_shape();
  return detail::Mapped<C, T, C::row_rank, decltype(each)>(std::move(column), row_shape, each, at);
}

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
