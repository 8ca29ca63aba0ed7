#ifndef TESSERA_OPS_RANDOM_KEYS_HPP
#define TESSERA_OPS_RANDOM_KEYS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <type_traits>

#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/random/key_rows.hpp>

namespace tessera {

/// Inside a traced function, where a ts::Key is a ts::Scalar: the key that ts::fold_in gives for this key outside. n is
/// an integer, a Dim or a Scalar, such as the number of a layer or of a step.
template <NumberOperand N> constexpr Scalar fold_in(const Scalar& key, const N& n, Here at = Here::current()) {
  Value context = trace_of(key);
  if (context.module == nullptr) context = trace_of(n);
  if (context.module == nullptr) {
    if constexpr (std::is_arithmetic_v<N>)
      return Scalar(ops::FoldInOp::folded(key.number(), HostNumber(n)));
    else
      return Scalar(ops::FoldInOp::folded(key.number(), n.number()));
  }
  context.source = Source::from(at);
  return Scalar(build::apply<ops::FoldInOp>(build::cast(lower(context, key), DType::f64),
                                            build::cast(lower(context, n), DType::f64)));
}
/// Inside a traced function: the keys that ts::split gives for this key outside.
template <std::size_t N> constexpr std::array<Scalar, N> split(const Scalar& key, Here at = Here::current()) {
  std::array<Scalar, N> keys;
  const Scalar stream = fold_in(key, kernels::split_stream, at);
  for (std::size_t i = 0; i < N; ++i) keys[i] = fold_in(stream, i, at);
  return keys;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
