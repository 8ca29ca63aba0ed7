#ifndef TESSERA_TESTS_UNIT_TENSOR_RANDOM_TENSOR_HPP
#define TESSERA_TESTS_UNIT_TENSOR_RANDOM_TENSOR_HPP

#include <cstdint>
#include <random>

#include "../mesh/random_layout.hpp"

#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera_test {

struct SpecLayout {
  tessera::Mesh mesh;
  tessera::Shape shape;
  tessera::PartitionSpec spec;
};

/// Small extents, mostly uneven over the shards, sometimes zero.
inline tessera::Shape random_shape(std::mt19937& random, int rank) {
  tessera::Shape shape;
  for (int dim = 0; dim < rank; ++dim) shape.push_back(static_cast<std::int64_t>(random() % 11 ? 1 + random() % 9 : 0));
  return shape;
}

inline SpecLayout random_spec_layout(std::mt19937& random, int rank) {
  SpecLayout layout{random_mesh(random), random_shape(random, rank), {}};
  layout.spec = tessera::spec_of(random_sharding(random, layout.mesh, rank, false), layout.mesh);
  return layout;
}

inline std::int64_t row_major(const tessera::Shape& shape, const tessera::Shape& index) {
  std::int64_t place = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) place = place * shape[dim] + index[dim];
  return place;
}

/// Calls f(index) for every index of a box, row-major.
template <class F> void for_each_index(const tessera::Box& box, F&& f) {
  if (box.empty()) return;
  tessera::Shape index = box.begin;
  for (;;) {
    f(static_cast<const tessera::Shape&>(index));
    std::size_t dim = index.size();
    while (dim > 0 && ++index[dim - 1] == box.end[dim - 1]) {
      --dim;
      index[dim] = box.begin[dim];
    }
    if (dim == 0) return;
  }
}

}  // namespace tessera_test

#endif
