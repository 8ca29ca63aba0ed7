#ifndef TESSERA_GRAPH_TRACE_NAMED_LEAVES_HPP
#define TESSERA_GRAPH_TRACE_NAMED_LEAVES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tessera/base/growable.hpp>
#include <tessera/graph/trace/tree.hpp>

namespace tessera::detail {

/// The name of a leaf while a model is visited: field names and positions with dots between them.
class LeafName {
 public:
  constexpr std::string_view view() const { return {text_.data(), text_.size()}; }

  /// Adds a part to the name, and returns the size before, for `leave`. An empty part, the name of the model in a
  /// wrapper, adds nothing.
  constexpr std::size_t enter(std::string_view part) {
    const std::size_t before = text_.size();
    if (part.empty()) return before;
    if (before > 0) text_.push_back('.');
    for (const char c : part) text_.push_back(c);
    return before;
  }
  constexpr std::size_t enter(std::size_t position) {
    char digits[20]{};
    std::size_t first = sizeof digits;
    do digits[--first] = static_cast<char>('0' + position % 10);
    while ((position /= 10) > 0);
    return enter(std::string_view(digits + first, sizeof digits - first));
  }
  /// The field at a position of U, by its name where U has field_names.
  template <class U, bool Named> constexpr std::size_t enter_field(std::size_t position) {
    if constexpr (Named)
      if (position < std::size(U::field_names)) return enter(std::string_view(U::field_names[position]));
    return enter(position);
  }
  constexpr void leave(std::size_t before) { text_.resize(before); }

 private:
  Growable<char> text_;
};

/// Whether a struct lists the names of its fields. A list of another length is an error: names would be missing from
/// checkpoints and patterns.
template <class T> constexpr bool names_fields() {
  if constexpr (requires { std::size(T::field_names); }) {
    static_assert(std::size(T::field_names) == static_cast<std::size_t>(field_count<T>()),
                  "tessera: field_names of a struct must have a name for each field of the struct, in their order");
    return true;
  } else {
    return false;
  }
}

/// How the layers of a Stack are visited: each with its position, the first one for all with the position `*`, or each
/// with the position `*`. While a function is traced a Stack has one layer, with the tensors of all.
enum class VisitLayers { each, together, each_alike };

/// Visits the leaves of a model: f(name, leaf, layers), where `layers` is how many layers of a Stack a leaf stands for.
/// C++20 has no reflection, so a struct lists the names of its fields in order: `static constexpr std::array
/// field_names`. All other parts are named by their positions. Where F does not depend on the model, models share the
/// code that visits their parts: so functions of the library give named structs, not lambdas.
template <class F> class NameLeaves {
 public:
  constexpr NameLeaves(VisitLayers visit, F& f) : layers_(visit), f_(f) {}

  template <class T> constexpr void visit(T& object) {
    using U = std::remove_const_t<T>;
    if constexpr (is_leaf_v<U>) {
      f_(name_.view(), object, count_);
    } else if constexpr (is_stack_v<U>) {
      if (layers_ == VisitLayers::together && object.size() > 0) {
        count_ = object.size();
        visit(object[0], name_.enter("*"));
        count_ = 1;
      } else {
        for (int i = 0; i < object.size(); ++i)
          visit(object[i],
                layers_ == VisitLayers::each_alike ? name_.enter("*") : name_.enter(static_cast<std::size_t>(i)));
      }
    } else if constexpr (is_tuple_v<U>) {
      std::apply([&](auto&... items) { visit_fields<void, false>(items...); }, object);
    } else if constexpr (is_array_v<U>) {
      for (std::size_t i = 0; i < object.size(); ++i) visit(object[i], name_.enter(i));
    } else if constexpr (!std::is_empty_v<U>) {
      constexpr bool named = names_fields<U>();
      with_fields(object, [&](auto&... fields) { visit_fields<U, named>(fields...); });
    }
  }

 private:
  /// Visits a part of a model whose name was entered at `before`.
  template <class T> constexpr void visit(T& part, std::size_t before) {
    visit(part);
    name_.leave(before);
  }
  /// The fields of U, or the items of a tuple.
  template <class U, bool Named, class... Fields> constexpr void visit_fields(Fields&... fields) {
    std::size_t i = 0, before = 0;
    ((before = name_.template enter_field<U, Named>(i++), visit(fields), name_.leave(before)), ...);
  }

  LeafName name_{};
  VisitLayers layers_;
  F& f_;
  int count_ = 1;
};

template <class Model, class F> constexpr void for_each_named_leaf(Model& model, VisitLayers layers, F&& f) {
  NameLeaves<std::remove_reference_t<F>>(layers, f).visit(model);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
