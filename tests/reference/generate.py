#!/usr/bin/python3
"""generate.py: writes what PyTorch computes to tests/reference/data, with which tests/unit/nn/reference_*_test.cpp compare.

Needs the Debian package python3-torch (1.13.1). Arguments and layouts are Tessera's (features last, weights [in, out]) and
are permuted for PyTorch here, so that the gradients come out in our layout. Everything is computed in double. A file has for
each case its arguments, its results, and the gradient of

    sum over all floating-point results r of sum(r * c),   c[i, j, k, l, m] = ((7 i + 5 j + 3 k + 2 l + m) mod 11 - 5) / 8

by each floating-point argument.
"""

import math
import pathlib

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
folder = pathlib.Path(__file__).parent / "data"
lines = []
inf, nan = math.inf, math.nan


def text(x):
    x = x.detach()
    names = {torch.float64: "f64", torch.int32: "i32", torch.int64: "i32", torch.bool: "bool"}
    shape = ",".join(str(n) for n in x.shape)
    values = " ".join(repr(v).removesuffix(".0") if isinstance(v, float) else str(int(v)) for v in x.flatten().tolist())
    return f"{names[x.dtype]} [{shape}] {values}"


def cotangent(x):
    c = torch.zeros(x.shape)
    for d, factor in zip(range(x.dim()), (7, 5, 3, 2, 1)):
        c = c + torch.arange(x.shape[d], dtype=torch.float64).reshape([-1 if e == d else 1 for e in range(x.dim())]) * factor
    return (torch.remainder(c, 11) - 5) / 8


def case(name, f, *inputs, grad=True):
    lines.append(f"case {name}")
    leaves = [x.clone().detach() for x in inputs]
    if grad:
        for x in leaves:
            if x.is_floating_point():
                x.requires_grad_()
    results = f(*leaves)
    if isinstance(results, torch.Tensor):
        results = (results,)
    for x in leaves:
        lines.append("in " + text(x))
    for y in results:
        lines.append("out " + text(y))
    if not grad:
        return
    loss = sum((y * cotangent(y)).sum() for y in results if y.is_floating_point())
    floats = [x for x in leaves if x.is_floating_point()]
    for x, g in zip(floats, torch.autograd.grad(loss, floats, allow_unused=True)):
        lines.append("grad " + text(torch.zeros_like(x) if g is None else g))


def write(family):
    path = folder / (family + ".txt")
    path.write_text("\n".join(lines) + "\n")
    print(path.name, path.stat().st_size, "bytes")
    lines.clear()


def values(*shape, low=-2, high=2):
    """Multiples of 1/64, which are exact in f32."""
    return torch.randint(int(low * 64), int(high * 64) + 1, shape).double() / 64


def distinct(*shape):
    """A permutation of multiples of 1/8 around 0."""
    n = math.prod(shape)
    return (torch.randperm(n).double() - n // 2).reshape(shape) / 8


def v(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def i(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def first(x):
    """Features last to features second, and back."""
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


def activations():
    torch.manual_seed(1)
    smooth = v(-30, -6.5, -3.25, -3, -2, -1.5, -1, -0.75, -0.5, -0.25, -0.0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4.25, 6, 6.5, 30)
    edges = v(-inf, inf, nan, -1e300, 1e300, -1e-300, 1e-300)
    functions = {
        "relu": F.relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "leaky_relu": F.leaky_relu,
        "leaky_relu_slope": lambda x: F.leaky_relu(x, 0.25), "elu": F.elu, "elu_alpha": lambda x: F.elu(x, 0.5),
        "celu": lambda x: F.celu(x, 0.5), "selu": F.selu, "softplus": F.softplus, "softplus_beta": lambda x: F.softplus(x, 2),
        "mish": F.mish, "logsigmoid": F.logsigmoid, "softsign": F.softsign, "hardtanh": lambda x: F.hardtanh(x, -0.75, 1.25),
        "threshold": lambda x: F.threshold(x, 0.25, -3), "softshrink": F.softshrink, "hardshrink": F.hardshrink,
        "tanhshrink": F.tanhshrink, "relu6": F.relu6, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish,
        "sigmoid": torch.sigmoid, "tanh": torch.tanh, "sin": torch.sin, "cos": torch.cos, "atan": torch.atan,
        "asinh": torch.asinh, "exp": torch.exp, "expm1": torch.expm1, "erf": torch.erf, "erfc": torch.erfc, "abs": torch.abs,
        "square": torch.square, "sinc": torch.sinc, "exp2": torch.exp2,
    }
    # Where PyTorch 1.13 is not followed: elu and its like are exp(x) - 1, which is 0 near 0; softshrink of NaN is 0, and
    # NaN in later versions; the slope of hardswish at -3 is -0.5 and at 3 1.5, in later versions 0 and 1; the slope of
    # hardsigmoid is the float nearest to 1 / 6, here that of its formula.
    functions["hardsigmoid"] = lambda x: F.relu6(x + 3) / 6
    for name, f in functions.items():
        case(name, f, smooth[smooth.abs() != 3] if name == "hardswish" else smooth)
        less = {"elu": edges.abs() != 1e-300, "elu_alpha": edges.abs() != 1e-300, "celu": edges.abs() != 1e-300,
                "selu": edges.abs() != 1e-300, "softshrink": ~edges.isnan()}
        case(name + "_edges", f, edges[less[name]] if name in less else edges, grad=False)
    for name in "floor ceil trunc round sign".split():
        case(name, getattr(torch, name), torch.cat([smooth, v(2.5, 3.5, -2.5, inf, -inf)]))
    positive = v(0.03125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 10, 100)
    for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split():
        case(name, getattr(torch, name), positive)
        case(name + "_edges", getattr(torch, name), v(0.0, inf, nan, -1.5), grad=False)
    case("polygamma1", lambda x: torch.polygamma(1, x), positive)
    case("polygamma3", lambda x: torch.polygamma(3, x), positive)
    for name in "i0 i1 i0e i1e".split():
        case(name, getattr(torch.special, name), v(-20, -8, -2, -0.5, 0.25, 1, 3, 8.5, 30))
    unit = v(-0.96875, -0.5, -0.125, 0, 0.25, 0.75, 0.984375)
    for name in "erfinv asin acos atanh".split():
        case(name, getattr(torch, name), unit)
        case(name + "_edges", getattr(torch, name), v(-1, 1, 1.5, nan), grad=False)
    case("acosh", torch.acosh, v(1.125, 1.5, 3, 100))
    case("logit", torch.logit, v(0.03125, 0.25, 0.5, 0.984375))
    case("nan_to_num", lambda x: torch.nan_to_num(x, 0.5, 8, -9), v(nan, inf, -inf, 2, -3))
    case("clamp", lambda x: torch.clamp(x, -0.5, 1.5), smooth)
    case("softmax", lambda x: F.softmax(x, 0), values(3, 5, low=-8, high=8))
    case("log_softmax", lambda x: F.log_softmax(x, -1), values(3, 5, low=-200, high=200))
    write("activations")


def binary():
    torch.manual_seed(2)
    a = v(7.5, -7.5, 7.5, -7.5, 6, -6, 6, -6, 0.0, -0.0, 1, 5, 0.25, -0.25)
    b = v(2, 2, -2, -2, 3, 3, -3, -3, 3, -3, inf, -inf, 4, 4)
    for name in "remainder fmod floor_divide".split():
        case(name, getattr(torch, name), a, b, grad=name != "floor_divide")
        case(name + "_edges", getattr(torch, name), v(1, -1, 0, inf, nan, 3, -5), v(0, 0, 0, 2, 2, nan, inf), grad=False)
        case(name + "_i32", getattr(torch, name), i(7, -7, 7, -7, 6, -6, 0, 5), i(2, 2, -2, -2, 3, -3, -3, 7), grad=False)
    x = v(0, 0, 0, 2, 2, -2, -2, 1, 0.5, 4)
    y = v(0, 1, 2, 0, 3, 3, 2, 5, -1.5, 0.5)
    case("pow", torch.pow, x, y)
    case("pow_edges", torch.pow, v(0, 0, -2, inf, -inf, nan, 1, nan, -8, -0.0), v(-1, -2, 0.5, -1, 3, 0, nan, 1, 1 / 3, -3), grad=False)
    for n in (0, 1, 2, 3, -1):
        case(f"pow_{n}".replace("-", "minus_"), lambda x, n=n: torch.pow(x, n), v(-2, -0.5, 1, 3) if n < 0 else v(-2, 0, 1, 3))
    case("pow_i32", torch.pow, i(-3, 2, 0, 5, -1), i(3, 10, 0, 1, 7), grad=False)
    xs, ys = v(-3, -1, 0.0, 0.5, 2, 2, 3), v(-1, 2, 4, 0.5, -3, 2, 0.25)
    for name in "atan2 hypot logaddexp copysign".split():
        case(name, getattr(torch, name), xs, ys)
        case(name + "_edges", getattr(torch, name), v(inf, -inf, -inf, 0.0, -0.0, 1e200, nan), v(inf, inf, -inf, -0.0, -1, 1e200, 1),
             grad=False)
    case("xlogy", torch.xlogy, v(0, 0, 2, -1.5), v(2, 0.5, 3, 0.25))
    case("xlogy_edges", torch.xlogy, v(0, 0, 0, 1, 0), v(0, inf, nan, 0, -1), grad=False)
    # heaviside of NaN is 0 in PyTorch, NaN in JAX and here.
    case("heaviside", torch.heaviside, v(-1, 0, 2), v(0.5, 0.25, 0.5), grad=False)
    for name in "maximum minimum".split():
        case(name, getattr(torch, name), v(1, 2, 2, -1, 0), v(2, 1, 2, -1, -3))
        case(name + "_edges", getattr(torch, name), v(nan, 1, nan, inf), v(1, nan, nan, -inf), grad=False)
    case("lerp", torch.lerp, values(5), values(5), values(5))
    case("div", torch.div, values(6), v(2, -4, 0.5, 1, 8, -1))
    case("div_edges", torch.div, v(1, -1, 0, inf), v(0, 0, 0, inf), grad=False)
    case("isclose", lambda a, b: torch.isclose(a, b, 1e-3, 1e-4), v(1, 1, 0, inf, inf, nan), v(1.0009, 1.002, 0.00005, inf, -inf, nan),
         grad=False)
    write("binary")


def reductions():
    torch.manual_seed(3)
    x = distinct(4, 5)
    ties = v(1, 3, 3, -2, 3, 1, 1, 1, 1, 1).reshape(2, 5)
    hole = v(1, nan, 3, -2, 0.5, 4, 2, 8, -1, 3, nan, nan, nan, nan, nan).reshape(3, 5)
    for name in "var std".split():
        f = getattr(torch, name)
        for correction in (0, 1, 2):
            case(f"{name}_{correction}", lambda x: f(x, dim=1, correction=correction), x)
        case(f"{name}_one_element", lambda x: f(x, dim=1, correction=1), values(3, 1), grad=False)
        case(f"{name}_0_one_element", lambda x: f(x, dim=1, correction=0), values(3, 1), grad=name == "var")
    case("max", lambda x: torch.amax(x, 1), ties)
    case("min", lambda x: torch.amin(x, 1), ties)
    case("max_nan", lambda x: torch.amax(x, 1), hole, grad=False)
    case("min_nan", lambda x: torch.amin(x, 1), hole, grad=False)
    case("argmax", lambda x: torch.argmax(x, 1), ties, grad=False)
    case("argmin", lambda x: torch.argmin(x, 1), ties, grad=False)
    case("argmax_nan", lambda x: torch.argmax(x, 1), hole, grad=False)
    case("argmin_nan", lambda x: torch.argmin(x, 1), hole, grad=False)
    zeros = v(2, 0, 3, 0.5, 0, 3, 0, 2, 1, 2, 3, 4).reshape(3, 4)
    case("prod", lambda x: torch.prod(x, 1), zeros)
    case("cumprod", lambda x: torch.cumprod(x, 1), zeros)
    case("cumsum", lambda x: torch.cumsum(x, 0), x)
    case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), x)
    case("logcumsumexp_edges", lambda x: torch.logcumsumexp(x, 1), v(-inf, -inf, 1, inf, 0, nan, 1, 2).reshape(2, 4), grad=False)
    case("cummax", lambda x: torch.cummax(x, 1)[0], ties)
    case("cummin", lambda x: torch.cummin(x, 1)[0], ties)
    case("cummax_nan", lambda x: torch.cummax(x, 1)[0], hole, grad=False)
    case("logsumexp", lambda x: torch.logsumexp(x, 1), values(3, 4, low=-300, high=300))
    case("logsumexp_edges", lambda x: torch.logsumexp(x, 1), v(-inf, -inf, -inf, 1, inf, 0, nan, 1).reshape(4, 2), grad=False)
    case("sum_empty", lambda x: torch.sum(x, 1), torch.zeros(2, 0))
    case("prod_empty", lambda x: torch.prod(x, 1), torch.zeros(2, 0))
    case("mean_empty", lambda x: torch.mean(x, 1), torch.zeros(2, 0), grad=False)
    case("logsumexp_empty", lambda x: torch.logsumexp(x, 1), torch.zeros(2, 0), grad=False)
    case("any_empty", lambda x: torch.any(x != 0, 1), torch.zeros(2, 0), grad=False)
    case("all_empty", lambda x: torch.all(x != 0, 1), torch.zeros(2, 0), grad=False)
    case("nansum", lambda x: torch.nansum(x, 1), hole)
    case("nanmean", lambda x: torch.nanmean(x, 1), hole, grad=False)
    case("count_nonzero", lambda x: torch.count_nonzero(x, 1), zeros, grad=False)
    with_zeros = v(3, -4, 0.5, 0, 0, 0).reshape(2, 3)
    case("norm", lambda x: torch.linalg.vector_norm(x, 2, 1), with_zeros)
    case("norm_1", lambda x: torch.linalg.vector_norm(x, 1, 1), with_zeros)
    case("norm_3", lambda x: torch.linalg.vector_norm(x, 3, 1), with_zeros[:1])
    case("norm_0", lambda x: torch.linalg.vector_norm(x, 0, 1), with_zeros, grad=False)
    case("norm_inf", lambda x: torch.linalg.vector_norm(x, inf, 1), v(3, -4, 0.5, 1, 0, -2).reshape(2, 3))
    case("median", lambda x: torch.median(x, 1)[0], distinct(3, 6))
    case("median_nan", lambda x: torch.median(x, 1)[0], hole, grad=False)
    case("nanmedian_nan", lambda x: torch.nanmedian(x, 1)[0], hole, grad=False)
    for how in "linear lower higher midpoint nearest".split():
        for q in (0, 0.3, 0.5, 0.875, 1):
            case(f"quantile_{how}_{q}", lambda x: torch.quantile(x, q, 1, interpolation=how), distinct(3, 6))
    case("quantile_nan", lambda x: torch.quantile(x, 0.5, 1), hole, grad=False)
    case("nanquantile_nan", lambda x: torch.nanquantile(x, 0.375, 1), hole, grad=False)
    case("sort", lambda x: torch.sort(x, dim=1, stable=True), ties)
    case("sort_descending", lambda x: torch.sort(x, dim=1, descending=True, stable=True), ties)
    case("sort_nan", lambda x: torch.sort(x, dim=1, stable=True), hole, grad=False)
    case("topk", lambda x: torch.topk(x, 2, 1), distinct(3, 6))
    case("kthvalue", lambda x: torch.kthvalue(x, 3, 1), distinct(3, 6))
    edges = v(-1, 0, 0, 2, 2, 2, 5)
    queries = v(-2, -1, -0.5, 0, 1, 2, 5, 6, inf, -inf, nan)
    case("searchsorted", lambda s, x: torch.searchsorted(s, x), edges, queries, grad=False)
    case("searchsorted_right", lambda s, x: torch.searchsorted(s, x, right=True), edges, queries, grad=False)
    case("histogram", lambda x: torch.histc(x, 4, -1, 1).int(), v(-1, -0.75, -0.5, 0, 0.25, 0.5, 0.99, 1, 1.5, -1.5), grad=False)
    case("bincount", lambda x: torch.bincount(x, minlength=7), i(0, 3, 3, 1, 6, 3), grad=False)
    case("bincount_weights", lambda x, w: torch.bincount(x, w, 7), i(0, 3, 3, 1, 6, 3), values(6), grad=False)
    # No two differences are equal: with p = inf each largest difference gets the whole gradient in PyTorch, and a share here.
    apart = torch.arange(12).square() / 4096
    for p in (1, 2, 3, inf):
        case(f"cdist_{p}", lambda a, b: torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist"),
             distinct(3, 4) + apart.reshape(3, 4), distinct(2, 4) + 0.0625)
        case(f"pdist_{p}", lambda a: F.pdist(a, p), distinct(4, 3) + apart.reshape(4, 3))
    case("cov", lambda x: torch.cov(x), values(3, 6))
    case("cov_0", lambda x: torch.cov(x, correction=0), values(3, 6))
    case("corrcoef", lambda x: torch.corrcoef(x), values(3, 6))
    case("diff", lambda x: torch.diff(x, 2, 1), values(3, 5))
    case("trapezoid", lambda y, x: torch.trapezoid(y, x, dim=-1), values(3, 4), v(0, 0.5, 2, 2.25))
    case("cumulative_trapezoid", lambda y, x: torch.cumulative_trapezoid(y, x, dim=-1), values(3, 4), v(0, 0.5, 2, 2.25))
    case("cosine_similarity", lambda a, b: F.cosine_similarity(a, b, -1), values(3, 4), values(3, 4))
    case("normalize", lambda a: F.normalize(a, dim=-1), values(3, 4))
    write("reductions")


def movement():
    torch.manual_seed(4)
    image = distinct(2, 4, 5, 3)
    sizes = {"up": (7, 9), "down": (3, 2), "same": (4, 5), "one": (1, 1)}
    modes = {"nearest": {}, "nearest_exact": {}, "bilinear": {"align_corners": False}, "bilinear_corners": {"align_corners": True},
             "bicubic": {"align_corners": False}, "bicubic_corners": {"align_corners": True}}
    for mode, more in modes.items():
        for name, size in sizes.items():
            kind = mode.replace("_corners", "").replace("_", "-")
            case(f"interpolate_{mode}_{name}", lambda x: last(F.interpolate(first(x), size, mode=kind, **more)), image[:1, :, :, :2])
    grid = torch.cat([values(2, 2, 4, 2, low=-1.25, high=1.25), torch.tensor([[[[-1.0, -1], [1, 1], [-3, 0.5], [0.9, 4]]]] * 2)], 1)
    for mode in "bilinear nearest".split():
        for padding in "zeros border".split():
            for corners in (False, True):
                case(f"grid_sample_{mode}_{padding}_{int(corners)}",
                     lambda x, g: last(F.grid_sample(first(x), g, mode, padding, corners)), image[:, :, :, :2], grid + 1 / 128)
    row = values(2, 5, 3)
    for mode in "reflect replicate circular".split():
        case(f"pad_{mode}", lambda x: last(F.pad(first(x), (3, 2), mode=mode)), row)
    case("pad_constant", lambda x: last(F.pad(first(x), (2, 1), value=1.5)), row)
    case("unfold", lambda x: F.unfold(first(x), (2, 3), (1, 1), (1, 0), (2, 1)).transpose(1, 2), image)
    case("unfold_dilated", lambda x: F.unfold(first(x), (2, 2), (2, 3)).transpose(1, 2), image)
    case("fold", lambda x: last(F.fold(x.transpose(1, 2), (4, 5), (2, 3), padding=(1, 0), stride=(2, 1))), values(2, 9, 12))
    case("pixel_shuffle", lambda x: last(F.pixel_shuffle(first(x), 2)), values(2, 2, 3, 8))
    case("pixel_unshuffle", lambda x: last(F.pixel_unshuffle(first(x), 2)), values(2, 4, 6, 2))
    # channel_shuffle of 1.13 has no gradient: the reshapes of its definition.
    case("channel_shuffle", lambda x: last(first(x).reshape(2, 3, 2, 2, 3).transpose(1, 2).reshape(2, 6, 2, 3)), values(2, 2, 3, 6))
    x = values(4, 5)
    case("roll", lambda x: torch.roll(x, -2, 1), x)
    case("flip", lambda x: torch.flip(x, (0,)), x)
    case("rot90", lambda x: torch.rot90(x, 3), x)
    case("tril", lambda x: torch.tril(x, 1), x)
    case("triu", lambda x: torch.triu(x, -1), x)
    case("tile", lambda x: x.repeat(1, 3), x)
    case("repeat_interleave", lambda x: torch.repeat_interleave(x, 3, 1), x)
    case("diagonal", lambda x: torch.diagonal(x, dim1=-2, dim2=-1), values(2, 4, 3))
    case("block_diag", torch.block_diag, values(2, 3), values(1, 2))
    case("gather", lambda x, i: torch.gather(x, 1, i.long()), x, torch.randint(0, 5, (4, 3)).int())
    index = torch.stack([torch.randperm(5)[:3] for _ in range(4)]).int()
    case("scatter", lambda x, i, s: torch.scatter(x, 1, i.long(), s), x, index, values(4, 3))
    repeated = i(0, 2, 0, 4, 4, 4, 1, 1, 3, 2, 0, 2).reshape(4, 3)
    case("scatter_add", lambda x, i, s: torch.scatter_add(x, 1, i.long(), s), x, repeated, values(4, 3))
    for how in "sum prod amax amin".split():
        for own in (True, False):
            case(f"scatter_reduce_{how}_{int(own)}",
                 lambda x, i, s: torch.scatter_reduce(x, 1, i.long(), s, how, include_self=own), distinct(4, 5), repeated,
                 distinct(4, 3) + 0.0625)
    zero_source = v(0, 2, 3, 0, 0, 4, 1, 1, 3, 2, 0, 2).reshape(4, 3)
    case("scatter_reduce_prod_zeros", lambda x, i, s: torch.scatter_reduce(x, 1, i.long(), s, "prod"), distinct(4, 5), repeated, zero_source)
    case("scatter_reduce_amax_ties", lambda x, i, s: torch.scatter_reduce(x, 1, i.long(), s, "amax"), torch.zeros(4, 5), repeated, zero_source)
    case("index_add", lambda x, i, s: torch.index_add(x, 0, i, s), x, i(1, 3, 1), values(3, 5))
    case("index_copy", lambda x, i, s: torch.index_copy(x, 0, i.long(), s), x, i(1, 3, 0), values(3, 5))
    case("index_select", lambda x, i: torch.index_select(x, 1, i), x, i(4, 0, 4))
    case("embedding", lambda t, i: F.embedding(i.long(), t), values(5, 3), i(4, 0, 4, 2).reshape(2, 2))
    bags, offsets = i(1, 4, 2, 1, 1, 0, 3), i(0, 2, 2, 5)
    for mode in "sum mean max".split():
        case(f"embedding_bag_{mode}", lambda t, i, o: F.embedding_bag(i.long(), t, o.long(), mode=mode), distinct(5, 3), bags, offsets)
    case("embedding_bag_weights", lambda t, i, o, w: F.embedding_bag(i.long(), t, o.long(), mode="sum", per_sample_weights=w),
         distinct(5, 3), bags, offsets, values(7))
    case("one_hot", lambda i: F.one_hot(i.long(), 5).double(), i(4, 0, 2), grad=False)
    case("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), values(2, 4), torch.tensor([[True, False, True, True], [False, True, False, False]]), values(6))
    tokens = i(4, 0, 4, 2, 0, 1).reshape(3, 2)
    for padding in (0, 4, -1, -4):
        case(f"embedding_padding_{padding}", lambda t, i: F.embedding(i.long(), t, padding_idx=padding), values(5, 3), tokens)

    def renormalized(p, most):
        """The table after a lookup, which changes it, and the rows."""
        def of(t, i):
            t = t.clone()
            with torch.no_grad():
                F.embedding(i.long(), t, max_norm=most, norm_type=p)
            return t, F.embedding(i.long(), t)
        return of

    for p, most in ((2.0, 1.5), (1.0, 2.0)):
        case(f"embedding_renormalized_{p:.0f}", renormalized(p, most), values(5, 3), tokens, grad=False)
    write("movement")


def products():
    torch.manual_seed(9)
    a, b, x = values(3, 4), values(4, 3), values(4)
    case("mv", torch.mv, a, x)
    case("addmv", lambda y, a, x: torch.addmv(y, a, x, beta=0.5, alpha=-2), values(3), a, x)
    case("addr", lambda m, u, w: torch.addr(m, u, w, beta=-1, alpha=0.25), a, values(3), x)
    case("addbmm", lambda m, u, w: torch.addbmm(m, u, w, beta=0.5, alpha=2), values(3, 5), values(2, 3, 4), values(2, 4, 5))
    case("inner", torch.inner, values(2, 3, 4), values(5, 4))
    case("inner_vector", torch.inner, a, x)
    case("vecdot", lambda u, w: torch.linalg.vecdot(u, w, dim=0), a, values(3, 4))
    case("multi_dot", lambda u, v, w: torch.linalg.multi_dot([u, v, w]), a, b, a)
    case("multi_dot_vectors", lambda u, v, w: torch.linalg.multi_dot([u, v, w]), values(3), a, x)
    case("bilinear", F.bilinear, values(2, 3, 4), values(2, 3, 5), values(6, 4, 5), values(6))
    case("cartesian_prod", torch.cartesian_prod, values(3), values(2))
    case("cartesian_prod_three", torch.cartesian_prod, values(3), values(2), values(4))
    case("combinations", torch.combinations, values(5))
    case("combinations_three", lambda x: torch.combinations(x, 3), values(5))
    case("combinations_repeated", lambda x: torch.combinations(x, 2, True), values(4))
    case("combinations_none", lambda x: torch.combinations(x, 3), values(2), grad=False)
    rows = values(4, 3, low=-3, high=3)
    case("renorm", lambda x: torch.renorm(x, 2, 0, 2.5), rows)
    case("renorm_columns", lambda x: torch.renorm(x, 1, 1, 4.0), rows)
    case("renorm_planes", lambda x: torch.renorm(x, 3, 1, 2.0), values(2, 3, 4))
    repeated = v(3, 1, 3, 2, 2, 1, 5, 5, 5, -1, -1, 0, 4, 4, 7).reshape(3, 5)
    case("mode", lambda x: (torch.mode(x, 1).values, torch.mode(x, 1).indices.int()), repeated)
    case("mode_0", lambda x: (torch.mode(x, 0).values, torch.mode(x, 0).indices.int()), repeated)
    case("isin", lambda x, s: torch.isin(x, s), i(3, 1, 4, 1, 5, 9).reshape(2, 3), i(1, 9, 7), grad=False)
    case("isin_rows", lambda x, s: torch.isin(x, s), values(6), values(2, 3), grad=False)
    case("tensor_split", lambda x: torch.tensor_split(x, 3, 0), values(7, 2))
    case("tensor_split_few", lambda x: torch.tensor_split(x, 4, 1), values(2, 2))
    numbers = v(0.75, -5.5, 1, 0.5, 1e-3, 1024, -0.3, 7)
    case("ldexp", lambda x, n: torch.ldexp(x, n), numbers, i(0, 3, -4, 10, 2, -10, 1, -1))
    case("frexp", lambda x: torch.frexp(x)[0], numbers)
    case("frexp_exponents", lambda x: torch.frexp(x)[1], numbers, grad=False)
    case("gcd", torch.gcd, i(12, -18, 0, 7, 0, 35), i(18, 12, 5, 1, 0, -14), grad=False)
    case("lcm", torch.lcm, i(12, -18, 0, 7, 0, 35), i(18, 12, 5, 1, 0, -14), grad=False)
    # PyTorch has no derivative by the first operand.
    second = lambda f: lambda a, x: f(a.detach(), x)
    case("igamma", second(torch.igamma), v(0.5, 1, 2, 3.5, 10), v(0.25, 2, 2, 1, 12))
    case("igammac", second(torch.igammac), v(0.5, 1, 2, 3.5, 10), v(0.25, 2, 2, 1, 12))
    case("zeta", second(torch.special.zeta), v(2, 3, 2.5, 4, 1.5), v(1, 0.5, 3, 7.25, 2))
    write("products")


def windows():
    torch.manual_seed(10)
    image = values(2, 5, 6, 7, low=-3, high=3)
    case("local_response_norm", lambda x: last(F.local_response_norm(first(x), 5)), image)
    case("local_response_norm_even", lambda x: last(F.local_response_norm(first(x), 4, 0.5, 0.5, 2.0)), image)
    case("lp_pool2d", lambda x: last(F.lp_pool2d(first(x), 2, (2, 3))), image)
    case("lp_pool2d_strides", lambda x: last(F.lp_pool2d(first(x), 4, 3, 2)), image)
    case("lp_pool1d", lambda x: last(F.lp_pool1d(first(x), 3.0, 3, 1)), values(2, 7, 3, low=0.5, high=2))
    theta = values(2, 2, 3)
    for corners in (False, True):
        case(f"affine_grid_{int(corners)}", lambda t: F.affine_grid(t, (2, 1, 4, 5), corners), theta)
    case("affine_grid_one", lambda t: F.affine_grid(t, (2, 1, 1, 3), True), theta)
    case("tensor_unfold", lambda x: x.unfold(1, 3, 2), values(3, 8, 2))
    case("tensor_unfold_apart", lambda x: x.unfold(0, 2, 3), values(9, 2))
    write("windows")


def layers():
    torch.manual_seed(5)
    t = lambda w: w.transpose(0, 1)
    case("linear", lambda w, b, x: F.linear(x, t(w), b), values(4, 3), values(3), values(2, 5, 4))

    def taps(w):  # [taps..., in, out] to [out, in, taps...]
        return w.movedim(-1, 0).movedim(-1, 1)

    def of_transposed(w):  # [taps..., in, out] to [in, out, taps...]
        return w.movedim(-2, 0).movedim(-1, 1)

    case("conv1d", lambda w, b, x: last(F.conv1d(first(x), taps(w), b, stride=2, padding=1, dilation=2)), values(3, 4, 2), values(2), values(2, 9, 4))
    case("conv1d_groups", lambda w, b, x: last(F.conv1d(first(x), taps(w), b, groups=2)), values(3, 2, 6), values(6), values(2, 7, 4))
    case("conv2d", lambda w, b, x: last(F.conv2d(first(x), taps(w), b, stride=(1, 2), padding=(1, 0), dilation=(1, 2))), values(3, 2, 3, 2), values(2), values(2, 5, 6, 3))
    case("conv2d_groups", lambda w, b, x: last(F.conv2d(first(x), taps(w), b, padding=1, groups=2)), values(3, 3, 2, 4), values(4), values(1, 4, 4, 4))
    case("conv3d", lambda w, x: last(F.conv3d(first(x), taps(w), stride=(1, 2, 1), padding=(1, 0, 1))), values(2, 3, 2, 2, 3), values(1, 3, 5, 4, 2))
    case("conv_transpose1d", lambda w, b, x: last(F.conv_transpose1d(first(x), of_transposed(w), b, stride=3, padding=1, output_padding=2, dilation=2)), values(3, 4, 2), values(2), values(2, 4, 4))
    case("conv_transpose2d", lambda w, b, x: last(F.conv_transpose2d(first(x), of_transposed(w), b, stride=2, padding=(0, 1), output_padding=1, groups=2)), values(3, 2, 4, 3), values(6), values(1, 3, 4, 4))

    x1, x2, x3 = distinct(2, 8, 3), distinct(2, 5, 6, 2), distinct(1, 4, 4, 5, 2)
    case("max_pool1d", lambda x: last(F.max_pool1d(first(x), 3, 2, 1, 2)), x1)
    case("max_pool2d", lambda x: last(F.max_pool2d(first(x), (3, 2), (2, 1), (1, 1))), x2)
    case("max_pool3d", lambda x: last(F.max_pool3d(first(x), 2)), x3)
    case("avg_pool1d", lambda x: last(F.avg_pool1d(first(x), 3, 2, 1)), x1)
    case("avg_pool2d", lambda x: last(F.avg_pool2d(first(x), (3, 2), (2, 1), (1, 1))), x2)
    case("avg_pool2d_exclude", lambda x: last(F.avg_pool2d(first(x), (3, 2), (2, 1), (1, 1), count_include_pad=False)), x2)
    case("avg_pool3d", lambda x: last(F.avg_pool3d(first(x), 2)), x3)
    case("adaptive_avg_pool1d", lambda x: last(F.adaptive_avg_pool1d(first(x), 3)), x1)
    case("adaptive_avg_pool2d", lambda x: last(F.adaptive_avg_pool2d(first(x), (2, 4))), x2)
    case("adaptive_avg_pool3d", lambda x: last(F.adaptive_avg_pool3d(first(x), (3, 2, 2))), x3)
    case("adaptive_max_pool1d", lambda x: last(F.adaptive_max_pool1d(first(x), 3)), x1)
    case("adaptive_max_pool2d", lambda x: last(F.adaptive_max_pool2d(first(x), (2, 4))), x2)
    case("adaptive_max_pool3d", lambda x: last(F.adaptive_max_pool3d(first(x), (3, 2, 2))), x3)

    gain, bias, rows = values(4), values(4), values(3, 5, 4)
    case("layer_norm", lambda x, g, b: F.layer_norm(x, (4,), g, b, 1e-5), rows, gain, bias)
    # F.rms_norm came with 2.4: its formula.
    case("rms_norm", lambda x, g: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * g, rows, gain)
    images = values(3, 2, 4, 4)
    case("group_norm", lambda x, g, b: last(F.group_norm(first(x), 2, g, b)), images, gain, bias)
    case("instance_norm", lambda x, g, b: last(F.instance_norm(first(x), weight=g, bias=b)), images, gain, bias)

    def train(x, g, b, m, s):
        m, s = m.detach().clone(), s.detach().clone()
        y = F.batch_norm(first(x), m, s, g, b, True, 0.25, 1e-3)
        return last(y), m, s

    case("batch_norm_train", train, images, gain, bias, values(4), values(4, low=0.5, high=2))
    case("batch_norm_eval", lambda x, g, b, m, s: last(F.batch_norm(first(x), m.detach(), s.detach(), g, b, False, 0.25, 1e-3)), images, gain, bias, values(4), values(4, low=0.5, high=2))

    def recurrent(kind, layers, directions, gates, state):
        """Runs torch's function on weights [in, gates, hidden]; the order of parameters is that of nn::Recurrent."""
        hidden, features = 3, 2
        shapes = []
        for layer in range(layers):
            for _ in range(directions):
                inputs = features if layer == 0 else hidden * directions
                shapes += [(inputs, gates, hidden), (gates, hidden), (hidden, gates, hidden), (gates, hidden)]

        def f(*arguments):
            flat = arguments[: len(shapes)]
            weights = []
            for k in range(0, len(shapes), 4):
                w, b, u, d = flat[k : k + 4]
                weights += [w.flatten(1).T.contiguous(), u.flatten(1).T.contiguous(), b.flatten(), d.flatten()]
            x, h = arguments[len(shapes)], list(arguments[len(shapes) + 1 :])
            both = directions == 2
            if kind is torch.lstm:
                return torch.lstm(x, h, weights, True, layers, 0.0, False, both, False)
            return kind(x, h[0], weights, True, layers, 0.0, False, both, False)

        return f, [values(*s, low=-1, high=1) for s in shapes] + [values(4, 2, features)] + [
            values(layers * directions, 2, hidden, low=-1, high=1) for _ in range(state)]

    for name, arguments in {"lstm": (torch.lstm, 2, 2, 4, 2), "gru": (torch.gru, 1, 2, 3, 1), "gru_layers": (torch.gru, 2, 1, 3, 1),
                            "rnn_tanh": (torch.rnn_tanh, 1, 1, 1, 1), "rnn_relu": (torch.rnn_relu, 1, 1, 1, 1)}.items():
        f, inputs = recurrent(*arguments)
        case(name, f, *inputs)
    # Behind all others, whose arguments are drawn before.
    case("conv3d_groups", lambda w, x: last(F.conv3d(first(x), taps(w), stride=(1, 2, 1), padding=(1, 0, 1), dilation=(1, 1, 2), groups=2)), values(2, 3, 2, 2, 6), values(2, 3, 5, 4, 4))
    case("conv3d_depthwise", lambda w, x: last(F.conv3d(first(x), taps(w), padding=1, groups=3)), values(3, 3, 3, 1, 3), values(1, 3, 4, 3, 3))
    case("conv_transpose3d_groups", lambda w, x: last(F.conv_transpose3d(first(x), of_transposed(w), stride=(1, 2, 2), padding=(1, 0, 1), output_padding=(0, 1, 1), groups=2)),
         values(2, 3, 2, 4, 3), values(2, 2, 3, 2, 4))

    def packed(kind, layers, directions, gates, lengths):
        """The same with packed sequences, of which PyTorch orders the steps; xs and lengths come last."""
        f, inputs = recurrent(kind, layers, directions, gates, 0)

        def g(*arguments):
            flat, x, n = arguments[:-2], arguments[-2], arguments[-1]
            weights = []
            for k in range(0, len(flat), 4):
                w, b, u, d = flat[k : k + 4]
                weights += [w.flatten(1).T.contiguous(), u.flatten(1).T.contiguous(), b.flatten(), d.flatten()]
            p = torch.nn.utils.rnn.pack_padded_sequence(x, n.long(), enforce_sorted=False)
            h = torch.zeros(layers * directions, len(n), 3)
            state = [h, h] if kind is torch.lstm else h
            y, *state = kind(p.data, p.batch_sizes, state, weights, True, layers, 0.0, False, directions == 2)
            y = torch.nn.utils.rnn.PackedSequence(y, p.batch_sizes, p.sorted_indices, p.unsorted_indices)
            y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=x.shape[0])[0]
            return (y, *(s.index_select(1, p.unsorted_indices) for s in state))

        return g, inputs[:-1] + [values(5, 3, 2), lengths]

    for name, arguments in {"lstm_lengths": (torch.lstm, 2, 2, 4, i(3, 5, 1)), "gru_lengths": (torch.gru, 2, 1, 3, i(5, 2, 4))}.items():
        f, inputs = packed(*arguments)
        case(name, f, *inputs)
    def tracked(x, g, b, mean, variance):
        m, s = mean.detach().clone(), variance.detach().clone()
        y = F.instance_norm(first(x), m, s, g, b, True, 0.25, 1e-3)
        return last(y), m, s

    statistics = values(4), values(4, low=0.5, high=2)
    case("instance_norm_train", tracked, images, gain, bias, *statistics)
    case("instance_norm_eval", lambda x, g, b, m, s: last(F.instance_norm(first(x), m, s, g, b, False, 0.25, 1e-3)),
         images, gain, bias, *statistics, grad=False)
    write("layers")


def attention_inputs(features=4, memory=True):
    """Weights and biases of query, key, value and out."""
    return [p for _ in range(4) for p in (values(features, features, low=-1, high=1), values(features, low=-1, high=1))]


def multi_head(x, memory, parameters, heads, key_padding=None, causal=False):
    wq, bq, wk, bk, wv, bv, wo, bo = parameters
    mask = torch.triu(torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool), 1) if causal else None
    y, _ = F.multi_head_attention_forward(
        x.transpose(0, 1), memory.transpose(0, 1), memory.transpose(0, 1), x.shape[-1], heads, torch.cat([wq, wk, wv], 1).T,
        torch.cat([bq, bk, bv]), None, None, False, 0.0, wo.T, bo, key_padding_mask=None if key_padding is None else ~key_padding,
        attn_mask=mask)
    return y.transpose(0, 1)


def attention():
    torch.manual_seed(6)

    def dot_product(q, k, v, mask=None):  # [batch, time, heads, width]
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        y, _ = torch._C._nn._scaled_dot_product_attention(q, k, v, mask) if hasattr(torch._C._nn, "_scaled_dot_product_attention") \
            else F._scaled_dot_product_attention(q, k, v, mask)
        return y.transpose(1, 2)

    def causal(q, k, v):
        n, m = q.shape[1], k.shape[1]
        return dot_product(q, k, v, torch.triu(torch.full((n, m), -inf), 1))

    q, k, v_ = values(2, 5, 4, 3), values(2, 5, 4, 3), values(2, 5, 4, 3)
    case("attention", lambda q, k, v: dot_product(q, k, v), q, values(2, 6, 4, 3), values(2, 6, 4, 3))
    case("causal_attention", causal, q, k, v_)
    case("grouped_attention", causal, q, values(2, 5, 2, 3), values(2, 5, 2, 3))

    def band(q, k, v):
        at = torch.arange(5)
        near = (at[None] >= at[:, None] - 2) & (at[None] <= at[:, None] + 1)
        return dot_product(q, k, v, torch.zeros(5, 5).masked_fill(~near, -inf))

    case("band_attention", band, q, k, v_)
    case("biased_attention", lambda q, k, v, b: dot_product(q, k, v, b[:, :, None, :]), q, k, v_, values(2, 4, 5))

    x, memory = values(2, 3, 4), values(2, 5, 4)
    mask = torch.tensor([[True, True, False, True, False], [True, False, True, True, True]])
    case("multi_head_self", lambda *a: multi_head(a[8], a[8], a[:8], 2), *attention_inputs(), x)
    case("multi_head_causal", lambda *a: multi_head(a[8], a[8], a[:8], 2, causal=True), *attention_inputs(), x)
    case("multi_head_cross", lambda *a: multi_head(a[8], a[9], a[:8], 2), *attention_inputs(), x, memory)
    case("multi_head_masked", lambda *a: multi_head(a[8], a[9], a[:8], 2, key_padding=a[10]), *attention_inputs(), x, memory, mask)

    def set_linear(layer, w, b):
        layer._parameters.clear()
        layer.weight, layer.bias = w.T, b

    def set_attention(layer, p):
        layer._parameters.clear()
        layer.in_proj_weight, layer.in_proj_bias = torch.cat([p[0], p[2], p[4]], 1).T, torch.cat([p[1], p[3], p[5]])
        layer.q_proj_weight = layer.k_proj_weight = layer.v_proj_weight = layer.bias_k = layer.bias_v = None
        set_linear(layer.out_proj, p[6], p[7])

    def set_norm(layer, g, b):
        layer._parameters.clear()
        layer.weight, layer.bias = g, b

    def norm():
        return [values(4), values(4)]

    def mlp():
        return [values(4, 6), values(6), values(6, 4), values(4)]

    def encoder(before, activation="relu"):
        def f(*a):
            layer = torch.nn.TransformerEncoderLayer(4, 2, 6, 0.0, activation, batch_first=True, norm_first=before).train()
            set_attention(layer.self_attn, a[:8])
            set_norm(layer.norm1, *a[8:10])
            set_linear(layer.linear1, *a[10:12])
            set_linear(layer.linear2, *a[12:14])
            set_norm(layer.norm2, *a[14:16])
            return layer(a[16], src_key_padding_mask=~a[17] if len(a) > 17 else None)

        return f

    def decoder(before, activation="relu"):
        def f(*a):
            layer = torch.nn.TransformerDecoderLayer(4, 2, 6, 0.0, activation, batch_first=True, norm_first=before).train()
            set_attention(layer.self_attn, a[:8])
            set_norm(layer.norm1, *a[8:10])
            set_attention(layer.multihead_attn, a[10:18])
            set_norm(layer.norm2, *a[18:20])
            set_linear(layer.linear1, *a[20:22])
            set_linear(layer.linear2, *a[22:24])
            set_norm(layer.norm3, *a[24:26])
            causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
            memory_mask, mask = (~m for m in a[28:30]) if len(a) > 29 else (~a[28] if len(a) > 28 else None, None)
            return layer(a[26], a[27], causal, tgt_key_padding_mask=mask, memory_key_padding_mask=memory_mask)

        return f

    for name, before in {"post": False, "pre": True}.items():
        case(f"encoder_layer_{name}", encoder(before), *attention_inputs(), *norm(), *mlp(), *norm(), x)
        case(f"decoder_layer_{name}", decoder(before), *attention_inputs(), *norm(), *attention_inputs(), *norm(), *mlp(), *norm(), x, memory)
    target_mask = torch.tensor([[True, False, True], [True, True, False]])
    case("encoder_layer_masked", encoder(True), *attention_inputs(), *norm(), *mlp(), *norm(), x, target_mask)
    of_decoder = [*attention_inputs(), *norm(), *attention_inputs(), *norm(), *mlp(), *norm(), x, memory]
    case("decoder_layer_memory_mask", decoder(False), *of_decoder, mask)
    case("decoder_layer_masks", decoder(True), *of_decoder, mask, target_mask)
    approximate = lambda x: F.gelu(x, approximate="tanh")
    case("encoder_layer_gelu", encoder(True, "gelu"), *attention_inputs(), *norm(), *mlp(), *norm(), x)
    case("encoder_layer_gelu_tanh", encoder(False, approximate), *attention_inputs(), *norm(), *mlp(), *norm(), x)
    case("decoder_layer_gelu", decoder(False, "gelu"), *of_decoder, mask)

    def lora(x, w, b, lora_a, lora_b):  # peft.tuners.lora.Linear with r = 2, lora_alpha = 3
        return F.linear(x, w.detach().T, b.detach()) + F.linear(F.linear(x, lora_a.T), lora_b.T) * (3 / 2)

    case("lora_linear", lambda w, b, lora_a, lora_b, x: lora(x, w, b, lora_a, lora_b), values(4, 5), values(5), values(4, 2), values(2, 5), x)

    def sinusoids(x):  # PositionalEncoding of PyTorch's tutorial on transformers
        position = torch.arange(x.shape[1]).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, x.shape[2], 2) * (-math.log(10000.0) / x.shape[2]))
        table = torch.zeros(x.shape[1], x.shape[2])
        table[:, 0::2], table[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
        return x + table

    case("sinusoidal_positions", sinusoids, values(2, 5, 6))
    write("attention")


def losses():
    torch.manual_seed(7)
    x, y = values(4, 3), values(4, 3)
    p = values(4, 3, low=0, high=1)
    x[0, 0] = y[0, 0]  # a kink
    variance = values(4, 3, low=0.25, high=2)
    counts = v(0, 1, 2, 3, 7, 0, 1, 1, 2, 5, 4, 0).reshape(4, 3)
    signs = v(1, -1, 1, 1, -1, -1, 1, -1, 1, -1, 1, -1).reshape(4, 3)
    rows = v(1, -1, -1, 1)

    def three(name, f, *inputs):
        case(name, lambda *a: tuple(f(*a, how) for how in ("none", "mean", "sum")), *inputs)

    three("mse_loss", lambda x, y, how: F.mse_loss(x, y, reduction=how), x, y)
    three("huber_loss", lambda x, y, how: F.huber_loss(x, y, delta=0.75, reduction=how), x, y)
    three("smooth_l1_loss", lambda x, y, how: F.smooth_l1_loss(x, y, beta=0.5, reduction=how), x, y)
    three("l1_loss", lambda x, y, how: F.l1_loss(x, y, reduction=how), x, y)
    three("bce_with_logits", lambda x, y, how: F.binary_cross_entropy_with_logits(x, y, reduction=how), values(4, 3, low=-40, high=40), p)
    three("kl_div", lambda x, y, how: F.kl_div(x, y, reduction=how), x, values(4, 3, low=0.125, high=1))
    three("gaussian_nll_loss", lambda x, y, v, how: F.gaussian_nll_loss(x, y, v, reduction=how), x, y, variance)
    three("gaussian_nll_loss_full", lambda x, y, v, how: F.gaussian_nll_loss(x, y, v, full=True, reduction=how), x, y, variance)
    three("poisson_nll_loss", lambda x, y, how: F.poisson_nll_loss(x, y, reduction=how), x, counts)
    # The gradient by a count of 0 is NaN in PyTorch, so there is none by counts.
    three("poisson_nll_loss_rate", lambda x, y, how: F.poisson_nll_loss(x, y.detach(), log_input=False, full=True, reduction=how), variance, counts)
    three("margin_ranking_loss", lambda x, y, s, how: F.margin_ranking_loss(x, y, s, 0.125, reduction=how), x, y + 1 / 256, signs)
    three("hinge_embedding_loss", lambda x, s, how: F.hinge_embedding_loss(x, s, 0.7, reduction=how), x, signs)
    three("cosine_embedding_loss", lambda x, y, s, how: F.cosine_embedding_loss(x, y, s, 0.25, reduction=how), x, y, rows)
    z = values(4, 3)
    three("triplet_margin_loss", lambda a, p, n, how: F.triplet_margin_loss(a, p, n, 0.5, reduction=how), x, y, z)
    three("triplet_margin_loss_swap", lambda a, p, n, how: F.triplet_margin_loss(a, p, n, 1.0, 3, swap=True, reduction=how), x, y, z)

    logits = values(5, 4, low=-4, high=4)
    targets = i(0, 3, 1, -100, 2)
    for name, more in {"plain": {}, "smoothed": {"label_smoothing": 0.2}, "ignored": {"ignore_index": 3}}.items():
        own = targets if name != "ignored" else i(0, 3, 1, 3, 2)
        three(f"cross_entropy_{name}", lambda x, t, how: F.cross_entropy(x, t.long(), reduction=how, **more), logits, own)
    three("nll_loss", lambda x, t, how: F.nll_loss(x, t.long(), reduction=how), values(5, 4), targets)
    case("cross_entropy_all_ignored", lambda x, t: F.cross_entropy(x, t.long()), logits, i(-100, -100, -100, -100, -100), grad=False)

    # The gradient of F.ctc_loss by log-probabilities has another part, which log_softmax removes.
    steps = values(6, 3, 4, low=-3, high=3)
    labels, input_lengths, target_lengths = i(1, 2, 2, 3, 0, 0, 2, 2, 2).reshape(3, 3), i(6, 4, 5), i(3, 1, 3)
    three("ctc_loss", lambda x, t, n, m, how: F.ctc_loss(F.log_softmax(x, -1), t.long(), n.long(), m.long(), reduction=how), steps, labels, input_lengths, target_lengths)
    three("ctc_loss_blank", lambda x, t, n, m, how: F.ctc_loss(F.log_softmax(x, -1), t.long(), n.long(), m.long(), blank=3, reduction=how), steps,
          i(1, 2, 2, 0, 1, 1, 2, 1, 2).reshape(3, 3), i(6, 4, 5), i(3, 1, 0))
    three("ctc_loss_zero_infinity", lambda x, t, n, m, how: F.ctc_loss(F.log_softmax(x, -1), t.long(), n.long(), m.long(), reduction=how, zero_infinity=True), steps, labels,
          i(6, 4, 4), target_lengths)

    # Weights of classes; they have no gradient in PyTorch's multi_margin_loss.
    weight = v(0.5, 2, 0.25, 1)
    for name, more in {"weighted": {}, "weighted_smoothed": {"label_smoothing": 0.2}}.items():
        three(f"cross_entropy_{name}", lambda x, t, w, how: F.cross_entropy(x, t.long(), w.detach(), reduction=how, **more), logits, targets, weight)
    three("nll_loss_weighted", lambda x, t, w, how: F.nll_loss(x, t.long(), w.detach(), reduction=how), logits, targets, weight)
    classes = i(0, 3, 1, 2, 2)
    three("multi_margin_loss_weighted", lambda x, t, w, how: F.multi_margin_loss(x, t.long(), 2, 0.75, w.detach(), reduction=how), logits, classes, weight)
    marks = i(1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1).reshape(5, 4)
    three("multilabel_soft_margin_loss_weighted", lambda x, t, w, how: F.multilabel_soft_margin_loss(x, t.double(), w.detach(), reduction=how), logits, marks, weight)
    several = i(2, 0, -1, 1, -1, 2, 0, 1, 3, 2, 1, 0, 0, 3, -1, -1, 1, -1, 2, 3).reshape(5, 4)
    three("multilabel_margin_loss", lambda x, t, how: F.multilabel_margin_loss(x, t.long(), reduction=how), values(5, 4) + 1 / 256, several)
    three("bce_with_logits_pos_weight", lambda x, t, w, how: F.binary_cross_entropy_with_logits(x, t, pos_weight=w.detach(), reduction=how), logits, values(5, 4, low=0, high=1), weight)
    three("binary_cross_entropy", lambda x, t, how: F.binary_cross_entropy(x, t.detach(), reduction=how), values(5, 4, low=0.125, high=0.875), values(5, 4, low=0, high=1))
    # Probabilities of the classes; those of the third row do not add up to 1, and the fourth has two zeros.
    soft = v(0.5, 0.25, 0.125, 0.125, 0.125, 0.5, 0.25, 0.125, 0.5, 0.75, 0.25, 0.25, 0, 0.5, 0, 0.5, 1, 0, 0, 0).reshape(5, 4)
    for name, more in {"soft": {}, "soft_smoothed": {"label_smoothing": 0.2}}.items():
        three(f"cross_entropy_{name}", lambda x, y, how: F.cross_entropy(x, y, reduction=how, **more), logits, soft)
        three(f"cross_entropy_{name}_weighted", lambda x, y, w, how: F.cross_entropy(x, y, w.detach(), reduction=how, **more), logits, soft, weight)
    case("pairwise_distance", lambda x, y: tuple(F.pairwise_distance(x, y, p) for p in (1.0, 2.0, 3.0)), values(5, 4), values(5, 4) + 1 / 256)
    write("losses")


def optimizers():
    """Twenty steps on the loss sum(c * sin(p)) + |p|^2 / 4 of a matrix and a vector: its parameters after each fifth step."""
    torch.manual_seed(8)

    def run(name, make, decay=False, average=False):
        start = [values(2, 3), values(3)]
        scale = [values(2, 3), values(3)]
        parameters = [x.clone().requires_grad_() for x in start]
        # Ours do not decay vectors where the decay is decoupled.
        groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], **({"weight_decay": 0} if decay else {})}]
        optimizer = make(groups)
        lines.append(f"case {name}")
        for x in start + scale:
            lines.append("in " + text(x))

        def closure():
            optimizer.zero_grad()
            loss = sum((c * torch.sin(p)).sum() + p.square().sum() / 4 for c, p in zip(scale, parameters))
            loss.backward()
            return loss

        for step in range(1, 21):
            optimizer.step(closure)
            if step % 5 == 0:
                for p in parameters:
                    lines.append("out " + text(p))
                for p in parameters if average else ():
                    lines.append("out " + text(optimizer.state[p]["ax"]))

    o = torch.optim
    run("sgd", lambda p: o.SGD(p, lr=0.1, weight_decay=0.05))
    run("sgd_momentum", lambda p: o.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.05))
    run("sgd_nesterov", lambda p: o.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.05, nesterov=True))
    run("adam", lambda p: o.Adam(p, lr=0.05, betas=(0.8, 0.95), weight_decay=0.05))
    run("adamw", lambda p: o.AdamW(p, lr=0.05, betas=(0.8, 0.95), weight_decay=0.1), decay=True)
    run("amsgrad", lambda p: o.AdamW(p, lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True), decay=True)
    run("adagrad", lambda p: o.Adagrad(p, lr=0.1, weight_decay=0.05))
    run("adadelta", lambda p: o.Adadelta(p, lr=1.0, rho=0.8, weight_decay=0.05))
    run("adamax", lambda p: o.Adamax(p, lr=0.05, betas=(0.8, 0.95), weight_decay=0.05))
    run("rmsprop", lambda p: o.RMSprop(p, lr=0.02, alpha=0.9, weight_decay=0.05))
    run("rmsprop_momentum", lambda p: o.RMSprop(p, lr=0.02, alpha=0.9, momentum=0.5))
    run("rmsprop_centered", lambda p: o.RMSprop(p, lr=0.02, alpha=0.9, momentum=0.5, weight_decay=0.05, centered=True))
    run("sgd_dampened", lambda p: o.SGD(p, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.05))
    run("sgd_maximize", lambda p: o.SGD(p, lr=0.05, momentum=0.5, maximize=True))
    run("rprop", lambda p: o.Rprop(p, lr=0.05))
    run("rprop_bounds", lambda p: o.Rprop(p, lr=0.1, etas=(0.4, 1.5), step_sizes=(0.01, 0.2)))
    run("asgd", lambda p: o.ASGD(p, lr=0.1, lambd=0.01, alpha=0.6, t0=5, weight_decay=0.05), average=True)
    # One iteration in each step, so that a step is a step of ours; no parameter groups.
    run("lbfgs", lambda p: o.LBFGS([x for group in p for x in group["params"]], lr=0.5, max_iter=1, history_size=3))

    def schedule(name, make, steps=40, rate=0.5):
        optimizer = o.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
        scheduler = make(optimizer)
        rates = []
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        lines.append(f"case {name}")
        lines.append("out " + text(torch.tensor(rates)))

    s = o.lr_scheduler
    schedule("step_decay", lambda x: s.StepLR(x, 7, 0.3))
    schedule("exponential", lambda x: s.ExponentialLR(x, 0.9))
    schedule("polynomial", lambda x: s.PolynomialLR(x, 30, 2.0))
    schedule("cosine", lambda x: s.CosineAnnealingLR(x, 40, 0.125))
    schedule("cosine_restarts", lambda x: s.CosineAnnealingWarmRestarts(x, 6, 2, 0.125))
    schedule("cosine_restarts_equal", lambda x: s.CosineAnnealingWarmRestarts(x, 6, 1, 0.0))
    schedule("one_cycle", lambda x: s.OneCycleLR(x, 0.5, 40), 40)
    # ReduceLROnPlateau: the rate of each step, for the metric of the step before.
    metrics = [5, 4, 3, 3, 3, 3, 2.9999, 2.9999, 2, 2.5, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1.5, 1, 1, 0.5, 0.5, 0.5, 0.5]

    def plateau(name, **options):
        optimizer = o.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        scheduler = s.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for metric in metrics:
            scheduler.step(metric)
            rates.append(optimizer.param_groups[0]["lr"])
        lines.extend([f"case {name}", "in " + text(torch.tensor(metrics)), "out " + text(torch.tensor(rates))])

    plateau("plateau", factor=0.5, patience=2)
    plateau("plateau_max", mode="max", factor=0.25, patience=3, threshold=0.1, threshold_mode="abs", cooldown=2, min_lr=0.01)
    plateau("plateau_abs", factor=0.3, patience=1, threshold=0.5, threshold_mode="abs", cooldown=1, eps=1e-3)
    schedule("one_cycle_other", lambda x: s.OneCycleLR(x, 0.5, 40, pct_start=0.25, div_factor=10, final_div_factor=100), 40)
    write("optimizers")


def minimize():
    """L-BFGS with a line search: for 1 to 20 iterations the parameters, and (loss, calls of the closure)."""
    torch.manual_seed(9)

    def run(name, loss, start, data=(), **options):
        lines.append(f"case {name}")
        for x in [*start, *data]:
            lines.append("in " + text(x))
        for iterations in range(1, 21):
            parameters = [x.clone().requires_grad_() for x in start]
            optimizer = torch.optim.LBFGS(parameters, max_iter=iterations, max_eval=1000, line_search_fn="strong_wolfe", **options)

            def closure():
                optimizer.zero_grad()
                value = loss(*parameters, *data)
                value.backward()
                return value

            optimizer.step(closure)
            calls = optimizer.state[parameters[0]]["func_evals"]
            for p in parameters:
                lines.append("out " + text(p))
            lines.append("out " + text(torch.tensor([loss(*parameters, *data).item(), float(calls)])))

    def rosenbrock(p):
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    def regression(weight, bias, x, y):
        return (torch.tanh(x @ weight + bias) - y).square().mean()

    start = torch.tensor([-1.2, 1.0])
    run("rosenbrock", rosenbrock, [start], history_size=5)
    run("rosenbrock_far", rosenbrock, [torch.tensor([5.0, -3.0])], history_size=3, lr=4.0)
    run("regression", regression, [values(3, 2), values(2)], [values(9, 3), values(9, 2, low=-0.5, high=0.5)], history_size=10)
    write("minimize")


def distributions():
    torch.manual_seed(11)
    d = torch.distributions

    def run(name, make, quantities, x, *parameters, kl=True):
        """`quantities` of the distribution of the first half of the parameters, and its divergence from that of the second."""
        half = len(parameters) // 2 if kl else len(parameters)

        def results(x, *p):
            own, x = make(*p[:half]), x.double()
            got = [getattr(own, q)(x) if q in ("log_prob", "cdf", "icdf") else getattr(own, q) for q in quantities]
            got = [q() if callable(q) else q for q in got]
            return tuple(got + [d.kl_divergence(own, make(*p[half:]))] if kl else got)

        case(name, results, x, *parameters)

    def positive(*shape):
        return values(*shape, low=0.25, high=3)

    def chances(*shape):
        return values(*shape, low=0.125, high=0.875)

    moments, all_of = ["entropy", "mean", "variance", "stddev"], ["log_prob", "cdf", "entropy", "mean", "variance", "stddev"]
    lines_of = lambda: (values(4, 3), values(3), positive(4, 3), values(4, 3), positive(3))
    run("normal", d.Normal, all_of, *lines_of())
    run("laplace", d.Laplace, all_of, *lines_of())
    run("cauchy", d.Cauchy, ["log_prob", "cdf", "entropy"], *lines_of())
    run("gumbel", d.Gumbel, all_of, *lines_of())
    _, a, b, _, _ = lines_of()
    run("log_normal", d.LogNormal, all_of, positive(4, 3), a, b, values(4, 3), positive(3))
    logistic = lambda l, s: d.TransformedDistribution(
        d.Uniform(0, 1), [d.SigmoidTransform().inv, d.AffineTransform(l, s)], validate_args=False)
    run("logistic", logistic, ["log_prob", "cdf"], values(4, 3), values(3), positive(4, 3), kl=False)
    run("student_t", d.StudentT, ["log_prob", *moments], values(4, 3), values(4, 3, low=2.5, high=6), values(3), positive(4, 3), kl=False)
    run("uniform", d.Uniform, all_of, chances(4, 3), -chances(3), positive(4, 3) + 1, -chances(4, 3) - 1, positive(3) + 4)
    run("gamma", d.Gamma, ["log_prob", *moments], positive(4, 3), positive(3), positive(4, 3), positive(4, 3), positive(3))
    run("beta", d.Beta, ["log_prob", *moments], chances(4, 3), positive(3), positive(4, 3), positive(4, 3), positive(3))
    run("weibull", d.Weibull, all_of, positive(4, 3), positive(3), positive(4, 3), kl=False)
    run("pareto", d.Pareto, all_of, positive(4, 3) + 3, positive(3), positive(4, 3) + 2, positive(4, 3) / 16, positive(3))
    run("half_normal", d.HalfNormal, all_of, positive(4, 3), positive(3), positive(4, 3))
    run("half_cauchy", d.HalfCauchy, ["log_prob", "cdf", "entropy"], positive(4, 3), positive(3), kl=False)
    run("exponential", d.Exponential, all_of, positive(4, 3), positive(3), positive(4, 3))
    run("chi2", d.Chi2, ["log_prob", *moments], positive(4, 3), positive(3), kl=False)
    counts = torch.tensor([[0, 1, 2], [3, 0, 1], [5, 2, 0], [1, 1, 4]], dtype=torch.int32)
    run("poisson", d.Poisson, ["log_prob", "mean", "variance", "stddev"], counts, positive(3), positive(4, 3))
    bits = (counts % 2).int()
    for kind in ("probs", "logits"):
        parameter = chances if kind == "probs" else values
        of = lambda make: lambda *p: make(*p[:-1], **{kind: p[-1]})
        run(f"bernoulli_{kind}", of(d.Bernoulli), ["log_prob", *moments], bits, parameter(4, 3), parameter(4, 3))
        run(f"geometric_{kind}", of(d.Geometric), ["log_prob", *moments], counts, parameter(3), parameter(4, 3))
        total = torch.tensor([7.0, 5, 9])
        run(f"binomial_{kind}", of(d.Binomial), ["log_prob", "mean", "variance", "stddev"], counts, total, parameter(4, 3), kl=False)
        run(f"negative_binomial_{kind}", of(d.NegativeBinomial), ["log_prob", "mean", "variance", "stddev"], counts, total / 2, parameter(4, 3), kl=False)
        weights = positive if kind == "probs" else values
        index = torch.tensor([0, 2, 1, 2], dtype=torch.int32)
        run(f"categorical_{kind}", of(d.Categorical), ["log_prob", "entropy", "probs"], index, weights(4, 3), weights(4, 3))
        rows = F.one_hot(index.long(), 3).double()
        run(f"one_hot_categorical_{kind}", of(d.OneHotCategorical), ["log_prob", "entropy", "mean", "variance"], rows, weights(4, 3), weights(4, 3))
    run("dirichlet", d.Dirichlet, ["log_prob", "entropy", "mean", "variance"], torch.softmax(values(4, 3), -1), positive(3), positive(4, 3))
    run("independent", lambda l, s: d.Independent(d.Normal(l, s), 1), ["log_prob", "entropy", "mean", "variance"], *lines_of())
    quantiles = lambda *p: tuple(q.icdf(p[0]) for q in (
        d.Normal(p[1], p[2]), d.LogNormal(p[1], p[2]), d.Cauchy(p[1], p[2]), d.Laplace(p[1], p[2]), d.Gumbel(p[1], p[2]),
        d.Uniform(p[1] - 9, p[2]), d.HalfNormal(p[2]), d.HalfCauchy(p[2]), d.Exponential(p[2]), d.Weibull(p[2], p[2]), d.Pareto(p[2], p[2])))
    case("quantiles", quantiles, chances(4, 3), values(3), positive(4, 3))
    mixture = lambda w, l, s: d.MixtureSameFamily(d.Categorical(logits=w), d.Normal(l, s))
    run("mixture", mixture, ["log_prob", "cdf", "mean", "variance", "stddev"], values(4), values(4, 3), values(4, 3), positive(4, 3), kl=False)
    rows = lambda w, l, s: d.MixtureSameFamily(d.Categorical(w), d.Independent(d.Normal(l, s), 1))
    run("mixture_of_rows", rows, ["log_prob", "mean", "variance"], values(4, 2), positive(3), values(3, 2), positive(3, 2), kl=False)
    transformed = lambda base, *t: d.TransformedDistribution(base, list(t), validate_args=False)
    both = ["log_prob", "cdf"]
    run("tanh", lambda l, s: transformed(d.Normal(l, s), d.TanhTransform()), both, chances(4, 3) * 2 - 1, values(3), positive(4, 3), kl=False)
    run("sigmoid", lambda l, s: transformed(d.Cauchy(l, s), d.SigmoidTransform()), both, chances(4, 3), values(3), positive(4, 3), kl=False)
    run("softplus", lambda l, s: transformed(d.Laplace(l, s), d.SoftplusTransform()), both, positive(4, 3), values(3), positive(4, 3), kl=False)
    chain = lambda s, e, l, by: transformed(d.HalfNormal(s), d.PowerTransform(e), d.AffineTransform(l, by), d.ExpTransform())
    parameters = positive(3), positive(4, 3), values(3), -positive(4, 3)
    below = torch.exp(parameters[2] + parameters[3] * positive(4, 3))  # the scale is negative: the range is below exp(loc)
    run("chain", chain, both, below, *parameters, kl=False)
    # PowerTransform.sign of this version does not see that a negative exponent turns the order around; later versions do.
    case("transformed_quantiles", lambda p, a, b: (chain(b, a, a, -b).icdf(p), chain(b, -a, a, b / 16).icdf(1 - p)), chances(4, 3), positive(3), positive(4, 3))
    write("distributions")

    def matrix():
        factor = torch.tril(values(3, 3), -1) + torch.diag(positive(3))
        return factor @ factor.T

    for argument in ("scale_tril", "covariance_matrix", "precision_matrix"):
        # PyTorch's gradients by a matrix that is symmetric are those of its lower or of both triangles: of (m + m.T) / 2 it is one.
        whole = (lambda m: torch.tril(m)) if argument == "scale_tril" else (lambda m: (m + m.mT) / 2)
        make = lambda l, m: d.MultivariateNormal(l, **{argument: whole(m)}, validate_args=False)
        first = (lambda m: torch.linalg.cholesky(m)) if argument == "scale_tril" else (lambda m: m)
        run(argument, make, ["log_prob", "entropy", "mean", "variance"], values(4, 3), values(4, 3), first(matrix()),
            values(3), first(matrix()))
    write("multivariate_normal")

    def divergences(name, p, others, *parameters):
        """Divergences of other families: `p` takes the first half of the parameters, `others` the second."""
        half = len(parameters) // 2
        case(name, lambda *all: tuple(d.kl_divergence(p(*all[:half]), q(*all[half:])) for q in others), *parameters)

    rate = lambda a, b: d.Exponential(a)
    four = lambda: (positive(3), positive(4, 3), positive(4, 3), positive(3))
    divergences("of_beta", d.Beta, (rate, d.Gamma, d.Normal, lambda a, b: d.Uniform(-a, b + 1)), *four())
    divergences("of_exponential", rate, (d.Gamma, d.Gumbel, d.Normal), *four())
    divergences("of_gamma", d.Gamma, (rate, d.Gumbel, d.Normal), *four())
    divergences("of_chi2", lambda a, b: d.Chi2(a), (rate, d.Gamma, d.Gumbel, d.Normal, lambda a, b: d.Chi2(b)), *four())
    divergences("of_gumbel", d.Gumbel, (d.Normal,), *four())
    divergences("of_laplace", d.Laplace, (d.Normal,), values(3), *four()[1:])
    divergences("of_normal", d.Normal, (d.Gumbel, d.Laplace), values(3), *four()[1:])
    divergences("of_pareto", lambda a, b: d.Pareto(a, b + 2), (rate, d.Gamma, d.Normal), *four())
    within = lambda a, b: d.Uniform(a / 4, a / 4 + b / 16)
    divergences("of_uniform", within, (rate, d.Gamma, d.Gumbel, d.Normal, lambda a, b: d.Pareto(a / 64, b)), *four())
    divergences("of_uniform_below_1", lambda a, b: d.Uniform(a / 8, a / 8 + b / 8), (d.Beta,), *four())
    divergences("of_half_cauchy", lambda a, b: d.HalfCauchy(a), (lambda a, b: d.HalfCauchy(a),), *four())
    for kind in ("probs", "logits"):
        parameter = chances if kind == "probs" else values
        of = lambda make: lambda *p: make(*p[:-1], **{kind: p[-1]})
        divergences(f"of_bernoulli_{kind}", of(d.Bernoulli), (d.Poisson,), parameter(3), positive(4, 3))
        case(f"of_binomial_{kind}", lambda n, a, b: d.kl_divergence(of(d.Binomial)(n, a), of(d.Binomial)(n, b)), total,
             parameter(4, 3), parameter(4, 3))

    modes = lambda *all: lambda *p: tuple(make(*p).mode for make in all)
    case("modes_of_two", modes(d.Normal, d.LogNormal, d.Laplace, d.Gumbel, d.Cauchy, lambda l, s: d.StudentT(s, l, s)), values(3), positive(4, 3))
    case("modes_of_one", modes(d.Exponential, d.HalfNormal, d.HalfCauchy, d.Chi2, d.Poisson), positive(4, 3) * 2)
    case("modes_above_0", modes(d.Gamma, d.Pareto, lambda a, b: d.Beta(a, b), lambda a, b: d.Weibull(a, b + 1)), positive(3), positive(4, 3) + 1)
    case("mode_of_rows", modes(d.Dirichlet, lambda c: d.Dirichlet(c / 8), lambda c: d.Independent(d.Gamma(c, c), 1)), positive(4, 3) + 0.75)
    for kind in ("probs", "logits"):
        parameter = chances if kind == "probs" else values
        of = lambda make: lambda *p: make(*p[:-1], **{kind: p[-1]})
        case(f"modes_of_counts_{kind}", modes(of(d.Binomial), lambda n, p: of(d.NegativeBinomial)(n / 2, p),
             lambda n, p: of(d.Bernoulli)(p), lambda n, p: of(d.Geometric)(p)), total, parameter(4, 3))
        weights = positive if kind == "probs" else values
        case(f"modes_of_indices_{kind}", modes(of(d.Categorical), of(d.OneHotCategorical)), weights(4, 3), grad=False)
    # Transforms and divergences of a generic pair of exponential families.
    exp_affine = lambda base: d.TransformedDistribution(base, [d.ExpTransform(), d.AffineTransform(1.5, 0.5)])
    divergences("of_transformed", lambda a, b: exp_affine(d.Normal(a, b)),
                (lambda a, b: exp_affine(d.Normal(a, b)), lambda a, b: exp_affine(d.Laplace(a, b))), values(3), *four()[1:])
    sigmoid = lambda base: d.Independent(d.TransformedDistribution(base, [d.SigmoidTransform()]), 1)
    divergences("of_independent_transformed", lambda a, b: sigmoid(d.Normal(a, b)), (lambda a, b: sigmoid(d.Normal(a, b)),), values(3), *four()[1:])
    write("divergences")


if __name__ == "__main__":
    folder.mkdir(exist_ok=True)
    for family in (activations, binary, reductions, movement, products, windows, layers, attention, losses, optimizers,
                   minimize, distributions):
        family()
