#include "ostore/ostore_world.h"

#include "base/num.h"
#include "keys/keys.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

static void small_and_large_bodies(void **state)
{
    static const size_t sizes[] = {0,     1,      4096,   16368,   16369,
                                   65536, 131072, 131073, 1000000, 5000000};
    struct world w;
    world_init(&w, 2, 1);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            char key[32];
            (void)snprintf(key, sizeof(key), "key-%zu", i);
            struct str body = world_bytes(&w, sizes[i], (uint32_t)i);
            if (turn == 0) {
                assert_ok(&w, world_put(&w, b, str_c(key), body, NULL));
            }
            world_assert_body(&w, b, str_c(key), NULL, body);
        }
        obucket_unref(b);
        world_again(&w, turn == 1);
        b = world_bucket(&w, "films");
        assert_int_equal(b->n_objects, ARRAY_LEN(sizes));
    }
    obucket_unref(b);
    world_done(&w);
}

/* --- many at once --- */

struct racer {
    struct world *w;
    const struct obucket *b;
    pthread_barrier_t *gate;
    unsigned idx;
    int rc[50];
};

static void *create_all(void *arg)
{
    struct racer *r = arg;
    for (unsigned i = 0; i < ARRAY_LEN(r->rc); i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "race-%u", i);
        struct ochange c = {.kind = OCHANGE_PUT, .bucket = r->b, .cond = OCHANGE_IF_NONE};
        c.cond.none_match = STR("*");
        c.rec.key = str_c(key);
        c.rec.etag = STR("00112233445566778899aabbccddeeff");
        pthread_barrier_wait(r->gate);
        r->rc[i] = ochange_wait(r->w->s, &c);
    }
    return NULL;
}

static void one_of_many_creates_wins(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "race");
    struct racer r[8];
    pthread_t t[8];
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, ARRAY_LEN(r));
    for (unsigned i = 0; i < ARRAY_LEN(r); i++) {
        r[i] = (struct racer){.w = &w, .b = b, .gate = &gate, .idx = i};
        assert_int_equal(pthread_create(&t[i], NULL, create_all, &r[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_LEN(r); i++) {
        pthread_join(t[i], NULL);
    }
    for (unsigned k = 0; k < ARRAY_LEN(r[0].rc); k++) {
        unsigned n = 0;
        for (unsigned i = 0; i < ARRAY_LEN(r); i++) {
            n += r[i].rc[k] == 0;
            assert_true(r[i].rc[k] == 0 || r[i].rc[k] == -EEXIST);
        }
        assert_int_equal(n, 1);
    }
    pthread_barrier_destroy(&gate);
    obucket_unref(b);
    world_done(&w);
}

/* --- readers --- */

static void complete_two(struct world *w, const struct obucket *b, struct str key,
                         struct str one, struct str two)
{
    struct ochange c = {.kind = OCHANGE_UPLOAD, .bucket = b, .cond = OCHANGE_IF_NONE};
    struct orec_part parts[2];
    uint8_t upload[16];
    c.rec.key = key;
    assert_int_equal(ochange_wait(w->s, &c), 0);
    memcpy(upload, c.rec.upload, 16);
    for (uint32_t i = 0; i < 2; i++) {
        struct ochange p = {.kind = OCHANGE_PART, .bucket = b, .cond = OCHANGE_IF_NONE};
        p.rec.key = key;
        p.rec.part_number = i + 1;
        memcpy(p.rec.upload, upload, 16);
        p.body = world_body(w, i ? two : one);
        assert_int_equal(ochange_wait(w->s, &p), 0);
        parts[i] = (struct orec_part){.number = i + 1, .lsn = p.lsn};
    }
    struct ochange d = {.kind = OCHANGE_COMPLETE, .bucket = b, .cond = OCHANGE_IF_NONE};
    d.rec.key = key;
    d.rec.parts = parts;
    d.rec.n_parts = 2;
    d.rec.etag = STR("11-2");
    memcpy(d.rec.upload, upload, 16);
    assert_int_equal(ochange_wait(w->s, &d), 0);
    assert_int_equal(d.rec.size, one.n + two.n);
}

/* What is open stays readable when it is deleted, overwritten, and its place compacted. */
static void readers_keep_what_they_read(void **state)
{
    struct world w;
    world_init(&w, 1, 1);
    w.o.inline_max = 16384;
    w.o.segment_size = 256 << 10;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct str small = world_bytes(&w, 10000, 1), large = world_bytes(&w, 300000, 2);
    struct str one = world_bytes(&w, 50000, 3), two = world_bytes(&w, 5000, 4);
    assert_ok(&w, world_put(&w, b, STR("small"), small, NULL));
    assert_ok(&w, world_put(&w, b, STR("large"), large, NULL));
    complete_two(&w, b, STR("multi"), one, two);
    assert_int_equal(world_files(&w), 4);
    static const char *const keys[] = {"small", "large", "multi"};
    struct oread *r[3];
    struct oversion v[3];
    struct arena *a = arena_new(1 << 20);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ostore_get(w.s, b, str_c(keys[i]), NULL, 0, a, &v[i], NULL), 0);
        assert_int_equal(oread_open(w.s, &v[i], 0, &r[i], NULL), 0);
    }
    struct oversion held; /* found, and not opened yet */
    assert_int_equal(ostore_get(w.s, b, STR("large"), NULL, 0, a, &held, NULL), 0);
    assert_ok(&w, world_delete(&w, b, STR("large"), NULL, NULL));
    assert_ok(&w, world_delete(&w, b, STR("multi"), NULL, NULL));
    for (uint32_t i = 0; i < 100; i++) {
        assert_ok(&w, world_put(&w, b, STR("small"), world_bytes(&w, 12000, 100 + i), NULL));
    }
    uint64_t freed = 0;
    assert_ok(&w, ostore_compact(w.s, &freed, &w.err));
    assert_true(freed > 0);
    struct str want[3] = {small, large, STR_NONE};
    char *both = arena_xalloc(w.a, one.n + two.n);
    memcpy(both, one.p, one.n);
    memcpy(both + one.n, two.p, two.n);
    want[2] = str_n(both, one.n + two.n);
    char *got = arena_xalloc(w.a, 400000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(oread_at(r[i], 0, got, 400000, 0, &w.err), want[i].n);
        assert_memory_equal(got, want[i].p, want[i].n);
        assert_int_equal(oread_at(r[i], 9000, got, 100, 0, &w.err), 100);
        assert_memory_equal(got, want[i].p + 9000, 100);
    }
    struct oread *late = NULL;
    assert_ok(&w, oread_open(w.s, &held, 0, &late, &w.err));
    assert_int_equal(oread_at(late, 0, got, 400000, 0, &w.err), large.n);
    assert_memory_equal(got, large.p, large.n);
    assert_int_equal(world_files(&w), 4);
    oread_close(late);
    for (int i = 0; i < 3; i++) {
        oread_close(r[i]);
    }
    world_wait_for_files(&w, 0);
    /* It is gone for those who come later, with the same facts or anew. */
    assert_int_equal(oread_open(w.s, &held, 0, &late, NULL), -ENOENT);
    arena_free(a);
    obucket_unref(b);
    world_done(&w);
}

/* Somebody who reads slowly holds back its own bytes, not those of others. */
static void a_slow_reader_stalls_nothing(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    w.o.inline_max = 4096;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct oversion v;
    struct oread *r = NULL;
    struct arena *a = arena_new(1 << 20);
    assert_ok(&w, world_put(&w, b, STR("slow"), world_bytes(&w, 50000, 1), NULL));
    assert_int_equal(ostore_get(w.s, b, STR("slow"), NULL, 0, a, &v, NULL), 0);
    assert_int_equal(oread_open(w.s, &v, 0, &r, NULL), 0);
    assert_ok(&w, world_delete(&w, b, STR("slow"), NULL, NULL));
    for (uint32_t i = 0; i < 100; i++) {
        assert_ok(&w, world_put(&w, b, STR("other"), world_bytes(&w, 50000, i), NULL));
    }
    assert_ok(&w, world_delete(&w, b, STR("other"), NULL, NULL));
    world_wait_for_files(&w, 1);
    oread_close(r);
    world_wait_for_files(&w, 0);
    arena_free(a);
    obucket_unref(b);
    world_done(&w);
}

/* --- lists --- */

static void a_list_of_many_parts_is_small(void **state)
{
    enum { N_PARTS = 1500 };
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct ochange c = {.kind = OCHANGE_UPLOAD, .bucket = b, .cond = OCHANGE_IF_NONE};
    struct orec_part *parts = arena_array(w.a, N_PARTS, sizeof(*parts));
    c.rec.key = STR("multi");
    assert_int_equal(ochange_wait(w.s, &c), 0);
    for (uint32_t i = 0; i < N_PARTS; i++) {
        struct ochange p = {.kind = OCHANGE_PART, .bucket = b, .cond = OCHANGE_IF_NONE};
        p.rec.key = STR("multi");
        p.rec.part_number = i + 1;
        memcpy(p.rec.upload, c.rec.upload, 16);
        p.body = world_body(&w, str_n("0123456789", 1 + i % 10));
        assert_int_equal(ochange_wait(w.s, &p), 0);
        parts[i] = (struct orec_part){
            .number = i + 1, .lsn = p.lsn, .sum = {.alg = OSUM_CRC32C, .value = STR("abcd")}};
    }
    struct ochange d = {.kind = OCHANGE_COMPLETE, .bucket = b, .cond = OCHANGE_IF_NONE};
    d.rec.key = STR("multi");
    d.rec.parts = parts;
    d.rec.n_parts = N_PARTS;
    d.rec.etag = STR("11-1500");
    memcpy(d.rec.upload, c.rec.upload, 16);
    assert_int_equal(ochange_wait(w.s, &d), 0);
    struct arena *a = arena_new((size_t)4096 + 1000 * sizeof(struct olist_entry));
    struct olist_query q = {.kind = OLIST_OBJECTS, .max = 1000};
    struct olist_page page;
    assert_ok(&w, ostore_list(w.s, b, &q, a, &page, &w.err));
    assert_int_equal(page.n, 1);
    assert_str(page.v[0].version.rec.etag, "11-1500");
    assert_int_equal(page.v[0].version.rec.size, d.rec.size);
    assert_int_equal(page.v[0].version.rec.n_parts, 0);
    /* Opened from the list it is whole all the same. */
    struct oread *r = NULL;
    char got[8];
    assert_ok(&w, oread_open(w.s, &page.v[0].version, 0, &r, &w.err));
    assert_int_equal(oread_at(r, 1, got, 5, 0, &w.err), 5); /* "0", "01", "012", "0123" */
    assert_memory_equal(got, "01012", 5);
    oread_close(r);
    arena_free(a);
    obucket_unref(b);
    world_done(&w);
}

/* --- space --- */

static void space_of_the_dead_comes_back(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    w.o.segment_size = 256 << 10;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "churn");
    for (uint32_t i = 0; i < 3000; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i * 7919 % 150);
        if (i % 5 == 4) {
            assert_ok(&w, world_delete(&w, b, str_c(key), NULL, NULL));
        } else {
            assert_ok(&w,
                      world_put(&w, b, str_c(key), world_bytes(&w, 4000 + i % 3000, i), NULL));
        }
        arena_reset(w.a);
    }
    uint64_t freed;
    assert_ok(&w, ostore_compact(w.s, &freed, &w.err));
    struct ostore_stats st;
    for (int i = 0; i < 100; i++) {
        ostore_stats(w.s, &st);
        if (st.log_bytes <= (st.log_bytes - st.log_dead_bytes) * 13 / 10 + 2 * (256 << 10)) {
            break;
        }
        (void)usleep(20000);
    }
    uint64_t live = st.log_bytes - st.log_dead_bytes;
    if (st.log_bytes > live * 13 / 10 + 2 * (256 << 10)) {
        fail_msg("%llu bytes of log for %llu that live", (unsigned long long)st.log_bytes,
                 (unsigned long long)live);
    }
    uint64_t n = st.n_objects;
    obucket_unref(b);
    world_again(&w, true);
    ostore_stats(w.s, &st);
    assert_int_equal(st.n_objects, n);
    /* All deleted: nothing stays but what is being written. */
    b = world_bucket(&w, "churn");
    for (uint32_t i = 0; i < 150; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        assert_ok(&w, world_delete(&w, b, str_c(key), NULL, NULL));
    }
    obucket_unref(b);
    for (int i = 0; i < 3; i++) {
        world_again(&w, false); /* each start begins a new segment */
        assert_ok(&w, ostore_compact(w.s, &freed, &w.err));
    }
    ostore_stats(w.s, &st);
    if (st.log_bytes > (256 << 10)) {
        fail_msg("%llu bytes of log for nothing", (unsigned long long)st.log_bytes);
    }
    world_done(&w);
}

/* The tombstone of a version may be the only record left that knows of ids: it is not about the
 * null version, which was found deleted after a replay of everything. */
static void a_tombstone_is_about_its_version_only(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct str body = world_bytes(&w, 5000, 1);
    assert_ok(&w, world_put(&w, b, STR("k"), body, NULL));
    assert_ok(
        &w, ostore_bucket_configure(w.s, STR("films"), 0, OCONF_VERSIONING, STR("\1"), &w.err));
    obucket_unref(b);
    world_again(&w, false);
    b = world_bucket(&w, "films");
    struct ochange c = {.cond = OCHANGE_IF_NONE};
    assert_ok(&w, world_put(&w, b, STR("k"), world_bytes(&w, 7000, 2), &c));
    obucket_unref(b);
    world_again(&w, false); /* a segment with nothing but that version */
    b = world_bucket(&w, "films");
    assert_ok(&w, world_delete(&w, b, STR("k"), c.version, NULL));
    const struct obucket *other = world_bucket(&w, "other");
    assert_ok(&w, world_put(&w, other, STR("alive"), world_bytes(&w, 50000, 3), NULL));
    obucket_unref(other);
    obucket_unref(b);
    struct ostore_stats before, st;
    ostore_stats(w.s, &before);
    uint64_t end = time_mono_ns() + 10 * NS_PER_S;
    world_again(&w, false); /* the compaction of the start may be first: whoever frees it */
    do {
        uint64_t freed = 0;
        assert_ok(&w, ostore_compact(w.s, &freed, &w.err));
        ostore_stats(w.s, &st);
    } while (st.log_bytes + 5000 > before.log_bytes && time_mono_ns() < end);
    assert_true(st.log_bytes + 5000 <= before.log_bytes);
    world_again(&w, true);
    b = world_bucket(&w, "films");
    world_assert_body(&w, b, STR("k"), NULL, world_bytes(&w, 5000, 1));
    obucket_unref(b);
    world_done(&w);
}

/* --- damage --- */

static void change_log(const struct world *w, unsigned drive, unsigned segment, off_t off)
{
    char path[192], c = 0;
    (void)snprintf(path, sizeof(path), "%s/log/seg-%016x", w->drives[drive], segment);
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, off), 1);
    c = (char)(c ^ 0x40);
    assert_int_equal(pwrite(fd, &c, 1, off), 1);
}

static void a_damaged_log_is_read_only_and_says_why(void **state)
{
    struct world w;
    world_init(&w, 1, 1);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    struct str body = world_bytes(&w, 8000, 1);
    for (uint32_t i = 0; i < 20; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%02u", i);
        assert_ok(&w, world_put(&w, b, str_c(key), body, NULL));
    }
    struct oversion v;
    assert_int_equal(ostore_get(w.s, b, STR("k10"), NULL, 0, w.a, &v, NULL), 0);
    off_t off = v.off + 200;
    obucket_unref(b);
    world_close(&w);
    /* On one drive: it is repaired, nobody notices. */
    change_log(&w, 0, 1, off);
    w.o.is_index_discarded = true;
    world_open(&w);
    struct ostore_stats st;
    ostore_stats(w.s, &st);
    assert_false(st.is_readonly);
    b = world_bucket(&w, "films");
    world_assert_body(&w, b, STR("k10"), NULL, world_bytes(&w, 8000, 1));
    obucket_unref(b);
    world_close(&w);
    /* On all of them. */
    change_log(&w, 0, 1, off);
    change_log(&w, 1, 1, off);
    world_open(&w);
    ostore_stats(w.s, &st);
    assert_true(st.is_readonly);
    assert_true(strlen(st.why) > 10);
    b = world_bucket(&w, "films");
    world_assert_body(&w, b, STR("k09"), NULL, world_bytes(&w, 8000, 1));
    world_assert_body(&w, b, STR("k19"), NULL, world_bytes(&w, 8000, 1));
    struct str got;
    assert_int_equal(world_read(&w, b, STR("k10"), NULL, &got, NULL), -ENOENT);
    assert_int_equal(world_put(&w, b, STR("new"), world_bytes(&w, 10, 1), NULL), -EROFS);
    assert_string_equal(w.err.name, "ReadOnly");
    assert_int_equal(world_delete(&w, b, STR("k01"), NULL, NULL), -EROFS);
    obucket_unref(b);
    world_done(&w);
}

/* --- scrub --- */

static void wait_for_scrub(struct world *w, struct ostore_scrub *st)
{
    assert_ok(w, ostore_scrub_start(w->s, true, &w->err));
    for (int i = 0; i < 200; i++) {
        ostore_scrub_status(w->s, st);
        if (!st->is_running) {
            return;
        }
        (void)usleep(50000);
    }
    fail_msg("the scrub does not end");
}

static char shard_path[256];
static int find_shard(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    if (kind == FTW_F && strstr(path, "/data/")) {
        (void)snprintf(shard_path, sizeof(shard_path), "%s", path);
    }
    return 0;
}

static void scrub_repairs_and_sweeps(void **state)
{
    struct world w;
    world_init(&w, 2, 1);
    w.o.inline_max = 16384;
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    assert_ok(&w, world_put(&w, b, STR("small"), world_bytes(&w, 9000, 1), NULL));
    assert_ok(&w, world_put(&w, b, STR("large"), world_bytes(&w, 700000, 2), NULL));
    struct oversion v;
    assert_int_equal(ostore_get(w.s, b, STR("small"), NULL, 0, w.a, &v, NULL), 0);
    off_t off = v.off + 300;
    unsigned segment = (unsigned)v.segment;
    obucket_unref(b);
    world_again(&w, false); /* the segment is closed */
    assert_int_equal(nftw(w.drives[1], find_shard, 16, FTW_PHYS), 0);
    AUTO_FD fd = open(shard_path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "xxxx", 4, 100000), 4);
    char seg[192];
    (void)snprintf(seg, sizeof(seg), "%s/log/seg-%016x", w.drives[0], segment);
    change_log(&w, access(seg, F_OK) == 0 ? 0 : 1, segment, off); /* two of three have a copy */
    char orphan[256];
    (void)snprintf(orphan, sizeof(orphan), "%.*s/00112233445566778899aabbccddeeff.0",
                   (int)(strrchr(shard_path, '/') - shard_path - 3), shard_path);
    char dir[256];
    (void)snprintf(dir, sizeof(dir), "%.*s/00",
                   (int)(strrchr(shard_path, '/') - shard_path - 3), shard_path);
    (void)mkdir(dir, 0700);
    (void)snprintf(orphan, sizeof(orphan), "%.200s/00112233445566778899aabbccddeeff.0", dir);
    AUTO_FD o = open(orphan, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(o >= 0);
    struct ostore_scrub st;
    wait_for_scrub(&w, &st);
    assert_true(st.n_bad >= 2);
    assert_true(st.n_repaired >= 2);
    assert_int_equal(st.n_lost, 0);
    assert_int_equal(st.n_orphans, 1);
    assert_true(access(orphan, F_OK) < 0);
    wait_for_scrub(&w, &st);
    assert_int_equal(st.n_bad, 0);
    b = world_bucket(&w, "films");
    world_assert_body(&w, b, STR("small"), NULL, world_bytes(&w, 9000, 1));
    world_assert_body(&w, b, STR("large"), NULL, world_bytes(&w, 700000, 2));
    obucket_unref(b);
    world_done(&w);
}

/* --- keys --- */

static int fetch(void *ctx, struct secret *ret, struct err *err)
{
    static const char root[KEYS_ROOT_SIZE] = "the root key of a test, 32 bytes";
    if (*(bool *)ctx) {
        return fail(err, -EACCES, "Locked", "not yet");
    }
    return secret_set(ret, str_n(root, sizeof(root)));
}

static void sealed_bodies_need_their_key(void **state)
{
    static const struct keys_provider provider = {.name = "test", .fetch = fetch};
    bool is_locked = false;
    struct world w;
    world_init(&w, 1, 0);
    w.o.inline_max = 16384;
    w.o.is_sealing = true;
    assert_int_equal(keys_open(&provider, &is_locked, &w.o.keys, NULL), 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    assert_ok(&w, world_put(&w, b, STR("small"), world_bytes(&w, 9000, 1), NULL));
    assert_ok(&w, world_put(&w, b, STR("large"), world_bytes(&w, 100000, 2), NULL));
    world_assert_body(&w, b, STR("small"), NULL, world_bytes(&w, 9000, 1));
    obucket_unref(b);
    world_close(&w);
    is_locked = true;
    keys_lock(w.o.keys);
    world_open(&w);
    struct ostore_stats st;
    ostore_stats(w.s, &st);
    assert_true(st.is_locked);
    b = world_bucket(&w, "films");
    struct str got;
    assert_int_equal(world_read(&w, b, STR("small"), NULL, &got, NULL), -EACCES);
    assert_int_equal(world_put(&w, b, STR("new"), world_bytes(&w, 10, 1), NULL), -EACCES);
    assert_int_equal(ostore_unlock(w.s, NULL), -EACCES);
    is_locked = false;
    assert_ok(&w, ostore_unlock(w.s, &w.err));
    world_assert_body(&w, b, STR("small"), NULL, world_bytes(&w, 9000, 1));
    world_assert_body(&w, b, STR("large"), NULL, world_bytes(&w, 100000, 2));
    assert_ok(&w, world_put(&w, b, STR("new"), world_bytes(&w, 10, 1), NULL));
    obucket_unref(b);
    struct keys *k = w.o.keys;
    world_done(&w);
    keys_close(k);
}

/* --- buckets --- */

static void buckets_come_and_go(void **state)
{
    struct world w;
    world_init(&w, 1, 0);
    world_open(&w);
    const struct obucket *b = world_bucket(&w, "films");
    assert_int_equal(
        ostore_bucket_create(w.s, STR("films"), STR("111122223333"), STR("r"), &w.err),
        -EEXIST);
    assert_string_equal(w.err.name, "BucketAlreadyOwnedByYou");
    err_clear(&w.err);
    assert_int_equal(
        ostore_bucket_create(w.s, STR("films"), STR("444455556666"), STR("r"), &w.err),
        -EEXIST);
    assert_string_equal(w.err.name, "BucketAlreadyExists");
    assert_ok(
        &w, ostore_bucket_configure(w.s, STR("films"), 0, OCONF_CORS, STR("<CORS/>"), &w.err));
    const struct obucket *now = world_bucket(&w, "films");
    assert_str(now->conf[OCONF_CORS], "<CORS/>");
    assert_false(b->conf[OCONF_CORS].p != NULL); /* a moment of before */
    obucket_unref(now);
    assert_ok(&w, ostore_bucket_configure(w.s, STR("films"), 0, OCONF_CORS, STR_NONE, &w.err));
    assert_ok(&w, ostore_bucket_configure(w.s, STR("films"), 0, OCONF_TAGS, STR("t"), &w.err));
    obucket_unref(b);
    world_again(&w, true);
    b = world_bucket(&w, "films");
    assert_false(b->conf[OCONF_CORS].p != NULL);
    assert_str(b->conf[OCONF_TAGS], "t");
    assert_ok(&w, world_put(&w, b, STR("k"), world_bytes(&w, 10, 1), NULL));
    err_clear(&w.err);
    assert_int_equal(ostore_bucket_delete(w.s, STR("films"), 0, &w.err), -ENOTEMPTY);
    assert_string_equal(w.err.name, "BucketNotEmpty");
    assert_ok(&w, world_delete(&w, b, STR("k"), NULL, NULL));
    struct ochange c = {.kind = OCHANGE_UPLOAD, .bucket = b, .cond = OCHANGE_IF_NONE};
    c.rec.key = STR("never completed");
    assert_int_equal(ochange_wait(w.s, &c), 0);
    err_clear(&w.err);
    assert_ok(&w, ostore_bucket_delete(w.s, STR("films"), 0, &w.err));
    /* Who still holds it can put nothing into it, also not into another of the same name. */
    obucket_unref(world_bucket(&w, "films"));
    assert_int_equal(world_put(&w, b, STR("k"), world_bytes(&w, 10, 1), NULL), -ENOENT);
    assert_string_equal(w.err.name, "NoSuchBucket");
    obucket_unref(b);
    world_again(&w, true);
    b = world_bucket(&w, "films");
    assert_int_equal(b->n_objects, 0);
    assert_false(b->conf[OCONF_TAGS].p != NULL);
    obucket_unref(b);
    for (int i = 0; i < 5; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "b-%d", i);
        obucket_unref(world_bucket(&w, name));
    }
    struct obucket_list l;
    assert_ok(&w, ostore_bucket_list(w.s, STR("111122223333"), STR("b-"), STR("b-1"), 2, w.a,
                                     &l, &w.err));
    assert_int_equal(l.n, 2);
    assert_true(l.is_truncated);
    assert_str(l.v[0]->name, "b-2");
    obucket_unref(l.v[0]);
    obucket_unref(l.v[1]);
    world_done(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_large_bodies),
        cmocka_unit_test(buckets_come_and_go),
        cmocka_unit_test(one_of_many_creates_wins),
        cmocka_unit_test(readers_keep_what_they_read),
        cmocka_unit_test(a_slow_reader_stalls_nothing),
        cmocka_unit_test(a_list_of_many_parts_is_small),
        cmocka_unit_test(space_of_the_dead_comes_back),
        cmocka_unit_test(a_tombstone_is_about_its_version_only),
        cmocka_unit_test(a_damaged_log_is_read_only_and_says_why),
        cmocka_unit_test(scrub_repairs_and_sweeps),
        cmocka_unit_test(sealed_bodies_need_their_key),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
