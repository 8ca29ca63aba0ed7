#ifndef TESSERA_DATA_CHECKPOINT_CHECKPOINT_MANAGER_HPP
#define TESSERA_DATA_CHECKPOINT_CHECKPOINT_MANAGER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>
#include <tessera/data/checkpoint/load_checkpoint.hpp>
#include <tessera/data/checkpoint/save_checkpoint.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/checkpoint/checkpoint_format.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/parallel/process_group.hpp>
#endif

namespace tessera {

/// How a CheckpointManager saves, with the names of Orbax.
struct CheckpointManagerOptions {
  std::int64_t save_interval_steps = 1;    ///< save() does nothing for steps that this does not divide
  std::int64_t max_to_keep = 0;            ///< older checkpoints are removed after a save; 0: all are kept
  bool enable_async_checkpointing = true;  ///< files are written while the program goes on
};

/// The checkpoints of a training run, one folder for each step, as orbax.checkpoint.CheckpointManager:
///
///     ts::CheckpointManager checkpoints("runs/gpt", {.save_interval_steps = 100, .max_to_keep = 3});
///     std::int64_t step = 0;
///     if (const auto latest = checkpoints.latest_step()) {
///       std::tie(model, state) = checkpoints.restore(*latest, std::tuple(model, state));
///       step = *latest;
///     }
///     while (step < 10'000) {
///       ...                                                    // a training step
///       checkpoints.save(++step, std::tuple(model, state));
///     }
///     checkpoints.wait_until_finished();
///
/// A thread writes the files while training goes on. It reads the tensors themselves, not copies: a training step that
/// would update them in place while they are being written uses new memory instead. A job that is killed leaves
/// whole checkpoints only. Of several processes, all make a manager of one directory, which all of them see, and call
/// its functions together. Errors of all functions: `file`, also for what an earlier save() could not write.
class CheckpointManager {
 public:
  /// Makes the directory. Errors: `option` for an interval below 1 and a negative number of checkpoints; `file`.
  explicit CheckpointManager(std::string directory, CheckpointManagerOptions options = {}, Here at = Here::current());
  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;
  /// Waits for the files; what could not be written is reported by wait_until_finished() only.
  ~CheckpointManager();

  /// Begins to save a model, a state or a tuple of them as the checkpoint of a step, unless the interval leaves the
  /// step out; whether it does. Waits for the save before. Errors: `file` also for a step that is there already.
  template <class Model> bool save(std::int64_t step, const Model& model, Here at = Here::current()) {
    if (!should_save(step)) return false;
    begin(step, detail::checkpoint_leaves(model), at);
    return true;
  }
  bool should_save(std::int64_t step) const { return step % options_.save_interval_steps == 0; }

  /// load_checkpoint of a step, or of the latest one. Errors: `file` also if there is none.
  template <class Model>
  Model restore(std::int64_t step, Model model, LoadCheckpoint options = {}, Here at = Here::current()) {
    wait_until_finished();
    return load_checkpoint(std::move(model), folder(step), options, at);
  }
  template <class Model> Model restore(Model model, LoadCheckpoint options = {}, Here at = Here::current()) {
    const std::optional<std::int64_t> latest = latest_step(at);
    return restore(latest ? *latest : none(at), std::move(model), options, at);
  }

  /// The steps whose checkpoints are complete, in ascending order, those of an earlier job included. Waits for the
  /// save before.
  std::vector<std::int64_t> all_steps(Here at = Here::current());
  std::optional<std::int64_t> latest_step(Here at = Here::current());

  /// Waits until the last save() is on the disk. Errors: what it could not write.
  void wait_until_finished();

 private:
  struct Saving;
  std::string directory_;
  CheckpointManagerOptions options_;
  std::unique_ptr<Saving> saving_;

  std::string folder(std::int64_t step) const;
  void begin(std::int64_t step, std::vector<detail::CheckpointLeaf> leaves, Here at);
  [[noreturn]] std::int64_t none(Here at) const;
};

#if TESSERA_HAS_DEFINITIONS
struct CheckpointManager::Saving {
  detail::CheckpointSave save;
  std::thread thread{};

  void join() {
    if (thread.joinable()) thread.join();
  }
};

namespace detail {
/// The folders of a directory whose names are numbers.
inline std::vector<std::int64_t> steps_in(const std::string& directory, std::error_code& reason) {
  std::vector<std::int64_t> steps;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(directory, reason)) {
    const std::string name = entry.path().filename().string();
    std::int64_t step = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (failed == std::errc() && end == name.data() + name.size() && name == std::to_string(step))
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}
/// Removes all but the last checkpoints. One that can't be removed stays.
inline void keep_last(const std::string& directory, std::int64_t count) {
  std::error_code ignored;
  std::vector<std::int64_t> steps = steps_in(directory, ignored);
  for (; static_cast<std::int64_t>(steps.size()) > count; steps.erase(steps.begin()))
    std::filesystem::remove_all(std::filesystem::path(directory) / std::to_string(steps.front()), ignored);
}
}  // namespace detail

TESSERA_ONCE CheckpointManager::CheckpointManager(std::string directory, CheckpointManagerOptions options, Here at)
    : directory_(std::move(directory)), options_(options) {
  if (options.save_interval_steps < 1)
    fail(errc::option, "[CheckpointManager] save_interval_steps: ", options.save_interval_steps, " is below 1",
         Source::from(at));
  if (options.max_to_keep < 0)
    fail(errc::option, "[CheckpointManager] max_to_keep: ", options.max_to_keep, " is negative", Source::from(at));
  std::error_code reason;
  std::filesystem::create_directories(directory_, reason);
  detail::agree_on_error(
      "CheckpointManager",
      reason ? concat_text("[CheckpointManager] ", directory_, ": can't be made: ", reason.message(), Source::from(at))
             : std::string(),
      at);
}

TESSERA_ONCE CheckpointManager::~CheckpointManager() {
  if (saving_) saving_->join();
}

TESSERA_ONCE std::string CheckpointManager::folder(std::int64_t step) const {
  return (std::filesystem::path(directory_) / std::to_string(step)).string();
}

TESSERA_ONCE void CheckpointManager::begin(std::int64_t step, std::vector<detail::CheckpointLeaf> leaves, Here at) {
  wait_until_finished();
  std::error_code ignored;
  const bool exists = process_index() == 0 && std::filesystem::exists(folder(step), ignored);
  detail::agree_on_error(
      "CheckpointManager",
      exists ? concat_text("[CheckpointManager] ", folder(step), ": step ", step, " is saved already", Source::from(at))
             : std::string(),
      at);
  auto saving = std::make_unique<Saving>(Saving{{folder(step), std::move(leaves), at}});
  saving->save.begin();
  saving_ = std::move(saving);
  const auto run = [save = &saving_->save, directory = directory_, keep = options_.max_to_keep] {
    save->run();
    if (save->error.empty() && keep > 0 && process_index() == 0) detail::keep_last(directory, keep);
    save->leaves.clear();  // from now on a step may update the tensors in place
  };
  if (options_.enable_async_checkpointing) {
    saving_->thread = std::thread(run);
  } else {
    run();
    wait_until_finished();
  }
}

TESSERA_ONCE void CheckpointManager::wait_until_finished() {
  if (!saving_) return;
  const std::unique_ptr<Saving> saving = std::move(saving_);
  saving->join();
  saving->save.finish();
}

TESSERA_ONCE std::vector<std::int64_t> CheckpointManager::all_steps(Here at) {
  wait_until_finished();
  std::error_code reason;
  std::vector<std::int64_t> steps;
  if (process_index() == 0) steps = detail::steps_in(directory_, reason);
  detail::agree_on_error(
      "CheckpointManager",
      reason ? concat_text("[CheckpointManager] ", directory_, ": can't be read: ", reason.message(), Source::from(at))
             : std::string(),
      at);
  // What process 0 sees: a folder may appear later for the others.
  std::string text;
  for (const std::int64_t step : steps) text += std::to_string(step) + " ";
  const std::string seen = SessionProcesses().rendezvous("CheckpointManager", text)[0];
  steps.clear();
  for (const char* next = seen.data(); next != seen.data() + seen.size(); ++next) {
    std::int64_t step = 0;
    next = std::from_chars(next, seen.data() + seen.size(), step).ptr;
    steps.push_back(step);
  }
  return steps;
}

TESSERA_ONCE std::optional<std::int64_t> CheckpointManager::latest_step(Here at) {
  const std::vector<std::int64_t> steps = all_steps(at);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

TESSERA_ONCE std::int64_t CheckpointManager::none(Here at) const {
  fail(errc::file, "[CheckpointManager] ", directory_, ": there is no checkpoint", Source::from(at));
}
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
