#ifndef TESTS_SUPPORT_SOCKET_GROUP_HPP
#define TESTS_SUPPORT_SOCKET_GROUP_HPP

#include <vector>

#include <tessera/runtime/transport/communicator.hpp>

namespace tests {

/// Processes on one machine that reach each other by a socket between each two of them. fork() copies the caller, which
/// becomes process 0: it may have no threads beside its main thread.
class SocketCommunicator final : public tessera::runtime::Communicator {
 public:
  static SocketCommunicator fork(int processes);
  ~SocketCommunicator() override;
  SocketCommunicator(SocketCommunicator&& other) noexcept;

  int index() const override { return index_; }
  int count() const override { return static_cast<int>(sockets_.size()); }
  void exchange(std::span<const tessera::runtime::Message> sent,
                std::span<const tessera::runtime::Message> received) override;
  /// In process 0: waits for the others to exit. Returns whether all of them succeeded.
  bool wait();

 private:
  SocketCommunicator() = default;
  int index_ = 0;
  std::vector<int> sockets_;  // by process; -1: this process
  std::vector<int> children_;
};

}  // namespace tests

#endif
