#ifndef TESSERA_GRAPH_FUSE_NODE_READS_HPP
#define TESSERA_GRAPH_FUSE_NODE_READS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/groups.hpp>
#include <tessera/graph/fuse/node_spaces.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// The nodes of a graph with their iteration spaces, the values whose elements each node reads, and the nodes that read
/// its elements: what a Grouper asks of each node many times.
class NodeReads {
 protected:
  /// What grouping knows about one node.
  struct NodeState : NodeGroup {
    Space space;
    std::int32_t uses = 0;
    std::int32_t absorbed = -1;  ///< of an einsum: the addition that absorbs it
    /// the values whose elements it reads, host scalars excluded: a range of reads_
    std::int32_t first_read = 0, last_read = 0;
    std::int32_t first_reader = 0, last_reader = 0;  ///< the nodes that read its elements: a range of readers_
    bool is_output = false;
    bool is_computed = false;  ///< an output, repeat or custom call reads its elements; else only its shape is read
  };

  GraphView graph_;
  Growable<NodeState> states_;
  Growable<std::int32_t> reads_, readers_;
  NodeState* state_;  // states_ as a raw pointer, which costs no calls

  /// `spaces`: the iteration spaces of the nodes; null: they are computed.
  constexpr NodeReads(const GraphView& graph, const Space* spaces)
      : graph_(graph), states_(count(graph.size)), state_(states_.data()) {
    if (spaces != nullptr) {
      for (int id = 0; id < graph.size; ++id) state_[id].space = spaces[id];
    } else {
      const Growable<Space> own = node_spaces(graph);
      for (int id = 0; id < graph.size; ++id) state_[id].space = own.data()[id];
    }
    describe_nodes();
    list_reads();
    mark_computed();
  }
  NodeReads(const NodeReads&) = delete;
  NodeReads& operator=(const NodeReads&) = delete;

  static constexpr std::size_t count(int i) { return static_cast<std::size_t>(i); }
  constexpr NodeState& at(int id) { return state_[id]; }
  constexpr const NodeState& at(int id) const { return state_[id]; }

  constexpr bool read_once(int id) const { return !at(id).is_output && at(id).last_reader - at(id).first_reader == 1; }

 private:
  constexpr void describe_nodes() {
    NodeState* const states = states_.data();
    for (int id = 0; id < graph_.size; ++id) {
      NodeState& state = states[id];
      const Node& node = graph_.nodes[id];
      const OpRow& row = row_of(node);
      state.kind = row.kind;
      state.shape_only = static_cast<std::uint8_t>(row.shape_only & ~row.after);
      const std::int32_t* const operands = graph_.operands + node.first;
      const bool is_source = row.host_source != HostSource::no;
      bool host = node.rank == 0 && (is_source || row.kind == OpKind::elementwise);
      const bool computed = host && !is_source;
      for (int i = 0; i < node.arity; ++i)
        if (operands[i] >= 0) {
          ++states[operands[i]].uses;
          host = host && (!computed || states[operands[i]].host);
        }
      state.host = host;
    }
    for (int k = 0; k < graph_.output_count; ++k)
      if (const int id = graph_.outputs[k]; id >= 0) {
        ++states[id].uses;
        states[id].is_output = true;
      }
  }

  constexpr void list_reads() {
    NodeState* const states = state_;
    std::size_t most = 0;
    for (int id = 0; id < graph_.size; ++id) most += graph_.nodes[id].arity;
    reads_ = Growable<std::int32_t>(most);
    std::int32_t* const reads = reads_.data();
    std::int32_t next = 0;
    for (int id = 0; id < graph_.size; ++id) {
      NodeState& state = states[id];
      const Node& node = graph_.nodes[id];
      const std::int32_t* const operands = graph_.operands + node.first;
      state.first_read = next;
      for (int i = 0; i < node.arity; ++i)
        if (operands[i] >= 0 && !has_operand(state.shape_only, i) && !states[operands[i]].host)
          ++states[reads[next++] = operands[i]].last_reader;
      state.last_read = next;
    }
    // At this point last_reader is the number of readers.
    next = 0;
    for (int id = 0; id < graph_.size; ++id) {
      next += states[id].last_reader;
      states[id].first_reader = states[id].last_reader = next - states[id].last_reader;
    }
    readers_ = Growable<std::int32_t>(most);
    std::int32_t* const readers = readers_.data();
    for (int id = 0; id < graph_.size; ++id)
      for (std::int32_t r = states[id].first_read; r < states[id].last_read; ++r)
        readers[states[reads[r]].last_reader++] = id;
  }

  constexpr void mark_computed() {
    NodeState* const states = state_;
    const std::int32_t* const reads = reads_.data();
    for (int id = graph_.size - 1; id >= 0; --id) {
      NodeState& state = states[id];
      const UnitKind unit = row_of(graph_.nodes[id]).unit;
      if (state.is_output || unit == UnitKind::repeat || unit == UnitKind::custom) state.is_computed = true;
      for (std::int32_t r = state.first_read; r < state.last_read && state.is_computed; ++r)
        states[reads[r]].is_computed = true;
    }
  }
};

}  // namespace detail
}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
