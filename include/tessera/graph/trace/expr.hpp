#ifndef TESSERA_GRAPH_TRACE_EXPR_HPP
#define TESSERA_GRAPH_TRACE_EXPR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/base/intrusive_ptr.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/operand.hpp>

namespace tessera {

template <class Tag, class... Operands> constexpr auto call(Source source, const Operands&... operands);

struct AddTag;
struct SubTag;
struct MulTag;
struct DivTag;
struct NegTag;
struct LessTag;
struct LessEqualTag;
struct GreaterTag;
struct GreaterEqualTag;

namespace detail {
template <class T> constexpr auto no_branch() {
  static_assert(std::is_void_v<T>,
                "tessera: if, ?: and ! can't use a tensor, whose values are not known while a function is traced; "
                "use ts::select(condition, yes, no), and ts::logical_not for !");
  return true;
}
}  // namespace detail

/// Operators of all tensor types. They are hidden friends, so that they add no overloads to operators of other types.
/// `==` does not compile: elementwise equality is ts::equal.
template <class Self> struct Operators {
  /// `if (tensor)` does not compile, since values are not known while tracing. The static_assert is in the noexcept
  /// because compilers evaluate that where the operator is used, not only when it runs.
  constexpr explicit operator bool() const noexcept(detail::no_branch<Self>()) { return false; }
  template <Operand B> friend constexpr auto operator+(At<Self> a, const B& b) {
    return call<AddTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator+(const B& b, At<Self> a) {
    return call<AddTag>(a.source, b, a.value);
  }
  template <Operand B> friend constexpr auto operator-(At<Self> a, const B& b) {
    return call<SubTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator-(const B& b, At<Self> a) {
    return call<SubTag>(a.source, b, a.value);
  }
  template <Operand B> friend constexpr auto operator*(At<Self> a, const B& b) {
    return call<MulTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator*(const B& b, At<Self> a) {
    return call<MulTag>(a.source, b, a.value);
  }
  template <Operand B> friend constexpr auto operator/(At<Self> a, const B& b) {
    return call<DivTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator/(const B& b, At<Self> a) {
    return call<DivTag>(a.source, b, a.value);
  }
  friend constexpr auto operator-(At<Self> a) { return call<NegTag>(a.source, a.value); }
  // Without these overloads, compilers would first complain about the conversion to bool for the built-in && and ||.
  template <class B> friend constexpr auto operator&&(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>, "tessera: && of tensors is ts::logical_and(x, y)");
    return call<LessTag>(a.source, a.value, a.value);
  }
  template <class B> friend constexpr auto operator||(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>, "tessera: || of tensors is ts::logical_or(x, y)");
    return call<LessTag>(a.source, a.value, a.value);
  }
  // Without these overloads, compilers would list all operators == that exist.
  template <class B> friend constexpr auto operator==(const Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: == of tensors, element by element, is ts::equal(x, y)");
    return call<LessTag>(Source{}, x, x);
  }
  template <class B> friend constexpr auto operator!=(const Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: != of tensors, element by element, is ts::not_equal(x, y)");
    return call<LessTag>(Source{}, x, x);
  }
  template <class B> friend constexpr auto& operator+=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are values that do not change; write x = x + y");
    return x;
  }
  template <class B> friend constexpr auto& operator-=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are values that do not change; write x = x - y");
    return x;
  }
  template <class B> friend constexpr auto& operator*=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are values that do not change; write x = x * y");
    return x;
  }
  template <class B> friend constexpr auto& operator/=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are values that do not change; write x = x / y");
    return x;
  }
  template <class I> constexpr const auto& operator[](const I&) const {
    static_assert(std::is_void_v<I>,
                  "tessera: a part of a tensor is ts::slice<0>(x, start, size), rows by an index are "
                  "ts::embedding(x, indices); elements are not assigned, ts::select(condition, x, y) "
                  "makes a new tensor");
    return static_cast<const Self&>(*this);
  }
  template <Operand B> friend constexpr auto operator<(At<Self> a, const B& b) {
    return call<LessTag>(a.source, a.value, b);
  }
  template <Operand B> friend constexpr auto operator<=(At<Self> a, const B& b) {
    return call<LessEqualTag>(a.source, a.value, b);
  }
  template <Operand B> friend constexpr auto operator>(At<Self> a, const B& b) {
    return call<GreaterTag>(a.source, a.value, b);
  }
  template <Operand B> friend constexpr auto operator>=(At<Self> a, const B& b) {
    return call<GreaterEqualTag>(a.source, a.value, b);
  }
};

/// A tensor computed by a traced function: a handle of a node, with static element type and rank.
template <class T, int Rank> struct Sym : SymTag, Operators<Sym<T, Rank>> {
  using element = T;
  static constexpr int rank = Rank;
  Value value{};

  constexpr Sym() = default;
  constexpr explicit Sym(Value v) : value(v) {}
  template <class S = Sym> constexpr auto shape() const {
    static_assert(std::is_void_v<S>,
                  "tessera: sizes are not known while a function is traced; a dim of a tensor in it is "
                  "ts::extent<0>(x), a ts::Dim to compute with");
    return rank;
  }
};

namespace detail {
template <std::size_t I, class T> struct HeldOperand {
  T operand;
};
/// The operands of an expression, held by value, so that an expression returned from a function never dangles.
template <class Indices, class... Ts> struct HeldOperands;
template <std::size_t... I, class... Ts> struct HeldOperands<std::index_sequence<I...>, Ts...> : HeldOperand<I, Ts>... {
  template <class F> constexpr decltype(auto) apply(F&& f) const {
    return f(static_cast<const HeldOperand<I, Ts>&>(*this).operand...);
  }
};
template <std::size_t I, class T> constexpr const T& operand_at(const HeldOperand<I, T>& held) { return held.operand; }

template <class T> inline constexpr int node_count = 1;
}  // namespace detail

/// An operation that has not run yet. Assigning it to a tensor, or ts::eval, fuses, plans and runs the whole
/// expression.
template <class Tag, class... Operands> struct Expr : ExprTag, Operators<Expr<Tag, Operands...>> {
  using tag = Tag;
  using result = typename Tag::template result<typed_of<Operands>...>;
  using element = typename result::type;
  static constexpr int rank = result::rank;

  detail::HeldOperands<std::index_sequence_for<Operands...>, Operands...> operands;
  Source source{};

  constexpr explicit Expr(Source at, const Operands&... list) : operands{{list}...}, source(at) {}
};

template <class T, int Rank> class ShardedTensor;

namespace detail {
template <class Tag, class... Operands>
inline constexpr int node_count<Expr<Tag, Operands...>> = (1 + ... + node_count<Operands>);

/// Operands of which some have a leading dim of the layers of a Stack: all but scalars must have that dim and one rank.
/// Errors: `structure`.
template <std::size_t N> constexpr void check_layers(const Value (&operands)[N], const int (&ranks)[N]) {
  int rank = -1;
  for (std::size_t i = 0; i < N; ++i) {
    if (operands[i].rank() == 0) continue;
    if (operands[i].rank() == ranks[i] || (rank >= 0 && ranks[i] != rank))
      return operands[0].refuse(
          errc::structure, "[stack] operands: a tensor of all layers meets one that has no layers, or that has another "
                           "rank in each; to run layers one after the other, call the Stack: layers(x)");
    rank = ranks[i];
  }
}

/// How an operation becomes a node: `Tag::convert`, where it exists, promotes the operands; `Tag::emit` adds the node.
template <class E> struct Emission;
template <class Tag, class... Operands> struct Emission<Expr<Tag, Operands...>> {
  template <class... Values> static constexpr void convert(Values&... values) {
    if constexpr (requires { Tag::template convert<typed_of<Operands>...>(values...); })
      Tag::template convert<typed_of<Operands>...>(values...);
  }
  template <class... Values> static constexpr Value emit(Value context, Values... values) {
    if constexpr (sizeof...(values) > 0)
      if (((values.rank() > typed_of<Operands>::rank) || ...)) check_layers({values...}, {typed_of<Operands>::rank...});
    convert(values...);
    return Tag::emit(context, values...);
  }
};
/// The node of an expression, from values that are given in braces: so they are made in the order written.
template <class E> struct Emitted {
  Value value;
  template <class... Values>
  constexpr explicit Emitted(Value context, Values... values) : value(Emission<E>::emit(context, values...)) {}
};

/// Runs an expression on stored tensors. Defined in tensor/, since programs that only plan don't need it.
template <class T, int Rank> struct Evaluate {
  template <class E> static ShardedTensor<T, Rank> run(const E& expression);
};
}  // namespace detail

/// The shards of a tensor. Defined in runtime/.
class TensorStorage;

/// A tensor of static element type and rank, sharded over a mesh: an immutable value; copies share its shards. Inside a
/// trace it is a placeholder, so that the fields of a model can be traced.
template <class T, int Rank> class ShardedTensor : public TensorTag, public Operators<ShardedTensor<T, Rank>> {
 public:
  static_assert(Element<T>, "tessera: this element type has no tensors; use float, double, an integer or bool");
  static_assert(Rank >= 0 && Rank <= max_rank, "tessera: a tensor has at most 8 dims");
  using element = T;
  static constexpr int rank = Rank;

  constexpr ShardedTensor() = default;
  constexpr explicit ShardedTensor(Value placeholder) : placeholder_(placeholder) {}
  explicit ShardedTensor(IntrusivePtr<RefCounted> storage) : storage_(std::move(storage)) {}

  /// A traced value, to be kept as a field of a model.
  template <SymOperand S> constexpr ShardedTensor(const S& sym) {
    if constexpr (LocalOperand<S>)
      placeholder_ = sym.kept();
    else
      placeholder_ = sym.value;
    static_assert(S::rank == Rank, "tessera: this value has another rank than the tensor it is assigned to");
    static_assert(std::is_same_v<typename S::element, T>,
                  "tessera: this value has another element type than the tensor it is assigned to; cast it");
  }
  /// Runs the expression; inside a trace, records it.
  template <ExprOperand E> constexpr ShardedTensor(const E& expression) {
    static_assert(E::rank == Rank, "tessera: this expression has another rank than the tensor it is assigned to");
    static_assert(std::is_same_v<typename E::element, T>,
                  "tessera: this expression has another element type than the tensor it is assigned to; cast it");
    // Tracing happens only in constant expressions, so no code is generated for it.
    if (std::is_constant_evaluated())
      placeholder_ = lower(trace_of(expression), expression);
    else
      *this = detail::Evaluate<T, Rank>::run(expression);
  }

  constexpr const Value& placeholder() const { return placeholder_; }
  constexpr bool traced() const { return placeholder_.module != nullptr; }
  constexpr const IntrusivePtr<RefCounted>& storage() const& { return storage_; }
  IntrusivePtr<RefCounted> take_storage() { return std::move(storage_); }

 private:
  IntrusivePtr<RefCounted> storage_;
  Value placeholder_{};
};

/// The trace that an operand belongs to; a null module when it belongs to none.
template <Operand X> constexpr Value trace_of(const X& x) {
  if constexpr (SymOperand<X>)
    return x.value;
  else if constexpr (StoredOperand<X> || std::same_as<X, Dim> || std::same_as<X, Scalar>)
    return x.placeholder();
  else if constexpr (ExprOperand<X>)
    return x.operands.apply([](const auto&... operands) {
      Value found{};
      ((found = found.module == nullptr ? trace_of(operands) : found), ...);
      return found;
    });
  else
    return {};
}

namespace detail {
/// The result of an operation in an outline (Module::outline): a value of the right type that is not recorded.
constexpr Value outlined(const Value& context, DType dtype, int rank) {
  ++context.module->operations;
  const Graph& graph = context.module->graph(context.graph);
  for (int id = graph.size() - 1; id >= 0; --id)  // reusing a node takes a tenth of the constexpr steps of adding one
    if (graph[id].value == -1 && graph[id].is_argument() && graph[id].rank == rank && graph[id].dtype == dtype)
      return context.with(id);
  return context.make(argument_node(-1, dtype, rank), {});
}
}  // namespace detail

/// The node of an operand in the trace that `context` belongs to. Errors: `unsupported` for a tensor with data.
template <Operand X> constexpr Value lower(Value context, const X& x) {
  if constexpr (SymOperand<X>) {
    return x.value.at(context.source);
  } else if constexpr (StoredOperand<X>) {
    if (!x.traced()) {
      context.refuse(errc::unsupported, "[trace] captured tensor: a tensor with data can't be used inside a traced "
                                        "function; pass it as an argument");
      return detail::outlined(context, dtype_v<typename X::element>, X::rank);
    }
    if (x.placeholder().graph < 0) {
      context.refuse(errc::unsupported,
                     "[shard_map] tensor of a struct: it is used without a local value; ts::local_of(tensor, x) "
                     "makes it one");
      return detail::outlined(context, dtype_v<typename X::element>, X::rank);
    }
    return x.placeholder().at(context.source);
  } else if constexpr (std::same_as<X, Dim>) {
    return x.traced() ? x.placeholder().at(context.source) : context.integer(x.value(), DType::i64);
  } else if constexpr (std::same_as<X, Scalar>) {
    return x.traced() ? x.placeholder().at(context.source) : context.number(x.value(), DType::f64);
  } else if constexpr (std::is_integral_v<X>) {
    return context.integer(static_cast<std::int64_t>(x), DType::f64);
  } else if constexpr (std::is_arithmetic_v<X>) {
    return context.number(static_cast<double>(x), DType::f64);
  } else {
    const Value own = context.at(x.source);
    return x.operands.apply([&](const auto&... operands) {
      return detail::Emitted<X>{own, lower(own, operands)...}.value;
    });
  }
}

namespace detail {
/// An operation on values inside a shard_map. Defined in ops/shard_map/.
template <class Tag, class... Operands> struct LocalCall;
}  // namespace detail

/// The most operations in an expression of stored tensors. Subexpressions that occur twice count twice.
inline constexpr int max_expression_nodes = 64;

/// Applies an operation: adds a node when an operand is traced, and makes an expression otherwise. `Tag` has the
/// operation's static attributes, its result type and `emit`.
template <class Tag, class... Operands> constexpr auto call(Source source, const Operands&... operands) {
  using Result = typename Tag::template result<typed_of<Operands>...>;
  if constexpr ((LocalOperand<Operands> || ...)) {
    return detail::LocalCall<Tag, Operands...>::make(source, operands...);
  } else if constexpr ((SymOperand<Operands> || ...)) {
    Value context{};
    ((context = context.module == nullptr && SymOperand<Operands> ? trace_of(operands) : context), ...);
    context.source = source;
    if (context.module->outline)
      return Sym<typename Result::type, Result::rank>(
          detail::outlined(context, dtype_v<typename Result::type>, Result::rank));
    return Sym<typename Result::type, Result::rank>(
        detail::Emission<Expr<Tag, Operands...>>::emit(context, lower(context, operands)...));
  } else {
    using E = Expr<Tag, Operands...>;
    static_assert(detail::node_count<E> <= max_expression_nodes,
                  "tessera: this expression has grown too large to be a type; trace it with ts::compile");
    return E(source, operands...);
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
