#ifndef TESSERA_TESTS_SUPPORT_TRACED_HPP
#define TESSERA_TESTS_SUPPORT_TRACED_HPP

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "oracle.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/ir/verify.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace oracle {

/// A traced program, traced by the compiler or at run time.

struct Program {
  tessera::Module module;
  int argument_count = 0;
  std::vector<GraphView> graphs;
  const tessera::PartitionSpec* specs;
  int spec_count;

  Program(tessera::Module m, int arguments)
      : module(std::move(m)), argument_count(arguments), specs(module.specs.data()),
        spec_count(static_cast<int>(module.specs.size())) {
    for (const tessera::Graph& graph : module.graphs) graphs.push_back(graph.view());
  }
  explicit Program(const ProgramView& v)
      : argument_count(v.argument_count), graphs(v.graphs, v.graphs + v.graph_count), specs(v.specs),
        spec_count(v.spec_count) {}
  Program(Program&&) = default;
  ProgramView view() const {
    return {graphs.data(), static_cast<int>(graphs.size()), specs, argument_count, spec_count};
  }
  const GraphView& main() const { return graphs[0]; }
  int count(Op op) const {
    int n = 0;
    for (const GraphView& graph : graphs)
      for (int id = 0; id < graph.size; ++id) n += graph[id].op == op ? 1 : 0;
    return n;
  }
};

/// A recorded program, simplified and verified.
Program simplified(tessera::Module recorded, int argument_count);

/// Traces F for arguments of these types at run time, and verifies the graph: it compiles quickly, and errors can be
/// caught. For a function that assigns expressions to fields of a model use compiled(), since only the compiler can.
template <class F, class... Args> Program trace() {
  auto [module, arguments] = tessera::Trace<F, Args...>::record();
  return simplified(std::move(module), arguments);
}

/// The results of a function, traced at run time.
template <class... Args, class F> std::vector<Array> results_of(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments);
}

/// The program of F, traced by the compiler.
template <class F, class... Args> Program compiled() {
  constexpr ProgramView view = tessera::Traced<F, Args...>::program();
  static_assert(!tessera::find_defect(view));
  return Program(view);
}

Array random_array(const Shape& shape, unsigned seed, double low = -1, double high = 1);

void expect_near(const Array& got, const Array& want, double tolerance, const std::string& what = "");

/// d f / d argument k by central differences.
template <class F> Array finite_difference(const F& f, std::vector<Array> arguments, std::size_t k, double h = 1e-5) {
  Array slope(arguments[k].shape);
  for (std::size_t i = 0; i < slope.data.size(); ++i) {
    const double x = arguments[k].data[i];
    arguments[k].data[i] = x + h;
    const double up = f(arguments);
    arguments[k].data[i] = x - h;
    const double down = f(arguments);
    arguments[k].data[i] = x;
    slope.data[i] = (up - down) / (2 * h);
  }
  return slope;
}

}  // namespace oracle

#endif
