// The errors of operations whose operands don't fit, for docs/ops.md. Each call below is recorded once, and its shapes
// are inferred for hundreds of operands: wrong extents, dims without elements, sizes and indices that are negative or
// too large. What is thrown makes the table of errors, and each message is checked. tools/ops_page writes the table.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include "ops_page.hpp"
#include <gtest/gtest.h>

#include <tessera/partition/propagation/shapes.hpp>

namespace {

namespace ts = tessera;
using tessera::tests::Matrix;
using tessera::tests::ops_page::Recorded;

using Vector = ts::ShardedTensor<float, 1>;
using Cube = ts::ShardedTensor<float, 3>;
using Image = ts::ShardedTensor<float, 4>;
using Index = ts::ShardedTensor<std::int32_t, 1>;
using Indices = ts::ShardedTensor<std::int32_t, 2>;
using Mask = ts::ShardedTensor<bool, 2>;
using ts::Dim;

/// An argument: a tensor of a shape, or a size.
struct Argument {
  std::vector<std::int64_t> extents;  ///< of a size, the size alone
  bool is_size = false;
  ts::DType type{};

  Argument(std::initializer_list<std::int64_t> shape) : extents(shape) {}
  Argument(std::int64_t size) : extents{size}, is_size(true) {}
};
struct Case {
  std::string text;
  Recorded recorded;
  std::vector<Argument> arguments;
};

template <class T> constexpr ts::DType type_of = ts::DType::i64;
template <class T, int Rank> constexpr ts::DType type_of<ts::ShardedTensor<T, Rank>> = ts::dtype_v<T>;

template <class... Args, class F>
void add(std::vector<Case>& all, const char* text, std::vector<Argument> arguments, F) {
  const ts::DType types[]{type_of<Args>...};
  for (std::size_t i = 0; i < arguments.size(); ++i) arguments[i].type = types[i];
  all.push_back({text, Recorded::of<F, Args...>(), std::move(arguments)});
}

// ---- The calls. x, y: matrices [8,6]; w: a matrix [6,4]; v: a vector [6]; i: indices [4]; j: indices [8,6]; n, m:
// sizes.

#define X(...) add<Matrix>(all, #__VA_ARGS__, {{8, 6}}, [](const auto& x) { return __VA_ARGS__; })
#define XY(...) \
  add<Matrix, Matrix>(all, #__VA_ARGS__, {{8, 6}, {8, 6}}, [](const auto& x, const auto& y) { return __VA_ARGS__; })
#define XYZ(...)                                                           \
  add<Matrix, Matrix, Matrix>(all, #__VA_ARGS__, {{8, 6}, {8, 6}, {8, 6}}, \
                              [](const auto& x, const auto& y, const auto& z) { return __VA_ARGS__; })
#define XW(...) \
  add<Matrix, Matrix>(all, #__VA_ARGS__, {{8, 6}, {6, 4}}, [](const auto& x, const auto& w) { return __VA_ARGS__; })
#define XV(...) \
  add<Matrix, Vector>(all, #__VA_ARGS__, {{8, 6}, {6}}, [](const auto& x, const auto& v) { return __VA_ARGS__; })
#define XI(...) \
  add<Matrix, Index>(all, #__VA_ARGS__, {{8, 6}, {4}}, [](const auto& x, const auto& i) { return __VA_ARGS__; })
#define XL(...) \
  add<Matrix, Index>(all, #__VA_ARGS__, {{8, 6}, {8}}, [](const auto& x, const auto& i) { return __VA_ARGS__; })
#define XJ(...) \
  add<Matrix, Indices>(all, #__VA_ARGS__, {{8, 6}, {8, 6}}, [](const auto& x, const auto& j) { return __VA_ARGS__; })
#define XJY(...)                                                            \
  add<Matrix, Indices, Matrix>(all, #__VA_ARGS__, {{8, 6}, {8, 6}, {8, 6}}, \
                               [](const auto& x, const auto& j, const auto& y) { return __VA_ARGS__; })
#define XIY(...)                                                       \
  add<Matrix, Index, Matrix>(all, #__VA_ARGS__, {{8, 6}, {4}, {4, 6}}, \
                             [](const auto& x, const auto& i, const auto& y) { return __VA_ARGS__; })
#define XN(...) add<Matrix, Dim>(all, #__VA_ARGS__, {{8, 6}, 2}, [](const auto& x, auto n) { return __VA_ARGS__; })
#define XNM(...) \
  add<Matrix, Dim, Dim>(all, #__VA_ARGS__, {{8, 6}, 1, 4}, [](const auto& x, auto n, auto m) { return __VA_ARGS__; })
#define V(...) add<Vector>(all, #__VA_ARGS__, {{6}}, [](const auto& v) { return __VA_ARGS__; })
#define VN(...) add<Vector, Dim>(all, #__VA_ARGS__, {{6}, 2}, [](const auto& v, auto n) { return __VA_ARGS__; })
#define VU(...) \
  add<Vector, Vector>(all, #__VA_ARGS__, {{6}, {6}}, [](const auto& v, const auto& u) { return __VA_ARGS__; })
#define IMAGE(...) add<Image>(all, #__VA_ARGS__, {{2, 8, 6, 4}}, [](const auto& x) { return __VA_ARGS__; })
#define IMAGE_N(...) \
  add<Image, Dim>(all, #__VA_ARGS__, {{2, 8, 6, 4}, 2}, [](const auto& x, auto n) { return __VA_ARGS__; })
#define IMAGE_W(given, ...) \
  add<Image, Image>(all, #__VA_ARGS__, {{2, 8, 6, 4}, given}, [](const auto& x, const auto& w) { return __VA_ARGS__; })

using namespace ts;

void elementwise(std::vector<Case>& all) {
  XY(x + y), XY(x < y), XY(maximum(x, y)), XYZ(select(x < y, y, z)), XYZ(clamp(x, y, z)), XYZ(lerp(x, y, z)),
      XYZ(addcmul(x, y, z)), XYZ(betainc(x, y, z)), XY(isclose(x, y)), XY(masked_fill(x, y < 0, 1)), X(glu<1>(x)),
      XV(prelu(x, v));
}
void losses(std::vector<Case>& all) {
  XY(mse(x, y)), XY(huber(x, y)), XY(l1_loss(x, y)), XY(bce_with_logits(x, y)), XY(kl_div(x, y)),
      XYZ(gaussian_nll_loss(x, y, z)), XL(cross_entropy(x, i)), XY(cross_entropy(x, y)), XL(nll_loss(x, i)),
      XL(multi_margin_loss(x, i)), XY(pairwise_distance(x, y)), XYZ(triplet_margin_loss(x, y, z)),
      XYZ(margin_ranking_loss(x, y, z)), XY(info_nce(x, y, 0.1)), XL(accuracy(x, i)), XL(top_k_accuracy(x, i, 2)),
      XY(binary_cross_entropy(x, y)), XY(smooth_l1_loss(x, y)), XY(poisson_nll_loss(x, y)),
      XY(sigmoid_focal_loss(x, y)), XY(soft_margin_loss(x, y)), XY(multilabel_soft_margin_loss(x, y)),
      XY(hinge_embedding_loss(x, y)), XJ(multilabel_margin_loss(x, j));
  add<Matrix, Matrix, Vector>(
      all, "cosine_embedding_loss(x, y, labels)", {{8, 6}, {8, 6}, {8}},
      [](const auto& x, const auto& y, const auto& labels) { return cosine_embedding_loss(x, y, labels); });
  add<Index, Index>(all, "confusion_matrix(i, k, 3)", {{4}, {4}},
                    [](const auto& i, const auto& k) { return confusion_matrix(i, k, 3); });
  add<Index, Index>(all, "precision(i, k, 3)", {{4}, {4}},
                    [](const auto& i, const auto& k) { return precision(i, k, 3); });
  VU(auroc(v, cast<int>(u > 0)));
}
void reductions(std::vector<Case>& all) {
  X(sum<0>(x)), X(max<0>(x)), X(argmax<0>(x)), X(argmax(x)), X(nanargmax<0>(x)), X(prod<0>(x)), X(any<0>(x)),
      X(mean<0>(x)), X(var<0>(x)), X(norm<0>(x)), X(logsumexp<0>(x)), X(softmax<0>(x)), X(cumsum<0>(x)),
      X(cummax<0>(x)), X(logcumsumexp<0>(x)), X(sort<0>(x)), X(argsort<0>(x)), XN(topk<0>(x, n).values),
      X(median<0>(x)), X(quantile<0>(x, 0.5)), XN(kthvalue<0>(x, n).values), X(mode<0>(x).values), X(diff<0>(x)),
      X(trapezoid<0>(x)), X(cov(x)), XN(histogram(x, n, 0, 1)), XY(cdist(x, y)), X(pdist(x)), VU(searchsorted(v, u)),
      VN(unique(v, n).values), VN(unique_consecutive(v, n).values);
  add<Index, Dim>(all, "bincount(i, n)", {{4}, 2}, [](const auto& i, auto n) { return bincount(i, n); });
  X(ts::all<0>(x)), X(argmin<0>(x)), X(min<0>(x)), X(nansum<0>(x)), X(nanmax<0>(x)), X(nanmedian<0>(x)),
      X(nanmean<0>(x)), X(count_nonzero<0>(x)), X(cumprod<0>(x)), X(cummin<0>(x)), X(log_softmax<0>(x)), X(corrcoef(x)),
      X(cumulative_trapezoid<0>(x)), X(var_mean<0>(x).mean), X(aminmax<0>(x).min);
}
void moves(std::vector<Case>& all) {
  X(transpose(x)), XN(split_dim<0>(x, n)), X(merge_dims<0, 1>(x)), XN(reshape(x, {n, -1}));
  add<Matrix, Dim, Dim>(all, "reshape(x, {n, m})", {{8, 6}, 4, 12}, [](const auto& x, auto n, auto m) {
    return reshape(x, {n, m});
  });
  X(squeeze<0>(slice<0>(x, 0, 1)));
  add<Matrix>(all, "squeeze<0>(x)", {{1, 6}}, [](const auto& x) { return squeeze<0>(x); });
  XNM(slice<0>(x, n, m)), XN(slice<0>(x, n)), XN(slice<0>(x, 1, 3, n)), XN(select<0>(x, n)), XNM(pad<0>(x, n, m)),
      XNM(pad<0, PadMode::reflect>(x, n, m)), XNM(pad<0, PadMode::circular>(x, n, m)), XY(concat<0>(x, y)),
      XY(stack<0>(x, y)), XY(broadcast_like(x, y)), XN(broadcast_to(x, {n, -1, -1})),
      XNM(broadcast_to(sum<0>(x), {n, m, -1})), XN(tile<0>(x, n)), XN(repeat_interleave<0>(x, n)), XN(roll<0>(x, n)),
      X(flip<0>(x)), X(rot90(x)), XN(tril(x, n)), X(diagonal(x)), V(diag(v)), X(unbind<8, 0>(x)),
      X(std::get<1>(split<0, 3, 5>(x))), X(std::get<1>(chunk<3, 0>(x))), X(std::get<1>(tensor_split<3, 0>(x))),
      XW(block_diag(x, w)), VU(cartesian_prod(v, u)), V(combinations<2>(v)), VU(std::get<0>(meshgrid(v, u))),
      XN(arange<std::int32_t>(n, x)), XN(linspace<float>(0, 1, n, x)), XN(eye<float>(n, x)),
      XNM(full<float>({n, m}, 1, x)), X(rearrange<"(a b) c -> a (b c)">(x, ts::len<"b">(2))),
      XN(slice_scatter<0>(x, slice<0>(x, 0, 2), n)), XY(slice_scatter<0>(x, y, 0)), XV(select_scatter<0>(x, v, 1)),
      XV(diagonal_scatter(x, v)), XY(dynamic_update_slice<0>(x, y, 0)), X(unsqueeze<0>(x)), X(movedim<0, 1>(x)),
      X(swapaxes<0, 1>(x)), X(zeros_like(x)), X(iota<0, float>(x)), XN(logspace<float>(0, 1, n, x)),
      XNM(zeros<float>({n, m}, x)), XN(triu(x, n)), XV(dynamic_update_index<0>(x, v, 1));
}
void lookups(std::vector<Case>& all) {
  XI(embedding(x, i)), XI(index_select<0>(x, i)), XI(take(x, i)), XJ(gather<0>(x, j)), XJ(take_along_dim<0>(x, j)),
      XJY(scatter<0>(x, j, y)), XJY(scatter_add<0>(x, j, y)), XJY(scatter_reduce<0, Reduction::max>(x, j, y)),
      XIY(index_copy<0>(x, i, y)), XIY(index_add<0>(x, i, y)), XI(index_fill<0>(x, i, 1)),
      XI(index(x, std::tuple(i, i))), XL(segment_sum(x, i, 3)), XL(segment_max(x, i, 3)), XL(segment_softmax(x, i, 3)),
      XN(nonzero(x > 0, n)), XN(argwhere(x > 0, n)), XY(isin(x, y)), XN(dynamic_slice<0>(x, 1, n)),
      X(dynamic_index<0>(x, 1)), XI(embedding_bag(x, i, i)), XN(one_hot(cast<int>(x), n)), XL(segment_mean(x, i, 3)),
      XL(segment_min(x, i, 3)), XL(segment_prod(x, i, 3)), XV(masked_scatter(x, x > 0, v));
  add<Matrix, Index, Vector>(
      all, "index_put(x, std::tuple(i, i), v)", {{8, 6}, {4}, {4}},
      [](const auto& x, const auto& i, const auto& v) { return index_put(x, std::tuple(i, i), v); });
  add<Matrix, Matrix, Dim>(all, "masked_select(x, y > 0, n)", {{8, 6}, {8, 6}, 2},
                           [](const auto& x, const auto& y, auto n) { return masked_select(x, y > 0, n); });
}
void products(std::vector<Case>& all) {
  XW(matmul(x, w)), XV(mv(x, v)), XY(inner(x, y)), XY(vecdot<1>(x, y)), XW(tensordot<1>(x, w)),
      XW(einsum<"ik,kj->ij">(x, w)), VU(outer(v, u)), VU(dot(v, u)), X(trace(x)), XW(multi_dot(x, w));
  add<Matrix, Matrix, Matrix>(all, "multi_dot(x, w, y)", {{8, 6}, {6, 4}, {4, 3}},
                              [](const auto& a, const auto& b, const auto& c) { return multi_dot(a, b, c); });
  XW(kron(x, w)), XY(dist(x, y)), XY(cosine_similarity<1>(x, y)), X(normalize<1>(x)), VN(vander(v, n)),
      XN(renorm<0>(x, 2, n));
  add<Matrix, Matrix, Matrix>(all, "addmm(x, a, b)", {{8, 4}, {8, 6}, {6, 4}},
                              [](const auto& x, const auto& a, const auto& b) { return addmm(x, a, b); });
  add<Matrix, Cube, Index>(all, "ragged_dot(x, w, sizes)", {{8, 6}, {3, 6, 4}, {3}},
                           [](const auto& x, const auto& w, const auto& n) { return ragged_dot(x, w, n); });
  add<Matrix, Matrix, Cube>(all, "bilinear(x, y, weight)", {{8, 6}, {8, 4}, {5, 6, 4}},
                            [](const auto& x, const auto& y, const auto& w) { return bilinear(x, y, w); });
  add<Matrix, Matrix>(all, "cross<0>(x, y)", {{3, 6}, {3, 6}},
                      [](const auto& x, const auto& y) { return cross<0>(x, y); });
  XV(layer_norm(x, v, v)), XV(rms_norm(x, v)), XV(batch_norm(x, v, v, 1e-5)), X(uniform_like(x, 1)),
      X(dropout(x, 0.5, 1)), X(categorical(x, 1)), XN(multinomial(x, n, 1)), X(permutation<0>(x, 1)),
      X(top_k_logits(x, 2));
  add<Cube, Cube, Cube>(all, "baddbmm(x, a, b)", {{2, 8, 4}, {2, 8, 6}, {2, 6, 4}},
                        [](const auto& x, const auto& a, const auto& b) { return baddbmm(x, a, b); });
  add<Matrix, Cube, Cube>(all, "addbmm(x, a, b)", {{8, 4}, {2, 8, 6}, {2, 6, 4}},
                          [](const auto& x, const auto& a, const auto& b) { return addbmm(x, a, b); });
  add<Vector, Matrix, Vector>(all, "addmv(y, a, x)", {{8}, {8, 6}, {6}},
                              [](const auto& y, const auto& a, const auto& x) { return addmv(y, a, x); });
  add<Matrix, Vector, Vector>(all, "addr(x, a, b)", {{8, 6}, {8}, {6}},
                              [](const auto& x, const auto& a, const auto& b) { return addr(x, a, b); });
  XV(batch_norm_inference(x, v, v, v, v)), X(normal_like(x, 1)), X(bernoulli(x, 1)), X(gumbel_like(x, 1)),
      X(exponential_like(x, 1)), X(gamma(x, 1)), XY(beta(x, y, 1)), X(dirichlet(x, 1)),
      X(truncated_normal_like(x, -1, 1, 1)), X(gumbel_softmax(x, 1)), X(alpha_dropout(x, 0.5, 1)),
      X(top_p_logits(x, 0.5)), X(min_p_logits(x, 0.5));
}
void images(std::vector<Case>& all) {
  const std::initializer_list<std::int64_t> taps{3, 3, 4, 8};
  IMAGE_W(taps, conv2d(x, w)), IMAGE_W(taps, conv_transpose2d(x, w)), IMAGE(max_pool2d(x, {.window = {2, 2}})),
      IMAGE(avg_pool2d(x, {.window = {2, 2}})), IMAGE(lp_pool2d(x, 2, {.window = {2, 2}})),
      IMAGE(adaptive_avg_pool2d(x, {2, 2})), IMAGE(adaptive_max_pool2d(x, {2, 2})), IMAGE_N(interpolate<1>(x, n)),
      IMAGE_N(pixel_shuffle(x, n)), IMAGE_N(pixel_unshuffle(x, n)), IMAGE_N(channel_shuffle(x, n)),
      IMAGE(unfold(x, {.window = {3, 3}})), IMAGE_N(unfold<1>(x, 3, n)), IMAGE(local_response_norm(x, {.size = 2}));
  add<Image, Image, Image>(all, "attention(q, k, v)", {{2, 8, 6, 4}, {2, 5, 6, 4}, {2, 5, 6, 3}},
                           [](const auto& q, const auto& k, const auto& v) { return attention(q, k, v); });
  add<Image, Image>(all, "repeat_heads(x, y)", {{2, 8, 3, 4}, {2, 8, 6, 4}},
                    [](const auto& k, const auto& q) { return repeat_heads(k, q); });
  add<Image>(all, "rotary_embedding(x)", {{2, 8, 6, 4}}, [](const auto& x) { return rotary_embedding(x); });
  add<Image, Image>(all, "grid_sample(x, grid)", {{2, 8, 6, 4}, {2, 5, 5, 2}},
                    [](const auto& x, const auto& g) { return grid_sample(x, g); });
  add<Image, Vector>(all, "group_norm(x, v, v, 2)", {{2, 8, 6, 4}, {4}},
                     [](const auto& x, const auto& v) { return group_norm(x, v, v, 2); });
  IMAGE(conv_general_dilated_patches(x, {.window = {3, 3}})), IMAGE(dropout2d(x, 0.5, 1));
  add<Cube>(all, "fold(x, {4, 4}, {.window = {3, 3}})", {{2, 4, 36}}, [](const auto& x) {
    return fold(x, {4, 4}, {.window = {3, 3}});
  });
  add<Cube>(all, "affine_grid(theta, {4, 4})", {{2, 2, 3}}, [](const auto& x) { return affine_grid(x, {4, 4}); });
  add<Cube, Cube>(all, "conv1d(x, w)", {{2, 8, 4}, {3, 4, 5}},
                  [](const auto& x, const auto& w) { return conv1d(x, w); });
  add<Cube, Cube>(all, "conv_transpose1d(x, w)", {{2, 8, 4}, {3, 4, 5}},
                  [](const auto& x, const auto& w) { return conv_transpose1d(x, w); });
  add<Cube>(all, "max_pool1d(x, {.window = {2}})", {{2, 8, 4}},
            [](const auto& x) { return max_pool1d(x, {.window = {2}}); });
  add<Image, Image, Image>(all, "causal_attention(q, k, v)", {{2, 5, 6, 4}, {2, 5, 6, 4}, {2, 5, 6, 3}},
                           [](const auto& q, const auto& k, const auto& v) { return causal_attention(q, k, v); });
  add<Image, Image, Image>(all, "band_attention(q, k, v, 2, 0)", {{2, 5, 6, 4}, {2, 5, 6, 4}, {2, 5, 6, 4}},
                           [](const auto& q, const auto& k, const auto& v) { return band_attention(q, k, v, 2, 0); });
  add<Image, Vector>(all, "instance_norm(x, v, v)", {{2, 8, 6, 4}, {4}},
                     [](const auto& x, const auto& v) { return instance_norm(x, v, v); });
}

void loops(std::vector<Case>& all) {
  XN(fori_loop(
      0, n, [](auto, auto c) { return c + 1; }, x)),
      XY(cond(
          sum(x) > 0, [](auto a, auto) { return a; }, [](auto, auto b) { return b; }, x, y)),
      XY(vmap([](auto a, auto b) { return a + b; })(x, y)),
      XY(std::get<0>(scan([](auto c, auto e) { return std::pair(c + e, c); }, sum<0>(x), y))),
      XY(map([](auto a) { return a + 1; }, x) + y), X(associative_scan([](auto a, auto b) { return a + b; }, x)),
      XN(while_loop([](auto c) { return sum(c) < 9; }, [](auto c) { return c + 1; }, x, n));
}

#undef X
#undef XY
#undef XYZ
#undef XW
#undef XV
#undef XI
#undef XL
#undef XJ
#undef XJY
#undef XIY
#undef XN
#undef XNM
#undef V
#undef VN
#undef VU
#undef IMAGE
#undef IMAGE_N
#undef IMAGE_W

// ---- What is thrown

/// Infers the shapes of a call for arguments of these shapes and sizes.
void infer(const Case& call, const std::vector<Argument>& given) {
  std::vector<ts::Shape> shapes(given.size());
  std::vector<ts::HostNumber> numbers(given.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i].is_size)
      numbers[i] = given[i].extents[0];
    else
      for (const std::int64_t extent : given[i].extents) shapes[i].push_back(extent);
  ts::infer_shapes(call.recorded.view(), shapes.data(), numbers.data());
}

/// A message without its numbers, so that messages of one rule are equal.
std::string rule_of(std::string_view message) {
  std::string rule;
  for (const char c : message)
    if ((c < '0' || c > '9') && c != ',' && c != '-') rule += c;
  return rule;
}
/// A message without " at FILE:LINE".
std::string without_line(const std::string& message) { return message.substr(0, message.rfind(" at ")); }

struct Thrown {
  ts::errc id{};
  std::string message;
};
using Errors = std::vector<Thrown>;

/// Whether a message names a function that the text of a call contains, in brackets or behind "in". Operators have the
/// names of their rows, and an einsum of matrices is a matmul.
bool names_its_function(const std::string& call, const std::string& message) {
  static const std::map<std::string, std::string> operators{
      {"add", " + "}, {"less", " < "}, {"matmul", "einsum<\"ik,kj"}};
  const auto has = [&](const std::string& name) {
    const auto found = call.find("matmul(") == std::string::npos ? operators.find(name) : operators.end();
    const std::string text = found == operators.end() ? name : found->second;
    for (std::size_t at = 0; (at = call.find(text, at)) != std::string::npos; ++at)
      if (found != operators.end() || at + text.size() == call.size() || call[at + text.size()] == '(' ||
          call[at + text.size()] == '<')
        return true;
    return false;
  };
  const std::size_t in = message.rfind(" in ");
  return has(message.substr(1, message.find(']') - 1)) || (in != std::string::npos && has(message.substr(in + 4)));
}

/// The errors of a call: of each rule that its operands can break one message. Each argument has each extent of a list;
/// with each of these, each extent has a few others.
Errors errors_of(const Case& call) {
  Errors found;
  std::vector<std::string> rules;
  const auto attempt = [&](const std::vector<Argument>& given) {
    try {
      infer(call, given);
    } catch (const ts::error& e) {
      const std::string message = e.what();
      if (message.starts_with("[argument]")) return;  // it is too large for any call
      EXPECT_TRUE(e.source().line != 0 && std::string_view(e.source().file).ends_with("ops_errors_test.cpp"))
          << call.text << ": the message does not name the line of the call: " << message;
      // Sizes beyond 64 bits, and more than 2^52 elements, are errors of every operation.
      if (e.id() == ts::errc::capacity) return;
      const std::string rule = rule_of(message);
      if (std::find(rules.begin(), rules.end(), rule) != rules.end()) return;
      rules.push_back(rule);
      found.push_back({e.id(), without_line(message)});
    }
  };
  constexpr std::int64_t sizes[]{7, -9, 0, 100, std::int64_t{1} << 31, std::int64_t{1} << 53};
  constexpr std::int64_t others[]{0, 5};
  for (std::size_t a = 0; a < call.arguments.size(); ++a)
    for (std::size_t d = 0; d < call.arguments[a].extents.size(); ++d)
      for (const std::int64_t size : sizes) {
        if (size < 0 && !call.arguments[a].is_size) continue;
        std::vector<Argument> given = call.arguments;
        given[a].extents[d] = size;
        attempt(given);
        for (std::size_t b = 0; b < given.size(); ++b)
          for (std::size_t e = 0; e < given[b].extents.size(); ++e)
            for (const std::int64_t other : others) {
              std::vector<Argument> two = given;
              two[b].extents[e] = other;
              attempt(two);
            }
      }
  return found;
}

/// "shape_mismatch" of 7, from the headings of docs/errors.md.
std::string name_of_error(ts::errc id) {
  const std::string page = tessera_test::page_text("errors.md"),
                    heading = ts::concat_text("\n## ", static_cast<int>(id), " ");
  const std::size_t at = page.find(heading);
  return at == std::string::npos ? "" : page.substr(at + heading.size(), page.find('\n', at + 1) - at - heading.size());
}

const std::string first = "<!-- tools/ops_page: errors -->\n", last = "<!-- end -->\n";
/// g++ writes the page. Compilers evaluate operands in different orders, so that of several checks that fail another
/// may be the first: with clang, examples of messages are compared without their numbers.
std::string as_compared(std::string text) {
#ifdef __clang__
  std::string made;
  for (const char c : text)
    if (c < '0' || c > '9')
      made += c;
    else if (made.empty() || made.back() != '#')
      made += '#';
  return made;
#else
  return text;
#endif
}

TEST(OpsErrors, NameTheFunctionTheShapesAndTheLine) {
  std::vector<Case> calls;
  elementwise(calls), losses(calls), reductions(calls), moves(calls), lookups(calls), products(calls), images(calls),
      loops(calls);
  std::string table = "\n| call | error | message |\n|---|---|---|\n", long_dims, none;
  const auto list = [](std::string& calls, const Case& call) {
    calls += (calls.empty() ? "`" : ", `") + call.text + "`";
  };
  for (const Case& call : calls) {
    ASSERT_NO_THROW(infer(call, call.arguments)) << call.text;
    const Errors errors = errors_of(call);
    for (const Thrown& e : errors) {
      // A while_loop is a scan of its greatest number of steps; an associative_scan names only what its function calls.
      EXPECT_TRUE(names_its_function(call.text, e.message) || call.text.starts_with("while_loop") ||
                  call.text.starts_with("associative_scan"))
          << call.text << ": " << e.message;
      const auto says = [&](const char* text) { return e.message.find(text) != std::string::npos; };
      if (says("differ") || says("can't be broadcast") || says("must have the"))
        EXPECT_TRUE(says("] x ")) << call.text << ": the message does not show both shapes: " << e.message;
      EXPECT_NE(name_of_error(e.id), "") << e.message;
      if (e.message.find("more elements than i32 indices can count") != std::string::npos)
        list(long_dims, call);
      else
        table += ts::concat_text("| `", call.text, "` | `", name_of_error(e.id), "` | `", e.message, "` |\n");
    }
    if (errors.empty()) list(none, call);
  }
  const std::string made =
      table +
      "\nThese calls also throw `shape_mismatch` for a dim of 2^31 elements or more, whose positions do not fit i32: " +
      long_dims + ".\n\nThese take any shapes and sizes: " + none + ".\n\n";
  const std::string page = tessera_test::page_text("ops.md");
  const std::size_t from = page.find(first) + first.size(), to = page.find(last, from);
  ASSERT_TRUE(from >= first.size() && to != std::string::npos);
  if (std::getenv("TESSERA_WRITE_PAGES") != nullptr) {
    std::ofstream(tessera_test::detail::page_path("ops.md")) << page.substr(0, from) << made << page.substr(to);
    return;
  }
  EXPECT_EQ(as_compared(page.substr(from, to - from)), as_compared(made))
      << "run tools/ops_page and commit docs/ops.md";
}

}  // namespace
