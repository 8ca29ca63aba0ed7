// Reductions, sorts, moved elements and images against PyTorch 1.13.1 (tests/reference/generate.py).
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "../../support/reference.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>

namespace ts = tessera;

namespace {

using reference::types;
template <class T, int Rank> using Of = ts::ShardedTensor<T, Rank>;
template <int Rank> using Int = ts::ShardedTensor<std::int32_t, Rank>;
constexpr double infinity = std::numeric_limits<double>::infinity();

#define ROWS(name, ...) cases.check(types<Of<T, 2>>, name, [](const auto& x) { return __VA_ARGS__; })
#define VECTOR(name, ...) cases.check(types<Of<T, 1>>, name, [](const auto& x) { return __VA_ARGS__; })
#define PAIR(name, first, second, ...) \
  cases.check(types<first, second>, name, [](const auto& x, const auto& y) { return __VA_ARGS__; })

constexpr reference::Bound bound{.f64 = 16, .f32 = 16};

template <class T> void reductions() {
  using Rows = Of<T, 2>;
  using Vector = Of<T, 1>;
  reference::Cases<T> cases("reductions", bound);
  ROWS("var_0", ts::var<1>(x, 0));
  ROWS("var_1", ts::var<1>(x));
  ROWS("var_2", ts::var<1>(x, 2));
  ROWS("var_one_element", ts::var<1>(x));
  ROWS("var_0_one_element", ts::var<1>(x, 0));
  ROWS("std_0", ts::std<1>(x, 0));
  ROWS("std_1", ts::std<1>(x));
  ROWS("std_2", ts::std<1>(x, 2));
  ROWS("std_one_element", ts::std<1>(x));
  ROWS("std_0_one_element", ts::std<1>(x, 0));
  ROWS("max", ts::max<1>(x));
  ROWS("min", ts::min<1>(x));
  ROWS("max_nan", ts::max<1>(x));
  ROWS("min_nan", ts::min<1>(x));
  ROWS("argmax", ts::argmax<1>(x));
  ROWS("argmin", ts::argmin<1>(x));
  ROWS("argmax_nan", ts::argmax<1>(x));
  ROWS("argmin_nan", ts::argmin<1>(x));
  ROWS("prod", ts::prod<1>(x));
  ROWS("cumprod", ts::cumprod<1>(x));
  ROWS("cumsum", ts::cumsum<0>(x));
  ROWS("logcumsumexp", ts::logcumsumexp<1>(x));
  ROWS("logcumsumexp_edges", ts::logcumsumexp<1>(x));
  ROWS("cummax", ts::cummax<1>(x));
  ROWS("cummin", ts::cummin<1>(x));
  ROWS("cummax_nan", ts::cummax<1>(x));
  cases.set_bound({.f64 = 512, .f32 = 512});  // x - logsumexp(x) is rounded at 300
  ROWS("logsumexp", ts::logsumexp<1>(x));
  cases.set_bound(bound);
  ROWS("logsumexp_edges", ts::logsumexp<1>(x));
  ROWS("sum_empty", ts::sum<1>(x));
  ROWS("prod_empty", ts::prod<1>(x));
  ROWS("mean_empty", ts::mean<1>(x));
  ROWS("logsumexp_empty", ts::logsumexp<1>(x));
  ROWS("any_empty", ts::any<1>(x));
  ROWS("all_empty", ts::all<1>(x));
  ROWS("nansum", ts::nansum<1>(x));
  ROWS("nanmean", ts::nanmean<1>(x));
  ROWS("count_nonzero", ts::count_nonzero<1>(x));
  ROWS("norm", ts::norm<1>(x));
  ROWS("norm_1", ts::norm<1>(x, 1));
  ROWS("norm_3", ts::norm<1>(x, 3));
  ROWS("norm_0", ts::norm<1>(x, 0));
  ROWS("norm_inf", ts::norm<1>(x, infinity));
  ROWS("median", ts::median<1>(x));
  ROWS("median_nan", ts::median<1>(x));
  ROWS("nanmedian_nan", ts::nanmedian<1>(x));
#define QUANTILES(how)                                                                \
  ROWS("quantile_" #how "_0", ts::quantile<1, ts::Interpolation::how>(x, 0.0));       \
  ROWS("quantile_" #how "_0.3", ts::quantile<1, ts::Interpolation::how>(x, 0.3));     \
  ROWS("quantile_" #how "_0.5", ts::quantile<1, ts::Interpolation::how>(x, 0.5));     \
  ROWS("quantile_" #how "_0.875", ts::quantile<1, ts::Interpolation::how>(x, 0.875)); \
  ROWS("quantile_" #how "_1", ts::quantile<1, ts::Interpolation::how>(x, 1.0))
  QUANTILES(linear);
  QUANTILES(lower);
  QUANTILES(higher);
  QUANTILES(midpoint);
  QUANTILES(nearest);
#undef QUANTILES
  ROWS("quantile_nan", ts::quantile<1>(x, 0.5));
  ROWS("nanquantile_nan", ts::nanquantile<1>(x, 0.375));
  ROWS("sort", std::tuple(ts::sort<1>(x), ts::argsort<1>(x)));
  ROWS("sort_descending", std::tuple(ts::sort<1, ts::Order::descending>(x), ts::argsort<1, ts::Order::descending>(x)));
  ROWS("sort_nan", std::tuple(ts::sort<1>(x), ts::argsort<1>(x)));
  cases.check(types<Rows>, "topk", [](const auto& x) {
    const auto best = ts::topk<1>(x, 2);
    return std::tuple(best.values, best.indices);
  });
  cases.check(types<Rows>, "kthvalue", [](const auto& x) {
    const auto third = ts::kthvalue<1>(x, 3);
    return std::tuple(third.values, third.indices);
  });
  PAIR("searchsorted", Vector, Vector, ts::searchsorted(x, y));
  PAIR("searchsorted_right", Vector, Vector, ts::searchsorted<ts::Side::right>(x, y));
  VECTOR("histogram", ts::histogram(x, 4, -1.0, 1.0));
  cases.check(types<Int<1>>, "bincount", [](const auto& x) { return ts::bincount(x, 7); });
  PAIR("bincount_weights", Int<1>, Vector, ts::bincount(x, 7, y));
  PAIR("cdist_1", Rows, Rows, ts::cdist(x, y, 1));
  PAIR("cdist_2", Rows, Rows, ts::cdist(x, y));
  PAIR("cdist_3", Rows, Rows, ts::cdist(x, y, 3));
  PAIR("cdist_inf", Rows, Rows, ts::cdist(x, y, infinity));
  ROWS("pdist_1", ts::pdist(x, 1));
  ROWS("pdist_2", ts::pdist(x));
  ROWS("pdist_3", ts::pdist(x, 3));
  ROWS("pdist_inf", ts::pdist(x, infinity));
  ROWS("cov", ts::cov(x));
  ROWS("cov_0", ts::cov(x, 0));
  ROWS("corrcoef", ts::corrcoef(x));
  ROWS("diff", ts::diff<1, 2>(x));
  PAIR("trapezoid", Rows, Vector, ts::trapezoid<1>(x, y));
  PAIR("cumulative_trapezoid", Rows, Vector, ts::cumulative_trapezoid<1>(x, y));
  PAIR("cosine_similarity", Rows, Rows, ts::cosine_similarity<1>(x, y));
  ROWS("normalize", ts::normalize<1>(x));
}

template <ts::Interpolate Options> constexpr auto image_of(const auto& x, std::int64_t height, std::int64_t width) {
  return ts::interpolate<2, Options>(ts::interpolate<1, Options>(x, height), width);
}

/// The table of an Embedding with max_norm after a call, and the rows that it reads.
template <class T> constexpr auto renormalized(const auto& table, const auto& tokens, double most, int p) {
  const ts::nn::Embedding<T> changed = ts::nn::Embedding<T>{table}.renormalized(tokens, most, p);
  return std::tuple(changed.table, changed(tokens));
}

template <class T> void movement() {
  using Rows = Of<T, 2>;
  using Vector = Of<T, 1>;
  reference::Cases<T> cases("movement", bound);
#define IMAGE(name, ...) cases.check(types<Of<T, 4>>, name, [](const auto& x) { return __VA_ARGS__; })
#define SIZES(name, ...)                                                               \
  IMAGE("interpolate_" name "_up", image_of<ts::Interpolate{__VA_ARGS__}>(x, 7, 9));   \
  IMAGE("interpolate_" name "_down", image_of<ts::Interpolate{__VA_ARGS__}>(x, 3, 2)); \
  IMAGE("interpolate_" name "_same", image_of<ts::Interpolate{__VA_ARGS__}>(x, 4, 5)); \
  IMAGE("interpolate_" name "_one", image_of<ts::Interpolate{__VA_ARGS__}>(x, 1, 1))
  SIZES("nearest", ts::InterpolateMode::nearest);
  SIZES("nearest_exact", ts::InterpolateMode::nearest_exact);
  SIZES("bilinear", ts::InterpolateMode::linear);
  SIZES("bilinear_corners", ts::InterpolateMode::linear, true);
  SIZES("bicubic", ts::InterpolateMode::cubic);
  SIZES("bicubic_corners", ts::InterpolateMode::cubic, true);
#undef SIZES
#define GRID(mode, padding)                                                                                     \
  PAIR("grid_sample_" #mode "_" #padding "_0", Images, Images,                                                  \
       ts::grid_sample<ts::GridSample{ts::GridSampleMode::mode, ts::GridSamplePadding::padding, false}>(x, y)); \
  PAIR("grid_sample_" #mode "_" #padding "_1", Images, Images,                                                  \
       ts::grid_sample<ts::GridSample{ts::GridSampleMode::mode, ts::GridSamplePadding::padding, true}>(x, y))
  using Images = Of<T, 4>;
  GRID(bilinear, zeros);
  GRID(bilinear, border);
  GRID(nearest, zeros);
  GRID(nearest, border);
#undef GRID
#define SEQUENCE(name, ...) cases.check(types<Of<T, 3>>, name, [](const auto& x) { return __VA_ARGS__; })
  SEQUENCE("pad_reflect", ts::pad<1, ts::PadMode::reflect>(x, 3, 2));
  SEQUENCE("pad_replicate", ts::pad<1, ts::PadMode::replicate>(x, 3, 2));
  SEQUENCE("pad_circular", ts::pad<1, ts::PadMode::circular>(x, 3, 2));
  SEQUENCE("pad_constant", ts::pad<1>(x, 2, 1, 1.5));
  IMAGE("unfold", ts::unfold(x, {.window = {2, 3}, .strides = {2, 1}, .padding = {1, 0}}));
  IMAGE("unfold_dilated", ts::unfold(x, {.window = {2, 2}, .dilation = {2, 3}}));
  SEQUENCE("fold", ts::fold(x, {4, 5}, {.window = {2, 3}, .strides = {2, 1}, .padding = {1, 0}}));
  IMAGE("pixel_shuffle", ts::pixel_shuffle(x, 2));
  IMAGE("pixel_unshuffle", ts::pixel_unshuffle(x, 2));
  IMAGE("channel_shuffle", ts::channel_shuffle(x, 3));
  ROWS("roll", ts::roll<1>(x, -2));
  ROWS("flip", ts::flip<0>(x));
  ROWS("rot90", ts::rot90<3>(x));
  ROWS("tril", ts::tril(x, 1));
  ROWS("triu", ts::triu(x, -1));
  ROWS("tile", ts::tile<1>(x, 3));
  ROWS("repeat_interleave", ts::repeat_interleave<1>(x, 3));
  SEQUENCE("diagonal", ts::diagonal(x));
  PAIR("block_diag", Rows, Rows, ts::block_diag(x, y));
  PAIR("gather", Rows, Int<2>, ts::gather<1>(x, y));
#define SCATTER(name, ...)                     \
  cases.check(types<Rows, Int<2>, Rows>, name, \
              [](const auto& x, const auto& at, const auto& source) { return __VA_ARGS__; })
  SCATTER("scatter", ts::scatter<1>(x, at, source));
  SCATTER("scatter_add", ts::scatter_add<1>(x, at, source));
  SCATTER("scatter_reduce_sum_1", ts::scatter_reduce<1, ts::Reduction::sum>(x, at, source));
  SCATTER("scatter_reduce_sum_0", ts::scatter_reduce<1, ts::Reduction::sum, false>(x, at, source));
  SCATTER("scatter_reduce_prod_1", ts::scatter_reduce<1, ts::Reduction::product>(x, at, source));
  SCATTER("scatter_reduce_prod_0", ts::scatter_reduce<1, ts::Reduction::product, false>(x, at, source));
  SCATTER("scatter_reduce_amax_1", ts::scatter_reduce<1, ts::Reduction::max>(x, at, source));
  SCATTER("scatter_reduce_amax_0", ts::scatter_reduce<1, ts::Reduction::max, false>(x, at, source));
  SCATTER("scatter_reduce_amin_1", ts::scatter_reduce<1, ts::Reduction::min>(x, at, source));
  SCATTER("scatter_reduce_amin_0", ts::scatter_reduce<1, ts::Reduction::min, false>(x, at, source));
  SCATTER("scatter_reduce_prod_zeros", ts::scatter_reduce<1, ts::Reduction::product>(x, at, source));
  SCATTER("scatter_reduce_amax_ties", ts::scatter_reduce<1, ts::Reduction::max>(x, at, source));
#undef SCATTER
#define AT_ROWS(name, ...)                     \
  cases.check(types<Rows, Int<1>, Rows>, name, \
              [](const auto& x, const auto& at, const auto& source) { return __VA_ARGS__; })
  AT_ROWS("index_add", ts::index_add<0>(x, at, source));
  AT_ROWS("index_copy", ts::index_copy<0>(x, at, source));
#undef AT_ROWS
  PAIR("index_select", Rows, Int<1>, ts::index_select<1>(x, y));
  PAIR("embedding", Rows, Int<2>, ts::embedding(x, y));
  PAIR("embedding_padding_0", Rows, Int<2>, ts::embedding<0>(x, y));
  PAIR("embedding_padding_4", Rows, Int<2>, ts::embedding<4>(x, y));
  PAIR("embedding_padding_-1", Rows, Int<2>, ts::embedding<-1>(x, y));
  PAIR("embedding_padding_-4", Rows, Int<2>, ts::embedding<-4>(x, y));
  PAIR("embedding_renormalized_2", Rows, Int<2>, renormalized<T>(x, y, 1.5, 2));
  PAIR("embedding_renormalized_1", Rows, Int<2>, renormalized<T>(x, y, 2.0, 1));
#define BAGS(name, ...)                          \
  cases.check(types<Rows, Int<1>, Int<1>>, name, \
              [](const auto& table, const auto& at, const auto& offsets) { return __VA_ARGS__; })
  BAGS("embedding_bag_sum", ts::embedding_bag(table, at, offsets));
  BAGS("embedding_bag_mean", ts::embedding_bag<ts::BagMode::mean>(table, at, offsets));
  BAGS("embedding_bag_max", ts::embedding_bag<ts::BagMode::max>(table, at, offsets));
#undef BAGS
  cases.check(types<Rows, Int<1>, Int<1>, Vector>, "embedding_bag_weights",
              [](const auto& table, const auto& at, const auto& offsets, const auto& weights) {
                return ts::embedding_bag(table, at, offsets, weights);
              });
  cases.check(types<Int<1>>, "one_hot", [](const auto& x) { return ts::one_hot<T>(x, 5); });
  cases.check(types<Rows, ts::ShardedTensor<bool, 2>, Vector>, "masked_scatter",
              [](const auto& x, const auto& mask, const auto& source) { return ts::masked_scatter(x, mask, source); });
#undef IMAGE
#undef SEQUENCE
}

#undef ROWS
#undef VECTOR
#undef PAIR

TEST(ReferenceOfPyTorch, ReductionsAndSorts) { reductions<double>(); }
TEST(ReferenceOfPyTorch, MovedElementsAndImages) { movement<double>(); }
TEST(ReferenceOfPyTorch, ReductionsAndSortsInF32) { reductions<float>(); }
TEST(ReferenceOfPyTorch, MovedElementsAndImagesInF32) { movement<float>(); }

}  // namespace
