/* Which addresses are given: every pool of the configuration, each address once, none reserved. */
#include "awsgw/alloc.h"

#include "awsgw/test_gw.h"
#include "base/test.h"

#include <errno.h>

static struct config_pool pools[] = {
    {.name = "one",
     .source = "static",
     .range_start = "198.51.100.10",
     .range_end = "198.51.100.12",
     .gateway = "198.51.100.11"},
    {.name = "old", /* gives nothing out any more */
     .source = "retired",
     .range_start = "192.0.2.5",
     .range_end = "192.0.2.6",
     .gateway = "192.0.2.1"},
    {.name = "two",
     .source = "static",
     .range_start = "203.0.113.5",
     .range_end = "203.0.113.6",
     .gateway = "203.0.113.1"},
};
static struct config cfg = {.node = "node1", .pools = pools, .n_pools = ARRAY_LEN(pools)};
static struct gw gw = {.cfg = &cfg};

static bool is_among(struct str ip, const char *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eqc(ip, v[i])) {
            return true;
        }
    }
    return false;
}

static void claim(struct arena *a, struct str ip)
{
    struct txn *t = arena_new_of(a, struct txn);
    txn_init(t, &gw, a);
    txn_claim(t, claim_public_ip_key(a, ip), STR("eni-1"));
    assert_int_equal(txn_commit(t, NULL), 0);
}

/* Only the first pool was ever used: a second one in the configuration gave nothing. */
static void test_a_full_pool_is_followed_by_the_next(void **state)
{
    static const char *const first[] = {"198.51.100.10", "198.51.100.12"};
    static const char *const second[] = {"203.0.113.5", "203.0.113.6"};
    AUTO(arena_freep) struct arena *a = arena_new(4u << 20);
    struct ip_picker p;
    uint32_t ip[5] = {0};
    assert_int_equal(ip_picker_public(&gw, a, &p, NULL), 0);
    assert_int_equal(ip_n_free(&p), 4); /* the gateway is not given */
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ip_pick(&p, &ip[i]), 0);
        assert_true(is_among(ip4_fmt(a, ip[i]), i < 2 ? first : second, 2));
        for (size_t k = 0; k < i; k++) {
            assert_true(ip[k] != ip[i]);
        }
    }
    assert_int_equal(ip_n_free(&p), 0);
    assert_int_equal(ip_pick(&p, &ip[4]), -ENOSPC);
    /* what is claimed is taken, in every pool */
    claim(a, STR("198.51.100.10"));
    claim(a, STR("203.0.113.6"));
    assert_int_equal(ip_picker_public(&gw, a, &p, NULL), 0);
    assert_int_equal(ip_n_free(&p), 2);
    assert_int_equal(ip_pick(&p, &ip[0]), 0);
    assert_str(ip4_fmt(a, ip[0]), "198.51.100.12");
    assert_int_equal(ip_pick(&p, &ip[0]), 0);
    assert_str(ip4_fmt(a, ip[0]), "203.0.113.5");
    assert_int_equal(ip_pick(&p, &ip[0]), -ENOSPC);
}

static void test_no_pool_gives_nothing(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct config none = {.node = "node1"};
    struct gw g = gw;
    struct ip_picker p;
    uint32_t ip = 0;
    g.cfg = &none;
    assert_int_equal(ip_picker_public(&g, a, &p, NULL), 0);
    assert_int_equal(ip_n_free(&p), 0);
    assert_int_equal(ip_pick(&p, &ip), -ENOSPC);
}

static void test_a_subnet_keeps_the_first_four_and_the_last(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    const struct subnet s = {.id = STR("subnet-1"), .cidr = STR("10.0.0.16/28")};
    struct ip_picker p;
    uint32_t ip = 0, lo = 0, hi = 0;
    assert_int_equal(ip_picker_subnet(&gw, a, &s, &p, NULL), 0);
    assert_int_equal(ip_n_free(&p), 11);
    assert_int_equal(ip4_parse(STR("10.0.0.20"), &lo), 0);
    assert_int_equal(ip4_parse(STR("10.0.0.30"), &hi), 0);
    assert_int_equal(ip_pick_exact(&p, lo), 0);
    assert_int_equal(ip_pick_exact(&p, lo), -EADDRINUSE);
    assert_int_equal(ip_pick_exact(&p, lo - 1), -ERANGE);
    assert_int_equal(ip_pick_exact(&p, hi + 1), -ERANGE);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ip_pick(&p, &ip), 0);
        assert_true(ip > lo && ip <= hi);
    }
    assert_int_equal(ip_pick(&p, &ip), -ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_pool_is_followed_by_the_next),
        cmocka_unit_test(test_no_pool_gives_nothing),
        cmocka_unit_test(test_a_subnet_keeps_the_first_four_and_the_last),
    };
    struct tmpdir dir;
    if (!test_gw_open(&gw, &dir, "alloc", NULL)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    test_gw_close(&gw, &dir);
    return r;
}
