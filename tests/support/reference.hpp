#ifndef TESSERA_TESTS_SUPPORT_REFERENCE_HPP
#define TESSERA_TESTS_SUPPORT_REFERENCE_HPP

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "traced.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/trace.hpp>

/// Results and gradients of PyTorch, from files that tests/reference/generate.py writes.
namespace reference {

using oracle::Array;

/// A case of a file: arguments, results, and gradients by the floating-point arguments.
struct Case {
  std::vector<Array> in, out, grad;
  std::vector<bool> is_floating;  ///< of the arguments
};

std::map<std::string, Case> read_cases(const std::string& family);

namespace detail {

/// The largest difference of an element in units of the last place of the element, or of `least` where that is more.
double ulps(const Array& got, const Array& want, double unit, double least);

}  // namespace detail

/// The arguments of a case as types: `types<Float<2>, Int<1>>`.
template <class... Args> inline constexpr std::type_identity<std::tuple<Args...>> types{};

/// How far a result may be from PyTorch's, in units of the last place.
struct Bound {
  double f64 = 8, f32 = 8;
  double least = -1;  ///< relative to each element, or to this where it is more; -1: to the largest of the result
};
/// Arguments that are no tensors, such as the Dims of a model: {place among the arguments, value}.
using Numbers = std::map<std::size_t, double>;

namespace detail {

/// What cases have in common for all element types.
class AnyCases {
 public:
  AnyCases(const std::string& family, Bound bound, bool single);
  AnyCases(const AnyCases&) = delete;
  AnyCases& operator=(const AnyCases&) = delete;
  ~AnyCases();

  void set_bound(Bound bound) { bound_ = bound; }
  const Case& operator[](const std::string& name) {
    used_[name] = true;
    return cases_.at(name);
  }

 protected:
  /// Runs a recorded function of a case on one, two and three devices, and compares results and gradients.
  void check(const std::string& name, const tessera::Module& recorded, const Numbers& numbers);

 private:
  std::map<std::string, Case> cases_;
  std::map<std::string, bool> used_;
  Bound bound_;
  bool single_;
};

}  // namespace detail

/// All cases of one file, computed in element type T on one, two and three devices.
template <class T> class Cases : public detail::AnyCases {
 public:
  explicit Cases(const std::string& family, Bound bound = {}) : AnyCases(family, bound, std::is_same_v<T, float>) {}

  template <class... Args, class F>
  void check(std::type_identity<std::tuple<Args...>>, const std::string& name, F, const Numbers& numbers = {}) {
    AnyCases::check(name, tessera::Trace<F, Args...>::record().first, numbers);
  }
};

}  // namespace reference

#endif
