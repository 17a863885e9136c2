#include "blk/blk_cow.h"

#include "base/fault_sim.h"
#include "blk/blk_cow_world.h"
#include <stdio.h>

/* Power cuts at every call that writes or syncs, in volumes that are written, flushed, discarded,
 * filled, grown and snapshotted. A ledger knows what each page may hold: what was flushed, or
 * anything written after that (sectors are torn apart). */

#define MIB       (UINT64_C(1) << 20)
#define MAX_PAGES 2048u
#define MAX_SNAPS 8u
#define ZERO      UINT32_MAX /* a version: zeros */

struct page_log {
    uint32_t now, flushed;
    uint32_t later[24]; /* versions since the last flush */
    unsigned n_later;
};

struct ledger {
    struct cow_world c; /* first */
    struct page_log page[MAX_PAGES];
    uint32_t version;
    struct {
        char id[BLK_SNAP_ID];
        uint32_t now[MAX_PAGES];
        bool is_ended;
    } snap[MAX_SNAPS];
    unsigned n_snaps;
    unsigned n_pages; /* of the volume when it began */
    int idx;          /* of the snapshot under way, or -1 */
};

static void sector(struct ledger *g, uint32_t version, uint64_t page, unsigned s, char p[512])
{
    memset(p, 0, 512);
    if (version == ZERO || (version == 0 && page * BLK_PAGE >= g->c.source_size)) {
        return;
    }
    if (version == 0) {
        char buf[BLK_PAGE];
        cw_source_page(page, buf);
        memcpy(p, buf + s * 512, 512);
        return;
    }
    for (unsigned i = 0; i < 512; i += 8) {
        uint64_t v = ((uint64_t)version << 40 | page << 16 | s << 8 | 1) + (uint64_t)i;
        memcpy(p + i, &v, 8);
    }
}

static bool is_version(struct ledger *g, uint32_t version, uint64_t page, unsigned s,
                       const char *got)
{
    char want[512];
    sector(g, version, page, s, want);
    return memcmp(got, want, 512) == 0;
}

static void note(struct ledger *g, uint64_t page, uint64_t n, uint32_t version)
{
    for (uint64_t i = page; i < page + n; i++) {
        struct page_log *p = &g->page[i];
        p->now = version;
        assert_true(p->n_later < ARRAY_LEN(p->later));
        p->later[p->n_later++] = version;
    }
}

/* ---- the script ---- */

struct kind {
    const char *name;
    uint64_t source;
    bool is_encrypted, has_snaps, has_fill, has_grow;
    uint64_t seed;
};

#define SIZE (3 * MIB)

static bool all_flushed(struct ledger *g)
{
    if (cw_flush(&g->c)) {
        return false;
    }
    for (unsigned i = 0; i < MAX_PAGES; i++) {
        g->page[i].flushed = g->page[i].now;
        g->page[i].n_later = 0;
    }
    return true;
}

static bool write_some(struct ledger *g, uint64_t *seed)
{
    static char buf[8 * BLK_PAGE] __attribute__((aligned(4096)));
    uint64_t n = 1 + cw_rand(seed) % 8, page = cw_rand(seed) % (g->c.size / BLK_PAGE - n);
    uint32_t v = ++g->version;
    for (uint64_t i = 0; i < n; i++) {
        for (unsigned s = 0; s < 8; s++) {
            sector(g, v, page + i, s, buf + i * BLK_PAGE + s * 512);
        }
    }
    note(g, page, n, v);
    return cw_write(&g->c, page * BLK_PAGE, buf, n * BLK_PAGE) == 0;
}

static bool zero_some(struct ledger *g, uint64_t *seed)
{
    uint64_t n = 1 + cw_rand(seed) % 20, page = cw_rand(seed) % (g->c.size / BLK_PAGE - n);
    note(g, page, n, ZERO);
    return cw_io(&g->c, cw_rand(seed) % 2 ? BLK_DISCARD : BLK_ZEROES, 0, page * BLK_PAGE, NULL,
                 n * BLK_PAGE) == 0;
}

static bool snapshot(struct ledger *g)
{
    struct cow_world *c = &g->c;
    if (g->idx >= 0) {
        if (!c->store[g->idx].is_ended) {
            return true;
        }
        g->snap[g->n_snaps - 1].is_ended = true;
        assert_int_equal(blk_cow_snap_end(c->w.top, (unsigned)g->idx, NULL), 0);
        cw_clear_store(c, (unsigned)g->idx);
        g->idx = -1;
        return true;
    }
    if (g->n_snaps == MAX_SNAPS) {
        return true;
    }
    char id[BLK_SNAP_ID];
    memset(id, 0, sizeof(id));
    (void)snprintf(id, sizeof(id), "snap-%u", g->n_snaps);
    const char *ids = id;
    unsigned idx;
    int rc = blk_cow_snap_begin(&c->w.top, &ids, 1, false, &idx, NULL);
    if (rc) {
        return rc == -EBUSY;
    }
    g->idx = (int)idx;
    memcpy(g->snap[g->n_snaps].id, id, sizeof(id));
    for (unsigned i = 0; i < MAX_PAGES; i++) {
        g->snap[g->n_snaps].now[i] = g->page[i].now;
    }
    g->n_snaps++;
    return blk_cow_snap_read(c->w.top, idx, 2, NULL) == 0;
}

static bool grow(struct ledger *g)
{
    struct cow_world *c = &g->c;
    uint64_t size = c->size + MIB;
    if (size / BLK_PAGE > MAX_PAGES || fault_truncate(c->fs, c->data_fd, size) ||
        fault_fdatasync(c->fs, c->data_fd)) {
        return size / BLK_PAGE > MAX_PAGES;
    }
    struct blk_layer *file = c->w.top->below;
    if (c->is_encrypted) {
        __atomic_store_n(&file->size, size, __ATOMIC_RELEASE);
        file = file->below;
    }
    blk_file_grow(file, size);
    c->size = size;
    return blk_map_grow(c->w.top, size, NULL) == 0;
}

static void run(struct ledger *g, const struct kind *k)
{
    uint64_t seed = k->seed;
    bool ok = true;
    if (k->has_fill) {
        blk_cow_fill(g->c.w.top, 20 * MIB);
    }
    for (unsigned i = 0; ok && i < 45; i++) {
        uint64_t what = cw_rand(&seed) % 16;
        g->c.is_up_held = cw_rand(&seed) % 4 == 0;
        if (what < 8) {
            ok = write_some(g, &seed);
        } else if (what < 11) {
            ok = all_flushed(g);
        } else if (what < 13) {
            ok = zero_some(g, &seed);
        } else if (what == 13 && k->has_grow) {
            ok = grow(g);
        } else if (k->has_snaps) {
            ok = snapshot(g);
        }
        (void)blk_queue_run(g->c.w.q, 0);
        ok = ok && !atomic_load(&g->c.l->fault);
    }
}

/* ---- looking after the cut ---- */

static const uint32_t *image_of(struct ledger *g, const char *id)
{
    static const uint32_t first[MAX_PAGES];
    for (unsigned i = 0; i < g->n_snaps; i++) {
        if (strcmp(g->snap[i].id, id) == 0) {
            return g->snap[i].now;
        }
    }
    assert_int_equal(id[0], 0);
    return first;
}

static void check_pages(struct ledger *g, const struct kind *k, uint64_t at)
{
    struct cow_world *c = &g->c;
    static char buf[BLK_BLOCK] __attribute__((aligned(4096)));
    char since[BLK_SNAP_ID];
    blk_cow_since(c->w.top, since);
    const uint32_t *then = image_of(g, since);
    for (uint64_t off = 0; off < c->size; off += BLK_BLOCK) {
        uint64_t n = MIN(c->size - off, BLK_BLOCK), len;
        bool is_zero, is_dirty, is_changed = false;
        assert_int_equal(cw_read(c, off, buf, n), 0);
        for (uint64_t s = 0; s < n / 512; s++) {
            uint64_t page = (off + s * 512) / BLK_PAGE;
            unsigned in = (unsigned)(s % 8);
            const struct page_log *p = &g->page[page];
            bool is_fine = is_version(g, p->flushed, page, in, buf + s * 512);
            for (unsigned i = 0; !is_fine && i < p->n_later; i++) {
                is_fine = is_version(g, p->later[i], page, in, buf + s * 512);
            }
            if (!is_fine) {
                uint64_t v;
                memcpy(&v, buf + s * 512, 8);
                fail_msg("%s, cut at call %llu: page %llu, sector %u holds %llx; flushed was "
                         "version %u, %u later",
                         k->name, (unsigned long long)at, (unsigned long long)page, in,
                         (unsigned long long)v, p->flushed, p->n_later);
            }
            is_changed |= !is_version(g, then[page], page, in, buf + s * 512);
        }
        blk_cow_extent(c->w.top, off, n, &len, &is_zero, &is_dirty);
        if (is_changed && !is_dirty) {
            fail_msg("%s, cut at call %llu: block %llu changed since \"%s\" and looks clean",
                     k->name, (unsigned long long)at, (unsigned long long)(off / BLK_BLOCK),
                     since);
        }
    }
}

static void check_snaps(struct ledger *g, const struct kind *k, uint64_t at)
{
    struct cow_world *c = &g->c;
    struct blk_frozen f[BLK_MAX_FROZEN];
    blk_cow_frozen(c->w.top, f);
    for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
        bool is_ended = false;
        for (unsigned n = 0; n < g->n_snaps; n++) {
            is_ended |= g->snap[n].is_ended && strcmp(g->snap[n].id, f[i].snap) == 0;
        }
        if (!f[i].snap[0] || is_ended) {
            continue;
        }
        const uint32_t *then = image_of(g, f[i].snap), *before = image_of(g, f[i].parent);
        c->store[i].is_ended = false;
        assert_int_equal(blk_cow_snap_read(c->w.top, i, 4, NULL), 0);
        /* Overwritten while it is read, too. */
        static char buf[BLK_PAGE] __attribute__((aligned(4096)));
        for (uint64_t b = 0; b < map_n_blocks(c->size); b++) {
            assert_int_equal(cw_write(c, b * BLK_BLOCK + BLK_PAGE, buf, sizeof(buf)), 0);
        }
        uint64_t end = time_mono_ns() + 20 * NS_PER_S;
        while (!c->store[i].is_ended) {
            cw_turn(c, NS_PER_MS);
            assert_true(time_mono_ns() < end);
        }
        for (uint64_t page = 0; page < g->n_pages; page++) {
            char *blk = c->store[i].block ? c->store[i].block[page / MAP_BLOCK_PAGES] : NULL;
            for (unsigned s = 0; s < 8; s++) {
                char want[512];
                sector(g, before[page], page, s, want);
                const char *got =
                    blk ? blk + page % MAP_BLOCK_PAGES * BLK_PAGE + s * 512 : want;
                if (!is_version(g, then[page], page, s, got)) {
                    fail_msg("%s, cut at call %llu: page %llu of \"%s\" (%s) is wrong", k->name,
                             (unsigned long long)at, (unsigned long long)page, f[i].snap,
                             blk ? "uploaded" : "of the parent");
                }
            }
        }
    }
}

static void look(struct ledger *g, const struct kind *k, const char *path, uint64_t at)
{
    struct cow_world *c = &g->c;
    uint64_t was = c->size;
    c->fs = NULL;
    cw_new_run(c);
    /* The volume is as long as its file is; its last growth may not have come about. */
    char name[PATH_MAX + 8];
    struct stat st;
    (void)snprintf(name, sizeof(name), "%s/data", path);
    assert_int_equal(stat(name, &st), 0);
    c->size = (uint64_t)st.st_size;
    cw_open_files(c, path);
    cw_open(c);
    c->is_up_held = c->is_want_held = false;
    check_pages(g, k, at);
    check_snaps(g, k, at);
    cw_drop(c);
    cw_close_files(c);
    c->size = was;
}

static void keep_store(struct ledger *g, struct cw_store kept[BLK_MAX_FROZEN])
{
    for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
        struct cw_store *s = &g->c.store[i];
        kept[i] = *s;
        kept[i].block = s->block ? calloc(s->n, sizeof(char *)) : NULL;
        for (uint64_t b = 0; s->block && b < s->n; b++) {
            if (s->block[b]) {
                kept[i].block[b] = malloc(BLK_BLOCK);
                memcpy(kept[i].block[b], s->block[b], BLK_BLOCK);
            }
        }
    }
}

/* One run that ends at write or sync 'at' (0: never); returns how many there were. */
static uint64_t one_run(const struct kind *k, uint64_t at)
{
    static struct ledger g;
    memset(&g, 0, sizeof(g));
    g.idx = -1;
    struct cow_world *c = &g.c;
    c->size = SIZE;
    c->aside_size = 14 * BLK_BLOCK;
    c->source_size = k->source;
    c->is_encrypted = k->is_encrypted;
    c->boot = CW_BOOT;
    c->run_fd = c->root = -1;
    g.n_pages = (unsigned)(SIZE / BLK_PAGE);
    tmpdir_init(&c->dir, "cowcut");
    char live[PATH_MAX], dest[PATH_MAX];
    tmpdir_path(&c->dir, "live", live);
    assert_int_equal(mkdir(live, 0700), 0);
    cw_open_files(c, live);
    cw_create_map(c, "");
    cw_close_files(c);
    struct err err = ERR_INIT;
    struct fault_sim *sim = fault_sim_new(live, &err);
    if (!sim) {
        fail_msg("%s", err.msg);
    }
    c->fs = fault_sim_fs(sim);
    world_queue(&c->w, NULL);
    cw_new_run(c);
    cw_open_files(c, live);
    struct fault_plan plan = {.at = at,
                              .code = -EIO,
                              .ops = FAULT_SYNCS | FAULT_BIT(FAULT_PWRITE) |
                                     FAULT_BIT(FAULT_PUNCH),
                              .effect = at % 3 == 0 ? FAULT_HALF_DONE : FAULT_NOTHING_DONE,
                              .is_dead = true};
    fault_sim_plan(sim, &plan);
    if (cw_try_open(c, &err) == 0) {
        run(&g, k);
        cw_drop(c);
    }
    uint64_t n = fault_sim_n_calls(sim);
    cw_close_files(c);
    struct cw_store kept[BLK_MAX_FROZEN];
    for (unsigned i = 0; i < 3; i++) {
        struct fault_cut cut = {.kind = i == 0                  ? FAULT_CUT_SYNCED
                                        : i == 1 && at % 4 == 0 ? FAULT_CUT_ALL
                                                                : FAULT_CUT_RANDOM,
                                .seed = at * 8 + i + 1};
        (void)snprintf(dest, sizeof(dest), "%s/cut-%u", c->dir.path, i);
        if (fault_sim_cut(sim, &cut, dest, &err)) {
            fail_msg("%s", err.msg);
        }
        static struct ledger copy;
        copy = g;
        keep_store(&copy, kept);
        memcpy(copy.c.store, kept, sizeof(kept));
        look(&copy, k, dest, at);
        for (unsigned s = 0; s < BLK_MAX_FROZEN; s++) {
            cw_clear_store(&copy.c, s);
        }
        g.c.run_fd = copy.c.run_fd;
    }
    fault_sim_free(sim);
    cw_done(c);
    return n;
}

static void cut_everywhere(const struct kind *k)
{
    uint64_t n = one_run(k, 0);
    assert_true(n > 30);
    print_message("           %s: %llu calls\n", k->name, (unsigned long long)n);
    for (uint64_t at = 1; at <= n; at += n > 90 ? 2 : 1) {
        (void)one_run(k, at);
    }
}

static void writes_and_flushes(void **state)
{
    cut_everywhere(&(struct kind){"plain", 0, false, false, false, false, 11});
    cut_everywhere(&(struct kind){"encrypted", 0, true, false, false, false, 12});
}
static void hydration(void **state)
{
    cut_everywhere(&(struct kind){"of a source", 2 * MIB, false, false, true, false, 13});
    cut_everywhere(
        &(struct kind){"of a source, encrypted", 3 * MIB, true, false, true, false, 14});
}
static void snapshots(void **state)
{
    cut_everywhere(&(struct kind){"plain, snapshots", 0, false, true, false, false, 15});
    cut_everywhere(&(struct kind){"encrypted, snapshots", 0, true, true, false, false, 16});
    cut_everywhere(
        &(struct kind){"of a source, snapshots", 2 * MIB, false, true, true, false, 17});
}
static void growth(void **state)
{
    cut_everywhere(&(struct kind){"growing", 0, true, false, false, true, 18});
    cut_everywhere(
        &(struct kind){"growing, of a source", 2 * MIB, false, true, false, true, 19});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_flushes),
        cmocka_unit_test(hydration),
        cmocka_unit_test(snapshots),
        cmocka_unit_test(growth),
    };
    (void)setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
