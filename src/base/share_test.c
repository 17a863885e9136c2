#include "base/share.h"

#include "base/test.h"

#include <errno.h>

static int take(struct shares *s, struct share_hold *h, struct str a, struct str b, uint64_t n)
{
    const struct str owners[SHARE_OWNERS] = {a, b};
    return share_take(s, h, owners, n);
}

static void one_alone_gets_two_thirds(void **state)
{
    struct shares *s = shares_new(300);
    struct share_hold h[300] = {0};
    unsigned n = 0;
    while (n < 300 && take(s, &h[n], STR("a"), STR_NONE, 1) == 0) {
        n++;
    }
    assert_in_range(n, 200, 201);
    struct share_hold other = {0};
    assert_int_equal(take(s, &other, STR("b"), STR_NONE, 60), 0);
    share_give(s, &other);
    while (n) {
        share_give(s, &h[--n]);
    }
    assert_int_equal(shares_held(s), 0);
    shares_free(s);
}

/* The address counts whatever the account is, and the other way round. */
static void each_of_two_owners_counts(void **state)
{
    static const struct {
        struct str a[2], b[2];
        int want;
    } cases[] = {
        {{STR("1"), STR("x")}, {STR("2"), STR("y")}, 0},
        {{STR("1"), STR("x")}, {STR("1"), STR("y")}, -EAGAIN},
        {{STR("1"), STR("x")}, {STR("2"), STR("x")}, -EAGAIN},
        {{STR("1"), STR_NONE}, {STR("x"), STR("1")}, 0}, /* a name is of its kind */
        {{STR_NONE, STR_NONE}, {STR_NONE, STR_NONE}, 0}, /* nobody's: only the sum counts */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct shares *s = shares_new(300);
        struct share_hold h = {0}, more = {0};
        assert_int_equal(share_take(s, &h, cases[i].a, 200), 0);
        assert_int_equal(share_take(s, &more, cases[i].b, 50), cases[i].want);
        share_give(s, &more);
        share_give(s, &h);
        shares_free(s);
    }
}

/* However many come first, there is something for one who comes later. */
static void a_newcomer_finds_something(void **state)
{
    struct shares *s = shares_new(10000);
    enum { CROWD = 20 };
    struct share_hold h[CROWD] = {0}, last = {0};
    for (int i = 0; i < CROWD; i++) {
        char name[3] = {'c', (char)('a' + i), 0};
        assert_int_equal(take(s, &h[i], str_c(name), STR_NONE, 1), 0);
    }
    for (int k = 0; k < 10000; k++) {
        (void)!share_more(s, &h[k % CROWD], 1);
    }
    for (int i = 0; i < CROWD; i++) {
        assert_in_range(h[i].n, 400, 520);
    }
    assert_int_equal(take(s, &last, STR("late"), STR_NONE, 100), 0);
    share_give(s, &last);
    for (int i = 0; i < CROWD; i++) {
        share_give(s, &h[i]);
    }
    shares_free(s);
}

static void too_much_is_refused_whole(void **state)
{
    struct shares *s = shares_new(100);
    struct share_hold h = {0};
    assert_int_equal(take(s, &h, STR("a"), STR_NONE, UINT64_MAX), -EAGAIN);
    assert_null(h.owners[0]);
    assert_int_equal(take(s, &h, STR("a"), STR_NONE, 10), 0);
    assert_int_equal(share_more(s, &h, UINT64_MAX), -EAGAIN);
    assert_int_equal(h.n, 10);
    share_give(s, &h);
    share_give(s, &h);
    assert_int_equal(shares_held(s), 0);
    shares_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_alone_gets_two_thirds),
        cmocka_unit_test(each_of_two_owners_counts),
        cmocka_unit_test(a_newcomer_finds_something),
        cmocka_unit_test(too_much_is_refused_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
