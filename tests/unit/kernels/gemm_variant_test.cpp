#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../../support/gemm_problem.hpp"
#include <gtest/gtest.h>

#include <tessera/base/error.hpp>
#include <tessera/kernels/build_info.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/contraction.hpp>
#include <tessera/kernels/gemm/contraction_plan.hpp>
#include <tessera/kernels/gemm/contraction_provider.hpp>
#include <tessera/kernels/gemm/gemm_timing.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>

namespace {

namespace ts = tessera;
using namespace tessera::kernels;
using tessera_test::Problem;

/// Restores the choice of the process and its environment at the end of a test.
class ChoiceOfTest {
 public:
  ChoiceOfTest() {
    const char* const name = std::getenv("TESSERA_GEMM_VARIANT");
    if (name != nullptr) name_ = name;
    named_ = name != nullptr;
  }
  ChoiceOfTest(const ChoiceOfTest&) = delete;
  ChoiceOfTest& operator=(const ChoiceOfTest&) = delete;
  ~ChoiceOfTest() {
    if (named_)
      setenv("TESSERA_GEMM_VARIANT", name_.c_str(), 1);
    else
      unsetenv("TESSERA_GEMM_VARIANT");
    settled() = code_;
  }

  /// As in a process that starts with this environment.
  static void start_with(const char* name) {
    setenv("TESSERA_GEMM_VARIANT", name, 1);
    settled() = 0;
  }
  static std::atomic<int>& settled() { return ts::kernels::variants::settled_gemm_choice(); }

 private:
  int code_ = settled();
  std::string name_;
  bool named_ = false;
};

std::vector<GemmVariant> members_of_this_processor() {
  std::vector<GemmVariant> members;
  for (const GemmVariant& variant : gemm_variants)
    if (variant.level <= ts::kernels::detail::detect_cpu()) members.push_back(variant);
  return members;
}

/// Computes the product of a problem, with the right operand packed before or not, and compares it with sums in double.
template <class T> void check(Problem<T> problem, const GemmVariant& variant, bool packed) {
  const Gemm<T>& g = problem.g;
  const std::vector<T> expected = problem.expected();
  if (packed) {
    const PackedLayout layout = packed_layout<T>(g.k, g.n, variant.level);
    std::vector<T> room(static_cast<std::size_t>(layout.size()));
    pack_matrix(layout, g.b, g.b_row, g.b_col, 0, layout.panels(), room.data(), variant.level);
    packed_gemm(g, layout, room.data(), {}, variant.level);
  } else {
    packed_gemm(g, {}, variant.level);
  }
  ASSERT_EQ(problem.c, expected) << problem.what(variant.name) << (packed ? " packed" : "");
}

TEST(GemmVariant, EveryMemberComputesEveryShape) {
  const ChoiceOfTest choice;
  const std::int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 14, 15, 16, 28, 29, 31, 32, 33, 65, 130};
  for (const GemmVariant& variant : members_of_this_processor()) {
    set_gemm_variant(variant);
    ASSERT_EQ(gemm_variant(variant.level).name, variant.name);
    std::mt19937 random(11);
    const auto size = [&] { return sizes[random() % std::size(sizes)]; };
    for (int round = 0; round < 250; ++round) {
      check(Problem<float>(random, size(), size(), size()), variant, round % 2 == 0);
      check(Problem<double>(random, size(), size(), size()), variant, round % 2 == 0);
      if (HasFatalFailure()) return;
    }
    for (const bool packed : {false, true}) {
      check(Problem<float>(random, 33, 40, 9000), variant, packed);   // many blocks of k
      check(Problem<float>(random, 30, 4500, 330), variant, packed);  // several blocks of columns, whatever the share
      check(Problem<double>(random, 17, 2300, 270), variant, packed);
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<float> normal_values(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// An einsum "mk,kn->mn" by a ContractionPlan that is made while the member is chosen.
std::vector<float> contraction(const std::vector<float>& a, const std::vector<float>& b, std::int64_t m, std::int64_t n,
                               std::int64_t k, int threads) {
  const ContractionPlan plan({{0, 2}, {2, 1}, {0, 1}, {m, n, k}, {k, 1}, {n, 1}, {n, 1}}, {.parallelism = threads});
  std::vector<float> packed(static_cast<std::size_t>(plan.packed_size<float>()));
  if (!packed.empty())
    for (std::int64_t part = 0; part < plan.pack_count<float>(); ++part)
      plan.pack(part, a.data(), b.data(), packed.data());
  std::vector<float> c(static_cast<std::size_t>(m * n), -1.0f);
  for (std::int64_t item = 0; item < plan.item_count(); ++item)
    plan.run(item, a.data(), b.data(), c.data(), false, 1.0f, packed.empty() ? nullptr : packed.data());
  return c;
}

// Rounded sums: an order of its own would show in some element.
TEST(GemmVariant, MembersOfALevelAreEqualBitForBit) {
  const ChoiceOfTest choice;
  std::mt19937 random(12);
  struct Shape {
    std::int64_t m, n, k;
  };
  for (const Shape& s : {Shape{31, 77, 50}, Shape{45, 1100, 1500}, Shape{130, 2100, 340}}) {
    const std::vector<float> a = normal_values(random, s.m * s.k), b = normal_values(random, s.k * s.n);
    for (const CpuLevel level : {CpuLevel::portable, CpuLevel::avx2, CpuLevel::avx512}) {
      std::vector<float> first, first_contraction;
      for (const GemmVariant& variant : members_of_this_processor()) {
        if (variant.level != level) continue;
        set_gemm_variant(variant);
        std::vector<float> c(static_cast<std::size_t>(s.m * s.n), 0.5f);
        packed_gemm(Gemm<float>{s.m, s.n, s.k, a.data(), s.k, 1, b.data(), s.n, 1, c.data(), s.n, 1, true, 0.75f}, {},
                    level);
        if (first.empty()) first = c;
        ASSERT_EQ(c, first) << variant.name << " " << s.m << "x" << s.n << "x" << s.k;
        if (level != ts::kernels::variants::level_of_variants(cpu_level())) continue;
        for (const int threads : {1, 2, 7}) {
          const std::vector<float> whole = contraction(a, b, s.m, s.n, s.k, threads);
          if (first_contraction.empty()) first_contraction = whole;
          ASSERT_EQ(whole, first_contraction) << variant.name << " on " << threads << " threads";
        }
      }
    }
  }
}

TEST(GemmVariant, ContractionsAreThoseInDouble) {
  const ChoiceOfTest choice;
  std::mt19937 random(13);
  constexpr std::int64_t m = 37, n = 1300, k = 700;
  const std::vector<float> a = normal_values(random, m * k), b = normal_values(random, k * n);
  for (const GemmVariant& variant : members_of_this_processor()) {
    if (variant.level != ts::kernels::variants::level_of_variants(cpu_level())) continue;
    set_gemm_variant(variant);
    const std::vector<float> c = contraction(a, b, m, n, k, 2);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; j += 13) {
        double sum = 0, size = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double product =
              double(a[static_cast<std::size_t>(i * k + p)]) * double(b[static_cast<std::size_t>(p * n + j)]);
          sum += product, size += std::abs(product);
        }
        ASSERT_NEAR(c[static_cast<std::size_t>(i * n + j)], sum, size * 1e-6) << variant.name;
      }
  }
}

// Members share packed operands: a program may choose another member at any time.
TEST(GemmVariant, OperandsPackedForAMemberFitTheOthers) {
  for (const GemmVariant& variant : gemm_variants) {
    const auto& own = ts::kernels::detail::gemm_kernels<float>(variant);
    const auto& of_level = ts::kernels::detail::gemm_kernels<float>(variant.level);
    EXPECT_EQ(own.cols, of_level.cols) << variant.name;
    EXPECT_EQ(own.rows, of_level.rows) << variant.name;
    EXPECT_EQ(own.a_step, of_level.a_step) << variant.name;
  }
}

TEST(GemmVariant, TheEnvironmentNamesAMember) {
  const ChoiceOfTest choice;
  for (const GemmVariant& variant : gemm_variants) {
    if (variant.level != ts::kernels::variants::level_of_variants(cpu_level())) continue;
    ChoiceOfTest::start_with(std::string(variant.name).c_str());
    EXPECT_EQ(gemm_choice().variant->name, variant.name);
    EXPECT_EQ(gemm_choice().source, VariantSource::environment);
    EXPECT_EQ(ts::build_info().variant, variant.name);
    EXPECT_EQ(ts::build_info().variant_source, "by TESSERA_GEMM_VARIANT");
  }
  ChoiceOfTest::start_with("default");
  EXPECT_EQ(gemm_choice().variant->name, ts::kernels::variants::default_gemm_variant(cpu_level()).name);
  ts::kernels::detail::time_gemm_variants();
  EXPECT_EQ(gemm_choice().source, VariantSource::environment) << "a named member is not timed";
}

TEST(GemmVariant, AnotherNameIsAnError) {
  const ChoiceOfTest choice;
  const auto expect_error = [](const char* name) {
    ChoiceOfTest::start_with(name);
    try {
      const ContractionPlan plan({{0, 2}, {2, 1}, {0, 1}, {8, 8, 8}, {8, 1}, {8, 1}, {8, 1}});
      ADD_FAILURE() << name;
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), ts::errc::option);
      const std::string text = e.what();
      EXPECT_NE(text.find(std::string("TESSERA_GEMM_VARIANT: \"") + name + "\" is none of default, "),
                std::string::npos)
          << text;
      EXPECT_NE(text.find(ts::kernels::variants::default_gemm_variant(cpu_level()).name), std::string::npos) << text;
    }
  };
  expect_error("avx512_doubl");
  expect_error(cpu_level() == CpuLevel::portable ? "avx2_half" : "portable_half");  // of another level
  EXPECT_THROW(set_gemm_variant({"avx512_other", CpuLevel::portable, false, 4, true}), ts::error);
}

TEST(GemmVariant, AProcessorOfTheTableHasItsMember) {
  using ts::kernels::variants::known_gemm_variant;
  const GemmVariant* const found = known_gemm_variant(CpuLevel::avx512_bf16, "AuthenticAMD", 0x19, 0x11);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name, "avx512_double");
  const GemmVariant* const zen5 = known_gemm_variant(CpuLevel::avx512_bf16, "AuthenticAMD", 0x1a, 0x02);
  ASSERT_NE(zen5, nullptr);
  EXPECT_EQ(zen5->name, "avx512_loads");
  EXPECT_EQ(known_gemm_variant(CpuLevel::avx2, "AuthenticAMD", 0x19, 0x11), nullptr) << "measured with AVX-512";
  EXPECT_EQ(known_gemm_variant(CpuLevel::avx512, "GenuineIntel", 0x19, 0x11), nullptr);
  EXPECT_EQ(known_gemm_variant(CpuLevel::avx512, "AuthenticAMD", 0x19, 0x12), nullptr);
  for (const auto& known : ts::kernels::variants::known_processors)
    EXPECT_NE(ts::kernels::variants::find_gemm_variant(known.level, known.variant), nullptr) << known.variant;
  std::set<std::string_view> names;
  for (const GemmVariant& variant : gemm_variants) EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
}

TEST(GemmVariant, TimingTakesLittleAndChoosesAMemberOfTheLevel) {
  using ts::kernels::detail::fastest_gemm_variant;
  const CpuLevel level = ts::kernels::detail::detect_cpu();
  const GemmVariant& found = fastest_gemm_variant(level, 4.5e-3);
  EXPECT_EQ(found.level, ts::kernels::variants::level_of_variants(level));
  EXPECT_EQ(fastest_gemm_variant(level, 0).name, ts::kernels::variants::default_gemm_variant(level).name)
      << "no time, no other member";
}

TEST(GemmVariant, ThreadsAgree) {
  const ChoiceOfTest choice;
  unsetenv("TESSERA_GEMM_VARIANT");
  using ts::kernels::variants::default_gemm_variant;
  // As on a processor that is not in the table.
  ChoiceOfTest::settled() =
      ts::kernels::variants::code_of({&default_gemm_variant(cpu_level()), VariantSource::by_default});
  std::vector<std::string_view> names(4);
  std::vector<std::thread> threads;
  for (std::string_view& name : names)
    threads.emplace_back([&name] {
      ts::kernels::detail::time_gemm_variants();
      name = gemm_choice().variant->name;
    });
  for (std::thread& thread : threads) thread.join();
  const bool several = cpu_level() != CpuLevel::portable;  // members to choose from
  EXPECT_EQ(gemm_choice().source, several ? VariantSource::timing : VariantSource::by_default);
  for (const std::string_view name : names) EXPECT_EQ(name, gemm_choice().variant->name);
}

TEST(GemmVariant, TheProviderHasANameAtEveryLevel) {
  EXPECT_EQ(packed_kernels_name(),
            "packed " + std::string(name_of(ts::kernels::variants::level_of_variants(cpu_level()))));
}

}  // namespace
