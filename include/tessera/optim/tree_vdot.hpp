#ifndef TESSERA_OPTIM_TREE_VDOT_HPP
#define TESSERA_OPTIM_TREE_VDOT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/update.hpp>

// Sums over all tensors of models. ts::global_norm (optim/gradients/clip.hpp) is their norm.

namespace tessera {

/// Inside a traced function: the sum of the products of corresponding elements of the floating-point tensors of two
/// models of one structure, such as gradients and a direction (optax.tree_utils.tree_vdot). A tuple of tensors is a
/// model too. Products are taken in f32, those of f64 in f64; the result is f64 if any tensor is f64, otherwise f32.
/// Errors: structure if the models differ. Communication: one all_reduce of a rank-0 tensor.
///
///     const auto slope = ts::tree_vdot(gradient, direction);
template <class Model> constexpr auto tree_vdot(const Model& a, const Model& b, Here at = Here::current()) {
  using namespace optim::detail;
  const Source source = Source::from(at);
  require_traced("tree_vdot", "ts::tree_vdot", source, a, b);
  const Growable<Value> of_a = parameters_of(a), of_b = parameters_of(b);
  if (of_a.empty()) fail(errc::structure, "[tree_vdot] models: they have no floating-point tensor", source);
  const DType wide = summed_as(of_a);
  Value total{};
  NextName<Model> next_name;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const Value x = of_a[i].at(source), y = of_b[i].at(source);
    Value named = x;
    named.source.inside = next_name();
    build::same_extents(named, 0, y, 0, x.rank(), build::ExtentsOf::models);
    const DType type = computed_as(x.dtype());
    const Value own =
        build::cast(build::sum_of(build::cast(x, type) * build::cast(y, type), (1u << x.rank()) - 1), wide);
    total = total.module == nullptr ? own : total + own;
  }
  return SumOf<Model>(reduced(total));
}

/// Inside a traced function: the sum of all elements of a model (optax.tree_utils.tree_sum); otherwise as tree_vdot.
template <class Model> constexpr auto tree_sum(const Model& model, Here at = Here::current()) {
  using namespace optim::detail;
  const Source source = Source::from(at);
  require_traced("tree_sum", "ts::tree_sum", source, model);
  const Growable<Value> values = parameters_of(model);
  if (values.empty()) fail(errc::structure, "[tree_sum] model: it has no floating-point tensor", source);
  const DType wide = summed_as(values);
  Value total{};
  for (const Value& value : values) {
    const Value x = value.at(source);
    const Value own = build::cast(build::sum_of(build::cast(x, computed_as(x.dtype())), (1u << x.rank()) - 1), wide);
    total = total.module == nullptr ? own : total + own;
  }
  return SumOf<Model>(reduced(total));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
