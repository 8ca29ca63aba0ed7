#ifndef TESSERA_TENSOR_STORAGE_ALLOCATE_HPP
#define TESSERA_TENSOR_STORAGE_ALLOCATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/extent.hpp>

namespace tessera {

namespace detail {

template <std::size_t Rank> constexpr Shape shape_from(const Extent (&list)[Rank]) {
  static_assert(Rank <= static_cast<std::size_t>(max_rank), "tessera: a tensor has at most 8 dims");
  Shape shape;
  for (const Extent& extent : list) shape.push_back(extent.value);
  return shape;
}

TESSERA_ONCE void check_shape(std::string_view op, DType dtype, const Shape& shape, int rank, Here at);
/// tessera::resolve, with errors that name the operation and the user's source line.
TESSERA_ONCE Sharding resolve_at(std::string_view op, const PartitionSpec& spec, const Mesh& mesh, int rank, Here at);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void check_shape(std::string_view op, DType dtype, const Shape& shape, int rank, Here at) {
  if (static_cast<int>(shape.size()) != rank)
    fail(errc::rank_mismatch, "[", op, "] rank: ", shape_text(dtype, shape), " for a tensor of rank ", rank,
         Source::from(at));
  for (std::int64_t extent : shape)
    if (extent < 0)
      fail(errc::shape_mismatch, "[", op, "] negative extent: ", shape_text(dtype, shape), Source::from(at));
  if (elements_of(shape) < 0)
    fail(errc::capacity, "[", op, "] number of elements: ", shape_text(dtype, shape),
         " has more than 2^52 elements, without extents of 0", Source::from(at));
}
TESSERA_ONCE Sharding resolve_at(std::string_view op, const PartitionSpec& spec, const Mesh& mesh, int rank, Here at) {
  try {
    return resolve(spec, mesh, rank);
  } catch (const error& e) {
    fail(e.id(), e.what(), ", in ", op, Source::from(at));
  }
}
#endif

/// Allocates a tensor and leaves its elements uninitialized; with a `write` leaves allocation and elements for later.
/// Errors: `capacity` when memory runs out; those of check_shape and resolve_at.
TESSERA_ONCE StoragePtr allocate(std::string_view op, DType dtype, const Shape& shape, int rank, const Mesh& mesh,
                                 const PartitionSpec& spec, Here at, const TensorStorage::Write& write = {});
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE StoragePtr allocate(std::string_view op, DType dtype, const Shape& shape, int rank, const Mesh& mesh,
                                 const PartitionSpec& spec, Here at, const TensorStorage::Write& write) {
  check_shape(op, dtype, shape, rank, at);
  const Sharding sharding = resolve_at(op, spec, mesh, rank, at);
  try {
    if (write) return StoragePtr(new TensorStorage(TensorLayout::of(mesh, dtype, shape, sharding), write));
    return StoragePtr(new TensorStorage(mesh, dtype, shape, sharding));
  } catch (const error& e) {
    fail(e.id(), e.what(), ", in ", op, " of ", shape_text(dtype, shape), Source::from(at));
  }
}
#endif

/// A contiguous range of elements of one shard, and the box of tensor indices of these elements.
struct Slab {
  int shard;
  std::int64_t offset;  // in elements
  Box box;
};

/// Cuts a slab into slabs of at most `most` elements each.
inline void cut_slabs(const Slab& slab, std::int64_t most, Growable<Slab>& out) {
  const std::int64_t elements = volume(extents(slab.box));
  if (elements == 0) return;
  if (elements <= most) return out.push_back(slab);
  // A slab that is cut in halves along its outermost dim of extent above 1 gives two contiguous slabs.
  std::size_t dim = 0;
  while (slab.box.end[dim] - slab.box.begin[dim] == 1) ++dim;
  Slab low = slab, high = slab;
  low.box.end[dim] = high.box.begin[dim] = (slab.box.begin[dim] + slab.box.end[dim]) / 2;
  high.offset += volume(extents(low.box));
  cut_slabs(low, most, out);
  cut_slabs(high, most, out);
}

/// Calls write(pointer to the first element, box) for slabs that together cover all shards, in parallel.
template <class T, class Write> void for_each_slab(TensorStorage& storage, Cost each_element, Write write) {
  constexpr std::int64_t most = std::int64_t{1} << 15;
  Growable<Slab> slabs;
  std::int64_t elements = 0;
  for (int shard = 0; shard < storage.shard_count(); ++shard) {
    if (!storage.holds(shard)) continue;
    cut_slabs({shard, 0, storage.box(shard)}, most, slabs);
    elements += volume(extents(storage.box(shard)));
  }
  if (slabs.empty()) return;
  const auto count = static_cast<std::int64_t>(slabs.size());
  const double each_slab = each_element.nanoseconds * static_cast<double>(elements) / static_cast<double>(count);
  parallel_for(count, Cost{each_slab}, [&](std::int64_t i) {
    const Slab& slab = slabs[static_cast<std::size_t>(i)];
    write(static_cast<T*>(storage.data(slab.shard)) + slab.offset, slab.box);
  });
}

/// Whether creation functions of this thread leave elements for later: inside of ts::deferred_init.
inline bool& deferring() {
  thread_local bool now = false;
  return now;
}

/// A tensor whose elements `write(pointer to the first element, box)` gives, box by box, now or when they are first
/// read.
template <class T, class Write>
StoragePtr created(std::string_view op, const Shape& shape, int rank, const Mesh& mesh, const PartitionSpec& spec,
                   Here at, Cost each_element, const Write& write) {
  const auto write_all = [each_element, write](TensorStorage& to) { for_each_slab<T>(to, each_element, write); };
  if (deferring()) return allocate(op, dtype_v<T>, shape, rank, mesh, spec, at, write_all);
  const StoragePtr storage = allocate(op, dtype_v<T>, shape, rank, mesh, spec, at);
  write_all(*storage);
  return storage;
}

}  // namespace detail
}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
