#ifndef TESSERA_PARALLEL_AUTO_WRAP_POLICY_HPP
#define TESSERA_PARALLEL_AUTO_WRAP_POLICY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/nn/attention/attention.hpp>
#include <tessera/nn/attention/multi_head_attention.hpp>
#include <tessera/parallel/fsdp.hpp>

namespace tessera {

/// The layers of a model whose parameters ts::fsdp splits, given by their paths: a value for FsdpOptions::wraps. Other
/// parameters stay replicated.
struct AutoWrapPolicy {
  std::vector<std::string> layers;  ///< "blocks.0.mlp"; "" is the model itself

  bool operator()(const std::string& path, const Shape&) const {
    for (const std::string& layer : layers)
      if (layer.empty() || path == layer || (path.starts_with(layer) && path[layer.size()] == '.')) return true;
    return false;
  }
};

namespace detail {

template <class T> inline constexpr bool is_attention_v = false;
template <Element T, bool Bias, class Kernel, class Projection>
inline constexpr bool is_attention_v<nn::Attention<T, Bias, Kernel, Projection>> = true;
template <Element T, bool Bias, class Projection>
inline constexpr bool is_attention_v<nn::MultiHeadAttention<T, Bias, Projection>> = true;

/// Asks choose(path, layer, elements) for each layer below a model, the inner ones first; `elements` are those of its
/// floating-point tensors that are in no chosen layer. Wrappers and containers are no layers.
template <class Choose> class WrapLayers {
 public:
  explicit WrapLayers(const Choose& choose) : choose_(choose) {}

  template <class T> std::int64_t visit(const T& object, const std::string& path, bool within_leaf = false) {
    if constexpr (is_leaf_v<T>) {
      if constexpr (StoredOperand<T>)
        if constexpr (is_floating_v<typename T::element>) return size(object);
      return 0;
    } else if constexpr (is_stack_v<T>) {
      std::int64_t left = 0;
      for (int i = 0; i < object.size(); ++i) left += layer(object[i], joined(path, std::to_string(i)), within_leaf);
      return left;
    } else if constexpr (is_tuple_v<T>) {
      std::size_t i = 0;
      return std::apply(
          [&](const auto&... items) {
            return (std::int64_t{0} + ... + layer(items, joined(path, std::to_string(i++)), within_leaf));
          },
          object);
    } else if constexpr (is_array_v<T>) {
      std::int64_t left = 0;
      for (std::size_t i = 0; i < object.size(); ++i)
        left += layer(object[i], joined(path, std::to_string(i)), within_leaf);
      return left;
    } else if constexpr (std::is_empty_v<T>) {
      return 0;
    } else {
      std::int64_t left = 0;
      std::size_t i = 0;
      for_each_field(object, [&](const auto& field) {
        left += layer(field, joined(path, field_name<T>(i++)), within_leaf || is_attention_v<T>);
      });
      return left;
    }
  }
  std::vector<std::string> chosen;

 private:
  const Choose& choose_;

  template <class T> std::int64_t layer(const T& object, const std::string& path, bool within_leaf) {
    const std::int64_t left = visit(object, path, within_leaf);
    constexpr bool is_layer =
        !is_leaf_v<T> && !is_stack_v<T> && !is_tuple_v<T> && !is_array_v<T> && !is_fsdp_v<T> && !std::is_empty_v<T>;
    if constexpr (is_layer)
      if (!within_leaf && choose_(path, object, left)) {
        chosen.push_back(path);
        return 0;
      }
    return left;
  }
  static std::string joined(const std::string& path, const std::string& part) {
    return path.empty() || part.empty() ? path + part : path + "." + part;
  }
  template <class T> static std::string field_name(std::size_t i) {
    if constexpr (names_fields<T>())
      if (i < std::size(T::field_names)) return std::string(std::string_view(T::field_names[i]));
    return std::to_string(i);
  }
};

template <class Model, class Choose> AutoWrapPolicy wrap_layers(const Model& model, const Choose& choose) {
  WrapLayers<Choose> layers(choose);
  layers.visit(model, "");
  return {std::move(layers.chosen)};
}

}  // namespace detail

/// Layers with at least a given number of elements, not counting those in inner layers of the policy, as
/// torch.distributed.fsdp.wrap.size_based_auto_wrap_policy: containers are not layers, and attention is one layer.
///
///     auto wrapped = ts::fsdp(model, mesh, {.wraps = ts::size_based_auto_wrap_policy(model, 100'000)});
template <class Model>
AutoWrapPolicy size_based_auto_wrap_policy(const Model& model, std::int64_t min_num_params = 100'000'000) {
  return detail::wrap_layers(
      model, [&](const std::string&, const auto&, std::int64_t elements) { return elements >= min_num_params; });
}

/// Layers of the given classes, as torch.distributed.fsdp.wrap.transformer_auto_wrap_policy.
///
///     auto wrapped = ts::fsdp(model, mesh, {.wraps = ts::transformer_auto_wrap_policy<ts::nn::Block<>>(model)});
template <class... Layers, class Model> AutoWrapPolicy transformer_auto_wrap_policy(const Model& model) {
  static_assert(sizeof...(Layers) > 0, "tessera: transformer_auto_wrap_policy needs the classes of layers");
  return detail::wrap_layers(model, [](const std::string&, const auto& layer, std::int64_t) {
    return (std::is_same_v<std::remove_cvref_t<decltype(layer)>, Layers> || ...);
  });
}

/// All parameters, as torch.distributed.fsdp.wrap.always_wrap_policy. This is also the default without a policy.
template <class Model> AutoWrapPolicy always_wrap_policy(const Model&) { return {{""}}; }

/// Layers for which f(path, layer) is true; the layer has the type that it has in the model. As
/// torch.distributed.fsdp.wrap.lambda_auto_wrap_policy.
///
///     ts::lambda_auto_wrap_policy(model, [](const std::string& path, const auto&) { return path.ends_with("mlp"); });
template <class Model, class F> AutoWrapPolicy lambda_auto_wrap_policy(const Model& model, const F& f) {
  return detail::wrap_layers(model,
                             [&](const std::string& path, const auto& layer, std::int64_t) { return f(path, layer); });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
