#ifndef TESSERA_OPS_RANDOM_KEYS_HPP
#define TESSERA_OPS_RANDOM_KEYS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/ops/data_movement/shape.hpp>
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
  context = context.at(Source::from(at));
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

namespace detail {

template <class K>
inline constexpr bool is_key_v =
    is_number_v<typename K::type> ||
    (std::is_integral_v<typename K::type> && K::rank == 0 && !std::is_same_v<typename K::type, bool>);

struct FoldInTag {
  template <class K, class N> struct result : Typed<std::int64_t, 0> {
    using Checks = decltype([] {
      static_assert(is_key_v<K> && is_key_v<N>,
                    "tessera: fold_in takes a key, and an integer: a number or an integer tensor of rank 0");
    });
  };
  static constexpr Value emit(Value context, Value key, Value n) {
    return build::apply<ops::FoldInOp>(build::cast(key.at(context.source), DType::i64), build::cast(n, DType::i64));
  }
};

}  // namespace detail

/// The key that ts::fold_in gives for a number which is known only when a step runs, such as the index of a
/// ts::fori_loop or a slice of the xs of a ts::scan. This key is an i64 tensor of rank 0: it can be folded in and split
/// again, be part of a carry or of xs, and every function that draws takes it. Draws with it depend only on the key, as
/// in JAX: a step of a loop draws what the same call draws outside of the loop. (A key that is a ts::Scalar gives every
/// step of a loop, and every layer of a ts::Stack, draws of its own.) No communication.
///
///     ts::fori_loop(0, 10, [&](const auto& i, const auto& x) { return ts::dropout(x, 0.1, ts::fold_in(key, i)); }, x);
template <Operand Key, Operand N>
  requires(TensorOperand<Key> || TensorOperand<N>)
constexpr auto fold_in(const Key& key, const N& n, Here at = Here::current()) {
  return call<detail::FoldInTag>(Source::from(at), key, n);
}
/// The keys that ts::split gives for a key that is a tensor.
template <std::size_t N, TensorArgument Key> constexpr auto split(const Key& key, Here at = Here::current()) {
  const auto stream = fold_in(key, kernels::split_stream, at);
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{fold_in(stream, I, at)...};
  }(std::make_index_sequence<N>());
}

/// A ts::Scalar that is a key, as an i64 tensor of rank 0: a carry of ts::scan that each step splits is such a tensor
/// (jax.random.key_data). Inside a traced function only, of a key that is an argument or was derived from an argument.
/// Errors: unsupported elsewhere.
///
///     ts::scan([](const auto& carry, const auto& x) {
///       const auto [next, own] = ts::split<2>(std::get<1>(carry));
///       return std::tuple(std::tuple(ts::dropout(std::get<0>(carry) + x, 0.1, own), next), std::tuple());
///     }, std::tuple(h, ts::key_data(key)), xs);
constexpr Sym<std::int64_t, 0> key_data(const Scalar& key, Here at = Here::current()) {
  Value context = trace_of(key);
  if (context.module == nullptr)
    fail(errc::unsupported, "[key_data] the key is no argument of a traced function: pass the key to the function");
  context = context.at(Source::from(at));
  return Sym<std::int64_t, 0>(build::cast(lower(context, key), DType::i64));
}

namespace detail {

struct SplitKeyTag {
  template <class K, class N> struct result : Typed<std::int64_t, 1> {
    using Checks = decltype([] { static_assert(is_key_v<K>, "tessera: the key of ts::split is a key"); });
  };
  static constexpr Value emit(Value context, Value key, Value count) {
    key = build::cast(key.at(context.source), DType::i64);
    count = as_size(count).at(context.source);
    const Value numbers = build::arange(count);
    const Value stream = build::apply<ops::FoldInOp>(key, key.integer(kernels::split_stream, DType::i64));
    return build::apply<ops::FoldInOp>(stream, build::cast(numbers, DType::i64));
  }
};

}  // namespace detail

/// Inside a traced function: n keys as one i64 tensor, whose elements are those of ts::split<n>(key), for ts::vmap and
/// ts::map over keys (jax.random.split(key, n)). n may be a ts::Dim. No communication.
///
///     ts::vmap([](const auto& x, const auto& own) { return ts::dropout(x, 0.1, own); })(xs, ts::split(key, 8));
template <Operand Key, SizeOperand N>
  requires(TensorOperand<Key> || NumberOperand<Key>)
constexpr auto split(const Key& key, const N& n, Here at = Here::current()) {
  return call<detail::SplitKeyTag>(Source::from(at), key, Dim(n));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
