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

/// The result of f(), a model or a tensor, with shapes and shardings but without memory, so that a model may be larger
/// than one device. While f runs, ts::normal, ts::zeros, ts::shard, ts::init and the factories of ts::nn on this thread
/// allocate nothing. A tensor gets memory and elements when it is first read, in the sharding that it then has:
/// ts::reshard, ts::fsdp and ts::parallelize_module only change the sharding, and ts::load_state_dict replaces the
/// tensor. Elements are bitwise equal to those without deferred_init; ts::shard keeps a copy of its values until then.
/// Plans, ts::summary and counts of bytes per device need no elements.
///
///     auto model = ts::deferred_init([&] { return make_gpt(key, options); });   // larger than one device
///     auto wrapped = ts::fsdp(model, mesh);                                     // split, still without memory
///     auto [next, state, loss] = step(wrapped, state, x, y);                    // drawn directly into shards
///
/// PyTorch: the meta device, torchdistx.deferred_init. JAX: jax.eval_shape. PyTorch/XLA: a virtual device.
template <class F> auto deferred_init(const F& f) {
  const detail::Deferring scope;
  return f();
}

/// Whether a tensor, or any tensor of a model, has no elements yet in this process.
template <class T, int Rank> bool is_deferred(const ShardedTensor<T, Rank>& x) { return !storage_of(x).is_written(); }
namespace detail {
struct FindDeferred {
  bool any = false;
  template <class Leaf> void operator()(std::string_view, const Leaf& leaf, int) {
    if constexpr (StoredOperand<Leaf>) any = any || is_deferred(leaf);
  }
};
}  // namespace detail
template <class Model>
  requires(!Operand<Model>)
bool is_deferred(const Model& model) {
  detail::FindDeferred find;
  detail::for_each_named_leaf(model, detail::VisitLayers::each, find);
  return find.any;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
