#ifndef TESSERA_OPTIM_OPTIM_HPP
#define TESSERA_OPTIM_OPTIM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/optim/average.hpp>
#include <tessera/optim/cg.hpp>
#include <tessera/optim/gradients/accumulate.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/gradients/loss_scale.hpp>
#include <tessera/optim/groups.hpp>
#include <tessera/optim/layer_decay.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_step.hpp>
#include <tessera/optim/optimizers.hpp>
#include <tessera/optim/schedule/reduce_on_plateau.hpp>
#include <tessera/optim/schedule/schedule.hpp>
#include <tessera/optim/state/abstract_state.hpp>
#include <tessera/optim/state/init_state.hpp>
#include <tessera/optim/stochastic_rounding.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/tree_vdot.hpp>
#include <tessera/optim/update.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
