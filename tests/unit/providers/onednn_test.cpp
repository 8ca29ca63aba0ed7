#include "check_provider.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/gemm/onednn_provider.hpp>

namespace {

TEST(OneDnnProvider, EveryProduct) {
  EXPECT_EQ(tessera::kernels::onednn_provider().name(), "onednn");
  tessera_test::check_provider(tessera::kernels::onednn_provider());
}

}  // namespace
