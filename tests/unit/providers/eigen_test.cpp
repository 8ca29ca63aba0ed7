#include "check_provider.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/gemm/eigen_provider.hpp>

namespace {

TEST(EigenProvider, EveryProduct) {
  EXPECT_EQ(tessera::kernels::eigen_provider().name(), "eigen");
  tessera_test::check_provider(tessera::kernels::eigen_provider());
}

}  // namespace
