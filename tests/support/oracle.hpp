#ifndef TESSERA_TESTS_SUPPORT_ORACLE_HPP
#define TESSERA_TESTS_SUPPORT_ORACLE_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "scalar_ops.hpp"

#include <tessera/graph/ir/program.hpp>

/// A dense interpreter of traced programs, in double, by plain loops over every index. It defines what a program means,
/// and shares only the graph with the library: no rows, no kernels, no plans.
namespace oracle {

using tessera::GraphView;
using tessera::Node;
using tessera::Op;
using tessera::ProgramView;
using tessera::Shape;

struct Array {
  Shape shape;
  std::vector<double> data;

  Array() = default;
  explicit Array(const Shape& s, double fill = 0)
      : shape(s), data(static_cast<std::size_t>(tessera::volume(s)), fill) {}
  Array(const Shape& s, std::vector<double> values) : shape(s), data(std::move(values)) {
    if (data.size() != static_cast<std::size_t>(tessera::volume(s)))
      throw std::logic_error("oracle: data does not fit its shape");
  }
  static Array number(double value) { return Array({}, value); }

  std::size_t offset(const Shape& index) const {
    std::size_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (index[d] < 0 || index[d] >= shape[d]) throw std::logic_error("oracle: index outside of its array");
      at = at * static_cast<std::size_t>(shape[d]) + static_cast<std::size_t>(index[d]);
    }
    return at;
  }
  double& at(const Shape& index) { return data[offset(index)]; }
  double at(const Shape& index) const { return data[offset(index)]; }
};

/// The largest magnitude of the finite elements, at least `least`.
inline double largest(const Array& value, double least) {
  for (const double v : value.data)
    if (std::isfinite(v)) least = std::max(least, std::fabs(v));
  return least;
}

/// Calls f(index) for every index of a shape, in row-major order.
inline void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& f) {
  Shape index(shape.size(), 0);
  for (std::int64_t n = tessera::volume(shape); n > 0; --n) {
    f(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

/// The current layer of each repeat around a node, the outermost first.
using Layers = std::vector<int>;
/// The random value at a global row-major index: draw(node, key, layers, index).
using Draw = std::function<double(const Node&, double, const Layers&, std::int64_t)>;

/// A replacement for random numbers that depends only on its arguments, in (0, 1).
inline double fixed_draw(const Node& node, double key, const Layers& layers, std::int64_t index) {
  std::uint64_t h = static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15u +
                    static_cast<std::uint64_t>(key) * 0xBF58476D1CE4E5B9u + static_cast<std::uint64_t>(node.value);
  for (const int layer : layers) h = (h ^ (h >> 31)) + static_cast<std::uint64_t>(layer + 1) * 0x94D049BB133111EBu;
  for (int round = 0; round < 3; ++round) h = (h ^ (h >> 29)) * 0xD6E8FEB86659FD93u;
  return (static_cast<double>(h >> 11) + 0.5) * 0x1p-53;
}

/// Called on each value after it is computed, to simulate rounding. The last argument has for each element the sum of
/// the magnitudes of its terms.
using Disturb = std::function<void(const Node&, Array&, const Array&)>;

/// Runs a program. Arguments are in the order of its leaves; a Dim or a Scalar is an array of rank 0.
std::vector<Array> run(const ProgramView& program, const std::vector<Array>& arguments, Draw draw = fixed_draw,
                       Disturb disturb = {});

}  // namespace oracle

#endif
