#include "blk/blk_cow.h"

#include "blk/blk_cow_world.h"
#include <pthread.h>

#define MIB (UINT64_C(1) << 20)

static char *alloc_image(uint64_t size)
{
    char *p = aligned_alloc(BLK_PAGE, size);
    assert_non_null(p);
    memset(p, 0, size);
    return p;
}

/* ---- kinds of volumes, one story each ---- */

static const struct kind {
    const char *name;
    uint64_t size, source_size;
    bool is_encrypted, has_base;
} kinds[] = {
    {"plain", 12 * MIB, 0, false, false},
    {"encrypted", 12 * MIB, 0, true, false},
    {"of a snapshot", 12 * MIB, 12 * MIB, false, false},
    {"of a smaller snapshot", 12 * MIB, 7 * MIB + BLK_PAGE, false, false},
    {"of a snapshot, encrypted", 12 * MIB, 9 * MIB, true, false},
    {"of a base", 12 * MIB, 8 * MIB, false, true},
    {"of a base, encrypted", 12 * MIB, 8 * MIB + 2 * BLK_PAGE, true, true},
    {"whose last block is short", 5 * MIB + 3 * BLK_PAGE, 5 * MIB + 3 * BLK_PAGE, false, false},
};

static void make(struct cow_world *c, const struct kind *k)
{
    memset(c, 0, sizeof(*c));
    c->size = k->size;
    c->source_size = k->source_size;
    c->is_encrypted = k->is_encrypted;
    c->has_base = k->has_base;
    cw_init(c);
}

/* Half of the base is there from the start, the rest is asked for and put into the volume. */
static void make_base(struct cow_world *c)
{
    if (!c->has_base) {
        return;
    }
    static char buf[BLK_BLOCK] __attribute__((aligned(4096)));
    struct base_map *bm = NULL;
    assert_int_equal(base_map_open(c->base_map_fd, true, &bm, NULL), 0);
    for (uint64_t b = 0; b < map_n_blocks(c->source_size); b += 2) {
        cw_source(b * BLK_BLOCK, buf, BLK_BLOCK, c->source_size);
        uint64_t n = MIN(c->source_size - b * BLK_BLOCK, BLK_BLOCK);
        assert_int_equal(pwrite(c->base_fd, buf, n, (off_t)(b * BLK_BLOCK)), (ssize_t)n);
        assert_int_equal(fdatasync(c->base_fd), 0);
        assert_int_equal(base_map_set(bm, b, NULL), 0);
    }
    base_map_close(bm);
}

static void random_op(struct cow_world *c, char *want, uint64_t *seed)
{
    static char buf[1u << 20];
    uint64_t unit = cw_rand(seed) % 3 == 0 ? BLK_SECTOR : BLK_PAGE;
    uint64_t max = cw_rand(seed) % 8 == 0 ? sizeof(buf) / unit : 24;
    uint64_t len = (1 + cw_rand(seed) % max) * unit;
    len = MIN(len, sizeof(buf));
    uint64_t off = cw_rand(seed) % ((c->size - len) / unit + 1) * unit;
    uint64_t lo = (off + BLK_PAGE - 1) / BLK_PAGE * BLK_PAGE,
             hi = (off + len) / BLK_PAGE * BLK_PAGE;
    unsigned fua = cw_rand(seed) % 16 == 0 ? BLK_FUA : 0;
    switch (cw_rand(seed) % 12) {
    case 0:
        assert_int_equal(cw_io(c, BLK_DISCARD, 0, off, NULL, len), 0);
        if (lo < hi) {
            memset(want + lo, 0, hi - lo);
        }
        break;
    case 1:
        assert_int_equal(
            cw_io(c, BLK_ZEROES, fua | (cw_rand(seed) % 2 ? BLK_NO_UNMAP : 0), off, NULL, len),
            0);
        memset(want + off, 0, len);
        break;
    case 2: assert_int_equal(cw_flush(c), 0); break;
    case 3:
    case 4:
    case 5:
        assert_int_equal(cw_read(c, off, buf, len), 0);
        assert_memory_equal(buf, want + off, len);
        break;
    default:
        cw_fill_bytes(buf, len, cw_rand(seed));
        assert_int_equal(cw_io(c, BLK_WRITE, fua, off, buf, len), 0);
        memcpy(want + off, buf, len);
        break;
    }
}

static void story(const struct kind *k, uint64_t seed)
{
    struct cow_world c;
    make(&c, k);
    make_base(&c);
    char *want = alloc_image(c.size);
    cw_source(0, want, c.size, c.source_size);
    for (unsigned turn = 0; turn < 4; turn++) {
        for (unsigned i = 0; i < 60; i++) {
            random_op(&c, want, &seed);
        }
        if (turn == 0) {
            cw_kill(&c);
        } else if (turn == 1) {
            cw_reopen(&c);
        } else if (turn == 2) {
            assert_int_equal(cw_flush(&c), 0);
            cw_reboot(&c);
        }
        cw_same(&c, want, k->name);
    }
    cw_stop(&c);
    cw_done(&c);
    free(want);
}

static void every_kind_of_volume_reads_what_was_written(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        story(&kinds[i], 77 + i);
    }
}

/* ---- misses ---- */

static void reads_of_one_block_cause_one_miss(void **state)
{
    struct cow_world c;
    make(&c, &kinds[2]);
    c.is_want_held = true;
    static char buf[8][64 << 10], want[BLK_BLOCK];
    struct world_io io[8];
    for (unsigned i = 0; i < 8; i++) {
        world_start(&c.w, &io[i], BLK_READ, 0, i * sizeof(buf[0]), buf[i], sizeof(buf[0]));
    }
    cw_settle(&c);
    assert_int_equal(c.n_asked, 1);
    c.is_want_held = false;
    cw_source(0, want, sizeof(want), c.source_size);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(cw_wait(&c, &io[i]), 0);
        assert_memory_equal(buf[i], want + i * sizeof(buf[0]), sizeof(buf[0]));
    }
    assert_int_equal(c.n_asked, 1);
    cw_done(&c);
}

static void no_more_is_asked_for_at_once_than_allowed(void **state)
{
    struct cow_world c;
    struct kind k = kinds[2];
    k.size = k.source_size = 24 * MIB;
    make(&c, &k);
    c.is_want_held = true;
    static char buf[40][BLK_PAGE];
    struct world_io io[40];
    for (unsigned i = 0; i < 40; i++) {
        world_start(&c.w, &io[i], BLK_READ, 0, i * BLK_BLOCK, buf[i], BLK_PAGE);
    }
    cw_settle(&c);
    assert_int_equal(c.n_wants, BLK_MAX_WANTED);
    c.is_want_held = false;
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(cw_wait(&c, &io[i]), 0);
    }
    assert_int_equal(c.n_asked, 40);
    cw_done(&c);
}

static void absent_for_good_is_an_error_and_away_waits(void **state)
{
    struct cow_world c;
    make(&c, &kinds[2]);
    static char buf[BLK_PAGE], want[BLK_PAGE];
    c.want_rc = -EIO;
    memset(buf, 7, sizeof(buf));
    assert_int_equal(cw_read(&c, BLK_PAGE, buf, sizeof(buf)), -EIO);
    assert_int_equal(cw_io(&c, BLK_WRITE, 0, 512, buf, 512), -EIO); /* needs the page's rest */
    assert_int_equal(cw_write(&c, 8 * BLK_PAGE, buf, sizeof(buf)), 0); /* needs nothing */
    c.want_rc = -EAGAIN;
    struct world_io io;
    world_start(&c.w, &io, BLK_READ, 0, BLK_PAGE, buf, sizeof(buf));
    uint64_t end = time_mono_ns() + NS_PER_S;
    while (time_mono_ns() < end) {
        cw_turn(&c, 10 * NS_PER_MS);
    }
    assert_false(io.is_done);
    assert_in_range(c.n_asked, 2, 6); /* not for ever in a circle */
    c.want_rc = 0;
    assert_int_equal(cw_wait(&c, &io), 0);
    cw_source_page(1, want);
    assert_memory_equal(buf, want, sizeof(want));
    cw_done(&c);
}

/* C4: what the guest does while the block is fetched wins. */
static void a_guest_wins_over_the_fill(void **state)
{
    for (unsigned enc = 0; enc < 2; enc++) {
        struct cow_world c;
        make(&c, &kinds[enc ? 4 : 2]);
        static char mine[4 * BLK_PAGE], got[BLK_BLOCK], want[BLK_BLOCK];
        cw_source(0, want, sizeof(want), c.source_size);
        c.is_want_held = true;
        struct world_io rd;
        world_start(&c.w, &rd, BLK_READ, 0, 100 * BLK_PAGE, got, BLK_PAGE);
        cw_settle(&c);
        assert_int_equal(c.n_wants, 1);
        cw_fill_bytes(mine, sizeof(mine), 5);
        assert_int_equal(cw_write(&c, 8 * BLK_PAGE, mine, sizeof(mine)), 0);
        memcpy(want + 8 * BLK_PAGE, mine, sizeof(mine));
        assert_int_equal(cw_io(&c, BLK_DISCARD, 0, 20 * BLK_PAGE, NULL, 5 * BLK_PAGE), 0);
        memset(want + 20 * BLK_PAGE, 0, 5 * BLK_PAGE);
        c.is_want_held = false;
        assert_int_equal(cw_wait(&c, &rd), 0);
        assert_int_equal(cw_read(&c, 0, got, sizeof(got)), 0);
        assert_memory_equal(got, want, sizeof(want));
        cw_done(&c);
    }
}

static void the_filler_makes_everything_present_and_no_zeros_of_it(void **state)
{
    for (unsigned i = 2; i < ARRAY_LEN(kinds); i++) {
        struct cow_world c;
        make(&c, &kinds[i]);
        make_base(&c);
        char *want = alloc_image(c.size);
        cw_source(0, want, c.size, c.source_size);
        static char mine[3 * BLK_PAGE];
        cw_fill_bytes(mine, sizeof(mine), i);
        assert_int_equal(cw_write(&c, MIB, mine, sizeof(mine)), 0);
        memcpy(want + MIB, mine, sizeof(mine));
        blk_cow_fill(c.w.top, 400 * MIB);
        struct blk_cow_stats st;
        uint64_t end = time_mono_ns() + 20 * NS_PER_S;
        do {
            cw_turn(&c, 10 * NS_PER_MS);
            blk_cow_stats(c.w.top, &st);
            assert_true(time_mono_ns() < end);
        } while (st.n_absent_pages > 0);
        c.want_rc = -EIO; /* the source is gone */
        c.n_asked = 0;
        assert_int_equal(cw_flush(&c), 0);
        cw_reboot(&c);
        cw_same(&c, want, kinds[i].name);
        assert_int_equal(c.n_asked, 0);
        /* Not dirty by having been filled: only what was written. */
        blk_cow_stats(c.w.top, &st);
        assert_int_equal(st.n_absent_pages, 0);
        cw_done(&c);
        free(want);
    }
}

/* ---- guests on queues of their own, while the source arrives ---- */

#define GUESTS 2u
#define ROUNDS 250u

struct guest {
    pthread_t thread;
    struct blk_queue *q;
    struct cow_world *c;
    char *want; /* of all; a guest changes its own pages only */
    unsigned no;
    uint64_t seed;
    _Atomic bool is_done;
    const char *failed;
};

static int guest_io(struct guest *g, enum blk_op op, uint64_t page, void *buf, uint64_t n)
{
    struct world_io io = {.iov = {{buf, n * BLK_PAGE}}};
    struct blk_req *r = blk_req_get(g->q);
    r->op = op;
    r->flags = 0;
    r->off = page * BLK_PAGE;
    r->len = n * BLK_PAGE;
    r->iov = io.iov;
    r->n_iov = buf ? 1 : 0;
    r->done = world_done;
    r->ctx = &io;
    blk_submit(g->c->w.top, r);
    while (!io.is_done) {
        (void)blk_queue_run(g->q, 10 * NS_PER_MS);
    }
    return io.rc;
}

/* Groups of 3 pages belong to the guests in turn, so that every block is everybody's. */
static void *guest_main(void *arg)
{
    struct guest *g = arg;
    char *buf = aligned_alloc(BLK_PAGE, 3 * BLK_PAGE);
    uint64_t n_groups = g->c->size / BLK_PAGE / 3 / GUESTS;
    for (unsigned i = 0; buf && i < ROUNDS && !g->failed; i++) {
        uint64_t page = (cw_rand(&g->seed) % n_groups * GUESTS + g->no) * 3;
        uint64_t what = cw_rand(&g->seed) % 8, n = 1 + cw_rand(&g->seed) % 3;
        char *want = g->want + page * BLK_PAGE;
        if (what == 0) {
            g->failed = guest_io(g, BLK_DISCARD, page, NULL, n) ? "discard" : NULL;
            memset(want, 0, n * BLK_PAGE);
        } else if (what < 5) {
            cw_fill_bytes(buf, n * BLK_PAGE, cw_rand(&g->seed));
            g->failed = guest_io(g, BLK_WRITE, page, buf, n) ? "write" : NULL;
            memcpy(want, buf, n * BLK_PAGE);
        } else if (guest_io(g, BLK_READ, page, buf, n)) {
            g->failed = "read";
        } else if (memcmp(buf, want, n * BLK_PAGE) != 0) {
            g->failed = "bytes";
        }
    }
    free(buf);
    atomic_store(&g->is_done, true);
    return NULL;
}

static void guests_race_with_hydration(void **state)
{
    static const unsigned which[] = {2, 4, 6};
    for (size_t i = 0; i < ARRAY_LEN(which); i++) {
        struct cow_world c;
        make(&c, &kinds[which[i]]);
        make_base(&c);
        char *want = alloc_image(c.size);
        cw_source(0, want, c.size, c.source_size);
        struct guest g[GUESTS];
        blk_cow_fill(c.w.top, 60 * MIB);
        for (unsigned k = 0; k < GUESTS; k++) {
            g[k] = (struct guest){.c = &c, .want = want, .no = k, .seed = 99 + k + i * 8};
            assert_int_equal(blk_queue_new(&(struct blk_queue_opts){0}, &g[k].q, NULL), 0);
            assert_int_equal(pthread_create(&g[k].thread, NULL, guest_main, &g[k]), 0);
        }
        for (unsigned k = 0; k < GUESTS; k++) {
            while (!atomic_load(&g[k].is_done)) {
                cw_turn(&c, NS_PER_MS);
            }
            assert_int_equal(pthread_join(g[k].thread, NULL), 0);
            if (g[k].failed) {
                fail_msg("%s: guest %u: %s", kinds[which[i]].name, k, g[k].failed);
            }
        }
        cw_same(&c, want, kinds[which[i]].name);
        cw_kill(&c);
        cw_same(&c, want, kinds[which[i]].name);
        for (unsigned k = 0; k < GUESTS; k++) {
            blk_queue_free(g[k].q);
        }
        cw_done(&c);
        free(want);
    }
}

/* ---- maps ---- */

static void discarded_pages_of_an_encrypted_volume_read_as_zeros(void **state)
{
    struct cow_world c;
    make(&c, &kinds[1]);
    static char buf[64 << 10], zeros[64 << 10];
    memset(buf, 1, sizeof(buf));
    assert_int_equal(cw_read(&c, 0, buf, sizeof(buf)), 0);
    assert_memory_equal(buf, zeros, sizeof(buf)); /* never written */
    memset(buf, 1, sizeof(buf));
    assert_int_equal(cw_write(&c, 0, buf, sizeof(buf)), 0);
    assert_int_equal(cw_flush(&c), 0);
    assert_int_equal(cw_io(&c, BLK_DISCARD, 0, 0, NULL, sizeof(buf)), 0);
    struct stat st;
    assert_int_equal(fstat(c.data_fd, &st), 0);
    assert_int_equal(st.st_blocks, 0); /* and the space is free */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(cw_read(&c, 0, buf, sizeof(buf)), 0);
        assert_memory_equal(buf, zeros, sizeof(buf));
        if (i == 0) {
            cw_kill(&c);
        } else {
            cw_reboot(&c);
        }
    }
    cw_done(&c);
}

/* C2, and that a clean stop keeps dirt as it is. */
static void an_unclean_stop_makes_touched_regions_dirty(void **state)
{
    struct cow_world c = {.size = 300 * MIB};
    cw_init(&c);
    static char buf[BLK_PAGE] = {1};
    struct blk_cow_stats st;
    assert_int_equal(cw_write(&c, 70 * MIB, buf, sizeof(buf)), 0);
    assert_int_equal(cw_write(&c, 80 * MIB, buf, sizeof(buf)), 0);
    blk_cow_stats(c.w.top, &st);
    assert_int_equal(st.n_dirty_blocks, 2);
    cw_kill(&c);
    blk_cow_stats(c.w.top, &st);
    assert_int_equal(st.n_dirty_blocks, 2); /* C5 */
    cw_reopen(&c);
    blk_cow_stats(c.w.top, &st);
    assert_int_equal(st.n_dirty_blocks, 2);
    cw_reboot(&c);
    uint64_t len;
    bool is_zero, is_dirty;
    for (uint64_t off = 0; off < c.size; off += BLK_BLOCK) {
        blk_cow_extent(c.w.top, off, BLK_BLOCK, &len, &is_zero, &is_dirty);
        assert_int_equal(is_dirty, off >= 64 * MIB && off < 128 * MIB);
    }
    cw_reopen(&c); /* and a clean stop after it does not forget them */
    blk_cow_extent(c.w.top, 65 * MIB, BLK_BLOCK, &len, &is_zero, &is_dirty);
    assert_true(is_dirty);
    cw_done(&c);
}

static void writes_that_change_no_mark_leave_the_map_alone(void **state)
{
    for (size_t i = 0; i < 3; i++) {
        struct cow_world c;
        make(&c, &kinds[i]);
        static char buf[BLK_PAGE] = {2};
        assert_int_equal(cw_write(&c, MIB, buf, sizeof(buf)), 0);
        assert_int_equal(cw_flush(&c), 0);
        uint64_t seq = c.l->m->seq;
        for (unsigned n = 0; n < 10; n++) {
            assert_int_equal(cw_write(&c, MIB, buf, sizeof(buf)), 0);
            assert_int_equal(cw_flush(&c), 0);
        }
        assert_int_equal(c.l->m->seq, seq);
        cw_done(&c);
    }
}

static void closing_before_a_flush_is_told_and_loses_nothing(void **state)
{
    struct cow_world c;
    make(&c, &kinds[2]);
    static char buf[BLK_PAGE] = {3}, got[BLK_PAGE];
    struct err err = ERR_INIT;
    assert_int_equal(cw_write(&c, MIB, buf, sizeof(buf)), 0);
    assert_int_equal(blk_cow_close(c.w.top, &err), -EBUSY);
    assert_string_equal(err.name, "NotFlushed");
    blk_stack_free(c.w.top);
    c.w.top = NULL;
    cw_close_files(&c);
    cw_open_files(&c, c.dir.path);
    cw_open(&c);
    assert_int_equal(cw_read(&c, MIB, got, sizeof(got)), 0);
    assert_memory_equal(got, buf, sizeof(got));
    cw_done(&c);
}

static void a_volume_grows_under_writes_and_over_a_restart(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct cow_world c;
        make(&c, &kinds[i]);
        static char buf[2 * BLK_PAGE], got[2 * BLK_PAGE], zeros[2 * BLK_PAGE];
        uint64_t was = c.size;
        cw_fill_bytes(buf, sizeof(buf), i);
        assert_int_equal(cw_write(&c, was - sizeof(buf), buf, sizeof(buf)), 0);
        assert_int_equal(cw_write(&c, was, buf, sizeof(buf)), -EINVAL);
        c.size = was + 70 * MIB;
        assert_int_equal(ftruncate(c.data_fd, (off_t)c.size), 0);
        struct blk_layer *file = c.w.top->below;
        if (c.is_encrypted) {
            __atomic_store_n(&file->size, c.size, __ATOMIC_RELEASE);
            file = file->below;
        }
        blk_file_grow(file, c.size);
        assert_int_equal(blk_map_grow(c.w.top, c.size, NULL), 0);
        assert_int_equal(cw_read(&c, was, got, sizeof(got)), 0);
        assert_memory_equal(got, zeros, sizeof(got));
        assert_int_equal(cw_write(&c, c.size - sizeof(buf), buf, sizeof(buf)), 0);
        assert_int_equal(cw_flush(&c), 0);
        for (unsigned n = 0; n < 3; n++) {
            assert_int_equal(cw_read(&c, c.size - sizeof(buf), got, sizeof(got)), 0);
            assert_memory_equal(got, buf, sizeof(got));
            assert_int_equal(cw_read(&c, was - sizeof(buf), got, sizeof(got)), 0);
            assert_memory_equal(got, buf, sizeof(got));
            if (n == 0) {
                cw_reboot(&c);
            } else {
                cw_reopen(&c);
            }
        }
        cw_done(&c);
    }
}

static void a_map_in_use_is_not_opened_twice(void **state)
{
    struct cow_world c;
    make(&c, &kinds[0]);
    char path[PATH_MAX];
    int map = c.map_fd, run = c.run_fd;
    struct blk_layer *top = c.w.top;
    c.map_fd = open(tmpdir_path(&c.dir, "map", path), O_RDWR | O_CLOEXEC);
    struct err err = ERR_INIT;
    assert_int_equal(cw_try_open(&c, &err), -EBUSY);
    assert_string_equal(err.name, "VolumeInUse");
    close(c.map_fd);
    c.map_fd = map;
    c.run_fd = run;
    c.w.top = top;
    cw_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_volume_reads_what_was_written),
        cmocka_unit_test(reads_of_one_block_cause_one_miss),
        cmocka_unit_test(no_more_is_asked_for_at_once_than_allowed),
        cmocka_unit_test(absent_for_good_is_an_error_and_away_waits),
        cmocka_unit_test(a_guest_wins_over_the_fill),
        cmocka_unit_test(the_filler_makes_everything_present_and_no_zeros_of_it),
        cmocka_unit_test(guests_race_with_hydration),
        cmocka_unit_test(discarded_pages_of_an_encrypted_volume_read_as_zeros),
        cmocka_unit_test(an_unclean_stop_makes_touched_regions_dirty),
        cmocka_unit_test(writes_that_change_no_mark_leave_the_map_alone),
        cmocka_unit_test(closing_before_a_flush_is_told_and_loses_nothing),
        cmocka_unit_test(a_volume_grows_under_writes_and_over_a_restart),
        cmocka_unit_test(a_map_in_use_is_not_opened_twice),
    };
    (void)setenv("TMPDIR", "/dev/shm", 0); /* what a disk costs is not looked at here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
