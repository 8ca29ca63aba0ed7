#ifndef TESSERA_TRAIN_BATCH_HPP
#define TESSERA_TRAIN_BATCH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>
#include <utility>

#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/tensor/sharded_tensor.hpp>

namespace tessera::train::detail {

/// Calls f(before, batch). Each item of a tuple is an argument; a struct is one argument.
template <class F, class Batch, class... Before>
decltype(auto) call_with_batch(F&& f, const Batch& batch, Before&&... before) {
  if constexpr (tessera::detail::is_tuple_v<Batch>)
    return std::apply(
        [&](const auto&... items) -> decltype(auto) { return f(std::forward<Before>(before)..., items...); }, batch);
  else
    return f(std::forward<Before>(before)..., batch);
}

struct FirstExtent {
  std::int64_t rows = -1;

  void leaf(const auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (StoredOperand<Leaf>)
      if constexpr (Leaf::rank > 0)
        if (rows < 0) rows = shape(leaf)[0];
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};
/// The extent of dim 0 of the first tensor of a batch that has dims; 1 if there is none.
template <class Batch> std::int64_t rows_of(const Batch& batch) {
  FirstExtent first;
  for_each_leaf(batch, first);
  return first.rows < 0 ? 1 : first.rows;
}

}  // namespace tessera::train::detail

#include <tessera/base/pop_macros.hpp>

#endif
