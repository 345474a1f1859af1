/* unroll.h: the two compiler hints the vector micro-kernels need. */
#ifndef DK_KERNELS_CPU_UNROLL_H
#define DK_KERNELS_CPU_UNROLL_H

/* Unroll the next loop fully: its array of registers must not become memory. */
#ifdef __clang__
#define DK_UNROLL _Pragma("unroll")
#else
#define DK_UNROLL _Pragma("GCC unroll 8")
#endif

/* The compiler forgets what it knows about `pointer`, so a load through it is not merged with an earlier. */
#define DK_FORGET(pointer) __asm__("" : "+r"(pointer))

#endif
