#ifndef TESSERA_OPTIM_STATE_ZERO_REDUNDANCY_HPP
#define TESSERA_OPTIM_STATE_ZERO_REDUNDANCY_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

namespace tessera::optim {

/// Splits an optimizer state over a mesh axis along which the parameters are replicated: ZeRO stage 1,
/// torch.distributed.optim.ZeroRedundancyOptimizer.
struct ZeroRedundancy {
  std::string_view axis;
};

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
