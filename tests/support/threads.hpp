#ifndef TESSERA_TESTS_SUPPORT_THREADS_HPP
#define TESSERA_TESTS_SUPPORT_THREADS_HPP

#include <tessera/runtime/threads/team.hpp>

namespace tessera_test {

/// Sets the number of threads while it exists.
class Threads {
 public:
  explicit Threads(int count) { tessera::set_parallelism(count); }
  Threads(const Threads&) = delete;
  ~Threads() { tessera::set_parallelism(before_); }

 private:
  int before_ = tessera::parallelism();
};

}  // namespace tessera_test

#endif
