#ifndef TESSERA_OPTIM_OPTIMIZERS_HPP
#define TESSERA_OPTIM_OPTIMIZERS_HPP
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
#include <tessera/optim/lamb.hpp>
#include <tessera/optim/lbfgs.hpp>
#include <tessera/optim/lion.hpp>
#include <tessera/optim/muon.hpp>
#include <tessera/optim/sgd.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
