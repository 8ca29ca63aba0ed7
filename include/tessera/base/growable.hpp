#ifndef TESSERA_BASE_GROWABLE_HPP
#define TESSERA_BASE_GROWABLE_HPP

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera {

/// A growing array of plain values for constant expressions, where std::vector takes several times as many of the steps
/// that compilers bound. The interface is a part of std::vector's.
template <class T> class Growable {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  constexpr Growable() = default;
  /// n values, all T{}.
  constexpr explicit Growable(std::size_t n) : data_(n > 0 ? new T[n]{} : nullptr), size_(n), capacity_(n) {}
  constexpr Growable(const Growable& other) : Growable(other.size_) {
    for (std::size_t i = 0; i < size_; ++i) data_[i] = other.data_[i];
  }
  constexpr Growable(Growable&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  constexpr Growable& operator=(Growable other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  constexpr ~Growable() { delete[] data_; }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* data() { return data_; }
  constexpr const T* data() const { return data_; }
  constexpr T* begin() { return data_; }
  constexpr T* end() { return data_ + size_; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr T& operator[](std::size_t i) { return data_[i]; }
  constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  constexpr T& back() { return data_[size_ - 1]; }
  constexpr const T& back() const { return data_[size_ - 1]; }

  constexpr void push_back(const T& value) {
    const T copy = value;  // it may be one of the items
    if (size_ == capacity_) reserve(size_ < 32 ? 64 : size_ * 2);
    data_[size_++] = copy;
  }
  constexpr void reserve(std::size_t n) {
    if (n <= capacity_) return;
    T* grown = new T[n]{};
    for (std::size_t i = 0; i < size_; ++i) grown[i] = data_[i];
    delete[] data_;
    data_ = grown;
    capacity_ = n;
  }
  constexpr void clear() { size_ = 0; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace tessera

#endif
