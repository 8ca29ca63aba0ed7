#ifndef TESSERA_OPTIM_GROUPS_HPP
#define TESSERA_OPTIM_GROUPS_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/nn/freeze.hpp>

namespace tessera::optim {

/// The parameters whose names match, and their hyper-parameters: a group of torch.optim's param_groups.
template <class Config> struct Group {
  nn::Names names;
  Config config;
  Source source;  ///< the user's line

  constexpr Group(const nn::Names& of, const Config& given, Here at = Here::current())
      : names(of), config(given), source(Source::from(at)) {}
};

namespace detail {

template <class Step, class Config> constexpr auto step_by_group(const Step& step, const Config& others) {
  return step(others);
}
template <class Step, class Config, class First, class... Rest>
constexpr auto step_by_group(const Step& step, const Config& others, const Group<First>& first,
                             const Group<Rest>&... rest) {
  const auto without = step_by_group(step, others, rest...), with = step(first.config);
  if constexpr (tessera::detail::is_tuple_v<std::remove_const_t<decltype(with)>>) {
    nn::detail::check_names(std::get<0>(with), first.names, first.source);
    using Model = std::remove_cvref_t<decltype(std::get<0>(with))>;
    return std::tuple(
        nn::detail::kept_model(first.names, std::get<0>(with), std::get<0>(without), first.source),
        nn::detail::kept_state<Model>(first.names, std::get<1>(with), std::get<1>(without), first.source));
  } else {
    nn::detail::check_names(with, first.names, first.source);
    return nn::detail::kept_model(first.names, with, without, first.source);
  }
}

}  // namespace detail

/// Inside a traced function: one step of an optimizer with different hyper-parameters for groups of parameters,
/// selected by name. `step(config)` is a step with one configuration. Each parameter gets the configuration of the
/// first group whose names match it, or `others`. Updates that no group uses are not computed.
///
///     constexpr nn::Names plain("*.bias", "*.gain", "tokens.*");
///     const auto [next, next_state] = ts::optim::by_group(
///         [&](const auto& config) { return ts::adamw(model, gradient, state, config); }, config,
///         ts::optim::Group(plain, slow));   // slow: an AdamW with its own learning_rate and weight_decay
/// Errors: `option` for a pattern that names no floating-point tensor of the model. It adds no communication.
template <class Step, class Config, class... Configs>
constexpr auto by_group(const Step& step, const Config& others, const Group<Configs>&... groups) {
  return detail::step_by_group(step, others, groups...);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
