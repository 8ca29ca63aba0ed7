#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include <tessera/base/growable.hpp>
#include <tessera/base/sort_distinct.hpp>

namespace {

namespace ts = tessera;

constexpr std::int64_t sum(const ts::Growable<int>& values) {
  std::int64_t total = 0;
  for (int value : values) total += value;
  return total;
}

constexpr std::int64_t sum_to(int n) {
  ts::Growable<int> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return sum(values);
}

// In constant expressions, for every size at which it grows.
static_assert(sum_to(0) == 0);
static_assert(sum_to(64) == 64 * 65 / 2);
static_assert(sum_to(65) == 65 * 66 / 2);
static_assert(sum_to(1000) == 1000 * 1001 / 2);
static_assert(sum(ts::Growable<int>(200)) == 0);

constexpr bool resizes() {
  ts::Growable<int> values{1, 2, 3};
  values.resize(1);
  values.resize(4, 7);
  return values == ts::Growable<int>{1, 7, 7, 7} && !(values == ts::Growable<int>{1, 7, 7});
}
static_assert(resizes());

// With elements that own memory: rows that end where they grow.
constexpr std::int64_t triangle(int n) {
  ts::Growable<ts::Growable<int>> rows;
  for (int i = 0; i < n; ++i) {
    rows.emplace_back();
    for (int k = 0; k <= i; ++k) rows.back().push_back(k);
  }
  const ts::Growable<ts::Growable<int>> copy = rows;
  rows.resize(static_cast<std::size_t>(n) / 2);
  std::int64_t total = 0;
  for (const ts::Growable<int>& row : copy) total += sum(row);
  return total;
}
static_assert(triangle(30) == 30 * (30 * 30 - 1) / 6);

TEST(Growable, CopiesAreTheirOwn) {
  ts::Growable<int> a(3);
  a[1] = 5;
  ts::Growable<int> b = a;
  b[1] = 6;
  b.push_back(7);
  EXPECT_EQ(a[1], 5);
  EXPECT_EQ(a.size(), 3u);
  EXPECT_EQ(b.size(), 4u);
  EXPECT_EQ(b.back(), 7);
  a = b;
  EXPECT_EQ(a.size(), 4u);
  EXPECT_EQ(a[1], 6);
  EXPECT_NE(a.data(), b.data());

  const ts::Growable<ts::Growable<int>> rows{{1, 2}, {3}};
  const ts::Growable<ts::Growable<int>> others = rows;
  EXPECT_EQ(rows, (ts::Growable<ts::Growable<int>>{{1, 2}, {3}}));
  EXPECT_EQ(others, rows);
}

TEST(Growable, MovesLeaveNothingBehind) {
  ts::Growable<int> a(100);
  a[99] = 4;
  const int* const items = a.data();
  ts::Growable<int> b = std::move(a);
  EXPECT_EQ(b.data(), items);
  EXPECT_TRUE(a.empty());
  a.push_back(1);
  EXPECT_EQ(a.size(), 1u);
  a = std::move(b);
  EXPECT_EQ(a.data(), items);
  EXPECT_EQ(a.back(), 4);
}

TEST(Growable, TakesItsOwnItemsWhileItGrows) {
  ts::Growable<int> a(64);
  a[0] = 9;
  for (int i = 0; i < 1000; ++i) a.push_back(a[0]);
  EXPECT_EQ(a.back(), 9);
  EXPECT_EQ(a.size(), 1064u);
}

/// Items that are no zeros in memory when they are T{}.
struct Slot {
  int owner = -1;
  double weight = .5;
  friend bool operator==(const Slot&, const Slot&) = default;
};
constexpr bool resizes_with_its_own_items() {
  ts::Growable<int> numbers{1, 2, 3};
  numbers.resize(100, numbers[2]);
  ts::Growable<Slot> slots{{4, 1.0}};
  slots.resize(2);
  slots.resize(200, slots[0]);
  ts::Growable<ts::Growable<int>> rows{{1, 2}, {3}};
  rows.resize(50, rows[0]);
  return numbers.size() == 100 && numbers[1] == 2 && numbers.back() == 3 && slots[1] == Slot{} &&
         slots.back() == slots[0] && rows[1].size() == 1 && rows.back() == rows[0];
}
static_assert(resizes_with_its_own_items());
constexpr bool appends() {
  const int more[] = {4, 5};
  ts::Growable<int> numbers{1};
  numbers.append(more, more + 2);
  numbers.append(more, more);
  return numbers == ts::Growable<int>{1, 4, 5};
}
static_assert(appends());

TEST(Growable, ResizesWithItsOwnItemsAndAppendsAtRunTime) {
  EXPECT_TRUE(resizes_with_its_own_items());
  EXPECT_TRUE(appends());
  ts::Growable<const int*> pointers;
  for (int round = 0; round < 3; ++round) {
    pointers.resize(10);
    for (const int*& pointer : pointers) {
      EXPECT_EQ(pointer, nullptr);
      pointer = &round;
    }
    pointers.resize(0);
  }
}

TEST(SortDistinct, LeavesOneOfEqualItems) {
  ts::Growable<std::int64_t> numbers{3, -1, 3, 2, -1};
  ts::sort_distinct(numbers);
  EXPECT_EQ(numbers, (ts::Growable<std::int64_t>{-1, 2, 3}));
  ts::Growable<ts::SortedPair> pairs{{2, 1}, {1, 9}, {2, 0}, {1, 9}};
  ts::sort_distinct(pairs);
  EXPECT_EQ(pairs, (ts::Growable<ts::SortedPair>{{1, 9}, {2, 0}, {2, 1}}));
  ts::Growable<std::int64_t> none;
  ts::sort_distinct(none);
  EXPECT_TRUE(none.empty());
}

TEST(Growable, ResizesAndAssignsAtRunTime) {
  EXPECT_TRUE(resizes());
  EXPECT_EQ(triangle(100), 100 * (100 * 100 - 1) / 6);
  ts::Growable<std::string> words{"a", std::string(100, 'b')};
  words.push_back(words[1]);
  words.assign(2, words[2]);
  EXPECT_EQ(words.size(), 2u);
  EXPECT_EQ(words.front(), std::string(100, 'b'));
  words.resize(5, "c");
  words.pop_back();
  EXPECT_EQ(words.back(), "c");
}

// A class with a Growable member gets a noexcept copy only if Growable's copy says that it does not throw.
struct Holder {
  ts::Growable<int> numbers;
  ts::Growable<std::string> texts;
};
static_assert(!std::is_nothrow_copy_constructible_v<Holder> && !std::is_nothrow_copy_assignable_v<Holder>);
static_assert(std::is_nothrow_move_constructible_v<Holder> && std::is_nothrow_move_assignable_v<Holder>);

/// Counts living objects, and throws when one object too many is copied.
struct Fragile {
  static inline int copies_left = 0, alive = 0;
  int value = 0;
  int* own = new int(0);

  Fragile() { ++alive; }
  Fragile(int v) : value(v) { ++alive; }
  Fragile(const Fragile& other) : value(other.value) {
    delete own;
    own = nullptr;
    if (copies_left-- == 0) throw value;
    own = new int(value);
    ++alive;
  }
  Fragile(Fragile&& other) noexcept : value(other.value), own(std::exchange(other.own, nullptr)) { ++alive; }
  Fragile& operator=(const Fragile& other) {
    if (copies_left-- == 0) throw value;
    value = other.value;
    return *this;
  }
  Fragile& operator=(Fragile&& other) noexcept {
    value = other.value;
    std::swap(own, other.own);
    return *this;
  }
  ~Fragile() {
    delete own;
    --alive;
  }
};

TEST(growable, what_a_copy_throws_over_is_as_it_was_and_nothing_leaks) {
  const auto is = [](const ts::Growable<Fragile>& list, int n) {
    EXPECT_EQ(list.size(), static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) EXPECT_EQ(list[static_cast<std::size_t>(i)].value, i);
  };
  for (int failing = 0; failing < 40; ++failing) {
    Fragile::copies_left = 1000;
    {
      ts::Growable<Fragile> list, other;
      for (int i = 0; i < 9; ++i) list.push_back(Fragile(i));
      for (int i = 0; i < 4; ++i) other.push_back(Fragile(i));
      const Fragile last(9);
      const auto attempt = [&](auto f) {
        Fragile::copies_left = failing;
        bool threw = false;
        try {
          f();
        } catch (int) {
          threw = true;
        }
        Fragile::copies_left = 1000;
        return threw;
      };
      attempt([&] { ts::Growable<Fragile> copy(list); });
      attempt([&] { ts::Growable<Fragile> three{Fragile(0), Fragile(1), Fragile(2)}; });
      attempt([&] { ts::Growable<Fragile> five(5, last); });
      is(other, attempt([&] { other = list; }) ? 4 : 9);
      is(list, attempt([&] { list.push_back(last); }) ? 9 : 10);
    }
    EXPECT_EQ(Fragile::alive, 0) << failing;
  }
}

}  // namespace
