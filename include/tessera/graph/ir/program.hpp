#ifndef TESSERA_GRAPH_IR_PROGRAM_HPP
#define TESSERA_GRAPH_IR_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/graph.hpp>

namespace tessera {

/// A read-only traced program: graph 0 and the bodies of its repeats.
struct ProgramView {
  const GraphView* graphs = nullptr;
  int graph_count = 0;
  const PartitionSpec* specs = nullptr;
  int argument_count = 0;  ///< leaves of the arguments, used or not
  int spec_count = 0;
  const bool* results_in_layers = nullptr;  ///< by output: whether it is a field of a Stack; null: not known

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
  constexpr bool fits(const ProgramSize& room) const {
    return graphs <= room.graphs && nodes <= room.nodes && operands <= room.operands && outputs <= room.outputs &&
           specs <= room.specs;
  }
};

/// A traced program as a constant: arrays with capacity for a program of this size. A program that is larger leaves the
/// arrays empty, and `used` says what capacity it needs.
template <ProgramSize Room> struct FrozenProgram {
  Node nodes[static_cast<std::size_t>(Room.nodes) + 1]{};
  std::int32_t operands[static_cast<std::size_t>(Room.operands) + 1]{};
  std::int32_t outputs[static_cast<std::size_t>(Room.outputs) + 1]{};
  PartitionSpec specs[static_cast<std::size_t>(Room.specs) + 1]{};
  bool results_in_layers[static_cast<std::size_t>(Room.outputs) + 1]{};
  int node_begin[static_cast<std::size_t>(Room.graphs) + 1]{};
  int operand_begin[static_cast<std::size_t>(Room.graphs) + 1]{};
  int output_begin[static_cast<std::size_t>(Room.graphs) + 1]{};
  ProgramSize used{1, 0, 0, 0, 0};
  int argument_count = 0;   ///< leaves of the arguments, used or not
  bool simplified = false;  ///< whether the program was simplified
  Refusal refusal{};

  constexpr FrozenProgram() = default;
  constexpr FrozenProgram(const Module& module, int arguments, bool is_simplified)
      : used(ProgramSize::of(module)), argument_count(arguments), simplified(is_simplified), refusal(module.refusal) {
    if (!used.fits(Room)) return;
    int node = 0, operand = 0, output = 0;
    for (int g = 0; g < used.graphs; ++g) {
      const Graph& graph = module.graphs[static_cast<std::size_t>(g)];
      for (const Node& n : graph.nodes) nodes[node++] = n;
      for (std::int32_t id : graph.operands) operands[operand++] = id;
      for (std::int32_t id : graph.outputs) outputs[output++] = id;
      node_begin[g + 1] = node;
      operand_begin[g + 1] = operand;
      output_begin[g + 1] = output;
    }
    for (int s = 0; s < used.specs; ++s) specs[s] = module.specs[static_cast<std::size_t>(s)];
    for (std::size_t k = 0; k < module.results_in_layers.size(); ++k)
      results_in_layers[k] = module.results_in_layers[k];
  }
  /// Copies a program into arrays of smaller capacity.
  template <ProgramSize Larger>
  constexpr explicit FrozenProgram(const FrozenProgram<Larger>& from)
      : used(from.used), argument_count(from.argument_count), simplified(from.simplified) {
    for (int i = 0; i < used.nodes; ++i) nodes[i] = from.nodes[i];
    for (int i = 0; i < used.operands; ++i) operands[i] = from.operands[i];
    for (int i = 0; i < used.outputs; ++i) outputs[i] = from.outputs[i];
    for (int i = 0; i < used.outputs; ++i) results_in_layers[i] = from.results_in_layers[i];
    for (int i = 0; i < used.specs; ++i) specs[i] = from.specs[i];
    for (int g = 0; g <= used.graphs; ++g) {
      node_begin[g] = from.node_begin[g];
      operand_begin[g] = from.operand_begin[g];
      output_begin[g] = from.output_begin[g];
    }
  }

  constexpr GraphView graph(int g) const {
    return {nodes + node_begin[g], operands + operand_begin[g], outputs + output_begin[g],
            node_begin[g + 1] - node_begin[g], output_begin[g + 1] - output_begin[g]};
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
