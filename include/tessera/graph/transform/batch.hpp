#ifndef TESSERA_GRAPH_TRANSFORM_BATCH_HPP
#define TESSERA_GRAPH_TRANSFORM_BATCH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/defined_in_ops.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/graph/ir/value.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A value of one example, in the graph of all examples.
struct Batched {
  std::int32_t id = -1;
  std::int8_t dim = -1;  ///< the dim that counts examples; -1: the value is the same for all examples
};

/// A graph that computes one example, and the graph in which its nodes are made for all examples at once.
struct Batching {
  Module* module = nullptr;
  int one = 0, all = 0;
  Growable<Batched> values{};     ///< by node of `one`
  Batched reference{};            ///< a value that differs between examples: it has their number
  std::int32_t examples_id = -1;  ///< a vector with an element for each example; -1: not made yet

  constexpr Value value(std::int32_t id, Source source) const { return {module, all, id, source}; }
  /// A vector with an element for each example, of which only the shape is used.
  constexpr Value examples(Source source) {
    if (examples_id < 0) {
      const Value count = build::extent(value(reference.id, source), reference.dim);
      examples_id = build::arange(count).id;
    }
    return value(examples_id, source);
  }
  /// v, repeated along a new leading dim of examples.
  constexpr Value repeated(Value v) {
    Value like = examples(v.source);
    if (v.rank() > 0) {  // only the shape of the sum is used, so it is never computed
      const unsigned behind = ((1u << v.rank()) - 1) << 1;
      like = build::insert_singletons(like, behind, v.rank() + 1) + build::cast(v, DType::i32);
    }
    return build::broadcast(v, like);
  }
  /// A value that differs between examples, with dim 0 for these.
  constexpr Value leading(Batched& v, Source source) const {
    if (v.dim > 0) v = {build::move_dim(value(v.id, source), v.dim, 0).id, 0};
    return value(v.id, source);
  }
  constexpr Value full(Batched& v, Source source) {
    return v.dim < 0 ? repeated(value(v.id, source)) : leading(v, source);
  }
};

/// What a batching rule works with: one node of the graph of one example. At least one of its operands differs between
/// examples.
class Batch {
 public:
  constexpr Batch(Batching& batching, int id)
      : batching_(batching), id_(id), node_(batching.module->graph(batching.one)[id]) {}

  constexpr const Node& node() const { return node_; }
  constexpr int arity() const { return node_.arity; }
  /// The node with a leading dim of examples.
  constexpr Node batched() const {
    Node made = node_;
    made.rank = static_cast<std::uint8_t>(made.rank + 1);
    made.singletons = static_cast<std::uint8_t>(made.singletons << 1);
    return made;
  }
  /// The type of operand i of one example.
  constexpr const Node& one(int i) const { return batching_.module->graph(batching_.one)[operand(i)]; }

  constexpr bool has(int i) const { return operand(i) >= 0; }
  /// Whether operand i differs between examples.
  constexpr bool differs(int i) const { return has(i) && own(i).dim >= 0; }
  /// Operand i: if it differs between examples, with a leading dim of examples.
  constexpr Value x(int i) const {
    return differs(i) ? batching_.leading(own(i), node_.source) : batching_.value(own(i).id, node_.source);
  }
  /// Operand i with a leading dim of examples, in full extent.
  constexpr Value full(int i) const { return batching_.full(own(i), node_.source); }
  /// Operand i with a leading dim of examples, which has extent 1 if the operand is the same for all examples.
  constexpr Value leading(int i) const {
    const Value v = x(i);
    return differs(i) ? v : build::insert_singletons(v, 1, v.rank() + 1);
  }
  /// Operand i for an operation that aligns trailing dims: the dim of examples is in front of `rank` dims.
  constexpr Value aligned(int i, int rank) const {
    const Value v = x(i);
    const int missing = rank + 1 - v.rank();
    return differs(i) ? build::insert_singletons(v, ((1u << missing) - 1) << 1, rank + 1) : v;
  }
  /// The number of examples.
  constexpr Value count() const { return build::extent(batching_.examples(node_.source), 0); }
  /// A value of which only the shape is used: that of operand i of one example.
  constexpr Value shape_of_one(int i) const {
    const Value v = x(i);
    return differs(i) ? build::sum_of(build::cast(v, DType::f32), 1) : v;
  }

  constexpr Batched make(const Node& made, const Growable<std::int32_t>& operands) const {
    Node own = made;
    own.source = node_.source;
    return {batching_.module->graph(batching_.all).add(own, operands.data(), static_cast<int>(operands.size())), 0};
  }
  static constexpr Batched all(const Value& v) { return {v.id, 0}; }
  static constexpr Batched same(const Value& v) { return {v.id, -1}; }
  constexpr Module& module() const { return *batching_.module; }

 private:
  Batching& batching_;
  int id_;
  Node node_;

  constexpr int operand(int i) const { return batching_.module->graph(batching_.one).operand(id_, i); }
  constexpr Batched& own(int i) const { return batching_.values[static_cast<std::size_t>(operand(i))]; }
};

/// Makes a node for all examples at once. Without an id: the rule does not cover the node, which then runs in a loop
/// over examples.
using BatchRule = Batched (*)(const Batch&);
TESSERA_DEFINED_IN_OPS_BEGIN
/// Null: an operation without a rule. Defined in ops/rows.hpp.
constexpr BatchRule batch_rule_of(Op op);
TESSERA_DEFINED_IN_OPS_END

/// Operands as they are, or with a full leading dim of examples if `full` has their bit.
constexpr Growable<std::int32_t> batched_operands(const Batch& b, unsigned full) {
  Growable<std::int32_t> made;
  for (int i = 0; i < b.arity(); ++i)
    made.push_back(!b.has(i) ? -1 : i < 32 && (full >> i & 1u) != 0 ? b.full(i).id : b.x(i).id);
  return made;
}
/// The rule of an operation that leaves leading dims alone and counts no dims: its tensors get a leading dim.
constexpr Batched batch_leading(const Batch& b) {
  unsigned tensors = 0;
  for (int i = 0; i < b.arity(); ++i)
    if (b.has(i) && (b.one(i).rank > 0 || b.differs(i))) tensors |= 1u << i;
  return b.make(b.batched(), batched_operands(b, tensors));
}
/// The rule of an operation along a dim, which is its first attribute: see dim_of.
constexpr Batched batch_along_dim(const Batch& b) {
  Growable<std::int32_t> operands;
  for (int i = 0; i < b.arity(); ++i) {
    if (b.has(i) && b.one(i).rank == 0 && b.differs(i)) return {};
    operands.push_back(!b.has(i) ? -1 : b.one(i).rank == 0 ? b.x(i).id : b.full(i).id);
  }
  Node made = b.batched();
  ++made.labels[0];
  return b.make(made, operands);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
