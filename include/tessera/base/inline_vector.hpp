#ifndef TESSERA_BASE_INLINE_VECTOR_HPP
#define TESSERA_BASE_INLINE_VECTOR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <tessera/base/error.hpp>
#include <tessera/base/inline.hpp>
#include <tessera/base/integers/checked.hpp>

namespace tessera {

/// A vector of fixed capacity with its storage inside. A structural type: usable as a template argument.
template <class T, std::size_t Capacity> struct InlineVector {
  T items[Capacity]{};
  std::uint32_t count = 0;

  using value_type = T;

  constexpr InlineVector() = default;
  constexpr InlineVector(std::initializer_list<T> list) {
    check_capacity(list.size());
    for (const T& item : list) items[count++] = item;
  }
  constexpr InlineVector(std::size_t n, const T& value) {
    check_capacity(n);
    while (count < n) items[count++] = value;
  }

  static constexpr std::size_t capacity() { return Capacity; }
  TESSERA_ACCESS constexpr std::size_t size() const { return count; }
  TESSERA_ACCESS constexpr bool empty() const { return count == 0; }
  TESSERA_ACCESS constexpr T* begin() { return items; }
  TESSERA_ACCESS constexpr T* end() { return items + count; }
  TESSERA_ACCESS constexpr const T* begin() const { return items; }
  TESSERA_ACCESS constexpr const T* end() const { return items + count; }
  TESSERA_ACCESS constexpr const T* data() const { return items; }
  TESSERA_ACCESS constexpr T* data() { return items; }
  TESSERA_ACCESS constexpr T& operator[](std::size_t i) { return items[i]; }
  TESSERA_ACCESS constexpr const T& operator[](std::size_t i) const { return items[i]; }
  TESSERA_ACCESS constexpr T& back() { return items[count - 1]; }
  TESSERA_ACCESS constexpr const T& back() const { return items[count - 1]; }

  constexpr void push_back(const T& value) {
    if (count == Capacity) check_capacity(Capacity + 1);
    items[count++] = value;
  }
  constexpr void pop_back() { items[--count] = T{}; }
  constexpr void clear() {
    while (count > 0) pop_back();
  }
  constexpr void resize(std::size_t n, const T& value = T{}) {
    while (count > n) pop_back();
    while (count < n) push_back(value);
  }
  constexpr void insert(std::size_t at, T value) {  // by value, since it may be one of the items
    push_back(value);
    for (std::size_t i = count - 1; i > at; --i) items[i] = items[i - 1];
    items[at] = value;
  }
  constexpr void erase(std::size_t at) {
    for (std::size_t i = at; i + 1 < count; ++i) items[i] = items[i + 1];
    pop_back();
  }
  constexpr bool contains(const T& value) const { return find(value) < count; }
  /// Index of the first equal item, or size().
  constexpr std::size_t find(const T& value) const {
    std::size_t i = 0;
    while (i < count && !(items[i] == value)) ++i;
    return i;
  }

  static constexpr void check_capacity(std::size_t n) {
    if (n > Capacity)
      fail(errc::capacity, "[base] capacity: more than ", Capacity, " elements in a list of fixed capacity");
  }

  // Only items below size() count: those beyond may hold what a resize left behind.
  friend constexpr bool operator==(const InlineVector& a, const InlineVector& b) {
    if (a.count != b.count) return false;
    for (std::size_t i = 0; i < a.count; ++i)
      if (!(a.items[i] == b.items[i])) return false;
    return true;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
