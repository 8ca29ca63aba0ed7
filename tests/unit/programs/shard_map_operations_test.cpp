#include <cstdint>
#include <tuple>
#include <vector>

#include "on_each_device.hpp"
#include <gtest/gtest.h>

// Operations in the function of a shard_map that know which of their dims is the batch, or take indices.

namespace ts = tessera;
using on_each_device::compare;

namespace {

struct Conv1d {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::conv1d(x, w, {.padding = {1}}); }
};
struct Conv2d {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv2d(x, w, {.strides = {2, 1}, .padding = {1, 1}});
  }
};
struct GroupedConv2d {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv2d(x, w, {.groups = 2, .same = true});
  }
};
struct Conv3d {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::conv3d(x, w, {.padding = {1, 0, 0}}); }
};
// Weights that differ between devices.
struct Conv3dOfDevices {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv3d(x, w * ts::sum(x), {.strides = {1, 2, 1}, .padding = {1, 0, 0}});
  }
};
struct GroupedConv3dOfDevices {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv3d(x, w * ts::sum(x), {.groups = 2}) * ts::sum(ts::conv3d(ts::sin(w), ts::cos(w) * ts::sum(x)));
  }
};
TEST(ShardMapOperations, Convolutions) {
  compare<Conv1d>({8, 5, 2}, {3, 2, 3}, "conv1d");
  compare<Conv2d>({4, 4, 3, 2}, {3, 3, 2, 2}, "conv2d");
  compare<GroupedConv2d>({4, 3, 2, 4}, {2, 2, 2, 2}, "conv2d of groups");
  compare<Conv3d>({4, 2, 3, 2, 2}, {2, 2, 1, 2, 2}, "conv3d");
  compare<Conv3dOfDevices>({4, 2, 3, 2, 2}, {2, 2, 1, 2, 3}, "conv3d with weights of each device");
  compare<GroupedConv3dOfDevices>({4, 2, 2, 2, 4}, {2, 2, 2, 2, 2}, "conv3d of groups with weights of each device");
}

struct ConvTranspose1d {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv_transpose1d(x, w, {.strides = {2}, .padding = {1}});
  }
};
struct ConvTranspose2d {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv_transpose2d(x, w, {.strides = {2, 1}, .groups = 2});
  }
};
struct ConvTranspose3d {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv_transpose3d(x, w, {.strides = {1, 2, 1}});
  }
};
struct GroupedConvTranspose3dOfDevices {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::conv_transpose3d(x, w * ts::sum(x), {.strides = {1, 2, 1}, .groups = 2});
  }
};
TEST(ShardMapOperations, TransposedConvolutions) {
  compare<ConvTranspose1d>({4, 3, 2}, {3, 2, 3}, "conv_transpose1d");
  compare<ConvTranspose2d>({4, 3, 2, 2}, {2, 2, 2, 1}, "conv_transpose2d of groups");
  compare<ConvTranspose3d>({4, 2, 2, 1, 2}, {2, 1, 2, 2, 3}, "conv_transpose3d");
  compare<GroupedConvTranspose3dOfDevices>({4, 2, 1, 2, 2}, {2, 1, 2, 2, 3}, "conv_transpose3d of groups");
}

struct GroupNorm {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::group_norm(x, w, ts::cos(w), 2, 1e-3); }
};
struct BatchNorm {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::batch_norm(x, w, ts::cos(w), 1e-3); }
};
struct InstanceNorm {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::instance_norm(x, w, ts::cos(w), 1e-3); }
};
struct BatchStatistics {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto [mean, variance] = ts::batch_norm_statistics(x * w);
    const auto [of_images, spread] = ts::instance_norm_statistics(x + w);
    return ts::sin(mean) + variance * of_images + spread;
  }
};
TEST(ShardMapOperations, Norms) {
  compare<GroupNorm>({4, 3, 2, 4}, {4}, "group_norm");
  compare<BatchNorm>({8, 3, 2}, {2}, "batch_norm");
  compare<InstanceNorm>({4, 3, 2, 2}, {2}, "instance_norm");
  compare<BatchStatistics>({8, 3, 2}, {2}, "statistics of norms");
}

/// For each image of x [batch, height, width, 2] a pair of numbers, [batch, 1, 1, 2].
constexpr auto pair_of(const auto& x) { return ts::unsqueeze<1>(ts::unsqueeze<1>(ts::sum<1>(ts::sum<1>(x)))) * 0.1; }
struct GridSample {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::grid_sample(x, ts::sin(pair_of(x) + w * 2.0));
  }
};
struct GridOfX {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::grid_sample<ts::GridSample{.padding = ts::GridSamplePadding::border}>(pair_of(x) + w, x * 1.1);
  }
};
TEST(ShardMapOperations, GridSample) {
  compare<GridSample>({4, 3, 4, 2}, {2, 3, 2}, "grid_sample");
  compare<GridOfX>({4, 2, 3, 2}, {3, 4, 2}, "grid_sample of split grids");
}

/// Indices from 0 to 2, which differ between devices and repeat.
constexpr auto indices_of(const auto& x) {
  return ts::cast<std::int32_t>(ts::floor(ts::minimum(ts::abs(ts::stop_gradient(ts::sum<1>(x))) * 2.0, 2.0)));
}
struct IndexPut {
  constexpr auto operator()(const auto& x, const auto& w) const {  // [K, N], [3, 3, N]
    const auto rows = indices_of(x);
    return ts::index_put(ts::sin(w), std::tuple(rows, 2 - rows), x);
  }
};
struct IndexPutAdds {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto rows = indices_of(x);
    return ts::index_put<true>(ts::sin(w), std::tuple(rows, rows * 0), x * x);
  }
};
struct IndexPutShared {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto rows = indices_of(w);
    return ts::index_put(x, std::tuple(rows * 0, rows), w);
  }
};
struct IndexCopy {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::index_copy<0>(w, indices_of(x), x); }
};
struct IndexAdd {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::index_add<0>(w * w, indices_of(x), x); }
};
struct Index {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto rows = indices_of(x);
    return ts::index(w, std::tuple(rows, 2 - rows)) * x;
  }
};
struct Lookup {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::embedding(w, indices_of(x)) + ts::embedding(x * ts::sum<0>(w), indices_of(x));
  }
};
struct Masked {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto positive = ts::masked_select(x * w, x > 0.0, 5);
    const auto put = ts::masked_scatter(w, w > 0.0, positive);
    const auto where = ts::cast<double>(std::get<0>(ts::nonzero(x > 0.0, 4)));
    return ts::broadcast_to(ts::sum(positive) + ts::sum(where), {ts::Dim(2), ts::Dim(3)}) + ts::sum(put);
  }
};
TEST(ShardMapOperations, Indices) {
  compare<IndexPut>({12, 2}, {3, 3, 2}, "index_put");
  compare<IndexPutAdds>({12, 2}, {3, 3, 2}, "index_put that adds");
  compare<IndexPutShared>({4, 3, 2}, {4, 2}, "index_put at equal indices");
  compare<IndexCopy>({12, 2}, {3, 2}, "index_copy");
  compare<IndexAdd>({12, 2}, {3, 2}, "index_add");
  compare<Index>({12, 2}, {3, 3, 2}, "index");
  compare<Lookup>({12, 2}, {3, 2}, "embedding");
  compare<Masked>({12, 2}, {2}, "masked_select and others");
}

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
TEST(ShardMapOperations, Attention) {
  compare<AttentionWithBias>({8, 3, 2, 2}, {2, 3, 3}, "attention with a bias");
  compare<AttentionWithBiasOfEach>({4, 3, 2, 2}, {2, 3, 3}, "causal attention with a bias of each example");
  compare<AttentionWithMask>({8, 3, 2, 2}, {2, 3, 3}, "attention with a mask");
  compare<AttentionOfPaddedKeys>({8, 3, 2, 2}, {2}, "attention of padded keys");
  compare<AttentionWithSharedBias>({8, 3, 2, 2}, {2, 3, 3}, "attention with a bias that a batch shares");
  compare<BandAttentionAtATensor>({8, 3, 2, 2}, {2}, "attention in a band at a tensor");
  compare<AttentionOfOneQuery>({8, 3, 2, 2}, {2, 3, 3}, "attention of one query");
}
TEST(ShardMapOperations, AttentionWithDropout) {
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

/// An index from 0 to 2, which differs between devices if x does.
constexpr auto index_of(const auto& x) {
  return ts::cast<std::int32_t>(ts::floor(ts::minimum(ts::abs(ts::stop_gradient(ts::sum(x))) * 2.0, 2.0)));
}
struct DynamicSlices {  // [B, 2], [3, 2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto of_w = ts::dynamic_slice<0>(w, index_of(x), 2) * ts::dynamic_slice<0>(w, index_of(w), 2);
    const auto of_x = ts::dynamic_index<0>(x, index_of(w)) + ts::dynamic_index<0>(x, index_of(x));
    const auto row = ts::dynamic_slice<0>(x, index_of(w) - 1, 1) * ts::dynamic_slice<0>(x, 0, 1);
    return x + ts::sum<0>(of_w) * of_x + ts::matmul(row, ts::matmul(ts::transpose<1, 0>(w), w));
  }
};
struct DynamicUpdates {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto part = ts::sin(ts::slice<0>(w, 1, 2));
    const auto first = ts::dynamic_update_slice<0>(x, part, index_of(x));
    const auto second = ts::dynamic_update_slice<0>(w, ts::slice<0>(x, 0, 2), index_of(w));
    return ts::dynamic_update_index<0>(first, ts::sum<0>(second), index_of(w)) + ts::sum<0>(second);
  }
};
struct DynamicSlicesInALoop {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto step = [&](const auto& i, const auto& carry) {
      const auto row = ts::dynamic_slice<0>(carry, i, 1) + ts::dynamic_slice<0>(w, i, 1);
      return ts::dynamic_update_slice<0>(carry, ts::sin(row), i + 1);
    };
    return ts::fori_loop(0, 2, step, x);
  }
};
TEST(ShardMapOperations, DynamicSlices) {
  compare<DynamicSlices>({12, 2}, {3, 2}, "dynamic_slice");
  compare<DynamicUpdates>({12, 2}, {3, 2}, "dynamic_update_slice");
  compare<DynamicSlicesInALoop>({12, 2}, {3, 2}, "dynamic slices in a loop");
}

struct Rotary {  // [B, T, H, 4], [2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto turned = ts::rotary_embedding(x, index_of(x)) * ts::rotary_embedding(x, index_of(w));
    return turned + ts::rotary_embedding(ts::slice<1>(x, 1, 1), index_of(x)) * ts::sum(w);
  }
};
struct Segments {  // [K, 2], [3, 2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto sums = ts::segment_sum(x, indices_of(x), 3) * ts::maximum(ts::segment_max(w, indices_of(w), 3), -9.0);
    return x + ts::embedding(sums + ts::segment_sum(w, indices_of(w), 3), indices_of(x));
  }
};
struct Bags {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto starts = ts::arange<std::int32_t>(2, x) * 2;
    return ts::embedding_bag(w, indices_of(x), starts) * ts::embedding_bag(x, indices_of(w), starts);
  }
};
struct BlockDiagonal {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::matmul(ts::block_diag(x, w),
                      ts::block_diag(ts::transpose<1, 0>(w), ts::matmul(ts::transpose<1, 0>(x), x)));
  }
};
struct RaggedProduct {  // [K, 2], [2, 2]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto sizes = ts::cast<std::int32_t>(ts::bincount(indices_of(x), 3));
    const auto matrices = ts::stack<0>(w, ts::sin(w), w * ts::sum(x));
    return ts::ragged_dot(x, matrices, sizes) + ts::ragged_dot(x, ts::stack<0>(w, w * w, ts::sin(w)), sizes);
  }
};
TEST(ShardMapOperations, OperandsThatDifferInWhatVaries) {
  compare<Rotary>({8, 2, 1, 4}, {2}, "rotary_embedding");
  compare<Segments>({12, 2}, {3, 2}, "segments");
  compare<Bags>({12, 2}, {3, 2}, "embedding_bag");
  compare<BlockDiagonal>({12, 2}, {3, 2}, "block_diag");
  compare<RaggedProduct>({12, 2}, {2, 2}, "ragged_dot");
}

}  // namespace
