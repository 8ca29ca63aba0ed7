#include "one_operation.hpp"
#include "operations.hpp"

using namespace programs::operations;

TEST(Operations, OfBoolsOneAtATime) { check_moves(OneAtATime<bool>(60)); }
TEST(Operations, OfIntegersInPartialValues) {
  check_partial(OneAtATime<bool>(60));
  check_partial(OneAtATime<std::uint8_t>(60));
  check_partial(OneAtATime<std::int8_t>(60));
  check_partial(OneAtATime<std::int16_t>(60));
  check_partial(OneAtATime<std::int32_t>(60));
  check_partial(OneAtATime<std::int64_t>(60));
}
TEST(Operations, OfBools) { check_everything<bool>(); }
TEST(Operations, OfBytes) { check_everything<std::uint8_t>(); }
TEST(Operations, OfSmallIntegers) { check_everything<std::int8_t>(); }
TEST(Operations, OfIntegersOf16Bits) { check_everything<std::int16_t>(); }
TEST(Operations, OfIntegers) { check_everything<std::int32_t>(); }
TEST(Operations, OfLongIntegers) { check_everything<std::int64_t>(); }
