#ifndef TESSERA_RUNTIME_TRANSPORT_PROCESS_TRANSPORT_HPP
#define TESSERA_RUNTIME_TRANSPORT_PROCESS_TRANSPORT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>
#include <tessera/runtime/transport/communicator.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <memory>
#include <mutex>

#include <tessera/base/error.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/memory/tensor_layout.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/process_moves.hpp>
#include <tessera/runtime/transport/transport.hpp>
#endif

namespace tessera::runtime {

/// Makes this process one of the processes of `communicator`, which outlives all programs and tensors: from now on the
/// devices of each mesh are divided among the processes. Errors: `processes` if a tensor was made before, or if this
/// process is one of several already; `capacity` for more than 256 processes.
TESSERA_ONCE void join_processes(Communicator& communicator);
/// Ends what join_processes began. Tensors that were made between the two must not be used any more; making one on
/// several devices is from now on an error, `processes`.
TESSERA_ONCE void leave_processes();

#if TESSERA_HAS_DEFINITIONS
inline namespace TESSERA_ISA {
/// The devices are divided among processes: moving a piece sends messages where the processes differ, and copies memory
/// elsewhere. Calls of all threads of a process take turns.
class ProcessTransport final : public Transport {
 public:
  explicit ProcessTransport(Communicator& communicator) : communicator_(communicator) {}

  void move(const ReshardPlan& plan, std::span<void* const> destinations,
            std::span<const void* const> sources) const override {
    std::shared_ptr<const ProcessMoves>& moves = plan.process_moves();
    if (moves == nullptr)
      moves = std::make_shared<const ProcessMoves>(plan, communicator_.index(), communicator_.count());
    const std::lock_guard lock(mutex_);
    if (!scratch_ || scratch_->bytes() < moves->scratch_bytes())
      scratch_ = Buffer::allocate(std::max<std::int64_t>(moves->scratch_bytes(), 1));
    moves->run(destinations, sources, scratch_->as<char>(),
               [&](std::span<const Message> sent, std::span<const Message> received) {
                 if (!sent.empty() || !received.empty()) communicator_.exchange(sent, received);
               });
    if (CommunicationScope* scope = CommunicationScope::innermost()) {
      scope->add_moved(plan.moved_bytes());
      scope->add_copied(plan.bytes());
    }
  }

 private:
  Communicator& communicator_;
  mutable std::mutex mutex_;
  mutable BufferPtr scratch_;
};
}  // namespace TESSERA_ISA

TESSERA_ONCE void join_processes(Communicator& communicator) {
  if (tessera::detail::own_process.count > 1 || detail::own_communicator != nullptr)
    fail(errc::processes, "[join_processes] session: this process is one of ", process_count(), " already");
  if (TensorLayout::divisible_exists())
    fail(errc::processes, "[join_processes] order: a tensor on several devices was made before; make the session of "
                          "several processes the first object of main()");
  if (communicator.count() > ProcessSet::most)
    fail(errc::capacity, "[join_processes] number of processes: ", communicator.count(), ", the limit is ",
         ProcessSet::most);
  detail::own_communicator = &communicator;
  if (communicator.count() == 1) return;
  tessera::detail::own_process = {communicator.index(), communicator.count()};
  Transport::set_default(std::make_unique<ProcessTransport>(communicator));
}

TESSERA_ONCE void leave_processes() {
  Transport::set_default(nullptr);
  tessera::detail::own_process = {0, 1, process_count() > 1};
  TensorLayout::forget_recent();
  detail::own_communicator = nullptr;
}
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
