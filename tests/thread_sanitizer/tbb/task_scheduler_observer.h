#ifndef TESSERA_TESTS_THREAD_SANITIZER_TBB_TASK_SCHEDULER_OBSERVER_H
#define TESSERA_TESTS_THREAD_SANITIZER_TBB_TASK_SCHEDULER_OBSERVER_H

#include "loops.hpp"

namespace tbb {

/// Threads of these loops live for a loop: there is nothing to observe.
class task_scheduler_observer {
 public:
  explicit task_scheduler_observer(task_arena&) {}
  virtual ~task_scheduler_observer() = default;
  virtual void on_scheduler_entry(bool) {}
  virtual void on_scheduler_exit(bool) {}
  void observe(bool = true) {}
};

}  // namespace tbb

#endif
