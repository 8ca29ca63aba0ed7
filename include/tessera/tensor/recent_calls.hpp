#ifndef TESSERA_TENSOR_RECENT_CALLS_HPP
#define TESSERA_TENSOR_RECENT_CALLS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/plan_cache.hpp>

namespace tessera::detail {

/// The tensors, Dims and Scalars of a call, in order. It holds pointers: the caller keeps the arguments alive.
template <std::size_t Count> struct PlainArguments {
  TensorStorage* tensors[Count];
  HostNumber numbers[Count];
  std::uint64_t keys[Count];  ///< layout id or Dim value, on which the plan depends; 0 for a tensor without data
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

/// The plans of a thread's last calls of one program, found by comparing a word for each argument: equal words mean
/// arguments that were checked and planned for before. The cache of plans stays what decides, and may drop them.
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
  /// Takes the place of the oldest call. Programs that are not plain are not kept.
  void add(const PlainArguments<Count>& arguments, const PlanLease& plan) {
    if (!is_plain(*plan)) return;
    Call* call = nullptr;
    for (Call& known : calls_) {
      bool same = known.slot != nullptr;
      for (std::size_t i = 0; i < Count; ++i) same = same && known.keys[i] == arguments.keys[i];
      if (same) call = &known;  // whose plan was dropped
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
