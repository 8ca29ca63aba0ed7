#include "one_operation.hpp"
#include "operations.hpp"

using namespace programs::operations;

TEST(Operations, OfFloatsOneAtATime) {
  check_moves(OneAtATime<float>(60));
  check_arithmetic(OneAtATime<float>(60));
  check_floating(OneAtATime<float>(60));
}
TEST(Operations, OfDoublesAndBf16InPartialValues) {
  check_partial(OneAtATime<double>(60));
  check_partial(OneAtATime<tessera::bf16>(60));
}
TEST(Operations, OfFloats) { check_everything<float>(); }
TEST(Operations, OfDoubles) { check_everything<double>(); }
TEST(Operations, OfBf16) { check_everything<tessera::bf16>(); }
// bf16 stands for f16 elsewhere: only loads, stores and casts of the two differ. Gradients are in f16_test.cpp.
TEST(Operations, OfF16) { check_traced<tessera::f16>(); }
