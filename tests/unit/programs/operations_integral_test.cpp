#include "operations.hpp"

using namespace programs::operations;

TEST(Operations, OfBoolsOneAtATime) { check_moves<bool, true>(); }
TEST(Operations, OfBools) { check_together<bool>(); }
TEST(Operations, OfBytes) { check_together<std::uint8_t>(); }
TEST(Operations, OfSmallIntegers) { check_together<std::int8_t>(); }
TEST(Operations, OfIntegersOf16Bits) { check_together<std::int16_t>(); }
TEST(Operations, OfIntegers) { check_together<std::int32_t>(); }
TEST(Operations, OfLongIntegers) { check_together<std::int64_t>(); }
