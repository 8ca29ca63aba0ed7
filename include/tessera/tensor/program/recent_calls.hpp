#ifndef TESSERA_TENSOR_PROGRAM_RECENT_CALLS_HPP
#define TESSERA_TENSOR_PROGRAM_RECENT_CALLS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/program/plan_cache.hpp>

namespace tessera::detail {

/// The tensors, Dims and Scalars of a call, in order. It holds pointers: the caller keeps the arguments alive.
template <std::size_t Count> struct PlainArguments {
  TensorStorage* tensors[Count];
  HostNumber numbers[Count];
  std::uint64_t keys[Count];  ///< sharded type id or Dim value, on which the plan depends; 0 for a tensor without data
  std::size_t cursor = 0;

  template <class L> void leaf(const L& x) {
    const std::size_t i = cursor++;
    tensors[i] = nullptr;
    numbers[i] = 0;
    if constexpr (StoredOperand<L>) {
      tensors[i] = static_cast<TensorStorage*>(x.storage().get());
      keys[i] = tensors[i] == nullptr ? 0 : tensors[i]->layout()->id();
    } else {
      numbers[i] = x.number();
      keys[i] = std::is_same_v<L, Dim> ? static_cast<std::uint64_t>(numbers[i].integer()) : 0;
    }
  }
};

/// A thread's last calls of one program with their plans, found by comparing one 64-bit key per argument. Equal keys
/// mean that the arguments were checked before. The PlanCache owns the plans and may remove them.
template <std::size_t Count> class RecentCalls {
 public:
  PlanLease find(const PlainArguments<Count>& arguments) const {
    for (const Call& call : calls_) {
      bool same = call.slot != nullptr;
      for (std::size_t i = 0; i < Count; ++i) same = same && call.keys[i] == arguments.keys[i];
      if (same) return PlanLease(*call.slot, call.serial);
    }
    return {};
  }
  /// Replaces the oldest call. Remembers only plans for which is_plain is true.
  void add(const PlainArguments<Count>& arguments, const PlanLease& plan) {
    if (!is_plain(*plan)) return;
    Call* call = nullptr;
    for (Call& known : calls_) {
      bool same = known.slot != nullptr;
      for (std::size_t i = 0; i < Count; ++i) same = same && known.keys[i] == arguments.keys[i];
      if (same) call = &known;  // its plan was removed from the cache
    }
    if (call == nullptr) call = &calls_[next_++ % most];
    for (std::size_t i = 0; i < Count; ++i) call->keys[i] = arguments.keys[i];
    call->slot = plan.slot();
    call->serial = plan.serial();
  }

 private:
  static constexpr unsigned most = 4;
  struct Call {
    std::uint64_t keys[Count];
    PlanSlot* slot;
    std::uint64_t serial;
  };
  // Constant-initialized, so that a thread_local of this type needs no guard.
  Call calls_[most]{};
  unsigned next_ = 0;
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
