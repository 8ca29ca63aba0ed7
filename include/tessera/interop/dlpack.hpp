#ifndef TESSERA_INTEROP_DLPACK_HPP
#define TESSERA_INTEROP_DLPACK_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// The structs of DLPack, the protocol by which NumPy, PyTorch, JAX and others exchange arrays. They have the binary
/// layout of the structs of the same names in dlpack.h, so pointers to them can be cast to each other.
/// Source: https://dmlc.github.io/dlpack/latest/c_api.html, versions 0.8 and 1.
namespace dlpack {

struct DLDevice {
  std::int32_t device_type;  ///< 1: CPU
  std::int32_t device_id;
};
struct DLDataType {
  std::uint8_t code;  ///< 0: signed, 1: unsigned, 2: floating, 4: bfloat, 6: bool
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLPackVersion {
  std::uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
inline constexpr std::int32_t cpu = 1;
inline constexpr std::uint64_t flag_read_only = 1;

// The offsets that NumPy and PyTorch use on 64-bit machines.
static_assert(sizeof(void*) != 8 || (sizeof(DLTensor) == 48 && offsetof(DLTensor, dtype) == 20 &&
                                     offsetof(DLManagedTensorVersioned, dl_tensor) == 32));

/// The DLPack type of an element type.
constexpr DLDataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
      return {2, bits, 1};
    case DType::bf16:
      return {4, bits, 1};
    case DType::f8_e4m3:
      return {10, bits, 1};
    case DType::f8_e5m2:
      return {12, bits, 1};
    case DType::u8:
      return {1, bits, 1};
    case DType::bool_:
      return {6, bits, 1};
    default:
      return {0, bits, 1};
  }
}

}  // namespace dlpack

namespace detail {

/// Keeps the tensor, shape and strides of an exported array alive until its consumer calls the deleter.
template <class Managed> struct DlpackExport {
  Managed managed{};
  IntrusivePtr<RefCounted> owner;
  std::array<std::int64_t, max_rank> shape{}, strides{};

  static Managed* make(DType dtype, const Shape& extents, const void* data, IntrusivePtr<RefCounted> owner) {
    auto made = std::make_unique<DlpackExport>();
    const kernels::Strides steps = kernels::contiguous_strides(extents);
    for (std::size_t d = 0; d < extents.size(); ++d) {
      made->shape[d] = extents[d];
      made->strides[d] = steps[d];
    }
    made->owner = std::move(owner);
    made->managed.dl_tensor = {const_cast<void*>(data),
                               {dlpack::cpu, 0},
                               static_cast<std::int32_t>(extents.size()),
                               dlpack::type_of(dtype),
                               made->shape.data(),
                               made->strides.data(),
                               0};
    made->managed.manager_ctx = made.get();
    made->managed.deleter = [](Managed* self) { delete static_cast<DlpackExport*>(self->manager_ctx); };
    return &made.release()->managed;
  }
};

template <class Managed> struct DlpackRelease {
  void operator()(Managed* managed) const {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};

inline void require_array(const void* array, Here at) {
  if (array == nullptr) fail(errc::host_data, "[from_dlpack] array: the pointer is null", Source::from(at));
}

template <class T, int Rank>
ShardedTensor<T, Rank> shard_dlpack(const dlpack::DLTensor& array, const Mesh& mesh, const PartitionSpec& spec,
                                    Here at) {
  const dlpack::DLDataType wanted = dlpack::type_of(dtype_v<T>);
  if (array.device.device_type != dlpack::cpu)
    fail(errc::unsupported, "[from_dlpack] device: the array has DLPack device type ", array.device.device_type,
         ", but must be in CPU memory, type ", int{dlpack::cpu}, Source::from(at));
  if (array.dtype.code != wanted.code || array.dtype.bits != wanted.bits || array.dtype.lanes != 1)
    fail(errc::dtype_mismatch, "[from_dlpack] element type: DLPack type code ", int{array.dtype.code}, " with ",
         int{array.dtype.bits}, " bits and ", int{array.dtype.lanes}, " lanes is not ", name_of(dtype_v<T>),
         Source::from(at));
  if (array.ndim != Rank)
    fail(errc::rank_mismatch, "[from_dlpack] rank: an array of ", array.ndim, " dims for a tensor of rank ", Rank,
         Source::from(at));
  if (Rank > 0 && array.shape == nullptr)
    fail(errc::host_data, "[from_dlpack] shape: the pointer is null", Source::from(at));
  Shape shape;
  for (int d = 0; d < Rank; ++d) shape.push_back(array.shape[d]);
  check_shape("from_dlpack", dtype_v<T>, shape, Rank, at);
  if (array.data == nullptr && volume(shape) > 0)
    fail(errc::host_data, "[from_dlpack] data: the pointer is null for ", shape_text(dtype_v<T>, shape),
         Source::from(at));
  kernels::Strides strides = kernels::contiguous_strides(shape);
  for (int d = 0; d < Rank && array.strides != nullptr; ++d) strides[static_cast<std::size_t>(d)] = array.strides[d];
  const auto* data = static_cast<const std::byte*>(array.data) + array.byte_offset;
  return shard_strided<T, Rank>(reinterpret_cast<const T*>(data), shape, strides, mesh, spec, at);
}

}  // namespace detail

namespace detail {
/// The shard of a device. Errors: `processes` for a device of another process.
inline int shard_here(const TensorStorage& storage, int device) {
  const int shard = storage.grid().index_of(storage.mesh().coordinates_of(device));
  if (!storage.holds(shard))
    fail(errc::processes, "[to_dlpack] device ", device, ": its shard of ", sharded_type_text(storage),
         " is in process ", process_of(storage.mesh(), device), ", this is process ", process_index());
  return shard;
}
}  // namespace detail

/// Exports the shard of one device as a DLPack array, without a copy. It is marked read-only, since copies of the
/// tensor share its memory. The memory lives until the consumer calls the deleter. Errors: `mesh_devices` for a device
/// outside the mesh, `processes` for a device of another process.
template <class T, int Rank>
dlpack::DLManagedTensorVersioned* to_dlpack(const ShardedTensor<T, Rank>& x, int device = 0) {
  const TensorStorage& storage = storage_of(x);
  const int shard = detail::shard_here(storage, device);
  auto* const made = detail::DlpackExport<dlpack::DLManagedTensorVersioned>::make(
      dtype_v<T>, extents(storage.box(shard)), storage.data(shard), x.storage());
  made->version = {1, 0};
  made->flags = dlpack::flag_read_only;
  return made;
}

/// Exports a copy of the shard, for consumers of DLPack before version 1, which has no read-only flag.
template <class T, int Rank>
dlpack::DLManagedTensor* to_dlpack_unversioned(const ShardedTensor<T, Rank>& x, int device = 0) {
  const TensorStorage& storage = storage_of(x);
  const int shard = detail::shard_here(storage, device);
  const Shape shape = extents(storage.box(shard));
  const std::int64_t bytes = volume(shape) * static_cast<std::int64_t>(sizeof(T));
  const BufferPtr copy = Buffer::allocate(bytes);
  if (bytes > 0) std::memcpy(copy->data(), storage.data(shard), static_cast<std::size_t>(bytes));
  return detail::DlpackExport<dlpack::DLManagedTensor>::make(dtype_v<T>, shape, copy->data(),
                                                             IntrusivePtr<RefCounted>(copy.get()));
}

/// A sharded tensor with the elements of a DLPack array with any strides. Consumes the array: its deleter has been
/// called when the function returns or throws. Errors: `dtype_mismatch`, `rank_mismatch`, `host_data` for a null
/// pointer, `unsupported` for memory that is not on the CPU and for versions after 1; those of `resolve` for the spec.
///
///     auto x = ts::from_dlpack<float, 2>(capsule, mesh, {"data"});
template <Element T, int Rank>
ShardedTensor<T, Rank> from_dlpack(dlpack::DLManagedTensor* array, const Mesh& mesh, const PartitionSpec& spec = {},
                                   Here at = Here::current()) {
  const std::unique_ptr<dlpack::DLManagedTensor, detail::DlpackRelease<dlpack::DLManagedTensor>> owned(array);
  detail::require_array(array, at);
  return detail::shard_dlpack<T, Rank>(array->dl_tensor, mesh, spec, at);
}
template <Element T, int Rank>
ShardedTensor<T, Rank> from_dlpack(dlpack::DLManagedTensorVersioned* array, const Mesh& mesh,
                                   const PartitionSpec& spec = {}, Here at = Here::current()) {
  const std::unique_ptr<dlpack::DLManagedTensorVersioned, detail::DlpackRelease<dlpack::DLManagedTensorVersioned>>
      owned(array);
  detail::require_array(array, at);
  if (array->version.major != 1)
    fail(errc::unsupported, "[from_dlpack] version: DLPack version 1 is supported, but the array has version ",
         array->version.major, Source::from(at));
  return detail::shard_dlpack<T, Rank>(array->dl_tensor, mesh, spec, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
