#ifndef TESSERA_OPTIM_OPTIM_HPP
#define TESSERA_OPTIM_OPTIM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/optim/adam/adam.hpp>
#include <tessera/optim/adam/adamax.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/adam/amsgrad.hpp>
#include <tessera/optim/adam/nadam.hpp>
#include <tessera/optim/adam/radam.hpp>
#include <tessera/optim/adaptive/adadelta.hpp>
#include <tessera/optim/adaptive/adafactor.hpp>
#include <tessera/optim/adaptive/adagrad.hpp>
#include <tessera/optim/adaptive/rmsprop.hpp>
#include <tessera/optim/adaptive/rprop.hpp>
#include <tessera/optim/asgd.hpp>
#include <tessera/optim/average.hpp>
#include <tessera/optim/cg.hpp>
#include <tessera/optim/gradients/accumulate.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/gradients/loss_scale.hpp>
#include <tessera/optim/groups.hpp>
#include <tessera/optim/lamb.hpp>
#include <tessera/optim/layer_decay.hpp>
#include <tessera/optim/lbfgs.hpp>
#include <tessera/optim/lion.hpp>
#include <tessera/optim/muon.hpp>
#include <tessera/optim/optimizer_step.hpp>
#include <tessera/optim/schedule/reduce_on_plateau.hpp>
#include <tessera/optim/schedule/schedule.hpp>
#include <tessera/optim/sgd.hpp>
#include <tessera/optim/state/abstract_state.hpp>
#include <tessera/optim/state/init_state.hpp>
#include <tessera/optim/stochastic_rounding.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/tree_vdot.hpp>
#include <tessera/optim/update.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
