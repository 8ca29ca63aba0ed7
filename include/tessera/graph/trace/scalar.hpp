#ifndef TESSERA_GRAPH_TRACE_SCALAR_HPP
#define TESSERA_GRAPH_TRACE_SCALAR_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/value.hpp>

namespace tessera {

/// A value that is known only when a program runs, such as a learning rate. A call with another value runs the same
/// plan.
class Scalar {
 public:
  constexpr Scalar() = default;
  constexpr Scalar(double value) : value_(value) {}
  /// From an integer, which stays exact where integers are used: keys of random numbers.
  template <class T>
    requires(std::is_integral_v<T>)
  constexpr Scalar(T value) : value_(value) {}
  constexpr explicit Scalar(const HostNumber& value) : value_(value) {}
  constexpr explicit Scalar(Value placeholder) : placeholder_(placeholder) {}

  constexpr double value() const { return value_.real(); }
  constexpr const HostNumber& number() const { return value_; }
  constexpr const Value& placeholder() const { return placeholder_; }
  constexpr bool traced() const { return placeholder_.module != nullptr; }

 private:
  HostNumber value_{};
  Value placeholder_{};
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
