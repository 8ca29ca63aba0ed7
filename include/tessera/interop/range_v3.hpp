#ifndef TESSERA_INTEROP_RANGE_V3_HPP
#define TESSERA_INTEROP_RANGE_V3_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

#include <range/v3/range/concepts.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/tensor/batches.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace ranges {
/// For `ts::local_shards(x) | ranges::views::filter(...)`: the range is cheap to copy, since it only holds the tensor.
template <class T, int Rank> inline constexpr bool enable_view<tessera::LocalShards<T, Rank>> = true;
}  // namespace ranges

namespace tessera {

/// A device id and the coordinates of the device in a mesh.
struct Device {
  int id = 0;
  Coordinates coordinates;
};

namespace detail {
inline int index_count(std::int64_t count, Here at) {
  if (count > INT32_MAX) fail(errc::capacity, "[batches] count: ", count, " is not below 2^31", Source::from(at));
  return static_cast<int>(count);
}
}  // namespace detail

/// range-v3 views, evaluated lazily.
namespace views {

/// The devices of a mesh, in the order of their ids.
inline auto devices(const Mesh& mesh) {
  return ranges::views::iota(0, static_cast<int>(mesh.size())) | ranges::views::transform([mesh](int id) {
           return Device{id, mesh.coordinates_of(id)};
         });
}

/// The local shards without replicas: of the devices that hold equal shards, only the one with the lowest id.
template <class T, int Rank> auto distinct_shards(const ShardedTensor<T, Rank>& x) {
  return LocalShards<T, Rank>(x) |
         ranges::views::filter([](const LocalShard<T, Rank>& shard) { return shard.replica_id == 0; });
}

/// The RowRange of each batch of `size` rows.
inline auto batches(std::int64_t rows, std::int64_t size, Ragged ragged = Ragged::error, Here at = Here::current()) {
  return ranges::views::iota(0, detail::index_count(batch_count(rows, size, ragged, at), at)) |
         ranges::views::transform([rows, size](int batch) { return batch_rows(rows, size, batch); });
}

/// The batches of a tensor along dim 0, each sharded by the tensor's spec.
template <class T, int Rank>
auto batches(const ShardedTensor<T, Rank>& x, std::int64_t size, Ragged ragged = Ragged::error,
             Here at = Here::current()) {
  return batches(shape(x)[0], size, ragged, at) |
         ranges::views::transform([x, at](RowRange range) { return rows_of(x, range, at); });
}

/// The batches of row-major values on the host; each is copied to its shards when it is read. The values must outlive
/// the view.
///
///     for (auto x : ts::views::batches(values, {rows, 64}, 32, mesh, {"data"}, ts::Ragged::drop)) ...
template <ranges::borrowed_range Values, std::size_t Rank>
auto batches(Values&& values, const Extent (&shape)[Rank], std::int64_t size, const Mesh& mesh,
             const PartitionSpec& spec = {}, Ragged ragged = Ragged::error, Here at = Here::current()) {
  using T = detail::host_element<std::remove_cvref_t<Values>>;
  static_assert(!std::is_same_v<std::remove_cvref_t<Values>, std::vector<bool>>,
                "tessera: std::vector<bool> is not contiguous in memory; use std::vector<unsigned char>");
  const Shape whole = detail::shape_from(shape);
  const std::span<const T> data(std::data(values), std::size(values));
  detail::check_shape("batches", dtype_v<T>, whole, static_cast<int>(Rank), at);
  if (static_cast<std::uint64_t>(volume(whole)) != data.size())
    fail(errc::host_data, "[batches] element count: ", data.size(), " values for ", shape_text(dtype_v<T>, whole),
         ", which has ", volume(whole), Source::from(at));
  return batches(whole[0], size, ragged, at) | ranges::views::transform([=](RowRange range) {
           Shape own = whole;
           own[0] = range.size();
           const std::int64_t row = whole[0] == 0 ? 0 : volume(whole) / whole[0];
           return shard<static_cast<int>(Rank)>(
               data.subspan(static_cast<std::size_t>(range.begin * row), static_cast<std::size_t>(range.size() * row)),
               own, mesh, spec, at);
         });
}

}  // namespace views
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
