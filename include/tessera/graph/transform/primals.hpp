#ifndef TESSERA_GRAPH_TRANSFORM_PRIMALS_HPP
#define TESSERA_GRAPH_TRANSFORM_PRIMALS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/trace.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// A copy of a value that is not shared with equal values: a gradient with respect to the copy does not follow other
/// uses of the value.
constexpr Value as_variable(const Value& value) {
  const Node& node = value.node();
  return value.make(stored_as(storage_of(node), {.op = Op::variable,
                                                 .dtype = node.dtype,
                                                 .rank = node.rank,
                                                 .singletons = node.singletons,
                                                 .value = static_cast<double>(++value.module->variables)}),
                    {value.id});
}

/// Visits the floating tensors of structures, with their values in the graph in which they were made. 8-bit floats,
/// which have no arithmetic, are data like integers.
template <class Visit> struct VisitFloating {
  Visit visit;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (SymOperand<std::remove_const_t<Leaf>> || StoredOperand<std::remove_const_t<Leaf>>) {
      using T = typename Leaf::element;
      if constexpr (is_floating_v<T> && !is_float8_v<T>)
        if (const Value value = value_behind(leaf); value.module != nullptr) visit(leaf, turned(value));
    }
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class T, class Visit> constexpr void for_each_floating(T& object, const Visit& visit) {
  VisitFloating<Visit> visitor{visit};
  for_each_leaf(object, visitor);
}

/// The floating tensors of a structure, in order.
struct Floating {
  Growable<std::int32_t> ids;
  Value context{};  ///< one of the tensors; null if there is none
  constexpr void add(const Value& value) {
    ids.push_back(value.id);
    context = value;
  }
};
template <class T> constexpr Floating floating_of(const T& object) {
  Floating found;
  for_each_floating(object, [&](const auto&, const Value& value) { found.add(here(value)); });
  return found;
}
/// Whether a structure has a tensor that is in no trace.
struct FindStored {
  bool found = false;
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>) found = found || value_behind(leaf).module == nullptr;
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
/// Replaces the floating tensors of a structure by variables, and lists these. Errors: `unsupported`, at the line `at`,
/// for tensors that are in no trace.
template <class T> constexpr Floating make_variables(T& object, Source at = {}) {
  if (FindStored stored; (for_each_leaf(object, stored), stored.found))
    fail(errc::unsupported,
         "[grad] outside of a traced function: call ts::grad, ts::vjp and other derivatives inside a "
         "function of ts::compile",
         at);
  Floating made;
  for_each_floating(object, [&](auto& leaf, const Value& value) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    Value own = here(value);
    // A local value of a ts::shard_map has a gradient of its own on each device along the axes over which it varies.
    if constexpr (LocalOperand<Leaf>) own = Leaf(own).of_all_devices();
    own = as_variable(own);
    replace_leaf(leaf, own);
    made.add(own);
  });
  return made;
}
/// Replaces the floating tensors of a structure by the given values. All other leaves (Dims, Scalars, integer tensors)
/// stay.
template <class T> constexpr void replace_floating(T& object, const Value& context, const Growable<std::int32_t>& ids) {
  std::size_t next = 0;
  for_each_floating(object, [&](auto& leaf, const Value&) { replace_leaf(leaf, context.with(ids[next++])); });
}

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
