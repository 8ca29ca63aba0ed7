#ifndef TESSERA_TESTS_UNIT_PARALLEL_MODEL_RESULTS_HPP
#define TESSERA_TESTS_UNIT_PARALLEL_MODEL_RESULTS_HPP

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/print/print.hpp>

namespace tessera_test {

/// The path of each parameter of a model, and its type with its sharding.
template <class Model> std::vector<std::string> types(const Model& model) {
  std::vector<std::string> list;
  tessera::nn::for_each_named_parameter(model, [&](const std::string& name, const auto& leaf) {
    list.push_back(name + " " + tessera::sharded_type_text(leaf));
  });
  return list;
}
inline void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double relative) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], relative * std::fabs(wanted[i])) << "value " << i;
}

}  // namespace tessera_test

#endif
