#ifndef TESSERA_GRAPH_TRACE_CHANGING_SCALARS_HPP
#define TESSERA_GRAPH_TRACE_CHANGING_SCALARS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <type_traits>

#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/expression/expr.hpp>

namespace tessera::detail {

/// Calls a function with each Dim and Scalar of a structure, and its position among them.
template <class Visit> struct VisitNumbers {
  Visit visit;
  std::size_t next = 0;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (std::is_same_v<std::remove_const_t<Leaf>, Dim> || std::is_same_v<std::remove_const_t<Leaf>, Scalar>)
      visit(leaf, next++);
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class T, class Visit> constexpr void for_each_number(T& object, const Visit& visit) {
  VisitNumbers<Visit> visitor{visit};
  for_each_leaf(object, visitor);
}

/// The Scalars in plain structs of a carry that a step changes, such as the number of steps in the state of an
/// optimizer. They are carried behind the tensors, as values of f64; all others are host scalars, the same in each
/// step. A first trace of the body finds them.
class ChangingScalars {
 public:
  /// Makes the first values, in the graph around the body, before the body begins, and takes them out of init: a body
  /// has its carried values before those that it captures.
  template <class Carry> constexpr void begin(const Value& around, Carry& init) {
    if (changes_.empty()) return;
    for_each_number(init, [&](auto& number, std::size_t k) {
      if (firsts_.size() == k) firsts_.push_back({});
      if constexpr (is_scalar<decltype(number)>)
        if (changes_[k] && firsts_[k].module == nullptr) {
          firsts_[k] = build::cast(lower(around, number), DType::f64);
          number = Scalar();
        }
    });
  }
  /// Carries them, after the tensors of the carry.
  template <class Carry> constexpr void bind(BodyTrace& body, Carry& carried) const {
    if (changes_.empty()) return;
    for_each_number(carried, [&](auto& number, std::size_t k) {
      if constexpr (is_scalar<decltype(number)>)
        if (changes_[k]) number = Scalar(body.carry(firsts_[k], Storage::block));
    });
  }
  /// Whether a step changes any that are not carried yet.
  template <class Carry> constexpr bool find(const Value& inside, const Carry& carried, const Carry& after) {
    Growable<Number> befores;
    for_each_number(carried, [&](const auto& number, std::size_t) { befores.push_back(Number(number)); });
    bool found = false;
    for_each_number(after, [&](const auto& number, std::size_t k) {
      if (changes_.size() == k) changes_.push_back(false);
      if (changes_[k] || Number(number).is(befores[k], inside)) return;
      if constexpr (is_scalar<decltype(number)>)
        found = changes_[k] = true;
      else
        inside.refuse(errc::structure, "[scan] carry: a step, or a branch, changes a ts::Dim in a struct of the carry; "
                                       "sizes are the same in each step, so count with a tensor");
    });
    return found;
  }
  /// Gives them as results of the body, after the tensors of the carry.
  template <class Carry> constexpr void give(BodyTrace& body, const Value& inside, const Carry& after) const {
    for_each_number(after, [&](const auto& number, std::size_t k) {
      if constexpr (is_scalar<decltype(number)>)
        if (changes_[k]) body.give_carry(build::cast(lower(inside, number), DType::f64));
    });
  }
  /// Sets those of the last carry; `next`: the number of its tensors.
  template <class Carry> constexpr void project(const Value& made, int next, Carry& last) const {
    for_each_number(last, [&](auto& number, std::size_t k) {
      if constexpr (is_scalar<decltype(number)>)
        if (changes_[k]) {
          const Node type = argument_node(0, DType::f64, 0);
          number = Scalar(build::project(made, next++, type, Storage::block));
        }
    });
  }

 private:
  template <class N> static constexpr bool is_scalar = std::is_same_v<std::remove_cvref_t<N>, Scalar>;
  /// A Dim or a Scalar: of the host, or a value of the trace.
  struct Number {
    HostNumber value{};
    Value placeholder{};

    constexpr Number() = default;
    constexpr explicit Number(const Dim& dim) : value(dim.value()), placeholder(dim.placeholder()) {}
    constexpr explicit Number(const Scalar& scalar) : value(scalar.number()), placeholder(scalar.placeholder()) {}

    constexpr bool is(const Number& other, const Value& inside) const {
      if (placeholder.module == nullptr && other.placeholder.module == nullptr)
        return value.real() == other.value.real() && value.integer() == other.value.integer();
      return placeholder == other.placeholder || in(inside) == other.in(inside);
    }
    constexpr Value in(const Value& inside) const {
      return placeholder.module != nullptr ? here(placeholder) : inside.number(value.real(), DType::f64);
    }
  };
  Growable<bool> changes_;  ///< by position among the Dims and Scalars of the carry
  Growable<Value> firsts_;  ///< by the same position: those of the Scalars that are carried
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
