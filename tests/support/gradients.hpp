#ifndef TESSERA_TESTS_SUPPORT_GRADIENTS_HPP
#define TESSERA_TESTS_SUPPORT_GRADIENTS_HPP

#include <set>

#include "traced.hpp"

/// Compares gradients of traced functions with central differences; the oracle evaluates both.
namespace oracle {

/// A scalar function of f: the weighted sum of the elements of its result.
template <class F> struct Loss {
  constexpr auto operator()(const auto& inputs, const auto& weights) const {
    return tessera::sum(std::apply(F{}, inputs) * weights);
  }
};
template <class F> struct FirstGradient {
  constexpr auto operator()(const auto& inputs, const auto& weights) const {
    return tessera::value_and_grad(Loss<F>{})(inputs, weights);
  }
};

/// The product of the gradient with a direction. Its gradient is a Hessian-vector product.
template <class F> struct Slope {
  constexpr auto operator()(const auto& inputs, const auto& direction, const auto& weights) const {
    const auto gradient = tessera::grad(Loss<F>{})(inputs, weights);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return ((0.0 * tessera::sum(weights)) + ... + term(std::get<I>(gradient), std::get<I>(direction)));
    }(std::make_index_sequence<std::tuple_size_v<std::decay_t<decltype(inputs)>>>());
  }

 private:
  template <class G, class D> static constexpr auto term(const G& gradient, const D& direction) {
    if constexpr (tessera::TensorOperand<G>) {
      if constexpr (std::is_floating_point_v<typename G::element>)
        return tessera::sum(gradient * direction);
      else
        return 0.0;
    } else {
      return 0.0;
    }
  }
};
template <class F> struct SecondGradient {
  constexpr auto operator()(const auto& inputs, const auto& direction, const auto& weights) const {
    return tessera::value_and_grad(Slope<F>{})(inputs, direction, weights);
  }
};

template <class T> inline constexpr bool differentiable_v = false;
template <class T, int R>
inline constexpr bool differentiable_v<tessera::ShardedTensor<T, R>> = std::is_floating_point_v<T>;

/// The orders of derivatives that a check covers: 1 for an operation with kinks, such as abs, otherwise 2.
template <int N> struct Order {};
inline constexpr Order<1> first_order;
inline constexpr Order<2> second_order;

/// The operations that the checked functions use.
using OpSet = std::set<tessera::Op>;

/// Checks a program that returns a scalar and then its gradient: the gradient must match differences of the scalar.
void check_against_differences(const Program& program, const std::vector<Array>& arguments,
                               const std::vector<bool>& floating);

/// Checks derivatives of a recorded function whose leaves are these tensors. The gradient is that of Loss, and the
/// second derivative that of Slope, made from the graph of the function: that every test compiled both for its own
/// function took most of the time of a build of these tests.
void check_derivatives(const tessera::Module& recorded, const std::vector<Array>& arguments,
                       const std::vector<bool>& floating, int order, OpSet* covered);

/// Checks the gradient of f with respect to every floating-point argument, and with Order<2> also second derivatives.
template <class... Args, class F, int N = 2>
void check_gradient(F, const std::vector<Array>& arguments, Order<N> = {}, OpSet* covered = nullptr) {
  check_derivatives(tessera::Trace<F, Args...>::record().first, arguments, {differentiable_v<Args>...}, N, covered);
}

template <int Rank> using Float = tessera::ShardedTensor<float, Rank>;
template <int Rank> using Int = tessera::ShardedTensor<std::int32_t, Rank>;

/// The derivative of f at `at` along `along`, by central differences.
template <class F> Array along(const F& f, const std::vector<Array>& at, const std::vector<Array>& direction) {
  const auto moved = [&](double h) {
    std::vector<Array> arguments = at;
    for (std::size_t k = 0; k < direction.size(); ++k)
      for (std::size_t i = 0; i < direction[k].data.size(); ++i) arguments[k].data[i] += h * direction[k].data[i];
    return f(arguments);
  };
  Array up = moved(1e-5);
  const Array down = moved(-1e-5);
  for (std::size_t i = 0; i < up.data.size(); ++i) up.data[i] = (up.data[i] - down.data[i]) / 2e-5;
  return up;
}

}  // namespace oracle

#endif
