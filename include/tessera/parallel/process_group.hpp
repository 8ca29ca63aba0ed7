#ifndef TESSERA_PARALLEL_PROCESS_GROUP_HPP
#define TESSERA_PARALLEL_PROCESS_GROUP_HPP
#include <tessera/base/push_macros.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/transport/communicator.hpp>

namespace tessera {

/// The processes of a job, which exchange values on the host.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;
  /// Waits until all processes have called it with this tag, and returns the payloads of all, ordered by rank.
  /// Errors: `structure`, on every process, if their tags differ.
  virtual std::vector<std::string> rendezvous(std::string_view tag, std::string_view payload) = 0;
};

/// A job of one process: rendezvous returns at once.
class SingleProcess final : public ProcessGroup {
 public:
  int size() const override { return 1; }
  int rank() const override { return 0; }
  std::vector<std::string> rendezvous(std::string_view, std::string_view payload) override {
    return {std::string(payload)};
  }
};

/// The processes of the session, such as ts::mpi::Session, or this process alone without a session.
class SessionProcesses final : public ProcessGroup {
 public:
  int size() const override { return process_count(); }
  int rank() const override { return process_index(); }
  std::vector<std::string> rendezvous(std::string_view tag, std::string_view payload) override {
    const std::vector<std::string> tags = gathered(tag), payloads = gathered(payload);
    for (const std::string& other : tags)
      if (other != tags[0])
        fail(errc::structure, "[rendezvous] equal tags: processes called it with '", tags[0], "' and '", other, "'");
    return payloads;
  }

 private:
  static std::vector<std::string> gathered(std::string_view own) {
    runtime::Communicator* const communicator = runtime::detail::own_communicator;
    const auto count = static_cast<std::size_t>(process_count());
    std::vector<std::string> all(count, std::string(own));
    if (communicator == nullptr || count == 1) return all;
    std::vector<std::uint64_t> sizes(count, own.size());
    all_to_all(
        *communicator, [&](std::size_t) { return std::pair<void*, std::size_t>(&sizes[index()], 8); },
        [&](std::size_t process) { return std::pair<void*, std::size_t>(&sizes[process], 8); });
    for (std::size_t process = 0; process < count; ++process) all[process].resize(sizes[process]);
    all_to_all(
        *communicator, [&](std::size_t) { return std::pair<void*, std::size_t>(all[index()].data(), own.size()); },
        [&](std::size_t process) { return std::pair<void*, std::size_t>(all[process].data(), all[process].size()); });
    return all;
  }
  static std::size_t index() { return static_cast<std::size_t>(process_index()); }
  /// Sends to each other process what `sent` gives, and receives from each what `received` gives.
  template <class Sent, class Received>
  static void all_to_all(runtime::Communicator& communicator, const Sent& sent, const Received& received) {
    std::vector<runtime::Message> out, in;
    for (int process = 0; process < process_count(); ++process) {
      if (process == process_index()) continue;
      const auto [from, from_bytes] = sent(static_cast<std::size_t>(process));
      const auto [to, to_bytes] = received(static_cast<std::size_t>(process));
      if (from_bytes > 0) out.push_back({process, from, static_cast<std::int64_t>(from_bytes)});
      if (to_bytes > 0) in.push_back({process, to, static_cast<std::int64_t>(to_bytes)});
    }
    communicator.exchange(out, in);
  }
};

/// A job of threads instead of processes, for tests. Each thread uses its own Member.
class ThreadProcesses {
 public:
  explicit ThreadProcesses(int size) : size_(size) {
    if (size < 1) fail(errc::option, "[rendezvous] processes: ", size, " is below 1");
    payloads_.resize(static_cast<std::size_t>(size));
  }

  class Member final : public ProcessGroup {
   public:
    Member(ThreadProcesses& all, int rank) : all_(all), rank_(rank) {}
    int size() const override { return all_.size_; }
    int rank() const override { return rank_; }
    std::vector<std::string> rendezvous(std::string_view tag, std::string_view payload) override {
      return all_.meet(rank_, tag, payload);
    }

   private:
    ThreadProcesses& all_;
    int rank_;
  };
  /// Errors: `option` for a rank outside the job.
  Member member(int rank) {
    if (rank < 0 || rank >= size_)
      fail(errc::option, "[rendezvous] rank: ", rank, " is out of range for ", size_, " processes");
    return Member(*this, rank);
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable everybody_;
  int here_ = 0;
  long round_ = 0;
  std::string tag_, other_tag_;
  bool one_tag_ = true;
  std::vector<std::string> payloads_, met_;
  std::string mistake_;

  std::vector<std::string> meet(int rank, std::string_view tag, std::string_view payload) {
    std::unique_lock lock(mutex_);
    if (here_ == 0) {
      tag_ = tag;
      one_tag_ = true;
    }
    if (tag != tag_) {
      one_tag_ = false;
      other_tag_ = tag;
    }
    payloads_[static_cast<std::size_t>(rank)] = payload;
    const long round = round_;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      met_ = payloads_;
      mistake_ = one_tag_ ? std::string()
                          : concat_text("[rendezvous] equal tags: processes called it with '", tag_, "' and '",
                                        other_tag_, "'");
      everybody_.notify_all();
    } else {
      everybody_.wait(lock, [&] { return round_ != round; });
    }
    // met_ and mistake_ are still of this round: the next round ends only after all threads have left this one.
    if (!mistake_.empty()) fail(errc::structure, mistake_);
    return met_;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
