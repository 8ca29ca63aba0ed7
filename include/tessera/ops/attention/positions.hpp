#ifndef TESSERA_OPS_ATTENTION_POSITIONS_HPP
#define TESSERA_OPS_ATTENTION_POSITIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>

// Positions of tokens in attention, and ALiBi. rotary_embedding.hpp has rotary embeddings.

namespace tessera {

namespace detail {

/// The positions of x [batch, time, heads, width] from an offset on: [time, 1, 1].
struct PositionsTag {
  template <class X, class Offset> using result = Typed<double, 3>;
  static constexpr Value emit(Value context, Value x, Value offset) {
    x = x.at(context.source);
    // A static extent of 1 stays one.
    if (const int time = x.shifted(1, 4); x.is_singleton(time))
      return build::insert_singletons(build::cast(offset.at(context.source), DType::f64), 7, 3);
    const Value at = build::cast(build::arange(build::extent(x, x.shifted(1, 4)), DType::i64), DType::f64) +
                     build::cast(offset.at(context.source), DType::f64);
    return build::insert_singletons(at, 1u << 1 | 1u << 2, 3);
  }
};

}  // namespace detail

/// For biased_attention with ALiBi (nn::alibi_slopes): slopes [heads] times the position of each key of k [batch, keys,
/// heads, width], [1, heads, keys]. ALiBi adds slope (key - query); this differs by a number that is the same for all
/// keys of a query, which the softmax cancels. No communication. Source: Press et al., 2108.12409.
template <TensorArgument Slopes, TensorArgument K>
constexpr auto alibi_bias(const Slopes& slopes, const K& k, Here at = Here::current()) {
  const detail::FunctionCall named("alibi_bias", slopes, k);
  static_assert(Slopes::rank == 1 && K::rank == 4,
                "tessera: alibi_bias takes slopes of rank 1, [heads], and keys of rank 4: [batch, keys, heads, width]");
  const auto positions = call<detail::PositionsTag>(Source::from(at), k, 0);  // [S, 1, 1]
  const auto row = cast<typename Slopes::element>(rearrange<"s 1 1 -> 1 1 s">(positions, at), at);
  return call<MulTag>(Source::from(at), rearrange<"h -> 1 h 1">(slopes, at), row);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
