#ifndef TESSERA_GRAPH_IR_VALUE_HPP
#define TESSERA_GRAPH_IR_VALUE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>

#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/graph.hpp>
#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/precision.hpp>

namespace tessera {

/// A node of a graph under construction, untyped: what rows, gradients and the typed front are written with.
struct Value {
  Module* module = nullptr;
  int graph = 0;
  int id = -1;
  Source source{};  ///< given to the nodes that are made from this value

  constexpr const Node& node() const { return module->graphs[static_cast<std::size_t>(graph)].nodes.data()[id]; }
  constexpr int rank() const { return node().rank; }
  constexpr DType dtype() const { return node().dtype; }
  constexpr bool is_unit(int dim) const { return (node().unit >> dim & 1) != 0; }
  constexpr Value at(Source where) const { return {module, graph, id, where}; }
  constexpr void refuse(errc rule, const char* text) const { module->refuse(rule, text, source); }
  constexpr Value with(int other) const { return {module, graph, other, source}; }
  constexpr Value make(Node made, std::initializer_list<std::int32_t> operands) const {
    return make(made, operands.begin(), static_cast<int>(operands.size()));
  }
  constexpr Value make(Node made, const std::int32_t* operands, int arity) const {
    made.source = source;
    return with(module->graph(graph).add(made, operands, arity));
  }
  constexpr Value number(double value, DType type) const {
    return make({.op = Op::constant, .dtype = type, .value = value}, {});
  }
  constexpr Value number(double value) const { return number(value, dtype()); }
  constexpr Value integer(std::int64_t value, DType type) const { return make(integer_node(value, type), {}); }
  constexpr bool is_number(double value) const {
    const Node& own = node();
    return own.op == Op::constant && own.value == value;
  }
  friend constexpr bool operator==(const Value& x, const Value& y) { return x.graph == y.graph && x.id == y.id; }
};

namespace build {

/// The dims along which x extends, as bits of the dims of a value of the given rank that x is broadcast to.
constexpr unsigned extending_dims(const Node& x, int rank) {
  const unsigned own = ~unsigned{x.unit} & ((1u << x.rank) - 1);
  return rank >= x.rank ? own << (rank - x.rank) : own >> (x.rank - rank);
}

/// Rank and static unit dims of operands broadcast against each other, trailing dims aligned.
constexpr void broadcast_type(Node& made, const Node& x, const Node& y) {
  made.rank = x.rank > y.rank ? x.rank : y.rank;
  // Dims of an operand that are not of static extent 1, shifted to their positions in the result.
  const unsigned extends = (~x.unit & ((1u << x.rank) - 1)) << (made.rank - x.rank) | (~y.unit & ((1u << y.rank) - 1))
                                                                                          << (made.rank - y.rank);
  made.unit = static_cast<std::uint8_t>(~extends & ((1u << made.rank) - 1));
}

constexpr Value unary(Op op, Value x) {
  const Node& from = x.node();
  const DType made = row_of(op).predicate ? DType::bool_ : from.dtype;
  return x.make({.op = op, .dtype = made, .rank = from.rank, .unit = from.unit}, &x.id, 1);
}
constexpr Value binary(Op op, Value x, Value y) {
  const Node &a = x.node(), &b = y.node();
  Node made{.op = op, .dtype = row_of(op).predicate ? DType::bool_ : a.dtype};
  broadcast_type(made, a, b);
  const std::int32_t operands[] = {x.id, y.id};
  return x.make(made, operands, 2);
}
constexpr Value cast(Value x, DType type) {
  const Node& from = x.node();
  if (from.dtype == type) return x;
  if (from.op == Op::constant)
    return x.make({.op = Op::constant, .dtype = type, .labels = from.labels, .value = from.value}, {});
  // Back to where it came from: nothing was lost on the way.
  if (from.op == Op::cast && type == DType::bf16)
    if (const Value origin = x.with(x.module->graph(x.graph).operand(x.id, 0)); origin.dtype() == type) return origin;
  return x.make({.op = Op::cast, .dtype = type, .rank = from.rank, .unit = from.unit}, &x.id, 1);
}
[[noreturn]] inline void fail_number_is_no_value_of_the_element_type(double number, DType type, Source source) {
  const std::string at = source.text();
  const bool prints_whole = number > -9e18 && number < 9e18;
  fail(errc::dtype_mismatch,
       "[number] range: ", prints_whole ? std::to_string(static_cast<long long>(number)) : std::to_string(number),
       " is no value of ", name_of(type), at.empty() ? "" : " at ", at);
}
[[noreturn]] inline void fail_rate_is_not_between_0_and_1(double rate, Source source) {
  const std::string at = source.text();
  fail(errc::option, "[dropout] rate: ", rate, " is not between 0 and 1", at.empty() ? "" : " at ", at);
}
constexpr void check_number(NumberRule rule, DType type, double number, Source source) {
  if (keeps(rule, type, number)) return;
  if (rule == NumberRule::probability) fail_rate_is_not_between_0_and_1(number, source);
  fail_number_is_no_value_of_the_element_type(number, type, source);
}
/// A number in another type, which keeps the rule: a constant now, another when its value is known.
constexpr Value checked_cast(Value x, DType type, NumberRule rule) {
  const Node& from = x.node();
  if (from.op == Op::constant) {
    if (std::is_constant_evaluated() && !keeps(rule, type, from.value))
      x.refuse(errc::dtype_mismatch, rule == NumberRule::probability
                                         ? "[dropout] rate: it is not between 0 and 1"
                                         : "[number] range: it is no value of the element type");
    else
      check_number(rule, type, from.value, x.source);
    return x.number(from.value, type);
  }
  Labels labels{};
  labels[0] = static_cast<std::int8_t>(rule);
  return x.make({.op = Op::cast, .dtype = type, .labels = labels}, &x.id, 1);
}
/// A cast of a cotangent, of which it is enough that it isn't less precise: the detour by bf16 is left out.
constexpr Value uncast(Value x, DType type) {
  if (const Node& from = x.node(); from.op == Op::cast && from.dtype == DType::bf16)
    if (const Value origin = x.with(x.module->graph(x.graph).operand(x.id, 0)); origin.dtype() == type) return origin;
  return cast(x, type);
}
constexpr Value select(Value condition, Value yes, Value no) {
  Node made{.op = Op::select, .dtype = yes.dtype()};
  broadcast_type(made, yes.node(), no.node());
  const Node branches = made;
  broadcast_type(made, condition.node(), branches);
  return yes.make(made, {condition.id, yes.id, no.id});
}

/// Reduces the dims in the bit set.
constexpr Value reduce(Op op, Value x, unsigned dims, bool keep) {
  const Reduction reduction = row_of(op).reduction;
  const DType whole = reduced_type(reduction, x.dtype()), partial = partial_type(reduction, x.dtype());
  if (dims == 0) return cast(x, whole);
  if (x.dtype() != partial) return cast(reduce(op, cast(x, partial), dims, keep), whole);
  Node made{.op = op, .dtype = x.dtype()};
  for (int d = 0; d < x.rank(); ++d) {
    const bool reduced = (dims >> d & 1) != 0;
    if (reduced && !keep) continue;
    if (reduced || x.is_unit(d)) made.unit = static_cast<std::uint8_t>(made.unit | 1u << made.rank);
    ++made.rank;
  }
  made.labels = Reduced{static_cast<std::uint8_t>(dims), keep}.pack();
  return x.make(made, {x.id});
}

/// Of bf16 the result is f32.
constexpr Value einsum(Value a, Value b, const EinsumLabels& labels, Precision precision = Precision::full) {
  Node made{.op = Op::einsum,
            .dtype = computed_as(a.dtype()),
            .labels = labels.pack(),
            .value = static_cast<double>(static_cast<int>(precision))};
  for (int d = 0; d < max_rank && labels.out[d] >= 0; ++d) {
    bool unit = true;
    for (int i = 0; i < a.rank(); ++i)
      if (labels.a[i] == labels.out[d] && !a.is_unit(i)) unit = false;
    for (int i = 0; i < b.rank(); ++i)
      if (labels.b[i] == labels.out[d] && !b.is_unit(i)) unit = false;
    if (unit) made.unit = static_cast<std::uint8_t>(made.unit | 1u << d);
    ++made.rank;
  }
  return a.make(made, {a.id, b.id});
}

/// `sizes[f]` is the node of factor f's size, -1 where it is inferred. Messages leave out the first `hidden` dims.
constexpr Value rearrange(Value x, int out_rank, const Factors& factors, const std::int32_t* sizes, int hidden = 0) {
  Node made{.op = Op::rearrange,
            .dtype = x.dtype(),
            .rank = static_cast<std::uint8_t>(out_rank),
            .labels = factors.pack(),
            .value = static_cast<double>(hidden)};
  std::int32_t operands[max_rank + 1]{x.id};
  bool sized = false, in_order = factors.keeps_order() && out_rank == x.rank();
  for (int f = 0; f < factors.count; ++f) {
    operands[f + 1] = sizes ? sizes[f] : -1;
    sized = sized || operands[f + 1] >= 0;
    in_order = in_order && factors.in_dim[f] == factors.out_dim[f];
  }
  for (int d = 0; d < out_rank; ++d) {
    bool unit = true;  // no factor, or factors of unit dims alone
    for (int p = 0; p < factors.count; ++p)
      if (factors.out_dim[p] == d && !x.is_unit(factors.in_dim[static_cast<int>(factors.order[p])])) unit = false;
    if (unit) made.unit = static_cast<std::uint8_t>(made.unit | 1u << d);
  }
  if (in_order && made.unit == x.node().unit) return x;
  return x.make(made, operands, sized ? factors.count + 1 : 1);
}

/// Inserts static dims of extent 1 where the bits of `units` say (positions in the result).
constexpr Value insert_units(Value x, unsigned units, int out_rank) {
  if (units == 0) return x;
  Factors f{};
  int d = 0;
  for (int out = 0; out < out_rank; ++out) {
    if ((units >> out & 1) != 0) continue;
    if (!x.is_unit(d)) {
      f.in_dim[f.count] = static_cast<std::int8_t>(d);
      f.order[f.count] = f.count;
      f.out_dim[f.count++] = static_cast<std::int8_t>(out);
    }
    ++d;
  }
  return rearrange(x, out_rank, f, nullptr);
}

constexpr Value drop_units(Value x, unsigned dims) {
  if (dims == 0) return x;
  Factors f{};
  int out = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if ((dims >> d & 1) != 0) continue;
    if (!x.is_unit(d)) {
      f.in_dim[f.count] = static_cast<std::int8_t>(d);
      f.order[f.count] = f.count;
      f.out_dim[f.count++] = static_cast<std::int8_t>(out);
    }
    ++out;
  }
  return rearrange(x, out, f, nullptr);
}

/// The earliest value that has the shape of x by construction. Shapes are read from it, so that nothing is kept alive,
/// or computed again, for its shape alone.
constexpr Value shape_source(Value x) {
  const Graph& graph = x.module->graph(x.graph);
  for (;;) {
    const Node& node = graph[x.id];
    if (node.op == Op::iota || node.op == Op::random) {
      x.id = graph.operand(x.id, 0);
      continue;
    }
    if (row_of(node).kind != OpKind::elementwise) return x;
    int next = -1;
    for (int i = 0; i < node.arity && next < 0; ++i)
      if (same_static_shape(graph.operand_node(x.id, i), node)) next = graph.operand(x.id, i);
    if (next < 0) return x;
    x.id = next;
  }
}

/// x spread over the shape of `like`; x itself when nothing is to be spread.
constexpr Value broadcast(Value x, Value like) {
  if (same_static_shape(x.node(), like.node())) return x;
  like = shape_source(like);
  return x.make({.op = Op::broadcast, .dtype = x.dtype(), .rank = like.node().rank, .unit = like.node().unit},
                {x.id, like.id});
}

/// The transpose of broadcasting: sums x down to the dims of `like`, which x was broadcast from.
constexpr Value sum_to(Value x, Value like) {
  const Node &from = x.node(), &to = like.node();
  const int missing = from.rank - to.rank;
  const unsigned lead = missing > 0 ? (1u << missing) - 1 : 0u;
  unsigned units = (missing >= 0 ? unsigned{to.unit} << missing : unsigned{to.unit} >> -missing) & ~unsigned{from.unit};
  if (missing > 0) {
    x = reduce(Op::sum, x, lead, false);
    units >>= missing;
  }
  return reduce(Op::sum, x, units, true);
}

constexpr Value extent(Value x, int dim) {
  if (x.is_unit(dim)) return x.number(1, DType::i64);
  x = shape_source(x).at(x.source);
  return x.make({.op = Op::extent, .dtype = DType::i64, .labels = pack_dim(dim)}, {x.id});
}
constexpr Value iota(Value like, int dim, DType type) {
  like = shape_source(like).at(like.source);
  return like.make(
      {.op = Op::iota, .dtype = type, .rank = like.node().rank, .unit = like.node().unit, .labels = pack_dim(dim)},
      {like.id});
}
constexpr Value slice(Value x, int dim, Value start, Value size) {
  Node made{.op = Op::slice, .dtype = x.dtype(), .rank = x.node().rank, .unit = x.node().unit, .labels = pack_dim(dim)};
  if (size.is_number(1)) made.unit = static_cast<std::uint8_t>(made.unit | 1u << dim);
  return x.make(made, {x.id, start.id, size.id});
}
constexpr Value pad(Value x, int dim, Value start, Value like) {
  return x.make(
      {.op = Op::pad, .dtype = x.dtype(), .rank = like.node().rank, .unit = like.node().unit, .labels = pack_dim(dim)},
      {x.id, start.id, like.id});
}
/// Zeros around x along a dim, to a given extent.
constexpr Value pad_to(Value x, int dim, Value start, Value extent) {
  Node made{.op = Op::pad, .dtype = x.dtype(), .rank = x.node().rank, .unit = x.node().unit, .labels = pack_dim(dim)};
  made.unit = static_cast<std::uint8_t>(made.unit & ~(1u << dim));
  return x.make(made, {x.id, start.id, extent.id});
}
constexpr Value project(Value repeat, int output, const Node& type) {
  return repeat.make({.op = Op::project,
                      .dtype = type.dtype,
                      .rank = type.rank,
                      .unit = type.unit,
                      .value = static_cast<double>(output)},
                     {repeat.id});
}

}  // namespace build

constexpr Value operator+(Value x, Value y) {
  if (y.is_number(0) && x.rank() >= y.rank()) return x;
  if (x.is_number(0) && y.rank() >= x.rank()) return y;
  return build::binary(Op::add, x, y);
}
constexpr Value operator-(Value x) { return build::unary(Op::neg, x); }
constexpr Value operator-(Value x, Value y) {
  if (y.is_number(0)) return x;
  return build::binary(Op::sub, x, y);
}
constexpr Value operator*(Value x, Value y) {
  if (y.is_number(1)) return x;
  if (x.is_number(1)) return y;
  return build::binary(Op::mul, x, y);
}
constexpr Value operator/(Value x, Value y) {
  if (y.is_number(1)) return x;
  return build::binary(Op::div, x, y);
}
constexpr Value operator+(Value x, double y) { return x + x.number(y); }
constexpr Value operator-(Value x, double y) { return x - x.number(y); }
constexpr Value operator-(double x, Value y) { return y.number(x) - y; }
constexpr Value operator*(Value x, double y) { return x * x.number(y); }
constexpr Value operator*(double x, Value y) { return y * x; }
constexpr Value operator/(double x, Value y) { return y.number(x) / y; }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
