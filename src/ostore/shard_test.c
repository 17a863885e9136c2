#include "ostore/shard_world.h"

#include <stdlib.h>
#include <sys/stat.h>

#define UNIT (64u << 10)

static const struct {
    unsigned k, m;
} codes[] = {{1, 0}, {1, 1}, {2, 1}, {3, 2}, {4, 2}, {10, 4}};

/* --- what goes in comes out --- */

static void read_ranges(struct world *w, const struct orec_body *b, struct body_codec *c,
                        const uint8_t *want, size_t size, unsigned k)
{
    size_t stripe = (size_t)k * (UNIT / BODY_BLOCK) * BODY_PLAIN;
    const size_t at[] = {0,          1,          BODY_PLAIN - 1, BODY_PLAIN, BODY_PLAIN + 1,
                         stripe / 2, stripe - 1, stripe,         stripe + 1, size / 2,
                         size - 1,   size,       size + 1};
    const size_t n[] = {0,    1,          100,  BODY_PLAIN, BODY_PLAIN + 1,
                        UNIT, stripe + 3, size, size + 9};
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        for (size_t j = 0; j < ARRAY_LEN(n); j++) {
            if (at[i] <= size + 1) {
                assert_int_equal(world_read(w, b, c, want, size, at[i], n[j]), 0);
            }
        }
    }
}

/* One reader, in order, in pieces; then backwards. */
static void read_in_pieces(struct world *w, const struct orec_body *b, struct body_codec *c,
                           const uint8_t *want, size_t size, size_t step)
{
    AUTO(shard_reader_freep) struct shard_reader *r = NULL;
    AUTO_FREE uint8_t *p = malloc(step);
    assert_int_equal(shard_reader_open(w->shards, b, c, &r, NULL), 0);
    for (size_t at = 0; at < size; at += step) {
        size_t n = MIN(step, size - at);
        assert_int_equal(shard_read(r, size, at, p, step, false, NULL), n);
        assert_int_equal(memcmp(p, want + at, n), 0);
    }
    for (size_t at = size; at > 0;) {
        size_t n = MIN(step, at);
        at -= n;
        assert_int_equal(shard_read(r, size, at, p, n, false, NULL), n);
        assert_int_equal(memcmp(p, want + at, n), 0);
    }
}

static void test_round_trips(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        unsigned k = codes[i].k, m = codes[i].m;
        struct world *w = world_new(k + m, NULL, 0);
        size_t per_unit = (size_t)(UNIT / BODY_BLOCK) * BODY_PLAIN;
        const size_t sizes[] = {0,
                                1,
                                BODY_PLAIN - 1,
                                BODY_PLAIN,
                                BODY_PLAIN + 1,
                                per_unit - 1,
                                per_unit,
                                per_unit + 1,
                                k * per_unit - 1,
                                k * per_unit,
                                k * per_unit + 1,
                                (2 * k + 1) * per_unit + 77,
                                (3 << 20) + 12345};
        for (size_t j = 0; j < ARRAY_LEN(sizes); j++) {
            size_t size = sizes[j], steps[] = {0, 4096, 65537};
            AUTO_FREE uint8_t *want = malloc(size + 1);
            world_fill(want, size, j);
            struct orec_body b;
            struct body_codec c;
            world_put(w, k, m, UNIT, size, j, steps[j % 3], &b, &c);
            read_ranges(w, &b, &c, want, size, k);
            read_in_pieces(w, &b, &c, want, size, 10000);
            read_in_pieces(w, &b, &c, want, size, 1 << 20);
            struct shard_verify v = {0};
            assert_int_equal(shard_verify(w->shards, &b, 0, &v, NULL, NULL), 0);
            assert_int_equal(v.n_bad, 0);
            assert_int_equal(v.n_lost, 0);
            assert_int_equal(world_n_files(w), k + m);
            shard_remove(w->shards, &b);
            assert_int_equal(world_n_files(w), 0);
            body_codec_done(&c);
        }
        struct shards_stats st;
        shards_stats(w->shards, &st);
        assert_int_equal(st.n_recovered, 0);
        assert_int_equal(atomic_load(&w->bad), 0);
        world_free(w);
    }
}

/* Large enough for units that go past the page cache, of data too, and a last one that does
 * not. */
static void test_large(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    size_t size = ((size_t)70 << 20) + 4321;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 6);
    struct orec_body b;
    struct body_codec c;
    char path[192];
    world_put(w, 2, 1, 128 << 10, size, 6, 1000001, &b, &c);
    read_in_pieces(w, &b, &c, want, size, 1 << 20);
    assert_int_equal(unlink(world_shard_path(w, &b, 0, path)), 0);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    struct shard_verify v = {0};
    assert_int_equal(shard_verify(w->shards, &b, SHARD_REPAIR, &v, NULL, NULL), 0);
    assert_int_equal(v.n_rebuilt, 1);
    v = (struct shard_verify){0};
    assert_int_equal(shard_verify(w->shards, &b, 0, &v, NULL, NULL), 0);
    assert_int_equal(v.n_bad, 0);
    assert_true(v.n_bytes > size * 3 / 2);
    body_codec_done(&c);
    world_free(w);
}

/* --- losses --- */

static const size_t loss_sizes[] = {5, 300000, 1 << 20};

static void lose(struct world *w, const struct orec_body *b, uint32_t mask, bool is_cut)
{
    char path[192];
    for (unsigned i = 0; mask >> i; i++) {
        if (mask >> i & 1) {
            world_shard_path(w, b, i, path);
            if (is_cut) {
                assert_int_equal(truncate(path, world_file_size(path) / 3), 0);
            } else {
                assert_int_equal(unlink(path), 0);
            }
        }
    }
}

/* Any m shards may go, gone or cut short; all of them are rebuilt. One more is a loss that is
 * said. */
static void one_loss(struct world *w, unsigned k, unsigned m, size_t size, uint32_t mask,
                     bool is_cut)
{
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, mask);
    struct orec_body b;
    struct body_codec c;
    world_put(w, k, m, UNIT, size, mask, 0, &b, &c);
    lose(w, &b, mask, is_cut);
    bool is_lost = (unsigned)__builtin_popcount(mask) > m;
    atomic_store(&w->bad, 0);
    int r = world_read(w, &b, &c, want, size, 0, size);
    struct shard_verify v = {0};
    bool is_moved = false;
    int rv = shard_verify(w->shards, &b, SHARD_REPAIR, &v, &is_moved, NULL);
    assert_int_equal(v.n_bad, __builtin_popcount(mask));
    assert_false(is_moved);
    if (is_lost) {
        /* A small body may lie in fewer shards than are lost. */
        assert_true(r == 0 || r == -EIO);
        assert_true(rv == 0 || rv == -EIO);
        assert_true(size < 100 || r == -EIO);
    } else {
        assert_int_equal(r, 0);
        assert_int_equal(rv, 0);
        assert_int_equal(v.n_rebuilt, __builtin_popcount(mask));
        v = (struct shard_verify){0};
        assert_int_equal(shard_verify(w->shards, &b, 0, &v, NULL, NULL), 0);
        assert_int_equal(v.n_bad, 0);
        assert_int_equal(world_n_files(w), k + m);
        assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    }
    shard_remove(w->shards, &b);
    body_codec_done(&c);
}

static void test_losses(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(codes) - 1; i++) {
        unsigned k = codes[i].k, m = codes[i].m;
        struct world *w = world_new(k + m, NULL, 0);
        for (size_t j = 0; j < ARRAY_LEN(loss_sizes); j++) {
            for (uint32_t mask = 1; mask < 1u << (k + m); mask++) {
                if ((unsigned)__builtin_popcount(mask) <= m + 1) {
                    one_loss(w, k, m, loss_sizes[j], mask, mask % 2);
                }
            }
        }
        world_free(w);
    }
    struct world *w = world_new(14, NULL, 0);
    for (unsigned i = 0; i < 14; i++) {
        one_loss(w, 10, 4, 1500000, 1u << i | 1u << (i * 5 + 3) % 14, false);
        one_loss(w, 10, 4, 1500000, 0xfu << i % 10, true);
    }
    world_free(w);
}

/* --- flipped bits --- */

struct region {
    off_t off, n;
};

/* A bit in any region of any shard: what is read is right, or the loss is said; a scrub sees
 * it and makes the shard as it was, byte for byte. */
static void flips(unsigned k, unsigned m, size_t size)
{
    struct world *w = world_new(k + m, NULL, 0);
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 3);
    struct orec_body b;
    struct body_codec c;
    char path[192];
    world_put(w, k, m, UNIT, size, 3, 0, &b, &c);
    unsigned seed = 1;
    for (unsigned shard = 0; shard < k + m; shard++) {
        off_t n = world_file_size(world_shard_path(w, &b, shard, path));
        for (unsigned turn = 0; turn < 40; turn++) {
            seed = seed * 1103515245 + 12345;
            off_t at = turn < 4    ? (off_t)(turn * 40)                      /* header */
                       : turn == 4 ? 4095                                    /* its zeros */
                       : turn < 20 ? n - 1 - (off_t)(turn - 5) * 12          /* footer, table */
                                   : 4096 + (off_t)(seed >> 3) % (n - 4096); /* units */
            at = at < 0 || at >= n ? 0 : at;
            world_flip(path, at, seed >> 8 & 7);
            int r = world_read(w, &b, &c, want, size, 0, size);
            assert_true(r == 0 || (r == -EIO && m == 0));
            struct shard_verify v = {0};
            r = shard_verify(w->shards, &b, SHARD_REPAIR, &v, NULL, NULL);
            assert_int_equal(v.n_bad, 1);
            assert_true(r == 0 || (r == -EIO && m == 0));
            if (r == 0) { /* also a lone shard whose header went bad */
                assert_int_equal(v.n_rebuilt, 1);
                assert_int_equal(world_file_size(path), n);
            } else { /* nothing to make it of */
                world_flip(path, at, seed >> 8 & 7);
            }
            v = (struct shard_verify){0};
            assert_int_equal(shard_verify(w->shards, &b, 0, &v, NULL, NULL), 0);
            assert_int_equal(v.n_bad, 0);
        }
    }
    body_codec_done(&c);
    world_free(w);
}

static void test_flips(void **state)
{
    flips(1, 0, 200000);
    flips(1, 1, 200000);
    flips(2, 1, 300000);
    flips(4, 2, 700000);
}

/* More shards than m are hurt, but no stripe is: every one has k good units somewhere. */
static void test_scattered(void **state)
{
    struct world *w = world_new(6, NULL, 0);
    size_t size = 6 * 4 * (size_t)(UNIT / BODY_BLOCK) * BODY_PLAIN;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 5);
    struct orec_body b;
    struct body_codec c;
    char path[192];
    world_put(w, 4, 2, UNIT, size, 5, 0, &b, &c);
    for (unsigned i = 0; i < 6; i++) {
        world_flip(world_shard_path(w, &b, i, path), 4096 + (off_t)(i * UNIT) + 99, 3);
    }
    atomic_store(&w->bad, 0);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    assert_int_equal(atomic_load(&w->bad), 0xf); /* parity was not looked at */
    struct shard_verify v = {0};
    assert_int_equal(shard_verify(w->shards, &b, SHARD_REPAIR, &v, NULL, NULL), 0);
    assert_int_equal(v.n_rebuilt, 6);
    v = (struct shard_verify){0};
    assert_int_equal(shard_verify(w->shards, &b, 0, &v, NULL, NULL), 0);
    assert_int_equal(v.n_bad, 0);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    body_codec_done(&c);
    world_free(w);
}

/* A shard of another body, or of another place of this one, is not taken for this. */
static void test_swapped(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    size_t size = 400000;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 1);
    struct orec_body b[2];
    struct body_codec c[2];
    char from[192], to[192];
    for (unsigned i = 0; i < 2; i++) {
        world_put(w, 2, 1, UNIT, size, i + 1, 0, &b[i], &c[i]);
    }
    assert_int_equal(
        rename(world_shard_path(w, &b[1], 0, from), world_shard_path(w, &b[0], 0, to)), 0);
    assert_int_equal(world_read(w, &b[0], &c[0], want, size, 0, size), 0);
    assert_int_equal(atomic_load(&w->bad), 1);
    struct shard_verify v = {0};
    assert_int_equal(shard_verify(w->shards, &b[0], SHARD_REPAIR, &v, NULL, NULL), 0);
    assert_int_equal(v.n_rebuilt, 1);
    assert_int_equal(
        rename(world_shard_path(w, &b[0], 1, from), world_shard_path(w, &b[0], 0, to)), 0);
    assert_int_equal(world_read(w, &b[0], &c[0], want, size, 0, size), -EIO);
    for (unsigned i = 0; i < 2; i++) {
        body_codec_done(&c[i]);
    }
    world_free(w);
}

/* --- in memory only --- */

static void test_nowait(void **state)
{
    struct world *w = world_new(6, NULL, 0);
    size_t size = 1 << 20;
    AUTO_FREE uint8_t *want = malloc(size), *p = malloc(size);
    world_fill(want, size, 8);
    struct orec_body b;
    struct body_codec c;
    char path[192];
    world_put(w, 4, 2, UNIT, size, 8, 0, &b, &c);
    struct shard_reader *r = NULL;
    assert_int_equal(shard_reader_open(w->shards, &b, &c, &r, NULL), 0);
    ssize_t n = shard_read(r, size, 0, p, size, true, NULL);
    assert_true(n == -EAGAIN || n > 0);
    if (n > 0) {
        assert_int_equal(memcmp(p, want, (size_t)n), 0);
    }
    /* Bad bytes are mended by the call that may block. */
    world_flip(world_shard_path(w, &b, 0, path), 4096 + 20000, 1);
    shard_reader_free(r);
    assert_int_equal(shard_reader_open(w->shards, &b, &c, &r, NULL), 0);
    n = shard_read(r, size, 16368, p, 16368, true, NULL);
    assert_int_equal(n, -EAGAIN);
    n = shard_read(r, size, 16368, p, 16368, false, NULL);
    assert_int_equal(n, 16368);
    assert_int_equal(memcmp(p, want + 16368, 16368), 0);
    shard_reader_free(r);
    lose(w, &b, 2, false);
    assert_int_equal(shard_reader_open(w->shards, &b, &c, &r, NULL), 0);
    n = shard_read(r, size, 4 * 16368, p, 100, true, NULL);
    assert_int_equal(n, -EAGAIN);
    assert_int_equal(shard_read(r, size, 4 * 16368, p, 100, false, NULL), 100);
    shard_reader_free(r);
    body_codec_done(&c);
    world_free(w);
}

/* --- degraded codes, other drives --- */

/* A part of a block is kept; the whole of it is not there any more when others came in between. */
static void test_back_to_a_block(void **state)
{
    enum { SIZE = 4000000 };
    struct world *w = world_new(1, NULL, 0);
    struct orec_body b;
    struct body_codec c;
    struct shard_reader *r = NULL;
    world_put(w, 1, 0, 131072, SIZE, 7, 0, &b, &c);
    uint8_t *want = test_malloc(SIZE), *p = test_malloc(SIZE);
    world_fill(want, SIZE, 7);
    assert_int_equal(shard_reader_open(w->shards, &b, &c, &r, NULL), 0);
    assert_int_equal(shard_read(r, SIZE, 100, p, 50, false, NULL), 50);
    assert_memory_equal(p, want + 100, 50);
    assert_int_equal(shard_read(r, SIZE, 200 * 16368, p, 16368, false, NULL), 16368);
    /* Only the kept part: the window stays where it is. */
    assert_int_equal(shard_read(r, SIZE, 200, p, 50, false, NULL), 50);
    assert_memory_equal(p, want + 200, 50);
    assert_int_equal(shard_read(r, SIZE, 0, p, 16368, false, NULL), 16368);
    assert_memory_equal(p, want, 16368);
    shard_reader_free(r);
    body_codec_done(&c);
    test_free(want);
    test_free(p);
    world_free(w);
}

static void test_codes_of_fewer_drives(void **state)
{
    static const struct {
        unsigned k, m, h, want_k, want_m;
    } cases[] = {{4, 2, 6, 4, 2}, {4, 2, 5, 3, 2}, {4, 2, 4, 2, 2}, {4, 2, 3, 1, 2},
                 {4, 2, 2, 1, 1}, {4, 2, 1, 1, 0}, {2, 1, 2, 1, 1}, {2, 1, 1, 1, 0},
                 {1, 1, 1, 1, 0}, {1, 0, 3, 1, 0}, {3, 2, 4, 2, 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unsigned n = MAX(cases[i].k + cases[i].m, cases[i].h);
        struct world *w = world_new(n, NULL, 0);
        for (unsigned d = cases[i].h; d < n; d++) {
            drives_fault(w->drives, d, -EIO, "test");
        }
        size_t size = 500000;
        AUTO_FREE uint8_t *want = malloc(size);
        world_fill(want, size, i);
        struct orec_body b;
        struct body_codec c;
        world_put(w, cases[i].k, cases[i].m, UNIT, size, i, 0, &b, &c);
        assert_int_equal(b.k, cases[i].want_k);
        assert_int_equal(b.m, cases[i].want_m);
        uint32_t used = 0;
        for (unsigned s = 0; s < (unsigned)b.k + b.m; s++) {
            assert_true(b.drive[s] < cases[i].h);
            assert_false(used >> b.drive[s] & 1);
            used |= 1u << b.drive[s];
        }
        assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
        body_codec_done(&c);
        world_free(w);
    }
}

/* A drive is gone for good: its shard is made on another, and the record has to say so. */
static void test_moved(void **state)
{
    struct world *w = world_new(5, NULL, 0);
    size_t size = 500000;
    AUTO_FREE uint8_t *want = malloc(size);
    world_fill(want, size, 4);
    struct orec_body b;
    struct body_codec c;
    world_put(w, 2, 1, UNIT, size, 4, 0, &b, &c);
    unsigned lost = b.drive[1];
    drives_fault(w->drives, lost, -EIO, "test");
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    assert_int_equal(atomic_load(&w->bad), 0); /* its drive is known to be away */
    struct shard_verify v = {0};
    bool is_moved = false;
    assert_int_equal(shard_verify(w->shards, &b, SHARD_REPAIR, &v, &is_moved, NULL), 0);
    assert_false(is_moved);
    assert_int_equal(v.n_rebuilt, 0);
    assert_int_equal(
        shard_verify(w->shards, &b, SHARD_REPAIR | SHARD_MOVE, &v, &is_moved, NULL), 0);
    assert_true(is_moved);
    assert_int_not_equal(b.drive[1], lost);
    v = (struct shard_verify){0};
    assert_int_equal(shard_verify(w->shards, &b, 0, &v, NULL, NULL), 0);
    assert_int_equal(v.n_bad, 0);
    assert_int_equal(world_read(w, &b, &c, want, size, 0, size), 0);
    body_codec_done(&c);
    world_free(w);
}

/* --- what is left behind --- */

static bool knows(void *ctx, const uint8_t id[OREC_ID_SIZE], unsigned shard, unsigned drive)
{
    const struct orec_body *b = ctx;
    return memcmp(b->id, id, OREC_ID_SIZE) == 0;
}

static void touch(struct world *w, const char *name)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/data/%s", w->path[0], name);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

static void test_sweep(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    struct orec_body kept, orphan, open;
    struct body_codec c1, c2, c3;
    uint64_t n = 0;
    char path[192];
    world_put(w, 2, 1, UNIT, 100000, 1, 0, &kept, &c1);
    world_put(w, 2, 1, UNIT, 100000, 2, 0, &orphan, &c2);
    struct shard_writer *sw = NULL;
    assert_int_equal(body_codec_new(&c3, NULL, w->arena, &open, NULL), 0);
    const struct shard_code code = {.k = 2, .m = 1, .unit = UNIT};
    assert_int_equal(shard_writer_new(w->shards, &code, &c3, &open, &sw, NULL), 0);
    AUTO_FREE uint8_t *p = calloc(1, 400000);
    assert_int_equal(shard_writer_add(sw, p, 400000, NULL), 0);
    assert_int_equal(shard_writer_finish(sw, &open, NULL), 0); /* no record yet */
    (void)snprintf(path, sizeof(path), "%s/data/00", w->path[0]);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    touch(w, "00/README");
    touch(w, "00/00112233445566778899aabbccddeeff.0x");
    touch(w, "00/00112233445566778899aabbccddeeff.24");
    assert_int_equal(world_n_files(w), 12);
    assert_int_equal(shard_sweep(w->shards, knows, &kept, 3600 * NS_PER_S, &n, NULL), 0);
    assert_int_equal(n, 0); /* too young */
    assert_int_equal(shard_sweep(w->shards, knows, &kept, 0, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_int_equal(world_n_files(w), 9);
    touch(w, "00/.tmp-00112233445566778899aabbccddeeff.1"); /* of a repair that was cut short */
    assert_int_equal(shard_sweep(w->shards, knows, &kept, 0, &n, NULL), 0);
    assert_int_equal(n, 1);
    shard_writer_free(sw); /* the record was given up */
    assert_int_equal(shard_sweep(w->shards, knows, &kept, 0, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_true(world_file_size(world_shard_path(w, &kept, 0, path)) > 0);
    body_codec_done(&c1);
    body_codec_done(&c2);
    body_codec_done(&c3);
    world_free(w);
}

static void test_given_up(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    AUTO_FREE uint8_t *p = calloc(1, 1000000);
    for (size_t n = 0; n <= 1000000; n += 250000) {
        struct orec_body b;
        struct body_codec c;
        struct shard_writer *sw = NULL;
        const struct shard_code code = {.k = 2, .m = 1, .unit = UNIT};
        assert_int_equal(body_codec_new(&c, NULL, w->arena, &b, NULL), 0);
        assert_int_equal(shard_writer_new(w->shards, &code, &c, &b, &sw, NULL), 0);
        assert_int_equal(shard_writer_add(sw, p, n, NULL), 0);
        shard_writer_free(sw);
        assert_int_equal(world_n_files(w), 0);
        body_codec_done(&c);
    }
    world_free(w);
}

static void test_bad_bodies(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    struct orec_body b;
    struct body_codec c;
    struct shard_reader *r = NULL;
    char q[4];
    world_put(w, 2, 1, UNIT, 1000, 1, 0, &b, &c);
    struct orec_body bad = b;
    bad.k = 0;
    assert_true(shard_reader_open(w->shards, &bad, &c, &r, NULL) < 0);
    bad = b;
    bad.unit = 12345;
    assert_true(shard_reader_open(w->shards, &bad, &c, &r, NULL) < 0);
    bad = b;
    bad.drive[2] = 3;
    assert_int_equal(shard_reader_open(w->shards, &bad, &c, &r, NULL), -EBADMSG);
    bad = b;
    bad.stored_size = SHARD_SIZE_MAX + 1;
    assert_int_equal(shard_reader_open(w->shards, &bad, &c, &r, NULL), -EFBIG);
    assert_int_equal(shard_reader_open(w->shards, &b, &c, &r, NULL), 0);
    assert_int_equal(shard_read(r, 1001, 0, q, 4, false, NULL), -EBADMSG);
    shard_reader_free(r);
    struct shard_verify v = {0};
    assert_int_equal(shard_verify(w->shards, &b, SHARD_ONLY(3), &v, NULL, NULL), -EINVAL);
    body_codec_done(&c);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_large),
        cmocka_unit_test(test_losses),      cmocka_unit_test(test_flips),
        cmocka_unit_test(test_scattered),   cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_nowait),      cmocka_unit_test(test_back_to_a_block),
        cmocka_unit_test(test_moved),       cmocka_unit_test(test_codes_of_fewer_drives),
        cmocka_unit_test(test_sweep),       cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_bad_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
