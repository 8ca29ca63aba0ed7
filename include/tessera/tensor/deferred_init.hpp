#ifndef TESSERA_TENSOR_DEFERRED_INIT_HPP
#define TESSERA_TENSOR_DEFERRED_INIT_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>
#include <type_traits>

#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

namespace detail {
class Deferring {
 public:
  Deferring() : before_(deferring()) { deferring() = true; }
  ~Deferring() { deferring() = before_; }
  Deferring(const Deferring&) = delete;
  Deferring& operator=(const Deferring&) = delete;

 private:
  bool before_;
};
}  // namespace detail

/// The result of f(), a model or a tensor, made of shapes and shardings alone: ts::normal, ts::zeros, ts::shard,
/// ts::init and the factories of ts::nn that f calls on this thread allocate nothing. A tensor gets its memory and its
/// elements when they are first read, in the shards that it has then: ts::reshard, ts::fsdp and ts::parallelize_module
/// only change its layout, and ts::load_state_dict replaces it. Elements are those of the model without deferred_init,
/// bit for bit; ts::shard keeps a copy of its values until then. Plans, ts::summary and memory by device need no
/// elements.
///
///     auto model = ts::deferred_init([&] { return make_gpt(key, options); });   // larger than one device
///     auto wrapped = ts::fsdp(model, mesh);                                     // laid out
///     auto [next, state, loss] = step(wrapped, state, x, y);                    // drawn straight into shards
///
/// PyTorch: the meta device, torchdistx.deferred_init. JAX: jax.eval_shape. PyTorch/XLA: a virtual device.
template <class F> auto deferred_init(const F& f) {
  const detail::Deferring scope;
  return f();
}

/// Whether the elements of a tensor, or of any tensor of a model, are not there yet; of several processes, in this one.
template <class T, int Rank> bool is_deferred(const ShardedTensor<T, Rank>& x) { return !storage_of(x).is_written(); }
template <class Model>
  requires(!Operand<Model>)
bool is_deferred(const Model& model) {
  bool any = false;
  detail::for_each_named_leaf(model, detail::VisitLayers::each, [&](std::string_view, const auto& leaf, int) {
    if constexpr (StoredOperand<std::remove_cvref_t<decltype(leaf)>>) any = any || is_deferred(leaf);
  });
  return any;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
