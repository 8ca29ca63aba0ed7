#ifndef TESSERA_DATA_DATA_LOADER_HPP
#define TESSERA_DATA_DATA_LOADER_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/column.hpp>
#include <tessera/data/prefetcher.hpp>
#include <tessera/data/read_rows.hpp>
#include <tessera/data/sampler.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/batches.hpp>
#include <tessera/tensor/key.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera::data {

/// The spec of one column, by the name of its field in the batch: `{"images", {"data"}}`.
struct NamedSpec {
  std::string field;
  PartitionSpec spec;
};

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  /// With a key each epoch has a different random order, the same on any mesh; without, the order of the data set.
  std::optional<Key> shuffle{};
  /// What happens to a last batch that has fewer rows. drop_last=True of PyTorch is Ragged::drop, drop_last=False
  /// Ragged::keep.
  Ragged ragged = Ragged::error;
  /// The spec of every column; of a column of lower rank, its first entries.
  PartitionSpec spec{};
  /// Specs of single columns, by the names of the fields of the batch (`field_names`), instead of `spec`.
  std::vector<NamedSpec> specs{};
  /// The number of batches to load ahead, on a separate thread; with 0 a batch is loaded when it is needed.
  /// loader_prefetch_size of PyTorch/XLA's ParallelLoader.
  int prefetch = 2;
  /// The position of the batch dim: with 1, rows [time, features] become [time, batch, features]. For columns of lower
  /// rank it is the last dim. batchdim of PyTorch/XLA's ParallelLoader.
  int batch_dim = 0;
  /// For processes that each load a part of the rows, see SamplerOptions.
  std::int64_t replicas = 1, replica = 0;
};

/// The position of a loader: its next batch. Save it with a model to resume an interrupted epoch, see
/// DataLoader::resume.
struct DataLoaderState {
  std::int64_t epoch = 0, batch = 0;
  friend bool operator==(const DataLoaderState&, const DataLoaderState&) = default;
};

namespace detail {
/// A mesh, and the line of the user's call, which a function with any number of columns can't have as its last
/// parameter.
struct MeshAt {
  const Mesh& mesh;
  Here at;
  MeshAt(const Mesh& on, Here line = Here::current()) : mesh(on), at(line) {}
};

template <Column C> using batch_tensor = ShardedTensor<typename C::element, C::row_rank + 1>;

/// The names of the fields of a batch; of a tuple, and of a struct without field_names, none.
template <class Batch> std::vector<std::string_view> names_of_fields() {
  std::vector<std::string_view> names;
  if constexpr (requires { Batch::field_names; })
    for (const std::string_view name : Batch::field_names) names.push_back(name);
  return names;
}
/// The spec of each column. Errors: `option` for names that are no field of the batch, or given twice.
inline std::vector<PartitionSpec> specs_of(const DataLoaderOptions& options, const std::vector<std::string_view>& names,
                                           const std::vector<int>& ranks, Here at) {
  std::vector<PartitionSpec> specs;
  for (const int rank : ranks) {
    PartitionSpec spec = options.spec;
    while (spec.entries.size() > static_cast<std::size_t>(rank)) spec.entries.pop_back();
    specs.push_back(spec);
  }
  std::vector<bool> named(ranks.size(), false);
  for (const NamedSpec& own : options.specs) {
    if (names.empty())
      fail(errc::option, "[DataLoader] specs: \"", own.field,
           "\" names a field, but batches are tuples or have no field_names; use data_loader<Batch>()",
           Source::from(at));
    const auto found = std::find(names.begin(), names.end(), own.field);
    if (found == names.end())
      fail(errc::option, "[DataLoader] specs: batches have no field \"", own.field, "\"", Source::from(at));
    const auto column = static_cast<std::size_t>(found - names.begin());
    if (named[column]) fail(errc::option, "[DataLoader] specs: \"", own.field, "\" is named twice", Source::from(at));
    named[column] = true;
    specs[column] = own.spec;
  }
  return specs;
}
}  // namespace detail

/// Loads batches of the columns of a data set, as torch.utils.data.DataLoader with PyTorch/XLA's ParallelLoader. Each
/// column of a batch is a tensor [batch, row_shape...] (see batch_dim), read directly into its shards. Make it with
/// data_loader().
///
///     auto loader = ts::data::data_loader(mesh, {.batch_size = 64, .shuffle = ts::Key(1), .spec = {"data"}}, images,
///     labels); for (int epoch = 0; epoch < 10; ++epoch)
///       for (const auto& [x, y] : loader) step(model, x, y);
/// Batches depend only on the columns and the options, not on the mesh, the number of threads, or `prefetch`.
/// Communication: none. A loader may be moved, and used by one thread at a time.
template <class Batch, Column... Columns> class DataLoader {
 public:
  DataLoader(const Mesh& mesh, const DataLoaderOptions& options, Columns... columns, Here at = Here::current())
      : options_(options) {
    static_assert(sizeof...(Columns) > 0, "tessera: a DataLoader needs a column");
    if constexpr (requires { Batch::field_names; })
      static_assert(std::size(Batch::field_names) == sizeof...(Columns),
                    "tessera: a DataLoader needs a column for each field of the batch");
    const std::array<std::int64_t, sizeof...(Columns)> rows{columns.rows()...};
    for (const std::int64_t count : rows)
      if (count != rows[0])
        fail(errc::shape_mismatch, "[DataLoader] columns: the first has ", rows[0], " rows, another ", count,
             Source::from(at));
    const auto check_rank = [at]<Column C>(const C& column) {
      if (static_cast<int>(column.row_shape().size()) != C::row_rank)
        fail(errc::rank_mismatch, "[DataLoader] columns: rows of row_rank ", C::row_rank, " have the shape ",
             shape_text(dtype_v<typename C::element>, column.row_shape()), Source::from(at));
    };
    (check_rank(columns), ...);
    if (options.prefetch < 0)
      fail(errc::option, "[DataLoader] prefetch: ", options.prefetch, " is negative", Source::from(at));
    if (options.batch_dim < 0 || options.batch_dim > std::max({Columns::row_rank...}))
      fail(errc::option, "[DataLoader] batch_dim: ", options.batch_dim, " is not a dim of any column",
           Source::from(at));
    const Sampler sampler(rows[0], {options.shuffle, options.replicas, options.replica, options.ragged == Ragged::drop},
                          at);
    rows_ = sampler.size();
    batches_ = batch_count(rows_, options.batch_size, options.ragged, at);
    const std::vector<PartitionSpec> specs =
        detail::specs_of(options, detail::names_of_fields<Batch>(), {Columns::row_rank + 1 ...}, at);

    // Contains all that the thread which loads needs, so that a loader can be moved.
    auto load = [mesh, sampler, specs, at, batch_dim = options.batch_dim, rows = rows_, size = options.batch_size,
                 batches = batches_, columns = std::tuple(std::move(columns)...), order = Sampler::Epoch(),
                 epoch = std::int64_t{-1}](std::int64_t item) mutable -> std::shared_ptr<void> {
      if (epoch != item / batches) {
        epoch = item / batches;
        order = sampler.epoch(epoch);
      }
      const RowRange range = batch_rows(rows, size, item % batches);
      std::vector<Row> chosen(static_cast<std::size_t>(range.size()));
      parallel_for(range.size(), Sampler::cost_of_row, [&](std::int64_t i) {
        chosen[static_cast<std::size_t>(i)] = {order[range.begin + i], epoch};
      });
      return [&]<std::size_t... I>(std::index_sequence<I...>) -> std::shared_ptr<void> {
        return std::make_shared<Batch>(
            Batch{detail::read_rows(std::get<I>(columns), chosen, mesh, specs[I],
                                    static_cast<std::size_t>(std::min(batch_dim, Columns::row_rank)), at)...});
      }(std::index_sequence_for<Columns...>{});
    };
    prefetcher_ = std::make_unique<Prefetcher>(options.prefetch, std::move(load), at);
  }

  /// Batches of an epoch, and rows that they have together.
  std::int64_t batches() const { return batches_; }
  std::int64_t rows() const { return options_.ragged == Ragged::drop ? batches_ * options_.batch_size : rows_; }

  /// The next batch. At the end of an epoch it returns nothing once, and then the first batch of the next epoch.
  /// Errors: exceptions of reading a row; the next call loads that batch again.
  std::optional<Batch> next() {
    if (state_.batch == batches_) {
      state_ = {state_.epoch + 1, 0};
      return std::nullopt;
    }
    const std::shared_ptr<void> loaded = prefetcher_->get(state_.epoch * batches_ + state_.batch);
    ++state_.batch;
    return std::move(*static_cast<Batch*>(loaded.get()));
  }

  /// A loop over a loader visits the remaining batches of the epoch.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return &*batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.batch_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader& loader) : loader_(&loader), batch_(loader.next()) {}
    DataLoader* loader_ = nullptr;
    std::optional<Batch> batch_;
  };
  Iterator begin() { return Iterator(*this); }
  /// Reports why a loader that is const can't be looped over.
  template <class Self = DataLoader> Iterator begin() const {
    static_assert(std::is_void_v<Self>,
                  "tessera: a loop takes batches out of a DataLoader, and so changes its position; "
                  "declare the loader without const, or take it as a non-const reference");
    return {};
  }
  std::default_sentinel_t end() const { return {}; }

  DataLoaderState state() const { return state_; }
  /// Continues at the state of a loader with the same columns and options. Errors: `option` for a batch number beyond
  /// the epoch; `capacity` for an epoch that begins after more than 2^52 batches.
  void resume(DataLoaderState state, Here at = Here::current()) {
    if (state.epoch < 0 || state.batch < 0 || state.batch > batches_)
      fail(errc::option, "[DataLoader] resume: batch ", state.batch, " of epoch ", state.epoch, ", but an epoch has ",
           batches_, " batches", Source::from(at));
    constexpr std::int64_t most = std::int64_t{1} << 52;  // far from the largest number, so that counting on is safe
    if (state.epoch > most / std::max<std::int64_t>(batches_, 1))
      fail(errc::capacity, "[DataLoader] resume: epoch ", state.epoch, " of ", batches_,
           " batches begins after more than 2^52 batches", Source::from(at));
    state_ = state;
  }

 private:
  DataLoaderOptions options_;
  std::int64_t rows_ = 0, batches_ = 0;
  DataLoaderState state_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

/// A loader whose batches are tuples of tensors, in the order of the columns. Errors: `shape_mismatch` for columns of
/// different numbers of rows; `option`; `not_divisible` under Ragged::error; those of creating tensors with the specs.
template <Column... Columns>
auto data_loader(const detail::MeshAt& on, const DataLoaderOptions& options, Columns... columns) {
  return DataLoader<std::tuple<detail::batch_tensor<Columns>...>, Columns...>(on.mesh, options, std::move(columns)...,
                                                                              on.at);
}
/// A loader whose batches are structs with a tensor for each column:
///
///     struct Digits {
///       ts::ShardedTensor<float, 4> images;
///       ts::ShardedTensor<std::int32_t, 1> labels;
///       static constexpr std::array field_names{"images", "labels"};
///     };
///     auto loader = ts::data::data_loader<Digits>(mesh, {.batch_size = 64, .specs = {{"images", {"data"}}}}, images,
///     labels);
template <class Batch, Column... Columns>
  requires(!Column<Batch>)
auto data_loader(const detail::MeshAt& on, const DataLoaderOptions& options, Columns... columns) {
  return DataLoader<Batch, Columns...>(on.mesh, options, std::move(columns)..., on.at);
}

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
