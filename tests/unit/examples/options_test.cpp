#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train_gpt/parse_options.hpp"
#include <gtest/gtest.h>

namespace {

using namespace train_gpt;

std::optional<Options> parsed(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"train_gpt"};
  argv.insert(argv.end(), arguments);
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

std::string message_of(std::initializer_list<const char*> arguments) {
  try {
    parsed(arguments);
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::option);
    return e.what();
  }
  return "no error";
}

/// The message has every one of the words.
void expect_words(std::initializer_list<const char*> arguments, std::initializer_list<const char*> words) {
  const std::string message = message_of(arguments);
  for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << message << " lacks " << word;
}

TEST(Options, TheElementTypeIsF32OrBf16) {
  EXPECT_EQ(parsed({})->dtype, ts::DType::f32);
  EXPECT_EQ(parsed({"--dtype", "bf16"})->dtype, ts::DType::bf16);
  expect_words({"--dtype=f16"}, {"--dtype", "'f16'", "f32, bf16"});
}

TEST(Options, AreReadWithEqualsAndWithSpace) {
  const auto o = parsed({"--text", "a.txt", "--text=b.txt", "--dim=96", "--heads", "3", "--lr", "1e-4", "--seed",
                         "18446744073709551615", "--prompt=--x", "--explain", "--temperature", "0"});
  ASSERT_TRUE(o);
  EXPECT_EQ(o->text, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(o->dim, 96);
  EXPECT_EQ(o->heads, 3);
  EXPECT_EQ(o->lr, 1e-4);
  EXPECT_EQ(o->seed, UINT64_MAX);
  EXPECT_EQ(o->prompt, "--x");
  EXPECT_TRUE(o->explain);
  EXPECT_EQ(o->temperature, 0);
}

TEST(Options, TheLastOfSeveralHolds) { EXPECT_EQ(parsed({"--dim", "32", "--dim", "48"})->dim, 48); }

TEST(Options, EveryStrategyRunsWithoutAMesh) {
  for (const StrategyInfo& info : strategies) {
    const auto o = parsed({"--strategy", std::string(info.name).c_str()});
    ASSERT_TRUE(o);
    EXPECT_EQ(o->strategy.strategy, info.strategy);
    for (const std::string_view axis : info.axes) EXPECT_TRUE(o->mesh.has_axis(axis)) << info.name << " " << axis;
    EXPECT_EQ(static_cast<std::size_t>(o->mesh.rank()), info.axes.size()) << info.name;
  }
}

TEST(Options, AMeshAloneChoosesTheStrategy) {
  EXPECT_EQ(parsed({})->strategy.strategy, Strategy::single);
  EXPECT_EQ(parsed({"--mesh", "data=4"})->strategy.strategy, Strategy::fsdp);
  EXPECT_EQ(parsed({"--mesh", "model=3"})->strategy.strategy, Strategy::tp);
  EXPECT_EQ(parsed({"--mesh", "model=2,data=3"})->strategy.strategy, Strategy::fsdp_tp);
  EXPECT_EQ(parsed({"--mesh", "data=2,fsdp=3"})->strategy.strategy, Strategy::hsdp);
  EXPECT_EQ(parsed({"--mesh", "context=2"})->strategy.strategy, Strategy::cp);
  EXPECT_EQ(parsed({"--mesh", "data=2,model=2,pipe=2"})->strategy.strategy, Strategy::pp);
  EXPECT_EQ(parsed({"--mesh", "data=2,expert=2"})->strategy.strategy, Strategy::ep);
  EXPECT_EQ(parsed({"--mesh", "other=2"})->strategy.strategy, Strategy::single);
}

TEST(Options, ExpertsAreThereForStrategiesThatShareThem) {
  EXPECT_EQ(parsed({"--strategy", "dp"})->experts, 0);
  EXPECT_EQ(parsed({"--strategy", "ep"})->experts, 4);
  EXPECT_EQ(parsed({"--strategy", "tp", "--experts", "3"})->experts, 3);
  EXPECT_EQ(parsed({"--compare", "single", "ep"})->experts, 4);
  expect_words({"--strategy", "ep", "--experts", "0"}, {"--experts", "'ep'", "--experts 4"});
  expect_words({"--strategy", "ring", "--experts", "3"}, {"--experts", "'ring'"});
  expect_words({"--compare", "zero2", "ep"}, {"--experts", "'zero2'"});
}

TEST(Options, SeveralLayoutsAreCompared) {
  const auto o = parsed({"--compare", "single", "tp:model=3", "zero2", "--steps", "5"});
  ASSERT_TRUE(o);
  ASSERT_EQ(o->compare.size(), 3u);
  EXPECT_EQ(o->compare[0].strategy.strategy, Strategy::single);
  EXPECT_EQ(o->compare[1].mesh.text(), "mesh(model=3)");
  EXPECT_EQ(o->compare[2].mesh.text(), "mesh(data=2)");
  EXPECT_EQ(o->steps, 5);
  expect_words({"--compare", "dp", "ddp"}, {"--compare", "'ddp'", "zero2"});
  expect_words({"--compare", "tp:data=2"}, {"--compare", "'model'", "tp:model=2"});
  expect_words({"--compare", "tp:model"}, {"--compare", "'model'"});
  expect_words({"--compare", "ring:context=3", "--context", "32"}, {"--context", "32", "3 devices"});
  EXPECT_TRUE(parsed({"--compare", "pp:pipe=3", "--layers", "4"})) << "stages with different numbers of layers";
  expect_words({"--strategy", "pp", "--microbatches", "3", "--batch", "16"}, {"--microbatches", "3", "16"});
  expect_words({"--compare"}, {"--compare"});
  for (const char* option : {"--strategy", "--mesh", "--csv", "--svg"})
    expect_words({option, "dp", "--compare", "dp"}, {option});
  expect_words({"--compare", "dp", "--explain"}, {"--explain", "--compare"});
  expect_words({"--csv", "x.csv", "--compare", "dp"}, {"--csv", "--compare"});
}

TEST(Options, UnevenDivisionsAreNoErrors) {
  EXPECT_TRUE(parsed({"--mesh", "data=3,model=5", "--batch", "2", "--dim", "14", "--heads", "2"}));
}

TEST(Options, NumbersOutOfRangeAreNamed) {
  for (const char* option : {"--layers", "--dim", "--heads", "--context", "--batch", "--steps", "--threads"})
    for (const char* value : {"0", "-3", "1.5", "many", "99999999999999999999", "", "nan"})
      expect_words({option, value}, {option, *value ? value : option});
  for (const char* option : {"--lr", "--clip"})
    for (const char* value : {"0", "-1", "nan", "x"}) expect_words({option, value}, {option, value});
  for (const char* option : {"--warmup", "--sample", "--temperature", "--seed"})
    for (const char* value : {"-1", "x", "99999999999999999999"}) expect_words({option, value}, {option, value});
}

TEST(Options, OtherMistakesAreNamed) {
  expect_words({"--strategy", "ddp"}, {"--strategy", "'ddp'", "fsdp+tp"});
  expect_words({"--mesh", "data"}, {"--mesh", "'data'"});
  expect_words({"--mesh", "data=0"}, {"--mesh", "'data=0'"});
  expect_words({"--mesh", "data=2,data=2"}, {"--mesh", "twice"});
  expect_words({"--mesh", "data=100000"}, {"--mesh", "devices"});
  expect_words({"--mesh", "data=2", "--strategy", "tp"}, {"--mesh", "'model'", "mesh(data=2)"});
  expect_words({"--mesh", "model=2", "--strategy", "fsdp"}, {"--mesh", "'data'"});
  expect_words({"--dim", "64", "--heads", "5"}, {"--heads", "5", "--dim", "64"});
  expect_words({"--csv", "x", "--svg", "x"}, {"--svg", "'x'"});
  expect_words({"--stpes", "3"}, {"--stpes"});
  expect_words({"--steps"}, {"--steps"});
  expect_words({"words"}, {"words"});
}

TEST(Options, HelpEndsTheRun) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parsed({"--help"}));
  const std::string help = testing::internal::GetCapturedStdout();
  for (const char* option :
       {"--text", "--mesh", "--strategy", "--layers", "--dim", "--heads", "--context", "--batch", "--steps", "--lr",
        "--seed", "--csv", "--svg", "--explain", "--sample", "--prompt", "--temperature"})
    EXPECT_NE(help.find(option), std::string::npos) << option;
}

}  // namespace
