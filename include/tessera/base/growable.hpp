#ifndef TESSERA_BASE_GROWABLE_HPP
#define TESSERA_BASE_GROWABLE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

#include <tessera/base/inline.hpp>

namespace tessera {

namespace detail {
// Memory of trivially copyable items at run time, compiled once for all their types.

/// Copies `used` bytes of `items` into `bytes` of new memory.
[[gnu::noinline]] inline void* copy_plain(const void* items, std::size_t used, std::size_t bytes) {
  void* const made = ::operator new(bytes);
  if (used > 0) __builtin_memcpy(made, items, used);
  return made;
}
/// A function of its own since clang would drop a constexpr destructor that calls operator delete directly, when it
/// destroys an empty local array.
inline void free_plain(void* items) { ::operator delete(items); }
/// The same items in memory for `capacity` of them, each `item` bytes long.
[[gnu::noinline]] inline void* move_plain(void* items, std::size_t size, std::size_t capacity, std::size_t item) {
  void* const made = copy_plain(items, size * item, capacity * item);
  free_plain(items);
  return made;
}
/// The same items in memory for more than `capacity` of them.
[[gnu::noinline]] inline void* grow_plain(void* items, std::size_t& capacity, std::size_t item) {
  const std::size_t first = item <= 64 ? 512 / item : 8, more = capacity < first ? first : capacity * 2;
  void* const made = move_plain(items, capacity, more, item);
  capacity = more;
  return made;
}
/// The items with copies of `*value`, or with zeros, added until there are `n`. `value` may be one of the items.
[[gnu::noinline]] inline void* resize_plain(void* items, std::size_t size, std::size_t& capacity, std::size_t n,
                                            const void* value, std::size_t item) {
  void* made = items;
  if (n > capacity) {
    made = copy_plain(items, size * item, n * item);
    capacity = n;
  }
  char* to = static_cast<char*>(made) + size * item;
  if (value != nullptr)
    for (std::size_t i = size; i < n; ++i, to += item) __builtin_memcpy(to, value, item);
  else if (n > size)
    __builtin_memset(to, 0, (n - size) * item);
  if (made != items) free_plain(items);
  return made;
}
}  // namespace detail

/// A growing array. std::vector needs several times as many constexpr steps, which compilers limit, and for each type
/// of items it costs a compiler several times as much: growth here is one function for all trivially copyable types.
/// The interface is a subset of std::vector's. Unused capacity holds T{} when T is not trivially copyable.
/// clang counts each statement and each call as a step: hence few calls below, of std::swap and the like.
template <class T> class Growable {
  static constexpr bool plain = __is_trivially_copyable(T);

 public:
  using value_type = T;

  constexpr Growable() = default;
  // Constructors delegate to Growable(), so that the destructor frees the memory when a later step throws. Growable(n)
  // holds n values T{}.
  constexpr explicit Growable(std::size_t n) : Growable() { resize(n); }
  constexpr Growable(std::size_t n, const T& value) : Growable() { resize(n, value); }
  constexpr Growable(std::initializer_list<T> list) : Growable() {
    reserve(list.size());
    for (const T& value : list) data_[size_++] = value;
  }
  constexpr Growable(const Growable& other) : Growable() {
    if (other.size_ == 0) return;
    if (plain && !__builtin_is_constant_evaluated()) {
      data_ = static_cast<T*>(detail::copy_plain(other.data_, other.size_ * sizeof(T), other.size_ * sizeof(T)));
    } else {
      data_ = new T[other.size_]{};
      for (std::size_t i = 0; i < other.size_; ++i) data_[i] = other.data_[i];
    }
    size_ = capacity_ = other.size_;
  }
  constexpr Growable(Growable&& other) noexcept : data_(other.data_), size_(other.size_), capacity_(other.capacity_) {
    other.leave();
  }
  // Not by value (copy and swap), which would declare copying noexcept.
  constexpr Growable& operator=(const Growable& other) { return *this = Growable(other); }
  constexpr Growable& operator=(Growable&& other) noexcept {
    if (this == &other) return *this;
    T* const old = data_;
    data_ = other.data_, size_ = other.size_, capacity_ = other.capacity_;
    other.leave();
    free(old);  // last: the destructor of an item may reach `other`
    return *this;
  }
  constexpr ~Growable() { free(data_); }

  TESSERA_ACCESS constexpr std::size_t size() const { return size_; }
  TESSERA_ACCESS constexpr bool empty() const { return size_ == 0; }
  TESSERA_ACCESS constexpr T* data() { return data_; }
  TESSERA_ACCESS constexpr const T* data() const { return data_; }
  TESSERA_ACCESS constexpr T* begin() { return data_; }
  TESSERA_ACCESS constexpr T* end() { return data_ + size_; }
  TESSERA_ACCESS constexpr const T* begin() const { return data_; }
  TESSERA_ACCESS constexpr const T* end() const { return data_ + size_; }
  TESSERA_ACCESS constexpr T& operator[](std::size_t i) { return data_[i]; }
  TESSERA_ACCESS constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  TESSERA_ACCESS constexpr T& front() { return data_[0]; }
  TESSERA_ACCESS constexpr const T& front() const { return data_[0]; }
  TESSERA_ACCESS constexpr T& back() { return data_[size_ - 1]; }
  TESSERA_ACCESS constexpr const T& back() const { return data_[size_ - 1]; }

  // Out of line: planning would otherwise contain a hundred copies of these.
  [[gnu::noinline]] constexpr void push_back(const T& value) {
    if (size_ == capacity_) {
      T copy = value;  // `value` may refer to an element of this array
      grow();
      data_[size_++] = std::move(copy);
    } else {
      data_[size_] = value, ++size_;  // in this order, since the copy may throw
    }
  }
  constexpr void push_back(T&& value)
    requires(!plain)
  {
    T taken = std::move(value);
    if (size_ == capacity_) grow();
    data_[size_++] = std::move(taken);
  }
  constexpr T& emplace_back() {
    push_back(T{});
    return back();
  }
  constexpr void append(const T* first, const T* last) {
    reserve(size_ + static_cast<std::size_t>(last - first));
    for (; first != last; ++first) push_back(*first);
  }
  constexpr void pop_back() { data_[--size_] = T{}; }
  TESSERA_ACCESS constexpr void reserve(std::size_t n) {
    if (n > capacity_) reallocate(n);
  }
  TESSERA_ACCESS constexpr void resize(std::size_t n) {
    if constexpr (std::is_arithmetic_v<T> || std::is_pointer_v<T>) {
      if (!__builtin_is_constant_evaluated()) return resize_to(n, nullptr);
    }
    if (__builtin_is_constant_evaluated() && data_ == nullptr)
      data_ = new T[n]{}, size_ = capacity_ = n;  // no step for each item
    else
      resize(n, T{});
  }
  TESSERA_ACCESS constexpr void resize(std::size_t n, const T& value) {
    if (plain && !__builtin_is_constant_evaluated())
      resize_to(n, &value);
    else
      resize_items(n, value);
  }
  constexpr void assign(std::size_t n) { *this = Growable(n); }
  constexpr void assign(std::size_t n, const T& value) { *this = Growable(n, value); }
  constexpr void clear() { size_ = 0; }

  friend constexpr bool operator==(const Growable& a, const Growable& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  TESSERA_ACCESS void resize_to(std::size_t n, const T* value) {
    data_ = static_cast<T*>(detail::resize_plain(data_, size_, capacity_, n, value, sizeof(T)));
    size_ = n;
  }
  [[gnu::noinline]] constexpr void resize_items(std::size_t n, T value) {  // by value, since it may be one of the items
    reserve(n);
    for (std::size_t i = size_; i < n; ++i) data_[i] = value;
    if constexpr (!plain)
      for (std::size_t i = n; i < size_; ++i) data_[i] = T{};
    size_ = n;
  }
  TESSERA_ACCESS constexpr void reallocate(std::size_t n) {
    if (plain && !__builtin_is_constant_evaluated()) {
      data_ = static_cast<T*>(detail::move_plain(data_, size_, n, sizeof(T)));
      capacity_ = n;
    } else {
      reallocate_items(n);
    }
  }
  [[gnu::noinline]] constexpr void reallocate_items(std::size_t n) {
    T* const grown = new T[n]{};
    for (std::size_t i = 0; i < size_; ++i) grown[i] = std::move(data_[i]);
    delete[] data_;
    data_ = grown;
    capacity_ = n;
  }
  TESSERA_ACCESS constexpr void grow() {
    if (plain && !__builtin_is_constant_evaluated()) {
      data_ = static_cast<T*>(detail::grow_plain(data_, capacity_, sizeof(T)));
    } else {
      constexpr std::size_t first = !plain ? 4 : sizeof(T) <= 64 ? 64 : 16;
      reallocate_items(size_ < first ? first : size_ * 2);
    }
  }
  TESSERA_ACCESS static constexpr void free(T* items) {
    plain && !__builtin_is_constant_evaluated() ? detail::free_plain(items) : delete[] items;
  }
  constexpr void leave() { data_ = nullptr, size_ = capacity_ = 0; }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
