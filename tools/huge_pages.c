// Gives a compiler that is started with this library in LD_PRELOAD its memory in pages of 2 MB, where the system does so only for programs that ask
// for it ("madvise" in /sys/kernel/mm/transparent_hugepage/enabled). g++ does not ask, and touches gigabytes in pages of 4 KB.
//
//   gcc -O2 -shared -fPIC tools/huge_pages.c -o huge_pages.so
//   LD_PRELOAD=$PWD/huge_pages.so g++ ...
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { page = 4096, least = 64 << 10, huge_page = 2 << 20, most = 4 << 20, reserved = 128 << 20 };

static void *from_system(void *address, size_t size, int protection, int flags, int file, off_t offset) {
  return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

// What g++ allocates its trees from is 2 MB at a time, which the system does not align: so it is cut from larger pieces, one after another.
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
  // Of each thread: the tools that start compilers have several. The first use of any other thread-local variable may call mmap.
  static __thread __attribute__((tls_model("initial-exec"))) char *next, *end;
  const int is_plain = address == NULL && file == -1 && flags == (MAP_PRIVATE | MAP_ANONYMOUS) &&
                       protection == (PROT_READ | PROT_WRITE);
  if (!is_plain || size < least || size > most) return from_system(address, size, protection, flags, file, offset);
  size = (size + page - 1) / page * page;
  if ((size_t)(end - next) < size) {
    char *const piece = from_system(NULL, (size_t)reserved + huge_page, protection, flags | MAP_NORESERVE, -1, 0);
    if (piece == MAP_FAILED) return piece;
    next = (char *)(((uintptr_t)piece + huge_page - 1) / huge_page * huge_page);
    end = next + reserved;
    madvise(next, reserved, MADV_HUGEPAGE);
  }
  char *const result = next;
  next += size;
  return result;
}
