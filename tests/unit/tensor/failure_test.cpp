// What a call that throws leaves behind: everything as it was, or, once results were being written over arguments that
// were moved in, those arguments empty. Never half a step, never a leak.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>

#include <tessera/base/growable.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/oracle/oracle.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

/// Lets the allocation fail that comes after `left` others, or all from there on. `live` counts blocks, `bytes` theirs.
struct Allocations {
  static inline std::atomic<std::int64_t> left{-1}, live{0}, bytes{0};
  static inline std::atomic<bool> for_good{false};

  static bool refuse() {
    if (left.load(std::memory_order_relaxed) < 0) return false;
    const std::int64_t before = left.fetch_sub(1);
    if (before == 0 && for_good) left = 0;
    return before == 0;
  }
  static void* allocate(std::size_t size, std::size_t alignment) noexcept {
    if (refuse()) return nullptr;
    void* memory = nullptr;
    if (alignment < sizeof(void*)) alignment = sizeof(void*);
    if (posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0) return nullptr;
    ++live;
    bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
    return memory;
  }
  static void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    if (void* memory = allocate(size, alignment)) return memory;
    throw std::bad_alloc();
  }
  static void free(void* memory) noexcept {
    if (memory == nullptr) return;
    --live;
    bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
    std::free(memory);
  }
};
constexpr std::size_t plain = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t n) { return Allocations::allocate_or_throw(n, plain); }
void* operator new[](std::size_t n) { return Allocations::allocate_or_throw(n, plain); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return Allocations::allocate(n, plain); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return Allocations::allocate(n, plain); }
void* operator new(std::size_t n, std::align_val_t a) {
  return Allocations::allocate_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return Allocations::allocate_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocations::allocate(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocations::allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { Allocations::free(p); }
void operator delete[](void* p) noexcept { Allocations::free(p); }
void operator delete(void* p, std::size_t) noexcept { Allocations::free(p); }
void operator delete[](void* p, std::size_t) noexcept { Allocations::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { Allocations::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { Allocations::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { Allocations::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { Allocations::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { Allocations::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { Allocations::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { Allocations::free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { Allocations::free(p); }

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});
using Matrix = ts::ShardedTensor<float, 2>;
using Tokens = ts::ShardedTensor<std::int32_t, 1>;

struct Layer {
  Matrix w;
  constexpr auto operator()(const auto& x) const { return x + ts::matmul(x, w); }
};
struct Net {
  Matrix table;
  ts::Stack<Layer> layers;
  ts::ShardedTensor<float, 1> bias;
  ts::Scalar rate;
  constexpr auto operator()(const auto& i) const { return layers(ts::embedding(table, i)) + bias; }
};

// A step of training that ends with a look-up in what it made: an index out of range is found after updates.
struct Step {
  constexpr auto operator()(const auto& net, const auto& index, const auto& later) const {
    const auto [loss, gradient] = ts::value_and_grad([](const auto& n, const auto& i) {
      const auto out = n(i);
      return ts::sum(out * out);
    })(net, index);
    auto next = ts::optim::tree_map([](auto p, auto g) { return p - 0.125f * g; }, net, gradient);
    return std::tuple(next, loss, ts::embedding(next.table, later));
  }
};
constexpr auto step = ts::compile(Step{});

Matrix matrix(std::int64_t m, std::int64_t n, float scale, const ts::PartitionSpec& spec) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < m * n; ++i) values.push_back(static_cast<float>(i % 5 - 2) * scale);
  return ts::shard(values, {m, n}, mesh, spec);
}
Net make_net() {
  return {matrix(6, 4, 0.5f, {"data"}),
          ts::Stack<Layer>(2,
                           [](int i) {
                             return Layer{matrix(4, 4, 0.25f * static_cast<float>(i + 1), {{}, "model"})};
                           }),
          ts::ones<float>({4}, mesh), ts::Scalar(0.5)};
}
Tokens tokens(const std::vector<std::int32_t>& list) {
  return ts::shard(list, {static_cast<std::int64_t>(list.size())}, mesh, {"data"});
}

/// All values of a model, or nothing for one whose tensors are empty. Anything in between is a failure.
struct Values {
  std::vector<float> all{};
  int tensors = 0, empty = 0;
  template <class L> void leaf(const L& x) {
    if constexpr (ts::StoredOperand<L>) {
      ++tensors;
      if (!x.storage()) {
        ++empty;
        return;
      }
      const auto host = ts::to_host(x);
      all.insert(all.end(), host.begin(), host.end());
    }
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};
template <class Model> std::vector<float> values(const Model& model) {
  Values v;
  ts::for_each_leaf(model, v);
  EXPECT_TRUE(v.empty == 0 || v.empty == v.tensors) << v.empty << " of " << v.tensors << " tensors are empty";
  return v.all;
}

enum class Arguments { as_they_were, empty };

/// Calls `attempt()`, which ends by itself or throws, with each of its allocations refused in turn, or each
/// `stride`-th.
template <class Prepare, class Attempt, class Check>
int refuse_each_allocation(Prepare prepare, Attempt attempt, Check check, bool for_good, std::int64_t stride = 1) {
  int thrown = 0;
  // Whatever is kept from call to call is there after two of them.
  std::int64_t live = 0;
  for (int i = 0; i < 2; ++i) {
    {
      auto arguments = prepare();
      attempt(arguments);
      check(arguments, false);
    }
    ts::clear_plan_cache();
    ts::trim_memory();
    live = Allocations::live;
  }
  Allocations::for_good = for_good;
  for (std::int64_t n = 0;; n += stride) {
    bool failed = false, reached = true;
    {
      auto arguments = prepare();
      Allocations::left = n;
      try {
        attempt(arguments);
        reached = Allocations::left.exchange(-1) < 0 && !for_good;
      } catch (const std::bad_alloc&) {
        Allocations::left = -1;
        failed = true;
      } catch (const ts::error& e) {
        Allocations::left = -1;
        failed = true;
        EXPECT_EQ(e.id(), ts::errc::capacity) << e.what();
      }
      check(arguments, failed);
    }
    thrown += failed;
    if (!failed && !reached) return thrown;
    ts::clear_plan_cache();
    ts::trim_memory();
    EXPECT_LE(Allocations::live, live) << "after allocation " << n << " failed";
    if (testing::Test::HasFailure()) return thrown;
  }
}

struct Call {
  Net net;
  Tokens index, later;
};
Call make_call() { return {make_net(), tokens({1, 2, 3, 0}), tokens({5, 4})}; }

struct Failures : testing::TestWithParam<bool> {
  void SetUp() override {
    threads_ = ts::parallelism();
    ts::set_parallelism(1);
  }
  void TearDown() override { ts::set_parallelism(threads_); }

 private:
  int threads_ = 1;
};

TEST_P(Failures, OfMemoryInTheFirstCallLeaveEverythingAsItWas) {
  const std::vector<float> before = values(make_net());
  std::vector<float> after;
  {
    Call call = make_call();
    after = values(std::get<0>(step(std::move(call.net), call.index, call.later)));
  }
  int calls = 0;
  const int thrown = refuse_each_allocation(
      [] {
        ts::clear_plan_cache();
        ts::trim_memory();
        return make_call();
      },
      [](Call& call) { (void)step(std::move(call.net), call.index, call.later); },
      [&](Call& call, bool failed) {
        if (!failed) return;
        ASSERT_EQ(values(call.net), before);
        if (++calls % 64 == 0) ASSERT_EQ(values(std::get<0>(step(std::move(call.net), call.index, call.later))), after);
      },
      GetParam(), GetParam() ? 3 : 1);
  EXPECT_GT(thrown, 300);
}

TEST_P(Failures, OfMemoryInLaterCallsLeaveEverythingAsItWas) {
  const std::vector<float> before = values(make_net());
  std::vector<float> after;
  const int thrown = refuse_each_allocation(
      [&] {
        Call first = make_call();
        after = values(std::get<0>(step(std::move(first.net), first.index, first.later)));
        return make_call();
      },
      [](Call& call) { (void)step(std::move(call.net), call.index, call.later); },
      [&](Call& call, bool failed) {
        if (!failed) return;
        ASSERT_EQ(values(call.net), before);
        ASSERT_EQ(values(std::get<0>(step(std::move(call.net), call.index, call.later))), after);
      },
      GetParam());
  EXPECT_GT(thrown, 10);
}

TEST_P(Failures, OfMemoryInExpressionsAndTransfersLoseNothing) {
  const auto x = matrix(8, 6, 1, {"data"}), y = matrix(6, 4, 2, {{}, "model"});
  const auto want = ts::to_host(ts::eval(ts::softmax(ts::matmul(x, y)) + 1.0f));
  const int thrown = refuse_each_allocation(
      [] {
        ts::clear_plan_cache();
        ts::trim_memory();
        return 0;
      },
      [&](int) {
        const auto product = ts::eval(ts::softmax(ts::matmul(x, y)) + 1.0f);
        const auto moved = ts::reshard(product, {"model", "data"});
        const auto again = ts::shard(ts::to_host(moved), {8, 4}, mesh, {"data"});
        (void)ts::plan(again + moved);
        (void)ts::explain(again + moved);
      },
      [&](int, bool failed) {
        if (failed) ASSERT_EQ(ts::to_host(ts::eval(ts::softmax(ts::matmul(x, y)) + 1.0f)), want);
      },
      GetParam());
  EXPECT_GT(thrown, 100);
}

// What the cache of plans says it holds is an estimate, but one that a bound can rely on.
TEST(PlanBytes, AreAboutWhatPlansTake) {
  const ts::Mesh large({{"data", 8}, {"model", 8}});
  const auto measure = [](const char* what, auto call) {
    call(1);
    ts::clear_plan_cache();
    ts::trim_memory();
    const std::int64_t before = Allocations::bytes;
    for (int n = 1; n <= 20; ++n) call(n);
    ts::runtime::RunMemory::release();
    ts::trim_memory();
    const std::int64_t taken = Allocations::bytes - before, said = ts::plan_cache_statistics().bytes;
    EXPECT_EQ(ts::plan_cache_statistics().entries, 20);
    EXPECT_LT(said, 2 * taken) << what;
    EXPECT_GT(said, taken / 2) << what;
  };
  measure("an expression", [&](int n) {
    const auto x = ts::ones<float>({n, 8}, mesh, {"data"});
    (void)ts::eval(x + x);
  });
  measure("a product on 64 devices", [&](int n) {
    const auto x = ts::ones<float>({8 * n, 64}, large, {"data", "model"}),
               w = ts::ones<float>({64, 64}, large, {"model"});
    (void)ts::eval(ts::matmul(x, w));
  });
  measure("a step of training", [&](int n) {
    std::vector<std::int32_t> index;
    for (int i = 0; i < 4 * n; ++i) index.push_back(i % 6);
    const Net net = make_net();
    (void)step(net, tokens(index), tokens({1, 2}));
  });
}

INSTANTIATE_TEST_SUITE_P(Once, Failures, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(FromThereOn, Failures, testing::Values(true));

/// Throws after the n-th step of a run.
class ThrowAfter final : public ts::runtime::StepObserver {
 public:
  static inline int left = -1;
  void ran(const ts::runtime::FrameLayout&, ts::runtime::Frame&, const ts::runtime::RanSteps&) override {
    if (left-- == 0) throw std::bad_alloc();
  }
  static ts::Growable<ts::Leaf> run(ts::runtime::Executable& executable, std::span<const ts::Leaf> arguments) {
    ThrowAfter observer;
    return executable.run(arguments, &observer);
  }
};

TEST(FailedSteps, LeaveArgumentsAsTheyWereOrEmpty) {
  const std::vector<float> before = values(make_net());
  ts::detail::OracleSink sink;
  sink.run = &ThrowAfter::run;
  ts::detail::OracleSink::innermost() = &sink;
  int threw = 0;
  for (const bool lent : {false, true})
    for (int n = 0; ts::detail::OracleSink::innermost() != nullptr && n < 1000; ++n) {
      Call call = make_call();
      const Tokens index = call.index;
      const Matrix alias = lent ? call.net.table : Matrix();
      ThrowAfter::left = n;
      try {
        if (lent)
          (void)step(call.net, call.index, call.later);
        else
          (void)step(std::move(call.net), std::move(call.index), call.later);
        EXPECT_GE(ThrowAfter::left, 0);
        break;
      } catch (const std::bad_alloc&) {
        ++threw;
      }
      if (lent) {
        EXPECT_EQ(values(call.net), before) << "what is lent is never touched";
        EXPECT_EQ(ts::to_host(alias), ts::to_host(make_net().table));
      } else {
        const std::vector<float> left = values(call.net);
        EXPECT_TRUE(left.empty() || left == before) << "after step " << n;
        EXPECT_EQ(left.empty(), !call.index.storage()) << "all of the arguments, or none";
      }
      EXPECT_EQ(ts::to_host(index), (std::vector<std::int32_t>{1, 2, 3, 0}));
    }
  ts::detail::OracleSink::innermost() = nullptr;
  EXPECT_GT(threw, 10);
}

TEST(FailedSteps, OfIndicesOutOfRangeLeaveNoHalfOfAnUpdate) {
  const std::vector<float> before = values(make_net());
  for (int i = 0; i < 3; ++i) {
    Net net = make_net();
    EXPECT_THROW((void)step(std::move(net), tokens({1, 2, 3, 0}), tokens({5, 9})), ts::error);
    EXPECT_TRUE(values(net).empty());
    EXPECT_THROW((void)step(std::move(net), tokens({1, 2, 3, 0}), tokens({5, 4})), ts::error) << "it says it is empty";
    // Found before anything is written over an argument, or nothing was moved in: all is as it was.
    net = make_net();
    EXPECT_THROW((void)step(net, tokens({1, 2, 3, 0}), tokens({5, 9})), ts::error);
    EXPECT_EQ(values(net), before);
    Net shared = net;
    EXPECT_THROW((void)step(std::move(net), tokens({1, 2, 3, 0}), tokens({5, 9})), ts::error);
    EXPECT_EQ(values(shared), before);
  }
}

}  // namespace
