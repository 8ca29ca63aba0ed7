#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_LKJ_CHOLESKY_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_LKJ_CHOLESKY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/distributions/continuous/beta.hpp>
#include <tessera/ops/data_movement/creation.hpp>
#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera::distributions {

/// The distribution of Lewandowski, Kurowicka and Joe of lower Cholesky factors L [..., n, n] of correlation matrices
/// (torch.distributions.LKJCholesky): of a density of L L^t proportional to its determinant to the power of
/// concentration - 1, so that a `concentration` of 1 is uniform. The concentration is a number above 0, or a tensor of
/// batch dims. Communication: all-reduces of the sums if rows are split.
template <Operand Concentration> struct LKJCholesky {
  Concentration concentration;

  constexpr explicit LKJCholesky(const Concentration& c) : concentration(c) {}

  /// The logarithm of the density at lower factors x [..., n, n] with rows of length 1, of which the diagonals alone
  /// are read.
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    const auto own = diagonal(x, at);
    const auto row = iota<-1, typename X::element>(own, at);
    const auto behind = sum<-1>(ones_like(own, at), keepdims, at) - 1.0 - row;  // n - 1 less the row
    const auto given = along_dim(at);
    const auto norm = lgamma(behind * 0.5 + given, at) - lgamma((behind + row) * 0.5 + given, at) + row * half_log_pi;
    return sum<-1>((behind + given * 2.0 - 2.0) * log(own, at) - norm, at);
  }
  /// Draws without gradients in the shape of `like` [..., n, n], whose elements are not read. Key and stream: as for
  /// ts::uniform_like. By the onion method. Source: Lewandowski, Kurowicka, Joe, Journal of Multivariate Analysis 100
  /// (2009).
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    using T = typename Like::element;
    const auto row = iota<-2, std::int32_t>(like, at), column = iota<-1, std::int32_t>(like, at);
    const auto normal = select(column < row, normal_like<Stream>(like, key, at), 0, at);
    const auto squares = sum<-1>(normal * normal, keepdims, at);
    const auto number = cast<T>(iota<-1, std::int32_t>(diagonal(like, at), at), at);  // of each row
    const auto behind = sum<-1>(ones_like(number, at), keepdims, at) - 1.0 - number;
    // The squared length of a row without its last element; the first row has no others.
    const auto is_first = number < 0.5;
    const auto beta = Beta(select(is_first, 1, number, at) * 0.5, behind * 0.5 + along_dim(at));
    const auto part = select(is_first, 0, beta.template sample<Stream>(key, at), at);
    const auto length = unsqueeze<-1>(part, at);
    const auto inside = normal * sqrt(length / select(squares > 0.0, squares, 1, at), at);
    const auto last = sqrt(1.0 - length, at);
    return stop_gradient(select(tessera::equal(row, column, at), last, inside, at), at);
  }
  /// The same of `rows` rows for each concentration [...], a tensor: [..., rows, rows]. `rows` is what
  /// torch.distributions.LKJCholesky has as `dim`: `p.sample(3, key)`. Errors: shape_mismatch for a negative number of
  /// rows.
  template <std::uint32_t Stream = 0, SizeOperand Rows, class Key>
  constexpr auto sample(const Rows& rows, const Key& key, Here at = Here::current()) const {
    static_assert(TensorOperand<Concentration>,
                  "tessera: the concentration is a number, so the samples are split over no mesh: call "
                  "sample_like(x, key) for samples in the shape of a tensor");
    const auto matrix = zeros<typename Concentration::element>({Dim(rows), Dim(rows)}, concentration, at);
    return sample_like<Stream>(unsqueeze<-1>(along_dim(at), at) + matrix, key, at);
  }

 private:
  static constexpr double half_log_pi = 0.57236494292470008707;
  constexpr auto along_dim(Here at) const {
    if constexpr (TensorOperand<Concentration>)
      return unsqueeze<-1>(concentration, at);
    else
      return concentration;
  }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
