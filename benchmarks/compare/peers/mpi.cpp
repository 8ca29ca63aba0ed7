#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "../peer.hpp"
#include <mpi.h>

// Process 0 measures. The other processes poll for a command and sleep in between: a process that waits in MPI would
// keep a processor busy.
namespace {

using compare::Task;

enum class Kind : int { all_reduce, reduce_scatter, all_gather, stop };

struct Command {
  Kind kind;
  int repeats;
  std::int64_t bytes;
};

constexpr int tag = 0;

int processes() {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// The seconds of all repeats, on the slowest process.
double run(const Command& command, std::vector<float>& in, std::vector<float>& out) {
  const auto size = static_cast<int>(command.bytes / 4), piece = size / processes();
  in.resize(static_cast<std::size_t>(size), 1.0f);
  out.resize(static_cast<std::size_t>(size), 1.0f);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < command.repeats; ++i) {
    if (command.kind == Kind::all_reduce)
      MPI_Allreduce(in.data(), out.data(), size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (command.kind == Kind::reduce_scatter)
      MPI_Reduce_scatter_block(in.data(), out.data(), piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
      MPI_Allgather(in.data(), piece, MPI_FLOAT, out.data(), piece, MPI_FLOAT, MPI_COMM_WORLD);
  }
  const double own = MPI_Wtime() - start;
  double slowest;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void send(const Command& command) {
  for (int process = 1; process < processes(); ++process)
    MPI_Send(&command, sizeof command, MPI_BYTE, process, tag, MPI_COMM_WORLD);
}

[[noreturn]] void serve() {
  std::vector<float> in, out;
  for (;;) {
    for (int arrived = 0; !arrived;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      MPI_Iprobe(0, tag, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
    }
    Command command;
    MPI_Recv(&command, sizeof command, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (command.kind == Kind::stop) break;
    run(command, in, out);
  }
  MPI_Finalize();
  std::_Exit(0);
}

class Mpi : public compare::Peer {
 public:
  Mpi() {
    MPI_Init(nullptr, nullptr);
    int process;
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    if (process != 0) serve();
  }
  ~Mpi() override {
    send({Kind::stop, 0, 0});
    MPI_Finalize();
  }

  Task all_reduce(int devices, std::int64_t bytes) override { return task(Kind::all_reduce, devices, bytes); }
  Task reduce_scatter(int devices, std::int64_t bytes) override { return task(Kind::reduce_scatter, devices, bytes); }
  Task all_gather(int devices, std::int64_t bytes) override { return task(Kind::all_gather, devices, bytes); }

 private:
  Task task(Kind kind, int devices, std::int64_t bytes) {
    Task result;
    if (devices != processes()) return result;
    result.seconds = [=, this](int repeats) {
      const Command command{kind, repeats, bytes};
      send(command);
      return run(command, in_, out_);
    };
    return result;
  }

  std::vector<float> in_, out_;
};

}  // namespace

extern "C" compare::Peer* compare_peer() { return new Mpi; }
