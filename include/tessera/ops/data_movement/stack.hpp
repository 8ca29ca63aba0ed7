#ifndef TESSERA_OPS_DATA_MOVEMENT_STACK_HPP
#define TESSERA_OPS_DATA_MOVEMENT_STACK_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>
#include <utility>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise/comparison.hpp>

// Tensors put together along a new dim, and taken apart along one.

namespace tessera {

namespace detail {

template <int Rank, int D> struct StackTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  static_assert(Rank < max_rank, "tessera: a tensor has at most 8 dims");
  template <class A, class... Rest> struct result {
    using type = typename ConcatTag<Rank, 0>::template result<A, Rest...>::type;
    static constexpr int rank = Rank + 1;
  };
  static constexpr Value emit(Value context, auto... tensors) {
    if (context.module->function == nullptr) context.source.inside = ops::stack_function;
    const auto with_dim = [&](Value x) {
      return build::insert_singletons(x.at(context.source), 1u << (D + x.leading(Rank)), x.rank() + 1);
    };
    return ConcatTag<Rank + 1, D>::emit(context, with_dim(tensors)...);
  }
};

/// The chunk at position `Index` of `Chunks`, which are equally long except the last ones.
template <int Rank, int D, int Chunks, int Index> struct ChunkTag {
  static_assert(Chunks > 0, "tessera: the number of chunks is at least 1");
  template <class X> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const auto whole = [&](std::int64_t n) { return x.integer(n, DType::i64); };
    const Value n = build::extent(x, dim), size = (n + whole(Chunks - 1)) / whole(Chunks);
    const auto start_of = [&](int chunk) { return build::minimum(size * whole(chunk), n); };
    return build::slice(x, dim, start_of(Index), start_of(Index + 1) - start_of(Index));
  }
};

/// Part `Index` of `Count` parts of a dim, of which the first ones have one element more.
template <int Rank, int D, int Count, int Index> struct PartTag {
  template <class A> using result = Typed<typename A::type, Rank>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value n = build::extent(x, dim), count = n.number(Count);
    // The first n mod Count parts have one element more than n / Count.
    const auto start = [&](int i) {
      return n / count * n.number(i) + build::minimum(n - n / count * count, n.number(i));
    };
    return build::slice(x, dim, start(Index), start(Index + 1) - start(Index));
  }
};

struct BlockDiagTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A, class B> using result = typename ConcatTag<2, 0>::template result<A, B>;
  static constexpr Value emit(Value context, Value a, Value b) {
    a = a.at(context.source), b = b.at(context.source);
    const int row = a.leading(2), column = row + 1;
    const Value none = a.integer(0, DType::i64), width = build::extent(a, column);
    const Value both = width + build::extent(b, column);
    return ConcatTag<2, 0>::emit(context, build::pad_to(a, column, none, both), build::pad_to(b, column, width, both));
  }
};

}  // namespace detail

/// Tensors of one shape and element type along a new dim at position D of the result: `stack<0>(a, b)` of vectors is a
/// matrix with the rows a and b. At most 16. Errors: shape_mismatch when a dim differs. Communication: as concat.
template <int D, TensorArgument A, TensorArgument B>
constexpr auto stack(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::StackTag<A::rank, detail::checked_dim<D, A::rank + 1>()>>(Source::from(at), a, b);
}
template <int D, TensorArgument A, TensorArgument B, TensorArgument C>
constexpr auto stack(const A& a, const B& b, const C& c, Here at = Here::current()) {
  return call<detail::StackTag<A::rank, detail::checked_dim<D, A::rank + 1>()>>(Source::from(at), a, b, c);
}
template <int D, TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument E>
constexpr auto stack(const A& a, const B& b, const C& c, const E& e, Here at = Here::current()) {
  return call<detail::StackTag<A::rank, detail::checked_dim<D, A::rank + 1>()>>(Source::from(at), a, b, c, e);
}
template <int D, TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument E, TensorArgument F,
          TensorOperand... Rest>
constexpr auto stack(const A& a, const B& b, const C& c, const E& e, const F& f, const Rest&... rest) {
  static_assert(sizeof...(Rest) + 5 <= 16, "tessera: stack takes at most 16 operands");
  return call<detail::StackTag<A::rank, detail::checked_dim<D, A::rank + 1>()>>(detail::line_of(a), a, b, c, e, f,
                                                                                rest...);
}

/// Of a std::array, tuple or pair of tensors, as torch.stack of a list.
template <int D, class Tensors>
  requires requires { std::tuple_size<Tensors>::value; }
constexpr auto stack(const Tensors& tensors, Here at = Here::current()) {
  return std::apply(
      [&]<TensorArgument A, TensorOperand... Rest>(const A& first, const Rest&... rest) {
        static_assert(sizeof...(Rest) < 16, "tessera: stack takes at most 16 operands");
        return call<detail::StackTag<A::rank, detail::checked_dim<D, A::rank + 1>()>>(Source::from(at), first, rest...);
      },
      tensors);
}

/// With a dim as an argument it does not compile.
template <TensorArgument A, TensorArgument B, std::integral Dim> constexpr A stack(const A& a, const B&, Dim) {
  return detail::refuse_dim_argument<Dim>(a);
}
template <class Tensors, std::integral Dim>
  requires requires { std::tuple_size<Tensors>::value; }
constexpr auto stack(const Tensors& tensors, Dim) {
  return detail::refuse_dim_argument<Dim>(std::get<0>(tensors));
}

/// The coordinates of a grid of points (torch.meshgrid and jnp.meshgrid with indexing "ij"), a tuple:
/// `const auto [a, b] = ts::meshgrid(x, y)` of vectors [n] and [m] are matrices [n, m] with a[i, j] = x[i] and
/// b[i, j] = y[j]. No communication.
template <TensorArgument X, TensorArgument Y>
constexpr auto meshgrid(const X& x, const Y& y, Here at = Here::current()) {
  const detail::FunctionCall named("meshgrid", x, y);
  static_assert(X::rank == 1 && Y::rank == 1, "tessera: meshgrid takes vectors");
  const auto down = unsqueeze<1>(x, at), across = unsqueeze<0>(y, at);
  const auto like = tessera::equal(iota<0, std::int32_t>(down, at), iota<1, std::int32_t>(across, at), at);
  return std::tuple(broadcast_like(down, like, at), broadcast_like(across, like, at));
}
/// Matrices along the diagonal of one matrix, and 0 elsewhere: [m, n] and [p, q] give [m + p, n + q]. Communication: as
/// concat.
template <TensorArgument A, TensorArgument B>
constexpr auto block_diag(const A& a, const B& b, Here at = Here::current()) {
  static_assert(A::rank == 2 && B::rank == 2, "tessera: block_diag takes matrices");
  return call<detail::BlockDiagTag>(Source::from(at), a, b);
}
template <TensorArgument A, TensorArgument B, TensorArgument C, TensorOperand... Rest>
constexpr auto block_diag(const A& a, const B& b, const C& c, const Rest&... rest) {
  return block_diag(block_diag(a, b), c, rest...);
}

/// A dim in `Chunks` chunks, a tuple: `const auto [a, b] = ts::chunk<2, -1>(x)`. All are as long as the first, the
/// extent over `Chunks` rounded up, except the last ones, which are shorter or empty; PyTorch leaves empty chunks out.
/// The number of chunks is a constant. Communication: as slice.
template <int Chunks, int D = 0, TensorArgument X> constexpr auto chunk(const X& x, Here at = Here::current()) {
  return [&]<int... Index>(std::integer_sequence<int, Index...>) {
    return std::tuple(
        call<detail::ChunkTag<X::rank, detail::checked_dim<D, X::rank>(), Chunks, Index>>(Source::from(at), x)...);
  }(std::make_integer_sequence<int, Chunks>{});
}
/// A dim in `Chunks` parts, a tuple, whose extents differ by at most one, the longer ones first (torch.tensor_split,
/// jnp.array_split): 7 in three parts are 3, 2 and 2, of which ts::chunk makes 3, 3 and 1. Communication: as slice.
template <int Chunks, int D = 0, TensorArgument X> constexpr auto tensor_split(const X& x, Here at = Here::current()) {
  static_assert(Chunks >= 1, "tessera: tensor_split makes one part or more");
  return [&]<int... Index>(std::integer_sequence<int, Index...>) {
    return std::tuple(
        call<detail::PartTag<X::rank, detail::checked_dim<D, X::rank>(), Chunks, Index>>(Source::from(at), x)...);
  }(std::make_integer_sequence<int, Chunks>{});
}
/// A dim in ranges of the given sizes, a tuple: `const auto [a, b] = ts::split<-1, 2, 3>(x)`. Elements after the last
/// range are in no result. Errors: shape_mismatch when the dim is shorter. Communication: as slice.
template <int D, int First, int... Sizes, TensorArgument X>
constexpr auto split(const X& x, Here at = Here::current()) {
  const detail::FunctionCall named("split", x);
  int start = 0;
  const auto next = [&](int size) {
    start += size;
    return slice<D>(x, start - size, size, at);
  };
  using Slice = decltype(next(First));
  if constexpr (sizeof...(Sizes) == 0)
    return std::tuple<Slice>{next(First)};
  else
    return std::tuple<Slice, decltype(next(Sizes))...>{next(First), next(Sizes)...};
}
/// The `Count` first indices of a dim, each without it, a tuple: `const auto [a, b] = ts::unbind<2, 0>(x)` of a matrix
/// with two rows. Errors: shape_mismatch when the dim is shorter. Communication: as slice of one index.
template <int Count, int D = 0, TensorArgument X> constexpr auto unbind(const X& x, Here at = Here::current()) {
  const detail::FunctionCall named("unbind", x);
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return std::tuple(squeeze<D>(slice<D>(x, I, 1, at), at)...);
  }(std::make_integer_sequence<int, Count>{});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
