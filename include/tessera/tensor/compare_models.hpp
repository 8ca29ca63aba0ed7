#ifndef TESSERA_TENSOR_COMPARE_MODELS_HPP
#define TESSERA_TENSOR_COMPARE_MODELS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/base/integers/hash.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/tensor/compare.hpp>

// Comparisons of models, wrapped or not, tensor by tensor.

namespace tessera {

namespace detail {

/// Whether the Stacks of two models have equal numbers of layers, so that corresponding leaves have the same types.
template <class Model> bool same_depths(const Model& x, const Model& y) {
  const auto names = [](const Model& model) {
    std::vector<std::string> found;
    for_each_named_leaf(model, VisitLayers::each,
                        [&](std::string_view name, const auto&, int) { found.emplace_back(name); });
    return found;
  };
  return names(x) == names(y);
}

/// Whether f(a, b) is true for all corresponding leaves of two models, and the models have equal numbers of layers.
template <class Model, class F> bool all_leaves(const Model& x, const Model& y, const F& f) {
  if (!same_depths(x, y)) return false;
  std::vector<const void*> others;
  for_each_named_leaf(y, VisitLayers::each, [&](std::string_view, const auto& leaf, int) { others.push_back(&leaf); });
  std::size_t next = 0;
  bool all = true;
  for_each_named_leaf(x, VisitLayers::each, [&](std::string_view, const auto& leaf, int) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    all = all && f(leaf, *static_cast<const Type*>(others[next++]));
  });
  return all;
}

}  // namespace detail

/// Whether two models have equal tensors, Dims and Scalars, compared by ts::all_equal. Meshes and shardings may differ.
/// Communication: as all_equal of tensors.
template <class Model>
  requires(!Operand<Model>)
bool all_equal(const Model& x, const Model& y) {
  return detail::all_leaves(x, y, [](const auto& a, const auto& b) {
    if constexpr (StoredOperand<std::remove_cvref_t<decltype(a)>>)
      return all_equal(a, b);
    else
      return a.value() == b.value();
  });
}

/// Whether two models have tensors of the same types, shapes, meshes and shardings. If so, a step that was planned for
/// x runs with y without a new plan.
template <class Model>
  requires(!Operand<Model>)
bool same_sharded_type(const Model& x, const Model& y) {
  return detail::all_leaves(x, y, [](const auto& a, const auto& b) {
    if constexpr (StoredOperand<std::remove_cvref_t<decltype(a)>>)
      return same_sharded_type(a, b);
    else
      return true;
  });
}
/// A hash of the properties that same_sharded_type compares.
template <class Model>
  requires(!Operand<Model>)
std::uint64_t sharded_type_hash(const Model& x) {
  std::uint64_t hash = 0;
  detail::for_each_named_leaf(x, detail::VisitLayers::each, [&](std::string_view, const auto& leaf, int) {
    if constexpr (StoredOperand<std::remove_cvref_t<decltype(leaf)>>)
      hash = hash_mix(hash, sharded_type_hash(leaf));
    else
      hash = hash_mix(hash, std::uint64_t{0});
  });
  return hash;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
