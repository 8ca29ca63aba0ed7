#ifndef TESSERA_RUNTIME_THREADS_FUNCTION_REF_HPP
#define TESSERA_RUNTIME_THREADS_FUNCTION_REF_HPP
#include <tessera/base/push_macros.hpp>

#include <memory>
#include <type_traits>

namespace tessera::runtime {

/// A non-owning reference to a callable, as C++26's std::function_ref. Avoids <functional>.
template <class Signature> class FunctionRef;

template <class R, class... Args> class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
