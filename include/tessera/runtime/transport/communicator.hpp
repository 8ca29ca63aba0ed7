#ifndef TESSERA_RUNTIME_TRANSPORT_COMMUNICATOR_HPP
#define TESSERA_RUNTIME_TRANSPORT_COMMUNICATOR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/base/compiled.hpp>
#include <tessera/base/growable.hpp>

namespace tessera::runtime {

/// Bytes that are sent to a process, or received from it.
struct Message {
  int process = 0;
  void* data = nullptr;
  std::int64_t bytes = 0;
};

/// How the processes that run a program together reach each other: MPI, or sockets in our tests. An implementation
/// knows bytes, and nothing of tensors.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int index() const = 0;
  virtual int count() const = 0;
  /// Sends and receives all messages, and returns when all of them have been sent and received. The k-th message that
  /// process a ever sends to process b is the k-th that b receives from a, and both give its size; no message is for
  /// the process itself. Errors: `processes` if another process does not answer.
  virtual void exchange(std::span<const Message> sent, std::span<const Message> received) = 0;
  /// Tells the other processes that an error ends the present run in this process, so that those that wait for its
  /// messages in the same run need not wait until their timeout. By default they are told nothing.
  virtual void report([[maybe_unused]] std::string_view error) noexcept {}

  /// Hashes of the plans that all processes were found to have, sorted: equal in all processes, see agree_on_plan.
  Growable<std::uint64_t> agreed_plans;
  /// A hash of all runs of programs that sent messages or ended with an exception, such as an index outside of a table.
  /// It is equal in processes that ran the same programs; messages of a process with another hash must not be taken for
  /// those that are due.
  std::uint64_t runs = 0;
};

namespace detail {
/// The communicator of this process; null if no other process takes part.
inline constinit Communicator* own_communicator = nullptr;
}  // namespace detail

/// Whether `holds` is true in every process. Each process must call it. Communication: one byte between each two
/// processes; none if this process is alone.
TESSERA_ONCE bool all_processes(bool holds);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE bool all_processes(bool holds) {
  Communicator* const communicator = detail::own_communicator;
  if (communicator == nullptr) return holds;
  const auto count = static_cast<std::size_t>(communicator->count());
  unsigned char own = holds ? 1 : 0;
  Growable<unsigned char> answers(count, own);
  Growable<Message> sent, received;
  for (int process = 0; process < communicator->count(); ++process) {
    if (process == communicator->index()) continue;
    sent.push_back({process, &own, 1});
    received.push_back({process, &answers[static_cast<std::size_t>(process)], 1});
  }
  communicator->exchange(sent, received);
  for (const unsigned char answer : answers) holds = holds && answer != 0;
  return holds;
}
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
