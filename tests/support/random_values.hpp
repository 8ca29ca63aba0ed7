#ifndef TESSERA_TESTS_SUPPORT_RANDOM_VALUES_HPP
#define TESSERA_TESTS_SUPPORT_RANDOM_VALUES_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

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

/// The values and arguments of a random program while it is built.
class RandomValues {
 public:
  using Options = RandomProgramOptions;
  RandomValues(unsigned seed, Options options) : options_(std::move(options)), engine_(seed) {}

  std::vector<Array> arguments;
  std::vector<std::size_t> stacked_arguments;  ///< arguments with one slice per layer
  bool rounds = false;                         ///< some value is rounded to bf16

 protected:
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
  Item new_indices(const Shape& shape, unsigned unit, std::int64_t below) {
    Array indices(shape);
    for (double& i : indices.data) i = roll(static_cast<int>(below));
    arguments.push_back(indices);
    return {program_.argument(static_cast<int>(shape.size()), unit, tessera::DType::i32), shape};
  }
  void push(const ts_value& value, const Shape& shape) { values_.push_back({value, shape}); }
  static Op op_of(std::string_view name) { return static_cast<Op>(tessera::operation_id(name)); }
  static std::size_t at(int d) { return static_cast<std::size_t>(d); }
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
  /// A random dim of x that is no singleton dim, or -1 if x has none.
  int extending_dim(const Item& x) {
    std::vector<int> dims;
    for (std::size_t d = 0; d < x.shape.size(); ++d)
      if (!x.value.is_singleton(static_cast<int>(d))) dims.push_back(static_cast<int>(d));
    return dims.empty() ? -1 : dims[static_cast<std::size_t>(roll(static_cast<int>(dims.size())))];
  }
};

}  // namespace oracle

#endif
