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
/// Copies `used` bytes of `old` into `bytes` of new memory; compiled once for all element types.
[[gnu::noinline]] inline void* copy_plain(const void* old, std::size_t used, std::size_t bytes) {
  void* const made = ::operator new(bytes);
  if (used > 0) __builtin_memcpy(made, old, used);
  return made;
}
/// A function of its own since clang would drop a constexpr destructor that calls operator delete directly, when it
/// destroys an empty local array.
inline void free_plain(void* items) { ::operator delete(items); }
}  // namespace detail

/// A growing array for constant expressions. std::vector needs several times as many constexpr steps, which compilers
/// limit, and several times as much machine code in planning, where growth here is one function for all trivially
/// copyable types. The interface is a subset of std::vector's. Unused capacity holds T{} when T is not trivially
/// copyable. clang counts each statement and each call as a step: hence few calls below, of std::swap and the like.
template <class T> class Growable {
  static constexpr bool plain = std::is_trivially_copyable_v<T>;

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
    if constexpr (plain) {
      data_ = copy_of(other.data_, other.size_, other.size_);
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
  constexpr void pop_back() { data_[--size_] = T{}; }
  constexpr void reserve(std::size_t n) {
    if (n > capacity_) reallocate(n);
  }
  constexpr void resize(std::size_t n) {
    if (__builtin_is_constant_evaluated() && data_ == nullptr)
      data_ = new T[n]{}, size_ = capacity_ = n;  // no step for each item
    else
      resize(n, T{});
  }
  [[gnu::noinline]] constexpr void resize(std::size_t n, const T& value) {
    reserve(n);
    for (std::size_t i = size_; i < n; ++i) data_[i] = value;
    if constexpr (!plain)
      for (std::size_t i = n; i < size_; ++i) data_[i] = T{};
    size_ = n;
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
  static constexpr std::size_t first_capacity = !plain ? 4 : sizeof(T) <= 64 ? 64 : 16;

  /// The first `used` items in new memory for n; items that are not trivially copyable are moved.
  static constexpr T* copy_of(T* items, std::size_t used, std::size_t n) {
    if constexpr (plain)
      if (!__builtin_is_constant_evaluated())
        return static_cast<T*>(detail::copy_plain(items, used * sizeof(T), n * sizeof(T)));
    T* const made = new T[n]{};
    for (std::size_t i = 0; i < used; ++i) made[i] = std::move(items[i]);
    return made;
  }
  [[gnu::noinline]] constexpr void reallocate(std::size_t n) {
    T* const grown = copy_of(data_, size_, n);
    free(data_);
    data_ = grown;
    capacity_ = n;
  }
  constexpr void grow() { reallocate(size_ < first_capacity ? first_capacity : size_ * 2); }
  static constexpr void free(T* items) {
    plain && !__builtin_is_constant_evaluated() ? detail::free_plain(items) : delete[] items;
  }
  constexpr void leave() { data_ = nullptr, size_ = capacity_ = 0; }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
