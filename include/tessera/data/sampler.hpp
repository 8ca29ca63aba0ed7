#ifndef TESSERA_DATA_SAMPLER_HPP
#define TESSERA_DATA_SAMPLER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <optional>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/permutation.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/key.hpp>

namespace tessera::data {

/// Which rows of a data set are read, and in what order.
struct SamplerOptions {
  /// With a key each epoch has a different random order, as torch.utils.data.RandomSampler; without a key the order is
  /// that of the data set.
  std::optional<Key> shuffle{};
  /// The rows are dealt to `replicas` samplers in turn, of which this is number `replica`, as with
  /// torch.utils.data.DistributedSampler: for processes that each load a part of the data.
  std::int64_t replicas = 1, replica = 0;
  /// If rows can't be dealt evenly: true leaves the last ones out, false repeats the first rows of the epoch, so that
  /// all replicas have the same number of rows.
  bool drop_last = false;
};

/// The rows that an epoch reads. For example, replica 1 of 3 reads the rows 1, 4, 7, 0 of ten rows in order.
class Sampler {
 public:
  /// Errors: `option` for a negative number of rows and a replica that is not among the replicas; `capacity` for more
  /// than 2^52 rows and replicas.
  explicit Sampler(std::int64_t rows, const SamplerOptions& options = {}, Here at = Here::current())
      : rows_(rows), options_(options) {
    if (rows < 0) fail(errc::option, "[Sampler] number of rows: ", rows, " is negative", Source::from(at));
    if (options.replicas < 1 || options.replica < 0 || options.replica >= options.replicas)
      fail(errc::option, "[Sampler] replica: ", options.replica, " is none of ", options.replicas, " replicas",
           Source::from(at));
    constexpr std::int64_t most = std::int64_t{1} << 52;
    if (rows > most || options.replicas > most)
      fail(errc::capacity, "[Sampler] rows and replicas: ", rows, " and ", options.replicas, " are more than 2^52",
           Source::from(at));
    size_ = (rows + (options.drop_last ? 0 : options.replicas - 1)) / options.replicas;
  }

  /// The time of computing which row is read at a place.
  static constexpr Cost cost_of_row{500};

  /// Rows of this replica in each epoch.
  std::int64_t size() const { return size_; }

  /// The order of one epoch.
  class Epoch {
   public:
    /// The row that is read as number `place`, from 0 to size() - 1.
    std::int64_t operator[](std::int64_t place) const {
      const std::int64_t dealt = (place * replicas_ + replica_) % rows_;
      return shuffled_ ? order_[dealt] : dealt;
    }

   private:
    friend class Sampler;
    Permutation order_;
    std::int64_t rows_ = 0, replicas_ = 1, replica_ = 0;
    bool shuffled_ = false;
  };

  Epoch epoch(std::int64_t number) const {
    Epoch made;
    made.rows_ = rows_, made.replicas_ = options_.replicas, made.replica_ = options_.replica;
    made.shuffled_ = options_.shuffle.has_value();
    if (made.shuffled_)
      made.order_ = Permutation(fold_in(*options_.shuffle, static_cast<std::uint64_t>(number)), rows_);
    return made;
  }

 private:
  std::int64_t rows_ = 0, size_ = 0;
  SamplerOptions options_;
};

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
