#include "erasure/rs.h"

#include "base/test.h"

#include <errno.h>
#include <stdio.h>

/* The field by hand: nothing here is shared with what is tested. */
static uint8_t mul(uint8_t a, uint8_t b)
{
    unsigned r = 0, x = a;
    for (; b; b = (uint8_t)(b >> 1)) {
        r ^= b & 1 ? x : 0;
        x = x & 0x80 ? (x << 1) ^ 0x11d : x << 1;
    }
    return (uint8_t)r;
}

static uint8_t inverse(uint8_t a)
{
    for (unsigned b = 1; b < 256; b++) {
        if (mul(a, (uint8_t)b) == 1) {
            return (uint8_t)b;
        }
    }
    return 0;
}

static void plain_encode(unsigned k, unsigned m, size_t size, uint8_t *const units[])
{
    for (unsigned i = k; i < k + m; i++) {
        memset(units[i], 0, size);
        for (unsigned j = 0; j < k; j++) {
            uint8_t factor = inverse((uint8_t)(i ^ j));
            for (size_t at = 0; at < size; at++) {
                units[i][at] ^= mul(factor, units[j][at]);
            }
        }
    }
}

static uint32_t state = 1;
static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

struct stripe {
    uint8_t *units[RS_UNITS_MAX];
};

/* Units at odd addresses: nothing may count on alignment. Each has its own end, for ASan. */
static struct stripe stripe_new(unsigned n, size_t size)
{
    struct stripe s = {0};
    for (unsigned i = 0; i < n; i++) {
        s.units[i] = malloc(size + i % 3);
        assert_non_null(s.units[i]);
        s.units[i] += i % 3;
        for (size_t at = 0; at < size; at++) {
            s.units[i][at] = (uint8_t)next();
        }
    }
    return s;
}

static void stripe_done(struct stripe *s, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        free(s->units[i] - i % 3);
    }
}

static void shapes(void **st)
{
    static const struct {
        unsigned k, m;
        int want;
    } t[] = {{0, 0, -EINVAL}, {0, 2, -EINVAL},   {1, 0, 0},        {1, 8, 0},
             {16, 0, 0},      {16, 8, 0},        {17, 0, -EINVAL}, {16, 9, -EINVAL},
             {2, 1, 0},       {~0u, 1, -EINVAL}, {1, ~0u, -EINVAL}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTO(rs_freep) struct rs *rs = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(rs_new(t[i].k, t[i].m, &rs, &err), t[i].want);
        assert_true(!rs == (t[i].want < 0));
        if (rs) {
            assert_int_equal(rs_k(rs), t[i].k);
            assert_int_equal(rs_m(rs), t[i].m);
            assert_int_equal(__builtin_popcount(rs_all(rs)), t[i].k + t[i].m);
        } else {
            assert_string_equal(err.name, "InvalidErasureCode");
        }
    }
}

/* The bytes on disk: they may never change. */
static void pinned(void **st)
{
    AUTO(rs_freep) struct rs *rs = NULL;
    assert_int_equal(rs_new(2, 1, &rs, NULL), 0);
    uint8_t a[] = {1, 0, 1, 0x80}, b[] = {0, 1, 1, 0xff}, p[4];
    uint8_t *units[] = {a, b, p};
    rs_encode(rs, 4, units);
    /* 1 / (2 ^ 0) = 0x8e, 1 / (2 ^ 1) = 0xf4 */
    const uint8_t want[] = {0x8e, 0xf4, 0x8e ^ 0xf4, mul(0x8e, 0x80) ^ mul(0xf4, 0xff)};
    assert_memory_equal(p, want, 4);
    assert_int_equal(mul(0x8e, 2), 1);
    assert_int_equal(mul(0xf4, 3), 1);
}

static void encode_is_the_plain_one(void **st)
{
    static const size_t sizes[] = {1, 15, 31, 32, 33, 63, 64, 65, 300};
    for (unsigned k = 1; k <= RS_K_MAX; k += k < 4 ? 1 : 4) {
        for (unsigned m = 0; m <= RS_M_MAX; m++) {
            for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                AUTO(rs_freep) struct rs *rs = NULL;
                assert_int_equal(rs_new(k, m, &rs, NULL), 0);
                struct stripe s = stripe_new(k + m, sizes[i]);
                struct stripe want = stripe_new(k + m, sizes[i]);
                for (unsigned j = 0; j < k; j++) {
                    memcpy(want.units[j], s.units[j], sizes[i]);
                }
                rs_encode(rs, sizes[i], s.units);
                plain_encode(k, m, sizes[i], want.units);
                for (unsigned j = 0; j < k + m; j++) {
                    assert_memory_equal(s.units[j], want.units[j], sizes[i]);
                }
                stripe_done(&s, k + m);
                stripe_done(&want, k + m);
            }
        }
    }
}

/* One pattern of loss: all lost units are restored, or it is said that they cannot be. */
static void lose(const struct rs *rs, struct stripe *s, size_t size, uint32_t lost)
{
    unsigned n = rs_k(rs) + rs_m(rs);
    struct rs_plan plan;
    struct err err = ERR_INIT;
    int r = rs_plan_init(&plan, rs, rs_all(rs) & ~lost, lost, &err);
    if ((unsigned)__builtin_popcount(lost) > rs_m(rs)) {
        assert_int_equal(r, -ENODATA);
        assert_string_equal(err.name, "TooFewUnits");
        return;
    }
    assert_int_equal(r, 0);
    uint32_t reads = rs_plan_reads(&plan);
    assert_int_equal(reads & lost, 0);
    assert_int_equal(__builtin_popcount(reads), lost ? rs_k(rs) : 0);
    uint8_t *units[RS_UNITS_MAX] = {NULL}, *made[RS_UNITS_MAX] = {NULL};
    for (unsigned i = 0; i < n; i++) {
        if ((lost >> i) & 1) {
            units[i] = made[i] = malloc(size);
            memset(made[i], 0xee, size);
        } else {
            units[i] = (reads >> i) & 1 ? s->units[i] : NULL; /* not read, so not there */
        }
    }
    if (lost) {
        rs_plan_run(&plan, size, units);
    }
    for (unsigned i = 0; i < n; i++) {
        if (made[i]) {
            assert_memory_equal(made[i], s->units[i], size);
            free(made[i]);
        }
    }
}

static void every_loss(void **st)
{
    enum { SIZE = 100 };
    unsigned n_patterns = 0;
    for (unsigned k = 1; k <= 8; k++) {
        for (unsigned m = 0; k + m <= 8; m++) {
            AUTO(rs_freep) struct rs *rs = NULL;
            assert_int_equal(rs_new(k, m, &rs, NULL), 0);
            struct stripe s = stripe_new(k + m, SIZE);
            plain_encode(k, m, SIZE, s.units);
            for (uint32_t lost = 0; lost <= rs_all(rs); lost++, n_patterns++) {
                lose(rs, &s, SIZE, lost);
            }
            stripe_done(&s, k + m);
        }
    }
    assert_int_equal(n_patterns,
                     8 * 256 + 7 * 128 + 6 * 64 + 5 * 32 + 4 * 16 + 3 * 8 + 2 * 4 + 2);
}

static void large_codes_and_units(void **st)
{
    static const struct {
        unsigned k, m;
        size_t size;
    } t[] = {{16, 8, 1000}, {16, 8, 65536}, {10, 4, 4097}, {12, 7, 65536}, {4, 2, 262144}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTO(rs_freep) struct rs *rs = NULL;
        assert_int_equal(rs_new(t[i].k, t[i].m, &rs, NULL), 0);
        unsigned n = t[i].k + t[i].m;
        struct stripe s = stripe_new(n, t[i].size);
        rs_encode(rs, t[i].size, s.units);
        for (unsigned round = 0; round < 40; round++) {
            uint32_t lost = 0;
            for (unsigned j = next() % (t[i].m + 1); j > 0; j--) {
                lost |= UINT32_C(1) << next() % n;
            }
            lose(rs, &s, t[i].size, lost);
        }
        stripe_done(&s, n);
    }
}

static void wants_less_than_lost(void **st)
{
    AUTO(rs_freep) struct rs *rs = NULL;
    struct rs_plan plan;
    assert_int_equal(rs_new(4, 2, &rs, NULL), 0);
    struct stripe s = stripe_new(6, 64);
    rs_encode(rs, 64, s.units);
    uint8_t made[64], *units[6];
    memcpy(units, s.units, sizeof(units));
    units[1] = made;
    units[3] = NULL; /* lost as well, not asked for */
    assert_int_equal(rs_plan_init(&plan, rs, 0x35, 0x02, NULL), 0);
    rs_plan_run(&plan, 64, units);
    assert_memory_equal(made, s.units[1], 64);
    rs_plan_run(&plan, 0, units); /* nothing is fine */
    static const struct {
        uint32_t have, want;
        int r;
    } t[] = {{0x3f, 0, 0},          {0x3f, 1, -EINVAL},      {0x7f, 0, -EINVAL},
             {0x3d, 0x40, -EINVAL}, {0x0f, 0x30, 0},         {0x07, 0x08, -ENODATA},
             {0, 0, -ENODATA},      {0x80000000, 0, -EINVAL}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        assert_int_equal(rs_plan_init(&plan, rs, t[i].have, t[i].want, NULL), t[i].r);
    }
    stripe_done(&s, 6);
}

static void verify_sees_every_bit(void **st)
{
    AUTO(rs_freep) struct rs *rs = NULL;
    assert_int_equal(rs_new(3, 2, &rs, NULL), 0);
    enum { SIZE = 4096 + 100 };
    struct stripe s = stripe_new(5, SIZE);
    rs_encode(rs, SIZE, s.units);
    const uint8_t *const units[] = {s.units[0], s.units[1], s.units[2], s.units[3], s.units[4]};
    assert_int_equal(rs_verify(rs, SIZE, units, NULL), 0);
    static const size_t at[] = {0, 1, 4095, 4096, SIZE - 1};
    for (unsigned u = 0; u < 5; u++) {
        for (size_t i = 0; i < ARRAY_LEN(at); i++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                struct err err = ERR_INIT;
                s.units[u][at[i]] ^= (uint8_t)(1u << bit);
                assert_int_equal(rs_verify(rs, SIZE, units, &err), -EBADMSG);
                assert_string_equal(err.name, "DamagedUnits");
                s.units[u][at[i]] ^= (uint8_t)(1u << bit);
            }
        }
    }
    assert_int_equal(rs_verify(rs, SIZE, units, NULL), 0);
    stripe_done(&s, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(pinned),
        cmocka_unit_test(encode_is_the_plain_one),
        cmocka_unit_test(every_loss),
        cmocka_unit_test(large_codes_and_units),
        cmocka_unit_test(wants_less_than_lost),
        cmocka_unit_test(verify_sees_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
