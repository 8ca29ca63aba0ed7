// Programs have macros of one letter, and <complex.h> has I: headers do not see them, and leave them as they were.
#define A 1
#define B 2
#define C 3
#define D 4
#define E 5
#define F 6
#define G 7
#define H 8
#define I 9
#define J 10
#define K 11
#define L 12
#define M 13
#define N 14
#define O 15
#define P 16
#define Q 17
#define R 18
#define S 19
#define T 20
#define U 21
#define V 22
#define W 23
#define X 24
#define Y 25
#define Z 26
#include <tessera/static.hpp>

static_assert(A == 1 && B == 2 && C == 3 && D == 4 && E == 5 && F == 6 && G == 7 && H == 8 && I == 9 && J == 10 &&
              K == 11 && L == 12 && M == 13 && N == 14 && O == 15 && P == 16 && Q == 17 && R == 18 && S == 19 &&
              T == 20 && U == 21 && V == 22 && W == 23 && X == 24 && Y == 25 && Z == 26);
