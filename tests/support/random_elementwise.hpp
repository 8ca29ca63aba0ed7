#ifndef TESSERA_TESTS_SUPPORT_RANDOM_ELEMENTWISE_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_ELEMENTWISE_HPP

#include <cstddef>
#include <vector>

#include "random_values.hpp"

namespace oracle {

/// Elementwise operations, reductions and softmax of values of a random program.
class RandomElementwise : public RandomValues {
 protected:
  using RandomValues::RandomValues;

  void unary() {
    constexpr Op ops[] = {Op::neg, Op::abs, Op::tanh, Op::sigmoid, Op::relu, Op::gelu, Op::silu};
    constexpr Op smooth[] = {Op::neg, Op::tanh, Op::sigmoid, Op::gelu, Op::silu};
    const Item x = any();
    values_.push_back({tessera::build::unary(options_.smooth ? smooth[roll(5)] : ops[roll(7)], x.value), x.shape});
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
  void divide() {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Item a = bounded(any()), b = bounded(any());
      if (!fits(a, b)) continue;
      const auto positive = b.value * b.value + 0.5;
      return push(roll(2) == 0 ? a.value / positive : tessera::build::binary(Op::pow, positive, a.value),
                  broadcast(a.shape, b.shape));
    }
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
  void multiply() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const int d = roll(static_cast<int>(x.shape.size()));
    Shape shape = x.shape;
    shape[at(d)] = 1;
    push(tessera::build::reduce(op_of("prod"), x.value, 1u << d, true), shape);
  }
  void softmax() {
    const Item x = bounded(any());
    if (x.shape.empty()) return;
    const int dim = static_cast<int>(x.shape.size()) - 1;
    values_.push_back({tessera::build::softmax(x.value, dim), x.shape});
  }
  void random_numbers() {
    const Item x = bounded(any());
    const tessera::RandomDraw draw{roll(2) == 0 ? tessera::Distribution::uniform : tessera::Distribution::normal,
                                   static_cast<std::uint32_t>(roll(100))};
    push(x.value * tessera::build::random(x.value, program_.number(roll(50), tessera::DType::f64), draw), x.shape);
  }
};

}  // namespace oracle

#endif
