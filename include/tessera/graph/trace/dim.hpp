#ifndef TESSERA_GRAPH_TRACE_DIM_HPP
#define TESSERA_GRAPH_TRACE_DIM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/value.hpp>

namespace tessera {

/// An integer that is known when a program is planned, such as a number of heads: a field of a model, or the extent of
/// a dim inside a traced function. A call with another value makes a new plan.
class Dim {
 public:
  constexpr Dim() = default;
  /// No size is made from a floating-point number: `rows * 0.5` is a Scalar.
  template <class T>
    requires(std::is_integral_v<T>)
  constexpr Dim(T value) : value_(static_cast<std::int64_t>(value)) {}
  constexpr explicit Dim(Value placeholder) : placeholder_(placeholder) {}

  /// The value; 0 inside a trace, where it is not known.
  constexpr std::int64_t value() const { return value_; }
  constexpr HostNumber number() const { return value_; }
  constexpr const Value& placeholder() const { return placeholder_; }
  constexpr bool traced() const { return placeholder_.module != nullptr; }

 private:
  std::int64_t value_ = 0;
  Value placeholder_{};
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
