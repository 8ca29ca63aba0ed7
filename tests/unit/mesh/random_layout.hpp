#ifndef TESSERA_TESTS_UNIT_MESH_RANDOM_LAYOUT_HPP
#define TESSERA_TESTS_UNIT_MESH_RANDOM_LAYOUT_HPP

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera_test {

/// Up to four axes of up to three or four devices, half of the time in a shuffled order.
inline tessera::Mesh random_mesh(std::mt19937& random) {
  const char* names[] = {"w", "x", "y", "z"};
  tessera::AxisTable axes;
  const std::size_t rank = random() % 5;
  std::int64_t size = 1;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const int extent = 1 + static_cast<int>(random() % (size > 8 ? 2 : 4));
    axes.push_back({names[axis], extent});
    size *= extent;
  }
  std::vector<std::int32_t> order;
  if (random() % 2) {
    for (int device = 0; device < size; ++device) order.push_back(device);
    std::shuffle(order.begin(), order.end(), random);
  }
  return tessera::Mesh(axes, tessera::DeviceOrder(order.data(), order.size()));
}

/// Gives each axis to a random dim, to no dim, or leaves it unreduced.
inline tessera::Sharding random_sharding(std::mt19937& random, const tessera::Mesh& mesh, int rank,
                                         bool with_unreduced) {
  tessera::Sharding sharding = tessera::replicated(rank);
  std::vector<std::uint8_t> axes;
  for (int axis = 0; axis < mesh.rank(); ++axis) axes.push_back(static_cast<std::uint8_t>(axis));
  std::shuffle(axes.begin(), axes.end(), random);
  for (std::uint8_t axis : axes) {
    const int place = static_cast<int>(random() % static_cast<unsigned>(rank + 2));
    if (place < rank) sharding.dims[place].push_back(axis);
    if (place == rank && with_unreduced) sharding.unreduced |= static_cast<std::uint16_t>(1u << axis);
  }
  return sharding;
}

}  // namespace tessera_test

#endif
