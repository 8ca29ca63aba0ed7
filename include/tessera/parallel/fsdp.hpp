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
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/storage_split.hpp>
#include <tessera/ops/checkpoint.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/custom/custom_gradient.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/parallel/required_axis.hpp>
#include <tessera/tensor/reshard.hpp>
#include <tessera/tensor/storage/require_data.hpp>

namespace tessera {

/// When a wrapped model gathers parameters, and in which element types it computes and reduces. It is a template
/// argument of the wrapper, since it changes the traced program.
struct FsdpPolicy {
  Name axis = "fsdp";  ///< the mesh axis over which parameters are split
  /// true (ZeRO stage 3): a parameter is gathered for the forward pass and again for the backward pass; parameters of a
  /// Stack one layer at a time. false (stage 2): it is gathered once and stays gathered in between, which sends less
  /// and needs more memory. The block of a Stack always gathers in both passes; for stage 2 wrap a model that has the
  /// Stack as a field.
  bool reshard_after_forward = true;
  /// bf16 or f16: f32 arguments are rounded to this type, and layers compute in it; stored parameters keep their type.
  /// f32: arguments are not converted.
  DType compute_dtype = DType::f32;
  /// The element type in which f32 gradients are reduced over the axis: f32, or bf16, with which each device rounds its
  /// part of a sum and half as many bytes are sent; optimizers still compute in f32. For a Stack, wrap its block.
  DType reduce_dtype = DType::f32;
};

/// How fsdp() stores parameters.
struct FsdpOptions {
  StorageDim dim = StorageDim::largest;  ///< outermost: shard_param_on_dim_0 of PyTorch/XLA, Shard(0) of PyTorch
  std::int64_t min_elements = 0;         ///< smaller parameters stay as they are
  bool split_sharded = false;            ///< whether parameters that other axes split are split over this axis too
  std::function<bool(const std::string& path, const Shape& shape)> wraps{};  ///< which parameters; empty: all of them
};

/// The planner chooses the sharding of the output of a wrapped model.
struct PlannedOutput {
  template <class Result> constexpr Result operator()(const Result& result) const { return result; }
};
/// Splits the output of a wrapped model over an axis in one dim; for a tuple, each tensor. `dim` 0 is the behaviour of
/// PyTorch/XLA's FSDPv2.
template <FixedString axis = "fsdp", int dim = 0> struct ShardOutput {
  template <class Result> constexpr auto operator()(const Result& result) const {
    if constexpr (detail::is_tuple_v<Result>)
      return std::apply([&](const auto&... items) { return std::tuple((*this)(items)...); }, result);
    else if constexpr (Result::rank > dim)
      return Sym<typename Result::element, Result::rank>(
          detail::split_over(here(detail::value_behind(result)), axis.view(), dim, Result::rank));
    else
      return result;
  }
};

template <class Model, FsdpPolicy policy, class Output> struct Fsdp;

namespace detail {

template <class T> inline constexpr bool is_fsdp_v = false;
template <class Model, FsdpPolicy policy, class Output>
inline constexpr bool is_fsdp_v<Fsdp<Model, policy, Output>> = true;

/// Calls f(leaf, value) for the floating-point tensors of a traced model.
template <class F> struct VisitParameters {
  F f;
  bool in_stack = false;
  constexpr void leaf(auto& leaf) const {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (TensorOperand<Type>)
      if constexpr (is_floating_v<typename Type::element>)
        f(leaf, Sym<typename Type::element, Type::rank>(here(value_behind(leaf))), in_stack);
  }
  constexpr void enter_stack(const auto&) { in_stack = true; }
  constexpr void enter_layer(int) const {}
  constexpr void leave_stack() { in_stack = false; }
};

/// Visits the parameters that a wrapper gathers together. Those of nested wrappers are left to them, those of Stacks to
/// the layers, which gather them one layer at a time, unless they stay gathered for the backward pass anyway.
template <FsdpPolicy policy, class T, class Visitor> constexpr void visit_own_parameters(T& object, Visitor& visitor) {
  if constexpr (is_leaf_v<T> || (is_stack_v<T> && !policy.reshard_after_forward)) {
    for_each_leaf(object, visitor);
  } else if constexpr (is_tuple_v<T>) {
    std::apply([&](auto&... items) { (visit_own_parameters<policy>(items, visitor), ...); }, object);
  } else if constexpr (is_array_v<T>) {
    for (auto& item : object) visit_own_parameters<policy>(item, visitor);
  } else if constexpr (!is_stack_v<T> && !is_fsdp_v<T> && !std::is_empty_v<T>) {
    for_each_field(object, [&](auto& field) { visit_own_parameters<policy>(field, visitor); });
  }
}

/// Gathers a parameter for all its uses. A gradient that a loop of the model sums up is reduced after the loop; those
/// of a Stack's layers layer by layer, so that no device has whole gradients of all layers.
template <FsdpPolicy policy> struct GatherParameter {
  template <class Leaf, class T, int Rank>
  constexpr void operator()(Leaf& leaf, const Sym<T, Rank>& stored, bool in_stack) const {
    // Rounded first, half as many bytes are gathered.
    if constexpr (is_half(policy.compute_dtype) && std::is_same_v<T, float>) {
      using Half = element_t<policy.compute_dtype>;
      leaf = Leaf(cast<float>(Sym<Half, Rank>(gathered_over(cast<Half>(stored).value, policy.axis.view()))).value);
    } else {
      leaf = Leaf(gathered_over(stored.value, policy.axis.view(),
                                in_stack ? CotangentSharding::free : CotangentSharding::stored));
    }
  }
};

/// A gradient in the sharding of its parameter, reduced in the element type of the policy.
template <FsdpPolicy policy> constexpr Value reduced_as_stored(const Value& gradient, const Value& stored) {
  const bool rounds = policy.reduce_dtype == DType::bf16 && gradient.dtype() == DType::f32;
  const Value parts = rounds ? build::cast_parts(gradient, DType::bf16) : gradient;
  const Value sum = summed_over(parts, policy.axis.view());
  return build::cast(build::alike(sum, stored, {.exactly = true}), stored.dtype());
}
/// Makes the gradient of a parameter one that is reduced in the element type of the policy.
template <FsdpPolicy policy> struct ReduceGradient {
  template <class Leaf, class T, int Rank>
  constexpr void operator()(Leaf& leaf, const Sym<T, Rank>& stored, bool /*in_stack*/) const {
    const auto reduced = custom_vjp([](const auto& x) { return std::tuple(x, x); },
                                    [](const auto& x, const auto& gradient) {
                                      return Sym<T, Rank>(reduced_as_stored<policy>(gradient.value, x.value));
                                    });
    leaf = Leaf(reduced(stored).value);
  }
};

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

/// A model whose parameters are split over an axis and gathered when they are used, as
/// torch.distributed.fsdp.FullyShardedDataParallel, fully_shard, and PyTorch/XLA's XlaFullyShardedDataParallel. It is a
/// value: it is copied, traced, differentiated, updated by optimizers and saved like the model, and its parameters have
/// the names of the model.
///
/// Make it with fsdp(). Fsdp<Block> can also be the block of a Stack or a field of a model, which may be wrapped
/// itself.
///
///     auto wrapped = ts::fsdp(model, mesh);                      // Fsdp<Mlp>
///     auto [next, next_state, loss] = step(wrapped, state, x, y);  // as with the model
template <class Model, FsdpPolicy policy = FsdpPolicy{}, class Output = PlannedOutput> struct Fsdp {
  static_assert(!detail::is_fsdp_v<Model>,
                "tessera: the model is a ts::Fsdp already, and a model is wrapped once: give ts::fsdp the model in it, "
                "or what ts::unwrap returns");
  static_assert(std::is_empty_v<Output> && std::is_default_constructible_v<Output>,
                "tessera: the function that shards the output of a ts::Fsdp is traced by the compiler, so it can't "
                "capture variables");
  Model module;

  static constexpr std::array field_names{""};  // the paths of parameters are those of the model

  /// Calls the model with the same arguments. Communication, for each parameter and step: an all_gather in the forward
  /// pass and another in the backward pass (without reshard_after_forward only the first), and a reduce_scatter of its
  /// gradient. A parameter that the axis splits for computations, such as experts, stays split.
  TESSERA_LAYER_OPERATOR(called)

 private:
  template <class... Args> constexpr auto called(Here at, const Args&... args) const {
    const detail::LayerCall call(at, args...);
    static_assert(policy.compute_dtype == DType::f32 || is_half(policy.compute_dtype),
                  "tessera: Fsdp computes in f32, bf16 or f16");
    static_assert(policy.reduce_dtype == DType::f32 || policy.reduce_dtype == DType::bf16,
                  "tessera: Fsdp reduces gradients in f32 or bf16");
    using Result = decltype(module(detail::fsdp_argument<policy>(args)...));
    using Settled = decltype(detail::settle(std::declval<Result>()));
    if constexpr (!std::is_same_v<Result, Settled>) {
      return module(detail::fsdp_argument<policy>(args)...);  // an expression of stored tensors, which is traced later
    } else {
      const Value context = detail::trace_in(module);
      if constexpr (std::is_same_v<Output, PlannedOutput>) {
        return with_own_policy(context, args...);
      } else {
        const Result result = with_own_policy(context, args...);
        using Sharded = decltype(Output{}(result));
        static_assert(std::is_same_v<Sharded, Result>,
                      "tessera: the function that shards the output of a ts::Fsdp returns tensors of the same types");
        return context.module == nullptr ? result : Output{}(result);
      }
    }
  }

  template <class... Args> constexpr auto with_own_policy(const Value& context, const Args&... args) const {
    if constexpr (policy.reduce_dtype != DType::f32) {
      if (context.module == nullptr) return module(detail::fsdp_argument<policy>(args)...);
      Model reduced = module;
      detail::VisitParameters<detail::ReduceGradient<policy>> reduce{};
      detail::visit_own_parameters<policy>(reduced, reduce);
      return with_gathered(reduced, context, args...);
    } else {
      return with_gathered(module, context, args...);
    }
  }
  template <class... Args>
  static constexpr auto with_gathered(const Model& stored, const Value& context, const Args&... args) {
    // In a Stack, whose backward pass is a separate loop, parameters are gathered in both passes anyway.
    if (context.module == nullptr || (policy.reshard_after_forward && context.module->current != 0))
      return stored(detail::fsdp_argument<policy>(args)...);
    Model gathered = stored;
    detail::VisitParameters<detail::GatherParameter<policy>> gather{};
    if constexpr (!policy.reshard_after_forward) {
      detail::visit_own_parameters<policy>(gathered, gather);
      return gathered(detail::fsdp_argument<policy>(args)...);
    } else {
      detail::OpenCheckpoint region(context, {CheckpointPolicy::Kind::all_but_gathers});
      detail::visit_own_parameters<policy>(gathered, gather);
      auto result = gathered(detail::fsdp_argument<policy>(args)...);
      region.close_around_others();
      return result;
    }
  }
};

namespace detail {
/// Splits the tensors of a model as fsdp() does.
struct SplitParameters {
  const Mesh& mesh;
  const FsdpOptions& options;
  std::string_view axis;
  Here at;
  template <class Leaf> void operator()(std::string_view name, Leaf& leaf, int) const {
    if constexpr (StoredOperand<Leaf>) {
      const Mesh& before = tessera::mesh(leaf);
      const bool moved = !(before == mesh);
      const PartitionSpec spec = moved ? PartitionSpec{} : spec_of(sharding(leaf), mesh);
      const bool left = !is_floating_v<typename Leaf::element> ||
                        (!moved && !sharding(leaf).is_replicated() && !options.split_sharded) ||
                        size(leaf) < options.min_elements ||
                        (options.wraps && !options.wraps(std::string(name), shape(leaf)));
      leaf = reshard(leaf, mesh, left ? spec : split_in_storage(spec, shape(leaf), mesh, axis, options.dim), at);
    }
  }
};
/// Gathers the tensors of a model that SplitParameters split.
struct GatherParameters {
  Here at;
  template <class Leaf> void operator()(std::string_view, Leaf& leaf, int) const {
    if constexpr (StoredOperand<Leaf>) {
      PartitionSpec spec = spec_of(sharding(leaf), mesh(leaf));
      for (SpecEntry& entry : spec.entries)
        if (entry.priority > 0) entry = SpecEntry();
      leaf = reshard(leaf, spec, at);
    }
  }
};
}  // namespace detail

/// Wraps a model on any mesh: its tensors are moved to `mesh`, and floating-point tensors are split over the axis of
/// the policy, each in one dim, unevenly if the extent does not divide. Along other axes, such as an extra data axis,
/// devices keep copies (hybrid sharding). A parameter that another axis splits already is not changed, unless
/// options.split_sharded is set; nor is a parameter of rank 0. Errors: `mesh_axis` for an axis that the mesh lacks;
/// `empty_tensor`. Communication: none from replicated parameters.
///
///     const ts::Mesh mesh({{"data", 2}, {"fsdp", 4}});
///     auto wrapped = ts::fsdp(model, mesh, {.min_elements = 1024});
///     auto zero2 = ts::fsdp<ts::FsdpPolicy{.reshard_after_forward = false}>(model, mesh);
template <FsdpPolicy policy = FsdpPolicy{}, class Model>
Fsdp<Model, policy> fsdp(Model model, const Mesh& mesh, const FsdpOptions& options = {}, Here at = Here::current()) {
  detail::required_axis("fsdp", mesh, policy.axis.view(), at);
  detail::require_data("fsdp", model, at);
  detail::for_each_named_leaf(model, detail::VisitLayers::each,
                              detail::SplitParameters{mesh, options, policy.axis.view(), at});
  return {std::move(model)};
}

/// fsdp() with a function that shards the output of the model, as shard_output of PyTorch/XLA's FSDPv2: ShardOutput, or
/// your own function without captures.
///
///     auto wrapped = ts::fsdp(model, mesh, {}, ts::ShardOutput<"fsdp", 0>());
///     auto other = ts::fsdp(model, mesh, {}, [](const auto& y) { return ts::with_sharding(y, {"fsdp"}); });
template <FsdpPolicy policy = FsdpPolicy{}, class Model, class Output>
  requires(!std::is_convertible_v<Output, Here>)
Fsdp<Model, policy, Output> fsdp(Model model, const Mesh& mesh, const FsdpOptions& options, const Output&,
                                 Here at = Here::current()) {
  return {fsdp<policy>(std::move(model), mesh, options, at).module};
}

/// The model of a wrapper, with gathered parameters: each has the sharding that it had before fsdp(). Errors:
/// `empty_tensor`. Communication: an all_gather of each parameter that fsdp() split.
template <class Model, FsdpPolicy policy, class Output>
Model unwrap(Fsdp<Model, policy, Output> wrapped, Here at = Here::current()) {
  detail::for_each_named_leaf(wrapped.module, detail::VisitLayers::each, detail::GatherParameters{at});
  return std::move(wrapped.module);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
