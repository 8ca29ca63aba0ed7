#ifndef TESSERA_TESTS_UNIT_OPTIM_LEAVES_HPP
#define TESSERA_TESTS_UNIT_OPTIM_LEAVES_HPP

#include <initializer_list>
#include <vector>

#include "../../support/traced.hpp"

// Lists of leaves, as arguments of a traced optimizer.
namespace oracle {

inline std::vector<Array> joined(std::initializer_list<std::vector<Array>> parts) {
  std::vector<Array> all;
  for (const std::vector<Array>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
inline std::vector<Array> numbers(std::initializer_list<double> values) {
  std::vector<Array> all;
  for (const double value : values) all.push_back(Array::number(value));
  return all;
}

}  // namespace oracle

#endif
