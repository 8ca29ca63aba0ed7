#ifndef TESSERA_GRAPH_TRACE_SHARDED_TENSOR_HPP
#define TESSERA_GRAPH_TRACE_SHARDED_TENSOR_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/intrusive_ptr.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/expression/expr.hpp>
#include <tessera/graph/trace/expression/operators.hpp>
#include <tessera/graph/trace/operand.hpp>

namespace tessera {

/// The shards of a tensor. Defined in runtime/.
class TensorStorage;

template <class T, int Rank> class ShardedTensor;

namespace detail {
/// Runs an expression on stored tensors. Defined in tensor/, since programs that only plan don't need it.
template <class T, int Rank> struct Evaluate {
  template <class E> static ShardedTensor<T, Rank> run(const E& expression);
};
}  // namespace detail

/// A tensor of static element type and rank, sharded over a mesh: an immutable value; copies share its shards. Inside a
/// trace it is a placeholder, so that the fields of a model can be traced.
template <class T, int Rank> class ShardedTensor : public TensorTag, public Operators<ShardedTensor<T, Rank>> {
 public:
  static_assert(Element<T>, "tessera: tensors of this element type are not supported; use float, double, ts::bf16, "
                            "ts::f16, an integer type or bool");
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
    static_assert(S::rank == Rank, "tessera: the value has a different rank than the tensor to which it is assigned");
    static_assert(
        std::is_same_v<typename S::element, T>,
        "tessera: the value has a different element type than the tensor to which it is assigned; use ts::cast");
  }
  /// Runs the expression; inside a trace, records it.
  template <ExprOperand E> constexpr ShardedTensor(const E& expression) {
    static_assert(E::rank == Rank,
                  "tessera: the expression has a different rank than the tensor to which it is assigned");
    static_assert(
        std::is_same_v<typename E::element, T>,
        "tessera: the expression has a different element type than the tensor to which it is assigned; use ts::cast");
    // Tracing happens only in constant expressions, so no code is generated for it.
    if (__builtin_is_constant_evaluated())
      placeholder_ = lower(trace_of(expression), expression);
    else
      *this = detail::Evaluate<T, Rank>::run(expression);
  }

  constexpr const Value& placeholder() const { return placeholder_; }
  constexpr bool traced() const { return placeholder_.module != nullptr; }
  constexpr const IntrusivePtr<RefCounted>& storage() const& { return storage_; }

 private:
  IntrusivePtr<RefCounted> storage_;
  Value placeholder_{};
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
