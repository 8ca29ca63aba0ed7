#ifndef TRAIN_GPT_DATA_HPP
#define TRAIN_GPT_DATA_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/tensor/key.hpp>

namespace train_gpt {

namespace ts = tessera;

// ---- UTF-8

/// The code points of a UTF-8 text. Errors: `file`, with the position of the first byte that is not UTF-8 or is NUL,
/// and with `name`, which says where the text comes from.
inline std::u32string decode(std::string_view text, std::string_view name) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xc2 ? 0
                               : lead < 0xe0 ? 2
                               : lead < 0xf0 ? 3
                               : lead < 0xf5 ? 4
                                             : 0;
    char32_t point = length == 1 ? lead : lead & (0x7fu >> length);
    bool valid = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; valid && k < length; ++k) {
      valid = (byte(i + k) & 0xc0) == 0x80;
      point = point << 6 | (byte(i + k) & 0x3f);
    }
    // Three or four bytes must not encode what fewer bytes can encode, a surrogate, or more than the last code point.
    valid = valid && (length != 3 || (point >= 0x800 && (point < 0xd800 || point > 0xdfff)));
    valid = valid && (length != 4 || (point >= 0x10000 && point <= 0x10ffff));
    if (!valid) ts::fail(ts::errc::file, name, ": not UTF-8 text at byte ", i);
    if (point == 0) ts::fail(ts::errc::file, name, ": not text, a NUL at byte ", i);
    out.push_back(point);
    i += length;
  }
  return out;
}

inline void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  if (c < 0x10000) return put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
}

// ---- Text

using Tokens = std::vector<std::int32_t>;

/// The distinct characters of a text, in the order of their code points. A token is an index into them.
class Vocabulary {
 public:
  explicit Vocabulary(std::u32string text) : characters_(std::move(text)) {
    std::sort(characters_.begin(), characters_.end());
    characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  }

  int size() const { return static_cast<int>(characters_.size()); }

  /// Errors: `option` for a character that the text lacks; `name` says where it comes from.
  Tokens encode(std::u32string_view text, std::string_view name) const {
    Tokens tokens;
    tokens.reserve(text.size());
    for (const char32_t c : text) {
      const auto at = std::lower_bound(characters_.begin(), characters_.end(), c);
      if (at == characters_.end() || *at != c) {
        std::string unknown;
        append_utf8(unknown, c);
        ts::fail(ts::errc::option, name, ": '", unknown, "' does not occur in the text");
      }
      tokens.push_back(static_cast<std::int32_t>(at - characters_.begin()));
    }
    return tokens;
  }

  std::string decode(const Tokens& tokens) const {
    std::string out;
    for (const std::int32_t token : tokens) append_utf8(out, characters_[static_cast<std::size_t>(token)]);
    return out;
  }

 private:
  std::u32string characters_;
};

namespace detail {

inline std::string read_file(const std::filesystem::path& path) {
  const std::string name = "--text: " + path.string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) ts::fail(ts::errc::file, name, ": no such file");
  if (std::filesystem::is_directory(path, ignored)) ts::fail(ts::errc::file, name, ": a folder, not a file");
  std::ifstream file(path, std::ios::binary);
  std::string text, chunk(1 << 20, '\0');
  while (file && (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), file.gcount() > 0)) {
    text.append(chunk, 0, static_cast<std::size_t>(file.gcount()));
    // Checked for each chunk, because a device such as /dev/zero has no end.
    if (const auto nul = text.find('\0', text.size() - static_cast<std::size_t>(file.gcount())); nul != text.npos)
      ts::fail(ts::errc::file, name, ": not text, a NUL at byte ", nul);
  }
  if (!file.eof()) ts::fail(ts::errc::file, name, ": can't be read");
  if (text.empty()) ts::fail(ts::errc::file, name, ": empty");
  return text;
}

/// The sources and documents of this project, in an order that does not depend on the file system.
inline std::vector<std::string> project_files(const std::filesystem::path& root) {
  std::vector<std::string> files;
  const auto add = [&](const std::filesystem::path& folder, std::string_view extension) {
    if (!std::filesystem::is_directory(folder)) return;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().extension() == extension) files.push_back(entry.path().string());
  };
  add(root / "include", ".hpp");
  add(root / "docs", ".md");
  if (std::filesystem::is_regular_file(root / "README.md")) files.push_back((root / "README.md").string());
  if (files.empty())
    ts::fail(ts::errc::file, "--text: the project's own text is no longer in ", root.string(), "; name a file");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace detail

/// A text as tokens.
struct Corpus {
  Vocabulary vocabulary;
  Tokens tokens;
  int files = 0;
};

/// Reads files one after the other; without any, the project's own text under `project`.
/// Errors: `file` for a file that is missing, empty or not UTF-8 text.
inline Corpus read_corpus(std::vector<std::string> files, const std::filesystem::path& project) {
  if (files.empty()) files = detail::project_files(project);
  std::u32string text;
  for (const std::string& file : files) text += decode(detail::read_file(file), "--text: " + file);
  Vocabulary vocabulary(text);
  Tokens tokens = vocabulary.encode(text, "--text");
  return {std::move(vocabulary), std::move(tokens), static_cast<int>(files.size())};
}

// ---- Batches

/// Windows of the text, row-major [batch, context], and the characters that follow each position.
struct Batch {
  Tokens inputs, targets;
};

/// Draws batches. A batch depends only on the seed and the step, so it is the same for every mesh and strategy.
class Batches {
 public:
  /// Errors: `option` if the text is shorter than a window and the character after it.
  Batches(const Tokens& tokens, int batch, int context, ts::Key key)
      : tokens_(tokens), batch_(batch), context_(context), key_(key) {
    if (tokens.size() <= static_cast<std::size_t>(context))
      ts::fail(ts::errc::option, "--context: ", context, " characters and the next character need a longer text than ",
               tokens.size(), " characters");
  }

  Batch operator()(int step) const {
    const ts::Key key = ts::fold_in(key_, static_cast<std::uint64_t>(step));
    const auto windows = tokens_.size() - static_cast<std::size_t>(context_);
    Batch batch;
    for (int row = 0; row < batch_; ++row) {
      const auto start = ts::fold_in(key, static_cast<std::uint64_t>(row)).seed % windows;
      const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(start);
      batch.inputs.insert(batch.inputs.end(), first, first + context_);
      batch.targets.insert(batch.targets.end(), first + 1, first + 1 + context_);
    }
    return batch;
  }

 private:
  const Tokens& tokens_;
  int batch_, context_;
  ts::Key key_;
};

}  // namespace train_gpt

#endif
