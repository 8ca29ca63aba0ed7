#include <array>
#include <cstring>
#include <string>
#include <tuple>
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
  static constexpr ts::CheckpointPolicy value = ts::save_only_names("inner");
};

template <class Policy> struct Step {
  constexpr auto operator()(auto weights, auto x) const { return ts::value_and_grad(Loss<Policy>{})(weights, x); }
};
template <class Policy> inline constexpr auto step = ts::compile(Step<Policy>{});

struct Outcome {
  std::vector<std::vector<float>> values;
  std::int64_t bytes = 0;
  int products = 0;
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
                  dots = run<Dots>(weights, x), names = run<Names>(weights, x);
    for (const Outcome* other : {&nothing, &all, &dots, &names}) EXPECT_TRUE(same_bits(plain, *other));
    EXPECT_LT(nothing.bytes * 10, plain.bytes * 7) << step<Nothing>.explain(weights, x);
    EXPECT_EQ(all.bytes, plain.bytes);
    EXPECT_GT(dots.bytes, nothing.bytes);
    EXPECT_GT(names.bytes, nothing.bytes);
    EXPECT_LT(names.bytes, plain.bytes);
    EXPECT_EQ(plain.products, all.products);
    EXPECT_EQ(dots.products, plain.products);
    EXPECT_EQ(names.products, plain.products + 4);
    EXPECT_EQ(nothing.products, plain.products + 8);
  }
}

}  // namespace
