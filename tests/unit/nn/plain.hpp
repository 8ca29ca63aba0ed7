#ifndef TESSERA_TESTS_UNIT_NN_PLAIN_HPP
#define TESSERA_TESTS_UNIT_NN_PLAIN_HPP

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "../../support/oracle.hpp"

/// Layers as loops over doubles, one position after the other, straight from the formulas of the papers.
namespace plain {

using oracle::Array;
using Row = std::vector<double>;

/// Rows of the last dim.
inline std::size_t row_count(const Array& x) { return x.data.size() / static_cast<std::size_t>(x.shape.back()); }
inline Row row(const Array& x, std::size_t i) {
  const auto n = static_cast<std::size_t>(x.shape.back());
  return {x.data.begin() + static_cast<std::ptrdiff_t>(i * n),
          x.data.begin() + static_cast<std::ptrdiff_t>((i + 1) * n)};
}
/// Applies f to every row; the result has rows of f's length.
template <class F> Array by_rows(const Array& x, F f) {
  Array y;
  y.shape = x.shape;
  for (std::size_t i = 0; i < row_count(x); ++i) {
    const Row made = f(row(x, i));
    y.shape[y.shape.size() - 1] = static_cast<std::int64_t>(made.size());
    y.data.insert(y.data.end(), made.begin(), made.end());
  }
  return y;
}

/// A null bias is none.
inline Array linear(const Array& x, const Array& weight, const Array* bias) {
  const std::size_t in = static_cast<std::size_t>(weight.shape[0]), out = static_cast<std::size_t>(weight.shape[1]);
  return by_rows(x, [&](const Row& r) {
    Row y(out, 0);
    for (std::size_t j = 0; j < out; ++j) {
      for (std::size_t i = 0; i < in; ++i) y[j] += r[i] * weight.data[i * out + j];
      if (bias != nullptr) y[j] += bias->data[j];
    }
    return y;
  });
}

inline Array layer_norm(const Array& x, const Array& gain, const Array& bias, double epsilon) {
  return by_rows(x, [&](Row r) {
    double mean = 0, variance = 0;
    for (double v : r) mean += v / static_cast<double>(r.size());
    for (double v : r) variance += (v - mean) * (v - mean) / static_cast<double>(r.size());
    for (std::size_t j = 0; j < r.size(); ++j)
      r[j] = (r[j] - mean) / std::sqrt(variance + epsilon) * gain.data[j] + bias.data[j];
    return r;
  });
}
inline Array rms_norm(const Array& x, const Array& gain, double epsilon) {
  return by_rows(x, [&](Row r) {
    double square = 0;
    for (double v : r) square += v * v / static_cast<double>(r.size());
    for (std::size_t j = 0; j < r.size(); ++j) r[j] = r[j] / std::sqrt(square + epsilon) * gain.data[j];
    return r;
  });
}

template <class F> Array map(Array x, F f) {
  for (double& v : x.data) v = f(v);
  return x;
}
inline Array zip(Array x, const Array& y, double (*f)(double, double)) {
  for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] = f(x.data[i], y.data[i]);
  return x;
}
inline Array sum(const Array& x, const Array& y) {
  return zip(x, y, [](double a, double b) { return a + b; });
}
inline double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
inline double silu(double x) { return x / (1 + std::exp(-x)); }

/// Causal attention; columns of the first weight are ordered (head, query key or value, width).
inline Array attention(const Array& x, int heads, const Array& qkv_weight, const Array* qkv_bias,
                       const Array& out_weight, const Array* out_bias) {
  const Array all = linear(x, qkv_weight, qkv_bias);
  const std::int64_t batch = x.shape[0], time = x.shape[1], features = x.shape[2], width = features / heads;
  const auto part = [&](std::int64_t b, std::int64_t t, std::int64_t h, int which, std::int64_t e) {
    return all.at({b, t, (h * 3 + which) * width + e});
  };
  Array joined(x.shape);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < time; ++t) {
        Row weights;
        double total = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::int64_t e = 0; e < width; ++e) score += part(b, t, h, 0, e) * part(b, s, h, 1, e);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
          total += weights.back();
        }
        for (std::int64_t e = 0; e < width; ++e) {
          double value = 0;
          for (std::int64_t s = 0; s <= t; ++s)
            value += weights[static_cast<std::size_t>(s)] / total * part(b, s, h, 2, e);
          joined.at({b, t, h * width + e}) = value;
        }
      }
  return linear(joined, out_weight, out_bias);
}

}  // namespace plain

#endif
