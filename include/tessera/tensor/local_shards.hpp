#ifndef TESSERA_TENSOR_LOCAL_SHARDS_HPP
#define TESSERA_TENSOR_LOCAL_SHARDS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// The shard of one device. Devices with replicas of a shard share its memory.
template <class T, int Rank> struct LocalShard {
  using element = T;
  static constexpr int rank = Rank;

  int device = 0;
  int replica_id = 0;       ///< numbers the devices that have the same box from 0, in the order of their ids
  Box box;                  ///< the indices of the whole tensor that this shard holds
  std::span<const T> data;  ///< row-major; valid while any tensor that shares this memory exists
};

/// The shards of a tensor on the devices of this process, ordered by device id: a random-access range of LocalShard
/// that keeps the tensor alive.
template <class T, int Rank> class LocalShards {
 public:
  using value_type = LocalShard<T, Rank>;

  class iterator {
   public:
    using iterator_concept = std::random_access_iterator_tag;
    using iterator_category = std::input_iterator_tag;  // operator* returns a value, not a reference
    using value_type = LocalShard<T, Rank>;
    using difference_type = std::ptrdiff_t;
    using reference = value_type;
    using pointer = void;

    iterator() = default;
    iterator(const TensorStorage* storage, std::shared_ptr<const std::vector<int>> replica_ids, difference_type device)
        : storage_(storage), replica_ids_(std::move(replica_ids)), device_(device) {}

    value_type operator*() const { return LocalShards::at(*storage_, replica_ids_.get(), static_cast<int>(device_)); }
    value_type operator[](difference_type n) const { return *(*this + n); }
    iterator& operator++() { return *this += 1; }
    iterator& operator--() { return *this -= 1; }
    iterator operator++(int) { return std::exchange(*this, *this + 1); }
    iterator operator--(int) { return std::exchange(*this, *this - 1); }
    iterator& operator+=(difference_type n) {
      device_ += n;
      return *this;
    }
    iterator& operator-=(difference_type n) { return *this += -n; }
    friend iterator operator+(iterator i, difference_type n) { return i += n; }
    friend iterator operator+(difference_type n, iterator i) { return i += n; }
    friend iterator operator-(iterator i, difference_type n) { return i -= n; }
    friend difference_type operator-(const iterator& a, const iterator& b) { return a.device_ - b.device_; }
    friend bool operator==(const iterator& a, const iterator& b) { return a.device_ == b.device_; }
    friend auto operator<=>(const iterator& a, const iterator& b) { return a.device_ <=> b.device_; }

   private:
    const TensorStorage* storage_ = nullptr;
    std::shared_ptr<const std::vector<int>> replica_ids_;
    difference_type device_ = 0;
  };

  LocalShards() = default;
  explicit LocalShards(ShardedTensor<T, Rank> x) : tensor_(std::move(x)), storage_(&storage_of(tensor_)) {
    devices_ = devices_here(storage_->mesh());
    if (!storage_->mesh().order().empty())
      replica_ids_ = std::make_shared<const std::vector<int>>(replica_ids(storage_->mesh(), storage_->grid()));
  }

  iterator begin() const { return {storage_, replica_ids_, devices_.first}; }
  iterator end() const { return {storage_, replica_ids_, devices_.end}; }
  std::size_t size() const { return static_cast<std::size_t>(devices_.end - devices_.first); }
  value_type operator[](std::size_t i) const {
    return at(*storage_, replica_ids_.get(), devices_.first + static_cast<int>(i));
  }

 private:
  static value_type at(const TensorStorage& storage, const std::vector<int>* replica_ids, int device) {
    const Coordinates place = storage.mesh().coordinates_of(device);
    const int shard = storage.grid().index_of(place);
    const Box& box = storage.box(shard);
    const auto* data = static_cast<const T*>(storage.data(shard));
    return {device,
            replica_ids ? (*replica_ids)[static_cast<std::size_t>(device)] : storage.grid().replica_of(place),
            box,
            {data, static_cast<std::size_t>(volume(extents(box)))}};
  }

  /// The replica_id of every device, for a mesh with a device order of its own: there, one id takes as long to compute
  /// as all of them.
  static std::vector<int> replica_ids(const Mesh& mesh, const ShardGrid& grid) {
    std::vector<int> ids, held(static_cast<std::size_t>(grid.count()), 0);
    for (int device = 0; device < mesh.size(); ++device)
      ids.push_back(held[static_cast<std::size_t>(grid.index_of(mesh.coordinates_of(device)))]++);
    return ids;
  }

  ShardedTensor<T, Rank> tensor_;
  const TensorStorage* storage_ = nullptr;
  DeviceRange devices_;
  std::shared_ptr<const std::vector<int>> replica_ids_;  // null for a mesh without a device order of its own
};

/// The shard of each device of this process, as addressable_shards of JAX: for (const auto& shard :
/// ts::local_shards(x)) ...
template <class T, int Rank> LocalShards<T, Rank> local_shards(const ShardedTensor<T, Rank>& x) {
  return LocalShards<T, Rank>(x);
}

/// "[0:4,2:6]".
inline std::string text(const Box& box) {
  std::string out = "[";
  for (std::size_t dim = 0; dim < box.begin.size(); ++dim)
    out += concat_text(dim ? "," : "", box.begin[dim], ":", box.end[dim]);
  return out + "]";
}

namespace detail {

/// The shards sorted by device. Checks that each device of this process has exactly one and that its box and size are
/// right.
template <class T, int Rank>
std::vector<LocalShard<T, Rank>> sort_shards(std::vector<LocalShard<T, Rank>> given, const TensorStorage& storage,
                                             const Source& where) {
  const auto devices = static_cast<std::size_t>(storage.mesh().size());
  std::vector<LocalShard<T, Rank>> sorted(devices);
  std::vector<char> seen(devices, 0);
  for (const LocalShard<T, Rank>& shard : given) {
    const auto device = static_cast<std::size_t>(shard.device);
    if (shard.device < 0 || device >= devices)
      fail(errc::host_data, "[from_local_shards] device id: no device of ", storage.mesh().text(), " has id ",
           shard.device, where);
    if (const int process = process_of(storage.mesh(), shard.device); process != process_index())
      fail(errc::processes, "[from_local_shards] device id: device ", shard.device, " is one of process ", process,
           ", this is process ", process_index(), where);
    if (seen[device])
      fail(errc::host_data, "[from_local_shards] number of shards: two shards for device ", shard.device, where);
    seen[device] = 1;
    const Box& box = storage.box(storage.grid().index_of(storage.mesh().coordinates_of(shard.device)));
    const bool left_out = shard.box.begin.empty() && shard.box.end.empty();
    if (!left_out && !(shard.box == box))
      fail(errc::host_data, "[from_local_shards] box of device ", shard.device, ": ", text(shard.box), " given, ",
           text(box), " expected for ", sharded_type_text(storage), where);
    if (static_cast<std::int64_t>(shard.data.size()) != volume(extents(box)))
      fail(errc::host_data, "[from_local_shards] element count of device ", shard.device, ": ", shard.data.size(),
           " values for ", text(box), ", which has ", volume(extents(box)), ", of ", sharded_type_text(storage), where);
    sorted[device] = shard;
  }
  for (std::size_t device = 0; device < devices; ++device)
    if (!seen[device] && process_of(storage.mesh(), static_cast<int>(device)) == process_index())
      fail(errc::host_data, "[from_local_shards] number of shards: no shard for device ", device, where);
  return sorted;
}

}  // namespace detail

/// A tensor made of one shard per device of this process, in any order: the inverse of local_shards. The box of a shard
/// may be left out; otherwise it is checked. Replicas must be bitwise equal, and are stored once. Errors: `host_data`
/// for a device without a shard or with two, a wrong size or box, and unequal replicas.
template <class Shards>
auto from_local_shards(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape, const Shards& shards,
                       Here at = Here::current()) {
  using Shard = std::remove_cvref_t<decltype(*std::begin(shards))>;
  using T = typename Shard::element;
  const Source where = Source::from(at);
  const StoragePtr storage = detail::allocate("from_local_shards", dtype_v<T>, shape, Shard::rank, mesh, spec, at);
  const auto sorted = detail::sort_shards(std::vector<Shard>(std::begin(shards), std::end(shards)), *storage, where);

  const ShardGrid grid = storage->grid();
  std::vector<int> first(static_cast<std::size_t>(grid.count()), -1);  // the device from which each shard is copied
  std::vector<int> shard_of;
  std::int64_t elements = 0;
  for (int device = 0; device < mesh.size(); ++device) {
    const int shard = grid.index_of(mesh.coordinates_of(device));
    shard_of.push_back(shard);
    if (process_of(mesh, device) != process_index()) continue;
    if (int& source = first[static_cast<std::size_t>(shard)]; source < 0) source = device;
    elements += static_cast<std::int64_t>(sorted[static_cast<std::size_t>(device)].data.size());
  }
  const Cost each = Cost::bytes(2.0 * static_cast<double>(sizeof(T)) * static_cast<double>(elements) /
                                static_cast<double>(mesh.size()));
  parallel_for(mesh.size(), each, [&](std::int64_t i) {
    const auto device = static_cast<std::size_t>(i);
    const auto& data = sorted[device].data;
    const int source = first[static_cast<std::size_t>(shard_of[device])];
    if (data.empty()) return;
    if (source == static_cast<int>(device))
      std::memcpy(storage->data(shard_of[device]), data.data(), data.size_bytes());
    else if (const auto& other = sorted[static_cast<std::size_t>(source)].data;
             other.data() != data.data() && std::memcmp(other.data(), data.data(), data.size_bytes()) != 0)
      fail(errc::host_data, "[from_local_shards] equal replicas: devices ", source, " and ", i, " differ in ",
           text(storage->box(shard_of[device])), " of ", sharded_type_text(*storage), where);
  });
  return tensor_of<T, Shard::rank>(storage);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
