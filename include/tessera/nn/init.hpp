#ifndef TESSERA_NN_INIT_HPP
#define TESSERA_NN_INIT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/ops/elementwise/special_functions.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/extent.hpp>
#include <tessera/tensor/random.hpp>

/// Initial values of weights, with the names of torch.nn.init and jax.nn.initializers. Values are drawn directly into
/// shards, and are bitwise equal on every mesh and spec. As in JAX, weights are [in, out], and those of convolutions
/// [taps..., in, out]. Fan-in is the extent of `in`, and fan-out that of `out`, times the number of taps.
///
///     auto w = ts::init::kaiming_normal<float>(key, {256, 1024}, mesh, {ts::none, "model"});
namespace tessera::init {

// torch.nn.init.zeros_, ones_, normal_ and uniform_ exist already as other functions.
using tessera::normal;
using tessera::ones;
using tessera::uniform;
using tessera::zeros;

/// The number of inputs, or of outputs, of one unit; `fan_avg` is their mean.
enum class FanMode : std::uint8_t { fan_in, fan_out, fan_avg };

/// The activation that follows a weight, which determines the scale of the weight.
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };

/// torch.nn.init.calculate_gain: 1 for linear and sigmoid, 5/3 for tanh, sqrt(2) for relu, sqrt(2 / (1 + slope^2)) for
/// leaky_relu, 3/4 for selu.
inline double gain(Nonlinearity nonlinearity, double negative_slope = 0.01) {
  switch (nonlinearity) {
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::sqrt(2.0);
    case Nonlinearity::leaky_relu:
      return std::sqrt(2.0 / (1 + negative_slope * negative_slope));
    case Nonlinearity::selu:
      return 0.75;
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      break;
  }
  return 1;
}

namespace detail {

/// The fan of a weight of the given extents.
template <std::size_t Rank> double fan(const Extent (&shape)[Rank], FanMode mode) {
  static_assert(Rank >= 2, "tessera: an initialiser by fan is for weights of rank 2 or more: [..., in, out]");
  double taps = 1;
  for (std::size_t d = 0; d + 2 < Rank; ++d) taps *= static_cast<double>(shape[d].value);
  const double in = taps * static_cast<double>(shape[Rank - 2].value);
  const double out = taps * static_cast<double>(shape[Rank - 1].value);
  const double made = mode == FanMode::fan_in ? in : mode == FanMode::fan_out ? out : (in + out) / 2;
  return std::max(made, 1.0);  // of an empty weight, which has no elements to scale
}

/// Uniform with the given standard deviation and a mean of 0.
template <Element T, std::size_t Rank>
auto uniform_of(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec, double stddev,
                Here at) {
  const auto limit = static_cast<computed_t<T>>(std::sqrt(3.0) * stddev);
  return uniform<T>(key, shape, mesh, spec, -limit, limit, at);
}

/// mean + stddev z within [a, b] for normal z, from uniform values in [0, 1). Not inlined: see scale_values.
template <class T>
__attribute__((noinline)) void to_truncated_normal(T* data, std::int64_t count, double mean, double stddev, double a,
                                                   double b) {
  const double root = std::sqrt(2.0), low = std::erf((a - mean) / stddev / root),
               high = std::erf((b - mean) / stddev / root);
  for (std::int64_t i = 0; i < count; ++i) {
    const double z = root * ops::erfinv(low + (high - low) * static_cast<double>(data[i]));
    data[i] = static_cast<T>(std::clamp(mean + stddev * z, a, b));
  }
}
template <Element T, std::size_t Rank>
auto truncated(const char* op, Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec,
               double mean, double stddev, double a, double b, Here at) {
  const auto finish = [=](computed_t<T>* data, std::int64_t count) {
    to_truncated_normal(data, count, mean, stddev, a, b);
  };
  return tessera::detail::random_tensor<T, static_cast<int>(Rank)>(
      op, Distribution::uniform, key, tessera::detail::shape_from(shape), mesh, spec, Cost{20}, finish, at);
}

/// Ones where `is_one(index)` holds for the index of an element, zeros elsewhere.
template <Element T, std::size_t Rank, class F>
auto ones_where(const char* op, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec, Here at,
                const F& is_one) {
  const auto write = [is_one](T* data, const Box& box) {
    const Shape own = extents(box);
    Shape index = box.begin;
    for (std::int64_t n = volume(own); n > 0; --n) {
      *data++ = is_one(index) ? T(1) : T(0);
      for (std::size_t d = Rank; d-- > 0;) {
        if (++index[d] < box.end[d]) break;
        index[d] = box.begin[d];
      }
    }
  };
  return tensor_of<T, static_cast<int>(Rank)>(tessera::detail::created<T>(
      op, tessera::detail::shape_from(shape), static_cast<int>(Rank), mesh, spec, at, Cost::bytes(sizeof(T)), write));
}

}  // namespace detail

/// All elements equal to `value`, as torch.nn.init.constant_.
template <Element T, std::size_t Rank>
auto constant(const Extent (&shape)[Rank], std::type_identity_t<T> value, const Mesh& mesh,
              const PartitionSpec& spec = {}, Here at = Here::current()) {
  return full<T>(shape, value, mesh, spec, at);
}
/// 1 on the diagonal of a matrix and 0 elsewhere, as torch.nn.init.eye_.
template <Element T>
auto eye(const Extent (&shape)[2], const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::ones_where<T>("eye", shape, mesh, spec, at, [](const Shape& i) { return i[0] == i[1]; });
}
/// A convolution [taps..., in, out] that passes its input on, as torch.nn.init.dirac_: 1 at the middle tap where the
/// input feature is the output feature, and 0 elsewhere.
template <Element T, std::size_t Rank>
auto dirac(const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  static_assert(Rank >= 3, "tessera: init::dirac is for the weights of convolutions: [taps..., in, out]");
  const Shape all = tessera::detail::shape_from(shape);
  return detail::ones_where<T>("dirac", shape, mesh, spec, at, [all](const Shape& i) {
    for (std::size_t d = 0; d + 2 < Rank; ++d)
      if (i[d] != all[d] / 2) return false;
    return i[Rank - 2] == i[Rank - 1];
  });
}

/// Options of kaiming_uniform and kaiming_normal, with PyTorch's names and defaults.
struct Kaiming {
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
  double a = 0;  ///< the negative slope of leaky_relu
};
/// Uniform, or normal, with standard deviation gain / sqrt(fan), as torch.nn.init.kaiming_uniform_ and kaiming_normal_.
/// Errors: those of `uniform`. Source: He et al., 1502.01852.
template <Element T, std::size_t Rank>
auto kaiming_uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                     const Kaiming& options = {}, Here at = Here::current()) {
  const double fan = detail::fan(shape, options.mode);
  return detail::uniform_of<T>(key, shape, mesh, spec, gain(options.nonlinearity, options.a) / std::sqrt(fan), at);
}
template <Element T, std::size_t Rank>
auto kaiming_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                    const Kaiming& options = {}, Here at = Here::current()) {
  const double fan = detail::fan(shape, options.mode);
  const double stddev = gain(options.nonlinearity, options.a) / std::sqrt(fan);
  return normal<T>(key, shape, mesh, spec, 0, static_cast<computed_t<T>>(stddev), at);
}

/// Uniform, or normal, with variance gain^2 / fan_avg, as torch.nn.init.xavier_uniform_ and xavier_normal_. Source:
/// Glorot, Bengio, AISTATS 2010.
template <Element T, std::size_t Rank>
auto xavier_uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                    double factor = 1, Here at = Here::current()) {
  return detail::uniform_of<T>(key, shape, mesh, spec, factor / std::sqrt(detail::fan(shape, FanMode::fan_avg)), at);
}
template <Element T, std::size_t Rank>
auto xavier_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                   double factor = 1, Here at = Here::current()) {
  const double stddev = factor / std::sqrt(detail::fan(shape, FanMode::fan_avg));
  return normal<T>(key, shape, mesh, spec, 0, static_cast<computed_t<T>>(stddev), at);
}

/// Uniform with variance scale / fan, as jax.nn.initializers.variance_scaling(scale, mode, "uniform").
template <Element T, std::size_t Rank>
auto variance_scaling_uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                              double scale = 1, FanMode mode = FanMode::fan_in, Here at = Here::current()) {
  if (!(scale > 0)) fail(errc::option, "[variance_scaling] scale: ", scale, " is not above 0", Source::from(at));
  return detail::uniform_of<T>(key, shape, mesh, spec, std::sqrt(scale / detail::fan(shape, mode)), at);
}
/// jax.nn.initializers.lecun_uniform, he_uniform and glorot_uniform: variances 1 / fan_in, 2 / fan_in, 1 / fan_avg.
template <Element T, std::size_t Rank>
auto lecun_uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                   Here at = Here::current()) {
  return variance_scaling_uniform<T>(key, shape, mesh, spec, 1, FanMode::fan_in, at);
}
template <Element T, std::size_t Rank>
auto he_uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                Here at = Here::current()) {
  return variance_scaling_uniform<T>(key, shape, mesh, spec, 2, FanMode::fan_in, at);
}
template <Element T, std::size_t Rank>
auto glorot_uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                    Here at = Here::current()) {
  return variance_scaling_uniform<T>(key, shape, mesh, spec, 1, FanMode::fan_avg, at);
}

/// Normal values with the given mean and deviation, within [a, b] only, as torch.nn.init.trunc_normal_: the quantiles
/// of uniform draws between those of a and b. Errors: `option` unless stddev > 0 and a < b.
template <Element T, std::size_t Rank>
auto trunc_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                  double mean = 0, double stddev = 1, double a = -2, double b = 2, Here at = Here::current()) {
  if (!(stddev > 0 && a < b))
    fail(errc::option, "[trunc_normal] bounds: a normal of deviation ", stddev, " between ", a, " and ", b,
         Source::from(at));
  return detail::truncated<T>("trunc_normal", key, shape, mesh, spec, mean, stddev, a, b, at);
}

/// Normal values between `lower` and `upper` times a deviation of stddev, as jax.nn.initializers.truncated_normal.
/// Errors: as trunc_normal.
template <Element T, std::size_t Rank>
auto truncated_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                      double stddev = 1e-2, double lower = -2, double upper = 2, Here at = Here::current()) {
  return trunc_normal<T>(key, shape, mesh, spec, 0, stddev, lower * stddev, upper * stddev, at);
}

/// Normal values with a deviation of stddev, of which a fraction `sparsity` of each row, rounded up, is 0, as
/// torch.nn.init.sparse_. Errors: `option` for a sparsity outside of [0, 1]; those of `normal`. Source: Martens, ICML
/// 2010.
///
///     auto w = ts::init::sparse<float>(key, {256, 1024}, 0.9, mesh, {ts::none, "model"});
template <Element T>
auto sparse(Key key, const Extent (&shape)[2], double sparsity, const Mesh& mesh, const PartitionSpec& spec = {},
            double stddev = 1e-2, Here at = Here::current()) {
  static_assert(is_floating_v<T>, "tessera: the elements of a sparse weight are float, double, bf16 or f16");
  if (!(sparsity >= 0 && sparsity <= 1))
    fail(errc::option, "[sparse] sparsity: ", sparsity, " is not within [0, 1]", Source::from(at));
  const Shape all = tessera::detail::shape_from(shape);
  const auto row_size = static_cast<std::size_t>(all[1]);
  const auto zeros_of_row = static_cast<std::ptrdiff_t>(std::ceil(sparsity * static_cast<double>(all[1])));
  const auto keys = split<2>(key);
  const auto write = [=](T* data, const Box& box) {
    using Drawn = computed_t<T>;
    std::vector<Drawn> drawn(static_cast<std::size_t>(volume(extents(box))));
    tessera::detail::fill_random(dtype_v<Drawn>, Distribution::normal, keys[0], all, box, drawn.data());
    const Drawn* from = drawn.data();
    std::vector<double> order(row_size), sorted;
    for (std::int64_t row = box.begin[0]; row < box.end[0] && !drawn.empty(); ++row) {
      // Zeros are where the draws of the whole row are smallest.
      const Box whole_row{{row, 0}, {row + 1, all[1]}};
      tessera::detail::fill_random(DType::f64, Distribution::uniform, keys[1], all, whole_row, order.data());
      sorted = order;
      sorted.push_back(1);
      std::nth_element(sorted.begin(), sorted.begin() + zeros_of_row, sorted.end());
      const double least = sorted[static_cast<std::size_t>(zeros_of_row)];
      for (std::int64_t column = box.begin[1]; column < box.end[1]; ++column, ++from)
        *data++ =
            order[static_cast<std::size_t>(column)] < least ? T(0) : static_cast<T>(static_cast<Drawn>(stddev) * *from);
    }
  };
  return tensor_of<T, 2>(tessera::detail::created<T>("sparse", all, 2, mesh, spec, at, Cost{20}, write));
}

/// Normal values within two deviations, with variance scale / fan, as jax.nn.initializers.variance_scaling(scale, mode,
/// "truncated_normal"). Errors: `option` unless scale > 0.
template <Element T, std::size_t Rank>
auto variance_scaling(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                      double scale = 1, FanMode mode = FanMode::fan_in, Here at = Here::current()) {
  constexpr double kept = 0.87962566103423978;  // the deviation of a standard normal within [-2, 2]
  if (!(scale > 0)) fail(errc::option, "[variance_scaling] scale: ", scale, " is not above 0", Source::from(at));
  const double stddev = std::sqrt(scale / detail::fan(shape, mode)) / kept;
  return detail::truncated<T>("variance_scaling", key, shape, mesh, spec, 0, stddev, -2 * stddev, 2 * stddev, at);
}
/// jax.nn.initializers.lecun_normal, he_normal and glorot_normal: variances 1 / fan_in, 2 / fan_in, 1 / fan_avg.
template <Element T, std::size_t Rank>
auto lecun_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                  Here at = Here::current()) {
  return variance_scaling<T>(key, shape, mesh, spec, 1, FanMode::fan_in, at);
}
template <Element T, std::size_t Rank>
auto he_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
               Here at = Here::current()) {
  return variance_scaling<T>(key, shape, mesh, spec, 2, FanMode::fan_in, at);
}
template <Element T, std::size_t Rank>
auto glorot_normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                   Here at = Here::current()) {
  return variance_scaling<T>(key, shape, mesh, spec, 1, FanMode::fan_avg, at);
}

}  // namespace tessera::init

#include <tessera/base/pop_macros.hpp>

#endif
