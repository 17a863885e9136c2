#include "blk/blk_cow.h"

#include "blk/blk_cow_world.h"
#include <pthread.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)

/* ---- one volume: images as they were at each snapshot ---- */

static const struct kind {
    const char *name;
    uint64_t size, source_size;
    bool is_encrypted, has_base;
} kinds[] = {
    {"plain", 6 * MIB, 0, false, false},
    {"encrypted", 6 * MIB, 0, true, false},
    {"of a snapshot", 6 * MIB, 4 * MIB, false, false},
    {"of a snapshot, encrypted", 5 * MIB + BLK_PAGE, 5 * MIB, true, false},
    {"of a base", 6 * MIB, 4 * MIB + 3 * BLK_PAGE, false, true},
};

struct story {
    struct cow_world c; /* first */
    const char *name;
    char *now, *parent;           /* bytes now; of the snapshot that dirt counts from */
    char *at[BLK_MAX_FROZEN];     /* as it was at the snapshot */
    char *before[BLK_MAX_FROZEN]; /* of its parent */
    uint64_t seed;
    unsigned n_snaps;
};

static char *copy_of(const char *p, uint64_t n)
{
    char *to = aligned_alloc(BLK_PAGE, (n + BLK_PAGE - 1) / BLK_PAGE * BLK_PAGE);
    assert_non_null(to);
    if (p) {
        memcpy(to, p, n);
    } else {
        memset(to, 0, n);
    }
    return to;
}

static void start(struct story *s, const struct kind *k, uint64_t seed)
{
    memset(s, 0, sizeof(*s));
    s->name = k->name;
    s->seed = seed;
    s->c.size = k->size;
    s->c.source_size = k->source_size;
    s->c.is_encrypted = k->is_encrypted;
    s->c.has_base = k->has_base;
    cw_init(&s->c);
    s->now = copy_of(NULL, s->c.size);
    cw_source(0, s->now, s->c.source_size, s->c.source_size);
    s->parent = copy_of(s->now, s->c.size); /* dirt counts from the source */
    if (!k->has_base) {
        return;
    }
    static char buf[BLK_BLOCK] __attribute__((aligned(4096)));
    struct base_map *bm = NULL;
    assert_int_equal(base_map_open(s->c.base_map_fd, true, &bm, NULL), 0);
    for (uint64_t b = 0; b < map_n_blocks(k->source_size); b += 2) {
        uint64_t n = MIN(k->source_size - b * BLK_BLOCK, BLK_BLOCK);
        cw_source(b * BLK_BLOCK, buf, BLK_BLOCK, k->source_size);
        assert_int_equal(pwrite(s->c.base_fd, buf, n, (off_t)(b * BLK_BLOCK)), (ssize_t)n);
        assert_int_equal(base_map_set(bm, b, NULL), 0);
    }
    base_map_close(bm);
}

static void end(struct story *s)
{
    cw_done(&s->c);
    free(s->now);
    free(s->parent);
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        free(s->at[k]);
        free(s->before[k]);
    }
}

static void change(struct story *s)
{
    static char buf[256 << 10] __attribute__((aligned(4096)));
    struct cow_world *c = &s->c;
    uint64_t unit = cw_rand(&s->seed) % 4 == 0 ? BLK_SECTOR : BLK_PAGE;
    uint64_t len =
        (1 + cw_rand(&s->seed) % (cw_rand(&s->seed) % 6 ? 8 : sizeof(buf) / unit)) * unit;
    uint64_t off = cw_rand(&s->seed) % ((c->size - len) / unit + 1) * unit;
    switch (cw_rand(&s->seed) % 10) {
    case 0:
        assert_int_equal(cw_io(c, BLK_ZEROES, 0, off, NULL, len), 0);
        memset(s->now + off, 0, len);
        break;
    case 1: {
        uint64_t lo = (off + BLK_PAGE - 1) / BLK_PAGE * BLK_PAGE;
        uint64_t hi = (off + len) / BLK_PAGE * BLK_PAGE;
        assert_int_equal(cw_io(c, BLK_DISCARD, 0, off, NULL, len), 0);
        if (lo < hi) {
            memset(s->now + lo, 0, hi - lo);
        }
        break;
    }
    case 2: assert_int_equal(cw_flush(c), 0); break;
    default:
        cw_fill_bytes(buf, len, cw_rand(&s->seed));
        assert_int_equal(cw_write(c, off, buf, len), 0);
        memcpy(s->now + off, buf, len);
        break;
    }
}

static unsigned snap(struct story *s, bool is_full)
{
    char id[BLK_SNAP_ID];
    (void)snprintf(id, sizeof(id), "snap-%u", s->n_snaps++);
    const char *ids = id;
    unsigned idx = 99;
    struct err err = ERR_INIT;
    uint64_t t = time_mono_ns();
    for (;;) {
        int rc = blk_cow_snap_begin(&s->c.w.top, &ids, 1, is_full, &idx, &err);
        if (rc == 0) {
            break;
        }
        assert_int_equal(rc, -EBUSY);
        assert_true(time_mono_ns() < t + 20 * NS_PER_S);
        err_clear(&err);
        cw_turn(&s->c, NS_PER_MS);
    }
    free(s->at[idx]);
    free(s->before[idx]);
    s->at[idx] = copy_of(s->now, s->c.size);
    s->before[idx] = is_full ? copy_of(NULL, s->c.size) : copy_of(s->parent, s->c.size);
    memcpy(s->parent, s->now, s->c.size);
    return idx;
}

/* What the store has now, over what the parent had, is the volume at that time, bit for bit. */
static void check(struct story *s, unsigned k)
{
    struct cw_store *st = &s->c.store[k];
    assert_true(st->is_ended);
    for (uint64_t b = 0; b < map_n_blocks(s->c.size); b++) {
        uint64_t off = b * BLK_BLOCK, n = MIN(s->c.size - off, BLK_BLOCK);
        bool is_there = st->block && st->block[b];
        const char *got = is_there ? st->block[b] : s->before[k] + off;
        if (memcmp(got, s->at[k] + off, n) != 0) {
            uint64_t i = 0;
            while (got[i] == s->at[k][off + i]) {
                i++;
            }
            fail_msg("%s: snapshot %u, block %llu (%s), byte %llu (page %llu) is wrong",
                     s->name, k, (unsigned long long)b, is_there ? "uploaded" : "of the parent",
                     (unsigned long long)i, (unsigned long long)(i / BLK_PAGE));
        }
        for (uint64_t i = n; is_there && i < BLK_BLOCK; i++) {
            assert_int_equal(got[i], 0); /* padding */
        }
    }
}

static void finish(struct story *s, unsigned k)
{
    uint64_t t = time_mono_ns();
    while (!s->c.store[k].is_ended) {
        cw_turn(&s->c, 5 * NS_PER_MS);
        assert_true(time_mono_ns() < t + 30 * NS_PER_S);
    }
    check(s, k);
    assert_int_equal(blk_cow_snap_end(s->c.w.top, k, NULL), 0);
    cw_clear_store(&s->c, k);
    cw_settle(&s->c);
}

static void read_all(struct story *s)
{
    struct blk_frozen f[BLK_MAX_FROZEN];
    blk_cow_frozen(s->c.w.top, f);
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        if (f[k].snap[0]) {
            assert_int_equal(blk_cow_snap_read(s->c.w.top, k, 4, NULL), 0);
        }
    }
}

static void snapshots_are_the_volume_at_their_time(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct story s;
        start(&s, &kinds[i], 1000 + i);
        for (unsigned n = 0; n < 4; n++) {
            for (unsigned k = 0; k < 25; k++) {
                change(&s);
            }
            unsigned idx = snap(&s, n == 2);
            assert_int_equal(blk_cow_snap_read(s.c.w.top, idx, 3, NULL), 0);
            for (unsigned k = 0; k < 40; k++) { /* write-heavy while it is read */
                s.c.is_up_held = k % 3 != 0;
                s.c.up_rc = k % 11 == 0 ? -EAGAIN : 0;
                change(&s);
            }
            s.c.is_up_held = false;
            s.c.up_rc = 0;
            finish(&s, idx);
            cw_same(&s.c, s.now, s.name);
        }
        end(&s);
    }
}

static void four_at_once_each_have_their_time(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct story s;
        start(&s, &kinds[i], 2000 + i);
        unsigned idx[BLK_MAX_FROZEN];
        for (unsigned n = 0; n < BLK_MAX_FROZEN; n++) {
            for (unsigned k = 0; k < 25; k++) {
                change(&s);
            }
            idx[n] = snap(&s, n == 3);
        }
        const char *fifth = "snap-fifth";
        unsigned ret;
        assert_int_equal(blk_cow_snap_begin(&s.c.w.top, &fifth, 1, false, &ret, NULL), -EBUSY);
        for (unsigned k = 0; k < 40; k++) {
            change(&s);
        }
        read_all(&s);
        for (unsigned k = 0; k < 20; k++) {
            change(&s);
        }
        for (unsigned n = 0; n < BLK_MAX_FROZEN; n++) {
            finish(&s, idx[n]);
        }
        cw_same(&s.c, s.now, s.name);
        unsigned again = snap(&s, false); /* all places are free again, and clean */
        read_all(&s);
        finish(&s, again);
        end(&s);
    }
}

/* C5, and after a power cut that kept everything: frozen sets go on. */
static void frozen_sets_go_on_after_a_kill_and_a_reboot(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct story s;
        start(&s, &kinds[i], 3000 + i);
        for (unsigned n = 0; n < 3; n++) {
            for (unsigned k = 0; k < 20; k++) {
                change(&s);
            }
            unsigned idx = snap(&s, false);
            assert_int_equal(blk_cow_snap_read(s.c.w.top, idx, 4, NULL), 0);
            for (unsigned k = 0; k < 15; k++) {
                s.c.is_up_held = k > 5;
                change(&s);
            }
            if (n == 1) {
                assert_int_equal(cw_flush(&s.c), 0);
                cw_reboot(&s.c);
            } else if (n == 0) {
                cw_kill(&s.c);
            } else {
                cw_reopen(&s.c);
            }
            s.c.is_up_held = false;
            struct blk_frozen f[BLK_MAX_FROZEN];
            blk_cow_frozen(s.c.w.top, f);
            assert_string_equal(f[idx].snap, n == 0 ? "snap-0" : n == 1 ? "snap-1" : "snap-2");
            for (unsigned k = 0; k < 10; k++) {
                change(&s);
            }
            read_all(&s);
            for (unsigned k = 0; k < 10; k++) {
                change(&s);
            }
            finish(&s, idx);
            cw_same(&s.c, s.now, s.name);
        }
        end(&s);
    }
}

static void only_changed_blocks_are_uploaded(void **state)
{
    struct story s;
    struct kind big = {"plain", 140 * MIB, 0, false, false};
    start(&s, &big, 1);
    static char buf[BLK_PAGE] = {1};
    assert_int_equal(cw_write(&s.c, 130 * MIB, buf, sizeof(buf)), 0);
    assert_int_equal(cw_write(&s.c, 0, buf, sizeof(buf)), 0);
    memcpy(s.now, buf, sizeof(buf));
    memcpy(s.now + 130 * MIB, buf, sizeof(buf));
    unsigned idx = snap(&s, false);
    struct blk_frozen f[BLK_MAX_FROZEN];
    blk_cow_frozen(s.c.w.top, f);
    assert_int_equal(f[idx].n_blocks, 2);
    read_all(&s);
    while (!s.c.store[idx].is_ended) {
        cw_turn(&s.c, NS_PER_MS);
    }
    assert_int_equal(s.c.store[idx].n_puts, 2);
    finish(&s, idx);
    /* Nothing changed: nothing to upload. A full one: what was ever allocated. */
    idx = snap(&s, false);
    read_all(&s);
    while (!s.c.store[idx].is_ended) {
        cw_turn(&s.c, NS_PER_MS);
    }
    assert_int_equal(s.c.store[idx].n_puts, 0);
    finish(&s, idx);
    idx = snap(&s, true);
    read_all(&s);
    while (!s.c.store[idx].is_ended) {
        cw_turn(&s.c, NS_PER_MS);
    }
    assert_int_equal(s.c.store[idx].n_puts, 2);
    finish(&s, idx);
    end(&s);
}

/* Only first writes to frozen blocks wait, and only for their copy: the store may be away. */
static void writes_do_not_wait_for_the_store(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct story s;
        start(&s, &kinds[i], 4000 + i);
        s.c.is_want_held = true; /* neither the source answers */
        static char buf[BLK_PAGE] __attribute__((aligned(4096)));
        cw_fill_bytes(buf, sizeof(buf), 3);
        for (uint64_t b = 0; b < 8; b++) {
            assert_int_equal(cw_write(&s.c, b * BLK_BLOCK + BLK_PAGE, buf, sizeof(buf)), 0);
            memcpy(s.now + b * BLK_BLOCK + BLK_PAGE, buf, sizeof(buf));
        }
        unsigned idx = snap(&s, false);
        s.c.is_up_held = true;
        read_all(&s);
        cw_fill_bytes(buf, sizeof(buf), 4);
        for (uint64_t b = 0; b < s.c.size / BLK_BLOCK; b++) {
            assert_int_equal(cw_write(&s.c, b * BLK_BLOCK + 2 * BLK_PAGE, buf, sizeof(buf)), 0);
            assert_int_equal(cw_write(&s.c, b * BLK_BLOCK + BLK_PAGE, buf, sizeof(buf)), 0);
            memcpy(s.now + b * BLK_BLOCK + 2 * BLK_PAGE, buf, sizeof(buf));
            memcpy(s.now + b * BLK_BLOCK + BLK_PAGE, buf, sizeof(buf));
        }
        assert_int_equal(cw_flush(&s.c), 0);
        struct blk_frozen f[BLK_MAX_FROZEN];
        blk_cow_frozen(s.c.w.top, f);
        assert_int_equal(f[idx].n_aside, 8);
        s.c.is_want_held = s.c.is_up_held = false;
        finish(&s, idx);
        cw_same(&s.c, s.now, s.name);
        end(&s);
    }
}

static void a_full_place_aside_waits_for_uploads(void **state)
{
    struct story s;
    memset(&s, 0, sizeof(s));
    s.name = "few slots";
    s.c.size = 12 * MIB;
    s.c.aside_size = 2 * BLK_BLOCK;
    cw_init(&s.c);
    s.now = copy_of(NULL, s.c.size);
    s.parent = copy_of(NULL, s.c.size);
    static char buf[BLK_PAGE] __attribute__((aligned(4096)));
    cw_fill_bytes(buf, sizeof(buf), 3);
    for (uint64_t b = 0; b < 6; b++) {
        assert_int_equal(cw_write(&s.c, b * BLK_BLOCK, buf, sizeof(buf)), 0);
        memcpy(s.now + b * BLK_BLOCK, buf, sizeof(buf));
    }
    unsigned idx = snap(&s, false);
    s.c.is_up_held = true;
    read_all(&s);
    cw_fill_bytes(buf, sizeof(buf), 4);
    struct world_io io[6];
    for (uint64_t b = 0; b < 6; b++) {
        world_start(&s.c.w, &io[b], BLK_WRITE, 0, b * BLK_BLOCK, buf, sizeof(buf));
        memcpy(s.now + b * BLK_BLOCK, buf, sizeof(buf));
    }
    cw_settle(&s.c);
    unsigned n = 0;
    for (unsigned b = 0; b < 6; b++) {
        n += io[b].is_done ? 1 : 0;
    }
    assert_int_equal(n, 2);
    s.c.is_up_held = false;
    for (unsigned b = 0; b < 6; b++) {
        assert_int_equal(cw_wait(&s.c, &io[b]), 0);
    }
    finish(&s, idx);
    cw_same(&s.c, s.now, s.name);
    end(&s);
}

static void a_snapshot_given_up_is_in_the_next_one(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct story s;
        start(&s, &kinds[i], 5000 + i);
        for (unsigned k = 0; k < 10; k++) {
            change(&s);
        }
        unsigned a = snap(&s, false);
        for (unsigned k = 0; k < 10; k++) {
            change(&s);
        }
        char *parent = copy_of(s.before[a], s.c.size);
        unsigned b = snap(&s, false);
        struct err err = ERR_INIT;
        assert_int_equal(blk_cow_snap_abort(s.c.w.top, a, &err), -EBUSY);
        s.c.is_up_held = true;
        read_all(&s);
        for (unsigned k = 0; k < 10; k++) {
            change(&s);
        }
        assert_int_equal(blk_cow_snap_abort(s.c.w.top, b, NULL), 0);
        assert_int_equal(blk_cow_snap_abort(s.c.w.top, a, NULL), 0);
        s.c.is_up_held = false;
        char since[BLK_SNAP_ID];
        blk_cow_since(s.c.w.top, since);
        assert_string_equal(since, "");
        cw_settle(&s.c);
        for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
            cw_clear_store(&s.c, k);
        }
        memcpy(s.parent, parent, s.c.size);
        free(parent);
        unsigned n = snap(&s, false);
        read_all(&s);
        finish(&s, n);
        cw_same(&s.c, s.now, s.name);
        end(&s);
    }
}

static void the_same_snapshot_twice_is_one(void **state)
{
    struct story s;
    start(&s, &kinds[0], 6);
    change(&s);
    unsigned a = snap(&s, false), b = 99;
    const char *id = "snap-0";
    assert_int_equal(blk_cow_snap_begin(&s.c.w.top, &id, 1, false, &b, NULL), 0);
    assert_int_equal(a, b);
    const char *bad = "";
    assert_int_equal(blk_cow_snap_begin(&s.c.w.top, &bad, 1, false, &b, NULL), -EINVAL);
    end(&s);
}

/* ---- two volumes, writers on queues of their own ---- */

#define PAGES   700u
#define WRITERS 2u

struct writer {
    pthread_t thread;
    struct blk_queue *q;
    struct cow_world *vol[2];
    unsigned no;
    _Atomic bool stop;
    uint64_t n;
    int rc;
};

static void writer_done(struct blk_req *r, int rc)
{
    struct world_io *io = r->ctx;
    io->rc = rc;
    io->is_done = true;
    blk_req_put(r);
}

/* Stamp n goes to page n % PAGES of the first volume, then of the second, each after the other was
 * acknowledged. */
static void *write_stamps(void *arg)
{
    struct writer *w = arg;
    char *buf = aligned_alloc(BLK_PAGE, BLK_PAGE);
    for (uint64_t n = 1; !atomic_load(&w->stop) && buf; n++) {
        memset(buf, 0, BLK_PAGE);
        memcpy(buf, &n, sizeof(n));
        memcpy(buf + BLK_PAGE - sizeof(n), &n, sizeof(n));
        for (unsigned v = 0; v < 2 && w->rc == 0; v++) {
            struct world_io io = {.iov = {{buf, BLK_PAGE}}};
            struct blk_req *r = blk_req_get(w->q);
            r->op = n % 64 == 63 ? BLK_FLUSH : BLK_WRITE;
            r->flags = 0;
            r->off = r->op == BLK_FLUSH
                         ? 0
                         : (w->no * PAGES + (n * 37) % PAGES) * (uint64_t)BLK_PAGE;
            r->len = r->op == BLK_FLUSH ? 0 : BLK_PAGE;
            r->iov = io.iov;
            r->n_iov = r->op == BLK_FLUSH ? 0 : 1;
            r->done = writer_done;
            r->ctx = &io;
            blk_submit(w->vol[v]->w.top, r);
            while (!io.is_done) {
                (void)blk_queue_run(w->q, 10 * NS_PER_MS);
            }
            w->rc = io.rc;
        }
        w->n = n;
    }
    free(buf);
    return NULL;
}

static uint64_t stamp_of(struct cow_world *c, unsigned k, unsigned writer, uint64_t page)
{
    uint64_t at = (writer * PAGES + page) * (uint64_t)BLK_PAGE, a = 0, b = 0;
    char *blk = c->store[k].block ? c->store[k].block[at / BLK_BLOCK] : NULL;
    if (blk) {
        memcpy(&a, blk + at % BLK_BLOCK, sizeof(a));
        memcpy(&b, blk + at % BLK_BLOCK + BLK_PAGE - sizeof(b), sizeof(b));
    }
    assert_int_equal(a, b); /* not torn */
    return a;
}

/* The last stamp <= n that was written to a page (flushes wrote none). */
static uint64_t last_at(uint64_t n, uint64_t page)
{
    for (; n > 0; n--) {
        if (n % 64 != 63 && n * 37 % PAGES == page) {
            return n;
        }
    }
    return 0;
}

static void check_stamps(struct cow_world v[2], const unsigned idx[2])
{
    for (unsigned w = 0; w < WRITERS; w++) {
        uint64_t max[2] = {0, 0};
        for (unsigned i = 0; i < 2; i++) {
            for (uint64_t p = 0; p < PAGES; p++) {
                uint64_t s = stamp_of(&v[i], idx[i], w, p);
                max[i] = MAX(max[i], s);
            }
            for (uint64_t p = 0; p < PAGES; p++) {
                assert_int_equal(stamp_of(&v[i], idx[i], w, p), last_at(max[i], p));
            }
        }
        /* The second volume's write came after the first one's was acknowledged. */
        assert_true(max[1] <= max[0]);
        assert_true(max[0] <= max[1] + 2); /* a flush in between has no stamp */
    }
}

static void two_volumes_stop_at_one_point_under_writers(void **state)
{
    static struct cow_world v[2];
    memset(v, 0, sizeof(v));
    struct writer w[WRITERS];
    for (unsigned i = 0; i < 2; i++) {
        v[i].size = 24 * MIB;
        v[i].is_encrypted = i == 1;
        cw_init(&v[i]);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        memset(&w[i], 0, sizeof(w[i]));
        w[i].no = i;
        w[i].vol[0] = &v[0];
        w[i].vol[1] = &v[1];
        assert_int_equal(blk_queue_new(&(struct blk_queue_opts){0}, &w[i].q, NULL), 0);
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_stamps, &w[i]), 0);
    }
    struct blk_layer *l[2] = {v[0].w.top, v[1].w.top};
    uint64_t worst = 0;
    for (unsigned n = 0; n < 6; n++) {
        uint64_t until = time_mono_ns() + 60 * NS_PER_MS;
        while (time_mono_ns() < until) {
            cw_turn(&v[0], NS_PER_MS);
            cw_turn(&v[1], NS_PER_MS);
        }
        char id[BLK_SNAP_ID];
        (void)snprintf(id, sizeof(id), "both-%u", n);
        const char *ids[2] = {id, id};
        unsigned idx[2];
        int rc = -EBUSY;
        uint64_t t = 0;
        while (rc == -EBUSY) {
            t = time_mono_ns();
            rc = blk_cow_snap_begin(l, ids, 2, true, idx, NULL);
            t = time_mono_ns() - t;
            cw_turn(&v[0], 0);
            cw_turn(&v[1], 0);
        }
        assert_int_equal(rc, 0);
        worst = MAX(worst, t);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(blk_cow_snap_read(l[i], idx[i], 4, NULL), 0);
        }
        while (!v[0].store[idx[0]].is_ended || !v[1].store[idx[1]].is_ended) {
            cw_turn(&v[0], NS_PER_MS);
            cw_turn(&v[1], NS_PER_MS);
        }
        check_stamps(v, idx);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(blk_cow_snap_end(l[i], idx[i], NULL), 0);
            cw_clear_store(&v[i], idx[i]);
        }
    }
    print_message("           held for at most %llu us\n", (unsigned long long)worst / 1000);
    for (unsigned i = 0; i < WRITERS; i++) {
        atomic_store(&w[i].stop, true);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        while (pthread_tryjoin_np(w[i].thread, NULL) != 0) {
            cw_turn(&v[0], NS_PER_MS);
            cw_turn(&v[1], NS_PER_MS);
        }
        assert_int_equal(w[i].rc, 0);
        assert_true(w[i].n > 20);
        blk_queue_free(w[i].q);
    }
    for (unsigned i = 0; i < 2; i++) {
        cw_stop(&v[i]);
        cw_done(&v[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_are_the_volume_at_their_time),
        cmocka_unit_test(four_at_once_each_have_their_time),
        cmocka_unit_test(frozen_sets_go_on_after_a_kill_and_a_reboot),
        cmocka_unit_test(only_changed_blocks_are_uploaded),
        cmocka_unit_test(writes_do_not_wait_for_the_store),
        cmocka_unit_test(a_full_place_aside_waits_for_uploads),
        cmocka_unit_test(a_snapshot_given_up_is_in_the_next_one),
        cmocka_unit_test(the_same_snapshot_twice_is_one),
        cmocka_unit_test(two_volumes_stop_at_one_point_under_writers),
    };
    (void)setenv("TMPDIR", "/dev/shm", 0); /* what a disk costs is not looked at here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
