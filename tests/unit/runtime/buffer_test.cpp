#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/memory/buffer.hpp>

namespace {

using tessera::Buffer;
using tessera::BufferPtr;
using tessera::memory_use;
using tessera::runtime::SizeClass;

std::uintptr_t address(const BufferPtr& buffer) { return reinterpret_cast<std::uintptr_t>(buffer->data()); }

TEST(SizeClass, HoldsEverySizeWithLittleWaste) {
  static_assert(SizeClass::of(SizeClass::largest) < SizeClass::count);
  static_assert(SizeClass::bytes(SizeClass::of(SizeClass::largest)) >= SizeClass::largest);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const auto bytes = static_cast<std::int64_t>(random() >> (18 + i % 44)) % SizeClass::largest + 1;
    const int c = SizeClass::of(bytes);
    ASSERT_GE(SizeClass::bytes(c), bytes);
    ASSERT_LT(SizeClass::bytes(c - 1), bytes);
    if (bytes <= 1024) continue;
    ASSERT_LE(static_cast<double>(SizeClass::bytes(c)), 1.26 * static_cast<double>(bytes)) << bytes;
  }
}

TEST(Buffer, IsAlignedAndWritable) {
  for (std::int64_t bytes : {1l, 63l, 64l, 65l, 1000l, 4097l, (2l << 20) - 1, 2l << 20, (5l << 20) + 3}) {
    BufferPtr buffer = Buffer::allocate(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(address(buffer) % (bytes >= 2 << 20 ? 2 << 20 : 64), 0u);
    std::memset(buffer->data(), 0x5a, static_cast<std::size_t>(bytes));
    EXPECT_EQ(buffer->as<unsigned char>()[bytes - 1], 0x5a);
  }
}

TEST(Buffer, OfNothingIsLegal) {
  const auto before = memory_use();
  BufferPtr buffer = Buffer::allocate(0);
  EXPECT_EQ(buffer->bytes(), 0);
  EXPECT_EQ(memory_use().in_use, before.in_use);
}

TEST(Buffer, ReusesFreedBlocks) {
  tessera::trim_memory();
  std::uintptr_t first = 0;
  {
    BufferPtr buffer = Buffer::allocate(100000);
    first = address(buffer);
  }
  EXPECT_GT(memory_use().cached, 0);
  BufferPtr again = Buffer::allocate(99000);
  EXPECT_EQ(address(again), first);
  EXPECT_EQ(memory_use().cached, 0);
}

TEST(Buffer, CountsBytesInUseAndPeak) {
  tessera::trim_memory();
  tessera::reset_memory_peak();
  const auto before = memory_use();
  EXPECT_EQ(before.peak, before.in_use);
  {
    BufferPtr a = Buffer::allocate(1 << 20);
    BufferPtr b = Buffer::allocate(1 << 20);
    BufferPtr shared = a;
    EXPECT_EQ(memory_use().in_use, before.in_use + (2 << 20));
  }
  EXPECT_EQ(memory_use().in_use, before.in_use);
  EXPECT_EQ(memory_use().peak, before.in_use + (2 << 20));
  EXPECT_EQ(memory_use().cached, 2 << 20);
}

TEST(Buffer, KeepsNoMoreThanThePeak) {
  tessera::trim_memory();
  const auto before = memory_use();
  { BufferPtr a = Buffer::allocate(4 << 20); }
  EXPECT_EQ(memory_use().cached, 4 << 20);
  BufferPtr other_class = Buffer::allocate(3 << 20);  // 4 + 3 MiB would pass the peak of 4 MiB
  EXPECT_EQ(memory_use().cached, 0);
  EXPECT_EQ(memory_use().in_use, before.in_use + (3 << 20));
}

TEST(Buffer, TrimAndLimitGiveMemoryBack) {
  { BufferPtr a = Buffer::allocate(4 << 20), b = Buffer::allocate(1 << 20); }
  tessera::trim_memory(2 << 20);
  EXPECT_LE(memory_use().cached, 2 << 20);
  tessera::trim_memory();
  EXPECT_EQ(memory_use().cached, 0);
  tessera::set_memory_cache_limit(1 << 20);
  { BufferPtr a = Buffer::allocate(4 << 20), b = Buffer::allocate(1 << 20); }
  EXPECT_LE(memory_use().cached, 1 << 20);
  tessera::set_memory_cache_limit(INT64_MAX);
}

TEST(Buffer, RefusalIsAnError) {
  const auto before = memory_use();
  for (std::int64_t bytes : {std::int64_t{-1}, INT64_MAX, SizeClass::largest + 1}) {
    try {
      (void)Buffer::allocate(bytes);
      FAIL() << bytes;
    } catch (const tessera::error& e) {
      EXPECT_EQ(e.id(), tessera::errc::capacity);
    }
  }
  EXPECT_EQ(memory_use().in_use, before.in_use);
}

TEST(Buffer, RefusalIsNoPeakAndKeepsNothing) {
  tessera::trim_memory();
  tessera::reset_memory_peak();
  const auto before = memory_use();
  EXPECT_THROW((void)Buffer::allocate(SizeClass::largest), tessera::error);
  EXPECT_EQ(memory_use().in_use, before.in_use);
  EXPECT_EQ(memory_use().peak, before.peak);
  // What is kept afterwards is still bounded by what was ever in use.
  { BufferPtr a = Buffer::allocate(4 << 20); }
  { BufferPtr b = Buffer::allocate(3 << 20); }
  EXPECT_LE(memory_use().cached, 4 << 20);
}

TEST(Buffer, ThreadsNeverShareABlock) {
  const auto before = memory_use();
  std::atomic<int> mixed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &mixed] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<BufferPtr> held;
      for (int i = 0; i < 4000; ++i) {
        BufferPtr buffer = Buffer::allocate(static_cast<std::int64_t>(random() % 3000 + 1));
        std::memset(buffer->data(), t, static_cast<std::size_t>(buffer->bytes()));
        held.push_back(std::move(buffer));
        if (held.size() < 20) continue;
        const BufferPtr& last = held[random() % held.size()];
        for (std::int64_t k = 0; k < last->bytes(); ++k) mixed += last->as<char>()[k] != t;
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(mixed, 0);
  EXPECT_EQ(memory_use().in_use, before.in_use);
}

}  // namespace
