#ifndef TESSERA_TENSOR_LOCAL_TENSOR_HPP
#define TESSERA_TENSOR_LOCAL_TENSOR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// The array of one device. Devices that hold replicas may share its memory.
template <Element T, int Rank> struct LocalArray {
  using element = T;
  static constexpr int rank = Rank;

  Shape shape;
  const T* data = nullptr;
  IntrusivePtr<RefCounted> owner;

  std::span<const T> values() const { return {data, static_cast<std::size_t>(volume(shape))}; }
};

/// A separate row-major array on each device of a mesh, for per-device code as in torch.distributed. All arrays have
/// one element type and rank; shapes may differ. Copies share memory, which is never written again.
template <Element T, int Rank> class LocalTensor {
 public:
  using element = T;
  static constexpr int rank = Rank;

  using Array = LocalArray<T, Rank>;

  LocalTensor() = default;
  /// Makes the local array of each device with make(device).
  template <class Make> LocalTensor(const Mesh& mesh, Make&& make) : mesh_(mesh) {
    arrays_.reserve(static_cast<std::size_t>(mesh.size()));
    for (int device = 0; device < mesh.size(); ++device) arrays_.push_back(make(device));
  }

  const Mesh& mesh() const { return mesh_; }
  int size() const { return static_cast<int>(arrays_.size()); }
  /// Errors: `empty_tensor` for a default-constructed LocalTensor, `mesh_devices` for a device outside the mesh.
  const Array& operator[](int device) const {
    if (device < 0 || device >= size()) fail_device(device);
    return arrays_[static_cast<std::size_t>(device)];
  }
  const Shape& shape(int device) const { return (*this)[device].shape; }
  std::span<const T> values(int device) const { return (*this)[device].values(); }

  /// An uninitialized local array; the caller fills it through the pointer before it shares the array.
  static std::pair<Array, T*> allocate(const Shape& shape) {
    const auto buffer = Buffer::allocate(volume(shape) * static_cast<std::int64_t>(sizeof(T)));
    T* const data = buffer->template as<T>();
    return {Array{shape, data, IntrusivePtr<RefCounted>(buffer.get())}, data};
  }
  static Array array(const Shape& shape, std::span<const T> values) {
    auto [made, data] = allocate(shape);
    if (static_cast<std::int64_t>(values.size()) != volume(shape))
      fail(errc::host_data, "[local] element count: ", values.size(), " values for ", shape_text(dtype_v<T>, shape));
    for (const T& value : values) *data++ = value;
    return made;
  }

 private:
  [[noreturn]] void fail_device(int device) const {
    if (arrays_.empty())
      fail(errc::empty_tensor, "[local] empty tensor: the local tensor of ", name_of(dtype_v<T>), " and rank ", Rank,
           " was never assigned, or was moved from");
    fail(errc::mesh_devices, "[local] device id: no device of ", mesh_.text(), " has id ", device);
  }

  Mesh mesh_{};
  std::vector<Array> arrays_;
};

/// The shard of each device as its local array, without a copy. Errors: `processes` if other processes hold some of the
/// shards.
template <class T, int Rank> LocalTensor<T, Rank> local_tensor(const ShardedTensor<T, Rank>& x) {
  const TensorStorage& storage = storage_of(x);
  if (!storage.layout()->is_whole())
    fail(errc::processes, "[local_tensor] shards: ", sharded_type_text(storage), " is divided among ", process_count(),
         " processes, and an array of each device is needed; ts::reshard(x, mesh, {}) gives each process the whole "
         "tensor");
  const ShardGrid grid = storage.grid();
  return LocalTensor<T, Rank>(storage.mesh(), [&](int device) {
    const int shard = grid.index_of(storage.mesh().coordinates_of(device));
    return typename LocalTensor<T, Rank>::Array{extents(storage.box(shard)), static_cast<const T*>(storage.data(shard)),
                                                x.storage()};
  });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
