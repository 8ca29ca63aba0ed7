#ifndef TESSERA_OPTIM_LAYER_DECAY_HPP
#define TESSERA_OPTIM_LAYER_DECAY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera::optim {

namespace detail {

/// decay^(n - i) for layer i of a Stack of n layers, computed once for each Stack.
class LayerScales {
 public:
  constexpr explicit LayerScales(const Scalar& decay) : decay_(decay) {}

  /// How many layers the first Stack has, in f64; a null value before a Stack was visited.
  constexpr Value depth() const { return depth_; }
  constexpr Value power(Value exponent) const { return build::apply<ops::PowOp>(lower(exponent, decay_), exponent); }
  /// The scales for a tensor of the Stack whose name begins with `stack`, of the tensor's rank.
  constexpr Value of(std::string_view stack, Value tensor) {
    if (stack != std::string_view(stack_.data(), stack_.size()) || scales_.module == nullptr) {
      stack_.clear();
      for (const char c : stack) stack_.push_back(c);
      const Value count = build::extent(tensor, 0), layers = build::cast(count, DType::f64);
      if (depth_.module == nullptr) depth_ = layers;
      const Value layer = build::arange(count);
      scales_ = power(layers - build::cast(layer, DType::f64));
    }
    return build::insert_singletons(scales_, ((1u << tensor.rank()) - 1) & ~1u, tensor.rank());
  }

 private:
  const Scalar& decay_;
  Growable<char> stack_;
  Value scales_, depth_;
};

/// before + scale (after - before), in the sharding of `before`.
constexpr Value part_of_update(Value before, Value after, Value scale) {
  const DType type = before.dtype(), computed = computed_as(type);
  const Value from = build::cast(before, computed);
  const Value made = from + build::cast(scale, computed) * (build::cast(after, computed) - from);
  return build::alike(build::cast(made, type), before, {.exactly = true});
}

template <class Model>
constexpr Model decayed_by_layer(const Model& model, Model moved, const Scalar& decay, const nn::Names* first,
                                 Source source) {
  LayerScales scales(decay);
  Growable<Value> before;
  nn::detail::for_each_traced_parameter(model, [&](std::string_view name, const auto& leaf) {
    before.push_back(nn::detail::traced_value(leaf, source));
    const std::size_t star = name.find('*');
    if (star != std::string_view::npos && scales.depth().module == nullptr)
      scales.of(name.substr(0, star), before.back());
  });
  if (scales.depth().module == nullptr && !before.empty()) {
    before[0].refuse(errc::structure, "[layer_decay] model: it has no Stack, whose layers are counted");
    return moved;
  }
  std::size_t next = 0;
  nn::detail::for_each_traced_parameter(moved, [&](std::string_view name, auto& leaf) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    const Value own = before[next++], after = nn::detail::traced_value(leaf, source);
    if (const std::size_t star = name.find('*'); star != std::string_view::npos)
      leaf = Type(part_of_update(own, after, scales.of(name.substr(0, star), own)));
    else if (first != nullptr && first->contain(name))
      leaf = Type(part_of_update(own, after, scales.power(scales.depth() + 1)));
  });
  return moved;
}

}  // namespace detail

/// Inside a traced function, after the step of an optimizer: layer-wise decay of the learning rate, as for fine-tuning
/// vision transformers (`layer_decay` of timm and BEiT). `moved` is what the optimizer made of `model`. Layer i of a
/// Stack of n layers moves decay^(n - i) times as far. This equals a learning rate decay^(n - i) times as large for
/// optimizers whose update is linear in it, such as AdamW, SGD, Lion, Lamb and Muon, but not for Adafactor, Asgd and
/// Rprop. The tensors in `first`, those before the layers, move decay^(n + 1) times as far; all others, such as the
/// head, as the optimizer moved them. Several Stacks are counted separately, and `first` is before the first one.
///
///     const auto [moved, next_state] = ts::adamw(model, gradient, state, config);
///     const auto next = ts::optim::layer_decay(model, moved, 0.75, nn::Names("patches.*", "positions"));
/// Errors: `option` for a pattern that names no floating-point tensor of the model, `structure` for a model without a
/// Stack. Communication: none. Source: BEiT, 2106.08254; Clark et al., 2003.10555.
template <class Model>
constexpr Model layer_decay(const Model& model, const Model& moved, const Scalar& decay, const nn::Names& first,
                            Here at = Here::current()) {
  nn::detail::check_names(model, first, Source::from(at));
  return detail::decayed_by_layer(model, moved, decay, &first, Source::from(at));
}
/// The same for a model that begins with its layers.
template <class Model>
constexpr Model layer_decay(const Model& model, const Model& moved, const Scalar& decay, Here at = Here::current()) {
  return detail::decayed_by_layer(model, moved, decay, nullptr, Source::from(at));
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
