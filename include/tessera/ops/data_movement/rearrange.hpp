#ifndef TESSERA_OPS_DATA_MOVEMENT_REARRANGE_HPP
#define TESSERA_OPS_DATA_MOVEMENT_REARRANGE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <string_view>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange_rows.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>

namespace tessera {

namespace detail {

/// The text of a rearrange, such as "b t (h d) -> b h t d", parsed into factors at compile time. `1`: a singleton dim.
struct RearrangeText {
  Factors factors{};
  std::string_view names[max_rank]{};
  int rank_in = 0, rank_out = 0;
  unsigned singletons_in = 0;  ///< dims of the left side written as 1
  bool valid = true;

 private:  // comes first since clang needs the definition of what a constexpr constructor calls
  static constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

  constexpr void read(std::string_view side, int& rank, unsigned* singletons, auto&& name_of_dim) {
    bool inside = false;
    int factors_in_dim = 0;
    for (std::size_t i = 0; i < side.size() && valid;) {
      const char c = side[i];
      if (c == ' ') {
        ++i;
        continue;
      }
      if (c == '(' || c == ')') {
        valid = inside == (c == ')') && (c == '(' || factors_in_dim > 0);
        inside = c == '(';
        factors_in_dim = 0;
        if (c == ')') ++rank;
        ++i;
        continue;
      }
      std::size_t end = i + 1;
      while (end < side.size() && (is_letter(side[end]) || is_digit(side[end]))) ++end;
      const std::string_view word = side.substr(i, end - i);
      i = end;
      if (rank == max_rank)
        valid = false;
      else if (word == "1" && !inside) {
        if (singletons != nullptr) *singletons |= 1u << rank;
      } else if (!is_letter(word[0]) || !name_of_dim(word))
        valid = false;
      if (inside)
        ++factors_in_dim;
      else
        ++rank;
    }
    valid = valid && !inside;
  }

 public:
  constexpr explicit RearrangeText(std::string_view text) {
    const std::size_t arrow = text.find("->");
    valid = arrow != std::string_view::npos;
    if (!valid) return;
    bool used[max_rank]{};
    int placed = 0;
    auto left = [&](std::string_view name) {
      if (find(name) >= 0 || factors.count == max_rank) return false;
      names[factors.count] = name;
      factors.in_dim[factors.count++] = static_cast<std::int8_t>(rank_in);
      return true;
    };
    auto right = [&](std::string_view name) {
      const int factor = find(name);
      if (factor < 0 || used[factor]) return false;
      used[factor] = true;
      factors.order[placed] = static_cast<std::int8_t>(factor);
      factors.out_dim[placed++] = static_cast<std::int8_t>(rank_out);
      return true;
    };
    read(text.substr(0, arrow), rank_in, &singletons_in, left);
    read(text.substr(arrow + 2), rank_out, nullptr, right);
    valid = valid && placed == factors.count;
  }

  /// The factor of a name; -1 when there is none.
  constexpr int find(std::string_view name) const {
    for (int f = 0; f < factors.count; ++f)
      if (names[f] == name) return f;
    return -1;
  }
  /// Whether the extents of all factors follow from those whose bits are set in `given`.
  constexpr bool determined(unsigned given) const {
    for (int dim = 0; dim < rank_in; ++dim) {
      int open = 0;
      for (int f = 0; f < factors.count; ++f)
        if (factors.in_dim[f] == dim && (given >> f & 1) == 0) ++open;
      if (open > 1) return false;
    }
    return true;
  }
};

/// A rearrange of a value of static rank `rank_in`; dims in front of these (the layers of a stack) stay. `sizes[f]`:
/// the extent of factor f, or a value without module where it is inferred.
constexpr Value rearrange(Value x, int rank_in, int rank_out, const Factors& factors, const Value* sizes,
                          RearrangeOrigin origin = {}) {
  const int lead = x.leading(rank_in);
  int kept[max_rank]{};
  std::int32_t ids[max_rank]{};
  Factors made{};
  for (int d = 0; d < lead; ++d) {
    made.in_dim[d] = made.order[d] = made.out_dim[d] = static_cast<std::int8_t>(d);
    ids[made.count++] = -1;
  }
  for (int f = 0; f < factors.count; ++f) {
    const bool given = sizes != nullptr && sizes[f].module != nullptr;
    bool alone = true;
    for (int o = 0; o < factors.count; ++o) alone = alone && (o == f || factors.in_dim[o] != factors.in_dim[f]);
    kept[f] = -1;
    if (x.is_singleton(factors.in_dim[f] + lead) && alone && !given) continue;  // singleton dims have no factors
    if (made.count == max_rank)
      fail(errc::capacity, "[rearrange] number of factors: dims are split into more than 8 factors in all");
    kept[f] = made.count;
    made.in_dim[made.count] = static_cast<std::int8_t>(factors.in_dim[f] + lead);
    ids[made.count++] = given ? sizes[f].id : -1;
  }
  int at = lead;
  for (int p = 0; p < factors.count; ++p) {
    const int f = kept[static_cast<int>(factors.order[p])];
    if (f < 0) continue;
    made.order[at] = static_cast<std::int8_t>(f);
    made.out_dim[at++] = static_cast<std::int8_t>(factors.out_dim[p] + lead);
  }
  return build::rearrange(x, rank_out + lead, made, ids, origin);
}

constexpr void require_singleton(Value x, int dim, const char* message) {
  if (!x.is_singleton(dim)) x.refuse(errc::shape_mismatch, message);
}

template <FixedString Text, FixedString... Names> struct RearrangeTag {
  static constexpr RearrangeText text{Text.view()};
  static_assert(text.valid,
                "tessera: a rearrange pattern is written \"b t (h d) -> b h t d\": names, 1 for a singleton dim, "
                "and parentheses around the factors of a dim; both sides have the same names, each once");
  static constexpr bool known = ((text.find(Names.view()) >= 0) && ...);
  static_assert(known || !text.valid, "tessera: the name in a ts::len is not a name in the pattern of the rearrange");
  static constexpr bool determined = text.determined((0u | ... | (1u << (text.find(Names.view()) & 31))));
  static_assert(determined || !text.valid,
                "tessera: a dim that is split needs a ts::len for all of its factors but one");

  template <class A, class... Sizes> struct result {
    using type = typename A::type;
    static constexpr int rank = text.rank_out;
    using Checks = decltype([] {
      static_assert(A::rank == text.rank_in,
                    "tessera: the operand of rearrange has a different rank than the left side of the pattern");
    });
  };
  static constexpr Value emit(Value context, Value x, auto... given) {
    x = x.at(context.source);
    Value sizes[max_rank]{};
    ((sizes[text.find(Names.view())] = as_size(given)), ...);
    for (int d = 0; d < text.rank_in; ++d)
      if ((text.singletons_in >> d & 1) != 0)
        require_singleton(
            x, d + x.rank() - text.rank_in,
            "[rearrange] 1: in a pattern, 1 is a dim of static extent 1, as from keepdims or ts::unsqueeze");
    return rearrange(x, text.rank_in, text.rank_out, text.factors, sizes);
  }
};

/// The positions of dims, of which negative ones count from the back; without positions, the dims in reverse order.
template <int Rank, int... Order> struct DimOrder {
  static constexpr int count = sizeof...(Order) == 0 ? Rank : static_cast<int>(sizeof...(Order));
  static constexpr auto dims = [] {
    std::array<int, static_cast<std::size_t>(count)> found{};
    int d = 0;
    ((found[static_cast<std::size_t>(d++)] = Order < 0 ? Order + count : Order), ...);
    for (; d < count; ++d) found[static_cast<std::size_t>(d)] = count - 1 - d;
    return found;
  }();
  static constexpr bool is_permutation = [] {
    unsigned seen = 0;
    for (int dim : dims)
      if (dim >= 0 && dim < count) seen |= 1u << dim;
    return count == Rank && seen == (1u << count) - 1;
  }();
};
template <int Rank, int... Order> struct TransposeTag {
  using Dims = DimOrder<Rank, Order...>;
  template <class A> struct result {
    using type = typename A::type;
    static constexpr int rank = Rank;
    using Checks = decltype([] {
      static_assert(Dims::is_permutation,
                    "tessera: transpose needs each dim of the tensor once, as in ts::transpose<1, 0>(x)");
    });
  };
  static constexpr Value emit(Value context, Value x) {
    Factors f{};
    for (int order : Dims::dims) {
      f.in_dim[f.count] = f.out_dim[f.count] = f.count;
      f.order[f.count++] = static_cast<std::int8_t>(order);
    }
    return rearrange(x.at(context.source), Rank, Rank, f, nullptr);
  }
};

template <int Rank, int From, int To> struct MoveDimTag {
  template <class A> using result = Typed<typename A::type, Rank>;
  static constexpr Value emit(Value context, Value x) {
    return build::move_dim(x.at(context.source), x.shifted(From, Rank), x.shifted(To, Rank));
  }
};
template <int Rank, int A, int B> struct SwapAxesTag {
  template <class X> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x) {
    constexpr int first = A < B ? A : B, last = A < B ? B : A;
    x = x.at(context.source);
    if (first == last) return x;
    const int from = x.shifted(first, Rank), to = x.shifted(last, Rank);
    return build::move_dim(build::move_dim(x, from, to), to - 1, from);
  }
};

/// Splits dim `D` of a tensor of rank `Rank` into `Count` dims, of which all but the first have given extents.
template <int Rank, int D, int Count, MadeBy By = MadeBy::operation> struct SplitTag {
  static_assert(Rank + Count - 1 <= max_rank, "tessera: a tensor has at most 8 dims");
  template <class A, class... Sizes> using result = Typed<typename A::type, Rank + Count - 1>;
  static constexpr Value emit(Value context, Value x, auto... inner) {
    Factors f{};
    Value sizes[max_rank]{}, given[] = {as_size(inner)...};
    for (int d = 0; d < Rank; ++d)
      for (int k = 0; k < (d == D ? Count : 1); ++k) {
        f.in_dim[f.count] = static_cast<std::int8_t>(d);
        if (k > 0) sizes[f.count] = given[k - 1];
        f.order[f.count] = f.out_dim[f.count] = f.count;
        ++f.count;
      }
    return rearrange(x.at(context.source), Rank, Rank + Count - 1, f, sizes, {0, By});
  }
};

template <int Rank, int First, int Last, MadeBy By = MadeBy::operation> struct MergeTag {
  static_assert(First <= Last, "tessera: merge_dims takes the first and the last dim to merge, in this order");
  template <class A> using result = Typed<typename A::type, Rank - (Last - First)>;
  static constexpr Value emit(Value context, Value x) {
    Factors f{};
    for (int d = 0; d < Rank; ++d) {
      f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
      f.out_dim[d] = static_cast<std::int8_t>(d <= First ? d : d <= Last ? First : d - (Last - First));
      ++f.count;
    }
    return rearrange(x.at(context.source), Rank, Rank - (Last - First), f, nullptr, {0, By});
  }
};

template <int Rank, int D> struct UnsqueezeTag {
  static_assert(Rank < max_rank, "tessera: a tensor has at most 8 dims");
  template <class A> using result = Typed<typename A::type, Rank + 1>;
  static constexpr Value emit(Value context, Value x) {
    const int lead = x.leading(Rank);
    return build::insert_singletons(x.at(context.source), 1u << (D + lead), x.rank() + 1);
  }
};

template <int Rank, int D> struct SqueezeTag {
  template <class A> using result = Typed<typename A::type, Rank - 1>;
  static constexpr Value emit(Value context, Value x) {
    const int dim = x.shifted(D, Rank);
    x = x.at(context.source);
    if (!x.is_singleton(dim)) {  // outside of the dim unless its extent is 1
      const Value one = x.integer(1, DType::i64);
      x = build::slice(x, dim, one - build::extent(x, dim), one, MadeBy::squeeze);
    }
    return build::drop_singletons(x, 1u << dim);
  }
};

}  // namespace detail

/// The extent of a named factor in a rearrange: `ts::len<"h">(heads)`.
template <FixedString Name> struct Len {
  static constexpr auto name = Name;
  Dim size;
};
template <FixedString Name, SizeOperand T> constexpr Len<Name> len(const T& size) { return {Dim(size)}; }

namespace detail {
template <class T> inline constexpr bool is_len_v = false;
template <FixedString Name> inline constexpr bool is_len_v<Len<Name>> = true;
template <class T>
concept LenArgument = is_len_v<T>;
}  // namespace detail

/// Splits, permutes and merges dims (einops):
///
///     auto q = ts::rearrange<"b t (h d) -> b h t d">(x, ts::len<"h">(heads));
///
/// Names in parentheses are factors of a dim, the most significant first; ts::len gives the extents of all of them but
/// one. `1` is a dim of static extent 1. Errors: not_divisible when the factors don't divide the dim. Communication:
/// none where the shards stay the same elements. A split dim passes its axes to its factors, the most significant
/// factor first, as sub-axes where a factor is smaller than an axis.
template <FixedString Text, TensorArgument X> constexpr auto rearrange(const X& x, Here at = Here::current()) {
  return call<detail::RearrangeTag<Text>>(Source::from(at), x);
}
template <FixedString Text, TensorArgument X, detail::LenArgument A>
constexpr auto rearrange(const X& x, const A& a, Here at = Here::current()) {
  return call<detail::RearrangeTag<Text, A::name>>(Source::from(at), x, a.size);
}
template <FixedString Text, TensorArgument X, detail::LenArgument A, detail::LenArgument B>
constexpr auto rearrange(const X& x, const A& a, const B& b, Here at = Here::current()) {
  return call<detail::RearrangeTag<Text, A::name, B::name>>(Source::from(at), x, a.size, b.size);
}
template <FixedString Text, TensorArgument X, detail::LenArgument A, detail::LenArgument B, detail::LenArgument C>
constexpr auto rearrange(const X& x, const A& a, const B& b, const C& c, Here at = Here::current()) {
  return call<detail::RearrangeTag<Text, A::name, B::name, C::name>>(Source::from(at), x, a.size, b.size, c.size);
}

/// Permutes the dims: dim d of the result is dim Order[d] of x; a negative one counts from the back. Without an order
/// the dims are reversed, as in jnp.transpose(x). No communication.
template <int... Order, TensorArgument X> constexpr auto transpose(const X& x, Here at = Here::current()) {
  return call<detail::TransposeTag<X::rank, Order...>>(Source::from(at), x);
}

/// Moves a dim to another position, the others stay in order: `movedim<1, -1>(x)` of [a, b, c] is [a, c, b]. No
/// communication.
template <int From, int To, TensorArgument X> constexpr auto movedim(const X& x, Here at = Here::current()) {
  constexpr int from = detail::checked_dim<From, X::rank>(), to = detail::checked_dim<To, X::rank>();
  return call<detail::MoveDimTag<X::rank, from, to>>(Source::from(at), x);
}
/// Exchanges two dims: `swapaxes<0, 2>(x)` of [a, b, c] is [c, b, a]. No communication.
template <int A, int B, TensorArgument X> constexpr auto swapaxes(const X& x, Here at = Here::current()) {
  constexpr int a = detail::checked_dim<A, X::rank>(), b = detail::checked_dim<B, X::rank>();
  return call<detail::SwapAxesTag<X::rank, a, b>>(Source::from(at), x);
}

/// Splits dim D into [.., inner], or into three dims, from the extents given for all but the first. Errors:
/// not_divisible when they don't divide the dim.
template <int D, TensorArgument X, SizeOperand S>
constexpr auto split_dim(const X& x, const S& inner, Here at = Here::current()) {
  const detail::FunctionCall named("split_dim", x);
  return call<detail::SplitTag<X::rank, detail::checked_dim<D, X::rank>(), 2>>(Source::from(at), x, Dim(inner));
}
template <int D, TensorArgument X, SizeOperand S, SizeOperand T>
constexpr auto split_dim(const X& x, const S& middle, const T& inner, Here at = Here::current()) {
  const detail::FunctionCall named("split_dim", x);
  return call<detail::SplitTag<X::rank, detail::checked_dim<D, X::rank>(), 3>>(Source::from(at), x, Dim(middle),
                                                                               Dim(inner));
}

/// Merges the dims from First to Last into one, First being the most significant. Communication: as rearrange.
template <int First, int Last, TensorArgument X> constexpr auto merge_dims(const X& x, Here at = Here::current()) {
  constexpr int first = detail::checked_dim<First, X::rank>(), last = detail::checked_dim<Last, X::rank>();
  return call<detail::MergeTag<X::rank, first, last>>(Source::from(at), x);
}

/// The dims from First to Last as one dim, by default all (torch.flatten, jnp.ravel): `flatten<1>(x)` of [batch,
/// height, width, features] is [batch, height * width * features]. Communication: as rearrange.
template <int First = 0, int Last = -1, TensorArgument X>
constexpr auto flatten(const X& x, Here at = Here::current()) {
  return merge_dims<First, Last>(x, at);
}
/// With dims as arguments it does not compile.
template <TensorArgument X, std::integral First, std::integral... Last>
constexpr auto flatten(const X& x, First, Last...) {
  static_assert(std::is_void_v<First>, "tessera: dims are template arguments: ts::flatten<1>(x) for ts::flatten(x, 1)");
  return x;
}

namespace detail {

template <TensorArgument X> constexpr auto flattened(const X& x, Here at) {
  if constexpr (X::rank == 1)
    return x;
  else
    return merge_dims<0, X::rank - 1>(x, at);
}

}  // namespace detail

/// Inserts a dim of static extent 1, which broadcasts, at position D of the result.
template <int D, TensorArgument X> constexpr auto unsqueeze(const X& x, Here at = Here::current()) {
  return call<detail::UnsqueezeTag<X::rank, detail::checked_dim<D, X::rank + 1>()>>(Source::from(at), x);
}

/// Removes dim D, whose extent is 1 (torch.squeeze with a dim, jnp.squeeze with an axis). Errors: shape_mismatch for
/// another extent, when the program is planned. No communication, unless a mesh axis splits the dim.
template <int D, TensorArgument X> constexpr auto squeeze(const X& x, Here at = Here::current()) {
  return call<detail::SqueezeTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x);
}

/// With a dim as an argument they do not compile.
template <TensorArgument X, std::integral Dim> constexpr X unsqueeze(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X> constexpr auto squeeze(const X& x) {
  static_assert(
      std::is_void_v<X>,
      "tessera: ts::squeeze<D>(x) removes dim D; without a dim, the rank of the result would depend on extents, "
      "which the compiler does not know");
  return x;
}
template <TensorArgument X, std::integral Dim> constexpr X squeeze(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral A, std::integral B> constexpr X transpose(const X& x, A, B) {
  static_assert(std::is_void_v<A>, "tessera: dims are template arguments: ts::swapaxes<0, 1>(x) for "
                                   "ts::transpose(x, 0, 1); ts::transpose<1, 0, 2>(x) is an order of all dims");
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
