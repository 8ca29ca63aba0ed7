#ifndef TESSERA_PARALLEL_FSDP_HPP
#define TESSERA_PARALLEL_FSDP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/storage_split.hpp>
#include <tessera/ops/checkpoint.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera {

/// What a wrapped model does when it is called. Part of the type of the wrapper, since it decides what is traced.
struct FsdpPolicy {
  Name axis = "fsdp";  ///< the mesh axis over which parameters are split
  /// With true (ZeRO, stage 3) a parameter is gathered for the forward pass and again for the backward pass; those of a
  /// Stack one layer at a time. With false (stage 2) it is gathered once, and stays gathered in between: less
  /// communication for more memory. The block of a Stack gathers in both passes; for stage 2 wrap a model that has the
  /// Stack as a field.
  bool reshard_after_forward = true;
  /// bf16 or f16: float arguments are rounded to it, and the layers compute in it with parameters that are stored as
  /// they were. Gradients are sums of f32, reduced in f32. f32: arguments are taken as they are.
  DType compute_dtype = DType::f32;
};

/// How fsdp() stores parameters.
struct FsdpOptions {
  StorageDim dim = StorageDim::largest;  ///< outermost: shard_param_on_dim_0 of PyTorch/XLA, Shard(0) of PyTorch
  std::int64_t min_elements = 0;         ///< smaller parameters stay as they are
  bool split_sharded = false;            ///< whether parameters that other axes split are split over this axis too
  std::function<bool(const std::string& path, const Shape& shape)> wraps{};  ///< which parameters; empty: all of them
};

template <class Model, FsdpPolicy policy> struct Fsdp;

namespace detail {

template <class T> inline constexpr bool is_fsdp_v = false;
template <class Model, FsdpPolicy policy> inline constexpr bool is_fsdp_v<Fsdp<Model, policy>> = true;

template <FsdpPolicy policy> struct GatherLeaves {
  constexpr void leaf(auto& leaf) const {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (TensorOperand<Type>)
      if constexpr (is_floating_v<typename Type::element>) {
        const Sym<typename Type::element, Type::rank> stored(here(value_behind(leaf)));
        // Rounded first, half as many bytes are gathered.
        if constexpr (is_half(policy.compute_dtype) && std::is_same_v<typename Type::element, float>) {
          using Half = element_t<policy.compute_dtype>;
          leaf = Type(
              cast<float>(Sym<Half, Type::rank>(gathered_over(cast<Half>(stored).value, policy.axis.view()))).value);
        } else {
          leaf = Type(gathered_over(stored.value, policy.axis.view()));
        }
      }
  }
  constexpr void enter_stack(const auto&) const {}
  constexpr void enter_layer(int) const {}
  constexpr void leave_stack() const {}
};

/// Gathers the floating-point tensors of a traced model for all their uses. Those of nested wrappers are left to them,
/// those of Stacks to the layers, which gather them one layer at a time, unless they stay gathered for the backward
/// pass anyway.
template <FsdpPolicy policy, class T> constexpr void gather_parameters(T& object) {
  if constexpr (is_leaf_v<T> || (is_stack_v<T> && !policy.reshard_after_forward)) {
    const GatherLeaves<policy> gather;
    for_each_leaf(object, gather);
  } else if constexpr (is_tuple_v<T>) {
    std::apply([](auto&... items) { (gather_parameters<policy>(items), ...); }, object);
  } else if constexpr (is_array_v<T>) {
    for (auto& item : object) gather_parameters<policy>(item);
  } else if constexpr (!is_stack_v<T> && !is_fsdp_v<T> && !std::is_empty_v<T>) {
    for_each_field(object, [](auto& field) { gather_parameters<policy>(field); });
  }
}

template <FsdpPolicy policy, class X> constexpr decltype(auto) fsdp_argument(const X& x) {
  if constexpr (TensorOperand<X> && is_half(policy.compute_dtype)) {
    if constexpr (std::is_same_v<typename X::element, float>)
      return cast<element_t<policy.compute_dtype>>(x);
    else
      return (x);
  } else {
    return (x);
  }
}

}  // namespace detail

/// A model whose parameters are stored in parts, one on each device of an axis, and gathered where they are used, as
/// torch.distributed.fsdp.FullyShardedDataParallel, fully_shard, and PyTorch/XLA's XlaFullyShardedDataParallel. It is a
/// value: copied, traced, differentiated, updated by optimizers and saved like the model, whose names its parameters
/// keep.
///
/// fsdp() makes it from a model; Fsdp<Block> may be the block of a Stack or a field of a model, also of a model that is
/// wrapped.
///
///     auto wrapped = ts::fsdp(model, mesh);                      // Fsdp<Mlp>
///     auto [next, next_state, loss] = step(wrapped, state, x, y);  // as with the model
template <class Model, FsdpPolicy policy = FsdpPolicy{}> struct Fsdp {
  Model module;

  static constexpr std::array field_names{""};  // the paths of parameters are those of the model

  /// The model, called with the same arguments. Communication, for each parameter and step: an all_gather in the
  /// forward pass and another in the backward pass (without reshard_after_forward only the first), a reduce_scatter of
  /// its gradient.
  template <class... Args> constexpr auto operator()(const Args&... args) const {
    static_assert(policy.compute_dtype == DType::f32 || is_half(policy.compute_dtype),
                  "tessera: Fsdp computes in f32, bf16 or f16");
    using Result = decltype(module(detail::fsdp_argument<policy>(args)...));
    using Settled = decltype(detail::settle(std::declval<Result>()));
    if constexpr (!std::is_same_v<Result, Settled>) {
      return module(detail::fsdp_argument<policy>(args)...);  // an expression of stored tensors, which is traced later
    } else {
      const Value context = detail::trace_in(module);
      // In a Stack, whose backward pass is a loop of its own, parameters are gathered in both without more ado.
      if (context.module == nullptr || (policy.reshard_after_forward && context.module->current != 0))
        return module(detail::fsdp_argument<policy>(args)...);
      Model gathered = module;
      if constexpr (!policy.reshard_after_forward) {
        detail::gather_parameters<policy>(gathered);
        return gathered(detail::fsdp_argument<policy>(args)...);
      } else {
        detail::OpenCheckpoint region(context, all_but_constraints_saveable);
        detail::gather_parameters<policy>(gathered);
        Result result = gathered(detail::fsdp_argument<policy>(args)...);
        region.close();
        return result;
      }
    }
  }
};

namespace detail {
/// Calls f(name, leaf) for the tensors of a model, layer by layer.
template <class Model, class F> void for_each_stored(Model& model, F&& f) {
  for_each_named_leaf(model, VisitLayers::each, [&](std::string_view name, auto& leaf, int) {
    if constexpr (StoredOperand<std::remove_cvref_t<decltype(leaf)>>) f(name, leaf);
  });
}
}  // namespace detail

/// Wraps a model that exists, on any mesh: its tensors are moved to `mesh`, and floating-point ones split over the axis
/// of the policy, each in one dim, unevenly where extents don't divide. Other axes, such as an extra data axis, keep
/// copies (hybrid sharding). A parameter that an axis splits already is left as it is, unless options.split_sharded
/// says otherwise; so is one of rank 0. Errors: `mesh_axis` for an axis that the mesh lacks; `empty_tensor`.
/// Communication: none from replicated parameters.
///
///     const ts::Mesh mesh({{"data", 2}, {"fsdp", 4}});
///     auto wrapped = ts::fsdp(model, mesh, {.min_elements = 1024});
///     auto zero2 = ts::fsdp<ts::FsdpPolicy{.reshard_after_forward = false}>(model, mesh);
template <FsdpPolicy policy = FsdpPolicy{}, class Model>
Fsdp<Model, policy> fsdp(Model model, const Mesh& mesh, const FsdpOptions& options = {}, Here at = Here::current()) {
  mesh.axis_index(policy.axis.view());
  detail::for_each_stored(model, [&](std::string_view name, auto& leaf) {
    const Mesh& before = tessera::mesh(leaf);
    const bool moved = !(before == mesh);
    const PartitionSpec spec = moved ? PartitionSpec{} : spec_of(sharding(leaf), mesh);
    const bool left = !is_floating_v<typename std::remove_cvref_t<decltype(leaf)>::element> ||
                      (!moved && !sharding(leaf).is_replicated() && !options.split_sharded) ||
                      size(leaf) < options.min_elements ||
                      (options.wraps && !options.wraps(std::string(name), shape(leaf)));
    leaf = reshard(leaf, mesh, left ? spec : split_in_storage(spec, shape(leaf), mesh, policy.axis.view(), options.dim),
                   at);
  });
  return {std::move(model)};
}

/// The model of a wrapper, with parameters that are gathered: each has the sharding that it had before fsdp(). Errors:
/// `empty_tensor`. Communication: an all_gather of each parameter that fsdp() split.
template <class Model, FsdpPolicy policy> Model unwrap(Fsdp<Model, policy> wrapped, Here at = Here::current()) {
  detail::for_each_stored(wrapped.module, [&](std::string_view, auto& leaf) {
    PartitionSpec spec = spec_of(sharding(leaf), mesh(leaf));
    for (SpecEntry& entry : spec.entries)
      if (entry.priority > 0) entry = SpecEntry();
    leaf = reshard(leaf, spec, at);
  });
  return std::move(wrapped.module);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
