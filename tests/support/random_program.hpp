#ifndef TESSERA_TESTS_SUPPORT_RANDOM_PROGRAM_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_PROGRAM_HPP

#include <functional>

#include "untyped.hpp"

namespace oracle {

/// The operations and shardings that a random program may have.
struct RandomProgramOptions {
  tessera::DType type = tessera::DType::f32;  ///< of most values
  bool every_operation = false;               ///< false: only fusible operations, contractions and data movement
  bool smooth = false;  ///< only operations differentiable everywhere, to compare gradients with differences
  /// Returns a spec for a value of this rank; empty: values have no sharding constraints.
  std::function<tessera::PartitionSpec(int rank)> spec;
};

/// A random program and arguments for it. Values stay in a range where f32 and f64 agree, but may be at kinks: unless
/// the program is smooth, compare gradients with an interpreter, not with differences.
class RandomProgram {
 public:
  using Options = RandomProgramOptions;
  explicit RandomProgram(unsigned seed, int steps = 14, Options options = {})
      : options_(std::move(options)), engine_(seed) {
    for (int i = 0; i < 2; ++i) values_.push_back(new_argument(random_shape(1 + roll(3))));
    for (int step = 0; step < steps; ++step)
      if (options_.every_operation && roll(2) == 0)
        grow_more();
      else
        grow();
  }

  /// The finished program. It returns the sum of the last values and its gradient, or the last values themselves.
  Program finish(bool gradients, bool simplified = true) {
    ts_value total = bounded(values_.back()).value;
    if (gradients) {
      for (int i = 0; i < 3; ++i) {
        const Item& item = any();
        const unsigned all = (1u << item.value.rank()) - 1;
        total = total + tessera::build::reduce(Op::sum, bounded(item).value, all, false);
      }
      const Shape weights_shape = values_.back().shape;
      program_.output_gradients(total);
      arguments.push_back(random_array(weights_shape, 1000));
    } else {
      const std::size_t first = values_.size() < 3 ? 0 : values_.size() - 3;
      for (std::size_t i = first; i < values_.size(); ++i) program_.output(values_[i].value);
      for (const ts_value& update : updates_) program_.output(update);
    }
    return program_.finish(simplified);
  }

  std::vector<Array> arguments;
  std::vector<std::size_t> stacked_arguments;  ///< arguments with one slice per layer
  bool rounds = false;                         ///< some value is rounded to bf16

 private:
  using ts_value = tessera::Value;
  struct Item {
    ts_value value;
    Shape shape;
  };
  Options options_;
  UntypedProgram program_;
  std::vector<Item> values_;
  std::vector<ts_value> updates_;  // of arguments; the results may be written over them
  std::mt19937 engine_;

  int roll(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  const Item& any() { return values_[static_cast<std::size_t>(roll(static_cast<int>(values_.size())))]; }
  Shape random_shape(int rank) {
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(options_.every_operation && roll(12) == 0 ? 1 : 2 + roll(5));
    return shape;
  }
  Item new_argument(const Shape& shape) {
    arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size()) + 1));
    return {program_.argument(static_cast<int>(shape.size()), 0, options_.type), shape};
  }
  Item bounded(const Item& item) { return {tessera::build::unary(Op::tanh, item.value), item.shape}; }
  bool fits(const Item& a, const Item& b) const {
    for (std::size_t d = 1; d <= a.shape.size() && d <= b.shape.size(); ++d) {
      const std::size_t i = a.shape.size() - d, j = b.shape.size() - d;
      const bool repeats = a.value.is_singleton(static_cast<int>(i)) || b.value.is_singleton(static_cast<int>(j));
      if (!repeats && a.shape[i] != b.shape[j]) return false;
    }
    return true;
  }
  static Shape broadcast(const Shape& a, const Shape& b) {
    Shape shape = a.size() > b.size() ? a : b;
    const Shape& other = a.size() > b.size() ? b : a;
    for (std::size_t d = 1; d <= other.size(); ++d)
      shape[shape.size() - d] = std::max(shape[shape.size() - d], other[other.size() - d]);
    return shape;
  }
  tessera::Value size(std::int64_t n) { return program_.number(static_cast<double>(n)); }

  void grow() {
    switch (roll(12)) {
      case 0:
      case 1:
        return unary();
      case 2:
      case 3:
      case 4:
        return binary();
      case 5:
        return reduce();
      case 6:
        return contract();
      case 7:
        return permute();
      case 8:
        return split_or_merge();
      case 9:
        return slice_or_concat();
      case 10:
        return softmax();
      default:
        return gather();
    }
  }
  void unary() {
    constexpr Op ops[] = {Op::neg, Op::abs, Op::tanh, Op::sigmoid, Op::relu, Op::gelu, Op::silu};
    constexpr Op smooth[] = {Op::neg, Op::tanh, Op::sigmoid, Op::gelu, Op::silu};
    const Item x = any();
    values_.push_back({tessera::build::unary(options_.smooth ? smooth[roll(5)] : ops[roll(7)], x.value), x.shape});
  }
  void binary() {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item a = bounded(any()), b = any();
      if (!fits(a, b)) continue;
      constexpr Op ops[] = {Op::add, Op::sub, Op::mul, Op::minimum, Op::maximum};
      const int choice = roll(options_.smooth ? 3 : 6);
      const auto made = choice < 5 ? tessera::build::binary(ops[choice], a.value, b.value)
                                   : tessera::build::select(tessera::build::binary(Op::less, a.value, b.value), a.value,
                                                            b.value * 0.5);
      values_.push_back({made, broadcast(a.shape, b.shape)});
      return;
    }
  }
  void reduce() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const unsigned dims = 1u + static_cast<unsigned>(roll((1 << x.shape.size()) - 1));
    const bool keep = roll(2) == 0;
    constexpr Op ops[] = {Op::sum, Op::max, Op::min};
    Shape shape;
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if ((dims >> d & 1) == 0)
        shape.push_back(x.shape[d]);
      else if (keep)
        shape.push_back(1);
    values_.push_back({tessera::build::reduce(ops[options_.smooth ? 0 : roll(3)], x.value, dims, keep), shape});
  }
  /// Contracts a value with a new argument that shares some of its dims; shared dims are kept or summed.
  void contract() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    Shape weight, out;
    int rank_b = 0, rank_out = 0;
    for (int d = 0; d < rank; ++d) {
      labels.a[d] = static_cast<std::int8_t>(d);
      const bool shared = roll(2) == 0 && !x.value.is_singleton(d);
      if (shared) {
        labels.b[rank_b++] = static_cast<std::int8_t>(d);
        weight.push_back(x.shape[static_cast<std::size_t>(d)]);
      }
      if (roll(3) > 0) {
        labels.out[rank_out++] = static_cast<std::int8_t>(d);
        out.push_back(x.shape[static_cast<std::size_t>(d)]);
      }
    }
    if (rank_b < 3 && rank_out < 4) {
      labels.b[rank_b++] = labels.out[rank_out++] = static_cast<std::int8_t>(rank);
      weight.push_back(2 + roll(5));
      out.push_back(weight.back());
    }
    const Item w = new_argument(weight);
    values_.push_back({tessera::build::einsum(x.value, w.value, labels), out});
  }
  void permute() {
    const Item x = any();
    tessera::Factors f{};
    std::vector<int> order;
    for (std::size_t d = 0; d < x.shape.size(); ++d) order.push_back(static_cast<int>(d));
    std::shuffle(order.begin(), order.end(), engine_);
    Shape shape;
    for (int d : order) shape.push_back(x.shape[static_cast<std::size_t>(d)]);
    std::vector<int> factor(x.shape.size(), -1);
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if (!x.value.is_singleton(static_cast<int>(d))) {
        factor[d] = f.count;
        f.in_dim[f.count++] = static_cast<std::int8_t>(d);
      }
    int p = 0;
    for (std::size_t d = 0; d < order.size(); ++d)
      if (const int at = factor[static_cast<std::size_t>(order[d])]; at >= 0) {
        f.order[p] = static_cast<std::int8_t>(at);
        f.out_dim[p++] = static_cast<std::int8_t>(d);
      }
    values_.push_back({tessera::build::rearrange(x.value, static_cast<int>(shape.size()), f, nullptr), shape});
  }
  void split_or_merge() {
    const Item x = any();
    const int rank = static_cast<int>(x.shape.size());
    for (int d = 0; d < rank; ++d)
      if (x.value.is_singleton(d)) return;
    tessera::Factors f{};
    std::int32_t sizes[tessera::max_rank];
    for (auto& s : sizes) s = -1;
    Shape shape;
    const int at = rank == 0 ? 0 : roll(rank);
    if (rank > 0 && rank < 4 && x.shape[static_cast<std::size_t>(at)] % 2 == 0) {  // split into [?, 2] or [2, ?]
      const bool outer = roll(2) == 0;
      for (int d = 0; d < rank; ++d)
        for (int part = 0; part < (d == at ? 2 : 1); ++part) {
          const std::int64_t n = x.shape[static_cast<std::size_t>(d)];
          const bool given = d == at && part == (outer ? 0 : 1);
          if (given) sizes[f.count] = size(2).id;
          shape.push_back(d != at ? n : given ? 2 : n / 2);
          f.in_dim[f.count] = static_cast<std::int8_t>(d);
          f.order[f.count] = f.out_dim[f.count] = f.count;
          ++f.count;
        }
    } else if (rank > 1) {  // merge dim `at` and the next one
      const int first = at == rank - 1 ? at - 1 : at;
      for (int d = 0; d < rank; ++d) {
        f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
        f.out_dim[d] = static_cast<std::int8_t>(d <= first ? d : d - 1);
        if (d == first + 1)
          shape.back() *= x.shape[static_cast<std::size_t>(d)];
        else
          shape.push_back(x.shape[static_cast<std::size_t>(d)]);
        ++f.count;
      }
    } else {
      return;
    }
    values_.push_back({tessera::build::rearrange(x.value, static_cast<int>(shape.size()), f, sizes), shape});
  }
  void slice_or_concat() {
    const Item x = any();
    if (x.shape.empty()) return;
    const int d = roll(static_cast<int>(x.shape.size()));
    const std::int64_t n = x.shape[static_cast<std::size_t>(d)];
    if (x.value.is_singleton(d)) return;
    Shape shape = x.shape;
    std::int64_t& extent = shape[static_cast<std::size_t>(d)];
    if (roll(2) == 0 && n > 2) {
      const int start = roll(static_cast<int>(n) - 1);
      extent = 2 + roll(static_cast<int>(n) - start - 1);
      values_.push_back({tessera::build::slice(x.value, d, size(start), size(extent)), shape});
    } else {
      const Item y = bounded(x);
      extent *= 2;
      Node node{.op = Op::concat,
                .dtype = options_.type,
                .rank = x.value.node().rank,
                .singletons = x.value.node().singletons,
                .labels = tessera::pack_dim(d)};
      values_.push_back({x.value.make(node, {x.value.id, y.value.id}), shape});
    }
  }
  void softmax() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const int dim = static_cast<int>(x.shape.size()) - 1;
    values_.push_back({tessera::build::softmax(x.value, dim), x.shape});
  }
  void gather() {
    const std::int64_t rows = 3 + roll(4);
    const Item table = new_argument({rows, 2 + roll(4)});
    Array indices(random_shape(1 + roll(2)));
    for (double& i : indices.data) i = roll(static_cast<int>(rows));
    arguments.push_back(indices);
    const auto index = program_.argument(static_cast<int>(indices.shape.size()), 0, tessera::DType::i32);
    Shape shape = indices.shape;
    shape.push_back(table.shape[1]);
    const Node node{.op = Op::embedding, .dtype = options_.type, .rank = static_cast<std::uint8_t>(shape.size())};
    values_.push_back({table.value.make(node, {table.value.id, index.id}), shape});
  }
  static Op op_of(std::string_view name) { return static_cast<Op>(tessera::operation_id(name)); }
  void push(const ts_value& value, const Shape& shape) { values_.push_back({value, shape}); }
  /// A random dim of x that is no singleton dim, or -1 if x has none.
  int extending_dim(const Item& x) {
    std::vector<int> dims;
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if (!x.value.is_singleton(static_cast<int>(d))) dims.push_back(static_cast<int>(d));
    return dims.empty() ? -1 : dims[static_cast<std::size_t>(roll(static_cast<int>(dims.size())))];
  }
  static std::size_t at(int d) { return static_cast<std::size_t>(d); }
  Item new_indices(const Shape& shape, unsigned unit, std::int64_t below) {
    Array indices(shape);
    for (double& i : indices.data) i = roll(static_cast<int>(below));
    arguments.push_back(indices);
    return {program_.argument(static_cast<int>(shape.size()), unit, tessera::DType::i32), shape};
  }
  /// The product of the last dim of x with a matrix.
  static tessera::Value product(const ts_value& x, const ts_value& w, int rank) {
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    for (int d = 0; d < rank; ++d) labels.a[d] = labels.out[d] = static_cast<std::int8_t>(d);
    labels.b[0] = static_cast<std::int8_t>(rank - 1);
    labels.b[1] = labels.out[rank - 1] = static_cast<std::int8_t>(rank);
    return tessera::build::einsum(x, w, labels);
  }

  void grow_more() {
    switch (roll(33)) {
      case 0:
        return scan();
      case 1:
        return sort();
      case 2:
        return take_along();
      case 3:
        return window();
      case 4:
        return pad();
      case 5:
        return positions();
      case 6:
        return random_numbers();
      case 7:
        return attention();
      case 8:
        return layers();
      case 9:
      case 10:
        return constrain();
      case 11:
        return alike();
      case 12:
        return permute_places();
      case 13:
      case 14:
        return compare();
      case 15:
      case 16:
        return more_unary();
      case 17:
        return divide();
      case 18:
        return sizes();
      case 19:
        return integers();
      case 20:
      case 21:
        return dense();
      case 22:
        return sum_of_products();
      case 23:
      case 24:
        return update();
      case 25:
        return multiply();
      case 26:
        return rounded();
      case 27:
        return add_rows();
      case 28:
      case 29:
        return steps();
      default:
        return elementwise();
    }
  }
  template <class... Operation>
  static std::vector<const tessera::OpRow*> rows_of(tessera::ops::OperationList<Operation...>) {
    return {&tessera::ops::row_v<Operation>...};
  }
  /// A random elementwise operation of all that the library has, found by its row.
  void elementwise() {
    static const std::vector<const tessera::OpRow*> rows = rows_of(tessera::ops::ElementwiseOperations{});
    const tessera::OpRow& row = *rows[at(roll(static_cast<int>(rows.size())))];
    const bool of_bools = row.name == "and" || row.name == "or" || row.name == "not";
    if (options_.smooth || row.arity < 1 || row.arity > 2 || row.converts || row.shape_only != 0 || of_bools) return;
    const bool bits = row.name.substr(0, 7) == "bitwise",
               steps = row.name == "floor" || row.name == "ceil" || row.name == "trunc" || row.name == "round";
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item x = bounded(any()), y = bounded(any());
      if (row.arity == 2 && !fits(x, y)) continue;
      // Operands in (0, 1), where all operations are defined; in (1, 2) for acosh.
      auto a = x.value * 0.375 + (row.name == "acosh" ? 1.5 : 0.5), b = y.value * 0.375 + 0.5;
      if (steps) a = x.value * 5.0;
      if (bits) {
        a = tessera::build::cast(x.value * 20.0, tessera::DType::i32);
        b = tessera::build::cast(b * 4.0, tessera::DType::i32);
      }
      const Op op = op_of(row.name);
      auto made = row.arity == 1 ? tessera::build::unary(op, a) : tessera::build::binary(op, a, b);
      if (made.dtype() != options_.type) made = tessera::build::cast(made, options_.type) * 0.125;
      return push(made, row.arity == 1 ? x.shape : broadcast(x.shape, y.shape));
    }
  }
  void scan() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const tessera::CumulativeOptions how{roll(2) == 0, roll(2) == 0};
    push(tessera::build::cumulative(roll(2) == 0 ? Op::cumsum : op_of("cumprod"), x.value,
                                    roll(static_cast<int>(x.shape.size())), how),
         x.shape);
  }
  void sort() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0 || options_.smooth) return;
    const auto order = roll(2) == 0 ? tessera::Order::ascending : tessera::Order::descending;
    Shape shape = x.shape;
    tessera::Value count;
    if (roll(2) == 0) {
      shape[at(d)] = 1 + roll(static_cast<int>(x.shape[at(d)]));
      count = size(shape[at(d)]);
    }
    const auto indices = tessera::build::argsort(x.value, d, order, tessera::DType::i32, count);
    push(tessera::build::gather(x.value, d, indices), shape);
  }
  void take_along() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    Shape shape = x.shape;
    shape[at(d)] = 1 + roll(5);
    const Item indices = new_indices(shape, x.value.node().singletons, x.shape[at(d)]);
    if (roll(2) == 0) return push(tessera::build::gather(x.value, d, indices.value), shape);
    arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size())));
    const auto rows = program_.argument(static_cast<int>(shape.size()), x.value.node().singletons, options_.type);
    push(tessera::build::scatter_add(rows, d, indices.value, x.value), x.shape);
  }
  void window() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0 || x.shape.size() > 4) return;
    const int n = static_cast<int>(x.shape[at(d)]);
    const int run = 1 + roll(n), stride = 1 + roll(2), dilation = run > 1 ? 1 + roll((n - 1) / (run - 1)) : 1;
    Shape shape = x.shape;
    shape[at(d)] = (n - (run - 1) * dilation - 1) / stride + 1;
    shape.insert(at(d) + 1, run);
    const auto made = tessera::build::windows(x.value, d, size(run), size(stride), size(dilation));
    push(made, shape);
    if (roll(2) == 0 || run == 1) return;
    push(tessera::build::fold(bounded(values_.back()).value, d, size(stride), size(dilation), size(n), false), x.shape);
  }
  void pad() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    const int before = roll(4), after = roll(4);
    Shape shape = x.shape;
    shape[at(d)] += before + after;
    if (shape[at(d)] < 2) return;
    push(tessera::build::pad_to(x.value, d, size(before), size(shape[at(d)])), shape);
  }
  void positions() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const int rank = static_cast<int>(x.shape.size());
    if (roll(2) == 0 || x.value.is_singleton(rank - 1)) {
      const auto index = tessera::build::iota(x.value, roll(rank), tessera::DType::i32);
      return push(x.value + tessera::build::cast(index, options_.type) * 0.25, x.shape);
    }
    const Node node{.op = Op::arange, .dtype = tessera::DType::i32, .rank = 1};
    const auto index = x.value.make(node, {size(x.shape[at(rank - 1)]).id});
    push(x.value + tessera::build::cast(index, options_.type) * 0.25, x.shape);
  }
  void random_numbers() {
    const Item x = bounded(any());
    const tessera::RandomDraw draw{roll(2) == 0 ? tessera::Distribution::uniform : tessera::Distribution::normal,
                                   static_cast<std::uint32_t>(roll(100))};
    push(x.value * tessera::build::random(x.value, program_.number(roll(50), tessera::DType::f64), draw), x.shape);
  }
  void attention() {
    const int batch = 1 + roll(4), queries = 1 + roll(5), keys = queries + roll(3), heads = 1 + roll(4);
    const int width = 2 + roll(3), out = 2 + roll(3);
    const Item q = bounded(new_argument({batch, queries, heads, width}));
    const Item k = new_argument({batch, keys, heads, width}), v = new_argument({batch, keys, heads, out});
    const auto scale = program_.number(0.5, options_.type);
    const auto made = roll(2) == 0
                          ? tessera::detail::AttentionTag<true>::emit(q.value, q.value, k.value, v.value, scale)
                          : tessera::detail::AttentionTag<false>::emit(q.value, q.value, k.value, v.value, scale);
    push(made, {batch, queries, heads, out});
  }
  /// A repeat, as of a call of a Stack: its body runs once per layer.
  void layers() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1)) return;
    const std::int64_t n = x.shape[at(rank - 1)];
    const bool matrix = roll(2) == 0;
    const Shape stacked = matrix ? Shape{2 + roll(3), n, n} : Shape{2 + roll(3), n};
    arguments.push_back(random_array(stacked, static_cast<unsigned>(arguments.size())));
    stacked_arguments.push_back(arguments.size() - 1);
    const auto weights = program_.stacked_argument(static_cast<int>(stacked.size()), options_.type);
    const Item bias = new_argument({n});
    tessera::Module& module = *x.value.module;
    const int body = module.add_graph();
    const auto inner = [&](int index, int inner_rank, unsigned unit, tessera::Storage storage) {
      const Node node = tessera::argument_node(index, options_.type, inner_rank, unit);
      return tessera::Value{&module, body, module.graph(body).add(tessera::stored_as(storage, node)), {}};
    };
    const auto carried = inner(0, rank, x.value.node().singletons, tessera::Storage::block),
               w = inner(1, matrix ? 2 : 1, 0, tessera::Storage::layer), b = inner(2, 1, 0, tessera::Storage::block);
    const auto made = matrix ? product(carried, w, rank) + carried : carried * w + b;
    module.graph(body).outputs.push_back((tessera::build::unary(Op::tanh, made) + b).id);
    const tessera::Repeat repeat{1, 1, false, false};
    const std::int32_t operands[] = {x.value.id, weights.id, bias.value.id};
    const auto repeated = x.value.with(module.graph(0).add(repeat.node(body, {}), operands, 3));
    push(tessera::build::project(repeated, 0, x.value.node()), x.shape);
  }
  /// A scan over the leading dim of a value, with a carry and a result of each step.
  void steps() {
    const Item x = bounded(any()), xs = bounded(any());
    if (xs.shape.empty() || xs.value.is_singleton(0)) return;
    tessera::Module& module = *x.value.module;
    const int body = module.add_graph();
    const auto inner = [&](int index, std::size_t rank, unsigned unit) {
      const Node node = tessera::argument_node(index, options_.type, static_cast<int>(rank), unit);
      return tessera::Value{&module, body, module.graph(body).add(node), {}};
    };
    const auto total = [](const ts_value& v) {
      return v.rank() == 0 ? v : tessera::build::reduce(Op::sum, v, (1u << v.rank()) - 1, false);
    };
    const auto carried = inner(0, x.shape.size(), x.value.node().singletons),
               slice = inner(1, xs.shape.size() - 1, xs.value.node().singletons >> 1);
    const auto next = tessera::build::unary(Op::tanh, carried * 0.5 + total(slice) * 0.25);
    const auto made = slice + tessera::build::unary(Op::tanh, total(carried) * 0.125);
    for (const ts_value& v : {next, made}) module.graph(body).outputs.push_back(v.id);
    const tessera::Repeat repeat{1, 1, roll(2) == 0, false, true};
    const std::int32_t operands[] = {x.value.id, xs.value.id};
    const auto repeated = x.value.with(module.graph(0).add(repeat.node(body, {}), operands, 2));
    const Node type = tessera::build::stacked_type(made.node());
    push(tessera::build::project(repeated, 0, x.value.node()), x.shape);
    push(tessera::build::project(repeated, 1, type), xs.shape);
  }
  void constrain() {
    const Item x = any();
    if (!options_.spec) return;
    Node made{.op = Op::constraint,
              .dtype = x.value.dtype(),
              .rank = x.value.node().rank,
              .singletons = x.value.node().singletons};
    tessera::Constraint{x.value.module->add_spec(options_.spec(x.value.rank()))}.write(made);
    push(x.value.make(made, {x.value.id}), x.shape);
  }
  void alike() {
    const Item x = bounded(any());
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item like = any();
      if (!(like.shape == x.shape) || like.value.node().singletons != x.value.node().singletons) continue;
      const Node made{.op = Op::alike,
                      .dtype = x.value.dtype(),
                      .rank = x.value.node().rank,
                      .singletons = x.value.node().singletons};
      return push(x.value.make(made, {x.value.id, like.value.id}), x.shape);
    }
  }
  void permute_places() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    const int n = static_cast<int>(x.shape[at(d)]);
    const Node made{.op = Op::permute,
                    .dtype = x.value.dtype(),
                    .rank = x.value.node().rank,
                    .singletons = x.value.node().singletons,
                    .labels = tessera::pack_dim(d)};
    if (n < 2 || roll(2) == 0) return push(x.value.make(made, {x.value.id, size(roll(n)).id}), x.shape);
    const int from = roll(n), to = roll(n), other_to = (to + 1) % n, other = (from + 1) % n;
    push(x.value.make(made, {x.value.id, size(from).id, size(to).id, size(other).id, size(other_to).id}), x.shape);
  }
  void compare() {
    if (options_.smooth) return;
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item a = bounded(any()), b = any();
      if (!fits(a, b)) continue;
      constexpr Op ops[] = {Op::equal, Op::not_equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal};
      auto holds = tessera::build::binary(ops[roll(6)], a.value, b.value);
      if (roll(2) == 0) {
        const auto positive = tessera::build::binary(Op::greater, b.value, b.value.number(0.125));
        holds = tessera::build::binary(roll(2) == 0 ? Op::logical_and : Op::logical_or, holds, positive);
      }
      if (roll(3) == 0) holds = tessera::build::unary(Op::logical_not, holds);
      const auto made = roll(2) == 0 ? tessera::build::select(holds, a.value, b.value * 0.5)
                                     : tessera::build::cast(holds, options_.type) + a.value;
      return push(made, broadcast(a.shape, b.shape));
    }
  }
  void more_unary() {
    const Item x = bounded(any());
    const auto positive = x.value * x.value + 0.5;
    switch (roll(options_.smooth ? 5 : 6)) {
      case 0:
        return push(tessera::build::unary(Op::exp, x.value), x.shape);
      case 1:
        return push(tessera::build::unary(Op::log, positive), x.shape);
      case 2:
        return push(tessera::build::unary(Op::sqrt, positive), x.shape);
      case 3:
        return push(tessera::build::unary(Op::rsqrt, positive), x.shape);
      case 4:
        return push(tessera::build::unary(op_of("erf"), x.value), x.shape);
      default:
        return push(tessera::build::unary(Op::sign, x.value), x.shape);
    }
  }
  void divide() {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item a = bounded(any()), b = bounded(any());
      if (!fits(a, b)) continue;
      const auto positive = b.value * b.value + 0.5;
      return push(roll(2) == 0 ? a.value / positive : tessera::build::binary(Op::pow, positive, a.value),
                  broadcast(a.shape, b.shape));
    }
  }
  void sizes() {
    const Item x = bounded(any());
    const int d = extending_dim(x);
    if (d < 0) return;
    switch (roll(3)) {
      case 0:
        return push(x.value * tessera::build::cast(tessera::build::extent(x.value, d), options_.type), x.shape);
      case 1: {
        arguments.push_back(Array::number(roll(100) * 0.01));
        return push(x.value * tessera::build::cast(program_.scalar(), options_.type), x.shape);
      }
      default: {
        Shape shape = x.shape;
        shape[at(d)] = 1 + roll(static_cast<int>(x.shape[at(d)]));
        arguments.push_back(Array::number(static_cast<double>(shape[at(d)])));
        return push(tessera::build::slice(x.value, d, size(roll(static_cast<int>(x.shape[at(d)] - shape[at(d)]) + 1)),
                                          program_.dim()),
                    shape);
      }
    }
  }
  void integers() {
    const Item x = bounded(any());
    if (options_.smooth || x.shape.empty()) return;
    const auto whole = tessera::build::cast(x.value * 5.0, tessera::DType::i32);
    constexpr Op ops[] = {Op::add, Op::mul, Op::div, Op::minimum};
    const auto made = tessera::build::binary(ops[roll(4)], whole, whole.integer(3, tessera::DType::i32));
    const unsigned all = (1u << x.shape.size()) - 1;
    constexpr Op reductions[] = {Op::sum, Op::max, Op::min};
    const auto reduced = tessera::build::reduce(reductions[roll(3)], made, all, false);
    push(x.value + tessera::build::cast(roll(2) == 0 ? made : reduced, options_.type) * 0.125, x.shape);
  }
  /// A dense layer: a product, a bias, an activation.
  void dense() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1)) return;
    const std::int64_t n = 2 + roll(6);
    Shape shape = x.shape;
    const Item w = new_argument({shape[at(rank - 1)], n}), b = new_argument({n});
    shape[at(rank - 1)] = n;
    auto made = product(x.value, w.value, rank);
    if (roll(3) > 0) made = made + b.value;
    if (roll(3) > 0) made = tessera::build::unary(roll(2) == 0 ? Op::tanh : Op::gelu, made);
    push(made, shape);
  }
  void sum_of_products() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1)) return;
    const std::int64_t n = x.shape[at(rank - 1)];
    const Item w = new_argument({n, n}), v = new_argument({n, n});
    const auto first = product(x.value, w.value, rank);
    push(first + (roll(2) == 0 ? x.value : product(x.value, v.value, rank)), x.shape);
  }
  /// A step of gradient descent: an argument minus the product of an activation and another argument.
  void update() {
    const Item x = bounded(any());
    if (x.shape.size() != 2 || x.value.is_singleton(0) || x.value.is_singleton(1)) return;
    const std::int64_t n = 2 + roll(5);
    const Item y = new_argument({x.shape[0], n}), w = new_argument({x.shape[1], n});
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    labels.a[0] = labels.b[0] = 0;
    labels.a[1] = labels.out[0] = 1;
    labels.b[1] = labels.out[1] = 2;
    const auto made = w.value - tessera::build::einsum(x.value, y.value, labels) * 0.125;
    updates_.push_back(made);
    push(made, w.shape);
  }
  void multiply() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const int d = roll(static_cast<int>(x.shape.size()));
    Shape shape = x.shape;
    shape[at(d)] = 1;
    push(tessera::build::reduce(op_of("prod"), x.value, 1u << d, true), shape);
  }
  /// A product of bf16 operands, rounded to bf16.
  void rounded() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    if (rank == 0 || x.value.is_singleton(rank - 1) || options_.type != tessera::DType::f32 || options_.smooth) return;
    rounds = true;
    const std::int64_t n = 2 + roll(6);
    Shape shape = x.shape;
    const Item w = new_argument({shape[at(rank - 1)], n}), b = new_argument({n});
    shape[at(rank - 1)] = n;
    auto made = product(tessera::build::cast(x.value, tessera::DType::bf16),
                        tessera::build::cast(w.value, tessera::DType::bf16), rank);
    if (roll(2) == 0) made = made + b.value;
    push(tessera::build::cast(tessera::build::cast(made, tessera::DType::bf16), options_.type), shape);
  }
  void add_rows() {
    const Item table = bounded(any());
    if (table.shape.size() < 2 || table.value.is_singleton(0)) return;
    const Item indices = new_indices(random_shape(1 + roll(2)), 0, table.shape[0]);
    Shape shape = indices.shape;
    for (std::size_t d = 1; d < table.shape.size(); ++d) shape.push_back(table.shape[d]);
    if (shape.size() > 5) return;
    arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size())));
    const unsigned unit = static_cast<unsigned>(table.value.node().singletons >> 1) << indices.shape.size();
    const auto rows = program_.argument(static_cast<int>(shape.size()), unit, options_.type);
    const Node node{.op = Op::index_add,
                    .dtype = options_.type,
                    .rank = table.value.node().rank,
                    .singletons = table.value.node().singletons};
    push(table.value + rows.make(node, {rows.id, indices.value.id, table.value.id}), table.shape);
  }
};

}  // namespace oracle

#endif
