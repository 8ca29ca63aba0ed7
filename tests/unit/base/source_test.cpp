#include <gtest/gtest.h>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>

namespace {

using tessera::Source;

TEST(SourceTest, PrintsTheFileNameAndTheLine) {
  EXPECT_EQ((Source{"/a/b/train.cpp", 41}.text()), "train.cpp:41");
  EXPECT_EQ((Source{"train.cpp", 7}.text()), "train.cpp:7");
  EXPECT_EQ(Source{}.text(), "");
}

TEST(SourceTest, KnowsTheCaller) {
  const Source here = Source::from(std::source_location::current());
  EXPECT_EQ(here.text(), tessera::concat_text("source_test.cpp:", __LINE__ - 1));
}

constexpr bool in_library(const char* file) { return Source{file, 1}.in_library(); }

TEST(SourceTest, KnowsTheHeadersOfTheLibrary) {
  static_assert(in_library("/usr/include/tessera/nn/mlp.hpp"));
  static_assert(in_library("./include/tessera/nn/attention/attention.hpp"));
  static_assert(in_library("/x/include/tessera/ops/data_movement/shape.hpp"));
  static_assert(in_library("/x/include/tessera/graph/trace/stack.hpp"));
  static_assert(in_library("/x/include/tessera/parallel/fsdp.hpp"));
  static_assert(in_library("/x/include/tessera/distributions/continuous/von_mises.hpp"));
  static_assert(in_library("single_include/tessera/tessera.hpp"));
  // A program in a folder of the library's name.
  static_assert(!in_library("/home/me/tessera/examples/train_gpt/trainer.hpp"));
  static_assert(!in_library("/home/me/tessera/nn/model.cpp"));
  static_assert(!in_library("/home/me/tessera/graphics/x.hpp"));
  static_assert(!in_library("/home/me/tesseract/nn/mlp.hpp"));
  static_assert(!in_library("tessera.cpp"));
  static_assert(!in_library("a.hpp"));
  static_assert(!in_library(""));
}

}  // namespace
