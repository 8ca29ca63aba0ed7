#ifndef TESSERA_BENCHMARKS_COMPARE_HARNESS_HPP
#define TESSERA_BENCHMARKS_COMPARE_HARNESS_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "peer.hpp"

namespace compare {

/// The least work of a row. The floor of its time is this work at the speed of the probes in the same rounds.
struct Work {
  double flops = 0;
  double bytes = 0;       ///< bytes read and bytes written, each counted once
  double bytes_read = 0;  ///< of these, where a row reads much more than it writes; 0: reads have no floor of their own
};

struct Arguments {
  int threads = 0;  ///< of every contender; 0: all processors
  int rounds = 11;
  double seconds = 20;  ///< a row ends after this time and at least three rounds
  int devices = 8;      ///< for rows of collectives
  std::regex only{""};
  std::string memory_of;  ///< if set, only run this contender's training and report its peak memory
};

/// Measures rows: Tessera, the peers and the probes take turns, so that all have the same clock frequency.
class Harness {
 public:
  Harness(const Arguments& arguments, std::vector<std::string> peers);

  const Arguments& arguments() const { return arguments_; }
  /// The name of a row with the number of threads, or "" if the row is not selected. The first selected row loads the
  /// peers.
  std::string row(const std::string& name);

  /// Prints a line of JSON for each peer that has this task; if none has, a line without a peer.
  void measure(const std::string& row, const Work& work, const Task& ours,
               const std::function<Task(Peer&)>& task_of = {});
  /// Measures Tessera against another task of Tessera instead of a peer.
  void measure(const std::string& row, const Work& work, const Task& ours, const std::string& other_name,
               const Task& other);

  /// Adds a peer to all later rows. Null if it is not installed.
  Peer* load(const std::string& name);

 private:
  struct Contender {
    std::string name;
    Task task;
    int repeats = 1;
    std::vector<double> times = {};
  };
  struct Module {
    std::string name;
    std::unique_ptr<Peer> peer;
  };

  void measure(const std::string& row, const Work& work, std::vector<Contender> contenders);

  Arguments arguments_;
  std::vector<std::string> not_loaded_;
  std::vector<Module> peers_;
};

/// The main function of a group of rows: parses the arguments, and reports exceptions.
int run(int argc, char** argv, std::vector<std::string> peers, void (*rows)(Harness&));

/// An array of floats in huge pages, so that no contender is slowed by misses of the TLB.
class Array {
 public:
  /// Pseudorandom values between -scale and scale, equal for equal seeds.
  Array(std::int64_t size, unsigned seed, float scale = 1);

  const float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::size_t size_;
  std::unique_ptr<float, Free> data_;
};

}  // namespace compare

#endif
