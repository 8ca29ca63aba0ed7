#ifndef TESSERA_OPS_DATA_MOVEMENT_SLICING_HPP
#define TESSERA_OPS_DATA_MOVEMENT_SLICING_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/growable.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/data_movement/shape.hpp>

namespace tessera {

namespace build {

/// One value of several along a dim, of which there are any number.
constexpr Value concat_all(Growable<Value> parts, int dim) {
  Growable<Value> joined;
  while (parts.size() > 1) {  // a concat has up to 16 operands
    joined.clear();
    for (std::size_t first = 0; first < parts.size(); first += 16) {
      Node made = parts[first].node();
      Growable<std::int32_t> ids;
      for (std::size_t i = first; i < first + 16 && i < parts.size(); ++i) ids.push_back(parts[i].id);
      made = {.op = Op::concat,
              .dtype = made.dtype,
              .rank = made.rank,
              .singletons = static_cast<std::uint8_t>(made.singletons & ~(1u << dim)),
              .labels = pack_dim(dim)};
      joined.push_back(ids.size() > 1 ? parts[first].make(made, ids.data(), static_cast<int>(ids.size()))
                                      : parts[first]);
    }
    parts = joined;
  }
  return parts[0];
}

}  // namespace build

namespace detail {

template <int Rank, int D> struct SliceTag {
  static constexpr int size_operand = 2;
  template <class A, class Start, class Size> using result = Typed<typename A::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value start, Value size) {
    return build::slice(x.at(context.source), x.shifted(D, Rank), as_size(start), as_size(size));
  }
};

/// An index that counts from the end of a dim where it is negative.
constexpr Value from_either_end(Value index, Value extent) {
  if (index.node().is_constant()) return index.node().value < 0 ? index + extent : index;
  return build::select(build::less(index, index.number(0)), index + extent, index);
}

template <int Rank, int D> struct SliceToEndTag {
  static constexpr const char* function = "slice";
  template <class A, class Start> using result = Typed<typename A::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value start) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value extent = build::extent(x, dim), first = from_either_end(as_size(start), extent);
    return build::slice(x, dim, first, extent - first);
  }
};

template <int Rank, int D> struct ConcatTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A, class... Rest> struct result : A {
    using Checks = decltype([] {
      static_assert(((Rest::rank == Rank) && ...), "tessera: the operands of concat must have equal ranks");
      static_assert((std::is_same_v<typename Rest::type, typename A::type> && ...),
                    "tessera: the operands of concat must have the same element type; use ts::cast");
    });
  };
  static constexpr Value emit(Value context, auto... operands) { return concat({operands...}, context.source); }

 private:
  static constexpr Value concat(std::initializer_list<Value> operands, Source source) {
    const Value first = *operands.begin();
    const int dim = first.shifted(D, Rank);
    Node made{.op = Op::concat,
              .dtype = first.dtype(),
              .rank = first.node().rank,
              .singletons = 0xff,
              .labels = pack_dim(dim)};
    std::int32_t ids[16]{};
    int count = 0;
    for (const Value& operand : operands) {
      ids[count++] = operand.id;
      made.singletons = static_cast<std::uint8_t>(made.singletons & operand.node().singletons);
    }
    made.singletons = static_cast<std::uint8_t>(made.singletons & ~(1u << dim) & ((1u << made.rank) - 1));
    for (const Value& operand : operands)
      if ((operand.node().singletons & ~(1u << dim)) != made.singletons)
        first.at(source).refuse(errc::shape_mismatch,
                                "[concat] dims: a dim has static extent 1 in only some of the operands; "
                                "use ts::broadcast_like first");
    return first.at(source).make(made, ids, count);
  }
};

template <int Rank, int D> struct PadTag {
  template <class A, class Before, class After> using result = Typed<typename A::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value before, Value after) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    return build::pad_to(x, dim, as_size(before), as_size(before) + build::extent(x, dim) + as_size(after));
  }
};

/// The line that made an operand, for a function whose own line is not known.
template <TensorArgument X> constexpr Source line_of(const X& x) {
  const Value made = trace_of(x);
  return made.module != nullptr ? made.node().source : Source{};
}

}  // namespace detail

/// The indices start, ..., start + size - 1 of dim D. Errors: shape_mismatch when these are outside of the dim.
/// Communication: along a split dim, a halo exchange of the rows that cross borders of shards, or a gather of the dim
/// if that sends less. A single index (`size` is the constant 1) of a split dim is a partial value.
template <int D, TensorArgument X, SizeOperand Start, SizeOperand Size>
constexpr auto slice(const X& x, const Start& start, const Size& size, Here at = Here::current()) {
  return call<detail::SliceTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(start), Dim(size));
}

/// All indices from `start` on, a negative one from the end: `slice<0>(x, 2)` is x[2:], `slice<0>(x, -2)` x[-2:].
template <int D, TensorArgument X, SizeOperand Start>
constexpr auto slice(const X& x, const Start& start, Here at = Here::current()) {
  return call<detail::SliceToEndTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(start));
}

/// Concatenates the operands along dim D. Errors: shape_mismatch when another dim differs. Communication: as slice.
/// With more than four operands, messages give the line that made the first operand.
template <int D, TensorArgument A, TensorArgument B>
constexpr auto concat(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::ConcatTag<A::rank, detail::checked_dim<D, A::rank>()>>(Source::from(at), a, b);
}
template <int D, TensorArgument A, TensorArgument B, TensorArgument C>
constexpr auto concat(const A& a, const B& b, const C& c, Here at = Here::current()) {
  return call<detail::ConcatTag<A::rank, detail::checked_dim<D, A::rank>()>>(Source::from(at), a, b, c);
}
template <int D, TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument E>
constexpr auto concat(const A& a, const B& b, const C& c, const E& e, Here at = Here::current()) {
  return call<detail::ConcatTag<A::rank, detail::checked_dim<D, A::rank>()>>(Source::from(at), a, b, c, e);
}
template <int D, TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument E, TensorArgument F,
          TensorOperand... Rest>
constexpr auto concat(const A& a, const B& b, const C& c, const E& e, const F& f, const Rest&... rest) {
  static_assert(sizeof...(Rest) + 5 <= 16, "tessera: concat takes at most 16 operands");
  return call<detail::ConcatTag<A::rank, detail::checked_dim<D, A::rank>()>>(detail::line_of(a), a, b, c, e, f,
                                                                             rest...);
}

/// Of a std::array, tuple or pair of tensors, as torch.cat of a list.
template <int D, class Tensors>
  requires requires { std::tuple_size<Tensors>::value; }
constexpr auto concat(const Tensors& tensors, Here at = Here::current()) {
  return std::apply(
      [&]<TensorArgument A, TensorOperand... Rest>(const A& first, const Rest&... rest) {
        static_assert(sizeof...(Rest) < 16, "tessera: concat takes at most 16 operands");
        return call<detail::ConcatTag<A::rank, detail::checked_dim<D, A::rank>()>>(Source::from(at), first, rest...);
      },
      tensors);
}

/// With a dim as an argument it does not compile.
template <TensorArgument A, TensorArgument B, std::integral Dim> constexpr A concat(const A& a, const B&, Dim) {
  return detail::refuse_dim_argument<Dim>(a);
}
template <class Tensors, std::integral Dim>
  requires requires { std::tuple_size<Tensors>::value; }
constexpr auto concat(const Tensors& tensors, Dim) {
  return detail::refuse_dim_argument<Dim>(std::get<0>(tensors));
}

/// Adds `before` zeros before the elements along dim D and `after` zeros after them. Errors: shape_mismatch for
/// negative padding. Communication: as slice.
template <int D, TensorArgument X, SizeOperand Before, SizeOperand After>
constexpr auto pad(const X& x, const Before& before, const After& after, Here at = Here::current()) {
  return call<detail::PadTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(before), Dim(after));
}

/// With a dim as an argument they do not compile.
template <TensorArgument X, std::integral Dim, SizeOperand... Sizes>
constexpr X slice(const X& x, Dim, const Sizes&...) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim, SizeOperand... Sizes> constexpr X pad(const X& x, Dim, const Sizes&...) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Size, std::size_t Sizes> constexpr X pad(const X& x, const Size (&)[Sizes]) {
  return detail::refuse_dim_argument<Size>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
