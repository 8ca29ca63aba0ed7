// Errors name the function that the user calls, and show the shapes that it is given.
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/graph/transform/vjp.hpp>
#include <tessera/interop/linalg.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>

namespace {

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::expect_error;
using ts::errc;

const std::string here = " at function_names_test.cpp:";

template <class... Sizes> auto ones(Sizes... sizes) { return ts::ones<float>({sizes...}, ts::Mesh()); }

/// The same error of an expression of stored tensors and in a traced function.
template <class F, class... Xs> void expect_both(errc id, const F& f, const std::string& text, const Xs&... xs) {
  expect_error(
      id, [&] { (void)ts::eval(f(xs...)); }, text + here);
  expect_error(
      id, [&] { (void)ts::compile(f)(xs...); }, text + here);
}

TEST(FunctionNames, OfCompositions) {
  const auto a = ones(3), b = ones(4);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::stack<1>(x, y, x); },
      "[stack] tensors differ in shape: f32[3] x f32[4] x f32[3]", a, b);
  const auto m = ones(3, 4), n = ones(4, 4);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::clamp(x, 0.0f, y); },
      "f32[3,4] x f32[4,4] in clamp", m, n);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::cosine_similarity<-1>(x, y); },
      "[mul] shapes can't be broadcast: f32[3,4] x f32[4,4] in cosine_similarity", m, n);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::trapezoid<0>(x, y); },
      "f32[2] x f32[3] in trapezoid", a, b);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::cumulative_trapezoid<0>(x, y); },
      "f32[2] x f32[3] in cumulative_trapezoid", a, b);
  expect_both(
      errc::shape_mismatch,
      [](const auto& q, const auto& bias) { return ts::biased_attention(q, q, q, bias, ts::unlimited, 0); },
      " in biased_attention", ones(2, 3, 4, 4), ones(2, 4, 5));
  expect_both(
      errc::not_divisible, [](const auto& x) { return ts::glu<0>(x); },
      "[glu] the dim must have an even number of elements, not 3", m);
  expect_both(
      errc::shape_mismatch, [](const auto& x) { return std::get<3>(ts::unbind<4>(x)); }, "in unbind", m);
  expect_both(
      errc::shape_mismatch, [](const auto& x) { return ts::linalg::matrix_power<3>(x); },
      "[matmul] inner dims differ: f32[3,4] x f32[3,4] in matrix_power", m);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::linalg::lstsq(x, y); },
      "[lstsq] the right-hand sides must have as many rows as the matrix: f32[4,4] x f32[3]", n, a);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::linalg::lstsq(x, y); },
      "[lstsq] the matrix must have at least as many rows as columns: f32[3,4] x f32[3]", m, a);
  expect_both(
      errc::shape_mismatch, [](const auto& x, const auto& y) { return ts::linalg::solve(x, y); },
      "[solve] the matrix must be square: f32[3,4] x f32[3]", m, a);
  expect_both(
      errc::shape_mismatch, [](const auto& x) { return ts::linalg::inv(x); },
      "[inv] the matrix must be square: f32[3,4]", m);
}

// A function that calls another one has its name; the next expression has none.
TEST(FunctionNames, AreThoseOfTheOutermostCall) {
  const auto q = ones(1, 2, 1, 7);
  expect_both(
      errc::not_divisible, [](const auto& x) { return ts::rotary_embedding(x); }, "f32[1,2,1,7], 2 in rotary_embedding",
      q);
  expect_error(
      errc::shape_mismatch, [] { (void)ts::eval(ones(3) + ones(4)); }, "f32[3] x f32[4]" + here);
}

TEST(FunctionNames, OfUpdates) {
  const auto x = ones(2, 3, 5), wide = ones(2, 3, 4), more = ones(3, 1, 5), longer = ones(2, 4, 5);
  const std::string rule = "the update must have the shape of what it updates, except along the dim of the slice: ";
  const auto update = [](const auto& to, const auto& by) { return ts::dynamic_update_slice<1>(to, by, 1); };
  expect_both(errc::shape_mismatch, update, "[dynamic_update_slice] " + rule + "f32[2,3,5] x f32[2,3,4]", x, wide);
  expect_both(errc::shape_mismatch, update, "[dynamic_update_slice] " + rule + "f32[2,3,5] x f32[3,1,5]", x, more);
  expect_both(errc::shape_mismatch, update,
              "[dynamic_update_slice] the update is longer than the dim of the slice: f32[2,3,5] x f32[2,4,5]", x,
              longer);
  expect_both(
      errc::shape_mismatch, [](const auto& to, const auto& by) { return ts::slice_scatter<1>(to, by, 1); },
      "[slice_scatter] " + rule + "f32[2,3,5] x f32[2,3,4]", x, wide);
}

TEST(FunctionNames, OfNormsWithGivenShapes) {
  const auto x = ones(2, 3, 4);
  const std::string rule = "gain and bias must have as many elements as x has features: f32[2,3,4] x f32[6]";
  expect_both(
      errc::shape_mismatch, [](const auto& v, const auto& g) { return ts::group_norm(v, g, g, 2); },
      "[group_norm] " + rule, x, ones(6));
  expect_both(
      errc::shape_mismatch, [](const auto& v, const auto& g) { return ts::batch_norm(v, g, g); },
      "[batch_norm] " + rule, x, ones(6));
  expect_both(
      errc::shape_mismatch, [](const auto& v, const auto& g) { return ts::instance_norm(v, g, g); },
      "[instance_norm] " + rule, x, ones(6));
}

TEST(FunctionNames, OfACacheOfAnotherShape) {
  constexpr auto run = ts::compile(
      [](const auto& layer, const auto& x, const auto& cache) { return std::get<0>(layer.cached(x, cache, 0)); });
  const auto one = nn::single(ts::Mesh());
  const auto layer = nn::grouped_query_attention(ts::Key(1), 8, 2, 1, one);
  const auto x = ones(2, 3, 8);
  EXPECT_NO_THROW((void)run(layer, x, nn::kv_cache(2, 5, 1, 4, one)));
  for (const auto& [batch, heads, width] : {std::array{2, 2, 4}, std::array{3, 1, 4}, std::array{2, 1, 8}}) {
    const std::string shape = ts::concat_text("f32[", batch, ",5,", heads, ",", width, "] x f32[2,3,1,4]");
    expect_error(
        errc::shape_mismatch, [&] { (void)run(layer, x, nn::kv_cache(batch, 5, heads, width, one)); },
        "[kv_cache] the cache must have the batch, heads and width of the new keys [batch, time, heads, width]: " +
            shape + here);
  }
}

TEST(FunctionNames, OfAnotherNumberOfCaches) {
  constexpr auto run = ts::compile([](const auto& blocks, const auto& x, const auto& caches) {
    return std::get<0>(nn::cached(blocks, x, caches, 0));
  });
  const auto one = nn::single(ts::Mesh());
  const ts::Stack<nn::LlamaBlock<>> blocks(3, [&](int i) { return nn::llama_block(ts::Key(i), 8, 2, 1, 16, one); });
  EXPECT_NO_THROW((void)run(blocks, ones(2, 3, 8), nn::kv_caches(3, 2, 5, 1, 4, one)));
  for (const int caches : {2, 4})
    expect_error(
        errc::structure, [&] { (void)run(blocks, ones(2, 3, 8), nn::kv_caches(caches, 2, 5, 1, 4, one)); },
        ts::concat_text("[cached] number of caches: a Stack of 3 layers takes 3 caches, but is given ", caches,
                        ": f32[3,8] x f32[", caches, ",2,5,1,4]", here));
}

struct Layer {
  ts::ShardedTensor<float, 2> weight;
  ts::ShardedTensor<float, 1> bias;
  static constexpr std::array field_names{"weight", "bias"};
};
struct Pair {
  Layer up, down;
  static constexpr std::array field_names{"up", "down"};
};

TEST(FunctionNames, OfTreeVdotWithTheParameter) {
  constexpr auto dot = ts::compile([](const auto& x, const auto& y) { return ts::tree_vdot(x, y); });
  const Pair x{{ones(3, 4), ones(4)}, {ones(4, 2), ones(2)}}, y{{ones(3, 4), ones(4)}, {ones(4, 2), ones(5)}};
  EXPECT_EQ(ts::item(dot(x, x)), 26);
  expect_error(
      errc::structure, [&] { (void)dot(x, y); },
      "[tree_vdot] shapes: both models must have the same shapes, but parameter down.bias is f32[2] in one and f32[5] "
      "in the "
      "other" +
          here);
  expect_error(
      errc::structure, [&] { (void)dot(std::tuple(ones(3)), std::tuple(ones(4))); },
      "[tree_vdot] shapes: ", "f32[3] in one and f32[4] in the other" + here);
}

// A step of generation has one query in each call, so that its dim has static extent 1.
TEST(FunctionNames, OfAttentionOfOneQuery) {
  const auto q = ones(2, 3, 4);
  const auto k = ones(2, 7, 3, 4);
  static constexpr auto attend = ts::compile([](const auto& query, const auto& keys, const auto& bias) {
    return ts::attention(ts::unsqueeze<1>(query), keys, keys, bias);
  });
  static constexpr auto drop = ts::compile([](const auto& query, const auto& keys, const auto& bias) {
    return ts::attention(ts::unsqueeze<1>(query), keys, keys, ts::attention_dropout(0.5, ts::Key(1)), bias);
  });
  (void)attend(q, k, ones(1, 7));
  expect_error(
      errc::shape_mismatch, [&] { (void)attend(q, k, ones(5, 7)); },
      "[attention] a bias or mask of 5 queries for 1: it is of [batch, heads, time, keys] of queries [batch, time, "
      "heads, width]: ",
      "f32[5,7] x f32[2,1,3,4] at function_names_test.cpp");
  expect_error(
      errc::shape_mismatch, [&] { (void)drop(q, k, ones(5, 7)); }, "[attention] a bias or mask of 5 queries for 1",
      "f32[5,7] x f32[2,1,3,4] at function_names_test.cpp");
  expect_error(
      errc::shape_mismatch, [&] { (void)attend(q, k, ones(1, 6)); }, "[attention] a bias or mask is not of [batch",
      "f32[1,1,1,6]");
}

TEST(FunctionNames, OfDerivativesOutsideOfATrace) {
  const auto x = ones(3);
  const auto square = [](const auto& v) { return ts::sum(v * v); };
  const std::string rule = " outside of a traced function: call ts::";
  expect_error(
      errc::unsupported, [&] { (void)ts::hvp(square, x, x); }, "[hvp]" + rule + "hvp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::jvp(square, x, x); }, "[jvp]" + rule + "jvp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::vjp(square, x); }, "[vjp]" + rule + "vjp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::linearize(square, x); }, "[linearize]" + rule + "linearize ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::grad(square)(x); }, "[grad]" + rule + "grad, ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::value_and_grad<0>(square)(x); }, "[grad]" + rule + "grad, ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::jacrev<0>(square)(x); }, "[vjp]" + rule + "vjp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::jacfwd(square)(x); }, "[linearize]" + rule + "linearize ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::hessian(square)(x); }, "[vjp]" + rule + "vjp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::optim::tree_map([](auto v) { return v; }, x); },
      "[tree_map]" + rule + "optim::tree_map ", here);
  // With more arguments, the line is that of the call too.
  const auto sum = [](const auto&... v) { return (ts::sum(v) + ...); };
  expect_error(
      errc::unsupported, [&] { (void)ts::vjp(sum, x, x, x); }, "[vjp]" + rule + "vjp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::vjp(sum, x, x, x, x, x, x); }, "[vjp]" + rule + "vjp ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::linearize(sum, x, x, x); }, "[linearize]" + rule + "linearize ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::linearize(sum, x, x, x, x, x, x); }, "[linearize]" + rule + "linearize ",
      here);
  const auto add = [](auto first, auto... v) { return (first + ... + v); };
  expect_error(
      errc::unsupported, [&] { (void)ts::optim::tree_map(add, x, x, x); }, "[tree_map]" + rule + "optim::tree_map ",
      here);
  expect_error(
      errc::unsupported, [&] { (void)ts::optim::tree_map(add, x, x, x, x, x, x); },
      "[tree_map]" + rule + "optim::tree_map ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::vmap(square)(ones(2, 3)); }, "[vmap]" + rule + "vmap ", here);
  expect_error(
      errc::unsupported, [&] { (void)ts::extent<0>(x); }, "[extent] outside of a traced function", here);
}

template <class F> void expect_outside(const F& f, const std::string& function, const std::string& called) {
  expect_error(
      errc::unsupported, f,
      "[" + function + "] outside of a traced function: call " + called + " inside a function of ts::compile" + here);
}

TEST(FunctionNames, OfLayersOutsideOfATrace) {
  const auto one = nn::single(ts::Mesh());
  const auto x = ones(2, 3, 8);
  const auto rows = ts::arange<std::int32_t>(2, ts::Mesh());
  const auto layer = nn::grouped_query_attention(ts::Key(1), 8, 2, 1, one);
  const auto cache = nn::kv_cache(2, 5, 1, 4, one);
  const auto caches = nn::kv_caches(2, 2, 5, 1, 4, one);
  const ts::Stack<nn::LlamaBlock<>> blocks(2, [&](int i) { return nn::llama_block(ts::Key(i), 8, 2, 1, 16, one); });
  const std::string member = "the layer";
  expect_outside([&] { (void)layer.cached(x, cache, 0); }, "cached", member);
  expect_outside([&] { (void)blocks[0].cached(x, cache, 0); }, "cached", member);
  expect_outside([&] { (void)nn::attention(ts::Key(1), 8, 2, one).cached(x, cache, 0); }, "cached", member);
  expect_outside([&] { (void)nn::multi_head_attention(ts::Key(1), 8, 2, one).cached(x, cache, 0); }, "cached", member);
  expect_outside([&] { (void)nn::cached(blocks, x, caches, 0); }, "cached", "ts::nn::cached");
  expect_outside([&] { (void)nn::reorder_caches(caches, rows); }, "reorder_caches", "ts::nn::reorder_caches");
  expect_outside([&] { (void)cache.rows(rows); }, "rows", "KvCache::rows");
  expect_outside([&] { (void)cache.updated(ones(2, 1, 1, 4), ones(2, 1, 1, 4), 0); }, "updated", "KvCache::updated");
  expect_outside([&] { (void)blocks(x); }, "stack", "a Stack");
  expect_outside([&] { (void)nn::lstm<float, 2>(ts::Key(1), 8, 4, one)(x); }, "lstm", member);
  expect_outside([&] { (void)nn::gru(ts::Key(1), 8, 4, one)(x); }, "gru", member);
  expect_outside([&] { (void)nn::relative_position_bias(ts::Key(1), 2, one)(x, x); }, "relative_position_bias", member);
  const auto step = [](const auto& carry, const auto& v) { return std::tuple(carry + v, v); };
  expect_outside([&] { (void)ts::scan(step, ones(8), ones(3, 8)); }, "scan", "ts::scan");
  expect_outside(
      [&] {
        (void)ts::fori_loop(
            0, 3, [](const auto&, const auto& v) { return v; }, x);
      },
      "fori_loop", "ts::fori_loop");
}

TEST(FunctionNames, OfOptimizersOutsideOfATrace) {
  const Layer model{ones(3, 4), ones(4)};
  expect_outside([&] { (void)ts::tree_vdot(model, model); }, "tree_vdot", "ts::tree_vdot");
  expect_outside([&] { (void)ts::tree_sum(model); }, "tree_sum", "ts::tree_sum");
  expect_outside([&] { (void)ts::global_norm(model); }, "global_norm", "ts::global_norm");
  expect_outside([&] { (void)ts::clip_grad_norm(model, 1.0); }, "clip_grad_norm", "ts::clip_grad_norm");
  expect_outside([&] { (void)ts::clip_by_norm(model, 1.0); }, "clip_by_norm", "ts::clip_by_norm");
  expect_outside([&] { (void)ts::clip_by_value(model, 1.0); }, "clip_by_value", "ts::clip_by_value");
  expect_outside([&] { (void)ts::sgd(model, model); }, "sgd", "the optimizer");
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, model);
  expect_outside([&] { (void)ts::adamw(model, model, state); }, "adamw", "the optimizer");
  expect_outside([&] { (void)ts::optim::moving_average(model, model, 0.9); }, "moving_average",
                 "ts::optim::moving_average");
  expect_outside([&] { (void)ts::optim::unscale(model, ts::optim::loss_scale(ts::Mesh())); }, "unscale",
                 "ts::optim::unscale");
}

TEST(Options, OfFiltersOfLogits) {
  const auto x = ones(2, 5);
  for (const double p : {-0.5, 1.5}) {
    expect_error(
        errc::option, [&] { (void)ts::eval(ts::top_p_logits(x, p)); },
        "[top_p_logits] p: ", "is not between 0 and 1" + here);
    expect_error(
        errc::option, [&] { (void)ts::eval(ts::min_p_logits(x, p)); },
        "[min_p_logits] p: ", "is not between 0 and 1" + here);
    expect_error(
        errc::option,
        [&] {
          (void)ts::compile([](const auto& v, const auto& share) { return ts::top_p_logits(v, share); })(x,
                                                                                                         ts::Scalar(p));
        },
        "[top_p_logits] p: ", "is not between 0 and 1" + here);
  }
  EXPECT_NO_THROW((void)ts::eval(ts::top_p_logits(x, 1.0)));
  expect_error(
      errc::option, [&] { (void)ts::eval(ts::top_k_logits(x, 0)); }, "[top_k_logits] k: 0 is below 1" + here);
  expect_error(
      errc::shape_mismatch, [&] { (void)ts::eval(ts::top_k_logits(x, 7)); }, "in top_k_logits" + here);
}

/// An error of the elements of a tensor, which is found when an expression runs. docs/ops.md lists these functions.
template <class F> void expect_outside(const std::string& name, const F& f) {
  const auto x = ones(4, 3), rows = ones(2, 3);
  const auto i = ts::shard(std::vector<std::int32_t>{1, 7}, {2}, ts::Mesh());
  const auto j = ts::shard(std::vector<std::int32_t>{0, 1, 7, 0, 0, 0}, {2, 3}, ts::Mesh());
  expect_error(
      errc::dim_range, [&] { (void)ts::eval(f(x, rows, i, j)); }, name, here);
}
TEST(FunctionNames, OfIndicesOutsideOfTheDim) {
  using namespace ts;
  expect_outside("embedding", [](auto& x, auto&, auto& i, auto&) { return embedding(x, i); });
  expect_outside("index_select", [](auto& x, auto&, auto& i, auto&) { return index_select<0>(x, i); });
  expect_outside("embedding", [](auto& x, auto&, auto& i, auto&) { return take(x, 2 * i); });
  expect_outside("gather", [](auto& x, auto&, auto&, auto& j) { return gather<0>(x, j); });
  expect_outside("take_along_dim", [](auto& x, auto&, auto&, auto& j) { return take_along_dim<0>(x, j); });
  expect_outside("scatter", [](auto& x, auto& y, auto&, auto& j) { return scatter<0>(x, j, y); });
  expect_outside("scatter_add", [](auto& x, auto& y, auto&, auto& j) { return scatter_add<0>(x, j, y); });
  expect_outside("index_copy", [](auto& x, auto& y, auto& i, auto&) { return index_copy<0>(x, i, y); });
  expect_outside("index_add", [](auto& x, auto& y, auto& i, auto&) { return index_add<0>(x, i, y); });
  expect_outside("index", [](auto& x, auto&, auto& i, auto&) { return index(x, std::tuple(i, i)); });
  expect_outside("index_put", [](auto& x, auto&, auto& i, auto&) {
    return index_put(x, std::tuple(i, i), ts::ones<float>({2}, Mesh()));
  });
  expect_outside("segment_sum", [](auto&, auto& y, auto& i, auto&) { return segment_sum(y, i, 3); });
  expect_outside("embedding_bag", [](auto& x, auto&, auto& i, auto&) { return embedding_bag(x, i, 0 * i); });
  expect_outside("masked_scatter",
                 [](auto& x, auto& y, auto&, auto&) { return masked_scatter(x, x > 0, merge_dims<0, 1>(y)); });
}

}  // namespace
