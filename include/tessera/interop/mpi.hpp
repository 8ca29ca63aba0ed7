#ifndef TESSERA_INTEROP_MPI_HPP
#define TESSERA_INTEROP_MPI_HPP
#include <tessera/base/push_macros.hpp>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include <mpi.h>
#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/communicator.hpp>
#include <tessera/runtime/transport/process_transport.hpp>

namespace tessera::mpi {

struct SessionOptions {
  /// How long a process waits for messages of the others before it throws.
  double timeout_seconds = 300;
  /// The number of threads (ts::set_parallelism); 0: an equal share of the cores of the machine for each process on it,
  /// but not more than mpirun has bound the process to.
  int threads = 0;
};

namespace detail {

/// Throws `processes` if an MPI function failed.
inline void check(int code, std::string_view function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(errc::processes, "[mpi] ", function, ": ", std::string_view(text, static_cast<std::size_t>(length)));
}

/// The processes of a communicator, which this object duplicates.
class Communicator final : public runtime::Communicator {
 public:
  Communicator(MPI_Comm communicator, const SessionOptions& options) : options_(options) {
    check(MPI_Comm_dup(communicator, &communicator_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(communicator_, &index_), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator_, &count_), "MPI_Comm_size");
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised == 0 && !broken_) MPI_Comm_free(&communicator_);
  }

  /// Whether an exchange failed, after which messages are lost.
  bool broken() const { return broken_; }
  MPI_Comm communicator() const { return communicator_; }
  int index() const override { return index_; }
  int count() const override { return count_; }

  void exchange(std::span<const runtime::Message> sent, std::span<const runtime::Message> received) override {
    if (exchanges_.exchange(true))
      fail(errc::processes, "[mpi] exchange: two threads communicate at the same time; one thread at a time may");
    if (broken_) {
      exchanges_ = false;
      fail(errc::processes,
           "[mpi] exchange: an earlier exchange of messages failed, and processes can't go on together");
    }
    requests_.clear();
    from_.clear();
    broken_ = true;  // until all has arrived
    const int tag = static_cast<int>(runs % report_tag);
    std::size_t receives = 0;
    try {
      for (const runtime::Message& message : received)
        for_each_part(message, [&](char* data, int bytes) {
          requests_.push_back(MPI_REQUEST_NULL);
          from_.push_back(message.process);
          check(MPI_Irecv(data, bytes, MPI_BYTE, message.process, tag, communicator_, &requests_.back()), "MPI_Irecv");
          ++receives;
        });
      for (const runtime::Message& message : sent)
        for_each_part(message, [&](char* data, int bytes) {
          requests_.push_back(MPI_REQUEST_NULL);
          from_.push_back(message.process);
          check(MPI_Isend(data, bytes, MPI_BYTE, message.process, tag, communicator_, &requests_.back()), "MPI_Isend");
        });
      wait();
    } catch (...) {
      give_up(receives);
      exchanges_ = false;
      throw;
    }
    broken_ = false;
    exchanges_ = false;
  }

  /// A report has the run that ended, and the text. After a failed exchange it has no run: this process can't go on.
  void report(std::string_view error) noexcept override {
    const std::uint64_t run = broken_ ? any_run : runs;
    std::string& report = reports_.emplace_back(reinterpret_cast<const char*>(&run), sizeof(run));
    report += error.substr(0, 1000);
    for (int process = 0; process < count_; ++process) {
      if (process == index_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Isend(report.data(), static_cast<int>(report.size()), MPI_BYTE, process, report_tag, communicator_,
                    &request) == MPI_SUCCESS)
        MPI_Request_free(&request);  // the text stays where it is
    }
  }

 private:
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 30;  // counts of MPI 3 are ints
  static constexpr int report_tag = 32767;                           // each MPI has tags up to this
  static constexpr std::uint64_t any_run = 0;

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int index_ = 0, count_ = 1;
  SessionOptions options_;
  bool broken_ = false;
  std::atomic<bool> exchanges_ = false;
  Growable<MPI_Request> requests_;
  Growable<int> from_;  // by request: the other process
  std::list<std::string> reports_;

  template <class F> static void for_each_part(const runtime::Message& message, const F& f) {
    for (std::int64_t at = 0; at < message.bytes; at += most_bytes)
      f(static_cast<char*>(message.data) + at, static_cast<int>(std::min(most_bytes, message.bytes - at)));
  }
  /// Waits for all requests. With more processes than cores, a process that only spins keeps others from sending.
  void wait() {
    constexpr int spins = 64;
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t tries = 0;; ++tries) {
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      if (done != 0) return;
      if (tries < spins) continue;
      std::this_thread::yield();
      if (tries % spins != 0) continue;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      // An error that all processes have, as most are, ends this run here as well within a second.
      if (seconds > 1) read_reports();
      if (seconds > options_.timeout_seconds) fail_waiting();
    }
  }
  /// Throws if a process has reported an error of this run. Reports of earlier runs are of errors that all had.
  void read_reports() {
    while (true) {
      int arrived = 0, bytes = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, report_tag, communicator_, &arrived, &status), "MPI_Iprobe");
      if (arrived == 0) return;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      std::string report(static_cast<std::size_t>(bytes), ' ');
      check(MPI_Recv(report.data(), bytes, MPI_BYTE, status.MPI_SOURCE, report_tag, communicator_, MPI_STATUS_IGNORE),
            "MPI_Recv");
      std::uint64_t run = any_run;
      if (report.size() < sizeof(run)) continue;
      std::memcpy(&run, report.data(), sizeof(run));
      if (run == runs || run == any_run)
        fail(errc::processes, "[mpi] exchange: an error ended this run in process ", status.MPI_SOURCE, ": ",
             std::string_view(report).substr(sizeof(run)));
    }
  }
  /// After an error: memory that the caller frees must not receive what arrives later.
  void give_up(std::size_t receives) noexcept {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (i < receives) MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
  }
  [[noreturn]] void fail_waiting() {
    Growable<unsigned char> waits(static_cast<std::size_t>(count_), 0);
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;  // MPI_Testall tells nothing of single requests
      check(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) waits[static_cast<std::size_t>(from_[i])] = 1;
    }
    std::string others;
    for (int process = 0; process < count_; ++process)
      if (waits[static_cast<std::size_t>(process)] != 0) others += concat_text(others.empty() ? "" : ", ", process);
    fail(errc::processes, "[mpi] exchange: process ", index_, " of ", count_, " waited ", options_.timeout_seconds,
         " s for messages to or from process ", others,
         "; each process must call the same functions on tensors of several devices, in the same order");
  }
};

}  // namespace detail

/// Makes this process one of several that run a program together. While a session is alive, the devices of each mesh
/// are divided among the processes of an MPI communicator in the order of their ids; each process stores the shards of
/// its own devices, and collectives between devices of different processes are MPI messages. Each process runs the
/// whole program. Results are bitwise equal for any number of processes above one (docs/processes.md).
///
///     int main() {
///       const ts::mpi::Session session;                  // mpirun -np 2: 4 devices each
///       const ts::Mesh mesh({{"data", 8}});
/// Make it the first object of main(): it is an error if a tensor on several devices exists already. If MPI is not
/// initialised, the session initialises it, and finalises it at its end; every process must end its session. Only one
/// thread at a time may call functions that communicate. Errors: `unsupported` for an MPI without
/// MPI_THREAD_SERIALIZED, `processes` when an MPI function fails, `capacity` for more than 256 processes.
class Session {
 public:
  explicit Session(const SessionOptions& options = {}) : Session(MPI_COMM_WORLD, options) {}
  /// The processes of a communicator, which is duplicated.
  explicit Session(MPI_Comm communicator, const SessionOptions& options = {})
      : initialised_(initialise()), own_(communicator, options) {
    set_parallelism(options.threads > 0 ? options.threads : share_of_cores());
    runtime::join_processes(own_);  // last, since an exception here ends the session without its destructor
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    runtime::leave_processes();
    if (own_.broken()) initialised_.finalises = false;
  }

  int process_index() const { return own_.index(); }
  int process_count() const { return own_.count(); }
  /// The session's own communicator.
  MPI_Comm communicator() const { return own_.communicator(); }

 private:
  /// Finalises MPI after the communicator is freed, if the session initialised it. Not after an error: if that ends
  /// this process alone, MPI_Finalize would wait for processes that wait for this one. mpirun ends them instead.
  struct Initialised {
    bool finalises = false;
    int exceptions = std::uncaught_exceptions();
    Initialised() = default;
    explicit Initialised(bool own) : finalises(own) {}
    Initialised(const Initialised&) = delete;
    Initialised& operator=(const Initialised&) = delete;
    ~Initialised() {
      int finalised = 0;
      MPI_Finalized(&finalised);
      if (finalises && finalised == 0 && std::uncaught_exceptions() <= exceptions) MPI_Finalize();
    }
  };
  Initialised initialised_;
  detail::Communicator own_;

  int share_of_cores() const {
    MPI_Comm here = MPI_COMM_NULL;
    int processes = 1;
    detail::check(MPI_Comm_split_type(communicator(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
                  "MPI_Comm_split_type");
    detail::check(MPI_Comm_size(here, &processes), "MPI_Comm_size");
    MPI_Comm_free(&here);
    int cores = static_cast<int>(std::thread::hardware_concurrency());
#ifdef _SC_NPROCESSORS_ONLN
    cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));  // of the machine, wherever the process is bound
#endif
    return std::max(1, std::min(parallelism(), cores / processes));
  }
  /// Whether this call initialised MPI.
  static bool initialise() {
    int before = 0, level = MPI_THREAD_SINGLE;
    detail::check(MPI_Initialized(&before), "MPI_Initialized");
    if (before == 0)
      detail::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    else
      detail::check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_SERIALIZED)
      fail(errc::unsupported,
           "[mpi] threads: this MPI does not support MPI_THREAD_SERIALIZED, or was initialised without");
    return before == 0;
  }
};

}  // namespace tessera::mpi

#include <tessera/base/pop_macros.hpp>

#endif
