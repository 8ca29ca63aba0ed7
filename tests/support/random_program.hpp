#ifndef TESSERA_TESTS_SUPPORT_RANDOM_PROGRAM_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_PROGRAM_HPP

#include <functional>

#include "untyped.hpp"

namespace oracle {

/// A random program over most operations, with arguments to run it on. Values stay in a range where f32 and f64 agree,
/// and away from kinks only by chance: compare gradients with an interpreter, not with differences.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed, int steps = 14) : engine_(seed) {
    for (int i = 0; i < 2; ++i) values_.push_back(new_argument(random_shape(1 + roll(3))));
    for (int step = 0; step < steps; ++step) grow();
  }

  /// With the sum of the last values and its gradient, or with the last values themselves, as results.
  Program finish(bool gradients) {
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
      for (std::size_t i = values_.size() - 3; i < values_.size(); ++i) program_.output(values_[i].value);
    }
    return program_.finish();
  }

  std::vector<Array> arguments;

 private:
  using ts_value = tessera::Value;
  struct Item {
    ts_value value;
    Shape shape;
  };
  UntypedProgram program_;
  std::vector<Item> values_;
  std::mt19937 engine_;

  int roll(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }
  const Item& any() { return values_[static_cast<std::size_t>(roll(static_cast<int>(values_.size())))]; }
  Shape random_shape(int rank) {
    Shape shape;
    for (int d = 0; d < rank; ++d) shape.push_back(2 + roll(5));
    return shape;
  }
  Item new_argument(const Shape& shape) {
    arguments.push_back(random_array(shape, static_cast<unsigned>(arguments.size()) + 1));
    return {program_.argument(static_cast<int>(shape.size())), shape};
  }
  Item bounded(const Item& item) { return {tessera::build::unary(Op::tanh, item.value), item.shape}; }
  bool fits(const Item& a, const Item& b) const {
    for (std::size_t d = 1; d <= a.shape.size() && d <= b.shape.size(); ++d) {
      const std::size_t i = a.shape.size() - d, j = b.shape.size() - d;
      const bool repeats = a.value.is_unit(static_cast<int>(i)) || b.value.is_unit(static_cast<int>(j));
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
    const Item x = any();
    values_.push_back({tessera::build::unary(ops[roll(7)], x.value), x.shape});
  }
  void binary() {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item a = bounded(any()), b = any();
      if (!fits(a, b)) continue;
      constexpr Op ops[] = {Op::add, Op::sub, Op::mul, Op::minimum, Op::maximum};
      const int choice = roll(6);
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
    values_.push_back({tessera::build::reduce(ops[roll(3)], x.value, dims, keep), shape});
  }
  /// With a new argument that shares some of the dims: those are kept or summed.
  void contract() {
    const Item x = bounded(any());
    const int rank = static_cast<int>(x.shape.size());
    tessera::EinsumLabels labels;
    for (int d = 0; d < tessera::max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    Shape weight, out;
    int rank_b = 0, rank_out = 0;
    for (int d = 0; d < rank; ++d) {
      labels.a[d] = static_cast<std::int8_t>(d);
      const bool shared = roll(2) == 0 && !x.value.is_unit(d);
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
      if (!x.value.is_unit(static_cast<int>(d))) {
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
      if (x.value.is_unit(d)) return;
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
    } else if (rank > 1) {  // merge at and its neighbour
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
    if (x.value.is_unit(d)) return;
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
                .dtype = tessera::DType::f32,
                .rank = x.value.node().rank,
                .unit = x.value.node().unit,
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
    const Node node{.op = Op::embedding, .dtype = tessera::DType::f32, .rank = static_cast<std::uint8_t>(shape.size())};
    values_.push_back({table.value.make(node, {table.value.id, index.id}), shape});
  }
};

}  // namespace oracle

#endif
