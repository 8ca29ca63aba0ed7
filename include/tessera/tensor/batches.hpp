#ifndef TESSERA_TENSOR_BATCHES_HPP
#define TESSERA_TENSOR_BATCHES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/shard_refs.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// What to do with a last batch that has fewer rows, such as 4 rows after two batches of 8.
enum class Ragged : std::uint8_t {
  error,  ///< throw errc::not_divisible before the first batch
  drop,   ///< leave its rows out, as drop_last=True of a PyTorch DataLoader
  keep,   ///< return it last, with fewer rows
};

/// Rows of dim 0: begin <= row < end.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t size() const { return end - begin; }
  friend constexpr bool operator==(const RowRange&, const RowRange&) = default;
};

/// Number of batches of `size` rows. Errors: `option` for a size below 1, `not_divisible` under Ragged::error.
inline std::int64_t batch_count(std::int64_t rows, std::int64_t size, Ragged ragged, Here at = Here::current()) {
  if (size < 1) fail(errc::option, "[batches] batch size: ", size, " is below 1", Source::from(at));
  if (ragged == Ragged::error && rows % size != 0)
    fail(errc::not_divisible, "[batches] incomplete batch: ", rows, " rows are not divisible by the batch size ", size,
         "; pass Ragged::drop or Ragged::keep", Source::from(at));
  return rows / size + (ragged == Ragged::keep && rows % size != 0);
}

constexpr RowRange batch_rows(std::int64_t rows, std::int64_t size, std::int64_t batch) {
  return {batch * size, batch < rows / size ? (batch + 1) * size : rows};
}

namespace detail {
/// tessera::rows_of, without the element type.
TESSERA_ONCE StoragePtr rows_of(const TensorStorage& storage, RowRange range, Here at);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE StoragePtr rows_of(const TensorStorage& storage, RowRange range, Here at) {
  if (range.begin < 0 || range.end < range.begin || range.end > storage.shape()[0])
    fail(errc::dim_range, "[rows_of] row range: rows ", range.begin, " to ", range.end, " of ",
         sharded_type_text(storage), Source::from(at));

  Shape shape = storage.shape();
  shape[0] = range.size();
  const StoragePtr out(new TensorStorage(storage.mesh(), storage.dtype(), shape, storage.sharding()));
  const AxisCuts& cuts = storage.sharding().cuts;
  Growable<runtime::ShardRef> sources = shard_refs(storage, cuts);
  for (runtime::ShardRef& source : sources) {
    // Row range.begin becomes row 0 of the result; the copy skips rows that no box of the result contains.
    source.box.begin[0] -= range.begin;
    source.box.end[0] -= range.begin;
  }
  runtime::reshard(storage.dtype(), Reduction::sum, shard_refs(*out, cuts), sources);
  return out;
}
#endif
}  // namespace detail

/// The rows of a range, as a tensor with the same sharding. Errors: `dim_range` for rows outside the tensor.
/// Communication: rows that are on different devices in x and in the result.
template <class T, int Rank>
ShardedTensor<T, Rank> rows_of(const ShardedTensor<T, Rank>& x, RowRange range, Here at = Here::current()) {
  static_assert(Rank >= 1, "tessera: a scalar has no rows");
  return tensor_of<T, Rank>(detail::rows_of(detail::storage_of("rows_of", x, at), range, at));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
