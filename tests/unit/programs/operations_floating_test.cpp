#include "operations.hpp"

using namespace programs::operations;

TEST(Operations, OfFloatsOneAtATime) {
  check_moves<float, true>();
  check_arithmetic<float, true>();
  check_floating<float, true>();
}
TEST(Operations, OfFloats) { check_together<float>(); }
TEST(Operations, OfDoubles) { check_together<double>(); }
TEST(Operations, OfBf16) { check_together<tessera::bf16>(); }
