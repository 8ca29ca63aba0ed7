#ifndef TESSERA_NN_NN_HPP
#define TESSERA_NN_NN_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/nn/alibi.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/batch_norm.hpp>
#include <tessera/nn/block.hpp>
#include <tessera/nn/conv.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/nn/group_norm.hpp>
#include <tessera/nn/init.hpp>
#include <tessera/nn/layer_norm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/llama.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/moe.hpp>
#include <tessera/nn/multi_head_attention.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/recurrent_cells.hpp>
#include <tessera/nn/rms_norm.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/nn/summary.hpp>
#include <tessera/nn/transformer.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
