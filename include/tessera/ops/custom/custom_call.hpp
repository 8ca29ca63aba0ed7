#ifndef TESSERA_OPS_CUSTOM_CUSTOM_CALL_HPP
#define TESSERA_OPS_CUSTOM_CUSTOM_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/expression/expr.hpp>
#include <tessera/ops/custom/custom_call_rows.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera {

/// An operand or a result of a function that is called by ts::custom_call: a dense row-major array of the core dims of
/// one batch entry, aligned to 64 bytes. T is const for operands.
template <class T, int Rank> class CallArray {
 public:
  static constexpr int rank = Rank;

  constexpr CallArray(T* data, const Shape& extents) : data_(data) {
    for (int d = 0; d < Rank; ++d) extents_[d] = extents[static_cast<std::size_t>(d)];
  }
  constexpr T* data() const { return data_; }
  constexpr std::int64_t extent(int dim) const { return extents_[dim]; }
  constexpr std::int64_t size() const {
    std::int64_t count = 1;
    for (int d = 0; d < Rank; ++d) count *= extents_[d];
    return count;
  }
  /// The element at an index for each dim.
  template <class... Index> constexpr T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank, "tessera: an element of an array has one index for each core dim");
    std::int64_t at = 0;
    [[maybe_unused]] int dim = 0;
    ((at = at * extents_[dim++] + static_cast<std::int64_t>(index)), ...);
    return data_[at];
  }

 private:
  T* data_;
  std::int64_t extents_[Rank > 0 ? Rank : 1]{};
};

namespace detail {

template <class Function> inline constexpr CallSignature signature_v{Function::signature};

/// The element types of the results: Function::results if it has them, otherwise that of the first operand.
template <class Function, class... A> struct CallResults {
  template <std::size_t... K>
  static auto find(std::index_sequence<K...>) -> std::tuple<std::tuple_element_t<K * 0, std::tuple<A...>>...>;
  using type = decltype(find(std::make_index_sequence<static_cast<std::size_t>(signature_v<Function>.result_count)>{}));
};
template <class Function, class... A>
  requires requires { typename Function::template results<A...>; }
struct CallResults<Function, A...> {
  using type = typename Function::template results<A...>;
};
template <class Function, class... A> using call_results_t = typename CallResults<Function, A...>::type;

/// A hash of the types, by which custom calls of different functions differ.
template <class Function, class... A> constexpr std::uint64_t function_id() {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char letter : std::string_view(__PRETTY_FUNCTION__))
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  return hash;
}

template <class Function, class... A>
void run_function(const void* const* operands, void* const* results, const CallExtents& extents) {
  using Results = call_results_t<Function, A...>;
  [&]<std::size_t... I, std::size_t... K>(std::index_sequence<I...>, std::index_sequence<K...>) {
    Function::run(CallArray<const A, signature_v<Function>.operands[I].rank>(
                      static_cast<const A*>(operands[I]), extents.shape(signature_v<Function>.operands[I]))...,
                  CallArray<std::tuple_element_t<K, Results>, signature_v<Function>.results[K].rank>(
                      static_cast<std::tuple_element_t<K, Results>*>(results[K]),
                      extents.shape(signature_v<Function>.results[K]))...);
  }(std::index_sequence_for<A...>{}, std::make_index_sequence<std::tuple_size_v<Results>>{});
}

template <class Function, class... A> constexpr CustomFunction make_function() {
  CustomFunction made{.name = Function::name,
                      .signature = signature_v<Function>,
                      .run = &run_function<Function, A...>,
                      .id = function_id<Function, A...>()};
  if constexpr (requires { &Function::extent; }) made.extent = &Function::extent;
  if constexpr (requires { &Function::template gradient<A...>; }) made.gradient = &Function::template gradient<A...>;
  [&]<class... R>(std::type_identity<std::tuple<R...>>) {
    int k = 0;
    ((made.results[k++] = dtype_v<R>), ...);
  }(std::type_identity<call_results_t<Function, A...>>{});
  return made;
}
/// The function of a custom call for operands of these element types, and the row of its nodes.
template <class Function, class... A>
inline constexpr CustomFunction custom_function_v = make_function<Function, A...>();
constexpr OpRow row_of_function(std::string_view name, const CustomFunction* function) {
  OpRow made = ops::CustomCallOp::row;
  made.name = name;
  made.custom = function;
  return made;
}
template <class Function, class... A>
inline constexpr OpRow custom_row_v = row_of_function(Function::name, &custom_function_v<Function, A...>);

/// Result `K` of a custom call on operands of the element types A.
template <class Function, int K, class... A> struct CustomCallTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  static constexpr const CallSignature& signature = signature_v<Function>;

  template <class... X> static constexpr int batch_rank() {
    int i = 0, batch = 0;
    ((batch = X::rank - signature.operands[i].rank > batch ? X::rank - signature.operands[i].rank : batch, ++i), ...);
    return batch;
  }
  template <class... X>
  using result =
      Typed<std::tuple_element_t<K, call_results_t<Function, A...>>, batch_rank<X...>() + signature.results[K].rank>;
  template <class... X> static constexpr Value emit(Value context, X... x) {
    Value operands[] = {x.at(context.source)...};
    build::align_batches(signature, operands);
    return build::custom_call(custom_row_v<Function, A...>, operands, K);
  }
};

template <class Function, class... X> constexpr bool takes_ranks() {
  int i = 0, batch = 0;
  bool fits = sizeof...(X) == static_cast<std::size_t>(signature_v<Function>.operand_count);
  if (!fits) return false;
  const auto add = [&](int rank) {
    const int core = signature_v<Function>.operands[i++].rank;
    fits = fits && rank >= core && rank > 0;
    batch = rank - core > batch ? rank - core : batch;
  };
  (add(X::rank), ...);
  for (int k = 0; k < signature_v<Function>.operand_count; ++k)
    fits = fits && batch + signature_v<Function>.operands[k].rank <= max_rank;
  for (int k = 0; k < signature_v<Function>.result_count; ++k)
    fits = fits && batch + signature_v<Function>.results[k].rank <= max_rank;
  return fits;
}

/// Whether the extents of all results follow from those of the operands.
template <class Function> constexpr bool knows_extents() {
  if constexpr (requires { &Function::extent; }) {
    return true;
  } else {
    CallExtents known;
    const CallSignature& signature = signature_v<Function>;
    for (const CallSignature::Core& core : signature.operands)
      for (int d = 0; d < core.rank; ++d) known.bind(core.labels[d], 1);
    bool all = true;
    for (const CallSignature::Core& core : signature.results)
      for (int d = 0; d < core.rank; ++d) all = all && known[core.labels[d]] >= 0;
    return all;
  }
}

template <class Function, std::size_t... K, class... X>
constexpr auto results_of_custom_call(std::index_sequence<K...>, Source source, const X&... x) {
  if constexpr (sizeof...(K) == 1)
    return call<CustomCallTag<Function, 0, typename X::element...>>(source, x...);
  else  // in braces, so that nodes are made in this order
    return std::tuple{call<CustomCallTag<Function, static_cast<int>(K), typename X::element...>>(source, x...)...};
}

template <class Function, class... X> constexpr auto custom_call_of(Source source, const X&... x) {
  constexpr bool valid = signature_v<Function>.valid;
  static_assert(valid, "tessera: the signature of a ts::custom_call is written \"(n,n),(n,k)->(n,k)\": core dims of at "
                       "most 8 operands and 8 results, as letters from a to z or digits from 1 to 9");
  if constexpr (valid) {
    constexpr bool fits = takes_ranks<Function, X...>(), known = knows_extents<Function>();
    static_assert(fits,
                  "tessera: a ts::custom_call has an operand for each one of the signature, of rank 1 or more and "
                  "of at least as many dims as the signature has, and at most 8 dims in each value");
    static_assert(known, "tessera: for letters that only results of a ts::custom_call have, its function has "
                         "static constexpr std::int64_t extent(char letter, const ts::CallExtents& known)");
    if constexpr (fits && known)
      return results_of_custom_call<Function>(
          std::make_index_sequence<static_cast<std::size_t>(signature_v<Function>.result_count)>{}, source, x...);
  }
}

}  // namespace detail

/// Calls a C++ function of dense arrays, once for each batch entry, as XLA's custom_call and jax.pure_callback with a
/// vectorized function. The function is a struct:
///
///     struct Trapezoid {
///       static constexpr std::string_view name = "trapezoid";          // in plans and in messages
///       static constexpr std::string_view signature = "(n),(n)->()";   // core dims, as in NumPy's generalized ufuncs
///       template <class T> static void run(ts::CallArray<const T, 1> x, ts::CallArray<const T, 1> y,
///                                          ts::CallArray<T, 0> area) {
///         area() = 0;
///         for (std::int64_t i = 1; i < x.extent(0); ++i) area() += (x(i) - x(i - 1)) * (y(i) + y(i - 1)) / 2;
///       }
///     };
///     auto area = ts::custom_call<Trapezoid>(x, y);   // x, y: [batch, n]; area: [batch]
///
/// Letters of the signature are extents, equal letters are equal extents, and a digit is that extent. For a letter that
/// only results have, the struct has `static constexpr std::int64_t extent(char letter, const ts::CallExtents& known)`.
/// Results have the element type of the first operand, or those of `template <class... A> using results =
/// std::tuple<...>`. Several results are returned as a std::tuple. Dims in front of the core dims are batch dims; they
/// are broadcast against each other.
///
/// The function must depend on nothing but its operands: calls run in any order, on several threads, and one whose
/// result is not used does not run. It may throw; the program then throws. It must write all elements of its results,
/// and must not call this library.
///
/// Shapes and sharding: batch dims stay split; core dims are whole on each device. Errors: shape_mismatch where batch
/// dims, or extents with one letter, differ. Gradient: none, so that it is an `unsupported` error to differentiate the
/// call; ts::custom_vjp gives it one. Communication: a split core dim is made whole, by an all_to_all onto a batch dim
/// that its axes divide, otherwise by an all_gather.
template <class Function, TensorArgument X> constexpr auto custom_call(const X& x, Here at = Here::current()) {
  return detail::custom_call_of<Function>(Source::from(at), x);
}
template <class Function, TensorArgument X, TensorArgument Y>
constexpr auto custom_call(const X& x, const Y& y, Here at = Here::current()) {
  return detail::custom_call_of<Function>(Source::from(at), x, y);
}
template <class Function, TensorArgument X, TensorArgument Y, TensorArgument Z>
constexpr auto custom_call(const X& x, const Y& y, const Z& z, Here at = Here::current()) {
  return detail::custom_call_of<Function>(Source::from(at), x, y, z);
}
/// The same for more operands. After a pack of operands there can be no default argument that tells the line of the
/// call.
template <class Function, TensorArgument X, TensorArgument Y, TensorArgument Z, TensorOperand... More>
  requires(sizeof...(More) > 0)
constexpr auto custom_call(const X& x, const Y& y, const Z& z, const More&... more) {
  return detail::custom_call_of<Function>(Source{}, x, y, z, more...);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
