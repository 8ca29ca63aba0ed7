#ifndef TESSERA_BENCHMARKS_COMPARE_PROBES_HPP
#define TESSERA_BENCHMARKS_COMPARE_PROBES_HPP

#include <cstdint>

#include "peer.hpp"

// Probes of the machine's peak speed, on as many threads as Tessera's loops use.
namespace compare {

/// A task with a known amount of work: amount / seconds is a speed.
struct Probe {
  Task task;
  double amount;  ///< work of one run: floating-point operations, or bytes
};

/// Fused multiply-adds in the widest registers, in enough independent chains to hide their latency.
Probe fma_probe(int threads);

/// A copy that reads and writes as many bytes as the row does, up to half a gigabyte; with plain stores or with
/// streaming ones, whichever is faster.
Probe copy_probe(double bytes);

/// A sum of so many bytes, up to half a gigabyte: where data come from main memory, reads alone can be slower than a
/// copy of as many bytes, half of which are writes.
Probe read_probe(double bytes);

}  // namespace compare

#endif
