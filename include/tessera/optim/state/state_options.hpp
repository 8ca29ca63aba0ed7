#ifndef TESSERA_OPTIM_STATE_STATE_OPTIONS_HPP
#define TESSERA_OPTIM_STATE_STATE_OPTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/nn/freeze.hpp>

namespace tessera::optim {

/// Splits an optimizer state over a mesh axis along which the parameters are replicated: ZeRO stage 1,
/// torch.distributed.optim.ZeroRedundancyOptimizer.
struct ZeroRedundancy {
  std::string_view axis;
};

namespace detail {
/// Throws `option` for a pattern that names no floating-point tensor of the model of a state.
constexpr void require_used(const nn::detail::UsedPatterns& patterns, Here at) {
  patterns.for_each_unused([&](std::string_view pattern) {
    fail(errc::option, nn::detail::UsedPatterns::rule, ": ", pattern, " in init_state", Source::from(at));
  });
}
}  // namespace detail

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
