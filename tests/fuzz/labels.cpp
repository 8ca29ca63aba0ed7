// The texts of einsum, rearrange and shard_map, which programs give as constants.
#include "fuzz.hpp"

#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/shard_map/shard_map_text.hpp>

namespace ts = tessera;
using fuzz::expect;

namespace {

void check_einsum(const std::string& input) {
  const ts::detail::EinsumText text(input);
  if (!text.valid) return;
  expect(text.rank_a <= ts::max_rank && text.rank_b <= ts::max_rank && text.rank_out <= ts::max_rank,
         "the ranks of an einsum are within the limit", input);
  for (int out = 0; out < text.rank_out; ++out) {
    bool known = false;
    for (int d = 0; d < text.rank_a; ++d) known = known || text.labels.a[d] == text.labels.out[out];
    for (int d = 0; d < text.rank_b; ++d) known = known || text.labels.b[d] == text.labels.out[out];
    expect(known, "a letter of the result of an einsum is one of an operand", input);
  }
}

void check_rearrange(const std::string& input) {
  const ts::detail::RearrangeText text(input);
  if (!text.valid) return;
  expect(text.rank_in <= ts::max_rank && text.rank_out <= ts::max_rank, "the ranks of a rearrange are within the limit",
         input);
  (void)text.determined(0);
  for (int f = 0; f < text.factors.count; ++f)
    expect(text.factors.in_dim[f] < text.rank_in && text.factors.out_dim[f] < text.rank_out,
           "a name of a rearrange stands for a part of a dim on both sides", input);
}

void check_shard_map(const std::string& input) {
  const ts::detail::ShardMapText text(input);
  if (!text.valid) return;
  for (int i = 0; i < text.ins; ++i)
    for (int k = 0; k < text.in_items[i].count; ++k) (void)text.in[text.in_items[i].first + k].resolved(text.axes);
  for (int i = 0; i < text.outs; ++i)
    for (int k = 0; k < text.out_items[i].count; ++k) (void)text.out[text.out_items[i].first + k].resolved(text.axes);
  const ts::detail::ShardMapText inner("{a} -> {b}; c", &text);
  (void)inner.valid;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  check_einsum(input);
  check_rearrange(input);
  check_shard_map(input);
  return 0;
}
