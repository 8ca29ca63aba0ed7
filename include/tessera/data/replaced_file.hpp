#ifndef TESSERA_DATA_REPLACED_FILE_HPP
#define TESSERA_DATA_REPLACED_FILE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <unistd.h>
#else
#include <filesystem>
#include <system_error>
#endif

namespace tessera::data::detail {

/// Writes the name of a file or folder to the disk. A folder around it that may not be read, or a file system that
/// can't do this, is no error. Errors: `file`.
inline void sync_folder_of([[maybe_unused]] std::string_view operation, [[maybe_unused]] const std::string& path,
                           [[maybe_unused]] Here at) {
#if defined(__unix__) || defined(__APPLE__)
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const bool failed = ::fsync(descriptor) != 0 && errno == EIO;
  ::close(descriptor);
  if (failed)
    fail(errc::file, "[", operation, "] ", path,
         ": is written, but its name may be lost with power: ", std::strerror(EIO), Source::from(at));
#endif
}

/// Writes a file atomically: at its path is either the complete file or the previous one, also after a crash. The file
/// is written under a unique name in the same folder, such as state.safetensors.partial, and renamed when all of it is
/// on the disk. Several writers of one path, in one or several processes, write separate files; that of the last
/// finish() stays. A writer that is destroyed before finish() removes its file. The file of a killed process stays;
/// later writers don't touch it.
class ReplacedFile {
 public:
  /// Errors, of all functions: `file` with the operation, the path, and the system's reason.
  ReplacedFile(std::string_view operation, const std::string& path, Here at)
      : operation_(operation), path_(path), at_(at) {
    // "x" fails for a name that exists, which is another writer's.
    for (int number = 0; file_ == nullptr; ++number) {
      name_ = path + (number == 0 ? "" : "." + std::to_string(number)) + ".partial";
      file_ = std::fopen(name_.c_str(), "wbx");
      if (file_ == nullptr && errno != EEXIST) refuse();
    }
  }
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  ~ReplacedFile() {
    if (file_ != nullptr) std::fclose(file_);
    if (!finished_) std::remove(name_.c_str());
  }

  void write(const void* bytes, std::size_t size) {
    if (std::fwrite(bytes, 1, size, file_) != size) refuse();
  }

  /// Puts the file at its path.
  void finish() {
    if (std::fflush(file_) != 0) refuse();
#if defined(__unix__) || defined(__APPLE__)
    // Without this the system may write the new name before the bytes: after a loss of power the file would be empty.
    if (::fsync(::fileno(file_)) != 0) refuse();
#endif
    std::FILE* const file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0) refuse();
#if defined(__unix__) || defined(__APPLE__)
    if (std::rename(name_.c_str(), path_.c_str()) != 0) refuse();
    finished_ = true;
    sync_folder_of(operation_, path_, at_);
#else
    std::error_code reason;  // std::rename replaces no file on Windows
    std::filesystem::rename(name_, path_, reason);
    if (reason)
      fail(errc::file, "[", operation_, "] ", path_, ": can't be written: ", reason.message(), Source::from(at_));
    finished_ = true;
#endif
  }

 private:
  [[noreturn]] void refuse() const {
    const int reason = errno;
    fail(errc::file, "[", operation_, "] ", path_, ": can't be written: ", std::strerror(reason), Source::from(at_));
  }
  const std::string operation_, path_;
  const Here at_;
  std::string name_;
  std::FILE* file_ = nullptr;
  bool finished_ = false;
};

}  // namespace tessera::data::detail
#endif

#include <tessera/base/pop_macros.hpp>

#endif
