#ifndef TESSERA_BASE_ERROR_HPP
#define TESSERA_BASE_ERROR_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/base/planning.hpp>
#include <tessera/base/source.hpp>

namespace tessera {

/// Stable ids of the errors that the library throws; docs/errors.md explains each.
enum class errc : int {
  capacity = 1,         ///< a fixed limit of the library was exceeded
  mesh_axis = 2,        ///< an axis is unknown, named twice, or of a size below one
  mesh_devices = 3,     ///< device ids don't fit the mesh
  spec_axis = 4,        ///< a spec uses an axis twice, or one that the mesh lacks
  spec_rank = 5,        ///< a spec has more entries than the tensor has dims
  sharding_string = 6,  ///< a sharding string that can't be parsed
  shape_mismatch = 7,   ///< operand shapes that an operation can't combine
  rank_mismatch = 8,    ///< a rank that an operation can't take
  dtype_mismatch = 9,   ///< an element type that an operation can't take
  dim_range = 10,       ///< a dim or an index out of range
  mesh_mismatch = 11,   ///< tensors of two meshes in one operation
  not_divisible = 12,   ///< a size that must divide another and does not
  empty_tensor = 13,    ///< an empty tensor handle was used
  graph_invalid = 14,   ///< a graph or a plan violates an invariant (a bug of the library)
  policy = 15,          ///< a reshard, or a budget exceeded, that the caller forbids
  host_data = 16,       ///< host data whose size doesn't fit the tensor
  file = 17,            ///< a file is missing, can't be read, or has other contents than expected
  option = 18,          ///< an invalid option of a program
  structure = 19,       ///< models, states or lists of layers whose structures differ
  unsupported = 20,     ///< something the library does not do
  annotation = 21,      ///< a tensor is annotated with a sharding, or is not, where the operation requires the opposite
  oracle = 22,          ///< a program's results on a mesh and on one device differ by more than rounding
  processes = 23,       ///< processes that run a program together differ, or one of them does not answer
};

/// Base class of all errors of the library. `id()` is stable; the text of what() may change.
class error : public std::runtime_error {
 public:
  /// `source`: the line that the message names.
  error(errc id, const std::string& message, Source source = {})
      : std::runtime_error(message), id_(id), source_(source) {}
  errc id() const noexcept { return id_; }
  /// The user's line that what() names, the last one of several; its `line` is 0 when what() names none.
  Source source() const noexcept { return source_; }

 private:
  errc id_;
  Source source_;
};

namespace detail {
/// One argument of a message. A plain value of one class for all types: a call with a message has no strings to make
/// and destroy, and one out-of-line function formats them all.
class MessageItem {
 public:
  MessageItem(std::string_view text) : kind_(Kind::text), text_(text) {}
  MessageItem(const char* text) : MessageItem(std::string_view(text)) {}
  MessageItem(const std::string& text) : MessageItem(std::string_view(text)) {}
  MessageItem(char c) : kind_(Kind::letter), letter_(c) {}
  MessageItem(long long whole) : kind_(Kind::whole), whole_(whole) {}
  MessageItem(double real) : kind_(Kind::real), real_(real) {}
  template <class T>
    requires(std::is_integral_v<T>)
  MessageItem(T whole) : MessageItem(static_cast<long long>(whole)) {}
  MessageItem(const Source& source) : kind_(Kind::source), source_(&source) {}

  /// Null for an item that is no line.
  const Source* source() const { return kind_ == Kind::source ? source_ : nullptr; }
  TESSERA_PLANNING void append_to(std::string& out) const {
    switch (kind_) {
      case Kind::text:
        out += text_;
        break;
      case Kind::letter:
        out += letter_;
        break;
      case Kind::whole:
        out += std::to_string(whole_);
        break;
      case Kind::real:
        out += std::to_string(real_);
        break;
      case Kind::source:
        if (source_->line != 0) out += " at " + source_->text();
        break;
    }
  }

 private:
  enum class Kind : unsigned char { text, letter, whole, real, source } kind_;
  union {
    std::string_view text_;
    char letter_;
    long long whole_;
    double real_;
    const Source* source_;
  };
};

[[gnu::noinline]] inline std::string join_text(std::initializer_list<MessageItem> parts) {
  std::string out;
  for (const MessageItem& part : parts) part.append_to(out);
  return out;
}
[[noreturn]] inline void fail_with(errc id, std::initializer_list<MessageItem> parts) {
  Source source;
  for (const MessageItem& part : parts)
    if (part.source() != nullptr && part.source()->line != 0) source = *part.source();
  throw error(id, join_text(parts), source);
}
}  // namespace detail

/// Joins strings and numbers into one string.
template <class... Parts> std::string concat_text(const Parts&... parts) {
  return detail::join_text({detail::MessageItem(parts)...});
}

/// Throws tessera::error with the joined message. Deliberately not constexpr: a constant expression that reaches it
/// ends the compilation at the line that holds the message.
template <class... Parts> [[noreturn]] inline void fail(errc id, const Parts&... message) {
  detail::fail_with(id, {detail::MessageItem(message)...});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
