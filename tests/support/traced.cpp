#include "traced.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <tessera/graph/ir/verify.hpp>
#include <tessera/graph/transform/simplify.hpp>

namespace oracle {

Program simplified(tessera::Module recorded, int argument_count) {
  tessera::simplify(recorded);
  Program program(std::move(recorded), argument_count);
  tessera::verify(program.view());
  return program;
}

Array random_array(const Shape& shape, unsigned seed, double low, double high) {
  std::mt19937 engine(seed);
  Array made(shape);
  for (double& v : made.data) v = std::uniform_real_distribution<double>(low, high)(engine);
  return made;
}

void expect_near(const Array& got, const Array& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape) << what;
  double scale = 1e-3;
  for (double v : want.data) scale = std::max(scale, std::fabs(v));
  for (std::size_t i = 0; i < want.data.size(); ++i)
    ASSERT_NEAR(got.data[i], want.data[i], tolerance * scale) << what << " element " << i;
}

}  // namespace oracle
