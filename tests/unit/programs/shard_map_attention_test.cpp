#include <cstdint>
#include <vector>

#include "on_each_device.hpp"
#include <gtest/gtest.h>

// Attention in the function of a shard_map, where a bias or mask may be shared by devices or differ between them.

namespace ts = tessera;
using on_each_device::compare;

namespace {

struct AttentionWithBias {  // [B, T, H, E], [H, T, T]
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::attention(x, ts::sin(x), ts::cos(x), w); }
};
struct AttentionWithBiasOfEach {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto of_batch = ts::unsqueeze<2>(ts::unsqueeze<2>(ts::sum<1, 3>(x)));  // [B, H, 1, 1]
    return ts::causal_attention(x, ts::sin(x), x, ts::unsqueeze<0>(w) * of_batch);
  }
};
struct AttentionWithMask {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::attention(x, x, x, ts::sum<0>(w) > -0.2, 0.7) * ts::sum(w);
  }
};
struct AttentionOfPaddedKeys {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto padding = ts::key_padding_bias<double>(ts::sum<2, 3>(x) > -0.3);
    return ts::biased_attention(x, x, x, padding, ts::unlimited, 0) * ts::sum(w);
  }
};
struct AttentionWithSharedBias {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::biased_attention(x, ts::cos(x), x, ts::unsqueeze<0>(ts::sum<1>(w)), 2, 1) +
           ts::biased_attention(x, x, x, ts::alibi_bias(ts::sum<1, 2>(w), x), ts::unlimited, 0);
  }
};
struct BandAttentionAtATensor {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto index_of = [](const auto& v) { return ts::cast<std::int32_t>(ts::sum(v) * 0.0 + 1.0); };
    return ts::band_attention(x, ts::sin(x), x, 2, 0, index_of(x)) * ts::sum(w) +
           ts::band_attention(x, ts::sin(x), x, 0, 2, index_of(w));
  }
};
struct AttentionOfOneQuery {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::attention(ts::slice<1>(x, 2, 1), x, x, ts::slice<1>(w, 1, 1)) + x;
  }
};
TEST(ShardMapAttention, BiasesAndMasks) {
  compare<AttentionWithBias>({8, 3, 2, 2}, {2, 3, 3}, "attention with a bias");
  compare<AttentionWithBiasOfEach>({4, 3, 2, 2}, {2, 3, 3}, "causal attention with a bias of each example");
  compare<AttentionWithMask>({8, 3, 2, 2}, {2, 3, 3}, "attention with a mask");
  compare<AttentionOfPaddedKeys>({8, 3, 2, 2}, {2}, "attention of padded keys");
  compare<AttentionWithSharedBias>({8, 3, 2, 2}, {2, 3, 3}, "attention with a bias that a batch shares");
  compare<BandAttentionAtATensor>({8, 3, 2, 2}, {2}, "attention in a band at a tensor");
  compare<AttentionOfOneQuery>({8, 3, 2, 2}, {2, 3, 3}, "attention of one query");
}
TEST(ShardMapAttention, Dropout) {
  const ts::Mesh mesh({{"d", 2}});
  const auto x = ts::shard(on_each_device::some_values(4 * 3 * 2 * 2, 1), {4, 3, 2, 2}, mesh, {"d"});
  const auto w = ts::shard(on_each_device::some_values(2 * 3 * 3, 2), {2, 3, 3}, mesh);
  constexpr auto dropped = ts::compile([](auto in, auto bias) {
    return ts::shard_map<"{d}, {} -> {d}">([](const auto& own, const auto& shared) {
      return ts::attention(own, own, own, ts::attention_dropout(0.0, 7), shared) - ts::attention(own, own, own, shared);
    })(in, bias);
  });
  on_each_device::expect_near(ts::to_host(dropped(x, w)), std::vector<double>(48, 0.0), "dropout of rate 0");
}

}  // namespace
