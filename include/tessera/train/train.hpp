#ifndef TESSERA_TRAIN_TRAIN_HPP
#define TESSERA_TRAIN_TRAIN_HPP
#include <tessera/base/push_macros.hpp>

// Training loops. Not in tessera.hpp.
#include <tessera/optim/optimizers.hpp>
#include <tessera/train/evaluate.hpp>
#include <tessera/train/fit.hpp>
#include <tessera/train/minimize.hpp>
#include <tessera/train/print_progress.hpp>
#include <tessera/train/strong_wolfe.hpp>
#include <tessera/train/train_state.hpp>
#include <tessera/train/train_step.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
