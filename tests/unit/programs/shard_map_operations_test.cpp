#include "on_each_device.hpp"
#include <gtest/gtest.h>

// Operations in the function of a shard_map that know which of their dims is the batch.

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

}  // namespace
