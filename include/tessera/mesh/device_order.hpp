#ifndef TESSERA_MESH_DEVICE_ORDER_HPP
#define TESSERA_MESH_DEVICE_ORDER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/planning.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// One digit of a mixed-radix number: `size` ids, `stride` apart.
struct Digit {
  std::int32_t size = 1;
  std::int32_t stride = 1;
  friend constexpr bool operator==(const Digit&, const Digit&) = default;
};

/// The maximum length of a list of ids, for transposing or sorting an order that is not kept as digits.
inline constexpr std::int64_t max_listed_devices = std::int64_t{1} << 22;

/// The most digits of an order; an order with more is kept as a list.
inline constexpr int max_digits = 12;
using DigitList = InlineVector<Digit, max_digits>;

namespace detail {

struct KeptIds {
  std::int32_t* ids;
  std::size_t count;
  std::uint64_t hash;
  const KeptIds* next;
};

/// Keeps a long list of ids for the life of the process, each list once, so that an order can be a plain value. After
/// the ids come the positions of 0, 1, ... count-1 in the list, -1 for an id that it lacks.
inline const std::int32_t* keep_ids(const std::int32_t* ids, std::size_t count) {
  static const KeptIds* first = nullptr;  // shared by all threads
  std::uint64_t hash = count;
  for (std::size_t i = 0; i < count; ++i) hash = hash_mix(hash, static_cast<std::uint64_t>(ids[i]));
  const KeptIds* head = __atomic_load_n(&first, __ATOMIC_ACQUIRE);
  for (const KeptIds* kept = head; kept; kept = kept->next) {
    if (kept->hash != hash || kept->count != count) continue;
    std::size_t i = 0;
    while (i < count && kept->ids[i] == ids[i]) ++i;
    if (i == count) return kept->ids;
  }
  auto* kept = new KeptIds{new std::int32_t[2 * count], count, hash, head};
  for (std::size_t i = 0; i < count; ++i) {
    kept->ids[i] = ids[i];
    kept->ids[count + i] = -1;
  }
  for (std::size_t i = count; i-- > 0;)
    if (const auto id = static_cast<std::size_t>(ids[i]); id < count)
      kept->ids[count + id] = static_cast<std::int32_t>(i);
  const KeptIds* made = kept;
  while (!__atomic_compare_exchange(&first, &kept->next, &made, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return kept->ids;
}

/// Splits digits at the borders of the axes of an array of these sizes: groups[a] has the digits of axis a, the most
/// significant first. False where an axis ends inside a digit that it does not divide.
constexpr bool split_digits(const DigitList& digits, const std::int64_t* sizes, std::size_t axes, DigitList* groups) {
  std::size_t next = digits.size();
  Digit digit;
  for (std::size_t axis = axes; axis-- > 0;) {
    std::int64_t rest = sizes[axis];
    while (rest > 1) {
      while (digit.size == 1) {
        if (next == 0) return false;
        digit = digits[--next];
      }
      const std::int64_t size = digit.size < rest ? digit.size : rest;
      if (rest % size != 0 || digit.size % size != 0 || groups[axis].size() == max_digits) return false;
      groups[axis].insert(0, {static_cast<std::int32_t>(size), digit.stride});
      digit = {static_cast<std::int32_t>(digit.size / size), static_cast<std::int32_t>(digit.stride * size)};
      rest /= size;
    }
  }
  return true;
}

}  // namespace detail

/// The device ids of a mesh in row-major order of its axes. They are stored as digits of a mixed-radix number if
/// possible, which takes no memory or time per device, otherwise as a list. Each order has exactly one form, so equal
/// orders compare equal.
///
/// Digits are XLA's iota tile assignment `<=[dims]T(order)`: a range reshaped to dims, then transposed. An order
/// without ids is 0, 1, 2, ... for a mesh of any size. Errors, for orders that are not digits: `capacity` for more than
/// 64 ids in a constant expression, and for transposes and sorts of more than max_listed_devices ids.
class DeviceOrder {
 public:
  static constexpr std::size_t inline_ids = 64;

  constexpr DeviceOrder() = default;
  constexpr DeviceOrder(std::initializer_list<std::int32_t> ids) : DeviceOrder(ids.begin(), ids.size()) {}
  constexpr DeviceOrder(const std::int32_t* ids, std::size_t count) : size_(static_cast<std::int64_t>(count)) {
    if (count == 0 || find_digits(ids)) return;
    digits_.clear();
    if (count <= inline_ids && fits_bytes(ids)) {
      for (std::size_t i = 0; i < count; ++i) few_[i] = static_cast<std::uint8_t>(ids[i]);
      return;
    }
    if (__builtin_is_constant_evaluated())
      fail(errc::capacity, "[mesh] device order: a constant mesh can list at most 64 ids, each below 256");
    many_ = detail::keep_ids(ids, count);
  }

  /// 0, 1, ... count-1.
  static constexpr DeviceOrder range(std::int64_t count) {
    DeviceOrder order;
    order.size_ = count;
    if (count > 1) order.digits_.push_back({static_cast<std::int32_t>(count), 1});
    return order;
  }
  /// The order with these digits, the most significant first. The strides must give each id exactly once.
  static constexpr DeviceOrder of_digits(const DigitList& digits) {
    DeviceOrder order;
    order.size_ = 1;
    for (const Digit& digit : digits) {
      order.size_ *= digit.size;
      if (digit.size == 1) continue;
      if (!order.digits_.empty() &&
          order.digits_.back().stride == static_cast<std::int64_t>(digit.size) * digit.stride) {
        order.digits_.back() = {order.digits_.back().size * digit.size, digit.stride};
      } else {
        order.digits_.push_back(digit);
      }
    }
    return order;
  }

  constexpr bool empty() const { return size_ == 0; }
  constexpr std::int64_t size() const { return size_; }
  constexpr bool is_range() const { return is_counter() && (digits_.empty() || digits_ == DigitList{{size32(), 1}}); }
  /// Whether the order is kept as digits (else as a list).
  constexpr bool is_counter() const { return size_ <= 1 ? few_[0] == 0 && !many_ : !digits_.empty(); }
  constexpr const DigitList& digits() const { return digits_; }

  /// The id at a position of the grid, counted row-major.
  constexpr std::int32_t operator[](std::int64_t position) const {
    if (!is_counter()) return many_ ? many_[position] : few_[position];
    std::int64_t id = 0;
    for (std::size_t d = digits_.size(); d-- > 0; position /= digits_[d].size)
      id += position % digits_[d].size * digits_[d].stride;
    return static_cast<std::int32_t>(id);
  }
  /// The position of an id; size() if the order lacks it.
  constexpr std::int64_t position_of(std::int32_t id) const {
    std::int64_t position = 0;
    if (!is_counter()) {
      if (many_ && id >= 0 && id < size_) return many_[size_ + id] < 0 ? size_ : many_[size_ + id];
      while (position < size_ && (*this)[position] != id) ++position;
      return position;
    }
    if (id < 0 || id >= size_) return size_;
    for (const Digit& digit : digits_) position = position * digit.size + id / digit.stride % digit.size;
    return position;
  }

  /// The second position of an id that occurs twice; size() if all ids differ.
  constexpr std::int64_t repeated() const {
    if (is_counter()) return size_;  // digits give each id once
    Growable<bool> seen(static_cast<std::size_t>(size_));
    Growable<std::int32_t> outside;  // not in 0 ... size() - 1
    for (std::int64_t i = 0; i < size_; ++i) {
      const std::int32_t id = (*this)[i];
      if (id < 0 || id >= size_) {
        outside.push_back(id);
        continue;
      }
      if (seen[static_cast<std::size_t>(id)]) return i;
      seen[static_cast<std::size_t>(id)] = true;
    }
    sort(outside.data(), static_cast<std::int64_t>(outside.size()));
    for (std::size_t i = 1; i < outside.size(); ++i)
      if (outside[i] == outside[i - 1]) return position_of(outside[i]);
    return size_;
  }

  /// The transpose of the order as an array of these sizes: axis i of the result is axis order[i].
  constexpr DeviceOrder transposed(const std::int64_t* sizes, const int* order, std::size_t axes) const {
    bool moves = false;  // axes of size 1 may move without a transpose
    int last = -1;
    for (std::size_t i = 0; i < axes; ++i) {
      if (sizes[order[i]] == 1) continue;
      moves = moves || order[i] < last;
      last = order[i];
    }
    if (!moves) return *this;
    if (is_counter()) {
      DigitList groups[max_digits + 1], all;
      bool fits = axes <= max_digits && detail::split_digits(digits_, sizes, axes, groups);
      for (std::size_t i = 0; fits && i < axes; ++i) fits = append(all, groups[order[i]]);
      if (fits) return of_digits(all);
    }
    Growable<std::int64_t> strides(axes);
    std::int64_t stride = 1;
    for (std::size_t axis = axes; axis-- > 0; stride *= sizes[axis]) strides[axis] = stride;
    return listed([&](std::int64_t position) {
      std::int64_t from = 0;
      for (std::size_t i = axes; i-- > 0; position /= sizes[order[i]])
        from += position % sizes[order[i]] * strides[static_cast<std::size_t>(order[i])];
      return (*this)[from];
    });
  }

  /// The order with the ids of each group of `group` consecutive positions sorted.
  constexpr DeviceOrder ascending_in_groups(std::int64_t group) const {
    if (group <= 1) return *this;
    if (is_counter()) {
      const std::int64_t sizes[] = {size_ / group, group};
      DigitList groups[2];
      if (detail::split_digits(digits_, sizes, 2, groups)) {
        for (std::size_t i = 1; i < groups[1].size(); ++i)
          for (std::size_t j = i; j > 0 && groups[1][j].stride > groups[1][j - 1].stride; --j) {
            const Digit digit = groups[1][j];
            groups[1][j] = groups[1][j - 1];
            groups[1][j - 1] = digit;
          }
        if (append(groups[0], groups[1])) return of_digits(groups[0]);
      }
    }
    check_listed();
    Growable<std::int32_t> ids(static_cast<std::size_t>(size_));
    for (std::int64_t begin = 0; begin < size_; begin += group) {
      for (std::int64_t i = begin; i < begin + group; ++i) ids[static_cast<std::size_t>(i)] = (*this)[i];
      sort(ids.data() + begin, group);
    }
    return DeviceOrder(ids.data(), ids.size());
  }

  friend constexpr bool operator==(const DeviceOrder& a, const DeviceOrder& b) {
    if (a.size_ != b.size_ || a.is_counter() != b.is_counter() || !(a.digits_ == b.digits_)) return false;
    if (a.is_counter() || (a.many_ && a.many_ == b.many_)) return true;
    for (std::int64_t i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  constexpr std::uint64_t hash() const {
    std::uint64_t hash = hash_mix(0, static_cast<std::uint64_t>(size_));
    for (const Digit& digit : digits_)
      hash = hash_mix(hash, static_cast<std::uint64_t>(digit.size) << 32 | static_cast<std::uint64_t>(digit.stride));
    for (std::int64_t i = 0; !is_counter() && i < size_; ++i)
      hash = hash_mix(hash, static_cast<std::uint64_t>((*this)[i]));
    return hash;
  }

  /// "3,1,2,0".
  std::string list_text() const {
    std::string out;
    for (std::int64_t i = 0; i < size_; ++i) out += concat_text(i ? "," : "", (*this)[i]);
    return out;
  }
  /// "[4,2]T(1,0)", or "[8]" for a range; empty for a list.
  std::string counter_text() const {
    if (!is_counter() || empty()) return {};
    if (digits_.size() < 2) return concat_text("[", size_, "]");
    std::string dims, order;
    for (std::size_t place = 0; place < digits_.size(); ++place) {
      std::size_t wider = 0;
      for (const Digit& digit : digits_) wider += digit.stride > digits_[place].stride;
      order += concat_text(place ? "," : "", wider);
      // the dim at `place` is the digit that has this many digits of larger stride
      for (const Digit& digit : digits_) {
        std::size_t others = 0;
        for (const Digit& other : digits_) others += other.stride > digit.stride;
        if (others == place) dims += concat_text(place ? "," : "", digit.size);
      }
    }
    return concat_text("[", dims, "]T(", order, ")");
  }

 private:
  constexpr std::int32_t size32() const { return static_cast<std::int32_t>(size_); }

  static constexpr bool append(DigitList& all, const DigitList& more) {
    for (const Digit& digit : more) {
      if (all.size() == max_digits) return false;
      all.push_back(digit);
    }
    return true;
  }
  static constexpr void sort(std::int32_t* ids, std::int64_t count) {  // heap sort: n log n, and needs no header
    const auto sink = [&](std::int64_t root, std::int64_t end) {
      for (std::int64_t child = 2 * root + 1; child < end; root = child, child = 2 * root + 1) {
        if (child + 1 < end && ids[child + 1] > ids[child]) ++child;
        if (ids[root] >= ids[child]) return;
        const std::int32_t id = ids[root];
        ids[root] = ids[child];
        ids[child] = id;
      }
    };
    for (std::int64_t root = count / 2; root-- > 0;) sink(root, count);
    for (std::int64_t end = count; end-- > 1;) {
      const std::int32_t id = ids[0];
      ids[0] = ids[end];
      ids[end] = id;
      sink(0, end);
    }
  }
  constexpr void check_listed() const {
    if (size_ > max_listed_devices)
      fail(errc::capacity, "[mesh] device order: ", size_, " ids that are not the transpose of an array; at most ",
           max_listed_devices, " such ids can be listed");
  }
  template <class IdAt> constexpr DeviceOrder listed(const IdAt& id_at) const {
    check_listed();
    Growable<std::int32_t> ids(static_cast<std::size_t>(size_));
    for (std::int64_t i = 0; i < size_; ++i) ids[static_cast<std::size_t>(i)] = id_at(i);
    return DeviceOrder(ids.data(), ids.size());
  }
  constexpr bool fits_bytes(const std::int32_t* ids) const {
    for (std::int64_t i = 0; i < size_; ++i)
      if (ids[i] < 0 || ids[i] > 255) return false;
    return true;
  }

  /// Finds the digits of a list of ids: from the least significant on, each is as long as the stride stays equal.
  constexpr bool find_digits(const std::int32_t* ids) {
    if (ids[0] != 0) return false;
    DigitList minor_first;
    for (std::int64_t block = 1; block < size_;) {
      if (minor_first.size() == max_digits || ids[block] <= 0) return false;
      Digit digit{1, ids[block]};
      while (digit.size * block < size_ &&
             ids[digit.size * block] == static_cast<std::int64_t>(digit.size) * digit.stride)
        ++digit.size;
      if (size_ % (block * digit.size) != 0) return false;
      block *= digit.size;
      minor_first.push_back(digit);
    }
    // Each id must occur once: the stride of a digit is the number of ids that digits of smaller strides count.
    for (std::size_t d = 0; d < minor_first.size(); ++d) {
      const std::int32_t stride = minor_first[d].stride;
      std::int64_t narrower = 1;
      for (std::size_t o = 0; o < minor_first.size(); ++o) {
        if (o != d && minor_first[o].stride == stride) return false;
        if (minor_first[o].stride < stride) narrower *= minor_first[o].size;
      }
      if (narrower != stride) return false;
    }
    for (std::size_t d = minor_first.size(); d-- > 0;) digits_.push_back(minor_first[d]);
    for (std::int64_t i = 0; i < size_; ++i) {
      std::int64_t id = 0, rest = i;
      for (const Digit& digit : minor_first) {
        id += rest % digit.size * digit.stride;
        rest /= digit.size;
      }
      if (id != ids[i]) return false;
    }
    return true;
  }

  DigitList digits_;
  std::uint8_t few_[inline_ids]{};
  const std::int32_t* many_ = nullptr;
  std::int64_t size_ = 0;
};

namespace detail {

/// The order `[dims]T(order)`; false where `order` is no permutation of the dims, or the product exceeds 2^31.
constexpr bool transposed_range(const std::int32_t* dims, std::size_t rank, const std::int32_t* order,
                                std::size_t order_size, DeviceOrder& out) {
  if (rank != order_size) return false;
  Growable<std::int64_t> strides(rank);
  Growable<bool> seen(rank);
  std::int64_t count = 1;
  for (std::size_t dim = rank; dim-- > 0;) {
    strides[dim] = count;
    if (dims[dim] < 1 || dims[dim] > INT32_MAX / count) return false;
    count *= dims[dim];
  }
  DigitList digits;
  for (std::size_t i = 0; i < rank; ++i) {
    if (order[i] < 0 || order[i] >= static_cast<std::int32_t>(rank)) return false;
    const auto dim = static_cast<std::size_t>(order[i]);
    if (seen[dim]) return false;
    seen[dim] = true;
    if (dims[dim] == 1) continue;
    if (digits.size() == max_digits) return false;
    digits.push_back({dims[dim], static_cast<std::int32_t>(strides[dim])});
  }
  out = DeviceOrder::of_digits(digits);
  return true;
}

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
