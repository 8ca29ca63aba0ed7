#ifndef TESSERA_GRAPH_PROGRAM_HPP
#define TESSERA_GRAPH_PROGRAM_HPP

#include <cstdint>

#include <tessera/graph/graph.hpp>

namespace tessera {

/// A read-only traced program: graph 0 and the bodies of its repeats.
struct ProgramView {
  const GraphView* graphs = nullptr;
  int graph_count = 0;
  const PartitionSpec* specs = nullptr;
  int argument_count = 0;  ///< leaves of the arguments, used or not

  constexpr const GraphView& main() const { return graphs[0]; }
};

struct ProgramSize {
  int graphs = 0, nodes = 0, operands = 0, outputs = 0, specs = 0;

  static constexpr ProgramSize of(const Module& module) {
    ProgramSize size{static_cast<int>(module.graphs.size()), 0, 0, 0, static_cast<int>(module.specs.size())};
    for (const Graph& graph : module.graphs) {
      size.nodes += static_cast<int>(graph.nodes.size());
      size.operands += static_cast<int>(graph.operands.size());
      size.outputs += static_cast<int>(graph.outputs.size());
    }
    return size;
  }
};

/// A traced program as a constant: arrays of exactly the right size.
template <ProgramSize Size> struct FrozenProgram {
  Node nodes[static_cast<std::size_t>(Size.nodes) + 1]{};
  std::int32_t operands[static_cast<std::size_t>(Size.operands) + 1]{};
  std::int32_t outputs[static_cast<std::size_t>(Size.outputs) + 1]{};
  PartitionSpec specs[static_cast<std::size_t>(Size.specs) + 1]{};
  int node_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  int operand_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  int output_begin[static_cast<std::size_t>(Size.graphs) + 1]{};

  constexpr FrozenProgram() = default;
  constexpr explicit FrozenProgram(const Module& module) {
    for (int g = 0; g < Size.graphs; ++g) {
      const Graph& graph = module.graphs[static_cast<std::size_t>(g)];
      int node = node_begin[g], operand = operand_begin[g], output = output_begin[g];
      for (const Node& n : graph.nodes) nodes[node++] = n;
      for (std::int32_t id : graph.operands) operands[operand++] = id;
      for (std::int32_t id : graph.outputs) outputs[output++] = id;
      node_begin[g + 1] = node;
      operand_begin[g + 1] = operand;
      output_begin[g + 1] = output;
    }
    for (int s = 0; s < Size.specs; ++s) specs[s] = module.specs[static_cast<std::size_t>(s)];
  }

  constexpr GraphView graph(int g) const {
    return {nodes + node_begin[g], operands + operand_begin[g], outputs + output_begin[g],
            node_begin[g + 1] - node_begin[g], output_begin[g + 1] - output_begin[g]};
  }
};

}  // namespace tessera

#endif
