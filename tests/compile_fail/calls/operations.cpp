// Calls of operations with operands that they do not take. Each line is a compile error with the text behind it.
#include <tuple>

#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Vector = ts::ShardedTensor<float, 1>;
using Matrix = ts::ShardedTensor<float, 2>;
using Cube = ts::ShardedTensor<float, 3>;
using Image = ts::ShardedTensor<float, 4>;
using Doubles = ts::ShardedTensor<double, 2>;
using Bools = ts::ShardedTensor<bool, 2>;
using Index = ts::ShardedTensor<int, 1>;
using Indices = ts::ShardedTensor<int, 2>;

#ifndef TESSERA_TWIN
void elementwise(const Matrix& x, const Indices& j, const Bools& mask) {
  // error: lerp takes float, double, bf16 and f16 tensors
  ts::lerp(j, j, j);
  // error: gcd and lcm take integer tensors
  ts::gcd(x, x);
  // error: bitwise operations take integer and bool tensors
  ts::bitwise_and(x, x);
  // error: nextafter takes float and double tensors
  ts::nextafter(j, j);
  // error: this operation takes numbers
  ts::relu(mask);
  // error: the condition of select must be a bool tensor
  ts::select(x, x, x);
  // error: this operation takes numbers
  -mask;
}
void reductions(const Vector& v, const Matrix& x, const Bools& mask, const Indices& j) {
  // error: the dim is out of range for the rank of the tensor
  ts::sum<12>(x);
  // error: a dim is given twice to a reduction
  ts::sum<0, 0>(x);
  // error: the dim is out of range for the rank of the tensor
  ts::var<13>(x);
  // error: the dim is out of range for the rank of the tensor
  ts::softmax<3>(x);
  // error: softmax takes float, double, bf16 and f16 tensors
  ts::softmax<0>(j);
  // error: the dim is out of range for the rank of the tensor
  ts::cumsum<-3>(x);
  // error: the dim is out of range for the rank of the tensor
  ts::sort<4>(x);
  // error: the dim is out of range for the rank of the tensor
  ts::topk<5>(x, 1);
  // error: cdist takes rows, tensors of rank 2 or more
  ts::cdist(x, v);
  // error: cov takes a matrix, a row for each variable
  ts::cov(v);
  // error: searchsorted searches in a vector
  ts::searchsorted(x, x);
  // error: the dim is out of range for the rank of the tensor
  ts::median<6>(x);
}
void moves(const Vector& v, const Matrix& x, const Doubles& d, const Cube& c) {
  // error: transpose needs each dim of the tensor once, as in ts::transpose<1, 0>(x)
  ts::transpose<0, 0>(x);
  // error: a rearrange pattern is written "b t (h d) -> b h t d"
  ts::rearrange<"a b -> a c">(x);
  // error: the operand of rearrange has a different rank than the left side of the pattern
  ts::rearrange<"a b c -> c b a">(x);
  // error: merge_dims takes the first and the last dim to merge, in this order
  ts::merge_dims<1, 0>(x);
  // error: the dim is out of range for the rank of the tensor
  ts::squeeze<7>(x);
  // error: the dim is out of range for the rank of the tensor
  ts::slice<8>(x, 0, 1);
  // error: the dim is out of range for the rank of the tensor
  ts::pad<9>(x, 0, 1);
  // error: the operands of concat must have equal ranks
  ts::concat<0>(x, v);
  // error: the operands of concat must have the same element type
  ts::concat<0>(x, d);
  // error: the dim is out of range for the rank of the tensor
  ts::stack<14>(x, x);
  // error: a tensor can't be broadcast to a tensor of lower rank
  ts::broadcast_like(c, x);
  // error: a tensor can't be broadcast to fewer dims
  ts::broadcast_to(x, {3});
  // error: the dim is out of range for the rank of the tensor
  ts::roll<10>(x, 1);
  // error: rot90 takes tensors of rank 2 or more
  ts::rot90(v);
  // error: tril and triu take tensors of rank 2 or more
  ts::tril(v);
  // error: diagonal takes tensors of rank 2 or more
  ts::diagonal(v);
  // error: meshgrid takes vectors
  ts::meshgrid(x, v);
  // error: block_diag takes matrices
  ts::block_diag(x, v);
  // error: the update of a slice has the rank of what it updates
  ts::slice_scatter<0>(x, v, 0);
  // error: what replaces elements has their element type
  ts::slice_scatter<0>(x, d, 0);
  // error: the update of a slice has the rank of what it updates
  ts::select_scatter<0>(x, x, 0);
  // error: the update of a slice has the rank of what it updates
  ts::dynamic_update_slice<0>(x, v, 0);
}
void lookups(const Vector& v, const Matrix& x, const Index& i, const Indices& j, const Bools& mask,
             const ts::ShardedTensor<double, 1>& d, const ts::ShardedTensor<ts::bf16, 1>& u) {
  // error: the indices of embedding and index_select must be std::int32_t or std::int64_t
  ts::embedding(x, v);
  // error: the indices of embedding and index_select must be std::int32_t or std::int64_t
  ts::index_select<0>(x, d);
  // error: the indices of gather must have the rank of the first operand
  ts::gather<0>(x, i);
  // error: the indices of gather must be std::int32_t or std::int64_t
  ts::gather<0>(x, x);
  // error: the operands of a scatter must have equal ranks
  ts::scatter<0>(x, i, x);
  // error: this reduction does not take elements of this type, such as sums of bools
  ts::scatter_add<0>(mask, j, mask);
  // error: the source of rows has the rank of what it goes to
  ts::index_copy<0>(x, i, v);
  // error: one_hot takes an integer tensor
  ts::one_hot(x, 4);
}
void products(const Vector& v, const Matrix& x, const Cube& c, const Doubles& d, const Indices& j) {
  // error: the operands of matmul must have the same element type
  ts::matmul(x, d);
  // error: mv takes a matrix and a vector
  ts::mv(v, x);
  // error: dot takes two vectors
  ts::dot(x, v);
  // error: outer takes two vectors
  ts::outer(x, v);
  // error: the operands of einsum must have the same element type
  ts::inner(x, d);
  // error: addmm takes matrices
  ts::addmm(x, c, x);
  // error: an einsum equation is written "ik,kj->ij"
  ts::einsum<"ij,jk->il">(x, x);
  // error: the first operand of einsum has a different rank than in the equation
  ts::einsum<"ijk,jk->i">(x, x);
  // error: tensordot sums over as many dims as both operands have, or fewer
  ts::tensordot<3>(x, x);
  // error: kron takes two vectors or two matrices
  ts::kron(c, x);
  // error: cross takes two tensors of one rank
  ts::cross<0>(x, v);
  // error: gain and bias of a norm are vectors with the element type of the tensor, or float for bf16 and f16 tensors
  ts::layer_norm(x, x, v);
  // error: layer_norm and rms_norm take float, double, bf16 and f16 tensors with at least one dim
  ts::layer_norm(j, v, v);
  // error: mse takes two float, double, bf16 or f16 tensors of equal rank and element type
  ts::mse(x, d);
  // error: the logits of cross_entropy must be a float, double, bf16 or f16 tensor
  ts::cross_entropy(j, j);
  // error: the targets of cross_entropy must be an integer tensor of class indices, or probabilities
  ts::cross_entropy(x, v);
}
void images(const Vector& v, const Matrix& x, const Cube& c, const Image& image) {
  // error: conv takes an input [batch, spatial..., in-features] and weights
  ts::conv2d(c, image);
  // error: conv takes an input [batch, spatial..., in-features] and weights
  ts::conv2d(image, c);
  // error: a pool takes a float, double, bf16 or f16 tensor [batch, spatial..., features]
  ts::max_pool2d(c, {.window = {2, 2}});
  // error: a pool takes a float, double, bf16 or f16 tensor [batch, spatial..., features]
  ts::avg_pool1d(image, {.window = {2}});
  // error: the dim is out of range for the rank of the tensor
  ts::interpolate<4>(image, 2);
  // error: the operand of rearrange has a different rank than the left side of the pattern
  ts::pixel_shuffle(c, 2);
  // error: channel_shuffle takes a tensor [batch, height, width, features]
  ts::channel_shuffle(c, 2);
  // error: unfold and conv_general_dilated_patches take a tensor [batch, height, width, features]
  ts::unfold(c, {.window = {2, 2}});
  // error: attention takes queries, keys and values of rank 4: [batch, time, heads, width]
  ts::attention(c, c, c);
  // error: rotary_embedding takes queries or keys of rank 4: [batch, time, heads, width]
  ts::rotary_embedding(c);
}
void draws(const Matrix& x, const Indices& j) {
  // error: dropout takes float, double, bf16 and f16 tensors
  ts::dropout(j, 0.5, 1);
  // error: random tensors are float, double, bf16 or f16
  ts::uniform_like(j, 1);
  // error: the dim is out of range for the rank of the tensor
  ts::categorical<11>(x, 1);
  // error: randint_like draws integers
  ts::randint_like<float>(x, 0, 4, 1);
}
#endif
