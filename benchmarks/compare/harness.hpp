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

/// What a row can't do without: the floor of its time is that at the speed the probes have in the same rounds.
struct Work {
  double flops = 0;
  double bytes = 0;  ///< read and written, each once
};

struct Arguments {
  int threads = 0;  ///< of every contender; 0: all processors
  int rounds = 11;
  double seconds = 20;  ///< after which a row ends, if it has had three rounds
  int devices = 8;      ///< in rows of collectives
  std::regex only{""};
  std::string memory_of;  ///< the contender whose training is to be run for its peak memory alone
};

/// Measures rows: ours, the peers and two probes take turns, so that a clock that drifts is the same for all.
class Harness {
 public:
  Harness(const Arguments& arguments, std::vector<std::string> peers);

  const Arguments& arguments() const { return arguments_; }
  /// A name with the number of threads; empty when the row isn't wanted. Peers are loaded for the first that is.
  std::string row(const std::string& name);

  /// Prints a line of JSON for each peer that has such a task, or one without a peer.
  void measure(const std::string& row, const Work& work, const Task& ours,
               const std::function<Task(Peer&)>& task_of = {});
  /// The same against another way of ours.
  void measure(const std::string& row, const Work& work, const Task& ours, const std::string& other_name,
               const Task& other);

  /// Makes a peer take part from now on. Null when it is not installed.
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

/// The main function of a group of rows: parses the arguments, and reports what is thrown.
int run(int argc, char** argv, std::vector<std::string> peers, void (*rows)(Harness&));

/// Floats in huge pages: neither side shall pay for 4 KiB ones.
class Array {
 public:
  /// Numbers between -1 and 1 that look random, and are the same every time.
  Array(std::int64_t size, unsigned seed);

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
