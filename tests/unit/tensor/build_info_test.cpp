#include <string>

#include <gtest/gtest.h>

#include <tessera/kernels/build_info.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>

namespace {

namespace ts = tessera;
using ts::kernels::CpuLevel;

TEST(BuildInfo, IsOfThisTranslationUnit) {
  const ts::BuildInfo info = ts::build_info();
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  EXPECT_EQ(info.instructions.substr(0, 8), "avx512bw");
  EXPECT_EQ(info.level, CpuLevel::avx512);
#elif defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
  EXPECT_EQ(info.instructions, "avx2_fma");
  EXPECT_EQ(info.level, CpuLevel::avx2);
#elif defined(__SSE2__) && !defined(__SSE3__)
  EXPECT_EQ(info.instructions, "sse2");
  EXPECT_EQ(info.level, CpuLevel::portable);
#endif
#if defined(__OPTIMIZE__)
  EXPECT_TRUE(info.is_optimised);
#else
  EXPECT_FALSE(info.is_optimised);
#endif
  EXPECT_EQ(info.products, ts::kernels::name_of(ts::kernels::cpu_level()));
  EXPECT_NE(info.compiler.find("++ "), std::string::npos);
}

TEST(BuildInfo, SaysWhatTheProcessorHasBeyondIt) {
  ts::BuildInfo info{.compiler = "g++ 12",
                     .is_optimised = true,
                     .instructions = "sse2",
                     .products = "amx",
                     .level = CpuLevel::portable,
                     .processor = CpuLevel::amx};
  EXPECT_TRUE(info.is_narrow());
  EXPECT_EQ(info.text(),
            "compiled for sse2; this processor has amx: -march=native makes fused operations up to four times as fast");
  info.level = CpuLevel::avx512;
  EXPECT_FALSE(info.is_narrow()) << "AMX is for products alone, which are chosen at run time";
  info.processor = CpuLevel::avx2;
  EXPECT_FALSE(info.is_narrow());
  info.instructions = "avx2_fma", info.level = CpuLevel::avx2, info.processor = CpuLevel::avx512;
  EXPECT_EQ(
      info.text(),
      "compiled for avx2_fma; this processor has avx512: -march=native makes fused operations up to twice as fast");
  info.instructions = "sse2", info.level = info.processor = CpuLevel::avx512;
  info.is_optimised = false;
  EXPECT_EQ(info.text(), "compiled for sse2, without optimisation");
}

TEST(BuildInfo, EndsEachExplanation) {
  const auto x = ts::ones<float>({4, 4}, ts::Mesh{});
  constexpr auto twice = ts::compile([](auto a) { return a + a; });
  const std::string last = ts::build_info().text() + "\n";
  for (const std::string& text : {twice.explain(x), ts::explain(x * 2.0f)}) {
    ASSERT_GE(text.size(), last.size());
    EXPECT_EQ(text.substr(text.size() - last.size()), last);
  }
}

}  // namespace
