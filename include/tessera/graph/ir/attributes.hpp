#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>
#include <string_view>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/promotion.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Labels of an einsum: one small integer per dim of the two operands and of the result; -1 beyond the rank.
struct EinsumLabels {
  /// Labels are below it. Those of the leading dims of a shard_map count down from it, all others up from 0.
  static constexpr int count = 32;

  std::int8_t a[max_rank], b[max_rank], out[max_rank];

  static constexpr EinsumLabels of(const Node& node) { return std::bit_cast<EinsumLabels>(node.labels); }
  constexpr Labels pack() const { return std::bit_cast<Labels>(*this); }
};

/// A rearrange splits the operand's dims into factors, permutes the factors, and merges them into the result's dims. A
/// dim without factors has static extent 1. Operand 1 + f is the extent of factor f; it is absent where the extent
/// follows from the others.
struct Factors {
  std::int8_t count = 0;
  /// operand dim of factor f; factors of a dim are consecutive, the most significant first
  std::int8_t in_dim[max_rank]{};
  std::int8_t order[max_rank]{};    ///< factor at position p of the result
  std::int8_t out_dim[max_rank]{};  ///< result dim of position p, ascending

  static constexpr Factors of(const Node& node) {
    Factors f{};
    while (f.count < max_rank && node.labels[static_cast<std::size_t>(f.count)] >= 0) ++f.count;
    for (int p = 0; p < f.count; ++p) {
      f.in_dim[p] = node.labels[static_cast<std::size_t>(p)];
      f.order[p] = node.labels[static_cast<std::size_t>(p + 8)];
      f.out_dim[p] = node.labels[static_cast<std::size_t>(p + 16)];
    }
    return f;
  }
  constexpr Labels pack() const {
    Labels labels{};
    for (auto& label : labels) label = -1;
    for (int p = 0; p < count; ++p) {
      labels[static_cast<std::size_t>(p)] = in_dim[p];
      labels[static_cast<std::size_t>(p + 8)] = order[p];
      labels[static_cast<std::size_t>(p + 16)] = out_dim[p];
    }
    return labels;
  }
  constexpr bool keeps_order() const {
    for (int p = 0; p < count; ++p)
      if (order[p] != p) return false;
    return true;
  }
};

/// Which extreme the position is of that a reduction finds.
enum class PositionOf : std::int8_t { nothing, argmax, argmin };

/// The dims that a reduction reduces, and whether the result keeps them with extent 1.
struct Reduced {
  std::uint8_t dims = 0;  ///< bit d: dim d is reduced
  bool keep = false;
  bool constant = false;  ///< no gradient: a shift that cancels in its use, such as the maximum in a softmax
  PositionOf position = PositionOf::nothing;  ///< a position exists only where there are elements

  static constexpr Reduced of(const Node& node) {
    return {static_cast<std::uint8_t>(node.labels[0]), node.labels[1] != 0, node.labels[2] != 0,
            static_cast<PositionOf>(node.labels[3])};
  }
  constexpr Labels pack() const {
    Labels labels{};
    labels[0] = static_cast<std::int8_t>(dims);
    labels[1] = keep ? 1 : 0;
    labels[2] = constant ? 1 : 0;
    labels[3] = static_cast<std::int8_t>(position);
    return labels;
  }
  constexpr bool has(int dim) const { return (dims >> dim & 1) != 0; }
};

/// The dim along which slice, pad, concat, extent, iota, cumulative operations and sorts work, or the first of which
/// patches are windows.
constexpr int dim_of(const Node& node) { return node.labels[0]; }
constexpr Labels pack_dim(int dim) {
  Labels labels{};
  labels[0] = static_cast<std::int8_t>(dim);
  return labels;
}

/// The public function that made a node of data movement, where errors of the node name that function.
enum class MadeBy : std::int8_t {
  operation,
  squeeze,
  select,
  accumulate,
  pipeline,
  broadcast_to,
  broadcast_like,
  reshape,
  vjp,
  jvp,
  hvp,
  custom_vjp,
  pad,
  convolution,
  fori_loop
};
constexpr std::string_view name_of(MadeBy by) {
  constexpr std::string_view names[] = {
      "",    "squeeze", "select", "accumulate", "pipeline", "broadcast_to", "broadcast_like", "reshape",
      "vjp", "jvp",     "hvp",    "custom_vjp", "pad",      "conv",         "fori_loop"};
  return names[static_cast<int>(by)];
}
constexpr Labels pack_dim(int dim, MadeBy by) {
  Labels labels = pack_dim(dim);
  labels[1] = static_cast<std::int8_t>(by);
  return labels;
}
constexpr Labels pack_maker(MadeBy by) { return pack_dim(0, by); }
/// Of a slice, a broadcast or an arange; a rearrange has a RearrangeOrigin.
constexpr MadeBy maker_of(const Node& node) { return static_cast<MadeBy>(node.labels[1]); }

/// Which values a cast accepts from a host scalar whose value is known only when the program is planned or runs.
enum class NumberRule : std::int8_t {
  any,
  of_its_type,     ///< those of the integer type to which it casts
  rate,            ///< of a dropout: from 0 to 1
  probability,     ///< of a distribution: from 0 to 1
  positive,        ///< a parameter of a distribution
  quantile,        ///< from 0 to 1
  top_p,           ///< of top_p_logits: from 0 to 1
  min_p,           ///< of min_p_logits: from 0 to 1
  rotary_factor,   ///< at least 1
  rotary_context,  ///< positions of the original context, above 0
  rotary_range,    ///< high_freq_factor - low_freq_factor, above 0
};
constexpr NumberRule number_rule(const Node& cast) { return static_cast<NumberRule>(cast.labels[0]); }
constexpr Labels pack_rule(NumberRule rule) {
  Labels labels{};
  labels[0] = static_cast<std::int8_t>(rule);
  return labels;
}
/// Whether a cast rounds the parts of a partial value, which are summed behind it, instead of their sum.
constexpr bool casts_parts(const Node& cast) { return cast.labels[1] != 0; }
constexpr Labels pack_cast_of_parts() {
  Labels labels{};
  labels[1] = 1;
  return labels;
}
constexpr bool keeps(NumberRule rule, DType type, double number) {
  if (rule == NumberRule::of_its_type) return holds(type, number);
  if (rule == NumberRule::rotary_factor) return number >= 1;
  if (rule == NumberRule::positive || rule == NumberRule::rotary_context || rule == NumberRule::rotary_range)
    return number > 0;
  return rule == NumberRule::any || (number >= 0 && number <= 1);
}

/// Options of cumsum and cumprod, and attributes of their nodes.
struct CumulativeOptions {
  bool reverse = false;    ///< from the last element to the first
  bool exclusive = false;  ///< each result combines the elements before it, without the element itself

  static constexpr CumulativeOptions of(const Node& node) { return {node.labels[1] != 0, node.labels[2] != 0}; }
  constexpr Labels pack(int dim) const {
    Labels labels = pack_dim(dim);
    labels[1] = reverse ? 1 : 0;
    labels[2] = exclusive ? 1 : 0;
    return labels;
  }
};

/// The order of a sort. NaN comes last in both.
enum class Order : std::int8_t { ascending, descending };

constexpr Order order_of(const Node& argsort) { return static_cast<Order>(argsort.labels[1]); }
constexpr Labels pack_order(int dim, Order order) {
  Labels labels = pack_dim(dim);
  labels[1] = static_cast<std::int8_t>(order);
  return labels;
}

/// What scatter and scatter_add do with the elements at one index: the last one replaces what was there, or a reduction
/// combines all of them with it.
struct ScatterRule {
  bool replaces = false;
  Reduction reduction = Reduction::sum;

  static constexpr ScatterRule of(const Node& scatter) {
    return {scatter.labels[1] != 0, static_cast<Reduction>(scatter.labels[2])};
  }
  constexpr Labels pack(int dim) const {
    Labels labels = pack_dim(dim);
    labels[1] = replaces ? 1 : 0;
    labels[2] = static_cast<std::int8_t>(reduction);
    return labels;
  }
};

/// The name of the mesh axis in the attributes of axis_size and permute nodes.
constexpr Labels pack_axis(const Name& name) {
  Labels labels{};
  for (std::size_t i = 0; i <= Name::max_length; ++i) labels[i] = static_cast<std::int8_t>(name.text[i]);
  return labels;
}
constexpr Name axis_of(const Node& node) {
  Name name;
  for (std::size_t i = 0; i <= Name::max_length; ++i) name.text[i] = static_cast<char>(node.labels[i]);
  return name;
}

/// A call of a Stack or of ts::scan. Operands: `carried` values, then `stacked` values (dim 0 counts layers), then
/// invariants. Outputs: the carried values after the last layer, then stacked results. node.value is the index of the
/// body's graph.
struct Repeat {
  std::int32_t carried = 0, stacked = 0;
  bool reverse = false;  ///< layers run from the last to the first
  bool counted = false;  ///< no operand is stacked, so the last operand is the number of layers
  bool scan = false;     ///< of ts::scan, which may have no steps; otherwise of a Stack
  /// The last operand before that number is how many layers run, an integer known only when the program runs: layers
  /// from 0, which is not in the plan. Results of other layers are zeros.
  bool limited = false;

  static constexpr Repeat of(const Node& node) {
    const auto packed = std::bit_cast<Packed>(node.labels);
    return {packed.carried,      packed.stacked,   packed.reverse != 0,
            packed.counted != 0, packed.scan != 0, packed.limited != 0};
  }
  constexpr Labels pack() const {
    return std::bit_cast<Labels>(Packed{
        carried, stacked, std::int8_t{reverse}, std::int8_t{counted}, std::int8_t{scan}, std::int8_t{limited}, {}});
  }
  constexpr Node node(int body, const Source& source) const {
    return {.op = Op::repeat, .labels = pack(), .value = static_cast<double>(body), .source = source};
  }
  constexpr bool is_stacked(int operand) const { return operand >= carried && operand < carried + stacked; }
  /// Which operand of `arity` is the limit.
  constexpr int limit(int arity) const { return arity - (counted ? 2 : 1); }

 private:
  struct Packed {
    std::int32_t carried, stacked;
    std::int8_t reverse, counted, scan, limited, rest[12];
  };
};

/// How an argument or an output of a repeat is stored.
enum class Storage : std::int8_t {
  block,   ///< each shard in one block of memory
  layers,  ///< a tensor of a Stack: dim 0 counts its layers, each of which is a tensor with memory of its own
  layer,   ///< in a body: the current one of these layers
};
constexpr Storage storage_of(const Node& node) {
  return node.is_argument() || node.is_projection() || node.op == Op::variable ? static_cast<Storage>(node.labels[0])
                                                                               : Storage::block;
}
constexpr Node stored_as(Storage storage, Node node) {
  node.labels[0] = static_cast<std::int8_t>(storage);
  return node;
}
constexpr bool is_in_layers(const Node& node) { return storage_of(node) == Storage::layers; }

/// Which output of its repeat a projection is.
constexpr int output_of(const Node& project) { return project.index(); }
/// The projection of an output of the given type.
constexpr Node projection_node(int output, const Node& type, Storage storage = Storage::block) {
  return stored_as(storage, {.op = Op::project,
                             .dtype = type.dtype,
                             .rank = type.rank,
                             .singletons = type.singletons,
                             .value = static_cast<double>(output)});
}

/// How the cotangent of a constraint is sharded: as the value, in any way, as a spec of its own says, or, if it is what
/// a loop sums up, as the operand: the sum is reduced behind the loop, once.
enum class CotangentSharding : std::int8_t { alike, free, own_spec, stored };

/// A constraint: the index of its spec, how its cotangent is sharded, and the axes that it fixes, which another spec
/// lists. Over all other axes the partitioner chooses.
struct Constraint {
  std::int32_t spec = 0;
  CotangentSharding cotangent = CotangentSharding::alike;
  std::int8_t cotangent_spec = 0;  ///< for CotangentSharding::own_spec
  std::int8_t about = -1;          ///< index of the spec that lists the fixed axes; -1: all axes of the mesh
  bool keeps_sums = false;         ///< a value that is partial over the fixed axes stays so; readers reduce it
  /// Made by a wrapper, of a parameter or of its gradient: whole over the fixed axes where the parameter is only stored
  /// in parts. Where the fixed axes split the parameter for computations, as they split experts, it stays split.
  bool of_parameter = false;

  static constexpr Constraint of(const Node& node) {
    return {node.index(),        static_cast<CotangentSharding>(node.labels[0]),
            node.labels[1],      static_cast<std::int8_t>(node.labels[2] - 1),
            node.labels[3] != 0, node.labels[4] != 0};
  }
  constexpr void write(Node& node) const {
    node.value = spec;
    node.labels[0] = static_cast<std::int8_t>(cotangent);
    node.labels[1] = cotangent_spec;
    node.labels[2] = static_cast<std::int8_t>(about + 1);
    node.labels[3] = keeps_sums ? 1 : 0;
    node.labels[4] = of_parameter ? 1 : 0;
  }
};

/// Whether a node only checks extents, so that no value depends on it: build::same_extents, build::require_layer.
constexpr bool checks_extents(const Node& node) {
  return node.op == Op::extent && (node.arity == 2 || node.labels[3] != 0);
}

/// A value with the sharding of another.
struct Alike {
  /// With true the result has the sharding of operand 1 where that is given, such as an argument's; with false the
  /// partitioner chooses one for both, and may split what is replicated.
  bool exactly = false;
  /// What an optimizer computes for a parameter, operand 1: the node's Source has the parameter's name as `inside`.
  bool of_update = false;
  /// Of the tokens of experts, or of their cotangent: an all_to_all that its readers need is expert parallelism, which
  /// the user asks for by splitting experts and tokens over one axis.
  bool of_experts = false;

  static constexpr Alike of(const Node& node) {
    return {node.labels[0] != 0, node.labels[1] != 0, node.labels[2] != 0};
  }
  constexpr void write(Node& node) const {
    node.labels[0] = exactly ? 1 : 0;
    node.labels[1] = of_update ? 1 : 0;
    node.labels[2] = of_experts ? 1 : 0;
  }
};

/// Which distribution a random node draws from.
enum class Distribution : std::int8_t { uniform, normal };

/// Attributes of a random node: uniform in [0, 1) or standard normal. The counter of an element is its global row-major
/// index, so values don't depend on the sharding. Operand 0 gives the shape; operand 1 is the key. The generator's key
/// is fold_in(key, stream). An f64, always a host scalar, is an integer of which each layer of a repeat has its own
/// key: there it is fold_in(fold_in(key, stream), layer + 1); inside several, each folds in its layer, the outermost
/// first. An i64 can also be a tensor, and is the same key in all layers.
struct RandomDraw {
  Distribution distribution = Distribution::uniform;
  std::uint32_t stream = 0;

  static constexpr RandomDraw of(const Node& node) {
    return {static_cast<Distribution>(node.labels[0]), static_cast<std::uint32_t>(node.value)};
  }
  constexpr Labels pack() const {
    Labels labels{};
    labels[0] = static_cast<std::int8_t>(distribution);
    return labels;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
