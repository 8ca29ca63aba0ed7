#ifndef TESSERA_RUNTIME_TRANSPORT_TRANSPORT_HPP
#define TESSERA_RUNTIME_TRANSPORT_TRANSPORT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <span>

#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// What carries the pieces of tensors between devices. One call carries out all moves of a ReshardPlan, which says of
/// each shard which devices hold it; addresses are in the order of its shards. A transport between processes is given
/// null for the shards of other processes.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void move(const ReshardPlan& plan, std::span<void* const> destinations,
                    std::span<const void* const> sources) const = 0;

  /// What this thread's programs, reshards and collectives use: in this process, unless a TransportScope says
  /// otherwise.
  static const Transport& current();

 private:
  friend class TransportScope;
  static const Transport*& chosen() {
    static thread_local const Transport* transport = nullptr;
    return transport;
  }
};

/// Devices are threads of this process: a piece is a copy in memory, and replicas share one.
class InProcessTransport final : public Transport {
 public:
  void move(const ReshardPlan& plan, std::span<void* const> destinations,
            std::span<const void* const> sources) const override {
    plan.run(destinations, sources);
    if (CommunicationScope* scope = CommunicationScope::innermost()) {
      scope->add_moved(plan.moved_bytes());
      scope->add_copied(plan.bytes());
    }
  }
};

inline const Transport& Transport::current() {
  static const InProcessTransport in_process;
  return chosen() != nullptr ? *chosen() : in_process;
}

/// While it lives, this thread moves pieces by another transport.
class TransportScope {
 public:
  explicit TransportScope(const Transport& transport) : outer_(Transport::chosen()) {
    Transport::chosen() = &transport;
  }
  TransportScope(const TransportScope&) = delete;
  TransportScope& operator=(const TransportScope&) = delete;
  ~TransportScope() { Transport::chosen() = outer_; }

 private:
  const Transport* outer_;
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
