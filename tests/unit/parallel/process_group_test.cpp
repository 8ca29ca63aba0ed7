#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/parallel/mesh_reduce.hpp>
#include <tessera/parallel/process_group.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

/// Runs f(process) in a thread for each of n processes.
template <class F> void run_processes(int n, F f) {
  ts::ThreadProcesses processes(n);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      auto member = processes.member(rank);
      f(member);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(rendezvous, everybody_gets_what_everybody_brought) {
  std::vector<std::vector<std::string>> got(3);
  run_processes(3, [&](ts::ProcessGroup& own) {
    for (int round = 0; round < 200; ++round)
      got[static_cast<std::size_t>(own.rank())] =
          own.rendezvous("round", std::to_string(own.rank()) + ":" + std::to_string(round));
  });
  for (const auto& list : got) EXPECT_EQ(list, (std::vector<std::string>{"0:199", "1:199", "2:199"}));
}

TEST(rendezvous, different_tags_are_a_mistake_of_all) {
  std::vector<int> mistakes(2, 0);
  run_processes(2, [&](ts::ProcessGroup& own) {
    try {
      own.rendezvous(own.rank() == 0 ? "save" : "load", "");
    } catch (const ts::error& e) {
      mistakes[static_cast<std::size_t>(own.rank())] = e.id() == ts::errc::structure;
    }
    own.rendezvous("again", "");
  });
  EXPECT_EQ(mistakes, (std::vector<int>{1, 1}));
}

TEST(mesh_reduce, reduces_values_in_the_order_of_ranks) {
  std::vector<double> sums(4);
  std::vector<std::string> joined(4);
  run_processes(4, [&](ts::ProcessGroup& own) {
    const auto rank = static_cast<std::size_t>(own.rank());
    sums[rank] = ts::mesh_reduce(own, "loss", 0.5 + own.rank(), [](const std::vector<double>& all) {
      return std::accumulate(all.begin(), all.end(), 0.0);
    });
    joined[rank] = ts::mesh_reduce(
        own, "names", std::string(1, static_cast<char>('a' + own.rank())),
        [](const std::vector<std::string>& all) { return std::accumulate(all.begin(), all.end(), std::string()); });
  });
  EXPECT_EQ(sums, std::vector<double>(4, 8.0));
  EXPECT_EQ(joined, std::vector<std::string>(4, "abcd"));
}

TEST(mesh_reduce, of_one_process_is_its_own_value) {
  ts::SingleProcess process;
  EXPECT_EQ(process.size(), 1);
  EXPECT_EQ(ts::mesh_reduce(process, "loss", 3, [](const std::vector<int>& all) { return all.at(0); }), 3);
  for (const int size : {0, -1})
    expect_error(
        ts::errc::option, [&] { ts::ThreadProcesses none(size); },
        ts::concat_text("[rendezvous] processes: ", size, " is below 1"));
  ts::ThreadProcesses two(2);
  for (const int rank : {-1, 2})
    expect_error(
        ts::errc::option, [&] { two.member(rank); },
        ts::concat_text("[rendezvous] rank: ", rank, " is out of range for 2 processes"));
}

}  // namespace
