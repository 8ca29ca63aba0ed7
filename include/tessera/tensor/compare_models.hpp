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

struct CollectNames {
  std::vector<std::string> names{};
  void operator()(std::string_view name, const auto&, int) { names.emplace_back(name); }
};
/// Whether the Stacks of two models have equal numbers of layers, so that corresponding leaves have the same types.
template <class Model> bool same_depths(const Model& x, const Model& y) {
  CollectNames of_x, of_y;
  for_each_named_leaf(x, VisitLayers::each, of_x);
  for_each_named_leaf(y, VisitLayers::each, of_y);
  return of_x.names == of_y.names;
}

struct CollectAddresses {
  std::vector<const void*> leaves{};
  void operator()(std::string_view, const auto& leaf, int) { leaves.push_back(&leaf); }
};
/// Compares each leaf with the corresponding leaf of another model, by Compare()(a, b).
template <class Compare> struct CompareLeaves {
  const std::vector<const void*>& others;
  std::size_t next = 0;
  bool all = true;
  template <class Leaf> void operator()(std::string_view, const Leaf& leaf, int) {
    all = all && Compare()(leaf, *static_cast<const Leaf*>(others[next++]));
  }
};
/// Whether Compare()(a, b) is true for all corresponding leaves of two models, and the models have equal numbers of
/// layers.
template <class Compare, class Model> bool all_leaves(const Model& x, const Model& y) {
  if (!same_depths(x, y)) return false;
  CollectAddresses others;
  for_each_named_leaf(y, VisitLayers::each, others);
  CompareLeaves<Compare> compare{others.leaves};
  for_each_named_leaf(x, VisitLayers::each, compare);
  return compare.all;
}

struct EqualLeaves {
  template <class Leaf> bool operator()(const Leaf& a, const Leaf& b) const {
    if constexpr (StoredOperand<Leaf>)
      return all_equal(a, b);
    else
      return a.value() == b.value();
  }
};
struct LeavesOfOneType {
  template <class Leaf> bool operator()(const Leaf& a, const Leaf& b) const {
    if constexpr (StoredOperand<Leaf>)
      return same_sharded_type(a, b);
    else
      return true;
  }
};
struct HashTypes {
  std::uint64_t hash = 0;
  template <class Leaf> void operator()(std::string_view, const Leaf& leaf, int) {
    if constexpr (StoredOperand<Leaf>)
      hash = hash_mix(hash, sharded_type_hash(leaf));
    else
      hash = hash_mix(hash, std::uint64_t{0});
  }
};

}  // namespace detail

/// Whether two models have equal tensors, Dims and Scalars, compared by ts::all_equal. Meshes and shardings may differ.
/// Communication: as all_equal of tensors.
template <class Model>
  requires(!Operand<Model>)
bool all_equal(const Model& x, const Model& y) {
  return detail::all_leaves<detail::EqualLeaves>(x, y);
}

/// Whether two models have tensors of the same types, shapes, meshes and shardings. If so, a step that was planned for
/// x runs with y without a new plan.
template <class Model>
  requires(!Operand<Model>)
bool same_sharded_type(const Model& x, const Model& y) {
  return detail::all_leaves<detail::LeavesOfOneType>(x, y);
}
/// A hash of the properties that same_sharded_type compares.
template <class Model>
  requires(!Operand<Model>)
std::uint64_t sharded_type_hash(const Model& x) {
  detail::HashTypes types;
  detail::for_each_named_leaf(x, detail::VisitLayers::each, types);
  return types.hash;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
