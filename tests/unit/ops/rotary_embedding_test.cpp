#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numbers>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/attention/rotary_embedding.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using namespace oracle;
using tessera_test::expect_error;

namespace {

using Tensor = Float<4>;

/// x with the coordinates of pair i at position p rotated by p frequency(i), and times a factor.
Array rotated(const Array& x, bool interleaved, int offset, const std::function<double(int)>& frequency,
              double factor = 1) {
  Array y = x;
  const std::int64_t pairs = x.shape[3] / 2;
  for_each_index({x.shape[0], x.shape[1], x.shape[2], pairs}, [&](const Shape& i) {
    const double angle = static_cast<double>(i[1] + offset) * frequency(static_cast<int>(i[3]));
    const Shape a{i[0], i[1], i[2], interleaved ? 2 * i[3] : i[3]},
        b{i[0], i[1], i[2], interleaved ? 2 * i[3] + 1 : i[3] + pairs};
    y.at(a) = (x.at(a) * std::cos(angle) - x.at(b) * std::sin(angle)) * factor;
    y.at(b) = (x.at(b) * std::cos(angle) + x.at(a) * std::sin(angle)) * factor;
  });
  return y;
}

TEST(Rotary, RotatesPairsByTheirPosition) {
  const Array x = random_array({2, 3, 2, 6}, 1);
  const auto want = [&](bool interleaved, double base, double linear, double ntk, int offset) {
    return rotated(x, interleaved, offset,
                   [&](int i) { return std::pow(base * std::pow(ntk, 6.0 / 4), -2.0 * i / 6) / linear; });
  };
  const auto both = [](const auto& v, const auto& offset) {
    return std::tuple(ts::rotary_embedding(v, offset),
                      ts::rotary_embedding<ts::RotaryForm::interleaved>(v, offset, {100.0, 2.0, 4.0}));
  };
  const Program program = trace<std::decay_t<decltype(both)>, Tensor, ts::Scalar>();
  for (const int offset : {0, 7}) {
    const std::vector<Array> y = run(program.view(), {x, Array::number(offset)});
    expect_near(y.at(0), want(false, 10000, 1, 1, offset), 1e-12);
    expect_near(y.at(1), want(true, 100, 2, 4, offset), 1e-12);
  }
  check_gradient<Tensor>([](const auto& v) { return ts::rotary_embedding(v, 3); }, {x}, first_order);
}

/// The frequencies of pairs of a head as the papers define them.
double plain(double base, int i, int width) { return std::pow(base, -2.0 * i / width); }
double llama3(double base, double factor, double low, double high, double context, int i, int width) {
  const double f = plain(base, i, width), wavelength = 2 * std::numbers::pi / f;
  if (wavelength < context / high) return f;
  if (wavelength > context / low) return f / factor;
  const double smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * f / factor + smooth * f;
}
double dynamic_ntk(double base, double factor, double context, double length, int i, int width) {
  const double grown = factor * std::max(length, context) / context - (factor - 1);
  return plain(base * std::pow(grown, width / (width - 2.0)), i, width);
}
double yarn(double base, double factor, double context, double fast, double slow, bool truncate, int i, int width) {
  const auto dim_of = [&](double turns) {
    return width * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double low = std::max(truncate ? std::floor(dim_of(fast)) : dim_of(fast), 0.0);
  const double high = std::min(truncate ? std::ceil(dim_of(slow)) : dim_of(slow), width - 1.0);
  const double ramp = std::clamp((i - low) / ((low == high ? high + 0.001 : high) - low), 0.0, 1.0);
  return plain(base, i, width) * (ramp / factor + 1 - ramp);
}

// In the contexts of 40 positions, some of the 8 frequencies stay, some are divided, and some are between.
TEST(Rotary, ScalesFrequenciesOfLongContexts) {
  const Array x = random_array({2, 5, 2, 16}, 1);
  const auto all = [](const auto& v, const auto& offset) {
    const ts::Llama3Rotary ll{.base = 100.0,
                              .factor = 4.0,
                              .low_freq_factor = 1.0,
                              .high_freq_factor = 3.0,
                              .original_max_position_embeddings = 40};
    const ts::DynamicNtkRotary ntk{.base = 100.0, .factor = 3.0, .original_max_position_embeddings = 8};
    const ts::YarnRotary yarn_of{
        .base = 100.0, .factor = 4.0, .original_max_position_embeddings = 40, .beta_fast = 5.0, .beta_slow = 0.8};
    ts::YarnRotary exact = yarn_of, given = yarn_of, of_both = yarn_of;
    exact.truncate = false, given.attention_factor = 0.5, of_both.mscale = 2.0, of_both.mscale_all_dim = 0.5;
    constexpr auto pairs = ts::RotaryForm::interleaved;
    return std::tuple(ts::rotary_embedding(v, offset, ll), ts::rotary_embedding<pairs>(v, offset, ll),
                      ts::rotary_embedding(v, offset, ntk), ts::rotary_embedding<pairs>(v, offset, ntk),
                      ts::rotary_embedding(v, offset, yarn_of), ts::rotary_embedding<pairs>(v, offset, yarn_of),
                      ts::rotary_embedding(v, offset, exact), ts::rotary_embedding(v, offset, given),
                      ts::rotary_embedding(v, offset, of_both));
  };
  const Program program = trace<std::decay_t<decltype(all)>, Tensor, ts::Scalar>();
  for (const int offset : {0, 2, 9, 30}) {
    const std::vector<Array> y = run(program.view(), {x, Array::number(offset)});
    const auto of_llama = [](int i) { return llama3(100, 4, 1, 3, 40, i, 16); };
    const auto of_ntk = [&](int i) { return dynamic_ntk(100, 3, 8, offset + 5, i, 16); };
    const auto of_yarn = [](int i) { return yarn(100, 4, 40, 5, 0.8, true, i, 16); };
    const auto of_exact = [](int i) { return yarn(100, 4, 40, 5, 0.8, false, i, 16); };
    const double factor = 0.1 * std::log(4.0) + 1, of_both = (0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1);
    expect_near(y.at(0), rotated(x, false, offset, of_llama), 1e-12);
    expect_near(y.at(1), rotated(x, true, offset, of_llama), 1e-12);
    expect_near(y.at(2), rotated(x, false, offset, of_ntk), 1e-12);
    expect_near(y.at(3), rotated(x, true, offset, of_ntk), 1e-12);
    expect_near(y.at(4), rotated(x, false, offset, of_yarn, factor), 1e-12);
    expect_near(y.at(5), rotated(x, true, offset, of_yarn, factor), 1e-12);
    expect_near(y.at(6), rotated(x, false, offset, of_exact, factor), 1e-12);
    expect_near(y.at(7), rotated(x, false, offset, of_yarn, 0.5), 1e-12);
    expect_near(y.at(8), rotated(x, false, offset, of_yarn, of_both), 1e-12);
  }
  check_gradient<Tensor>(
      [](const auto& v) {
        return ts::rotary_embedding(
            v, 3, ts::YarnRotary{.base = 100.0, .factor = 4.0, .original_max_position_embeddings = 40});
      },
      {x}, first_order);
}

/// The frequencies of a head of 128 elements, from the angles at position 1 of `length` positions.
template <class Options> std::vector<double> frequencies(const Options& options, int length = 2) {
  std::vector<double> ones(static_cast<std::size_t>(length) * 128);
  for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = i % 128 < 64 ? 1 : 0;
  const auto x = ts::shard(ones, {1, length, 1, 128}, ts::Mesh());
  const std::vector<double> y = ts::to_host(ts::eval(ts::rotary_embedding(x, 0, options)));
  std::vector<double> made;
  for (std::size_t i = 0; i < 64; ++i) made.push_back(std::atan2(y[128 + 64 + i], y[128 + i]));
  return made;
}

// Numbers of transformers, tests/utils/test_modeling_rope_utils.py: width 128, base 10000, context 2048, factor 10.
TEST(Rotary, HasTheFrequenciesOfTransformers) {
  const auto expect = [](const std::vector<double>& made, const std::vector<std::pair<int, double>>& published) {
    for (const auto& [i, f] : published) EXPECT_NEAR(made[static_cast<std::size_t>(i)], f, 1e-4 * f) << i;
  };
  expect(frequencies(ts::Rotary{}), {{0, 1}, {1, 8.6596e-01}, {17, 8.6596e-02}, {40, 3.1623e-03}, {63, 1.1548e-04}});
  expect(frequencies(ts::Llama3Rotary{.base = 10000.0, .factor = 10.0, .original_max_position_embeddings = 2048}),
         {{30, 1.3335e-02},
          {31, 1.0730e-02},
          {33, 5.6009e-03},
          {36, 1.9675e-03},
          {39, 5.7363e-04},
          {40, 3.4539e-04},
          {41, 2.7384e-04},
          {63, 1.1548e-05}});
  expect(frequencies(ts::YarnRotary{.factor = 10.0, .original_max_position_embeddings = 2048}), {{16, 1e-01},
                                                                                                 {17, 8.3479e-02},
                                                                                                 {20, 4.8136e-02},
                                                                                                 {28, 1.0101e-02},
                                                                                                 {35, 2.0520e-03},
                                                                                                 {40, 4.3007e-04},
                                                                                                 {41, 2.7384e-04},
                                                                                                 {63, 1.1548e-05}});
  const ts::DynamicNtkRotary ntk{.factor = 10.0, .original_max_position_embeddings = 2048};
  expect(frequencies(ntk), {{1, 8.6596e-01}, {40, 3.1623e-03}, {63, 1.1548e-04}});
  expect(frequencies(ntk, 16384), {{1, 8.0931e-01}, {16, 3.3872e-02}, {32, 1.1473e-03}, {63, 1.6265e-06}});
}

TEST(Rotary, RefusesWrongOptions) {
  const auto x = ts::ones<float>({1, 2, 1, 8}, ts::Mesh());
  const auto refuses = [&](const auto& options, const char* text) {
    expect_error(
        ts::errc::option, [&] { (void)ts::eval(ts::rotary_embedding(x, 0, options)); }, text,
        "rotary_embedding_test.cpp");
    expect_error(
        ts::errc::option,
        [&] {
          (void)ts::compile([](const auto& v, const auto& o) { return ts::rotary_embedding(v, 0, o); })(x, options);
        },
        text, "rotary_embedding_test.cpp");
  };
  refuses(ts::Llama3Rotary{.factor = 0.5}, "[rotary_embedding] factor: 0.5");
  refuses(ts::Llama3Rotary{.high_freq_factor = 1.0},
          "[rotary_embedding] high_freq_factor - low_freq_factor: 0.000000 is not above 0");
  refuses(ts::YarnRotary{.factor = 2.0},
          "[rotary_embedding] original_max_position_embeddings: 0.000000 is not above 0");
  refuses(ts::DynamicNtkRotary{.factor = 2.0},
          "[rotary_embedding] original_max_position_embeddings: 0.000000 is not above 0");
  expect_error(
      ts::errc::not_divisible,
      [&] {
        (void)ts::eval(ts::rotary_embedding(ts::ones<float>({1, 2, 1, 7}, ts::Mesh())));
      },
      "in rotary_embedding at rotary_embedding_test.cpp");
}

}  // namespace
