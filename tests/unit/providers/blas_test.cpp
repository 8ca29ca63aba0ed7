#include "check_provider.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/gemm/blas_provider.hpp>

namespace {

TEST(BlasProvider, EveryProduct) {
  EXPECT_EQ(tessera::kernels::blas_provider().name(), "blas");
  tessera_test::check_provider(tessera::kernels::blas_provider());
}

}  // namespace
