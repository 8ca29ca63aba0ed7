#!/usr/bin/env python3
"""Writes random_loops_test.cpp: random functions of loops, branches, vmaps and collectives, for random_loops.hpp.

    tests/unit/programs/random_loops.py SEED COUNT > test.cpp

writes COUNT functions without collectives, and COUNT functions with them.
"""
import random
import sys


class Writer:
    """Writes one function. A value has a kind: m, [rows, 3]; r, [3]; s, a number."""

    def __init__(self, rng, collectives):
        self.rng, self.collectives, self.names, self.in_vmap = rng, collectives, 0, 0

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def collective(self, x):
        x = f"({x} + 0.0 * ts::sum(x))"  # varies between devices
        return self.rng.choice([f'ts::psum<"d">({x})', f'ts::pmean<"d">({x})', f'ts::ppermute<"d">({x}, ts::Shift(1))',
                                f'ts::pmax<"d">({x})'])

    def expr(self, env, kind, depth=2):
        known = [n for n, k in env if k == kind]
        has_matrix = any(k == "m" for _, k in env)
        if known and (depth <= 0 or self.rng.random() < .2):
            return self.rng.choice(known)

        def part(own=kind):
            return self.expr(env, own, depth - 1)

        if self.collectives and not self.in_vmap and self.rng.random() < .25:
            return self.collective(part())
        if kind == "s":
            return self.rng.choice([lambda: f"ts::sum({part('r')})", lambda: f"ts::mean({part('r')} * {part('r')})",
                                    lambda: f"ts::sum(ts::sin({part('m' if has_matrix else 'r')}))"])()
        forms = [lambda: f"ts::sin({part()} + {part()})", lambda: f"({part()} * {part()})",
                 lambda: f"({part()} - 0.5 * {part()})", lambda: f"({part()} * ts::tanh({part('s')}))",
                 lambda: f"ts::tanh({part()})", lambda: f"({part()} + 0.25)"]
        if kind == "m":
            forms.append(lambda: f"({part()} * {part('r')})")
        elif has_matrix:
            forms.append(lambda: f"ts::sum<0>(ts::tanh({part('m')}))")
        return self.rng.choice(forms)()

    def block(self, env, depth, kind):
        """Statements, and an expression of what they return."""
        if depth <= 0 or self.rng.random() < .3:
            return "", self.expr(env, kind)
        lines, made, own = self.statement(env, depth - 1)
        env = env + [(made, own)]
        rest = self.expr(env, kind, 1)
        return " ".join(lines), f"({made} + {rest})" if own == kind else f"({rest} * ts::tanh(ts::sum({made})))"

    def function(self, env, depth, kind, *parameters):
        lines, result = self.block(env, depth, kind)
        return f"[&]({', '.join('const auto& ' + p for p in parameters)}) {{ {lines} return {result}; }}"

    def statement(self, env, depth):
        kind = self.rng.choice("mr")
        forms = ["cond", "fori", "vmap"] + (["scan", "scan", "pair", "while", "switch", "map", "vmap_cond", "vmap_scan"]
                                            if depth > 0 else [])
        return getattr(self, self.rng.choice(forms))(env, depth, kind)

    def cond(self, env, depth, kind):
        made, p = self.name("v"), self.name("p")
        branches = ", ".join(self.function(env + [(p, kind)], depth - 1, kind, p) for _ in range(2))
        return [f"const auto {made} = ts::cond({self.expr(env, 's')} > 0.0, {branches}, {self.expr(env, kind, 1)});"], made, kind

    def switch(self, env, depth, kind):
        made, p = self.name("v"), self.name("p")
        branches = ", ".join(self.function(env + [(p, kind)], depth - 1, kind, p) for _ in range(3))
        index = f"ts::cast<std::int32_t>(ts::floor({self.expr(env, 's')} + 1.0))"
        return [f"const auto {made} = ts::switch_case({index}, std::tuple({branches}), {self.expr(env, kind, 1)});"], made, kind

    def fori(self, env, depth, kind):
        made, carry, i = self.name("v"), self.name("c"), self.name("i")
        lines, result = self.block(env + [(carry, kind)], depth - 1, kind)
        unroll = self.rng.choice(["", ", ts::unroll<2>"])
        return [f"const auto {made} = ts::fori_loop(0, {self.rng.choice([1, 2, 3])}, [&](const auto& {i}, const auto& {carry}) {{ {lines} "
                f"return ts::tanh({result}) + 0.1 * ts::cast<double>({i}); }}, {self.expr(env, kind, 1)}{unroll});"], made, kind

    def while_(self, env, kind, depth, first):
        carry = self.name("c")
        lines, result = self.block(env + [(carry, kind)], depth - 1, kind)
        return (f"ts::while_loop([](const auto& v) {{ return ts::sum(v * v) < {self.rng.choice(['1.0', '4.0'])}; }}, "
                f"[&](const auto& {carry}) {{ {lines} return ts::tanh({result}) + {carry} * 1.25; }}, {first}, 4)")

    def options(self):
        return self.rng.choice(["", ", ts::unroll<3>"]) + self.rng.choice(["", ", {.reverse = true}"])

    def scan(self, env, depth, kind):
        made, all_of, carry, x = self.name("v"), self.name("t"), self.name("c"), self.name("x")
        inner = env + [(carry, kind), (x, "r")]
        lines, result = self.block(inner, depth - 1, kind)
        return [f"const auto {all_of} = ts::scan([&](const auto& {carry}, const auto& {x}) {{ {lines} return std::tuple(ts::tanh({result}), "
                f"{self.expr(inner, 'r')}); }}, {self.expr(env, kind, 1)}, {self.expr(env, 'm')}{self.options()});",
                f"const auto {made} = std::get<1>({all_of}) + std::get<0>({all_of});"], made, "m"

    def pair(self, env, depth, kind):
        made, all_of, carry, x, number = (self.name(p) for p in "vtcxn")
        inner = env + [(carry, kind), (x, "r"), (number, "s")]
        lines, result = self.block(inner, depth - 1, kind)
        return [f"const auto {all_of} = ts::scan([&](const auto& both, const auto& xs) {{ const auto& {carry} = std::get<0>(both); "
                f"const auto& {number} = std::get<1>(both); const auto& {x} = std::get<0>(xs); {lines} return "
                f"std::tuple(std::tuple(ts::tanh({result}), {number} + ts::sum({x}) * std::get<1>(xs)), std::tuple({self.expr(inner, 'r')}, {number})); "
                f"}}, std::tuple({self.expr(env, kind, 1)}, {self.expr(env, 's', 1)}), std::pair({self.expr(env, 'm')}, "
                f"ts::sum<1>({self.expr(env, 'm', 1)})){self.options()});",
                f"const auto {made} = std::get<0>(std::get<1>({all_of})) * std::get<1>(std::get<0>({all_of})) + "
                f"ts::unsqueeze<1>(std::get<1>(std::get<1>({all_of}))) + std::get<0>(std::get<0>({all_of}));"], made, "m"

    def map(self, env, depth, _):
        made, x = self.name("v"), self.name("x")
        return [f"const auto {made} = ts::map({self.function(env + [(x, 'r')], depth - 1, 'r', x)}, {self.expr(env, 'm')});"], made, "m"

    def mapped(self, env, body):
        """A vmap whose function has no collectives: these would name the axis of a vmap around it."""
        made, x = self.name("v"), self.name("x")
        xs = self.expr(env, "m")
        self.in_vmap += 1
        lines, result = body(env + [(x, "r")], x)
        self.in_vmap -= 1
        return [f"const auto {made} = ts::vmap([&](const auto& {x}) {{ {lines} return {result}; }})({xs});"], made, "m"

    def vmap(self, env, depth, _):
        return self.mapped(env, lambda inner, x: self.block(inner, depth - 1, "r"))

    def vmap_cond(self, env, depth, _):
        def body(inner, x):
            p = self.name("p")
            branches = ", ".join(self.function(inner + [(p, "r")], depth - 1, "r", p) for _ in range(2))
            return "", f"ts::cond(ts::sum({x}) > 0.25, {branches}, {x})"
        return self.mapped(env, body)

    def vmap_scan(self, env, depth, _):
        def body(inner, x):
            if self.rng.random() < .5:
                return "", self.while_(inner, "r", depth, x)
            lines, made, _ = self.scan(inner, depth - 1, "r")
            return " ".join(lines), f"ts::sum<0>({made})"
        return self.mapped(env, body)


# a keyword of Python
setattr(Writer, "while", lambda self, env, depth, kind: (lambda made: (
    [f"const auto {made} = {self.while_(env, kind, depth, self.expr(env, kind, 1))};"], made, kind))(self.name("v")))


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    print(f"// Written by random_loops.py {seed} {count}.\n#include <cstdint>\n#include <tuple>\n#include <utility>\n\n"
          '#include "random_loops.hpp"\n#include <gtest/gtest.h>\n\n// Functions leave parameters unused.\n'
          '#pragma GCC diagnostic ignored "-Wunused-parameter"\n#pragma GCC diagnostic ignored "-Wunused-variable"\n\n'
          'namespace ts = tessera;\n\nnamespace {\n')
    for k in range(2 * count):
        collectives = k >= count
        writer = Writer(rng, collectives)
        env, lines = [("x", "m"), ("w", "r")], []
        for depth in (2, 2, 1):
            own, made, kind = writer.statement(env, depth)
            lines += own
            env.append((made, kind))
        result = " + ".join(n if kind == "m" else f"ts::sum({n})" for n, kind in env[2:]) + " + x * 0.1"
        print(f"struct F{k} {{ constexpr auto operator()(const auto& x, const auto& w) const {{ {' '.join(lines)} return {result}; }} }};")
    for title, first in (("Examples", 0), ("Collectives", count)):
        calls = " ".join(f'random_loops::compare_{title.lower()}<F{k}>("function {k}");' for k in range(first, first + count))
        print(f"TEST(RandomLoops, {title}) {{ {calls} }}")
    print("\n}  // namespace")


main()
