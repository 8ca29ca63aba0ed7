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

}  // namespace
