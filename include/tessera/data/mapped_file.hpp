#ifndef TESSERA_DATA_MAPPED_FILE_HPP
#define TESSERA_DATA_MAPPED_FILE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <cerrno>
#include <cstring>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#include <fstream>
#include <iterator>
#include <vector>
#endif
#endif

namespace tessera::data {

/// The bytes of a file. The system reads a part of the file when it is first used, and drops parts when memory is
/// short, so that a file may be larger than memory. Copies share the mapping. Systems without mmap read the whole file
/// at once.
struct MappedFile {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

/// Errors: `file` with the name of a file that can't be opened or mapped.
TESSERA_ONCE MappedFile map_file(const std::string& path, Here at = Here::current());

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE MappedFile map_file(const std::string& path, Here at) {
#if defined(__unix__) || defined(__APPLE__)
  const auto refuse = [&](const char* what) {
    fail(errc::file, "[map_file] ", path, ": ", what, ": ", std::strerror(errno), Source::from(at));
  };
  struct Open {
    int descriptor;
    ~Open() {
      if (descriptor >= 0) ::close(descriptor);
    }
  } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.descriptor < 0) refuse("can't be opened");
  struct ::stat status {};
  if (::fstat(file.descriptor, &status) != 0) refuse("has no size");
  if (!S_ISREG(status.st_mode)) fail(errc::file, "[map_file] ", path, ": is no regular file", Source::from(at));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};
  void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
  if (bytes == MAP_FAILED) refuse("can't be mapped into memory");
  return {std::shared_ptr<const void>(bytes, [size](const void* p) { ::munmap(const_cast<void*>(p), size); }),
          {static_cast<const std::byte*>(bytes), size}};
#else
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(errc::file, "[map_file] ", path, ": can't be opened", Source::from(at));
  auto read =
      std::make_shared<std::vector<char>>(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return {read, std::as_bytes(std::span(*read))};
#endif
}
#endif

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
