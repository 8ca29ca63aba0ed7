#ifndef TESSERA_TESTS_UNIT_PROGRAMS_EXPRESSION_OF_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_EXPRESSION_OF_HPP

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "check.hpp"

#include <tessera/base/growable.hpp>
#include <tessera/tensor/evaluate.hpp>

/// Expressions of stored tensors as functions of leaves, which check_expression takes.
namespace programs::operations {

/// An argument of the kind that a program takes: a tensor, a Dim or a Scalar.
template <class X> X argument_as(const tessera::Leaf& leaf) {
  if constexpr (std::is_same_v<X, tessera::Dim>)
    return tessera::Dim(static_cast<std::int64_t>(leaf.number.real()));
  else if constexpr (std::is_same_v<X, tessera::Scalar>)
    return tessera::Scalar(leaf.number.real());
  else
    return X(tessera::IntrusivePtr<tessera::RefCounted>(leaf.layers[0].get()));
}

/// f, an expression of tensors, Dims and Scalars.
template <class... Xs, class F> std::function<Evaluated(const tessera::Growable<tessera::Leaf>&)> expression_of(F f) {
  return [f](const tessera::Growable<tessera::Leaf>& arguments) {
    const auto expression = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return f(argument_as<Xs>(arguments[I])...);
    }(std::index_sequence_for<Xs...>{});
    tessera::detail::CollectLeaves collect;
    tessera::detail::collect_expression(expression, collect);
    Evaluated made{
        &tessera::detail::ExpressionPrograms<std::remove_cvref_t<decltype(expression)>>::find(expression).compiled(),
        std::move(collect.leaves),
        {}};
    const auto result = tessera::eval(expression);
    made.result.layers.push_back(
        tessera::IntrusivePtr<tessera::TensorStorage>(static_cast<tessera::TensorStorage*>(result.storage().get())));
    return made;
  };
}

}  // namespace programs::operations

#endif
