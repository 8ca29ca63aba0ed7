#ifndef TESSERA_TESTS_SUPPORT_REFERENCE_HPP
#define TESSERA_TESTS_SUPPORT_REFERENCE_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "traced.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/mesh.hpp>

/// Results and gradients of PyTorch, from files that tests/reference/generate.py writes.
namespace reference {

using oracle::Array;

/// A case of a file: arguments, results, and gradients by the floating-point arguments.
struct Case {
  std::vector<Array> in, out, grad;
  std::vector<bool> is_floating;  ///< of the arguments
};

inline Array read_array(std::istream& line) {
  std::string shape, word;
  line >> shape;
  Array read;
  std::istringstream extents(shape.substr(1, shape.size() - 2));
  for (std::string extent; std::getline(extents, extent, ',');) read.shape.push_back(std::stoll(extent));
  while (line >> word) read.data.push_back(std::strtod(word.c_str(), nullptr));  // strtod reads "nan" and "inf"
  if (read.data.size() != static_cast<std::size_t>(tessera::volume(read.shape)))
    throw std::runtime_error("reference: data does not fit its shape");
  return read;
}

inline std::map<std::string, Case> read_cases(const std::string& family) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../reference/data" / (family + ".txt");
  std::ifstream file(path);
  std::map<std::string, Case> cases;
  Case* last = nullptr;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind, what;
    line >> kind >> what;
    if (kind == "case") {
      last = &cases[what];
      continue;
    }
    (kind == "in" ? last->in : kind == "out" ? last->out : last->grad).push_back(read_array(line));
    if (kind == "in") last->is_floating.push_back(what == "f64");
  }
  if (cases.empty()) throw std::runtime_error("reference: cannot read " + path.string());
  return cases;
}

namespace detail {

template <int D, class T, class X> constexpr auto weight_of_dims(const X& x) {
  constexpr double factors[] = {7, 5, 3, 2, 1};
  const auto own = tessera::iota<D, T>(x) * factors[D];
  if constexpr (D + 1 == X::rank)
    return own;
  else
    return own + weight_of_dims<D + 1, T>(x);
}
/// sum(r * c) with the weights of generate.py; 0 for integers.
template <class R> constexpr auto weighted_sum(const R& r) {
  using T = typename R::element;
  if constexpr (!tessera::is_floating_v<T>)
    return tessera::sum(tessera::cast<float>(r)) * 0.0;
  else if constexpr (R::rank == 0)
    return r * -0.625;
  else
    return tessera::sum(r * ((tessera::remainder(weight_of_dims<0, T>(r), 11.0) - 5.0) / 8.0));
}

template <class R> constexpr auto as_tuple(const R& r) {
  if constexpr (tessera::TensorOperand<R>)
    return std::tuple(r);
  else
    return r;
}
/// A tensor as the function of a trace gets it outside of tuples, so that it is no expression of limited size.
template <class X> constexpr auto traced(const X& x) {
  if constexpr (tessera::StoredOperand<X>)
    return tessera::Sym<typename X::element, X::rank>(x.placeholder());
  else
    return x;
}
template <class F> struct Results {
  constexpr auto operator()(const auto&... inputs) const { return as_tuple(F{}(inputs...)); }
};
template <class F> struct ResultsAndGradient {
  constexpr auto operator()(const auto& inputs) const {
    const auto loss = [](const auto& all) {
      const auto results = as_tuple(std::apply(F{}, all));
      const auto sum = std::apply([](const auto&... r) { return (weighted_sum(r) + ...); }, results);
      return std::tuple(sum, results);
    };
    return tessera::value_and_grad(loss)(
        std::apply([](const auto&... in) { return std::tuple(traced(in)...); }, inputs));
  }
};

template <class T> inline constexpr bool is_integers_v = false;
template <class T, int Rank>
inline constexpr bool is_integers_v<tessera::ShardedTensor<T, Rank>> = !tessera::is_floating_v<T>;

/// Plans and runs a program on a mesh, with tensors split along their first dim; its fused kernels are interpreted.
std::vector<Array> run_on(const oracle::Program& program, const tessera::Mesh& mesh,
                          const std::vector<Array>& arguments);

/// The largest difference of an element in units of the last place of the element, or of `least` where that is more.
inline double ulps(const Array& got, const Array& want, double unit, double least) {
  double most = 0;
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double difference = std::fabs(a - b) / (unit * std::fmax(std::fabs(b), least));
    most = std::isfinite(difference) ? std::fmax(most, difference) : INFINITY;
  }
  return most;
}

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

/// All cases of one file, computed in element type T on one, two and three devices.
template <class T> class Cases {
 public:
  explicit Cases(const std::string& family, Bound bound = {}) : cases_(read_cases(family)), bound_(bound) {}
  Cases(const Cases&) = delete;
  Cases& operator=(const Cases&) = delete;
  ~Cases() {
    for (const auto& [name, c] : cases_) EXPECT_TRUE(used_[name]) << "no test of the case " << name;
  }

  void set_bound(Bound bound) { bound_ = bound; }
  const Case& operator[](const std::string& name) {
    used_[name] = true;
    return cases_.at(name);
  }

  template <class... Args, class F>
  void check(std::type_identity<std::tuple<Args...>>, const std::string& name, F, const Numbers& numbers = {}) {
    SCOPED_TRACE(name + (std::is_same_v<T, float> ? " f32" : " f64"));
    ASSERT_TRUE(cases_.contains(name));
    const Case& c = (*this)[name];
    const Bound bound = bound_;
    using Inputs = std::tuple<Args...>;
    std::vector<Array> arguments;
    std::vector<bool> differentiated;
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      add_numbers(numbers, arguments, differentiated);
      arguments.push_back(c.in[i]);
      differentiated.push_back(c.is_floating[i]);
    }
    add_numbers(numbers, arguments, differentiated);
    std::vector<Array> want = c.out;
    want.insert(want.end(), c.grad.begin(), c.grad.end());
    const auto expect = [&](const std::vector<Array>& all, const std::string& where) {
      std::vector<Array> got = all;
      if (!c.grad.empty()) {
        const auto first = all.begin() + 1, last = first + static_cast<std::ptrdiff_t>(c.out.size());
        got.assign(first, last);
        for (std::size_t k = 0; k < differentiated.size(); ++k)
          if (differentiated[k]) got.push_back(*(last + static_cast<std::ptrdiff_t>(k)));
      }
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < want.size(); ++k) {
        ASSERT_EQ(got[k].shape, want[k].shape) << where << ", result " << k;
        const double least = bound.least < 0 ? oracle::largest(want[k], 0.1) : bound.least;
        constexpr bool single = std::is_same_v<T, float>;
        const double difference = detail::ulps(got[k], want[k], single ? 0x1p-23 : 0x1p-52, least);
        EXPECT_LE(difference, (single ? bound.f32 : bound.f64))
            << where << (k < c.out.size() ? ", result " : ", gradient ") << (k < c.out.size() ? k : k - c.out.size())
            << values(got[k], want[k]);
      }
    };
    const oracle::Program program = [&] {
      if constexpr (!(detail::is_integers_v<Args> && ...))
        if (!c.grad.empty()) return oracle::trace<detail::ResultsAndGradient<F>, Inputs>();
      return oracle::trace<detail::Results<F>, Args...>();
    }();
    for (const int devices : {1, 2, 3})
      expect(detail::run_on(program, tessera::Mesh({{"data", devices}}), arguments),
             std::to_string(devices) + " devices");
  }

 private:
  std::map<std::string, Case> cases_;
  std::map<std::string, bool> used_;
  Bound bound_;

  static void add_numbers(const Numbers& numbers, std::vector<Array>& arguments, std::vector<bool>& differentiated) {
    for (auto n = numbers.find(arguments.size()); n != numbers.end(); n = numbers.find(arguments.size())) {
      arguments.push_back(Array::number(n->second));
      differentiated.push_back(false);
    }
  }
  static std::string values(const Array& got, const Array& want) {
    std::ostringstream text;
    for (std::size_t i = 0; i < want.data.size(); ++i)
      if (got.data[i] != want.data[i] && !(std::isnan(got.data[i]) && std::isnan(want.data[i])))
        text << "\n  element " << i << ": " << got.data[i] << ", of PyTorch " << want.data[i];
    return text.str();
  }
};

}  // namespace reference

#endif
