#ifndef TESSERA_TENSOR_STORAGE_STORAGE_OF_HPP
#define TESSERA_TENSOR_STORAGE_STORAGE_OF_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/storage/require_data.hpp>

namespace tessera {

namespace detail {
[[noreturn]] TESSERA_ONCE void fail_without_data(DType dtype, int rank, bool traced);
/// The checks of tensor_of.
TESSERA_ONCE void check_tensor_of(const StoragePtr& storage, DType dtype, int rank);
#if TESSERA_HAS_DEFINITIONS
[[noreturn]] TESSERA_ONCE void fail_without_data(DType dtype, int rank, bool traced) {
  fail(errc::empty_tensor, "[tensor] empty tensor: a tensor of ", name_of(dtype), " and rank ", rank,
       traced ? " has no values while a function is traced" : " was never assigned, or was moved from");
}
TESSERA_ONCE void check_tensor_of(const StoragePtr& storage, DType dtype, int rank) {
  if (!storage) fail_without_data(dtype, rank, false);
  if (storage->dtype() != dtype)
    fail(errc::dtype_mismatch, "[tensor_of] element type: ", shape_text(storage->dtype(), storage->shape()),
         " is not a tensor of ", name_of(dtype));
  if (storage->shape().size() != static_cast<std::size_t>(rank))
    fail(errc::rank_mismatch, "[tensor_of] rank: ", shape_text(storage->dtype(), storage->shape()),
         " is not a tensor of rank ", rank);
  if (storage->sharding().unreduced != 0)
    fail(errc::unsupported, "[tensor_of] partial value: a tensor can't have the partial sharding ",
         text(storage->sharding(), storage->mesh()));
}
#endif
}  // namespace detail

/// The storage of a tensor. Errors: `empty_tensor` for a tensor without data, such as any tensor inside a trace.
template <class T, int Rank> const TensorStorage& storage_of(const ShardedTensor<T, Rank>& x) {
  if (!x.storage()) detail::fail_without_data(dtype_v<T>, Rank, x.traced());
  return static_cast<const TensorStorage&>(*x.storage());
}

namespace detail {
/// The storage of a tensor with which a function of this name is called. Errors: as storage_of; they name the function
/// and the line.
template <class T, int Rank>
const TensorStorage& storage_of(std::string_view function, const ShardedTensor<T, Rank>& x, Here at) {
  if (!x.storage() && !x.traced()) require_data(function, x, at);
  return tessera::storage_of(x);
}
}  // namespace detail

/// A tensor that shares the storage. Partial values exist only inside programs, so a partial storage is an error.
/// Errors: `empty_tensor` for null, `dtype_mismatch`, `rank_mismatch`, `unsupported` for partial values.
template <class T, int Rank> ShardedTensor<T, Rank> tensor_of(const StoragePtr& storage) {
  detail::check_tensor_of(storage, dtype_v<T>, Rank);
  return ShardedTensor<T, Rank>(IntrusivePtr<RefCounted>(storage.get()));
}

/// Global extents, outermost first.
template <class T, int Rank> constexpr const Shape& shape(const ShardedTensor<T, Rank>& x) {
  if (x.traced())
    fail(errc::empty_tensor, "[shape] inside a traced function: shapes are not known there; use the ts::Dim "
                             "ts::extent<0>(x) in place of ts::shape(x)[0]");
  return storage_of(x).shape();
}
template <TensorOperand X>
  requires(!StoredOperand<X>)
constexpr auto shape(const X&) {
  static_assert(
      std::is_void_v<X>,
      "tessera: shapes are not known while a function is traced; use the ts::Dim ts::extent<0>(x) in place of "
      "ts::shape(x)[0]; outside of a traced function, ts::eval(x) computes an expression, and has a shape");
  return Shape();
}
template <class T, int Rank> const Sharding& sharding(const ShardedTensor<T, Rank>& x) {
  return storage_of(x).sharding();
}
template <class T, int Rank> const Mesh& mesh(const ShardedTensor<T, Rank>& x) { return storage_of(x).mesh(); }
/// Number of elements.
template <class T, int Rank> std::int64_t size(const ShardedTensor<T, Rank>& x) {
  return volume(storage_of(x).shape());
}

/// "f32[128,256]{data,-}": a tensor's element type, shape and sharding, as in error messages.
TESSERA_ONCE std::string sharded_type_text(const TensorStorage& storage);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE std::string sharded_type_text(const TensorStorage& storage) {
  return shape_text(storage.dtype(), storage.shape()) + text(storage.sharding(), storage.mesh());
}
#endif
template <class T, int Rank> std::string sharded_type_text(const ShardedTensor<T, Rank>& x) {
  return sharded_type_text(storage_of(x));
}

/// Bytes of the shard of one device. Errors: `mesh_devices` for a device outside the mesh.
template <class T, int Rank> std::int64_t device_bytes(const ShardedTensor<T, Rank>& x, int device) {
  const TensorStorage& storage = storage_of(x);
  const Box& box = storage.box(storage.grid().index_of(storage.mesh().coordinates_of(device)));
  return volume(extents(box)) * static_cast<std::int64_t>(sizeof(T));
}

/// Bytes of a tensor in this process: each distinct shard counts once, however many devices have a replica.
template <class T, int Rank> std::int64_t stored_bytes(const ShardedTensor<T, Rank>& x) {
  const TensorStorage& storage = storage_of(x);
  std::int64_t bytes = 0;
  for (int shard = 0; shard < storage.shard_count(); ++shard)
    if (storage.holds(shard)) bytes += volume(extents(storage.box(shard)));
  return bytes * static_cast<std::int64_t>(sizeof(T));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
