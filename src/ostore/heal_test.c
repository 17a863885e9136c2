#include "ostore/heal_int.h"
#include "ostore/shard_world.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define UNIT     (64u << 10)
#define N_BODIES 24

/* A store of bodies in a table; the cursor is a place in it. */
struct store {
    struct world *w;
    struct heal_opts o;
    struct heal *heal;
    struct orec_body v[N_BODIES];
    size_t size[N_BODIES];
    atomic_uint n_next, n_base, n_lost, n_moved, n_base_fails;
    int gone; /* this body is deleted when it is to be moved; -1: none */
};

static int do_base(void *ctx, uint32_t which, struct err *err)
{
    struct store *st = ctx;
    atomic_fetch_add(&st->n_base, 1);
    if (atomic_load(&st->n_base_fails) > 0) {
        atomic_fetch_sub(&st->n_base_fails, 1);
        return (fail)(err, -EIO, "LogFailed", "not today");
    }
    return 0;
}

static int do_next(void *ctx, struct heal_cursor *io, struct arena *a, struct heal_body *ret,
                   struct err *err)
{
    struct store *st = ctx;
    unsigned at = io->n ? io->p[0] + 1u : 0;
    if (at == N_BODIES) {
        return 0;
    }
    atomic_fetch_add(&st->n_next, 1);
    *ret = (struct heal_body){
        .body = st->v[at], .lsn = at + 1, .name = arena_fmt(a, "bucket/key-%u", at)};
    io->n = 1;
    io->p[0] = (uint8_t)at;
    return 1;
}

static int do_moved(void *ctx, const struct heal_body *b, struct err *err)
{
    struct store *st = ctx;
    size_t at = (size_t)b->lsn - 1;
    if ((int)at == st->gone) {
        return -ENOENT;
    }
    memcpy(st->v[at].drive, b->body.drive, sizeof(b->body.drive));
    atomic_fetch_add(&st->n_moved, 1);
    return 0;
}

static void do_lost(void *ctx, const struct heal_body *b, const struct err *err)
{
    struct store *st = ctx;
    assert_string_equal(err->name, "BodyLost");
    assert_string_equal(b->name.p, "bucket/key-3");
    atomic_fetch_add(&st->n_lost, 1);
}

static void store_fill(struct store *st, struct world *w, unsigned k, unsigned m)
{
    memset(st, 0, sizeof(*st));
    st->w = w;
    st->gone = -1;
    for (unsigned i = 0; i < N_BODIES; i++) {
        struct body_codec c;
        st->size[i] = i == 5 ? 0 : 1 + i * 29989;
        world_put(w, k, m, UNIT, st->size[i], i, 0, &st->v[i], &c);
        body_codec_done(&c);
    }
}

static void store_start(struct store *st, uint64_t rate)
{
    st->o = (struct heal_opts){.shards = st->w->shards,
                               .bytes_per_s = rate,
                               .retry_ns = 50 * NS_PER_MS,
                               .move_after_ns = st->o.move_after_ns,
                               .ctx = st,
                               .base = do_base,
                               .next = do_next,
                               .moved = do_moved,
                               .lost = do_lost};
    assert_int_equal(heal_start(&st->o, &st->heal, NULL), 0);
    atomic_store(&st->w->heal, st->heal);
}

static void store_stop(struct store *st)
{
    atomic_store(&st->w->heal, NULL);
    heal_stop(st->heal);
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){0, 5 * 1000000L}, NULL);
}

#define wait_until(cond)                                  \
    do {                                                  \
        uint64_t until_ = time_mono_ns() + 20 * NS_PER_S; \
        while (!(cond) && time_mono_ns() < until_) {      \
            nap();                                        \
        }                                                 \
        assert_true(cond);                                \
    } while (0)

static unsigned n_bad(struct store *st)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N_BODIES; i++) {
        struct shard_verify v = {0};
        int r = shard_verify(st->w->shards, &st->v[i], 0, &v, NULL, NULL);
        n += r < 0 ? 100 : (unsigned)v.n_bad;
    }
    return n;
}

static int remove_one(const char *path, const struct stat *s, int flag, struct FTW *ftw)
{
    return remove(path);
}

/* The drive's folder is a new, empty one; the store is open again without it. */
static void swap_drive(struct world *w, unsigned idx, struct fault_fs *fs)
{
    world_down(w);
    assert_int_equal(nftw(w->path[idx], remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    assert_int_equal(mkdir(w->path[idx], 0700), 0);
    world_up(w, fs);
    assert_int_equal(drives_state(w->drives, idx), DRIVE_MISSING);
}

static bool has_place(struct world *w, unsigned idx)
{
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/heal.json", w->path[idx]);
    return access(path, F_OK) == 0;
}

static void test_replaced(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    static struct store st;
    store_fill(&st, w, 2, 1);
    swap_drive(w, 1, NULL);
    store_start(&st, 1 << 30);
    nap();
    assert_int_equal(drives_state(w->drives, 1), DRIVE_MISSING); /* not by itself */
    assert_int_equal(drives_replace(w->drives, 1, NULL), 0);
    heal_wake(st.heal);
    wait_until(drives_state(w->drives, 1) == DRIVE_OK);
    struct heal_status s;
    heal_status(st.heal, &s);
    assert_int_equal(s.n_rebuilt, N_BODIES);
    assert_int_equal(s.healing, 0);
    assert_int_equal(atomic_load(&st.n_base), 2);
    assert_int_equal(atomic_load(&st.n_moved), 0);
    assert_int_equal(n_bad(&st), 0);
    assert_int_equal(world_n_files(w), 3 * N_BODIES);
    assert_false(has_place(w, 1));
    store_stop(&st);
    assert_int_equal(atomic_load(&w->bad), 0); /* what is not healed yet is not "bad" */
    world_free(w);
}

/* Stopped in the middle: the next start goes on there. Bodies are read right all the time. */
static void test_goes_on(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    static struct store st;
    store_fill(&st, w, 2, 1);
    swap_drive(w, 2, NULL);
    assert_int_equal(drives_replace(w->drives, 2, NULL), 0);
    store_start(&st, 8 << 20); /* about 8 MiB: a second */
    wait_until(atomic_load(&st.n_next) > N_BODIES / 2);
    store_stop(&st);
    assert_true(has_place(w, 2));
    unsigned before = atomic_load(&st.n_next);
    assert_in_range(before, N_BODIES / 2, N_BODIES - 1);
    assert_int_equal(drives_state(w->drives, 2), DRIVE_HEALING);
    for (unsigned i = 0; i < N_BODIES; i++) {
        AUTO_FREE uint8_t *want = malloc(st.size[i] + 1);
        struct body_codec c;
        world_fill(want, st.size[i], i);
        assert_int_equal(body_codec_open(&c, NULL, &st.v[i], NULL), 0);
        assert_int_equal(world_read(w, &st.v[i], &c, want, st.size[i], 0, st.size[i]), 0);
        body_codec_done(&c);
    }
    world_down(w);
    world_up(w, NULL);
    assert_int_equal(drives_state(w->drives, 2), DRIVE_HEALING);
    store_start(&st, 1 << 30);
    wait_until(drives_state(w->drives, 2) == DRIVE_OK);
    assert_in_range(atomic_load(&st.n_next), N_BODIES, N_BODIES + 1); /* one may come twice */
    assert_int_equal(n_bad(&st), 0);
    store_stop(&st);
    world_free(w);
}

static void test_bad_are_repaired(void **state)
{
    struct world *w = world_new(6, NULL, 0);
    static struct store st;
    char path[192];
    store_fill(&st, w, 4, 2);
    store_start(&st, 1 << 30);
    for (unsigned i = 6; i < 12; i++) {
        world_flip(world_shard_path(w, &st.v[i], i % 2, path), 4096 + 17, 5);
        AUTO_FREE uint8_t *want = malloc(st.size[i]);
        struct body_codec c;
        world_fill(want, st.size[i], i);
        assert_int_equal(body_codec_open(&c, NULL, &st.v[i], NULL), 0);
        assert_int_equal(world_read(w, &st.v[i], &c, want, st.size[i], 0, st.size[i]), 0);
        body_codec_done(&c);
    }
    wait_until(n_bad(&st) == 0);
    store_stop(&st);
    world_free(w);
}

/* Too many at once: counted, the same body once only. */
static void test_queue_is_bounded(void **state)
{
    struct world *w = world_new(1, NULL, 0);
    static struct store st;
    store_fill(&st, w, 1, 0);
    store_start(&st, 1); /* a byte per second: nothing moves on */
    struct orec_body b = st.v[20];
    struct heal_status s;
    heal_note_bad(st.heal, &b, 1);
    wait_until((heal_status(st.heal, &s), s.n_queued == 0)); /* at work */
    for (unsigned i = 0; i < 3000; i++) {
        b.id[0] = (uint8_t)i;
        b.id[1] = (uint8_t)(i >> 8);
        heal_note_bad(st.heal, &b, 1);
        heal_note_bad(st.heal, &b, 1);
    }
    heal_status(st.heal, &s);
    assert_in_range(s.n_queued, 1, 1024);
    assert_true(s.n_dropped > 0);
    store_stop(&st);
    world_free(w);
}

static void test_lost(void **state)
{
    struct world *w = world_new(3, NULL, 0);
    static struct store st;
    char path[192];
    store_fill(&st, w, 2, 1);
    for (unsigned i = 0; i < 3;
         i++) { /* one of the two that the new drive's would be made of */
        if (st.v[3].drive[i] == 1) {
            assert_int_equal(unlink(world_shard_path(w, &st.v[3], i, path)), 0);
        }
    }
    swap_drive(w, 0, NULL);
    assert_int_equal(drives_replace(w->drives, 0, NULL), 0);
    store_start(&st, 1 << 30);
    wait_until(drives_state(w->drives, 0) == DRIVE_OK); /* the others are not kept from it */
    assert_int_equal(atomic_load(&st.n_lost), 1);
    struct heal_status s;
    heal_status(st.heal, &s);
    assert_int_equal(s.n_lost, 1);
    assert_int_equal(s.n_rebuilt, N_BODIES - 1);
    store_stop(&st);
    world_free(w);
}

static void test_base_fails(void **state)
{
    struct world *w = world_new(2, NULL, 0);
    static struct store st;
    store_fill(&st, w, 1, 1);
    swap_drive(w, 0, NULL);
    assert_int_equal(drives_replace(w->drives, 0, NULL), 0);
    atomic_store(&st.n_base_fails, 3);
    store_start(&st, 1 << 30);
    wait_until(drives_state(w->drives, 0) == DRIVE_OK);
    assert_int_equal(atomic_load(&st.n_base), 5);
    struct heal_status s;
    wait_until((heal_status(st.heal, &s), s.drive == DRIVES_MAX && !s.why[0]));
    store_stop(&st);
    world_free(w);
}

/* The new drive fails too: it is faulted, and healing lets go of it. */
static void test_drive_fails(void **state)
{
    struct world *w = world_new_door(3, 0);
    static struct store st;
    store_fill(&st, w, 2, 1);
    swap_drive(w, 0, &w->door.fs);
    assert_int_equal(drives_replace(w->drives, 0, NULL), 0);
    atomic_store(&w->door.code, -EIO);
    atomic_store(&w->door.ops, FAULT_BIT(FAULT_PWRITE));
    atomic_store(&w->door.n_to_pass, 5);
    atomic_store(&w->door.broken, 1);
    store_start(&st, 1 << 30);
    wait_until(drives_state(w->drives, 0) == DRIVE_FAULTED);
    struct heal_status s;
    wait_until((heal_status(st.heal, &s), s.drive == DRIVES_MAX && s.why[0]));
    assert_int_equal(s.healing, 0);
    atomic_store(&w->door.broken, 0);
    store_stop(&st);
    world_free(w);
}

/* A drive stays away: its shards are made on others, once; what was deleted meanwhile leaves
 * nothing. */
static void test_moved_off(void **state)
{
    struct world *w = world_new(5, NULL, 0);
    static struct store st;
    store_fill(&st, w, 2, 1);
    unsigned on_it[5] = {0};
    for (unsigned i = 0; i < N_BODIES; i++) {
        for (unsigned s = 0; s < 3; s++) {
            on_it[st.v[i].drive[s]]++;
        }
    }
    unsigned lost = on_it[0] > 1 ? 0 : 1;
    assert_true(on_it[lost] > 1);
    for (unsigned i = 0; i < N_BODIES && st.gone < 0; i++) {
        for (unsigned s = 0; s < 3; s++) {
            st.gone = st.v[i].drive[s] == lost ? (int)i : st.gone;
        }
    }
    drives_fault(w->drives, lost, -EIO, "test");
    st.o.move_after_ns = 300 * NS_PER_MS;
    store_start(&st, 1 << 30);
    struct heal_status s;
    wait_until((heal_status(st.heal, &s), s.n_moved == on_it[lost] - 1));
    wait_until((heal_status(st.heal, &s), s.drive == DRIVES_MAX));
    assert_int_equal(atomic_load(&st.n_moved), on_it[lost] - 1);
    assert_int_equal(n_bad(&st), 1); /* the one that "is gone", which has nothing new */
    assert_int_equal(world_n_files(w), 3 * N_BODIES + on_it[lost] - 1);
    unsigned n = atomic_load(&st.n_next);
    for (unsigned i = 0; i < 40; i++) {
        nap();
    }
    assert_int_equal(atomic_load(&st.n_next), n); /* not again and again */
    store_stop(&st);
    world_free(w);
}

static void test_place(void **state)
{
    const uint8_t id[16] = {1, 2, 3}, other[16] = {1, 2, 4};
    const size_t sizes[] = {0, 1, 77, HEAL_CURSOR_MAX};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        static struct heal_cursor c, got;
        AUTO_BUF text;
        buf_init(&text, 2 * HEAL_CURSOR_MAX + 256);
        c.n = sizes[i];
        world_fill(c.p, c.n, i);
        heal_place_encode(id, &c, &text);
        assert_true(buf_ok(&text));
        assert_int_equal(heal_place_decode(buf_str(&text), id, &got), 0);
        assert_int_equal(got.n, c.n);
        assert_memory_equal(got.p, c.p, c.n);
        assert_int_equal(heal_place_decode(buf_str(&text), other, &got), -EBADMSG);
        for (size_t at = 0; at + 1 < text.n; at += 1 + i * 5) {
            for (unsigned bit = 0; bit < 8; bit++) {
                text.p[at] = (char)(text.p[at] ^ (1 << bit));
                int r = heal_place_decode(buf_str(&text), id, &got);
                assert_true(r == -EBADMSG || (got.n == c.n && !memcmp(got.p, c.p, c.n)));
                text.p[at] = (char)(text.p[at] ^ (1 << bit));
            }
            assert_int_equal(heal_place_decode(str_n(text.p, at), id, &got), -EBADMSG);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_bad_are_repaired),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_base_fails),
        cmocka_unit_test(test_drive_fails),
        cmocka_unit_test(test_moved_off),
        cmocka_unit_test(test_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
