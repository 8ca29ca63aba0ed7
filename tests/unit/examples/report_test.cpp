#include "train_gpt/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "../../support/scratch_folder.hpp"
#include "train_gpt/chart.hpp"
#include "train_gpt/progress.hpp"
#include <gtest/gtest.h>

namespace {

using namespace train_gpt;

TEST(Text, Numbers) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(-1234), "-1,234");
}

TEST(Text, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(200 << 20), "200 MiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.0 MiB");
}

TEST(Text, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(0.2), "0:01");
  EXPECT_EQ(duration_text(61), "1:01");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(INFINITY), "-:--");
  EXPECT_EQ(duration_text(NAN), "-:--");
}

TEST(Text, PrintableKeepsTextAndDropsControls) {
  EXPECT_EQ(printable("a\tb\n\u00e9"), "a\tb\n\u00e9");
  EXPECT_EQ(printable("\033[2J\r\x7f"), "?[2J??");
}

/// Columns that a UTF-8 text of narrow characters takes.
int columns_of(const std::string& text) {
  int n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

TEST(Progress, TheBarFitsTheTerminal) {
  for (int columns = 0; columns <= 200; ++columns)
    for (int step : {0, 1, 57, 200})
      EXPECT_LE(columns_of(bar_text({step, 200, 12.3456, 1234567, 4000}, columns)), columns);
}

TEST(Progress, TheBarFills) {
  EXPECT_EQ(bar_text({1, 2, 2.5, 1500, 7}, 64), "1/2  ██████████░░░░░░░░░░  loss 2.5000  1,500 tokens/s  ETA 0:07");
  EXPECT_EQ(bar_text({2, 2, 2.5, 1500, 0}, 30), "2/2  loss 2.5000  1,500 tokens");
}

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  Progress progress(100, 1000, file);
  for (int step = 1; step <= 100; ++step) progress.add(step, 1.0, 0.5);
  progress.end();
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 21);  // the first, and every fifth
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_NE(text.find("step 100/100  loss 1.0000  2,000 tokens/s  ETA 0:00\n"), std::string::npos) << text;
}

TEST(Ticks, CoverTheRangeWithRoundSteps) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 200}, {1.61, 4.67}, {0, 1}, {-3, 17}, {2.5, 2.5}, {0, 0}, {1e-9, 3e-9}, {1e6, 1e6 + 1}, {0.1, 0.3}}) {
    const Ticks ticks = Ticks::around(low, high, 6);
    EXPECT_LE(ticks.first, low + 1e-6 * ticks.step);
    EXPECT_GE(ticks.last(), high - 1e-6 * ticks.step);
    EXPECT_GE(ticks.count, 2);
    EXPECT_LE(ticks.count, 9);
    const double mantissa = ticks.step / std::pow(10, std::floor(std::log10(ticks.step) + 1e-9));
    EXPECT_TRUE(std::abs(mantissa - 1) < 1e-6 || std::abs(mantissa - 2) < 1e-6 || std::abs(mantissa - 5) < 1e-6)
        << mantissa;
  }
}

TEST(LossChart, DrawsAnythingThatIsMeasured) {
  for (const std::vector<double>& losses :
       {std::vector<double>{}, {2.0}, {2, 2, 2}, {4, 3, 2, NAN, 2, INFINITY}, std::vector<double>(100'000, 1.5)}) {
    const std::string svg = LossChart("a < b & c", "x").svg(losses);
    EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
    EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_LT(svg.size(), 200'000u);
    EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  }
}

TEST(LossChart, KeepsASpikeOfALongRun) {
  std::vector<double> losses(50'000, 1.0);
  losses[31'234] = 3.0;
  // The axis runs from 1 to 3, so the spike reaches the top of the frame.
  EXPECT_NE(LossChart("t", "s").svg(losses).find(" 84.0L"), std::string::npos);
}

TEST(Csv, HasAHeaderAndARowForEachStep) {
  const ScratchFolder scratch;
  const std::string path = (scratch.path / "steps.csv").string();
  {
    CsvLog csv(OutputFile("--csv", path, {}));
    csv.add(1, 4.5, 1234.56);
  }
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, "step,loss,tokens_per_second\n1,4.500000,1235\n");
}

TEST(OutputFile, NamesWhatCannotBeWritten) {
  const auto message_of = [](const std::string& path, const std::vector<std::string>& inputs) -> std::string {
    try {
      OutputFile file("--csv", path, inputs);
      file.write("text");
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), ts::errc::file);
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of("/nowhere/x.csv", {}), "--csv: /nowhere/x.csv: can't be written");
  EXPECT_EQ(message_of("/dev/full", {}), "--csv: /dev/full: writing failed");
  EXPECT_EQ(message_of("", {}), "no error");
  const ScratchFolder scratch;
  const std::string path = (scratch.path / "text.txt").string();
  std::ofstream(path) << "text";
  EXPECT_EQ(message_of(path, {path}), "--csv: " + path + ": would overwrite the text that is read");
}

}  // namespace
