#ifndef TESSERA_BASE_TEXT_OUTPUT_HPP
#define TESSERA_BASE_TEXT_OUTPUT_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <iosfwd>
#include <string>

#include <tessera/base/shape.hpp>

// Output of values that are no tensors. Only <iosfwd> is included, since code that has a stream includes <ostream>.

namespace tessera {

/// Prints x.text(): a Mesh, a PartitionSpec, an HloSharding, a BuildInfo, the line of a Source.
template <class T>
  requires requires(const T& x) {
    { x.text() } -> std::same_as<std::string>;
  }
std::ostream& operator<<(std::ostream& out, const T& x) {
  return out << x.text();
}

namespace detail {
template <std::same_as<Shape> S> std::string extents_text(const S& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d > 0 ? "," : "") + std::to_string(shape[d]);
  return text + "]";
}
}  // namespace detail

/// Prints a shape as "[2,3]".
template <std::same_as<Shape> S> std::ostream& operator<<(std::ostream& out, const S& shape) {
  return out << detail::extents_text(shape);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
