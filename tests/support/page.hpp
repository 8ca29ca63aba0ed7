#ifndef TESSERA_TESTS_SUPPORT_PAGE_HPP
#define TESSERA_TESTS_SUPPORT_PAGE_HPP

#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tessera_test {

/// A page of docs/, or a section, whose indented lines a test file must contain.
struct Page {
  std::string_view name;          ///< such as "spmd.md"
  std::string_view section = "";  ///< the heading of the section, without "## "; empty: the whole page
  int lines = 1;                  ///< the least number of lines to find: fewer means that the heading was renamed
  bool (*left_out)(std::string_view line) = [](std::string_view) { return false; };  ///< lines not checked
};

namespace detail {
inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}
inline std::filesystem::path page_path(std::string_view name) {
  return std::filesystem::path(__FILE__).parent_path() / "../../docs" / name;
}
/// The line without alignment spaces.
inline std::string squeezed(const std::string& line) {
  std::string out;
  for (const char c : line)
    if (c != ' ') out += c;
  return out;
}
}  // namespace detail

/// The whole text of a page of docs/.
inline std::string page_text(std::string_view name) {
  std::string text;
  for (const std::string& line : detail::lines_of(detail::page_path(name))) text += line + "\n";
  return text;
}

/// Whether a line is an error message. Messages name lines of other files.
inline bool is_message(std::string_view line) { return line.starts_with("    ["); }

/// Expects the indented lines of a page, but not those of fenced blocks, in a test file with any line breaks.
inline void expect_lines(const Page& page, const std::filesystem::path& test_file) {
  std::string code;
  for (const std::string& line : detail::lines_of(test_file)) code += detail::squeezed(line);
  bool own = page.section.empty();
  bool fenced = false;
  int checked = 0;
  for (const std::string& line : detail::lines_of(detail::page_path(page.name))) {
    if (line.starts_with("## ") && !page.section.empty()) own = line.substr(3) == page.section;
    if (line.starts_with("```")) fenced = !fenced;
    if (!own || fenced || !line.starts_with("    ") || page.left_out(line)) continue;
    EXPECT_NE(code.find(detail::squeezed(line)), std::string::npos)
        << "not in " << test_file.filename() << ": " << line;
    ++checked;
  }
  EXPECT_GE(checked, page.lines);
}

/// Captures std::cout until its destructor.
class Output {
 public:
  Output() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  ~Output() { std::cout.rdbuf(before_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  std::string text() const { return text_.str(); }
  /// The text, with `place` instead of each "FILE:LINE" of a file.
  std::string text_at(const std::string& file, const std::string& place) const {
    return std::regex_replace(text(), std::regex(file + ":\\d+"), place);
  }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

}  // namespace tessera_test

#endif
