#ifndef TESSERA_NN_NN_HPP
#define TESSERA_NN_NN_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/nn/activation.hpp>
#include <tessera/nn/attention/alibi.hpp>
#include <tessera/nn/attention/attention.hpp>
#include <tessera/nn/attention/kv_cache.hpp>
#include <tessera/nn/attention/multi_head_attention.hpp>
#include <tessera/nn/attention/relative_position_bias.hpp>
#include <tessera/nn/bilinear.hpp>
#include <tessera/nn/cast_model.hpp>
#include <tessera/nn/conv.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/nn/init.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/lora.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/moe.hpp>
#include <tessera/nn/normalization/batch_norm.hpp>
#include <tessera/nn/normalization/group_norm.hpp>
#include <tessera/nn/normalization/instance_norm.hpp>
#include <tessera/nn/normalization/layer_norm.hpp>
#include <tessera/nn/normalization/rms_norm.hpp>
#include <tessera/nn/normalization/running_statistics.hpp>
#include <tessera/nn/normalization/spectral_norm.hpp>
#include <tessera/nn/normalization/weight_norm.hpp>
#include <tessera/nn/orthogonal.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/nn/recast.hpp>
#include <tessera/nn/recurrent/recurrent.hpp>
#include <tessera/nn/recurrent/recurrent_cells.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/nn/sinusoidal_positions.hpp>
#include <tessera/nn/summary.hpp>
#include <tessera/nn/transformer/block.hpp>
#include <tessera/nn/transformer/llama.hpp>
#include <tessera/nn/transformer/transformer.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
