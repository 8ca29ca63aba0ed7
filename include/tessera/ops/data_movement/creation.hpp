#ifndef TESSERA_OPS_DATA_MOVEMENT_CREATION_HPP
#define TESSERA_OPS_DATA_MOVEMENT_CREATION_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>

// Tensors of given extents inside a traced function, each with any tensor of the function as the last argument. Stored
// tensors are in tensor/creation.hpp.

namespace tessera {

namespace detail {

/// 0, 1, ..., n - 1 along one dim of several, the others of which have extent 1.
constexpr Value counted_along(Value size, int dim, int rank) {
  const Value line = build::arange(size);
  return build::insert_singletons(line, ((1u << rank) - 1) & ~(1u << dim), rank);
}

template <class> inline constexpr bool has_a_place = false;

template <class T, int Rank> struct FullTag {
  static constexpr const char* function = "full";
  static_assert(Rank <= max_rank, "tessera: a tensor has at most 8 dims");
  template <class X, class N, class... Sizes> struct result : Typed<T, Rank> {
    using Checks = decltype([] {
      static_assert(is_floating_v<T> || !std::is_same_v<typename N::type, Number<NumberKind::floating>>,
                    "tessera: an integer or bool tensor can't be filled with a floating number; use an integer");
    });
  };
  template <class, class N, class... Sizes>
  static constexpr void convert(Value&, Value& value, std::same_as<Value> auto&...) {
    value = convert_operand<N>(value, dtype_v<T>);
  }
  static constexpr Value emit(Value context, Value, Value value, std::same_as<Value> auto... sizes) {
    if constexpr (Rank == 0) {
      return value.at(context.source);
    } else {
      Value like{};  // of this only the shape is used
      int dim = 0;
      for (const Value& size : {as_size(sizes).at(context.source)...}) {
        const Value own = counted_along(size, dim++, Rank);
        like = like.module == nullptr ? own : like + own;
      }
      return build::broadcast(value.at(context.source), like);
    }
  }
};

template <class T> struct EyeTag {
  static constexpr const char* function = "eye";
  template <class X, class Rows, class Columns> using result = Typed<T, 2>;
  static constexpr Value emit(Value context, Value, Value rows, Value columns) {
    const Value down = counted_along(as_size(rows).at(context.source), 0, 2);
    return build::cast(build::equal(down, counted_along(as_size(columns), 1, 2)), dtype_v<T>);
  }
};

/// Points of a line, or powers of them, computed in f64: each half of the points from its own end, so that both ends
/// are exact.
template <class T, bool Powers> struct LinspaceTag {
  static_assert(is_floating_v<T>, "tessera: linspace and logspace make tensors of float, double, bf16 and f16");
  static constexpr const char* function = Powers ? "logspace" : "linspace";
  template <class X, class Count, class... Numbers> using result = Typed<T, 1>;
  static constexpr Value emit(Value context, Value, Value count, Value start, Value end,
                              std::same_as<Value> auto... base) {
    const auto real = [](Value x) { return build::cast(x, DType::f64); };
    count = as_size(count).at(context.source);
    start = real(start), end = real(end);
    const Value position = real(counted_along(count, 0, 1)), last = real(count) - 1.0;
    const Value step = (end - start) / build::maximum(last, last.number(1));
    const Value near_start = build::less_equal(position * 2.0, last);
    Value made = build::select(near_start, start + position * step, end - (last - position) * step);
    if constexpr (Powers) made = build::apply<ops::PowOp>((real(base), ...), made);
    return build::cast(made, dtype_v<T>);
  }
};

}  // namespace detail

/// A tensor of equal elements, of given extents: `full<float>({n, 4}, 0.5, x)`. `in` is any tensor of the function, of
/// which neither elements nor shape are used. Each dim is split as what reads the result or a constraint needs it. No
/// communication. Errors: shape_mismatch for a negative extent.
///
///     const auto carry = ts::zeros<float>({ts::extent<0>(x), 64}, x);   // [B, 64]
///     const auto steps = ts::zeros<int>({}, x);                         // a tensor of rank 0
template <Element T, std::size_t Rank, NumberOperand N, TensorArgument X>
constexpr auto full(const Dim (&shape)[Rank], const N& value, const X& in, Here at = Here::current()) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    using Tag = detail::FullTag<T, static_cast<int>(Rank)>;
    if constexpr (std::is_same_v<N, bool>)
      return call<Tag>(Source::from(at), in, static_cast<int>(value), shape[I]...);
    else
      return call<Tag>(Source::from(at), in, value, shape[I]...);
  }(std::make_index_sequence<Rank>{});
}
template <Element T, NumberOperand N, TensorArgument X>
constexpr auto full(detail::NoExtents, const N& value, const X& in, Here at = Here::current()) {
  if constexpr (std::is_same_v<N, bool>)
    return call<detail::FullTag<T, 0>>(Source::from(at), in, static_cast<int>(value));
  else
    return call<detail::FullTag<T, 0>>(Source::from(at), in, value);
}
/// Without a type that of the value: float of a double, a ts::Scalar, i64 of a ts::Dim.
template <std::size_t Rank, NumberOperand N, TensorArgument X>
constexpr auto full(const Dim (&shape)[Rank], const N& value, const X& in, Here at = Here::current()) {
  return full<detail::filled_with_t<N>>(shape, value, in, at);
}
template <int Rank = 0, NumberOperand N, TensorArgument X>
constexpr auto full(detail::NoExtents shape, const N& value, const X& in, Here at = Here::current()) {
  return full<detail::filled_with_t<N>>(shape, value, in, at);
}
template <Element T = float, std::size_t Rank, TensorArgument X>
constexpr auto zeros(const Dim (&shape)[Rank], const X& in, Here at = Here::current()) {
  const detail::FunctionCall named("zeros", in);
  return full<T>(shape, 0, in, at);
}
template <Element T = float, TensorArgument X>
constexpr auto zeros(detail::NoExtents shape, const X& in, Here at = Here::current()) {
  return full<T>(shape, 0, in, at);
}
template <Element T = float, std::size_t Rank, TensorArgument X>
constexpr auto ones(const Dim (&shape)[Rank], const X& in, Here at = Here::current()) {
  const detail::FunctionCall named("ones", in);
  return full<T>(shape, 1, in, at);
}
template <Element T = float, TensorArgument X>
constexpr auto ones(detail::NoExtents shape, const X& in, Here at = Here::current()) {
  return full<T>(shape, 1, in, at);
}

/// Without a tensor or a mesh: an error of the compiler that says what is missing.
template <Element T, std::size_t Rank, NumberOperand N> constexpr auto full(const Dim (&)[Rank], const N&) {
  static_assert(detail::has_a_place<N>,
                "tessera: ts::full, ts::zeros and ts::ones need a mesh, ts::zeros<float>({4, 2}, mesh), or in a traced "
                "function any tensor of it, ts::zeros<float>({4, 2}, x)");
  return T{};
}
template <Element T = float, std::size_t Rank> constexpr auto zeros(const Dim (&shape)[Rank]) {
  return full<T>(shape, 0);
}
template <Element T = float, std::size_t Rank> constexpr auto ones(const Dim (&shape)[Rank]) {
  return full<T>(shape, 1);
}

/// The identity matrix [n, n], or 1 on the diagonal of [n, m] and 0 elsewhere: `eye<float>(n, x)`. As full.
template <Element T = float, SizeOperand N, TensorArgument X>
constexpr auto eye(const N& n, const X& in, Here at = Here::current()) {
  return call<detail::EyeTag<T>>(Source::from(at), in, Dim(n), Dim(n));
}
template <Element T = float, SizeOperand N, SizeOperand M, TensorArgument X>
constexpr auto eye(const N& n, const M& m, const X& in, Here at = Here::current()) {
  return call<detail::EyeTag<T>>(Source::from(at), in, Dim(n), Dim(m));
}

/// `count` points at equal distances from `start` to `end`, both included: `linspace(-1, 1, 5, x)` is -1, -0.5, 0, 0.5,
/// 1. One point is `start`. T is float by default, or double, bf16, f16; points are computed in double and rounded
/// once. Ends are numbers or ts::Scalars. As full.
template <Element T = float, NumberOperand Start, NumberOperand End, SizeOperand N, TensorArgument X>
constexpr auto linspace(const Start& start, const End& end, const N& count, const X& in, Here at = Here::current()) {
  return call<detail::LinspaceTag<T, false>>(Source::from(at), in, Dim(count), start, end);
}
/// `base` to the power of the points of linspace: `logspace(-1, 2, 4, x)` is 0.1, 1, 10, 100.
template <Element T = float, NumberOperand Start, NumberOperand End, SizeOperand N, TensorArgument X>
constexpr auto logspace(const Start& start, const End& end, const N& count, const X& in, Here at = Here::current()) {
  return call<detail::LinspaceTag<T, true>>(Source::from(at), in, Dim(count), start, end, 10.0);
}
template <Element T = float, NumberOperand Start, NumberOperand End, SizeOperand N, NumberOperand Base,
          TensorArgument X>
constexpr auto logspace(const Start& start, const End& end, const N& count, const Base& base, const X& in,
                        Here at = Here::current()) {
  return call<detail::LinspaceTag<T, true>>(Source::from(at), in, Dim(count), start, end, base);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
