#include "erasure/layout.h"

#include "base/test.h"
#include "erasure/rs.h"

#include <errno.h>

#define KI UINT64_C(1024)

static void refuses(void **st)
{
    static const struct {
        uint64_t size;
        unsigned k, m;
        uint32_t unit;
        int want;
    } t[] = {
        {0, 1, 0, 64 << 10, 0},
        {LAYOUT_SIZE_MAX, 16, 8, 256 << 10, 0},
        {LAYOUT_SIZE_MAX + 1, 2, 1, 64 << 10, -EFBIG},
        {UINT64_MAX, 2, 1, 64 << 10, -EFBIG},
        {1, 0, 0, 64 << 10, -EINVAL},
        {1, 17, 0, 64 << 10, -EINVAL},
        {1, 257, 0, 64 << 10, -EINVAL},
        {1, 1, 9, 64 << 10, -EINVAL},
        {1, 1, 0, 0, -EINVAL},
        {1, 1, 0, 4096, -EINVAL},
        {1, 1, 0, 96 << 10, -EINVAL},
        {1, 1, 0, 512 << 10, -EINVAL},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct layout l;
        assert_int_equal(layout_init(&l, t[i].size, t[i].k, t[i].m, t[i].unit, NULL),
                         t[i].want);
    }
}

static void known_layouts(void **st)
{
    static const struct {
        uint64_t size;
        unsigned k, m;
        uint32_t unit;
        uint64_t n_stripes;
        uint32_t last_unit; /* unit size of the last stripe */
        uint64_t shard[6];  /* sizes */
    } t[] = {
        {0, 4, 2, 65536, 0, 0, {0}},
        {1, 1, 0, 65536, 1, 1, {1}},
        {200000, 1, 0, 65536, 4, 200000 - 3 * 65536, {200000}},
        {1, 1, 1, 65536, 1, 4096, {1, 4096}},
        {1, 2, 1, 65536, 1, 4096, {1, 0, 4096}},
        {8192, 2, 1, 65536, 1, 4096, {4096, 4096, 4096}},
        {8193, 2, 1, 65536, 1, 8192, {8192, 1, 8192}},
        {131072, 2, 1, 65536, 1, 65536, {65536, 65536, 65536}},
        {131073, 2, 1, 65536, 2, 4096, {65537, 65536, 69632}},
        {200000, 4, 2, 262144, 1, 53248, {53248, 53248, 53248, 40256, 53248, 53248}},
        {262144 * 4 + 4097,
         4,
         2,
         262144,
         2,
         4096,
         {266240, 262145, 262144, 262144, 266240, 266240}},
        {KI << 30,
         4,
         2,
         262144,
         KI << 10,
         262144,
         {KI << 28, KI << 28, KI << 28, KI << 28, KI << 28, KI << 28}},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct layout l;
        assert_int_equal(layout_init(&l, t[i].size, t[i].k, t[i].m, t[i].unit, NULL), 0);
        assert_int_equal(layout_n_stripes(&l), t[i].n_stripes);
        if (t[i].n_stripes > 0) {
            struct layout_stripe s = layout_stripe(&l, t[i].n_stripes - 1);
            assert_int_equal(s.unit_size, t[i].last_unit);
        }
        for (unsigned j = 0; j < t[i].k + t[i].m; j++) {
            assert_int_equal(layout_shard_size(&l, j), t[i].shard[j]);
        }
    }
}

/* Every byte of the object lies in exactly one place, and every stored byte belongs to one. */
static void bytes_and_places_match(void **st)
{
    static const uint64_t sizes[] = {1,      4095,   4096,   4097,   65535,  65536,  65537,
                                     100000, 131072, 196609, 262144, 400000, 524288, 1000003};
    for (unsigned k = 1; k <= 7; k++) {
        for (unsigned m = 0; m <= 2; m++) {
            for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                struct layout l;
                assert_int_equal(layout_init(&l, sizes[i], k, m, 65536, NULL), 0);
                uint64_t off = 0, stored[8] = {0}, sum = 0;
                struct layout_piece p;
                while (layout_next(&l, &off, UINT64_MAX, &p)) {
                    assert_true(p.shard < k && p.n > 0);
                    assert_int_equal(p.shard_off, stored[p.shard]); /* no gaps, no overlap */
                    assert_int_equal(p.off, sum);
                    stored[p.shard] += p.n;
                    sum += p.n;
                }
                assert_int_equal(sum, sizes[i]);
                for (unsigned j = 0; j < k; j++) {
                    assert_int_equal(stored[j], layout_shard_size(&l, j));
                }
                uint64_t parity = 0, of_stripes = 0;
                for (uint64_t s = 0; s < layout_n_stripes(&l); s++) {
                    struct layout_stripe x = layout_stripe(&l, s);
                    assert_true(x.unit_size <= 65536 && (uint64_t)x.unit_size * k >= x.size);
                    assert_int_equal(x.off, of_stripes);
                    assert_int_equal(x.shard_off, parity);
                    parity += x.unit_size;
                    of_stripes += x.size;
                }
                assert_int_equal(of_stripes, sizes[i]);
                if (m > 0) {
                    assert_int_equal(layout_shard_size(&l, k), parity);
                    /* Padding is at most a grain for each parity shard. */
                    assert_true(parity * k < sizes[i] + (uint64_t)k * LAYOUT_GRAIN);
                }
            }
        }
    }
}

static void ranges(void **st)
{
    static const struct {
        uint64_t from, to;
    } t[] = {{0, 0},           {0, 1},
             {65535, 65537},   {131071, 131073},
             {5, 4},           {0, 400000},
             {399999, 400000}, {399999, 1 << 30},
             {400000, 400001}, {1 << 30, UINT64_MAX},
             {262144, 262145}, {100, 399000}};
    enum { SIZE = 400000 };
    AUTO_FREE uint8_t *object = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) {
        object[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (unsigned k = 1; k <= 5; k++) {
        struct layout l;
        assert_int_equal(layout_init(&l, SIZE, k, 1, 65536, NULL), 0);
        AUTO_FREE uint8_t *shards = calloc(5, SIZE + 65536);
        struct layout_piece p;
        for (uint64_t off = 0; layout_next(&l, &off, SIZE, &p);) {
            memcpy(shards + p.shard * (SIZE + 65536) + p.shard_off, object + p.off, p.n);
        }
        for (size_t i = 0; i < ARRAY_LEN(t); i++) {
            uint64_t at = t[i].from, n = 0;
            while (layout_next(&l, &at, t[i].to, &p)) {
                assert_memory_equal(shards + p.shard * (SIZE + 65536) + p.shard_off,
                                    object + p.off, p.n);
                assert_int_equal(p.off, t[i].from + n);
                n += p.n;
            }
            uint64_t end = MIN(t[i].to, (uint64_t)SIZE);
            assert_int_equal(n, end > t[i].from ? end - t[i].from : 0);
        }
    }
}

/* Layout and code together: a whole object survives the loss of any m shards. */
static void objects_survive(void **st)
{
    static const uint64_t sizes[] = {1, 4097, 65536, 300001};
    enum { K = 3, M = 2, ROOM = 256 << 10 };
    AUTO(rs_freep) struct rs *rs = NULL;
    assert_int_equal(rs_new(K, M, &rs, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct layout l;
        assert_int_equal(layout_init(&l, sizes[i], K, M, 65536, NULL), 0);
        uint8_t *shard[K + M];
        for (unsigned j = 0; j < K + M; j++) {
            shard[j] = calloc(1, ROOM); /* bytes that are not stored are zeros */
        }
        struct layout_piece p;
        for (uint64_t off = 0; layout_next(&l, &off, sizes[i], &p);) {
            for (uint64_t x = 0; x < p.n; x++) {
                shard[p.shard][p.shard_off + x] = (uint8_t)((p.off + x) * 13 + 1);
            }
        }
        for (uint32_t lost = 0; lost < 1u << (K + M); lost++) {
            if (__builtin_popcount(lost) > M) {
                continue;
            }
            struct rs_plan plan;
            assert_int_equal(rs_plan_init(&plan, rs, rs_all(rs) & ~lost, lost, NULL), 0);
            for (uint64_t s = 0; s < layout_n_stripes(&l); s++) {
                struct layout_stripe x = layout_stripe(&l, s);
                uint8_t *units[K + M], *made[K + M];
                for (unsigned j = 0; j < K + M; j++) {
                    units[j] = shard[j] + x.shard_off;
                }
                if (lost == 0) {
                    rs_encode(rs, x.unit_size, units);
                    continue;
                }
                memcpy(made, units, sizeof(made));
                for (unsigned j = 0; j < K + M; j++) {
                    made[j] = (lost >> j) & 1 ? malloc(x.unit_size) : units[j];
                }
                rs_plan_run(&plan, x.unit_size, made);
                for (unsigned j = 0; j < K + M; j++) {
                    if (made[j] != units[j]) {
                        assert_memory_equal(made[j], units[j], x.unit_size);
                        free(made[j]);
                    }
                }
            }
        }
        for (unsigned j = 0; j < K + M; j++) {
            free(shard[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(known_layouts),
        cmocka_unit_test(bytes_and_places_match),
        cmocka_unit_test(ranges),
        cmocka_unit_test(objects_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
