#include "predastore/strangers.h"

#include "base/test.h"
#include "base/time.h"

#include <stdio.h>

#define NOW (UINT64_C(1000) * NS_PER_S)

static enum strangers_may ask(struct strangers *s, unsigned key, const char *address,
                              uint64_t now)
{
    char id[32];
    (void)snprintf(id, sizeof(id), "AKIA%u", key);
    enum strangers_may may = strangers_may_ask(s, str_c(id), str_c(address), now);
    if (may == STRANGERS_ASK) {
        strangers_asked(s, str_c(id), false, now);
    }
    return may;
}

static void a_key_that_is_not_there_is_asked_for_once(void **state)
{
    struct strangers *s = strangers_new();
    assert_int_equal(ask(s, 1, "a", NOW), STRANGERS_ASK);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(ask(s, 1, "a", NOW + i), STRANGERS_UNKNOWN);
    }
    assert_int_equal(ask(s, 1, "b", NOW), STRANGERS_UNKNOWN);
    assert_int_equal(ask(s, 1, "a", NOW + 61 * NS_PER_S), STRANGERS_ASK);
    strangers_free(s);
}

static void who_guesses_slows_down_and_nobody_else(void **state)
{
    struct strangers *s = strangers_new();
    unsigned n = 0;
    while (n < 1000 && ask(s, n, "a", NOW) == STRANGERS_ASK) {
        n++;
    }
    assert_int_equal(n, STRANGERS_BURST);
    assert_int_equal(ask(s, 2000, "b", NOW), STRANGERS_ASK);
    n = 0;
    while (n < 1000 && ask(s, 3000 + n, "a", NOW + NS_PER_S) == STRANGERS_ASK) {
        n++;
    }
    assert_int_equal(n, STRANGERS_PER_ADDRESS);
    strangers_free(s);
}

static void all_together_have_a_limit(void **state)
{
    struct strangers *s = strangers_new();
    unsigned n = 0;
    for (unsigned i = 0; i < 5000; i++) {
        char address[16];
        (void)snprintf(address, sizeof(address), "10.0.%u.%u", i / 250, i % 250);
        n += ask(s, i, address, NOW) == STRANGERS_ASK;
    }
    assert_int_equal(n, STRANGERS_ALL);
    strangers_free(s);
}

static void only_so_many_are_asked_for_at_once(void **state)
{
    struct strangers *s = strangers_new();
    for (int i = 0; i < STRANGERS_AT_ONCE; i++) {
        assert_int_equal(strangers_may_ask(s, STR("k"), STR("a"), NOW), STRANGERS_ASK);
    }
    assert_int_equal(strangers_may_ask(s, STR("k"), STR("b"), NOW), STRANGERS_LATER);
    strangers_asked(s, STR("k"), true, NOW);
    assert_int_equal(strangers_may_ask(s, STR("k"), STR("b"), NOW), STRANGERS_ASK);
    strangers_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_not_there_is_asked_for_once),
        cmocka_unit_test(who_guesses_slows_down_and_nobody_else),
        cmocka_unit_test(all_together_have_a_limit),
        cmocka_unit_test(only_so_many_are_asked_for_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
