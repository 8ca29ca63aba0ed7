#include <utility>

#include <gtest/gtest.h>

#include <tessera/base/intrusive_ptr.hpp>

namespace {

class Counted : public tessera::RefCounted {
 public:
  explicit Counted(int& live) : live_(live) { ++live_; }
  ~Counted() override { --live_; }

 private:
  int& live_;
};
using Ptr = tessera::IntrusivePtr<Counted>;

TEST(IntrusivePtrTest, TheLastHandleDestroys) {
  int live = 0;
  {
    Ptr a(new Counted(live));
    EXPECT_TRUE(a->unique());
    {
      Ptr b = a;
      EXPECT_EQ(b.get(), a.get());
      EXPECT_FALSE(a->unique());
    }
    EXPECT_TRUE(a->unique());
    EXPECT_EQ(live, 1);
  }
  EXPECT_EQ(live, 0);
}

TEST(IntrusivePtrTest, MovesLeaveNothingBehind) {
  int live = 0;
  Ptr a(new Counted(live));
  Ptr b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_TRUE(b && b->unique());
  b = Ptr();
  EXPECT_EQ(live, 0);
}

TEST(IntrusivePtrTest, AssignmentReleasesTheOldAndSurvivesItself) {
  int live = 0;
  Ptr a(new Counted(live));
  Ptr b(new Counted(live));
  EXPECT_EQ(live, 2);
  a = b;
  EXPECT_EQ(live, 1);
  const Ptr& same = a;
  a = same;
  b = Ptr();
  EXPECT_EQ(live, 1);
  EXPECT_TRUE(a->unique());
}

// Tensors contain an IntrusivePtr and must be literal types, so that models can be traced in constant expressions.
constexpr bool null_is_constant() {
  Ptr a;
  Ptr b = a;
  Ptr c = std::move(b);
  a = c;
  return !a && !c;
}
static_assert(null_is_constant());

}  // namespace
