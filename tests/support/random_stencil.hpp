#ifndef TESSERA_TESTS_SUPPORT_RANDOM_STENCIL_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_STENCIL_HPP

#include <cstddef>
#include <cstdint>
#include <utility>

#include "random_layers.hpp"

namespace oracle {

/// A random program of rolls, pads, slices and concats with rows long enough for fused kernels to read their elements
/// in other values (see ts::Fragment), among elementwise operations and others.
class RandomStencil : public RandomLayers {
 public:
  explicit RandomStencil(unsigned seed, int steps = 14, Options options = {}) : RandomLayers(seed, std::move(options)) {
    constexpr int rows[] = {1, 2, 5, 8, 16, 24, 33, 40}, columns[] = {64, 65, 96, 130};
    base_ = {rows[roll(8)], columns[roll(4)]};
    if (roll(4) == 0) base_.insert(0, 1 + roll(3));
    if (roll(8) == 0) base_ = {columns[roll(4)] * 4};
    for (int i = 0; i < 2; ++i) values_.push_back(new_argument(base_));
    if (roll(3) == 0) values_.push_back(new_argument({base_.back()}));
    for (int step = 0; step < steps; ++step) grow();
  }

  /// The finished program. It returns the sum of the last values and its gradient, or the last values themselves.
  Program finish(bool gradients, bool simplified = true) {
    if (!gradients) {
      const std::size_t first = values_.size() < 3 ? 0 : values_.size() - 3;
      for (std::size_t i = first; i < values_.size(); ++i) program_.output(values_[i].value);
      return program_.finish(simplified);
    }
    ts_value total = bounded(values_.back()).value;
    const Shape weights_shape = values_.back().shape;
    for (int i = 0; i < 3; ++i) {
      const Item& item = any();
      total = total + tessera::build::reduce(Op::sum, bounded(item).value, (1u << item.value.rank()) - 1, false);
    }
    program_.output_gradients(total);
    arguments.push_back(random_array(weights_shape, 1000));
    return program_.finish(simplified);
  }

 private:
  Shape base_;

  static ts_value count(const ts_value& x, std::int64_t n) { return x.integer(n, tessera::DType::i64); }
  int distance(std::int64_t n) {  // most often short
    const int most = static_cast<int>(n < 1000 ? n : 1000);
    return roll(5) == 0 ? roll(most + 1) : roll(most < 3 ? most + 1 : 4);
  }
  static ts_value joined(int d, const ts_value& a, const ts_value& b) {
    const Node& x = a.node();
    const unsigned dim = 1u << d;
    const Node made{.op = Op::concat,
                    .dtype = x.dtype,
                    .rank = x.rank,
                    .singletons = static_cast<std::uint8_t>(x.singletons & ~dim),
                    .labels = tessera::pack_dim(d)};
    return a.make(made, {a.id, b.id});
  }
  static ts_value rolled(const ts_value& x, int d, std::int64_t n, std::int64_t by) {
    return joined(d, tessera::build::slice(x, d, count(x, n - by), count(x, by)),
                  tessera::build::slice(x, d, count(x, 0), count(x, n - by)));
  }
  /// x[i - by], and zeros; by may be negative.
  static ts_value shifted(const ts_value& x, int d, std::int64_t n, std::int64_t by) {
    if (by >= 0)
      return tessera::build::slice(tessera::build::pad_to(x, d, count(x, by), count(x, n + by)), d, count(x, 0),
                                   count(x, n));
    return tessera::build::slice(tessera::build::pad_to(x, d, count(x, 0), count(x, n - by)), d, count(x, -by),
                                 count(x, n));
  }
  ts_value moved(const ts_value& x, int d, std::int64_t n) {
    if (x.is_singleton(d)) return x;
    const int by = distance(n);
    if (roll(2) == 0) return rolled(x, d, n, roll(2) == 0 ? by : n - by);
    return shifted(x, d, n, roll(2) == 0 ? by : -by);
  }
  void move() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    ts_value made = moved(x.value, d, x.shape[at(d)]);
    if (roll(3) == 0)
      if (const int other = extending_dim(x); other >= 0) made = moved(made, other, x.shape[at(other)]);
    push(made, x.shape);
  }
  void stencil() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    const int e = extending_dim(x);
    const std::int64_t n = x.shape[at(d)], m = x.shape[at(e)];
    push(moved(x.value, d, n) * 0.5 + moved(x.value, e, m) * 0.25 - moved(moved(x.value, d, n), e, m) * x.value,
         x.shape);
  }
  void pad_or_slice() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    const std::int64_t n = x.shape[at(d)];
    Shape shape = x.shape;
    if (roll(2) == 0 && n < 200) {
      const int before = distance(n), after = distance(n);
      shape[at(d)] += before + after;
      return push(tessera::build::pad_to(x.value, d, size(before), size(shape[at(d)])), shape);
    }
    const std::int64_t start = distance(n), least = roll(6) == 0 ? 0 : 2;
    if (n - start < least) return;
    shape[at(d)] = n - start - (n - start > least ? roll(static_cast<int>(n - start - least) + 1) : 0);
    if (roll(2) == 0) shape[at(d)] = n - start;
    push(tessera::build::slice(x.value, d, size(start), size(shape[at(d)])), shape);
  }
  void concat() {
    const Item x = any();
    const int d = extending_dim(x);
    if (d < 0) return;
    for (int attempt = 0; attempt < 12; ++attempt) {
      const Item y = any();
      if (y.shape.size() != x.shape.size() || x.shape[at(d)] + y.shape[at(d)] > 400) continue;
      bool alike = true;
      for (int e = 0; e < static_cast<int>(x.shape.size()); ++e)
        if (e != d)
          alike = alike && x.shape[at(e)] == y.shape[at(e)] && x.value.is_singleton(e) == y.value.is_singleton(e);
      if (!alike) continue;
      Shape shape = x.shape;
      shape[at(d)] += y.shape[at(d)];
      return push(joined(d, x.value, y.value), shape);
    }
  }
  /// Columns of a value that is moved along another dim, beside columns of another value.
  void patched() {
    const Item x = any();
    if (x.shape.size() < 2 || !(x.shape == base_)) return;
    const int e = static_cast<int>(x.shape.size()) - 1, d = roll(e);
    const std::int64_t n = x.shape[at(e)], m = x.shape[at(d)];
    if (m < 2 || x.value.is_singleton(d) || x.value.is_singleton(e)) return;
    const std::int64_t width = 2 + roll(static_cast<int>(n) / 4),
                       from = roll(2) == 0 ? width : roll(static_cast<int>(n / 2));
    const auto far = tessera::build::slice(moved(x.value, d, m), e, count(x.value, from), count(x.value, width));
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item y = any();
      if (!(y.shape == x.shape) || y.value.node().singletons != x.value.node().singletons) continue;
      const auto rest = tessera::build::slice(y.value, e, count(y.value, 0), count(y.value, n - width));
      return push(joined(e, far, rest) * 0.5 + moved(x.value, d, m), x.shape);
    }
  }
  /// A value padded or cut along each dim to the first shape, so that elementwise operations can combine values.
  void fit() {
    const Item x = any();
    if (x.shape.size() != base_.size()) return;
    ts_value made = x.value;
    for (int d = 0; d < static_cast<int>(base_.size()); ++d) {
      const std::int64_t n = x.shape[at(d)], wanted = base_[at(d)];
      if (n == wanted && roll(3) != 0) continue;
      if (x.value.is_singleton(d)) return;
      if (n > wanted)
        made = tessera::build::slice(made, d, count(made, roll(static_cast<int>(n - wanted) + 1)), count(made, wanted));
      else if (n < wanted)
        made =
            tessera::build::pad_to(made, d, count(made, roll(static_cast<int>(wanted - n) + 1)), count(made, wanted));
    }
    push(made, base_);
  }
  /// Rolls and pads of integers and of bools.
  void of_other_types() {
    const Item x = bounded(any());
    const int d = extending_dim(x);
    if (d < 0 || options_.smooth) return;
    const tessera::DType types[] = {tessera::DType::i32, tessera::DType::i8, tessera::DType::bool_};
    const tessera::DType type = types[roll(3)];
    const std::int64_t n = x.shape[at(d)];
    if (type == tessera::DType::bool_) {
      const ts_value flags = moved(tessera::build::binary(Op::less, x.value, x.value.number(0.25)), d, n);
      return push(tessera::build::select(flags, x.value, x.value * 0.5), x.shape);
    }
    const ts_value whole = moved(tessera::build::cast(x.value * 9.0, type), d, n);
    push(x.value + tessera::build::cast(whole, options_.type) * 0.125, x.shape);
  }
  /// A loop of stencils, with another value as xs.
  void stencil_steps() {
    const Item x = bounded(any());
    if (x.shape.empty() || extending_dim(x) < 0) return;
    const Item xs = bounded(new_argument({1 + roll(3), x.shape.back()}));
    tessera::Module& module = *x.value.module;
    const int body = module.add_graph();
    const auto inner = [&](int index, std::size_t rank, unsigned unit) {
      const Node node = tessera::argument_node(index, options_.type, static_cast<int>(rank), unit);
      return tessera::Value{&module, body, module.graph(body).add(node), {}};
    };
    const auto carried = inner(0, x.shape.size(), x.value.node().singletons),
               slice = inner(1, xs.shape.size() - 1, xs.value.node().singletons >> 1);
    if (x.value.is_singleton(static_cast<int>(x.shape.size()) - 1)) return;
    const int d = extending_dim(x), e = extending_dim(x);
    const auto next = tessera::build::unary(
        Op::tanh, moved(carried, d, x.shape[at(d)]) * 0.5 + moved(carried, e, x.shape[at(e)]) + carried * slice);
    const auto made = moved(carried, d, x.shape[at(d)]) - moved(next, e, x.shape[at(e)]);
    for (const ts_value& v : {next, made}) module.graph(body).outputs.push_back(v.id);
    const tessera::Repeat repeat{1, 1, roll(2) == 0, false, true};
    const std::int32_t operands[] = {x.value.id, xs.value.id};
    const auto repeated = x.value.with(module.graph(0).add(repeat.node(body, {}), operands, 2));
    push(tessera::build::project(repeated, 0, x.value.node()), x.shape);
    Shape all = x.shape;
    all.insert(0, xs.shape[0]);
    if (all.size() < 4) push(tessera::build::project(repeated, 1, tessera::build::stacked_type(made.node())), all);
  }
  void grow() {
    switch (roll(25)) {
      case 0:
      case 1:
      case 2:
        return move();
      case 3:
      case 4:
      case 5:
        return stencil();
      case 6:
      case 7:
        return pad_or_slice();
      case 8:
      case 9:
        return concat();
      case 10:
      case 11:
      case 12:
        return fit();
      case 13:
        return unary();
      case 14:
      case 15:
      case 16:
      case 17:
        return binary();
      case 18:
        return compare();
      case 19:
        return of_other_types();
      case 20:
        return roll(2) == 0 ? reduce() : constrain();
      case 21:
        return roll(2) == 0 ? flip() : permute();
      case 22:
        return stencil_steps();
      case 23:
        return patched();
      default:
        return roll(2) == 0 ? dense() : positions();
    }
  }
};

}  // namespace oracle

#endif
