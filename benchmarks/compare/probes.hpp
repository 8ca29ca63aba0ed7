#ifndef TESSERA_BENCHMARKS_COMPARE_PROBES_HPP
#define TESSERA_BENCHMARKS_COMPARE_PROBES_HPP

#include <cstdint>

#include "peer.hpp"

// What the machine can do at most, on as many threads as our loops use.
namespace compare {

/// A task of known size, which the time of a run turns into a speed.
struct Probe {
  Task task;
  double amount;  ///< of a run: floating-point operations, or bytes
};

/// Fused multiply-adds in the widest registers, in enough independent chains to hide their latency.
Probe fma_probe(int threads);

/// A copy that reads and writes as many bytes as the row does, up to half a gigabyte; with plain stores or with
/// streaming ones, whichever is faster.
Probe copy_probe(double bytes);

}  // namespace compare

#endif
