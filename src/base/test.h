/* test.h — cmocka with the headers it needs, for *_test.c only.
 * Not here: anything a service links.
 * Threads:  none.
 * Memory:   none.
 * Errors:   none. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail     /* cmocka's macro; ours is a function (base/err.h). Use fail_msg(). */
#undef fail_msg /* it is made of that macro */
#define fail_msg(...)              \
    do {                           \
        print_error("ERROR: ");    \
        print_error(__VA_ARGS__);  \
        print_error("\n");         \
        _fail(__FILE__, __LINE__); \
    } while (0)

/* Compares a struct str with a C string; both are shown when they differ. */
#define assert_str(s, want)                                                     \
    do {                                                                        \
        struct str assert_str_ = (s);                                           \
        const char *assert_want_ = (want);                                      \
        if (!assert_str_.p || assert_str_.n != strlen(assert_want_) ||          \
            memcmp(assert_str_.p, assert_want_, assert_str_.n) != 0) {          \
            fail_msg("got \"%.*s\", want \"%s\"", (int)assert_str_.n,           \
                     assert_str_.p ? assert_str_.p : "(absent)", assert_want_); \
        }                                                                       \
    } while (0)
