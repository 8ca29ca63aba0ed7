#ifndef TESSERA_OPS_DATA_MOVEMENT_REARRANGE_ROWS_HPP
#define TESSERA_OPS_DATA_MOVEMENT_REARRANGE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/data_movement/factors.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source/extent_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// What errors of a rearrange say of its operand.
struct RearrangeOrigin {
  int hidden = 0;  ///< how many leading dims they leave out
  MadeBy by = MadeBy::operation;

  constexpr double pack() const { return hidden + 16 * static_cast<int>(by); }
  static constexpr RearrangeOrigin of(const Node& rearrange) {
    return {rearrange.index() % 16, static_cast<MadeBy>(rearrange.index() / 16)};
  }
};

}  // namespace tessera

namespace tessera::build {

/// The result dims of static extent 1 of a rearrange: those without factors, or with only factors of singleton dims.
constexpr std::uint8_t rearranged_singletons(const Factors& factors, const Node& from, int out_rank) {
  unsigned singletons = (1u << out_rank) - 1;
  for (int p = 0; p < factors.count; ++p)
    if (!from.is_singleton(factors.in_dim[static_cast<int>(factors.order[p])]))
      singletons &= ~(1u << factors.out_dim[p]);
  return static_cast<std::uint8_t>(singletons);
}
/// A rearrange of which each dim has at most four factors. `sizes[f]`: the node of factor f's extent, -1 where it
/// follows from the others.
constexpr Value rearrange_at_once(Value x, int out_rank, const Factors& factors, const std::int32_t* sizes,
                                  RearrangeOrigin origin) {
  Node made{.op = Op::rearrange,
            .dtype = x.dtype(),
            .rank = static_cast<std::uint8_t>(out_rank),
            .labels = factors.pack(),
            .value = origin.pack()};
  std::int32_t operands[max_rank + 1]{x.id};
  bool sized = false, in_order = factors.keeps_order() && out_rank == x.rank();
  for (int f = 0; f < factors.count; ++f) {
    operands[f + 1] = sizes ? sizes[f] : -1;
    sized = sized || operands[f + 1] >= 0;
    in_order = in_order && factors.in_dim[f] == factors.out_dim[f];
  }
  made.singletons = rearranged_singletons(factors, x.node(), out_rank);
  if (in_order && made.singletons == x.node().singletons) return x;
  return x.make(made, operands, sized ? factors.count + 1 : 1);
}
/// The first dim with more factors than a sharding rule can list for one dim; -1 for none.
constexpr int dim_of_many_factors(const std::int8_t (&dims)[max_rank], int count) {
  int factors[max_rank]{};
  for (int p = 0; p < count; ++p)
    if (++factors[static_cast<int>(dims[p])] > 4) return dims[p];
  return -1;
}
/// The extent of factors first, ..., last - 1 together, -1 where it follows from other factors.
constexpr std::int32_t product_of_sizes(Value x, const std::int32_t* sizes, int first, int last) {
  if (sizes == nullptr || sizes[first] < 0) return -1;
  Value product = x.with(sizes[first]);
  for (int f = first + 1; f < last; ++f) {
    if (sizes[f] < 0) return -1;
    product = product * x.with(sizes[f]);
  }
  return product.id;
}
constexpr Value rearrange(Value x, int out_rank, const Factors& factors, const std::int32_t* sizes,
                          RearrangeOrigin origin = {});
/// x with dim `dim`, which the rearrange splits into many factors, split into two dims first.
constexpr Value rearrange_of_halves(Value x, int out_rank, Factors factors, const std::int32_t* sizes, int dim,
                                    RearrangeOrigin origin) {
  int first = 0, count = 0;
  for (int f = 0; f < factors.count; ++f)
    if (factors.in_dim[f] < dim)
      ++first;
    else if (factors.in_dim[f] == dim)
      ++count;
  const int half = first + count / 2;
  Factors halves{};
  std::int32_t of_halves[max_rank + 1];
  for (auto& size : of_halves) size = -1;
  for (int d = 0; d <= x.rank(); ++d) {
    const int from = d > dim ? d - 1 : d;
    if (d == dim) of_halves[static_cast<int>(halves.count)] = product_of_sizes(x, sizes, first, half);
    if (d == dim + 1) of_halves[static_cast<int>(halves.count)] = product_of_sizes(x, sizes, half, first + count);
    if (x.is_singleton(from) && from != dim) continue;
    halves.in_dim[static_cast<int>(halves.count)] = static_cast<std::int8_t>(from);
    halves.order[static_cast<int>(halves.count)] = halves.count;
    halves.out_dim[static_cast<int>(halves.count++)] = static_cast<std::int8_t>(d);
  }
  for (int f = half; f < factors.count; ++f) ++factors.in_dim[f];
  return rearrange(rearrange_at_once(x, x.rank() + 1, halves, of_halves, origin), out_rank, factors, sizes, origin);
}
/// The rearrange with dim `dim` of the result, which consists of many factors, as two dims, which are then merged.
constexpr Value rearrange_to_halves(Value x, int out_rank, Factors factors, const std::int32_t* sizes, int dim,
                                    RearrangeOrigin origin) {
  int first = 0, count = 0;
  for (int p = 0; p < factors.count; ++p)
    if (factors.out_dim[p] < dim)
      ++first;
    else if (factors.out_dim[p] == dim)
      ++count;
  for (int p = first + count / 2; p < factors.count; ++p) ++factors.out_dim[p];
  const Value halves = rearrange(x, out_rank + 1, factors, sizes, origin);
  Factors merged{};
  for (int d = 0; d <= out_rank; ++d) {
    if (halves.is_singleton(d)) continue;
    merged.in_dim[static_cast<int>(merged.count)] = static_cast<std::int8_t>(d);
    merged.order[static_cast<int>(merged.count)] = merged.count;
    merged.out_dim[static_cast<int>(merged.count++)] = static_cast<std::int8_t>(d > dim ? d - 1 : d);
  }
  return rearrange_at_once(halves, out_rank, merged, nullptr, origin);
}
constexpr Value rearrange(Value x, int out_rank, const Factors& factors, const std::int32_t* sizes,
                          RearrangeOrigin origin) {
  if (x.rank() < max_rank)
    if (const int dim = dim_of_many_factors(factors.in_dim, factors.count); dim >= 0)
      return rearrange_of_halves(x, out_rank, factors, sizes, dim, origin);
  if (out_rank < max_rank)
    if (const int dim = dim_of_many_factors(factors.out_dim, factors.count); dim >= 0)
      return rearrange_to_halves(x, out_rank, factors, sizes, dim, origin);
  return rearrange_at_once(x, out_rank, factors, sizes, origin);
}

constexpr Value insert_singletons(Value x, unsigned singletons, int out_rank) {
  if (singletons == 0) return x;
  Factors f{};
  int d = 0;
  for (int out = 0; out < out_rank; ++out) {
    if ((singletons >> out & 1) != 0) continue;
    if (!x.is_singleton(d)) {
      f.in_dim[f.count] = static_cast<std::int8_t>(d);
      f.order[f.count] = f.count;
      f.out_dim[f.count++] = static_cast<std::int8_t>(out);
    }
    ++d;
  }
  return rearrange(x, out_rank, f, nullptr);
}

constexpr Value drop_singletons(Value x, unsigned dims) {
  if (dims == 0) return x;
  Factors f{};
  int out = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if ((dims >> d & 1) != 0) continue;
    if (!x.is_singleton(d)) {
      f.in_dim[f.count] = static_cast<std::int8_t>(d);
      f.order[f.count] = f.count;
      f.out_dim[f.count++] = static_cast<std::int8_t>(out);
    }
    ++out;
  }
  return rearrange(x, out, f, nullptr);
}

constexpr Value move_dim(Value x, int from, int to) {
  if (from == to) return x;
  Factors f{};
  std::int8_t factor_of[max_rank]{};
  for (int d = 0; d < x.rank(); ++d) {
    factor_of[d] = f.count;
    if (!x.is_singleton(d)) f.in_dim[static_cast<int>(f.count++)] = static_cast<std::int8_t>(d);
  }
  for (int d = 0, at = 0; d < x.rank(); ++d) {
    const int rest = d < to ? d : d - 1;  // the position of the dim among those that keep their order
    const int own = d == to ? from : rest < from ? rest : rest + 1;
    if (x.is_singleton(own)) continue;
    f.order[at] = factor_of[own];
    f.out_dim[at++] = static_cast<std::int8_t>(d);
  }
  return rearrange(x, x.rank(), f, nullptr);
}

/// Merges the dims from `first` to `last`.
constexpr Value merge_dims(Value x, int first, int last) {
  Factors f{};
  for (int d = 0; d < x.rank(); ++d) {
    if (x.is_singleton(d)) continue;
    f.in_dim[static_cast<int>(f.count)] = static_cast<std::int8_t>(d);
    f.order[static_cast<int>(f.count)] = f.count;
    f.out_dim[static_cast<int>(f.count++)] = static_cast<std::int8_t>(d <= first  ? d
                                                                      : d <= last ? first
                                                                                  : d - (last - first));
  }
  return rearrange(x, x.rank() - (last - first), f, nullptr);
}
/// Splits a dim into two, of which the first has this extent.
constexpr Value split_dim(Value x, int dim, Value first) {
  Factors f{};
  std::int32_t sizes[max_rank];
  for (int d = 0; d < x.rank(); ++d)
    for (int k = 0; k < (d == dim ? 2 : 1); ++k) {
      if (x.is_singleton(d)) continue;
      f.in_dim[static_cast<int>(f.count)] = static_cast<std::int8_t>(d);
      sizes[static_cast<int>(f.count)] = d == dim && k == 0 ? first.id : -1;
      f.order[static_cast<int>(f.count)] = f.count;
      f.out_dim[static_cast<int>(f.count++)] = static_cast<std::int8_t>(d < dim ? d : d == dim ? d + k : d + 1);
    }
  return rearrange(x, x.rank() + 1, f, sizes);
}
/// Splits a dim of x into `count` dims with the extents of dims of `like`, from dim `from` on.
constexpr Value split_dim_as(Value x, int dim, Value like, int from, int count) {
  Factors f{};
  std::int32_t sizes[max_rank];
  for (int d = 0; d < x.rank(); ++d)
    for (int k = 0; k < (d == dim ? count : 1); ++k) {
      if (d == dim ? like.is_singleton(from + k) : x.is_singleton(d)) continue;
      f.in_dim[static_cast<int>(f.count)] = static_cast<std::int8_t>(d);
      sizes[static_cast<int>(f.count)] = d == dim ? extent(like, from + k).id : -1;
      f.order[static_cast<int>(f.count)] = f.count;
      f.out_dim[static_cast<int>(f.count++)] = static_cast<std::int8_t>(d < dim ? d : d == dim ? d + k : d + count - 1);
    }
  return rearrange(x, x.rank() + count - 1, f, sizes);
}

}  // namespace tessera::build

namespace tessera::ops {

/// Throws not_divisible for a dim that shard_map splits by mesh axes. `node.value` is the number of leading dims, which
/// the user does not see.
[[noreturn]] inline void fail_axis(const ShapeContext& c, std::string_view why, int dim, int first, int last) {
  std::string axes;
  std::int64_t size = 1;
  for (int f = first; f < last; ++f) {
    if (!c.has(1 + f)) continue;
    axes += concat_text(axes.empty() ? "'" : ", '", axis_of(c.graph.operand_node(c.id, 1 + f)).view(), "'");
    size *= c.number(1 + f);
  }
  const int hidden = RearrangeOrigin::of(c.node()).hidden;
  Shape shape = c.operand(0);
  for (int lead = hidden; lead > 0; --lead) shape.erase(0);
  fail(errc::not_divisible, "[shard_map] dim ", dim - hidden, " of ", shape_text(c.node().dtype, shape),
       hidden > 0 ? " on a device" : "", ": ", c.operand(0)[static_cast<std::size_t>(dim)], " ", why, " the ", size,
       " devices of axis ", axes, c.node().source);
}
constexpr bool split_by_axes(const ShapeContext& c, int first, int last) {
  bool all = true;
  for (int f = first; f < last; ++f)
    all = all && (!c.has(1 + f) || c.graph.operand_node(c.id, 1 + f).op == Op::axis_size);
  return all;
}

/// Throws shape_mismatch for a reshape, whose merge of all dims the user does not see.
[[noreturn]] inline void fail_reshape(const ShapeContext& c, std::int64_t elements, std::string_view what) {
  int merged = c.graph.operand(c.id, 0);
  const auto merges = [&] {
    return c.graph[merged].op == Op::rearrange && c.graph[merged].source.line == c.node().source.line;
  };
  while (merges() && RearrangeOrigin::of(c.graph[merged]).by == MadeBy::reshape) merged = c.graph.operand(merged, 0);
  if (merges()) merged = c.graph.operand(merged, 0);
  const Shape& given = c.shapes[merged];
  fail(errc::shape_mismatch, "[reshape] number of elements: ", shape_text(c.node().dtype, given), " has ",
       volume(given), ", the extents given have ", what, elements, c.node().source);
}

/// Throws not_divisible, but for a reshape shape_mismatch: its numbers of elements differ.
[[noreturn]] inline void fail_split(const ShapeContext& c, std::int64_t size, std::int64_t extent) {
  const MadeBy by = RearrangeOrigin::of(c.node()).by;
  if (by == MadeBy::reshape) fail_reshape(c, size, "a multiple of ");
  const std::string_view function = c.node().source.function();
  if (by == MadeBy::convolution)
    fail(errc::not_divisible, "[", function.empty() ? "conv" : function, "] groups: ", extent,
         " features are not divisible by ", size, " groups", c.node().source);
  if (by == MadeBy::operation)
    fail_operation(errc::not_divisible, c, "a dim is not divisible by the sizes that split the dim", {});
  fail(errc::not_divisible, "[", name_of(by), "] microbatches: a batch of ", extent, ", the first dim of ",
       shape_text(c.node().dtype, c.operand(0)), ", can't be divided into ", size,
       " microbatches of one size; choose a number of microbatches that divides all batches, and leave out a last "
       "batch with fewer rows (ts::Ragged::drop of a DataLoader)",
       c.node().source);
}
/// The extents of a rearrange's factors: for each operand dim, at most one follows from the given ones.
constexpr Shape factor_extents(const ShapeContext& c) {
  const Factors factors = Factors::of(c.node());
  const Shape& x = c.operand(0);
  Shape extents(static_cast<std::size_t>(factors.count), 1);
  for (int first = 0; first < factors.count;) {
    int last = first;
    std::int64_t product = 1;
    int inferred = -1;
    for (; last < factors.count && factors.in_dim[last] == factors.in_dim[first]; ++last) {
      if (c.node().arity > 1 && c.has(1 + last)) {
        const std::int64_t size = c.number(1 + last);
        if (size < 0) fail_shapes(c, "a dim is split by a size below 0");
        if (!multiply_fits(product, size, product)) fail_large(c);
        extents[static_cast<std::size_t>(last)] = size;
      } else if (inferred < 0) {
        inferred = last;
      } else {
        fail_shapes(c, "a dim is split with more than one unknown size");
      }
    }
    const std::int64_t extent = x[static_cast<std::size_t>(factors.in_dim[first])];
    if (inferred >= 0) {
      if (product < 1) fail_shapes(c, "a dim is split by a size below 1, and the size beside it is not given");
      if (extent % product != 0) {
        if (split_by_axes(c, first, last)) fail_axis(c, "is not divisible by", factors.in_dim[first], first, last);
        fail_split(c, product, extent);
      }
      extents[static_cast<std::size_t>(inferred)] = extent / product;
    } else if (extent != product) {
      if (RearrangeOrigin::of(c.node()).by == MadeBy::reshape) fail_reshape(c, product, "");
      fail_shapes(c, "the product of the sizes that split a dim is not the extent of the dim");
    }
    first = last;
  }
  return extents;
}

constexpr Shape rearrange_shape(const ShapeContext& c) {
  const Factors factors = Factors::of(c.node());
  const Shape extents = factor_extents(c);
  Shape shape(c.node().rank, 1);
  for (int p = 0; p < factors.count; ++p) {
    std::int64_t& extent = shape[static_cast<std::size_t>(factors.out_dim[p])];
    if (!multiply_fits(extent, extents[static_cast<std::size_t>(factors.order[p])], extent)) fail_large(c);
  }
  return shape;
}

constexpr void rearrange_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const Factors factors = Factors::of(graph[id]);
  DimFactors& dims = rule.operands.emplace_back();
  auto in_singleton = [&](int f) { return graph.operand_node(id, 0).is_singleton(factors.in_dim[f]); };
  for (int f = 0; f < factors.count; ++f) {
    const int factor = rule.add(FactorKind::pass);
    if (!in_singleton(f)) dims.dims[static_cast<int>(factors.in_dim[f])].push_back(static_cast<std::int8_t>(factor));
  }
  for (int p = 0; p < factors.count; ++p)
    if (!in_singleton(factors.order[p]))
      rule.result.dims[static_cast<int>(factors.out_dim[p])].push_back(factors.order[p]);
  for (int i = 1; i < graph[id].arity; ++i) rule.operands.emplace_back();
}

/// The inverse rearrange: factors of the result become factors of the operand. Extents that the inverse could not infer
/// are taken from the operand.
constexpr void rearrange_gradient(Gradient& r) {
  const Factors f = Factors::of(r.node());
  const Value x = r.x(0), g = r.full_g();
  Factors inverse{};
  inverse.count = f.count;
  std::int8_t position[max_rank]{};
  for (int p = 0; p < f.count; ++p) {
    inverse.in_dim[p] = f.out_dim[p];
    position[static_cast<int>(f.order[p])] = static_cast<std::int8_t>(p);
  }
  std::int32_t sizes[max_rank];
  for (auto& size : sizes) size = -1;
  for (int q = 0; q < f.count; ++q) {  // in the operand's order of factors
    inverse.order[q] = position[q];
    inverse.out_dim[q] = f.in_dim[q];
  }
  for (int p = 0; p < f.count; ++p) {
    const int factor = f.order[p];
    bool merged = false, split = false;
    for (int o = 0; o < f.count; ++o) {
      if (o != p && f.out_dim[o] == f.out_dim[p]) merged = true;
      if (o != factor && f.in_dim[o] == f.in_dim[factor]) split = true;
    }
    if (!merged) continue;  // the factor is a result dim on its own, so its extent is inferred
    if (r.arity() > 1 && r.module().graph(x.graph).operand(r.id(), 1 + factor) >= 0) {
      sizes[p] = r.module().graph(x.graph).operand(r.id(), 1 + factor);
    } else if (!split) {
      sizes[p] = build::extent(x, f.in_dim[factor]).id;
    } else {  // inferred inside of a split dim: that dim's extent over the product of the given ones
      Value size = build::extent(x, f.in_dim[factor]);
      for (int o = 0; o < f.count; ++o)
        if (o != factor && f.in_dim[o] == f.in_dim[factor])
          size = size / x.with(r.module().graph(x.graph).operand(r.id(), 1 + o));
      sizes[p] = size.id;
    }
  }
  // One extent of each merged dim could be inferred; giving all of them makes plans easier to read.
  r.add(0, build::rearrange(g, x.rank(), inverse, sizes));
}

constexpr BrokenRule check_rearrange(const NodeCheck& c) {
  const Node &node = c.node(), &from = c.x(0);
  const Factors f = Factors::of(node);
  if (node.arity != 1 && node.arity != f.count + 1) return "a rearrange has a size for each factor, or no sizes";
  unsigned placed = 0, factored = 0;
  for (int p = 0; p < f.count; ++p) {
    if (f.in_dim[p] >= from.rank || f.out_dim[p] < 0 || f.out_dim[p] >= node.rank || f.order[p] < 0 ||
        f.order[p] >= f.count)
      return "the dims of a factor exist";
    if (p > 0 && (f.in_dim[p] < f.in_dim[p - 1] || f.out_dim[p] < f.out_dim[p - 1]))
      return "factors are in the order of their dims";
    placed |= 1u << f.order[p];
    factored |= 1u << f.in_dim[p];
    if (node.arity > 1 && c.graph.operand(c.id, 1 + p) >= 0 && !c.is_size(1 + p)) return "sizes are i64 scalars";
  }
  if (placed != (1u << f.count) - 1) return "each factor has one position in the result";
  if ((factored | from.singletons) != (1u << from.rank) - 1) return "only dims of static extent 1 have no factors";
  return node.singletons == build::rearranged_singletons(f, from, node.rank) && node.dtype == from.dtype
             ? BrokenRule{}
             : "the type of the result follows from the factors";
}

/// The dim of examples is a factor of its own.
constexpr Batched batch_rearrange(const Batch& b) {
  const Factors one = Factors::of(b.node());
  if (one.count == max_rank) return {};
  Factors f{};
  f.count = static_cast<std::int8_t>(one.count + 1);
  std::int32_t sizes[max_rank]{-1};
  for (int p = 0; p < one.count; ++p) {
    f.in_dim[p + 1] = static_cast<std::int8_t>(one.in_dim[p] + 1);
    f.order[p + 1] = static_cast<std::int8_t>(one.order[p] + 1);
    f.out_dim[p + 1] = static_cast<std::int8_t>(one.out_dim[p] + 1);
    sizes[p + 1] = b.arity() > 1 && b.has(1 + p) ? b.x(1 + p).id : -1;
  }
  return Batch::all(build::rearrange(b.full(0), b.node().rank + 1, f, sizes, RearrangeOrigin::of(b.node())));
}

/// The text of a rearrange, such as "a (b c) -> a b c".
inline std::string rearrange_text(const ProgramView&, const GraphView& graph, int id) {
  const Factors f = Factors::of(graph[id]);
  auto side = [&](int rank, auto&& dim_at, auto&& name_at) {
    std::string text;
    for (int d = 0; d < rank; ++d) {
      std::string names;
      int names_in_dim = 0;
      for (int p = 0; p < f.count; ++p)
        if (dim_at(p) == d) {
          names += names.empty() ? "" : " ";
          names += tessera::detail::label_name(name_at(p));
          ++names_in_dim;
        }
      if (d > 0) text += ' ';
      text += names_in_dim == 0 ? "1" : names_in_dim == 1 ? names : "(" + names + ")";
    }
    return text;
  };
  return side(
             graph.operand_node(id, 0).rank, [&](int p) { return f.in_dim[p]; }, [](int p) { return p; }) +
         " -> " +
         side(
             graph[id].rank, [&](int p) { return f.out_dim[p]; }, [&](int p) { return f.order[p]; });
}

struct RearrangeOp {
  static constexpr OpRow row{.name = "rearrange",
                             .unit = UnitKind::data_movement,
                             .arity = any_arity,
                             .linear = Linearity::first,
                             .shape = rearrange_shape,
                             .sharding = rearrange_sharding,
                             .factor_extents = factor_extents,
                             .flops = 0,
                             .optional_operands = true,
                             .recomputed = true};
  static constexpr GradientRule gradient = rearrange_gradient;
  static constexpr BatchRule batch = batch_rearrange;
  static constexpr CheckRule check = check_rearrange;
  static constexpr AttributeText attributes = rearrange_text;
};

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
