#ifndef TESSERA_TESTS_SUPPORT_RANDOM_PROGRAM_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_PROGRAM_HPP

#include <cstddef>
#include <utility>

#include "random_layers.hpp"

namespace oracle {

/// A random program and arguments for it. Values stay in a range where f32 and f64 agree, but may be at kinks: unless
/// the program is smooth, compare gradients with an interpreter, not with differences.
class RandomProgram : public RandomLayers {
 public:
  explicit RandomProgram(unsigned seed, int steps = 14, Options options = {}) : RandomLayers(seed, std::move(options)) {
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

 private:
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
  void grow_more() {
    switch (roll(35)) {
      case 0:
        return scan();
      case 1:
        return sort();
      case 2:
        return take_along();
      case 3:
        return patch();
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
      case 30:
        return reverse();
      case 31:
        return ragged();
      case 32:
        return flip();
      default:
        return elementwise();
    }
  }
};

}  // namespace oracle

#endif
