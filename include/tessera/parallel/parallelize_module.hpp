#ifndef TESSERA_PARALLEL_PARALLELIZE_MODULE_HPP
#define TESSERA_PARALLEL_PARALLELIZE_MODULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/name_pattern.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/parallel/required_axis.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera {

/// How the parameters of a layer are split, as in torch.distributed.tensor.parallel. Weights are [.., in, out].
enum class ParallelStyle : std::uint8_t {
  colwise,   ///< ColwiseParallel: output features, of biases too: queries, keys and values, the first weight of an MLP
  rowwise,   ///< RowwiseParallel: input features, biases whole: the last weight of an MLP; rows of an embedding table
  sequence,  ///< SequenceParallel: whole, such as norms, whose activations are split along time
};

/// A pattern of the path of a layer or a parameter, in which * matches any characters, and its style.
struct ParallelRule {
  std::string pattern;
  ParallelStyle style;
};

namespace detail {
/// Splits each tensor by the first rule whose pattern matches it or its layer.
struct ParallelizeParameters {
  const Mesh& mesh;
  std::string_view axis;
  const std::vector<ParallelRule>& rules;
  Here at;
  std::vector<bool> used;

  template <class Leaf> void operator()(std::string_view name, Leaf& leaf, int) {
    if constexpr (StoredOperand<Leaf>) {
      PartitionSpec spec = tessera::mesh(leaf) == mesh ? spec_of(sharding(leaf), mesh) : PartitionSpec{};
      while (spec.entries.size() < static_cast<std::size_t>(Leaf::rank)) spec.entries.push_back(SpecEntry());
      split(name, spec);
      leaf = reshard(leaf, mesh, spec, at);
    }
  }

 private:
  void split(std::string_view name, PartitionSpec& spec) {
    const std::string_view layer = name.substr(0, name.rfind('.') == name.npos ? 0 : name.rfind('.'));
    std::size_t rule = 0;
    while (rule < rules.size() && !matches_pattern(name, rules[rule].pattern) &&
           !matches_pattern(layer, rules[rule].pattern))
      ++rule;
    if (rule == rules.size()) return;
    used[rule] = true;
    const int last = static_cast<int>(spec.entries.size()) - 1;
    const ParallelStyle style = rules[rule].style;
    const int dim = style == ParallelStyle::colwise ? last : style == ParallelStyle::rowwise ? last - 1 : -1;
    for (SpecEntry& entry : spec.entries) {
      SpecEntry others;
      for (const Name& own : entry.axes)
        if (own.view() != axis) others.axes.push_back(own);
      others.priority = others.axes.empty() ? std::uint8_t{0} : entry.priority;
      entry = others;
    }
    if (dim < 0) return;
    SpecEntry& entry = spec.entries[static_cast<std::size_t>(dim)];
    if (entry.priority > 0) entry = SpecEntry();  // what is gathered on use is not split for computing
    entry.axes.push_back(Name(axis));
  }
};
}  // namespace detail

/// Splits the parameters of a model over one axis, as torch.distributed.tensor.parallel.parallelize_module. The planner
/// derives the shardings of activations and the collectives from them. The first rule that matches a layer or a
/// parameter applies; parameters without a rule are whole. Dims that other axes of the mesh split stay split.
///
///     model = ts::parallelize_module(model, mesh, "model",
///                                    {{"blocks.*.mlp.up", ts::ParallelStyle::colwise},
///                                     {"blocks.*.mlp.down", ts::ParallelStyle::rowwise},
///                                     {"tokens", ts::ParallelStyle::rowwise}});
/// Errors: `option` for a rule that matches no tensor; `mesh_axis` for an axis that the mesh lacks; `empty_tensor`.
/// Communication: a reshard of each parameter whose sharding changes.
template <class Model>
Model parallelize_module(Model model, const Mesh& mesh, std::string_view axis, const std::vector<ParallelRule>& rules,
                         Here at = Here::current()) {
  detail::required_axis("parallelize_module", mesh, axis, at);
  detail::ParallelizeParameters parallelize{mesh, axis, rules, at, std::vector<bool>(rules.size(), false)};
  detail::for_each_named_leaf(model, detail::VisitLayers::each, parallelize);
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (!parallelize.used[i])
      fail(errc::option, "[parallelize_module] pattern: \"", rules[i].pattern,
           "\" names no layer and no tensor of the model, or earlier rules name them all", Source::from(at));
  return model;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
