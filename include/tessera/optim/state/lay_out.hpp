#ifndef TESSERA_OPTIM_STATE_LAY_OUT_HPP
#define TESSERA_OPTIM_STATE_LAY_OUT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/shape.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/optim/optimizer.hpp>

namespace tessera::optim::detail {

/// Changes the shape and the spec of a parameter into those of its tensor in model `index` of an optimizer's state.
template <class Config> constexpr void lay_out(int index, int rank, Shape& shape, PartitionSpec& spec) {
  if constexpr (requires { Optimizer<Config>::lay_out(index, rank, shape, spec); })
    Optimizer<Config>::lay_out(index, rank, shape, spec);
}

}  // namespace tessera::optim::detail

#include <tessera/base/pop_macros.hpp>

#endif
