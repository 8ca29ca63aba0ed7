#include <array>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace {

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

/// Four blocks of two products; `Policy` says what each keeps for its gradient.
template <class Policy> struct Loss {
  constexpr auto operator()(const auto& weights, const auto& x) const {
    Matrix h = x;
    for (const auto& weight : weights) {
      const auto block = [](const auto& in, const auto& w) {
        const auto inner = ts::gelu(ts::checkpoint_name<"inner">(ts::matmul(in, w)));
        return ts::dropout<1>(ts::tanh(ts::matmul(inner, w)), 0.25, 7) + in;
      };
      h = apply(block, h, weight);
    }
    return ts::mean(h * h);
  }
  static constexpr auto apply(const auto& block, const auto& in, const auto& w) {
    if constexpr (Policy::given)
      return ts::checkpoint(block, Policy::value)(in, w);
    else
      return block(in, w);
  }
};
struct None {
  static constexpr bool given = false;
};
struct Nothing {
  static constexpr bool given = true;
  static constexpr ts::CheckpointPolicy value = ts::nothing_saveable;
};
struct Everything {
  static constexpr bool given = true;
  static constexpr ts::CheckpointPolicy value = ts::everything_saveable;
};
struct Dots {
  static constexpr bool given = true;
  static constexpr ts::CheckpointPolicy value = ts::dots_saveable;
};
struct Names {
  static constexpr bool given = true;
  static constexpr ts::CheckpointPolicy value = ts::save_only_these_names("inner");
};

struct Except {
  static constexpr bool given = true;
  static constexpr ts::CheckpointPolicy value = ts::save_anything_except_these_names("inner");
};

template <class Policy> struct Step {
  constexpr auto operator()(auto weights, auto x) const { return ts::value_and_grad(Loss<Policy>{})(weights, x); }
};
template <class Policy> inline constexpr auto step = ts::compile(Step<Policy>{});

struct Outcome {
  std::vector<std::vector<float>> values;
  std::int64_t bytes = 0;
  int products = 0, einsums = 0;
};
using Weights = std::array<Matrix, 4>;

template <class Policy> Outcome run(const Weights& weights, const Matrix& x) {
  Outcome made;
  const auto [loss, gradient] = step<Policy>(weights, x);
  made.values.push_back(ts::to_host(loss));
  for (const auto& of_weight : gradient) made.values.push_back(ts::to_host(of_weight));
  const ts::Plan& plan = step<Policy>.plan(weights, x);
  made.bytes = plan.graphs[0].arena_bytes;
  for (const ts::PlanStep& own : plan.graphs[0].steps) made.products += own.flops > 200000 ? 1 : 0;
  const std::string text = step<Policy>.explain(weights, x);
  for (std::size_t at = text.find(" = einsum"); at != std::string::npos; at = text.find(" = einsum", at + 1))
    ++made.einsums;
  return made;
}
bool same_bits(const Outcome& a, const Outcome& b) {
  for (std::size_t k = 0; k < a.values.size(); ++k)
    if (a.values[k].size() != b.values[k].size() ||
        std::memcmp(a.values[k].data(), b.values[k].data(), a.values[k].size() * sizeof(float)) != 0)
      return false;
  return a.values.size() == b.values.size();
}

TEST(Checkpoint, UsesLessMemoryAndGivesEqualBits) {
  for (const ts::Mesh& mesh : {ts::Mesh(), ts::Mesh({{"data", 2}, {"model", 2}})}) {
    const bool split = mesh.rank() > 0;
    Weights weights;
    for (std::size_t i = 0; i < 4; ++i)
      weights[i] = ts::normal<float>(ts::Key(i), {16, 16}, mesh,
                                     split ? ts::PartitionSpec{ts::none, "model"} : ts::PartitionSpec{});
    const Matrix x =
        ts::normal<float>(ts::Key(9), {512, 16}, mesh, split ? ts::PartitionSpec{"data"} : ts::PartitionSpec{});
    const Outcome plain = run<None>(weights, x), nothing = run<Nothing>(weights, x), all = run<Everything>(weights, x),
                  dots = run<Dots>(weights, x), names = run<Names>(weights, x), except = run<Except>(weights, x);
    for (const Outcome* other : {&nothing, &all, &dots, &names, &except}) EXPECT_TRUE(same_bits(plain, *other));
    EXPECT_LT(nothing.bytes * 10, plain.bytes * 7) << step<Nothing>.explain(weights, x);
    EXPECT_EQ(all.bytes, plain.bytes);
    EXPECT_GT(dots.bytes, nothing.bytes);
    EXPECT_GT(names.bytes, nothing.bytes);
    EXPECT_LT(names.bytes, plain.bytes);
    EXPECT_LT(except.bytes, plain.bytes);
    EXPECT_GT(except.bytes, nothing.bytes);
    EXPECT_EQ(plain.products, all.products);
    EXPECT_EQ(except.einsums, plain.einsums + 4);
    EXPECT_EQ(dots.products, plain.products);
    EXPECT_EQ(names.products, plain.products + 4);
    EXPECT_EQ(nothing.products, plain.products + 8);
  }
}

/// Attention scores, a product with a batch dim, between two products without, each with a name.
template <class Policy> struct Scores {
  constexpr auto operator()(auto weight, auto x) const {  // [f, f], [b, t, f]
    const auto block = [](const auto& in, const auto& w) {
      const auto q = ts::checkpoint_name<"q">(ts::tanh(ts::matmul(in, w)));
      const auto scores = ts::checkpoint_name<"scores">(ts::einsum<"bif,bjf->bij">(q, in));
      return ts::matmul(ts::einsum<"bij,bjf->bif">(ts::softmax(scores), ts::sigmoid(in)), w);
    };
    const auto loss = [&](const auto& w, const auto& in) {
      const auto y = ts::checkpoint(block, Policy::value)(in, w);
      return ts::mean(y * y);
    };
    return ts::value_and_grad(loss)(weight, x);
  }
};
template <class Policy> inline constexpr auto scores = ts::compile(Scores<Policy>{});
template <ts::CheckpointPolicy (*Made)()> struct Of {
  static constexpr ts::CheckpointPolicy value = Made();
};
constexpr ts::CheckpointPolicy nothing() { return ts::nothing_saveable; }
constexpr ts::CheckpointPolicy everything() { return ts::everything_saveable; }
constexpr ts::CheckpointPolicy dots() { return ts::dots_saveable; }
constexpr ts::CheckpointPolicy dots_without_batch() { return ts::dots_with_no_batch_dims_saveable; }
constexpr ts::CheckpointPolicy offloaded() { return ts::offload_dot_with_no_batch_dims; }
constexpr ts::CheckpointPolicy only_scores() { return ts::save_only_these_names("scores"); }
constexpr ts::CheckpointPolicy only_scores_offloaded() { return ts::save_and_offload_only_these_names("scores"); }
constexpr ts::CheckpointPolicy any_but_q() { return ts::save_any_names_but_these("q"); }
constexpr ts::CheckpointPolicy all_but_scores() { return ts::save_anything_except_these_names("scores"); }
constexpr ts::CheckpointPolicy all_but_both() { return ts::save_anything_except_these_names("scores", "q"); }
constexpr ts::CheckpointPolicy dots_and_scores() {
  return ts::save_from_both_policies(ts::dots_with_no_batch_dims_saveable, ts::save_only_these_names("scores"));
}

/// Products of the program, and its scratch memory.
template <ts::CheckpointPolicy (*Made)()> std::pair<int, std::int64_t> of_scores(std::vector<float>& gradient) {
  const auto weight = ts::normal<float>(ts::Key(1), {16, 16}, ts::Mesh(), {}, 0, 0.25f);
  const auto x = ts::normal<float>(ts::Key(2), {4, 64, 16}, ts::Mesh(), {});
  const auto [loss, own] = scores<Of<Made>>(weight, x);
  const std::vector<float> values = ts::to_host(own);
  if (gradient.empty()) gradient = values;
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], gradient[i], 1e-6);
  const ts::Plan& plan = scores<Of<Made>>.plan(weight, x);
  int products = 0;
  for (const ts::PlanStep& step : plan.graphs[0].steps) products += step.flops > 100000 ? 1 : 0;
  return {products, plan.graphs[0].arena_bytes};
}
TEST(Checkpoint, PoliciesOfJax) {
  std::vector<float> gradient;
  const auto all = of_scores<everything>(gradient), none = of_scores<nothing>(gradient),
             products = of_scores<dots>(gradient), flat = of_scores<dots_without_batch>(gradient),
             named = of_scores<only_scores>(gradient), others = of_scores<any_but_q>(gradient),
             without = of_scores<all_but_scores>(gradient), without_both = of_scores<all_but_both>(gradient),
             joined = of_scores<dots_and_scores>(gradient);
  // The block has four products, and each policy computes again those that it doesn't store: the last one never.
  EXPECT_EQ(products.first, all.first);
  EXPECT_EQ(none.first, all.first + 3);    // in w, scores, scores values
  EXPECT_EQ(flat.first, all.first + 2);    // scores, scores values
  EXPECT_EQ(named.first, all.first + 2);   // in w, scores values
  EXPECT_EQ(others, named);                // the only other name is q
  EXPECT_EQ(joined.first, all.first + 1);  // scores values
  // The softmax behind the scores and the product before q are stored, so that no product is computed again.
  EXPECT_EQ(without.first, all.first);
  EXPECT_EQ(without_both.first, all.first);
  // Where host and device are one memory, moving a value there is keeping it.
  EXPECT_EQ(of_scores<offloaded>(gradient), flat);
  EXPECT_EQ(of_scores<only_scores_offloaded>(gradient), named);
  EXPECT_THROW(ts::save_from_both_policies(only_scores(), any_but_q()), ts::error);
  EXPECT_THROW(ts::save_from_both_policies(dots_and_scores(), dots()), ts::error);
}

// Keys inside a traced function are those that the same calls give outside.
TEST(Keys, AreDerivedInsideAsOutside) {
  constexpr auto noise = ts::compile([](const auto& x, const auto& key) { return ts::normal_like(x, key); });
  constexpr auto derived = ts::compile([](const auto& x, const auto& key, const auto& step) {
    const auto [a, b] = ts::split<2>(ts::fold_in(key, step));
    return std::tuple(ts::normal_like(x, ts::fold_in(key, 3)), ts::normal_like(x, a), ts::normal_like(x, b));
  });
  const ts::Key key{0xfedcba9876543210ull};
  const ts::ShardedTensor<float, 1> x = ts::normal<float>(key, {64}, ts::Mesh(), {});
  const auto [third, a, b] = derived(x, key, ts::Dim(5));
  const auto [outer_a, outer_b] = ts::split<2>(ts::fold_in(key, 5));
  EXPECT_EQ(ts::to_host(third), ts::to_host(noise(x, ts::fold_in(key, 3))));
  EXPECT_EQ(ts::to_host(a), ts::to_host(noise(x, outer_a)));
  EXPECT_EQ(ts::to_host(b), ts::to_host(noise(x, outer_b)));
  EXPECT_NE(ts::to_host(a), ts::to_host(b));
}

}  // namespace
