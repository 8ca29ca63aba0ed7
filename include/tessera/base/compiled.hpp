#ifndef TESSERA_BASE_COMPILED_HPP
#define TESSERA_BASE_COMPILED_HPP
#include <tessera/base/push_macros.hpp>

// TESSERA_ONCE marks functions that don't depend on a program: the planner, the executor, redistribution; they and
// their callees are most of a small program's machine code. Header-only, they are inline. With tessera::compiled, which
// defines TESSERA_COMPILED for its users, translation units only see declarations; the one translation unit of that
// library defines TESSERA_DEFINITIONS too.
#ifdef TESSERA_COMPILED
#define TESSERA_ONCE
#else
#define TESSERA_ONCE inline
#endif

#if !defined(TESSERA_COMPILED) || defined(TESSERA_DEFINITIONS)
#define TESSERA_HAS_DEFINITIONS 1
#else
#define TESSERA_HAS_DEFINITIONS 0
#endif

// Whether units and kernels of programs are made by the library, when a program is first used, instead of by the
// compiler of the unit that traces it: where kernels are not optimised, with tessera::compiled. They are a third of
// what such a unit costs to compile (docs/decisions/0108).
#if defined(TESSERA_COMPILED) && (!defined(__OPTIMIZE__) || defined(TESSERA_WALKED_KERNELS))
#define TESSERA_LIBRARY_MAKES_KERNELS 1
#else
#define TESSERA_LIBRARY_MAKES_KERNELS 0
#endif

// Linking translation units with and without TESSERA_COMPILED into one program fails: both kinds define this symbol.
// Header-only units define it in a COMDAT group, so that there may be many of them; it is not weak, since a weak symbol
// would yield to the library's. `.ifndef` is for LTO, which puts the text of several units into one assembly.
#ifdef __ELF__
#define TESSERA_BOTH_KINDS "tessera_units_with_and_without_TESSERA_COMPILED_are_linked_together"
#ifndef TESSERA_COMPILED
__asm__(".pushsection .rodata." TESSERA_BOTH_KINDS ",\"aG\",%progbits,tessera_header_only,comdat\n"
        ".ifndef " TESSERA_BOTH_KINDS "\n.globl " TESSERA_BOTH_KINDS "\n" TESSERA_BOTH_KINDS ":\n.byte 0\n.endif\n"
        ".popsection");
#elif defined(TESSERA_DEFINITIONS)
__asm__(".pushsection .rodata." TESSERA_BOTH_KINDS ",\"a\",%progbits\n"
        ".globl " TESSERA_BOTH_KINDS "\n" TESSERA_BOTH_KINDS ":\n.byte 0\n.popsection");
#endif
#undef TESSERA_BOTH_KINDS
#endif

#include <tessera/base/pop_macros.hpp>

#endif
