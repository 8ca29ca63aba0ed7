// Collectives between processes with one device each, beside the collective of MPI for the same bytes:
//   mpirun -n 2 --bind-to none compare_processes
// Medians of interleaved calls, in which all processes begin together.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <tessera/interop/mpi.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

double median(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

template <class F> double seconds_of(MPI_Comm communicator, const F& f) {
  MPI_Barrier(communicator);
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Ours, class Theirs>
void compare(const ts::mpi::Session& session, const char* name, std::int64_t kilobytes, const Ours& ours,
             const Theirs& theirs) {
  const int calls = kilobytes >= 16384 ? 15 : 151;
  std::vector<double> own, peer;
  for (int i = 0; i < calls; ++i) {
    own.push_back(seconds_of(session.communicator(), ours));
    peer.push_back(seconds_of(session.communicator(), theirs));
  }
  const double a = median(own), b = median(peer);
  if (session.process_index() == 0)
    std::printf("%-14s %6lld KB   Tessera %9.1f us   MPI %9.1f us   %.2f\n", name, static_cast<long long>(kilobytes),
                a * 1e6, b * 1e6, b / a);
}

}  // namespace

int main() {
  const ts::mpi::Session session;
  const int processes = session.process_count();
  const ts::Mesh mesh({{"x", processes}});
  const MPI_Comm communicator = session.communicator();
  for (const std::int64_t kilobytes : {4, 64, 1024, 16384, 65536}) {
    const std::int64_t own = kilobytes * 256 / processes, all = own * processes;
    std::vector<float> part(static_cast<std::size_t>(own), 1.f), whole(static_cast<std::size_t>(all), 1.f);
    std::vector<float> result(whole.size());
    const auto x = ts::full<float>({all}, 1.f, mesh, {"x"});
    compare(
        session, "all_gather", kilobytes, [&] { (void)ts::reshard(x, mesh, {}); },
        [&] {
          MPI_Allgather(part.data(), static_cast<int>(own), MPI_FLOAT, result.data(), static_cast<int>(own), MPI_FLOAT,
                        communicator);
        });
    const auto rows = ts::full<float>({processes, all}, 1.f, mesh, {"x"});
    constexpr auto sum = ts::compile([](const auto& a) { return ts::sum<0>(a); });
    compare(
        session, "all_reduce", kilobytes, [&] { (void)sum(rows); },
        [&] { MPI_Allreduce(whole.data(), result.data(), static_cast<int>(all), MPI_FLOAT, MPI_SUM, communicator); });
    constexpr auto scattered = ts::compile([](const auto& a) { return ts::with_sharding(ts::sum<0>(a), {"x"}); });
    compare(
        session, "reduce_scatter", kilobytes, [&] { (void)scattered(rows); },
        [&] {
          MPI_Reduce_scatter_block(whole.data(), result.data(), static_cast<int>(own), MPI_FLOAT, MPI_SUM,
                                   communicator);
        });
  }
}
