#ifndef TESSERA_NN_LORA_HPP
#define TESSERA_NN_LORA_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/recast.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/stop_gradient.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

// Low-rank adapters of linear layers.

namespace tessera::nn {

/// LoRA, as lora.Linear of peft without dropout: base(x) + scaling (x lora_a) lora_b. Only lora_a and lora_b have
/// gradients; those of the base are zeros. It can be the `Projection` of Attention, MultiHeadAttention, Mlp, Block,
/// EncoderLayer, DecoderLayer, LlamaBlock and others: `Block<float, CausalAttention, LoraLinear<>>`. An x of bf16 or
/// f16 is handled as in Linear. Communication: with the weight sharded along `in`, an all_reduce of x lora_a beside
/// that of Linear. Source: Hu et al., 2106.09685.
template <Element T = float, bool Bias = true> struct LoraLinear {
  Linear<T, Bias> base;
  ShardedTensor<T, 2> lora_a;  ///< [in, rank]
  ShardedTensor<T, 2> lora_b;  ///< [rank, out]
  Scalar scaling = 1.0;        ///< alpha / rank

  static constexpr std::array field_names{"base", "lora_a", "lora_b", "scaling"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    constexpr bool is_mixed = detail::is_mixed_v<X, T>;
    const auto product = [&](const auto& a, const auto& b) {
      if constexpr (is_mixed)
        return matmul<float>(a, detail::as_met_by<X>(b, at), at);
      else
        return matmul(a, b, at);
    };
    const auto low = Linear<T, false>{lora_a}(x, at);  // [..., rank]
    const auto sum = product(x, stop_gradient(base.weight)) + product(low, lora_b) * scaling;
    const auto biased = [&] {
      if constexpr (Bias)
        return sum + stop_gradient(base.bias);
      else
        return sum;
    }();
    if constexpr (is_mixed)
      return cast<typename X::element>(biased, at);
    else
      return biased;
  }

  /// The equivalent Linear, with the weight base.weight + scaling lora_a lora_b in the sharding of the base. Works in
  /// and outside of a traced function. Communication: none for the shardings of add_lora and lora_linear; dims that are
  /// gathered on use are gathered.
  constexpr Linear<T, Bias> merge(Here at = Here::current()) const {
    Linear<T, Bias> merged = base;
    const auto weight = base.weight + matmul(lora_a, lora_b, at) * scaling;
    if (__builtin_is_constant_evaluated())
      merged.weight = tessera::detail::settle(weight);
    else
      merged.weight = sharded_as_base(weight);
    return merged;
  }

 private:
  ShardedTensor<T, 2> sharded_as_base(const ShardedTensor<T, 2>& weight) const {
    const Mesh& on = mesh(base.weight);
    return reshard(weight, on, spec_of(sharding(base.weight), on));
  }
};

/// The options of peft's LoraConfig: its r and lora_alpha.
struct LoraConfig {
  std::int64_t rank = 8;
  double alpha = 8;
};

namespace detail {

struct AddLora {
  template <class T> using of = T;
};
struct MergeLora {
  template <class T> using of = T;
};

template <Element T, bool Bias>
LoraLinear<T, Bias> adapted(const Linear<T, Bias>& base, Key key, const LoraConfig& config, Here at) {
  if (config.rank < 1) fail(errc::option, "[lora] rank: ", config.rank, " is not positive", Source::from(at));
  const Mesh& on = mesh(base.weight);
  const PartitionSpec spec = spec_of(sharding(base.weight), on);
  const auto entry = [&](std::size_t d) { return d < spec.entries.size() ? spec.entries[d] : SpecEntry{}; };
  const std::int64_t in = shape(base.weight)[0], out = shape(base.weight)[1];
  const auto bound = static_cast<computed_t<T>>(1 / std::sqrt(static_cast<double>(in < 1 ? 1 : in)));
  return {base, uniform<T>(key, {in, config.rank}, on, {entry(0), none}, -bound, bound),
          zeros<T>({config.rank, out}, on, {none, entry(1)}), config.alpha / static_cast<double>(config.rank)};
}

struct Adapt {
  Key key;
  LoraConfig config;
  Here at;
  std::uint64_t& count;
  template <Element T, bool Bias>
  LoraLinear<T, Bias> operator()(std::type_identity<LoraLinear<T, Bias>>, const Linear<T, Bias>& base) const {
    return adapted(base, fold_in(key, count++), config, at);
  }
};
struct Merge {
  Here at;
  template <Element T, bool Bias>
  constexpr Linear<T, Bias> operator()(std::type_identity<Linear<T, Bias>>, const LoraLinear<T, Bias>& adapted) const {
    return adapted.merge(at);
  }
};

}  // namespace detail

}  // namespace tessera::nn

namespace tessera::detail {
template <Element T, bool Bias> struct Recast<nn::detail::AddLora, nn::Linear<T, Bias>> {
  using type = nn::LoraLinear<T, Bias>;
};
template <Element T, bool Bias> struct Recast<nn::detail::MergeLora, nn::LoraLinear<T, Bias>> {
  using type = nn::Linear<T, Bias>;
};
}  // namespace tessera::detail

namespace tessera::nn {

/// The model with adapters, as peft.get_peft_model. In its type, LoraLinear replaces each Linear that is a template
/// argument. lora_a is uniform within 1 / sqrt(in), different in each adapter; lora_b is zeros, so that the results of
/// the model do not change. Adapters are sharded like the dims of their weight.
///
///     ts::Stack<ts::nn::Block<>> blocks = ...;
///     auto adapted = ts::nn::add_lora(blocks, ts::Key(1), {.rank = 4, .alpha = 8});
/// For a model that is not a template, write the type of the result, with LoraLinear for each adapted layer:
///
///     auto adapted = ts::nn::add_lora<LoraGpt>(gpt, ts::Key(1));     // both have the same fields
/// Errors: option for a rank below 1. No communication.
template <class Model>
auto add_lora(const Model& model, Key key, const LoraConfig& config = {}, Here at = Here::current()) {
  using To = tessera::detail::recast_t<detail::AddLora, Model>;
  constexpr bool has_linear = !std::is_same_v<To, Model>;
  static_assert(has_linear, "tessera: add_lora finds no nn::Linear in the template arguments of this model; name the "
                            "type of the result, which has nn::LoraLinear in the place of nn::Linear, as in "
                            "ts::nn::add_lora<LoraGpt>(gpt, key)");
  std::uint64_t count = 0;
  return tessera::detail::rebuilt<To>(model, detail::Adapt{key, config, at, count});
}
template <class To, class Model>
To add_lora(const Model& model, Key key, const LoraConfig& config = {}, Here at = Here::current()) {
  std::uint64_t count = 0;
  return tessera::detail::rebuilt<To>(model, detail::Adapt{key, config, at, count});
}

/// The equivalent model without adapters, as merge_and_unload of peft: calls LoraLinear::merge of each adapter.
/// `merge_lora<Gpt>(adapted)` names the type of the result. Works in and outside of a traced function.
template <class Model> constexpr auto merge_lora(const Model& model, Here at = Here::current()) {
  using To = tessera::detail::recast_t<detail::MergeLora, Model>;
  constexpr bool has_adapter = !std::is_same_v<To, Model>;
  static_assert(has_adapter,
                "tessera: merge_lora finds no nn::LoraLinear in the template arguments of this model; name "
                "the type of the result, as in ts::nn::merge_lora<Gpt>(adapted)");
  return tessera::detail::rebuilt<To>(model, detail::Merge{at});
}
template <class To, class Model> constexpr To merge_lora(const Model& model, Here at = Here::current()) {
  return tessera::detail::rebuilt<To>(model, detail::Merge{at});
}

/// A Linear with an adapter, with the initial values of `linear` and add_lora.
template <Element T = float, bool Bias = true>
LoraLinear<T, Bias> lora_linear(Key key, Extent in, Extent out, const ShardingStrategy& strategy,
                                const LoraConfig& config = {}, Role role = Role::column, double stddev = 0.02,
                                Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return detail::adapted(linear<T, Bias>(first, in, out, strategy, role, stddev), second, config, at);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
