#ifndef TESSERA_TESTS_UNIT_PROGRAMS_CHECK_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_CHECK_HPP

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/base/growable.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/program/program.hpp>

/// Programs against the dense oracle in double, over random meshes, specs, extents and values.
namespace programs {

/// How the values of one leaf of a program's arguments are made. Its dims are letters, which stand for extents.
struct Argument {
  tessera::DType dtype = tessera::DType::f32;
  std::string dims;
  double low = -1, high = 1;
  char below = 0;        ///< an index: below the extent of this letter
  bool stacked = false;  ///< one of each layer of a Stack
  bool is_dim = false, is_scalar = false;
};

template <tessera::Element T = float> Argument values(std::string dims, double low = -1, double high = 1) {
  return {tessera::dtype_v<T>, std::move(dims), low, high};
}
template <tessera::Element T = std::int32_t> Argument indices(std::string dims, char below) {
  return {.dtype = tessera::dtype_v<T>, .dims = std::move(dims), .below = below};
}
/// A ts::Dim: the extent of a letter.
inline Argument size(char letter) { return {.dims = {letter}, .is_dim = true}; }
inline Argument scalar(double low, double high) { return {.dims = {}, .low = low, .high = high, .is_scalar = true}; }
/// The same leaf in every layer of a Stack; letter L counts the layers.
inline Argument stacked(Argument argument) {
  argument.stacked = !argument.is_dim && !argument.is_scalar;
  return argument;
}

struct Check {
  std::vector<Argument> arguments;
  int cases = 100;
  double tolerance = 2e-5;    ///< relative to the largest element of a result; f64 gets 1e-7 of it
  bool may_be_empty = false;  ///< extents may be 0
  int least_axes = 0;         ///< of the mesh: x, y, z
  std::vector<std::pair<char, std::vector<std::int64_t>>> extents = {};  ///< to choose from, instead of the usual
  std::vector<std::pair<char, std::string>> products = {};               ///< extents that are products of others
};

/// Calls run(seed) for each case: those that a check asks for, or the environment (see check_program).
void for_each_case(const Check& check, std::uint32_t seed, const std::function<void(std::uint32_t)>& run);

/// Runs a program on random cases. Compares every result with the oracle's, and results on two meshes with each other.
/// In the environment, TESSERA_CASE=n runs only case n, TESSERA_CASES=n runs n cases, TESSERA_FIRST_CASE=n begins with
/// case n.
void check_program(const tessera::CompiledProgram& program, const Check& check, std::uint32_t seed);

/// An expression of stored tensors that ran: its program, what it was given, and the result.
struct Evaluated {
  const tessera::CompiledProgram* program;
  tessera::Growable<tessera::Leaf> leaves;
  tessera::Leaf result;
};

/// Evaluates an expression on random cases, each on one device and on two meshes, and compares the results with the
/// oracle's. `evaluate` makes the expression of the arguments.
void check_expression(const std::function<Evaluated(const tessera::Growable<tessera::Leaf>&)>& evaluate,
                      const Check& check, std::uint32_t seed);

/// Where a program runs, and how each leaf of its arguments lies.
struct Placed {
  tessera::Mesh mesh;
  std::vector<tessera::PartitionSpec> specs;
};

/// Runs a program in one place.
void check_placed(const tessera::CompiledProgram& program, const Check& check, const Placed& placed);

template <class... Args, class F> void expect_equal_on(F, const Check& check, const Placed& placed) {
  using Traced = tessera::Traced<F, Args...>;
  check_placed(tessera::detail::ProgramCode<Traced>::compiled(), check, placed);
}

template <class... Args, class F> void expect_equal_on_all_meshes(F, const Check& check, std::uint32_t seed) {
  using Traced = tessera::Traced<F, Args...>;
  check_program(tessera::detail::ProgramCode<Traced>::compiled(), check, seed);
}

template <int Rank, class T = float> using Tensor = tessera::ShardedTensor<T, Rank>;

/// f(floats, rest...), a tuple that begins with a scalar, and the gradient of the scalar by the floats.
template <class F> struct Gradient {
  template <class... Floats> constexpr auto operator()(const std::tuple<Floats...>& floats, const auto&... rest) const {
    const auto symbols = std::apply(
        [](const Floats&... x) {
          return std::tuple(tessera::Sym<typename Floats::element, Floats::rank>(x.placeholder())...);
        },
        floats);
    return tessera::value_and_grad(F{})(symbols, rest...);
  }
};
template <class F> constexpr Gradient<F> with_gradient(F) { return {}; }

/// A scalar to which every element of every result adds with another weight, so that cotangents differ.
template <class... Results> constexpr auto energy(const Results&... results) {
  return (tessera::sum((results + 0.25) * results) + ...);
}

}  // namespace programs

#endif
