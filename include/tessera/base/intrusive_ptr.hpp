#ifndef TESSERA_BASE_INTRUSIVE_PTR_HPP
#define TESSERA_BASE_INTRUSIVE_PTR_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>
#include <utility>

namespace tessera {

/// Base of shared run-time objects. The destructor is virtual, so that headers can hold handles of incomplete types.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  // Compiler builtins, since including <atomic> costs each translation unit a tenth of a second.
  void retain() noexcept { __atomic_fetch_add(&count_, 1, __ATOMIC_RELAXED); }
  void release() noexcept {
    // The last owner need not count down: no other owner is left that could add a reference.
    if (unique() || __atomic_fetch_sub(&count_, 1, __ATOMIC_ACQ_REL) == 1) delete this;
  }
  bool unique() const noexcept { return __atomic_load_n(&count_, __ATOMIC_ACQUIRE) == 1; }

 private:
  int count_ = 0;
};

/// Shared ownership of a RefCounted object. Null in constant expressions, which makes tensors literal types.
template <class T> class IntrusivePtr {
 public:
  constexpr IntrusivePtr() = default;
  explicit IntrusivePtr(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  constexpr IntrusivePtr(const IntrusivePtr& other) : object_(other.object_) {
    if (object_) object_->retain();
  }
  constexpr IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  /// Takes over the reference of a pointer to a class derived from T.
  template <class U>
    requires std::is_convertible_v<U*, T*>
  IntrusivePtr(IntrusivePtr<U>&& other) noexcept : object_(other.give_up()) {}
  constexpr IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  constexpr ~IntrusivePtr() {
    if (object_) object_->release();
  }

  constexpr T* get() const { return object_; }
  /// Returns the object with its reference, and leaves this pointer null.
  constexpr T* give_up() noexcept { return std::exchange(object_, nullptr); }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  constexpr explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
