#ifndef TESSERA_RUNTIME_TRANSPORT_TRANSPORT_HPP
#define TESSERA_RUNTIME_TRANSPORT_TRANSPORT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/made_once.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Moves pieces of tensors between devices. One call of move() executes a whole ReshardPlan. The addresses of the
/// shards are in the plan's order; a transport between processes gets null for shards that another process holds.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void move(const ReshardPlan& plan, std::span<void* const> destinations,
                    std::span<const void* const> sources) const = 0;

  /// The transport of this thread's programs, reshards and collectives: that of the innermost TransportScope, or the
  /// default of the process, which is an InProcessTransport unless join_processes sets another.
  static const Transport& current();
  /// Sets the default of the process; null: an InProcessTransport. No program may run meanwhile.
  static void set_default(std::unique_ptr<const Transport> transport) { default_of_process() = std::move(transport); }

 private:
  friend class TransportScope;
  static std::unique_ptr<const Transport>& default_of_process() {
    static constinit tessera::detail::MadeOnce<std::unique_ptr<const Transport>> transport;
    return transport.get([] { return new std::unique_ptr<const Transport>; });
  }
  static const Transport*& chosen() {
    static thread_local const Transport* transport = nullptr;
    return transport;
  }
};

/// All devices are in this process: moving a piece copies memory, and all replicas of a shard share one buffer.
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
  if (chosen() != nullptr) return *chosen();
  if (const auto& own = default_of_process()) return *own;
  static constinit tessera::detail::MadeOnce<const InProcessTransport> in_process;
  return in_process.get([] { return new InProcessTransport; });
}

/// While a TransportScope is alive, Transport::current() of its thread is the given transport.
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
