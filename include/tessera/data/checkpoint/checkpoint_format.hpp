#ifndef TESSERA_DATA_CHECKPOINT_CHECKPOINT_FORMAT_HPP
#define TESSERA_DATA_CHECKPOINT_CHECKPOINT_FORMAT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/json_reader.hpp>
#include <tessera/data/json_text.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/parallel/process_group.hpp>

// What is in the folder of a checkpoint beside its safetensors files.

namespace tessera::detail {

inline constexpr std::string_view manifest_name = "manifest.json";

/// The name that PyTorch gives to the file of one of several writers, which it counts from 1.
inline std::string checkpoint_file_name(int file) {
  char name[64];
  std::snprintf(name, sizeof(name), "shard-%05d-model-00001-of-00001.safetensors", file + 1);
  return name;
}

/// 64 bits of the bytes, which detect what a disk or a network got wrong; no protection against an attacker. Four sums
/// of words of 8 bytes, since each step of one sum waits for the step before.
inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, 4> sums{1, 2, 3, 4};
  const auto add = [&](const std::byte* block) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), block, sizeof(words));
    for (std::size_t i = 0; i < 4; ++i) sums[i] = hash_mix(sums[i], words[i]);
  };
  std::size_t done = 0;
  for (; done + 32 <= bytes.size(); done += 32) add(bytes.data() + done);
  std::array<std::byte, 32> rest{};
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(done), bytes.end(), rest.begin());
  add(rest.data());
  std::uint64_t sum = bytes.size();
  for (const std::uint64_t part : sums) sum = hash_mix(sum, part);
  return sum;
}

/// The text of manifest.json. A part of it, which each process but the first writes for process 0, has the same form.
struct Manifest {
  struct File {
    std::int64_t bytes = 0;
    std::map<std::string, std::uint64_t> checksums{};  // by the name of the tensor
  };
  std::map<std::string, File> files{};
  std::map<std::string, std::string> tensors{};  // type and sharding, for readers of the text

  void add(Manifest other) {
    files.merge(other.files);
    tensors.merge(other.tensors);
  }

  std::string text() const {
    std::string made = "{\n\"format\": \"tessera checkpoint 1\",\n\"files\": {";
    const char* comma = "\n";
    for (const auto& [name, file] : files) {
      made += concat_text(comma, json_text(name), ": {\"bytes\": ", file.bytes, ", \"checksums\": {");
      const char* inner = "";
      for (const auto& [tensor, sum] : file.checksums) {
        char digits[17];
        std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(sum));
        made += concat_text(inner, json_text(tensor), ": \"", digits, "\"");
        inner = ", ";
      }
      made += "}}";
      comma = ",\n";
    }
    made += "\n},\n\"tensors\": {";
    comma = "\n";
    for (const auto& [name, type] : tensors) {
      made += concat_text(comma, json_text(name), ": ", json_text(type));
      comma = ",\n";
    }
    return made + "\n}\n}\n";
  }

  /// Errors: `file`, also with the error that a process wrote in place of its part.
  static Manifest parse(std::string_view text, std::string_view operation, std::string_view path, Here at) {
    Manifest made;
    JsonReader reader{text, operation, path, at};
    std::string format;
    reader.object([&](const std::string& key) {
      if (key == "format") {
        format = reader.text();
      } else if (key == "error") {
        throw error(errc::file, reader.text(), Source::from(at));
      } else if (key == "files") {
        reader.object([&](const std::string& name) {
          File& file = made.files[name];
          reader.object([&](const std::string& field) {
            if (field == "bytes")
              file.bytes = reader.number();
            else if (field == "checksums")
              reader.object([&](const std::string& tensor) { file.checksums[tensor] = sum_of(reader); });
            else
              reader.skip();
          });
        });
      } else {
        reader.skip();
      }
    });
    reader.end();
    if (format != "tessera checkpoint 1")
      reader.refuse(concat_text("has the format '", format, "' instead of 'tessera checkpoint 1'"));
    return made;
  }

 private:
  static std::uint64_t sum_of(JsonReader& reader) {
    const std::string digits = reader.text();
    std::uint64_t sum = 0;
    for (const char c : digits) {
      const std::size_t digit = std::string_view("0123456789abcdef").find(c);
      if (digit == std::string_view::npos || digits.size() != 16)
        reader.refuse("has a checksum that is not 16 hex digits");
      sum = 16 * sum + digit;
    }
    return sum;
  }
};

/// Where a process writes its part of the manifest of a checkpoint.
inline std::string part_of_manifest(const std::string& folder, int process) {
  return (std::filesystem::path(folder) / ("process-" + std::to_string(process) + ".json")).string();
}

/// Waits for the part of another process, reads it, and removes its file. Errors: `file` with what the process could
/// not write; `processes` after an hour.
inline Manifest wait_for_part_of_manifest(const std::string& folder, int process, Here at) {
  const std::string path = part_of_manifest(folder, process);
  const auto start = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(1);
  for (std::error_code ignored; !std::filesystem::exists(path, ignored);) {
    if (std::chrono::steady_clock::now() - start > std::chrono::hours(1))
      fail(errc::processes, "[save_checkpoint] ", folder, ": waited an hour for the file of process ", process,
           "; all processes must see one folder", Source::from(at));
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
  }
  const data::MappedFile file = data::map_file(path, at);
  Manifest made = Manifest::parse({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()},
                                  "save_checkpoint", path, at);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return made;
}

/// Called by all processes: throws in each of them if one of them has an error. Errors: `file`.
inline void agree_on_error(std::string_view operation, const std::string& own, Here at) {
  const std::vector<std::string> all = SessionProcesses().rendezvous(operation, own);
  if (!own.empty()) throw error(errc::file, own, Source::from(at));
  for (std::size_t process = 0; process < all.size(); ++process)
    if (!all[process].empty())
      throw error(errc::file, concat_text("process ", process, ": ", all[process]), Source::from(at));
}

}  // namespace tessera::detail
#endif

#include <tessera/base/pop_macros.hpp>

#endif
