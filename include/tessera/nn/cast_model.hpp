#ifndef TESSERA_NN_CAST_MODEL_HPP
#define TESSERA_NN_CAST_MODEL_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/nn/recast.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/tensor/evaluate.hpp>

namespace tessera {

namespace detail {

// What an element type becomes.
template <class To> struct ToElement {
  template <class T> using of = std::conditional_t<is_floating_v<T>, To, T>;
};
struct UseBf16 {
  template <class T> using of = std::conditional_t<std::is_same_v<T, float>, bf16, T>;
};
struct DowncastBf16 {
  template <class T> using of = std::conditional_t<std::is_same_v<T, double>, float, UseBf16::of<T>>;
};
struct WidenBf16 {
  template <class T> using of = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
};

/// Whether a model has a tensor whose element type Map changes.
template <class Map> struct FindRecast {
  bool found = false;
  template <class Leaf> constexpr void leaf(const Leaf&) {
    found = found || !std::is_same_v<recast_t<Map, Leaf>, Leaf>;
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class Map, class T> constexpr bool has_recast() {
  if constexpr (is_stack_v<T>) {
    return has_recast<Map, typename T::block>();
  } else {
    T model{};
    FindRecast<Map> find;
    for_each_leaf(model, find);
    return find.found;
  }
}

/// Converts the tensors of a model.
struct CastTensor {
  Here at;
  template <class To, TensorOperand From> constexpr To operator()(std::type_identity<To>, const From& from) const {
    if constexpr (SymOperand<From>) {
      return cast<typename To::element>(from, at);
    } else {
      if (const Value& value = value_behind(from); value.module != nullptr)
        return To(build::cast(here(value).at(Source::from(at)), dtype_v<typename To::element>));
      return To(cast<typename To::element>(from, at));
    }
  }
};

template <class Map, class T> constexpr auto recast(const T& x, Here at) {
  using To = recast_t<Map, T>;
  if constexpr (std::is_same_v<To, T> && !TensorOperand<T>) {
    constexpr bool is_unchanged = !has_recast<Map, T>();
    static_assert(is_unchanged,
                  "tessera: a model has other element types only if it is a template of its element type, as `template "
                  "<ts::Element T> struct Mlp { nn::Linear<T> up, down; };`; or name the type, as in "
                  "ts::cast_model<Mlp16>(model); ts::autocast needs neither");
  }
  return rebuilt<To>(x, CastTensor{at});
}

/// Calls f with arguments of other element types; results of bf16 become f32.
template <class Map, class F> constexpr auto recast_function(const F& f) {
  return [f](const auto&... given) {
    constexpr Here at = Here::current();
    return recast<WidenBf16>(settle(f(recast<Map>(settle(given), at)...)), at);
  };
}

}  // namespace detail

/// A copy of a model, or of a tuple or array of tensors, with floating-point tensors of the element type T, as
/// `model.to(T)` in PyTorch: `auto small = ts::cast_model<ts::bf16>(model)`. Integer tensors, Dims and Scalars are
/// copied. In the type of the copy, T replaces every floating-point template argument: `nn::Linear<bf16>` for
/// `nn::Linear<float>`, and a Mlp<bf16> for a `template <ts::Element T> struct Mlp`. For other models, write the type
/// of the copy, a model with the same fields: `cast_model<To>(model)`. In a traced function it is differentiable, and
/// gradients are those of the original. Communication: none.
template <Element T, class Model> constexpr auto cast_model(const Model& model, Here at = Here::current()) {
  return detail::recast<detail::ToElement<T>>(model, at);
}
template <class To, class Model>
  requires(!Element<To>)
constexpr To cast_model(const Model& model, Here at = Here::current()) {
  return detail::rebuilt<To>(model, detail::CastTensor{at});
}

/// In a traced function: f with its f32 arguments (models too) cast to bf16, and its bf16 results cast to f32, as with
/// the environment variable XLA_USE_BF16 of PyTorch/XLA. f computes in bf16 where its operations do; f64 is unchanged.
template <class F> constexpr auto use_bf16(const F& f) { return detail::recast_function<detail::UseBf16>(f); }
/// As use_bf16, and f64 arguments are cast to f32: XLA_DOWNCAST_BF16.
template <class F> constexpr auto downcast_bf16(const F& f) { return detail::recast_function<detail::DowncastBf16>(f); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
