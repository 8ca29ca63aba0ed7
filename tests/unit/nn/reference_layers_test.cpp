// Layers and attention against PyTorch 1.13.1 (tests/reference/generate.py).
#include <cstdint>
#include <string>
#include <tuple>

#include "../../support/reference.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

using reference::Numbers;
using reference::types;
template <class T, int Rank> using Of = ts::ShardedTensor<T, Rank>;

constexpr auto call = [](const auto& layer, const auto& x) { return layer(x); };

template <class T> void layers() {
  reference::Cases<T> cases("layers", {.f64 = 64, .f32 = 64});
  cases.check(types<nn::Linear<T>, Of<T, 3>>, "linear", call);

  constexpr ts::Conv<1> dilated{.strides = {2}, .padding = {1}, .dilation = {2}}, grouped{.groups = 2};
  constexpr ts::Conv<2> uneven{.strides = {1, 2}, .padding = {1, 0}, .dilation = {1, 2}};
  constexpr ts::Conv<2> same_of_groups{.padding = {1, 1}, .groups = 2};
  constexpr ts::ConvTranspose<1> tripled{.strides = {3}, .padding = {1}, .output_padding = {2}, .dilation = {2}};
  constexpr ts::ConvTranspose<2> doubled{.strides = {2, 2}, .padding = {0, 1}, .output_padding = {1, 1}, .groups = 2};
  cases.check(types<nn::Conv1d<dilated, T>, Of<T, 3>>, "conv1d", call);
  cases.check(types<nn::Conv1d<grouped, T>, Of<T, 3>>, "conv1d_groups", call);
  cases.check(types<nn::Conv2d<uneven, T>, Of<T, 4>>, "conv2d", call);
  cases.check(types<nn::Conv2d<same_of_groups, T>, Of<T, 4>>, "conv2d_groups", call);
  cases.check(types<nn::ConvTranspose1d<tripled, T>, Of<T, 3>>, "conv_transpose1d", call);
  cases.check(types<nn::ConvTranspose2d<doubled, T>, Of<T, 4>>, "conv_transpose2d", call);
  cases.check(types<Of<T, 5>, Of<T, 5>>, "conv3d", [](const auto& w, const auto& x) {
    return ts::conv3d(x, w, ts::Conv<3>{.strides = {1, 2, 1}, .padding = {1, 0, 1}});
  });
  cases.check(types<Of<T, 5>, Of<T, 5>>, "conv3d_groups", [](const auto& w, const auto& x) {
    return ts::conv3d(x, w,
                      ts::Conv<3>{.strides = {1, 2, 1}, .padding = {1, 0, 1}, .dilation = {1, 1, 2}, .groups = 2});
  });
  cases.check(types<Of<T, 5>, Of<T, 5>>, "conv3d_depthwise", [](const auto& w, const auto& x) {
    return ts::conv3d(x, w, ts::Conv<3>{.padding = {1, 1, 1}, .groups = 3});
  });
  cases.check(types<Of<T, 5>, Of<T, 5>>, "conv_transpose3d_groups", [](const auto& w, const auto& x) {
    return ts::conv_transpose3d(
        x, w,
        ts::ConvTranspose<3>{.strides = {1, 2, 2}, .padding = {1, 0, 1}, .output_padding = {0, 1, 1}, .groups = 2});
  });

#define POOL(name, rank, ...) cases.check(types<Of<T, rank>>, name, [](const auto& x) { return __VA_ARGS__; })
  POOL("max_pool1d", 3, ts::max_pool1d(x, {.window = {3}, .strides = {2}, .padding = {1}, .dilation = {2}}));
  POOL("max_pool2d", 4, ts::max_pool2d(x, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}}));
  POOL("max_pool3d", 5, ts::max_pool3d(x, {.window = {2, 2, 2}}));
  POOL("avg_pool1d", 3, ts::avg_pool1d(x, {.window = {3}, .strides = {2}, .padding = {1}}));
  POOL("avg_pool2d", 4, ts::avg_pool2d(x, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}}));
  POOL("avg_pool2d_exclude", 4,
       ts::avg_pool2d(x, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}, .count_include_pad = false}));
  POOL("avg_pool3d", 5, ts::avg_pool3d(x, {.window = {2, 2, 2}}));
  POOL("adaptive_avg_pool1d", 3, ts::adaptive_avg_pool1d(x, {3}));
  POOL("adaptive_avg_pool2d", 4, ts::adaptive_avg_pool2d(x, {2, 4}));
  POOL("adaptive_avg_pool3d", 5, ts::adaptive_avg_pool3d(x, {3, 2, 2}));
  POOL("adaptive_max_pool1d", 3, ts::adaptive_max_pool1d(x, {3}));
  POOL("adaptive_max_pool2d", 4, ts::adaptive_max_pool2d(x, {2, 4}));
  POOL("adaptive_max_pool3d", 5, ts::adaptive_max_pool3d(x, {3, 2, 2}));
#undef POOL

#define NORM(name, rank, ...)                               \
  cases.check(types<Of<T, rank>, Of<T, 1>, Of<T, 1>>, name, \
              [](const auto& x, const auto& gain, const auto& bias) { return __VA_ARGS__; })
  NORM("layer_norm", 3, ts::layer_norm(x, gain, bias));
  NORM("group_norm", 4, ts::group_norm(x, gain, bias, 2));
  NORM("instance_norm", 4, ts::instance_norm(x, gain, bias));
#undef NORM
  cases.check(types<Of<T, 3>, Of<T, 1>>, "rms_norm",
              [](const auto& x, const auto& gain) { return ts::rms_norm(x, gain, 1e-6); });
  // Running statistics have no gradient in PyTorch.
  cases.check(
      types<Of<T, 4>, nn::BatchNorm<T>, nn::RunningStatistics<T>>, "batch_norm_train",
      [](const auto& x, const auto& norm, const auto& running) {
        const auto trained = norm.train(x, running);
        const auto& next = std::get<1>(trained);
        return std::tuple(std::get<0>(trained), ts::stop_gradient(next.mean), ts::stop_gradient(next.variance));
      },
      Numbers{{3, 1e-3}, {4, 0.25}});
  cases.check(
      types<Of<T, 4>, nn::InstanceNorm<T>, nn::RunningStatistics<T>>, "instance_norm_train",
      [](const auto& x, const auto& norm, const auto& running) {
        const auto trained = norm.train(x, running);
        const auto& next = std::get<1>(trained);
        return std::tuple(std::get<0>(trained), ts::stop_gradient(next.mean), ts::stop_gradient(next.variance));
      },
      Numbers{{3, 1e-3}, {4, 0.25}});
  cases.check(
      types<Of<T, 4>, nn::InstanceNorm<T>, nn::RunningStatistics<T>>, "instance_norm_eval",
      [](const auto& x, const auto& norm, const auto& running) { return norm(x, running); },
      Numbers{{3, 1e-3}, {4, 0.25}});
  cases.check(types<Of<T, 4>, Of<T, 1>, Of<T, 1>, Of<T, 1>, Of<T, 1>>, "batch_norm_eval",
              [](const auto& x, const auto& gain, const auto& bias, const auto& mean, const auto& variance) {
                return ts::batch_norm_inference(x, ts::stop_gradient(mean), ts::stop_gradient(variance), gain, bias,
                                                1e-3);
              });

  constexpr auto with_state = [](const auto& layer, const auto& xs, const auto& state) {
    const auto made = layer(xs, state);
    return std::tuple(std::get<0>(made), std::get<1>(made));
  };
  cases.check(types<nn::Lstm<T, 2, nn::Direction::both>, Of<T, 3>, Of<T, 3>, Of<T, 3>>, "lstm",
              [](const auto& layer, const auto& xs, const auto& h, const auto& c) {
                const auto made = layer(xs, std::tuple(h, c));
                const auto& state = std::get<1>(made);
                return std::tuple(std::get<0>(made), std::get<0>(state), std::get<1>(state));
              });
  cases.check(types<nn::Gru<T, 1, nn::Direction::both>, Of<T, 3>, Of<T, 3>>, "gru", with_state);
  cases.check(types<nn::Gru<T, 2>, Of<T, 3>, Of<T, 3>>, "gru_layers", with_state);
  cases.check(types<nn::Rnn<T>, Of<T, 3>, Of<T, 3>>, "rnn_tanh", with_state);
  cases.check(types<nn::Lstm<T, 2, nn::Direction::both>, Of<T, 3>, ts::ShardedTensor<std::int32_t, 1>>, "lstm_lengths",
              [](const auto& layer, const auto& xs, const auto& steps) {
                const auto made = layer(xs, nn::lengths(steps));
                const auto& state = std::get<1>(made);
                return std::tuple(std::get<0>(made), std::get<0>(state), std::get<1>(state));
              });
  cases.check(types<nn::Gru<T, 2>, Of<T, 3>, ts::ShardedTensor<std::int32_t, 1>>, "gru_lengths",
              [](const auto& layer, const auto& xs, const auto& steps) {
                const auto made = layer(xs, nn::lengths(steps));
                return std::tuple(std::get<0>(made), std::get<1>(made));
              });
  cases.check(types<nn::Rnn<T, 1, nn::Direction::forward, true, nn::RnnFunction::relu>, Of<T, 3>, Of<T, 3>>, "rnn_relu",
              with_state);
}

template <class T> void attention() {
  // The gradient of the bias of keys is 0 up to rounding.
  reference::Cases<T> cases("attention", {.f64 = 512, .f32 = 512});
#define ATTENTION(name, ...)                             \
  cases.check(types<Of<T, 4>, Of<T, 4>, Of<T, 4>>, name, \
              [](const auto& q, const auto& k, const auto& v) { return __VA_ARGS__; })
  ATTENTION("attention", ts::attention(q, k, v));
  ATTENTION("causal_attention", ts::causal_attention(q, k, v));
  ATTENTION("grouped_attention", ts::causal_attention(q, ts::repeat_heads(k, q), ts::repeat_heads(v, q)));
  ATTENTION("band_attention", ts::band_attention(q, k, v, 2, 1));
#undef ATTENTION
  cases.check(types<Of<T, 4>, Of<T, 4>, Of<T, 4>, Of<T, 3>>, "biased_attention",
              [](const auto& q, const auto& k, const auto& v, const auto& bias) {
                return ts::biased_attention(q, k, v, bias, ts::unlimited, ts::unlimited);
              });

  using Heads = nn::MultiHeadAttention<T>;
  const Numbers heads{{8, 2}};
  cases.check(types<Heads, Of<T, 3>>, "multi_head_self", call, heads);
  cases.check(
      types<Heads, Of<T, 3>>, "multi_head_causal", [](const auto& layer, const auto& x) { return layer.causal(x); },
      heads);
  cases.check(
      types<Heads, Of<T, 3>, Of<T, 3>>, "multi_head_cross",
      [](const auto& layer, const auto& x, const auto& memory) { return layer(x, memory); }, heads);
  cases.check(
      types<Heads, Of<T, 3>, Of<T, 3>, ts::ShardedTensor<bool, 2>>, "multi_head_masked",
      [](const auto& layer, const auto& x, const auto& memory, const auto& mask) {
        return layer.masked(x, memory, mask);
      },
      heads);

  constexpr auto with_memory = [](const auto& layer, const auto& x, const auto& memory) { return layer(x, memory); };
  constexpr auto post = nn::NormPlace::post, pre = nn::NormPlace::pre;
  const Numbers of_encoder{{8, 2}, {11, 1e-5}, {18, 1e-5}};
  cases.check(types<nn::EncoderLayer<T, post>, Of<T, 3>>, "encoder_layer_post", call, of_encoder);
  cases.check(types<nn::EncoderLayer<T, pre>, Of<T, 3>>, "encoder_layer_pre", call, of_encoder);
  using Mask = ts::ShardedTensor<bool, 2>;
  cases.check(
      types<nn::EncoderLayer<T, pre>, Of<T, 3>, Mask>, "encoder_layer_masked",
      [](const auto& layer, const auto& x, const auto& mask) { return layer(x, mask); }, of_encoder);
  const Numbers of_decoder{{8, 2}, {11, 1e-5}, {20, 2}, {23, 1e-5}, {30, 1e-5}};
  cases.check(types<nn::DecoderLayer<T, post>, Of<T, 3>, Of<T, 3>>, "decoder_layer_post", with_memory, of_decoder);
  cases.check(types<nn::DecoderLayer<T, pre>, Of<T, 3>, Of<T, 3>>, "decoder_layer_pre", with_memory, of_decoder);
  cases.check(
      types<nn::DecoderLayer<T, post>, Of<T, 3>, Of<T, 3>, Mask>, "decoder_layer_memory_mask",
      [](const auto& layer, const auto& x, const auto& memory, const auto& mask) { return layer(x, memory, mask); },
      of_decoder);
  cases.check(
      types<nn::DecoderLayer<T, pre>, Of<T, 3>, Of<T, 3>, Mask, Mask>, "decoder_layer_masks",
      [](const auto& layer, const auto& x, const auto& memory, const auto& mask, const auto& own) {
        return layer(x, memory, mask, own);
      },
      of_decoder);
  cases.check(types<nn::EncoderLayer<T, pre, nn::ExactGelu>, Of<T, 3>>, "encoder_layer_gelu", call, of_encoder);
  cases.check(types<nn::EncoderLayer<T, post, nn::Gelu>, Of<T, 3>>, "encoder_layer_gelu_tanh", call, of_encoder);
  cases.check(
      types<nn::DecoderLayer<T, post, nn::ExactGelu>, Of<T, 3>, Of<T, 3>, Mask>, "decoder_layer_gelu",
      [](const auto& layer, const auto& x, const auto& memory, const auto& mask) { return layer(x, memory, mask); },
      of_decoder);
  cases.check(types<nn::LoraLinear<T>, Of<T, 3>>, "lora_linear", call, Numbers{{4, 1.5}});
  cases.check(types<Of<T, 3>>, "sinusoidal_positions", [](const auto& x) { return x + nn::sinusoidal_positions(x); });
}

TEST(ReferenceOfPyTorch, Layers) { layers<double>(); }
TEST(ReferenceOfPyTorch, LayersInF32) { layers<float>(); }
TEST(ReferenceOfPyTorch, Attention) { attention<double>(); }
TEST(ReferenceOfPyTorch, AttentionInF32) { attention<float>(); }

}  // namespace
