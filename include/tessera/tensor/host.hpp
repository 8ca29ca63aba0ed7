#ifndef TESSERA_TENSOR_HOST_HPP
#define TESSERA_TENSOR_HOST_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/trace_types.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/shard_refs.hpp>
#include <tessera/tensor/storage/storage_of.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/executor/profile_hook.hpp>
#endif

namespace tessera {

namespace detail {

/// Reports a value of a traced function where a stored tensor is needed.
template <class X> struct ExplainTracedValue {
  static constexpr bool is_stored = !SymOperand<X>;
  using Checks = decltype([] {
    static_assert(is_stored,
                  "tessera: ts::to_host and ts::item read a stored tensor, and this is a value of a traced function: "
                  "return it from the function, and read the result of the call. A function that works only in a "
                  "traced function, such as ts::scan or ts::tree_sum, is called in one: "
                  "ts::compile([](const auto& x) { return ts::tree_sum(x); })(x)");
  });
};

/// Writes a whole tensor to a host array of the same shape and any strides, in parallel.
TESSERA_ONCE void copy_to_host(const TensorStorage& from, void* out, const kernels::Strides& strides);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void copy_to_host(const TensorStorage& from, void* out, const kernels::Strides& strides) {
  const runtime::ProfiledRange range(runtime::ProfiledWork::to_host, {}, from);
  const Uncounted uncounted;  // a copy to the host is no communication between devices
  const runtime::ShardRef host{out, {Shape(from.shape().size(), 0), from.shape()}, strides};
  runtime::reshard(from.dtype(), Reduction::sum, {&host, 1}, shard_refs(from));
}
#endif

inline void copy_to_host(const TensorStorage& from, void* out) {
  copy_to_host(from, out, kernels::contiguous_strides(from.shape()));
}

}  // namespace detail

/// Copies all elements, row-major, to host memory. Errors: `host_data` if the span and the tensor differ in size,
/// `empty_tensor` for a tensor without data.
template <class T, int Rank>
void to_host(const ShardedTensor<T, Rank>& x, std::span<std::type_identity_t<T>> out, Here at = Here::current()) {
  const TensorStorage& storage = detail::storage_of("to_host", x, at);
  if (static_cast<std::int64_t>(out.size()) != volume(storage.shape()))
    fail(errc::host_data, "[to_host] element count: the span has ", out.size(), " elements, ",
         sharded_type_text(storage), " has ", volume(storage.shape()), Source::from(at));
  detail::copy_to_host(storage, out.data());
}

/// All elements, row-major. Errors: `empty_tensor` for a tensor without data.
template <class T, int Rank> std::vector<T> to_host(const ShardedTensor<T, Rank>& x, Here at = Here::current()) {
  const TensorStorage& storage = detail::storage_of("to_host", x, at);
  const auto count = static_cast<std::size_t>(volume(storage.shape()));
  if constexpr (std::is_same_v<T, bool>) {
    const auto bools = std::make_unique<bool[]>(count);
    detail::copy_to_host(storage, bools.get());
    return std::vector<bool>(bools.get(), bools.get() + count);
  } else {
    std::vector<T> values(count);
    detail::copy_to_host(storage, values.data());
    return values;
  }
}

/// Evaluates an expression and copies its result to the host.
template <ExprOperand E> auto to_host(const E& expression) {
  return to_host(ShardedTensor<typename E::element, E::rank>(expression));
}
/// Of a call with an error, which the compiler has reported.
template <std::derived_from<detail::NoResult> X> X to_host(const X& result);
/// A value of a traced function has no elements while the function is traced, nor outside of it.
template <SymOperand X> detail::NoResult to_host(const X&) {
  (void)sizeof(detail::ExplainTracedValue<X>);
  return {};
}

/// The element of a tensor with one element, such as a loss, as torch.Tensor.item. Errors: `shape_mismatch` for a
/// tensor with no or several elements.
template <class T, int Rank> T item(const ShardedTensor<T, Rank>& x, Here at = Here::current()) {
  const TensorStorage& storage = detail::storage_of("item", x, at);
  if (volume(storage.shape()) != 1)
    fail(errc::shape_mismatch, "[item] element count: ", sharded_type_text(storage), " has ", volume(storage.shape()),
         " elements; item takes a tensor with exactly 1 element", Source::from(at));
  T value{};
  detail::copy_to_host(storage, &value);
  return value;
}

/// Evaluates an expression and copies its result to the host.
template <ExprOperand E> auto item(const E& expression, Here at = Here::current()) {
  return item(ShardedTensor<typename E::element, E::rank>(expression), at);
}
template <SymOperand X> detail::NoResult item(const X&) {
  (void)sizeof(detail::ExplainTracedValue<X>);
  return {};
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
