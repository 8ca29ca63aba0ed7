// Gives compilers that are started with this library in LD_PRELOAD their memory from files, which stay when a compiler ends:
// the next compiler gets the same pages, and the system neither fetches nor clears them again. The folder of the files is the
// variable TESSERA_COMPILER_MEMORY; a tmpfs with the option huge=always has them in pages of 2 MB. Each compiler has a file of its
// own while it runs. Without the folder, or when it is full, memory comes from the system, in pages of 2 MB where it has them.
//
//   gcc -O2 -shared -fPIC tools/compiler_memory.c -o compiler_memory.so
//   TESSERA_COMPILER_MEMORY=/folder LD_PRELOAD=$PWD/compiler_memory.so g++ ...
//
// g++ takes memory for its trees with mmap, 2 MB at a time; clang takes all of it with malloc, of which g++ takes a fifth. Both calls are
// replaced, for these compilers alone: what they get has the contents that others left in it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { chunk_bits = 16, classes = 44, most_files = 64 };
static const size_t chunk = (size_t)1 << chunk_bits, piece = 64 * MIB, region = 64 * 1024 * MIB, largest_small = 32 * KIB;

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void __libc_free(void *);

// ---- the region: chunks of 64 KB one after another

static char *base, *next, *mapped;  // base is null in programs that are no compilers
static int file = -1;
static atomic_flag locked = ATOMIC_FLAG_INIT;
static void lock(void) {
  while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire)) {}
}
static void unlock(void) { atomic_flag_clear_explicit(&locked, memory_order_release); }

static void *from_system(void *address, size_t size, int protection, int flags, int of, off_t offset) {
  return (void *)syscall(SYS_mmap, address, size, protection, flags, of, offset);
}
static int grow(size_t size) {
  if ((size_t)(base + region - next) < size) return 0;
  while ((size_t)(mapped - next) < size) {
    const off_t at = mapped - base;
    // Without its memory, a page of a file ends a process that touches it: it is there before, or the piece is not of the file.
    if (file != -1 && (fallocate(file, FALLOC_FL_KEEP_SIZE, at, (off_t)piece) != 0 ||
                       from_system(mapped, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, at) == MAP_FAILED))
      file = -1;
    if (file == -1 && mprotect(mapped, piece, PROT_READ | PROT_WRITE) != 0) return 0;
    if (file == -1) madvise(mapped, piece, MADV_HUGEPAGE);
    mapped += piece;
  }
  return 1;
}
static char *take(size_t size, size_t alignment) {
  char *const start = (char *)(((uintptr_t)next + alignment - 1) / alignment * alignment);
  if (!grow((size_t)(start - next) + size)) return NULL;
  next = start + size;
  return start;
}
static int is_ours(const void *p) { return base != NULL && (const char *)p >= base && (const char *)p < base + region; }

static void open_file(const char *folder) {
  char path[4096];
  for (int i = 0; i < most_files && file == -1; ++i) {
    if (snprintf(path, sizeof path, "%s/%d", folder, i) >= (int)sizeof path) return;
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file == -1) return;
    if (flock(file, LOCK_EX | LOCK_NB) != 0 || ftruncate(file, (off_t)region) != 0) {
      close(file);
      file = -1;
    }
  }
}
__attribute__((constructor)) static void begin(void) {
  const char *const name = program_invocation_short_name, *const folder = getenv("TESSERA_COMPILER_MEMORY");
  if (strcmp(name, "cc1plus") != 0 && strncmp(name, "clang", 5) != 0) return;
  char *const all = from_system(NULL, region + piece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return;
  if (folder != NULL) open_file(folder);
  next = mapped = (char *)(((uintptr_t)all + piece - 1) / piece * piece);
  base = next;
}

// ---- mmap

void *mmap(void *address, size_t size, int protection, int flags, int of, off_t offset) {
  const int is_plain = base != NULL && address == NULL && of == -1 && flags == (MAP_PRIVATE | MAP_ANONYMOUS) &&
                       protection == (PROT_READ | PROT_WRITE) && size >= chunk && size <= 4 * MIB;
  if (is_plain) {
    lock();
    void *const result = take((size + chunk - 1) / chunk * chunk, chunk);
    unlock();
    if (result != NULL) return result;
  }
  return from_system(address, size, protection, flags, of, offset);
}

// ---- malloc: chunks of blocks of one size each, which are free in lists; larger blocks are whole chunks

static uint32_t of_chunk[64 * 1024 * MIB >> 16];  // of small blocks: their class; of a larger block: 64 + the number of its chunks
static void *free_blocks[classes + 21];           // by class; then large ones by the logarithm of the number of chunks
static char *unused[classes], *end_of_unused[classes];

// Multiples of 16 up to 256, then four sizes up to each power of two.
static size_t size_of(unsigned c) {
  if (c < 16) return (c + 1) * (size_t)16;
  const unsigned power = (c - 16) / 4, part = (c - 16) % 4;
  return ((size_t)256 << power) + (part + 1) * ((size_t)64 << power);
}
static unsigned class_of(size_t size) {
  if (size <= 256) return size == 0 ? 0 : (unsigned)((size - 1) / 16);
  const unsigned power = 63 - (unsigned)__builtin_clzl(size - 1) - 8;
  return 16 + 4 * power + (unsigned)(((size - 1) >> (power + 6)) & 3);
}
static unsigned logarithm(size_t chunks) { return chunks <= 1 ? 0 : 64 - (unsigned)__builtin_clzl(chunks - 1); }

static void *large(size_t size, size_t alignment) {
  if (size > region / 2) return NULL;
  const unsigned log = logarithm((size + chunk - 1) >> chunk_bits);
  void **const list = &free_blocks[classes + log];
  if (*list != NULL && alignment <= chunk) {
    void *const result = *list;
    memcpy(list, result, sizeof *list);
    return result;
  }
  char *const result = take(chunk << log, alignment > chunk ? alignment : chunk);
  if (result != NULL) of_chunk[(size_t)(result - base) >> chunk_bits] = 64 + ((uint32_t)1 << log);
  return result;
}
static void *small(unsigned c) {
  void **const list = &free_blocks[c];
  if (*list != NULL) {
    void *const result = *list;
    memcpy(list, result, sizeof *list);
    return result;
  }
  const size_t size = size_of(c);
  if ((size_t)(end_of_unused[c] - unused[c]) < size) {
    char *const start = take(chunk, chunk);
    if (start == NULL) return NULL;
    of_chunk[(size_t)(start - base) >> chunk_bits] = c;
    unused[c] = start;
    end_of_unused[c] = start + chunk;
  }
  char *const result = unused[c];
  unused[c] += size;
  return result;
}
static void *allocated(size_t size, size_t alignment) {
  lock();
  void *result;
  if (alignment > 16 && size < alignment) size = alignment;
  // Blocks whose size is a power of two lie at multiples of it.
  if (alignment > 16 && size <= largest_small) size = (size_t)1 << logarithm(size);
  result = size <= largest_small ? small(class_of(size)) : large(size, alignment);
  unlock();
  if (result == NULL) errno = ENOMEM;
  return result;
}
static size_t usable(const void *p) {
  const uint32_t entry = of_chunk[(size_t)((const char *)p - base) >> chunk_bits];
  return entry < 64 ? size_of(entry) : (size_t)(entry - 64) << chunk_bits;
}

void *malloc(size_t size) { return base == NULL ? __libc_malloc(size) : allocated(size, 16); }
void free(void *p) {
  if (!is_ours(p)) {
    __libc_free(p);
    return;
  }
  const int error = errno;
  lock();
  const uint32_t entry = of_chunk[(size_t)((char *)p - base) >> chunk_bits];
  void **const list = &free_blocks[entry < 64 ? entry : classes + logarithm(entry - 64)];
  memcpy(p, list, sizeof *list);
  *list = p;
  unlock();
  errno = error;
}
void *calloc(size_t count, size_t size) {
  if (base == NULL) return __libc_calloc(count, size);
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  void *const result = allocated(bytes, 16);
  return result == NULL ? NULL : memset(result, 0, bytes);
}
void *realloc(void *p, size_t size) {
  if (p == NULL) return malloc(size);
  if (!is_ours(p)) return __libc_realloc(p, size);
  const size_t had = usable(p);
  if (size <= had && (had <= 256 || size > had / 2)) return p;
  void *const result = allocated(size, 16);
  if (result == NULL) return NULL;
  memcpy(result, p, size < had ? size : had);
  free(p);
  return result;
}
void *memalign(size_t alignment, size_t size) {
  return base == NULL ? __libc_memalign(alignment, size) : allocated(size, alignment);
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **result, size_t alignment, size_t size) {
  void *const p = memalign(alignment, size);
  if (p != NULL) *result = p;
  return p == NULL ? ENOMEM : 0;
}
