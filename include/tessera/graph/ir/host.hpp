#ifndef TESSERA_GRAPH_IR_HOST_HPP
#define TESSERA_GRAPH_IR_HOST_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/value.hpp>

namespace tessera {

/// A size that is known when a program is planned, such as a number of heads: a field of a model, or the extent of a
/// dim inside a traced function. Changing it plans the program anew.
class Dim {
 public:
  constexpr Dim() = default;
  constexpr Dim(std::int64_t value) : value_(value) {}
  constexpr explicit Dim(Value placeholder) : placeholder_(placeholder) {}

  /// The number; 0 inside a trace, where it is not known.
  constexpr std::int64_t value() const { return value_; }
  constexpr HostNumber number() const { return value_; }
  constexpr const Value& placeholder() const { return placeholder_; }
  constexpr bool traced() const { return placeholder_.module != nullptr; }

 private:
  std::int64_t value_ = 0;
  Value placeholder_{};
};

/// A number that is known when a program runs, such as a learning rate: changing it costs nothing.
class Scalar {
 public:
  constexpr Scalar() = default;
  constexpr Scalar(double value) : value_(value) {}
  /// Of an integer, which stays exact where integers are read: a key of random numbers.
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
