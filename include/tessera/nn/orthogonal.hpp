#ifndef TESSERA_NN_ORTHOGONAL_HPP
#define TESSERA_NN_ORTHOGONAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/extent.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::init {

namespace detail {

/// `count` orthonormal vectors of `length` numbers, drawn once, by the shard that needs them first.
class OrthonormalVectors {
 public:
  OrthonormalVectors(Key key, std::int64_t count, std::int64_t length) : key_(key), count_(count), length_(length) {}

  /// The vectors one after the other.
  const double* get() {
    const std::lock_guard lock(mutex_);
    if (vectors_.empty() && count_ > 0) draw();
    return vectors_.data();
  }

 private:
  // Gram and Schmidt's method on normal draws, twice for each vector, which leaves errors of rounding only. Norms are
  // positive, so that all orthonormal systems are equally likely (Mezzadri, math-ph/0609050).
  void draw() {
    const Shape all{count_, length_};
    vectors_.resize(static_cast<std::size_t>(count_ * length_));
    tessera::detail::fill_random(DType::f64, Distribution::normal, key_, all, Box{{0, 0}, all}, vectors_.data());
    for (std::int64_t j = 0; j < count_; ++j) {
      double* const v = vectors_.data() + j * length_;
      for (std::int64_t i = 0; i < 2 * j; ++i) {
        const double* const u = vectors_.data() + i % j * length_;
        const double along = product(u, v);
        for (std::int64_t k = 0; k < length_; ++k) v[k] -= along * u[k];
      }
      const double norm = std::sqrt(product(v, v));
      for (std::int64_t k = 0; k < length_; ++k) v[k] /= norm;
    }
  }
  double product(const double* u, const double* v) const {
    double sums[4]{};
    std::int64_t k = 0;
    for (; k + 4 <= length_; k += 4)
      for (int lane = 0; lane < 4; ++lane) sums[lane] += u[k + lane] * v[k + lane];
    for (; k < length_; ++k) sums[0] += u[k] * v[k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  Key key_;
  std::int64_t count_, length_;
  std::mutex mutex_;
  std::vector<double> vectors_;
};

/// A weight whose last dim, and all others together, are the rows and columns of an orthogonal matrix; with
/// `only_middle` the taps but the middle one are 0.
template <Element T, std::size_t Rank>
auto orthogonal_weight(const char* op, Key key, const Extent (&shape)[Rank], const Mesh& mesh,
                       const PartitionSpec& spec, double gain, bool only_middle, Here at) {
  static_assert(Rank >= 2, "tessera: an orthogonal weight has rank 2 or more: [..., in, out]");
  static_assert(is_floating_v<T>, "tessera: the elements of an orthogonal weight are float, double, bf16 or f16");
  const Shape all = tessera::detail::shape_from(shape);
  std::int64_t in = 1;
  for (std::size_t d = only_middle ? Rank - 2 : 0; d + 1 < Rank; ++d) in *= all[d];
  const std::int64_t out = all[Rank - 1];
  if (only_middle && in > out)
    fail(errc::shape_mismatch, "[", op, "] shape: ", in, " in-features are more than ", out, " out-features",
         Source::from(at));
  const bool tall = in >= out;
  const auto vectors = std::make_shared<OrthonormalVectors>(key, tall ? out : in, tall ? in : out);
  const auto write = [=](T* data, const Box& box) {
    const Shape own = extents(box);
    std::int64_t left = volume(own);
    if (left == 0) return;
    const double* const made = vectors->get();
    for (Shape index = box.begin; left > 0; --left) {
      bool middle = true;
      std::int64_t row = 0;
      for (std::size_t d = 0; d + 1 < Rank; ++d) {
        const bool is_tap = d + 2 < Rank;
        if (only_middle && is_tap) middle = middle && index[d] == all[d] / 2;
        if (!only_middle || !is_tap) row = row * all[d] + index[d];
      }
      const std::int64_t column = index[Rank - 1];
      *data++ = static_cast<T>(!middle ? 0 : gain * (tall ? made[column * in + row] : made[row * out + column]));
      for (std::size_t d = Rank; d-- > 0;) {
        if (++index[d] < box.end[d]) break;
        index[d] = box.begin[d];
      }
    }
  };
  return tensor_of<T, static_cast<int>(Rank)>(
      tessera::detail::created<T>(op, all, static_cast<int>(Rank), mesh, spec, at, Cost{20}, write));
}

}  // namespace detail

/// A random weight whose columns (or rows, if there are fewer of them) are orthonormal, times `gain`
/// (jax.nn.initializers.orthogonal, torch.nn.init.orthogonal_). A weight [taps..., in, out] counts as a matrix [taps x
/// in, out]. It is computed in double, once for all shards, with 4 n^2 m operations for a matrix of m by n, n <= m;
/// meanwhile each process stores the whole matrix. Equal on every mesh and spec. Errors: those of `normal`. Source:
/// Saxe, McClelland, Ganguli, 1312.6120.
///
///     auto w = ts::init::orthogonal<float>(key, {256, 256}, mesh, {ts::none, "model"});
template <Element T, std::size_t Rank>
auto orthogonal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {}, double gain = 1,
                Here at = Here::current()) {
  return detail::orthogonal_weight<T>("orthogonal", key, shape, mesh, spec, gain, false, at);
}

/// The weight of a convolution [taps..., in, out] that keeps norms: orthonormal rows at the middle tap, 0 elsewhere
/// (jax.nn.initializers.delta_orthogonal). Errors: shape_mismatch for more in-features than out-features. Source: Xiao
/// et al., 1806.05393.
template <Element T, std::size_t Rank>
auto delta_orthogonal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
                      double gain = 1, Here at = Here::current()) {
  static_assert(Rank >= 3, "tessera: init::delta_orthogonal is for the weights of convolutions: [taps..., in, out]");
  return detail::orthogonal_weight<T>("delta_orthogonal", key, shape, mesh, spec, gain, true, at);
}

}  // namespace tessera::init

#include <tessera/base/pop_macros.hpp>

#endif
