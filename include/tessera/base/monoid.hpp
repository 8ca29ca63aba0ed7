#ifndef TESSERA_BASE_MONOID_HPP
#define TESSERA_BASE_MONOID_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/inline.hpp>
#include <tessera/base/promotion.hpp>

namespace tessera {

/// How values combine: in reductions along dims, in cumulative operations, and in partial values of which each device
/// holds a part.
enum class Reduction : std::uint8_t { sum, max, min, product, bit_and, bit_or };

namespace monoids {

inline constexpr DTypeSet bits = static_cast<DTypeSet>(computed_dtypes & ~floating_dtypes);

/// Defaults of a monoid. Each monoid adds
///   kind, name, partial   its enumerator, and its names in texts and plans
///   identity<T>()         the neutral element, which is the result of reducing no elements
///   join(x, y)            x = x combined with y: for scalars, doubles that stand for any element type, lanes and masks
///                         of kernels, and compiler vectors (by reference, since these can't be passed by value)
///   moved(...)            an error bound of x combined with y from those of x and y: the oracle's bound for reductions
struct Monoid {
  static constexpr DTypeSet dtypes = computed_dtypes;  ///< element types that it can combine
  static constexpr bool idempotent = false;            ///< x combined with x is x
  static constexpr bool rounds = false;                ///< floating results depend on the order of combination
  static constexpr bool linear = false;  ///< partial values may pass through linear operations before they are reduced
  static constexpr bool widens = false;  ///< reductions of bools and of integers below 32 bits give i32
  static constexpr double moved(double, double x_off, double, double y_off) { return x_off > y_off ? x_off : y_off; }
};

/// Signed integers wrap: they are computed as unsigned.
template <class X>
using unsigned_of =
    std::common_type_t<unsigned, std::make_unsigned_t<std::conditional_t<std::is_same_v<X, bool>, char, X>>>;

struct Sum : Monoid {
  static constexpr Reduction kind = Reduction::sum;
  static constexpr std::string_view name = "sum", partial = "partial sum";
  static constexpr DTypeSet dtypes = number_dtypes;
  static constexpr bool rounds = true, linear = true, widens = true;
  template <class T> static constexpr T identity() { return T(0); }
  template <class X> static TESSERA_INLINE constexpr void join(X& x, const X& y) {
    if constexpr (std::is_integral_v<X>)
      x = static_cast<X>(static_cast<unsigned_of<X>>(x) + static_cast<unsigned_of<X>>(y));
    else
      x = static_cast<X>(x + y);
  }
  static constexpr double moved(double, double x_off, double, double y_off) { return x_off + y_off; }
};

/// NaN if either value is.
struct Max : Monoid {
  static constexpr Reduction kind = Reduction::max;
  static constexpr std::string_view name = "max", partial = "partial extreme";
  static constexpr bool idempotent = true;
  template <class T> static constexpr T identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  }
  template <class X> static TESSERA_INLINE constexpr void join(X& x, const X& y) {
    if constexpr (requires { maximum(x, y); })
      x = maximum(x, y);
    else if constexpr (requires { static_cast<bool>(x > y); })
      x = x != x || x > y ? x : y;
    else
      x = ((x > y) | (x != x)) ? x : y;
  }
};

/// NaN if either value is.
struct Min : Monoid {
  static constexpr Reduction kind = Reduction::min;
  static constexpr std::string_view name = "min", partial = "partial extreme";
  static constexpr bool idempotent = true;
  template <class T> static constexpr T identity() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class X> static TESSERA_INLINE constexpr void join(X& x, const X& y) {
    if constexpr (requires { minimum(x, y); })
      x = minimum(x, y);
    else if constexpr (requires { static_cast<bool>(x < y); })
      x = x != x || x < y ? x : y;
    else
      x = ((x < y) | (x != x)) ? x : y;
  }
};

struct Product : Monoid {
  static constexpr Reduction kind = Reduction::product;
  static constexpr std::string_view name = "product", partial = "partial product";
  static constexpr DTypeSet dtypes = number_dtypes;
  static constexpr bool rounds = true, widens = true;
  template <class T> static constexpr T identity() { return T(1); }
  template <class X> static TESSERA_INLINE constexpr void join(X& x, const X& y) {
    if constexpr (std::is_integral_v<X>)
      x = static_cast<X>(static_cast<unsigned_of<X>>(x) * static_cast<unsigned_of<X>>(y));
    else
      x = static_cast<X>(x * y);
  }
  static constexpr double moved(double x, double x_off, double y, double y_off) {
    return (x < 0 ? -x : x) * y_off + (y < 0 ? -y : y) * x_off + x_off * y_off;
  }
};

/// Bitwise, for integers and bools. Only collectives called as functions use it, no operation.
struct BitAnd : Monoid {
  static constexpr Reduction kind = Reduction::bit_and;
  static constexpr std::string_view name = "bit_and", partial = "partial bits";
  static constexpr DTypeSet dtypes = bits;
  static constexpr bool idempotent = true;
  template <class T> static constexpr T identity() { return static_cast<T>(-1); }
  template <class X> static TESSERA_INLINE constexpr void join(X& x, const X& y) { x = static_cast<X>(x & y); }
};

struct BitOr : Monoid {
  static constexpr Reduction kind = Reduction::bit_or;
  static constexpr std::string_view name = "bit_or", partial = "partial bits";
  static constexpr DTypeSet dtypes = bits;
  static constexpr bool idempotent = true;
  template <class T> static constexpr T identity() { return T(0); }
  template <class X> static TESSERA_INLINE constexpr void join(X& x, const X& y) { x = static_cast<X>(x | y); }
};

template <class... M> struct MonoidList {};

/// All monoids of the library, in the order of their enumerators. A new monoid needs its struct, an enumerator and an
/// entry here.
using Monoids = MonoidList<Sum, Max, Min, Product, BitAnd, BitOr>;

template <class M> inline constexpr bool takes_doubles = (M::dtypes & set_of(DType::f64)) != 0;

/// x combined with y.
template <class M, class X> TESSERA_INLINE constexpr X combined(X x, const X& y) {
  M::join(x, y);
  return x;
}

}  // namespace monoids

/// A monoid at run time. The functions are null for monoids of integers only.
struct ReductionFacts {
  std::string_view name, partial;
  DTypeSet dtypes = 0;
  bool idempotent = false, rounds = false, linear = false, widens = false;
  double identity = 0;
  double (*combined)(double, const double&) = nullptr;
  double (*moved)(double, double, double, double) = nullptr;
};

namespace detail {

template <class M> constexpr ReductionFacts reduction_facts() {
  ReductionFacts facts{M::name,   M::partial, M::dtypes, M::idempotent, M::rounds,
                       M::linear, M::widens,  0,         nullptr,       nullptr};
  if constexpr (monoids::takes_doubles<M>) {
    facts.identity = M::template identity<double>();
    facts.combined = monoids::combined<M, double>;
    facts.moved = M::moved;
  }
  return facts;
}

template <class List> struct ReductionTable;
template <class... M> struct ReductionTable<monoids::MonoidList<M...>> {
  static constexpr int size = sizeof...(M);
  static constexpr ReductionFacts facts[sizeof...(M)] = {reduction_facts<M>()...};
  static constexpr bool in_order() {
    std::size_t at = 0;
    return ((static_cast<std::size_t>(M::kind) == at++) && ...);
  }
  static_assert(in_order(), "tessera: monoids are listed in the order of their enumerators");
};

template <Reduction R, class M> struct MonoidAt {
  using type = M;
};
template <class List> struct MonoidMap;
template <class... M> struct MonoidMap<monoids::MonoidList<M...>> : MonoidAt<M::kind, M>... {};
template <Reduction R, class M> MonoidAt<R, M> find_monoid(const MonoidAt<R, M>*);

template <class F, class First, class... More>
constexpr decltype(auto) with_monoid(Reduction reduction, F& f, monoids::MonoidList<First, More...>) {
  if constexpr (sizeof...(More) == 0) {
    return f.template operator()<First>();
  } else {
    if (reduction == First::kind) return f.template operator()<First>();
    return with_monoid(reduction, f, monoids::MonoidList<More...>{});
  }
}

}  // namespace detail

inline constexpr int reduction_count = detail::ReductionTable<monoids::Monoids>::size;

constexpr const ReductionFacts& facts_of(Reduction reduction) {
  return detail::ReductionTable<monoids::Monoids>::facts[static_cast<std::size_t>(reduction)];
}
constexpr std::string_view name_of(Reduction reduction) { return facts_of(reduction).name; }
constexpr bool combines(Reduction reduction, DType type) { return (facts_of(reduction).dtypes & set_of(type)) != 0; }

/// The element type of a reduction's result, and that of its partial values (f32 for bf16 and f16).
constexpr DType reduced_type(Reduction reduction, DType x) { return facts_of(reduction).widens ? sum_type(x) : x; }
constexpr DType partial_type(Reduction reduction, DType x) { return facts_of(reduction).widens ? summed_as(x) : x; }

/// The monoid of an enumerator.
template <Reduction R>
using monoid_of =
    typename decltype(detail::find_monoid<R>(static_cast<detail::MonoidMap<monoids::Monoids>*>(nullptr)))::type;

/// Calls `f.template operator()<M>()` with the monoid of `reduction`.
template <class F> constexpr decltype(auto) with_monoid(Reduction reduction, F&& f) {
  return detail::with_monoid(reduction, f, monoids::Monoids{});
}

/// A set of element types for each reduction. Code is generated only for the combinations that a program uses.
struct ReducedTypes {
  DTypeSet of[static_cast<std::size_t>(reduction_count)];

  /// Written one by one: in the name of a template argument, g++ 12 leaves out elements that an initializer left out,
  /// so that different sets had one name.
  constexpr ReducedTypes() {
    for (DTypeSet& own : of) own = 0;
  }
  constexpr DTypeSet operator[](Reduction reduction) const { return of[static_cast<std::size_t>(reduction)]; }
  constexpr void add(Reduction reduction, DTypeSet types) {
    DTypeSet& own = of[static_cast<std::size_t>(reduction)];
    own = static_cast<DTypeSet>(own | (types & facts_of(reduction).dtypes));
  }
};

/// All combinations of reduction and element type that operations can have: for partial values, and for cumulative
/// operations.
inline constexpr ReducedTypes all_partial_types = [] {
  ReducedTypes all;
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::product})
    all.add(reduction, all_dtypes);
  return all;
}();
/// All that there are: those of collectives that are called as functions.
inline constexpr ReducedTypes all_combined_types = [] {
  ReducedTypes all;
  for (int r = 0; r < static_cast<int>(reduction_count); ++r) all.add(static_cast<Reduction>(r), all_dtypes);
  return all;
}();
/// Those of scatters: sums and products of floating elements are computed in f64, sums in gradients in f32 too.
inline constexpr ReducedTypes all_scattered_types = [] {
  ReducedTypes all;
  const auto wide = static_cast<DTypeSet>(set_of(DType::f64) | (all_dtypes & ~floating_dtypes));
  all.add(Reduction::sum, static_cast<DTypeSet>(wide | set_of(DType::f32)));
  all.add(Reduction::product, wide);
  for (const Reduction reduction : {Reduction::max, Reduction::min}) all.add(reduction, all_dtypes);
  return all;
}();
inline constexpr ReducedTypes all_cumulative_types = [] {
  ReducedTypes all;
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::product})
    all.add(reduction, all_dtypes);
  return all;
}();

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
