#ifndef TESSERA_BASE_COMPILED_HPP
#define TESSERA_BASE_COMPILED_HPP
#include <tessera/base/push_macros.hpp>

/// Functions marked TESSERA_ONCE, and all that they call, are most of the machine code of a small program: the planner,
/// the executor, redistribution. As a rule they are inline. Units of a target that links tessera::compiled, which
/// defines TESSERA_COMPILED for them, have declarations only. The one unit of that library defines TESSERA_DEFINITIONS
/// as well.
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

// A program with units of both kinds does not link: both define this symbol. In header-only units it is in a COMDAT
// group, so that they may be many, and yet no weak symbol, which would give way to the library's. Link-time
// optimisation puts the text of several units into one assembly, hence .ifndef.
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
