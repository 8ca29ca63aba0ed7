#ifndef TESSERA_OPS_VMAP_EXAMPLE_ROWS_HPP
#define TESSERA_OPS_VMAP_EXAMPLE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/data_movement/rearrange_rows.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/reduction/reduction_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

// Collectives over the examples of a ts::vmap. They are only in the graph of one example: as vmap makes the nodes of
// all examples, they become reductions over the dim of examples, or nothing. Operand 1 is the index of the example in
// the vmap that the collective names. In the graph of a vmap over another axis, this index is the same for all
// examples.

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace build {

/// The sum over the examples; the same for all of them.
constexpr Value sum_examples(Value x, Value index) {
  return x.make({.op = Op::sum_examples, .dtype = x.dtype(), .rank = x.node().rank, .singletons = x.node().singletons},
                {x.id, index.id});
}
/// The values of all examples along a new dim; the same for all of them.
constexpr Value gather_examples(Value x, Value index, int dim) {
  const Node& from = x.node();
  const unsigned low = (1u << dim) - 1;
  return x.make({.op = Op::gather_examples,
                 .dtype = from.dtype,
                 .rank = static_cast<std::uint8_t>(from.rank + 1),
                 .singletons = static_cast<std::uint8_t>((from.singletons & low) | (from.singletons & ~low) << 1),
                 .labels = pack_dim(dim)},
                {x.id, index.id});
}
/// What a value has at the index of the example in a dim, without that dim.
constexpr Value own_example(Value x, Value index, int dim) {
  const Node& from = x.node();
  const unsigned low = (1u << dim) - 1;
  return x.make({.op = Op::own_example,
                 .dtype = from.dtype,
                 .rank = static_cast<std::uint8_t>(from.rank - 1),
                 .singletons = static_cast<std::uint8_t>((from.singletons & low) | (from.singletons >> 1 & ~low)),
                 .labels = pack_dim(dim)},
                {x.id, index.id});
}

}  // namespace build

namespace ops {

constexpr OpRow example_row(std::string_view name, bool recomputed) {
  return {.name = name,
          .unit = UnitKind::data_movement,
          .arity = 2,
          .linear = Linearity::first,
          .flops = 0,
          .recomputed = recomputed};
}
constexpr BrokenRule check_index_of_example(const NodeCheck& c) {
  return c.x(1).rank == 0 && c.x(1).dtype == DType::i32 && c.x(0).dtype == c.node().dtype
             ? BrokenRule{}
             : "the index of an example is an i32 of rank 0";
}
constexpr BrokenRule check_dim_of_examples(const NodeCheck& c, const Node& with_dim, const Node& without) {
  if (with_dim.rank != without.rank + 1 || dim_of(c.node()) < 0 || dim_of(c.node()) >= with_dim.rank)
    return "the dim of examples is a dim of the operand or of the result";
  return check_index_of_example(c);
}
/// In a vmap over another axis: the node with a leading dim of that vmap's examples before its own dims.
constexpr Batched batch_beside(const Batch& b) {
  Node made = b.batched();
  if (b.node().op != Op::sum_examples) ++made.labels[0];
  return b.make(made, {b.full(0).id, b.x(1).id});
}

struct SumExamplesOp {
  static constexpr OpRow row = example_row("sum_examples", false);
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, build::sum_examples(r.full_g(), r.operand(1))); };
  static constexpr BatchRule batch = [](const Batch& b) {
    if (!b.differs(1)) return batch_beside(b);
    const Value x = b.x(0);
    return Batch::same(b.differs(0) ? build::cast(build::sum_of(x, 1), x.dtype())
                                    : x * build::cast(b.count(), x.dtype()));
  };
  static constexpr CheckRule check = [](const NodeCheck& c) {
    return same_type(c.node(), c.x(0)) ? check_index_of_example(c)
                                       : BrokenRule("the result has the type of the operand");
  };
};

struct GatherExamplesOp {
  static constexpr OpRow row = example_row("gather_examples", true);
  static constexpr GradientRule gradient = [](Gradient& r) {
    r.add(0, build::own_example(build::sum_examples(r.full_g(), r.operand(1)), r.operand(1), dim_of(r.node())));
  };
  static constexpr BatchRule batch = [](const Batch& b) {
    return b.differs(1) ? Batch::same(build::move_dim(b.full(0), 0, dim_of(b.node()))) : batch_beside(b);
  };
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_dim_of_examples(c, c.node(), c.x(0)); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct OwnExampleOp {
  static constexpr OpRow row = example_row("own_example", true);
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value all = build::gather_examples(r.full_g(), r.operand(1), dim_of(r.node()));
    const Value is_own = build::equal(build::iota(r.x(0), dim_of(r.node()), DType::i32), r.operand(1));
    r.add(0, build::select(is_own, all, all.number(0)));
  };
  static constexpr BatchRule batch = [](const Batch& b) -> Batched {
    if (!b.differs(1)) return batch_beside(b);
    const int dim = dim_of(b.node());
    if (!b.differs(0)) return Batch::all(build::move_dim(b.x(0), dim, 0));
    const Value x = b.x(0);
    const Value is_own = build::equal(build::iota(x, 0, DType::i32), build::iota(x, dim + 1, DType::i32));
    return Batch::all(build::cast(build::sum_of(build::select(is_own, x, x.number(0)), 2u << dim), x.dtype()));
  };
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_dim_of_examples(c, c.x(0), c.node()); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using ExampleOperations = OperationList<SumExamplesOp, GatherExamplesOp, OwnExampleOp>;

}  // namespace ops
}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
