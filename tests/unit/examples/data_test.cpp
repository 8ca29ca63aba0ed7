#include "train_gpt/data.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "../../support/scratch_folder.hpp"
#include <gtest/gtest.h>

namespace {

using namespace train_gpt;
using namespace std::string_literals;

std::string message_of(auto&& f) {
  try {
    f();
  } catch (const ts::error& e) {
    return e.what();
  }
  return "no error";
}

std::string encoded(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

TEST(Utf8, KnownEncodings) {
  EXPECT_EQ(decode("a\u00e9\u20ac\U0001f600", "t"), U"a\u00e9\u20ac\U0001f600");
  EXPECT_EQ(encoded(U"a\u00e9\u20ac\U0001f600"), "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 1; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(decode(text, "t"), std::u32string(1, c));
  }
}

TEST(Utf8, RefusesWhatIsNoText) {
  const struct {
    std::string bytes, rule;
  } cases[] = {
      {"ab\x80", "not UTF-8 text at byte 2"},  // a continuation without a lead
      {"\xc3", "not UTF-8 text at byte 0"},    // cut off
      {"\xe2\x82", "not UTF-8 text at byte 0"},
      {"\xc0\xaf", "not UTF-8 text at byte 0"},      // '/' in two bytes
      {"\xe0\x80\xaf", "not UTF-8 text at byte 0"},  // '/' in three
      {"\xf0\x82\x82\xac", "not UTF-8 text at byte 0"},
      {"\xed\xa0\x80", "not UTF-8 text at byte 0"},      // a surrogate
      {"\xf4\x90\x80\x80", "not UTF-8 text at byte 0"},  // past the last code point
      {"\xff\xfe", "not UTF-8 text at byte 0"},
      {"x\xc3(", "not UTF-8 text at byte 1"},
      {"abc\0d"s, "a NUL at byte 3"},
  };
  for (const auto& c : cases) {
    const std::string message = message_of([&] { decode(c.bytes, "--text: x"); });
    EXPECT_NE(message.find(c.rule), std::string::npos) << message;
    EXPECT_EQ(message.rfind("--text: x: ", 0), 0u) << message;
  }
}

TEST(Vocabulary, HoldsEachCharacterOnceInOrder) {
  const Vocabulary vocabulary(U"hello w\u00f6rld");
  EXPECT_EQ(vocabulary.size(), 9);
  EXPECT_EQ(vocabulary.decode({0, 1, 2, 3, 4, 5, 6, 7, 8}), " dehlorw\u00f6");
}

TEST(Vocabulary, NamesAnUnknownCharacter) {
  const Vocabulary vocabulary(U"abc");
  EXPECT_EQ(vocabulary.encode(U"cab", "x"), (Tokens{2, 0, 1}));
  EXPECT_EQ(vocabulary.decode({2, 0, 1}), "cab");
  EXPECT_EQ(message_of([&] { vocabulary.encode(U"a\u20ac", "--prompt"); }),
            "--prompt: '\u20ac' does not occur in the text");
}

Tokens numbers(int n) {
  Tokens tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(i);
  return tokens;
}

TEST(Batches, TargetsFollowInputs) {
  const Tokens tokens = numbers(100);
  const Batch batch = Batches(tokens, 16, 7, ts::Key(1))(3);
  ASSERT_EQ(batch.inputs.size(), 16u * 7);
  ASSERT_EQ(batch.targets.size(), 16u * 7);
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    EXPECT_EQ(batch.targets[i], batch.inputs[i] + 1);
    if (i % 7 != 0) {
      EXPECT_EQ(batch.inputs[i], batch.inputs[i - 1] + 1);
    }
  }
}

TEST(Batches, DependOnSeedAndStepAlone) {
  const Tokens tokens = numbers(1000);
  const Batches batches(tokens, 4, 8, ts::Key(1)), again(tokens, 4, 8, ts::Key(1)), other(tokens, 4, 8, ts::Key(2));
  batches(1);
  EXPECT_EQ(batches(5).inputs, again(5).inputs);
  EXPECT_NE(batches(5).inputs, batches(6).inputs);
  EXPECT_NE(batches(5).inputs, other(5).inputs);
}

TEST(Batches, EveryWindowIsDrawnAndNoneReachesPastTheEnd) {
  const Tokens tokens = numbers(12);
  const Batches batches(tokens, 8, 4, ts::Key(7));
  std::set<int> starts;
  for (int step = 0; step < 200; ++step) {
    const Batch batch = batches(step);
    for (std::size_t row = 0; row < 8; ++row) starts.insert(batch.inputs[row * 4]);
    for (const int token : batch.targets) EXPECT_LT(token, 12);
  }
  EXPECT_EQ(starts, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Batches, NeedAWindowAndTheNextCharacter) {
  const Tokens eight = numbers(8), nine = numbers(9);
  EXPECT_NE(message_of([&] { Batches(eight, 1, 8, ts::Key(1)); }).find("--context: 8"), std::string::npos);
  EXPECT_EQ(message_of([&] { Batches(nine, 1, 8, ts::Key(1)); }), "no error");
}

class Files : public testing::Test {
 protected:
  ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path;
  void SetUp() override { std::filesystem::create_directories(folder / "include" / "deep"); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  }
};

TEST_F(Files, AreReadInOrder) {
  const Corpus corpus = read_corpus({write("b.txt", "ba"), write("a.txt", "c\u00e9")}, "");
  EXPECT_EQ(corpus.vocabulary.decode(corpus.tokens), "bac\u00e9");
  EXPECT_EQ(corpus.files, 2);
}

TEST_F(Files, OfTheProjectAreFoundInOneOrder) {
  write("README.md", "3");
  write("include/b.hpp", "2");
  write("include/deep/c.hpp", "1");
  write("include/ignored.txt", "x");
  const Corpus corpus = read_corpus({}, folder);
  EXPECT_EQ(corpus.vocabulary.decode(corpus.tokens), "321");
}

TEST_F(Files, ThatAreNoTextAreNamed) {
  const std::string empty = write("empty.txt", ""), binary = write("binary.txt", "a\0b"s),
                    latin = write("latin.txt", "caf\xe9");
  EXPECT_EQ(message_of([&] { read_corpus({empty}, ""); }), "--text: " + empty + ": empty");
  EXPECT_EQ(message_of([&] { read_corpus({binary}, ""); }), "--text: " + binary + ": not text, a NUL at byte 1");
  EXPECT_EQ(message_of([&] { read_corpus({latin}, ""); }), "--text: " + latin + ": not UTF-8 text at byte 3");
  EXPECT_EQ(message_of([&] { read_corpus({folder / "none.txt"}, ""); }),
            "--text: " + (folder / "none.txt").string() + ": no such file");
  EXPECT_NE(message_of([&] { read_corpus({folder}, ""); }).find("a folder"), std::string::npos);
  EXPECT_NE(message_of([&] { read_corpus({}, folder / "nowhere"); }).find("name a file"), std::string::npos);
}

}  // namespace
