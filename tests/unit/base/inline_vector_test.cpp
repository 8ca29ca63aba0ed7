#include <algorithm>
#include <random>
#include <vector>

#include "expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/inline_vector.hpp>
#include <tessera/base/shape.hpp>

namespace {

using tessera::InlineVector;
using tessera::Shape;

TEST(InlineVectorTest, BehavesAsStdVectorUnderRandomOperations) {
  std::mt19937 random(1);
  InlineVector<int, 8> ours;
  std::vector<int> theirs;
  for (int step = 0; step < 20000; ++step) {
    const int value = static_cast<int>(random() % 10);
    const std::size_t at = random() % (theirs.size() + 1);
    switch (random() % 7) {
      case 0:
      case 1:
        if (theirs.size() == 8) break;
        ours.push_back(value);
        theirs.push_back(value);
        break;
      case 2:
        if (theirs.size() == 8) break;
        ours.insert(at, value);
        theirs.insert(theirs.begin() + static_cast<std::ptrdiff_t>(at), value);
        break;
      case 3:
        if (at == theirs.size()) break;
        ours.erase(at);
        theirs.erase(theirs.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 4:
        if (theirs.empty()) break;
        ours.pop_back();
        theirs.pop_back();
        break;
      case 5:
        ours.resize(random() % 9, value);
        theirs.resize(ours.size(), value);
        break;
      default:
        if (random() % 20 != 0) break;
        ours.clear();
        theirs.clear();
    }
    ASSERT_EQ(std::vector<int>(ours.begin(), ours.end()), theirs);
    ASSERT_EQ(ours.empty(), theirs.empty());
    const auto found = static_cast<std::size_t>(std::find(theirs.begin(), theirs.end(), value) - theirs.begin());
    ASSERT_EQ(ours.find(value), found);
    ASSERT_EQ(ours.contains(value), found < theirs.size());
    if (!theirs.empty()) {
      ASSERT_EQ(ours.back(), theirs.back());
    }
  }
}

TEST(InlineVectorTest, EqualityIgnoresWhatWasRemoved) {
  Shape a{1, 2, 3};
  a.pop_back();
  EXPECT_EQ(a, (Shape{1, 2}));
  EXPECT_NE(a, (Shape{1, 2, 0}));
  EXPECT_NE(a, (Shape{1, 3}));
}

TEST(InlineVectorTest, AFullListIsAnError) {
  InlineVector<int, 2> list{1, 2};
  tessera_test::expect_error(tessera::errc::capacity, [&] { list.push_back(3); });
  tessera_test::expect_error(tessera::errc::capacity, [&] { list.insert(0, 3); });
  EXPECT_EQ(list, (InlineVector<int, 2>{1, 2}));
}

static_assert(tessera::volume({}) == 1 && tessera::volume({3, 4, 5}) == 60 && tessera::volume({3, 0}) == 0);
static_assert(Shape(3, 7) == Shape{7, 7, 7});

template <Shape S> constexpr std::int64_t volume_v = tessera::volume(S);
static_assert(volume_v<Shape{2, 3}> == 6);

}  // namespace
