#include "socket_communicator.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.hpp>

namespace tests {

using tessera::runtime::Message;

SocketCommunicator SocketCommunicator::fork(int processes) {
  const auto count = static_cast<std::size_t>(processes);
  std::vector<std::vector<int>> ends(count, std::vector<int>(count, -1));
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = a + 1; b < count; ++b) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        tessera::fail(tessera::errc::processes, "[sockets] socketpair: error ", errno);
      for (const int end : pair) ::fcntl(end, F_SETFL, O_NONBLOCK);
      ends[a][b] = pair[0];
      ends[b][a] = pair[1];
    }
  SocketCommunicator made;
  for (int process = 1; process < processes; ++process) {
    const int child = ::fork();
    if (child == 0) {
      made.index_ = process;
      made.children_.clear();
      break;
    }
    made.children_.push_back(child);
  }
  for (std::size_t a = 0; a < count; ++a)
    for (const int end : ends[a])
      if (end >= 0 && a != static_cast<std::size_t>(made.index_)) ::close(end);
  made.sockets_ = ends[static_cast<std::size_t>(made.index_)];
  return made;
}

SocketCommunicator::SocketCommunicator(SocketCommunicator&& other) noexcept
    : index_(other.index_), sockets_(std::move(other.sockets_)), children_(std::move(other.children_)) {
  other.sockets_.clear();
  other.children_.clear();
}

SocketCommunicator::~SocketCommunicator() {
  for (const int socket : sockets_)
    if (socket >= 0) ::close(socket);
}

bool SocketCommunicator::wait() {
  bool succeeded = true;
  for (const int child : children_) {
    int status = 0;
    ::waitpid(child, &status, 0);
    succeeded = succeeded && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  children_.clear();
  return succeeded;
}

namespace {
/// The messages to or from one process, one after the other.
struct Stream {
  std::vector<Message> messages;
  std::size_t next = 0;
  std::int64_t done = 0;  // bytes of the next message

  bool ended() const { return next == messages.size(); }
  template <class Transfer> void advance(const Transfer& transfer) {
    while (!ended()) {
      const Message& message = messages[next];
      const auto left = static_cast<std::size_t>(message.bytes - done);
      const auto bytes = left == 0 ? 0 : transfer(static_cast<char*>(message.data) + done, left);
      if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
      if (bytes < 0 || (bytes == 0 && left > 0))
        tessera::fail(tessera::errc::processes, "[sockets] exchange: process ", message.process, " is gone");
      done += bytes;
      if (done < message.bytes) continue;
      ++next;
      done = 0;
    }
  }
};
}  // namespace

void SocketCommunicator::exchange(std::span<const Message> sent, std::span<const Message> received) {
  constexpr int patience_ms = 60000;
  std::vector<Stream> out(sockets_.size()), in(sockets_.size());
  for (const Message& message : sent) out[static_cast<std::size_t>(message.process)].messages.push_back(message);
  for (const Message& message : received) in[static_cast<std::size_t>(message.process)].messages.push_back(message);
  while (true) {
    std::vector<pollfd> polled;
    for (std::size_t process = 0; process < sockets_.size(); ++process) {
      const int socket = sockets_[process];
      out[process].advance([&](char* data, std::size_t bytes) { return ::send(socket, data, bytes, MSG_NOSIGNAL); });
      in[process].advance([&](char* data, std::size_t bytes) { return ::recv(socket, data, bytes, 0); });
      const int events = (out[process].ended() ? 0 : POLLOUT) | (in[process].ended() ? 0 : POLLIN);
      if (events != 0) polled.push_back({socket, static_cast<short>(events), 0});
    }
    if (polled.empty()) return;
    if (::poll(polled.data(), polled.size(), patience_ms) == 0)
      tessera::fail(tessera::errc::processes, "[sockets] exchange: process ", index_,
                    " waited a minute for another process");
  }
}

}  // namespace tests
