/* cmocka_all.h: cmocka and the headers that it wants before it. */
#ifndef DK_TESTS_CMOCKA_ALL_H
#define DK_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* After the four above. */
#include <cmocka.h>

#endif
