#ifndef TESSERA_TESTS_UNIT_NN_LAYER_CALLS_HPP
#define TESSERA_TESTS_UNIT_NN_LAYER_CALLS_HPP

#include <cstdint>
#include <string>
#include <vector>

#include "../../support/gradients.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>

// Calls of layers: what their traces compute, and which lines their operations have.
namespace tessera_test {

struct Apply {
  constexpr auto operator()(const auto& layer, const auto&... x) const { return layer(x...); }
  static constexpr std::uint32_t line = tessera::Here::current().line() - 1;
};
struct ApplyCached {
  constexpr auto operator()(const auto& layers, const auto&... x) const { return tessera::nn::cached(layers, x...); }
  static constexpr std::uint32_t line = tessera::Here::current().line() - 1;
};
using Tensor3 = tessera::ShardedTensor<float, 3>;

/// The operations of a layer have the line of its call, which errors and plans name, and not lines of the library.
inline void expect_lines_of_the_call(const tessera::ProgramView& program, std::uint32_t line = Apply::line) {
  const std::string want = "layer_calls.hpp:" + std::to_string(line);
  int lines = 0;
  for (int g = 0; g < program.graph_count; ++g)
    for (int id = 0; id < program.graphs[g].size; ++id) {
      const tessera::Source& source = program.graphs[g][id].source;
      if (source.line == 0) continue;
      ++lines;
      EXPECT_EQ(source.text(), want) << tessera::row_of(program.graphs[g][id]).name;
    }
  EXPECT_GT(lines, 0);
}

/// What a layer means: its trace, run by the oracle. The leaves of the layer come first, then x.
template <class Layer, class X = Tensor3> oracle::Array meaning(const std::vector<oracle::Array>& arguments) {
  const oracle::Program program = oracle::trace<Apply, Layer, X>();
  expect_lines_of_the_call(program.view());
  return oracle::run(program.view(), arguments).at(0);
}

}  // namespace tessera_test

#endif
