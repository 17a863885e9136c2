#include "blk/blk_map_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- reading the durable map ---- */

static int bad(struct err *err, const char *what)
{
    return fail(err, -EINVAL, "BadMap", "the map of a volume is damaged: %s", what);
}

static int read_at(struct blk_map *m, void *buf, size_t n, uint64_t off, struct err *err)
{
    ssize_t got = fault_pread(m->fs, m->map_fd, buf, n, off);
    if (got < 0) {
        return fail(err, (int)got, "ReadFailed", "the map of a volume: %s",
                    strerror(-(int)got));
    }
    memset((char *)buf + got, 0, n - (size_t)got);
    return 0;
}

static int write_pages(struct blk_map *m, const void *buf, struct err *err)
{
    const struct map_journal *j = buf;
    for (unsigned i = 0; i < j->n; i++) {
        int rc = fault_pwrite(m->fs, m->map_fd, (const char *)buf + (i + 1) * MAP_PAGE,
                              MAP_PAGE, map_page_off(j->no[i]));
        if (rc) {
            return fail(err, rc, "WriteFailed", "the map of a volume: %s", strerror(-rc));
        }
    }
    return 0;
}

static int sync_map(struct blk_map *m, struct err *err)
{
    int rc = fault_fdatasync(m->fs, m->map_fd);
    return rc ? fail(err, rc, "SyncFailed", "the map of a volume: %s", strerror(-rc)) : 0;
}

/* Both halves of the journal, the older first: what they hold may not have reached its place. */
static int replay(struct blk_map *m, char *buf, struct err *err)
{
    uint64_t seq[2] = {0, 0};
    for (unsigned h = 0; h < 2; h++) {
        int rc = read_at(m, buf, MAP_JOURNAL_SIZE, map_journal_off(h), err);
        if (rc) {
            return rc;
        }
        const struct map_journal *j = (const void *)buf;
        if (map_journal_check(buf, m->id) && (j->seq & 1) == h) {
            seq[h] = j->seq;
        }
    }
    unsigned newer = seq[1] > seq[0] ? 1 : 0;
    m->seq = seq[newer];
    bool is_any = false;
    for (unsigned k = 0; k < 2; k++) {
        unsigned h = k == 0 ? newer ^ 1 : newer;
        if (seq[h] == 0 || (h != newer && seq[h] + 1 != m->seq)) {
            continue;
        }
        int rc = read_at(m, buf, MAP_JOURNAL_SIZE, map_journal_off(h), err);
        if (rc) {
            return rc;
        }
        const struct map_journal *j = (const void *)buf;
        if (!map_journal_check(buf, m->id) || j->seq != seq[h]) {
            return bad(err, "the journal changes while it is read");
        }
        for (unsigned i = 0; i < j->n; i++) {
            if (j->no[i] >= map_n_pages(BLK_MAP_MAX_SIZE)) {
                return bad(err, "the journal names a page that cannot be");
            }
        }
        rc = write_pages(m, buf, err);
        if (rc) {
            return rc;
        }
        is_any = true;
    }
    return is_any ? sync_map(m, err) : 0;
}

/* A page of the durable map goes to its place in the run-time map, if it has a meaning now. */
static int load_page(struct blk_map *m, const struct map_page *p, bool is_clean,
                     struct err *err)
{
    const struct map_head *h = map_head(m);
    unsigned idx;
    enum map_kind k = map_kind_of(p->no, &idx);
    const uint64_t *from = (const void *)p->payload;
    if (k == MAP_K_HEAD) {
        return 0;
    }
    bool is_live = true;
    if (k == MAP_K_SET) {
        is_live = is_clean && idx == h->cur;
        for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
            is_live |= h->frozen[i].gen != 0 && h->frozen[i].set == idx;
        }
    } else if (k == MAP_K_STORED) {
        is_live = h->frozen[idx].gen != 0;
    } else if (k == MAP_K_STATE &&
               (!m->has_states || !map_states_check(from, MAP_PAYLOAD / 8))) {
        return bad(err, "a page in a state that does not exist");
    }
    size_t n;
    _Atomic uint64_t *to = map_area(m, p->no, &n);
    uint64_t any = 0;
    for (size_t i = 0; i < n; i++) {
        any |= from[i];
        if (is_live) {
            atomic_store_explicit(&to[i], from[i], memory_order_relaxed);
        }
    }
    if (!is_live && any) {
        map_flag(m, p->no); /* of a set that is gone: becomes zeros with the next sweep */
    }
    return 0;
}

static int load_pages(struct blk_map *m, char *buf, bool is_clean, struct err *err)
{
    uint64_t at = map_page_off(1), end = map_page_off(map_n_pages(map_head(m)->size));
    while (at < end) {
        off_t d = lseek(m->map_fd, (off_t)at, SEEK_DATA);
        if (d < 0 && errno == ENXIO) {
            break;
        }
        uint64_t from = d < 0 ? at : (uint64_t)d / MAP_PAGE * MAP_PAGE;
        if (from >= end) {
            break;
        }
        size_t n = (size_t)MIN(end - from, (uint64_t)MAP_JOURNAL_SIZE);
        int rc = read_at(m, buf, n, from, err);
        for (size_t i = 0; rc == 0 && i < n / MAP_PAGE; i++) {
            const struct map_page *p = (const struct map_page *)(const void *)buf + i;
            uint32_t no = (uint32_t)((from - MAP_PAGES_OFF) / MAP_PAGE + i);
            int is = map_check(p, no, m->id);
            if (is < 0 || (is == 0 && p->seq > m->seq)) {
                rc = bad(err, "the checksum or place of a page is wrong");
            } else if (is == 0) {
                rc = load_page(m, p, is_clean, err);
            }
        }
        if (rc) {
            return rc;
        }
        at = from + n;
    }
    return 0;
}

/* Entries of sets that are under way are kept, and their blocks may be overwritten. */
static int load_aside(struct blk_map *m, struct err *err)
{
    const struct map_head *h = map_head(m);
    bool is_any = false;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        if (!h->frozen[k].gen) {
            continue;
        }
        is_any = true;
        size_t n = (size_t)((map_n_blocks(h->size) + 63) / 64);
        for (size_t i = 0; i < n; i++) { /* stored is open */
            uint64_t x = atomic_load_explicit(&m->stored[k][i], memory_order_relaxed);
            if (x) {
                atomic_fetch_or(&m->open[k][i], x);
            }
        }
    }
    /* Without a set that is under way no entry means anything: generations do not come again. */
    for (uint32_t s = 0; is_any && s < BLK_ASIDE_SLOTS; s++) {
        struct map_aside a = map_aside_get(m, s);
        uint32_t live = 0, was = 0;
        for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
            was |= a.gen[k];
            a.gen[k] = h->frozen[k].gen == a.gen[k] ? a.gen[k] : 0;
            live |= a.gen[k];
        }
        if (live && (a.block >= map_n_blocks(h->size) || !map_states_check(a.state, 4))) {
            return bad(err, "a block aside that the volume does not have");
        }
        if (was && !live) {
            a = (struct map_aside){0};
            map_aside_put(m, s, &a);
        }
        for (unsigned k = 0; live && k < BLK_MAX_FROZEN; k++) {
            if (a.gen[k]) {
                (void)map_bit_set(m->open[k], a.block);
            }
        }
    }
    return 0;
}

/* After an unclean stop every block of a touched region counts as changed. */
static void settle_dirt(struct blk_map *m, bool is_clean)
{
    uint64_t n_regions = (map_head(m)->size + BLK_REGION - 1) / BLK_REGION;
    const _Atomic uint64_t *dirt = m->set[map_head(m)->cur];
    for (uint64_t r = 0; r < n_regions; r++) {
        uint64_t bit = map_region_bit(r), b = r * MAP_REGION_BLOCKS;
        if (map_bit(m->touch, bit)) {
            (void)map_bit_set(m->suspect, bit);
        } else if (is_clean &&
                   map_next_bit(dirt, b, b + MAP_REGION_BLOCKS) < b + MAP_REGION_BLOCKS) {
            map_flag(m, map_no(MAP_K_TOUCH, 0, b));
            (void)map_bit_set(m->touch, bit);
        }
    }
}

static int load(struct blk_map *m, char *buf, uint64_t size, struct err *err)
{
    int rc = read_at(m, buf, MAP_PAGE, map_page_off(0), err);
    if (rc) {
        return rc;
    }
    const struct map_page *p = (const void *)buf;
    if (map_check(p, 0, m->id) != 0 || p->seq > m->seq) {
        return bad(err, "its head");
    }
    struct map_head *h = map_head_begin(m);
    memcpy(h, p->payload, sizeof(*h));
    if (!map_head_check(h, err)) {
        return -EINVAL;
    }
    if (size < h->size) {
        return bad(err, "the volume is smaller than its map");
    }
    bool is_clean = (h->flags & MAP_CLEAN) != 0;
    h->flags &= ~(uint32_t)MAP_CLEAN;
    h->size = size;
    map_head_flip(m);
    rc = load_pages(m, buf, is_clean, err);
    rc = rc ? rc : load_aside(m, err);
    if (rc) {
        return rc;
    }
    settle_dirt(m, is_clean);
    /* Durable before the first write: not a clean stop any more. */
    rc = map_write_all(m, err);
    if (rc == 0) {
        for (size_t i = 0; i < (size_t)MAP_MAX_CHUNKS * 4; i++) {
            uint64_t x = atomic_load(&m->touch[i]);
            if (x) {
                atomic_store(&m->safe[i], x);
            }
        }
        map_run_set_ready(m, true);
    }
    return rc;
}

/* The process before this one was killed between two stores: sets that its head does not name are
 * wiped, copies aside that were not durable are forgotten (nothing was overwritten yet). */
static int adopt(struct blk_map *m, uint64_t size, struct err *err)
{
    const struct map_head *h = map_head(m);
    if (size < h->size) {
        return bad(err, "the volume is smaller than its map");
    }
    map_adopt_flags(m);
    unsigned live = 1u << h->cur;
    bool is_any = false;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        is_any |= h->frozen[k].gen != 0;
        if (h->frozen[k].gen) {
            live |= 1u << h->frozen[k].set;
        } else {
            map_wipe(m, MAP_K_STORED, k);
            map_wipe_open(m, k);
        }
    }
    for (unsigned i = 0; i < MAP_N_SETS; i++) {
        if (!(live & (1u << i))) {
            map_wipe(m, MAP_K_SET, i);
        }
    }
    for (uint32_t s = 0; is_any && s < BLK_ASIDE_SLOTS; s++) {
        struct map_aside a = map_aside_get(m, s);
        uint32_t kept = 0, was = 0;
        for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
            was |= a.gen[k];
            bool is_live = a.gen[k] && h->frozen[k].gen == a.gen[k] &&
                           a.block < map_n_blocks(h->size) && map_bit(m->open[k], a.block);
            a.gen[k] = is_live ? a.gen[k] : 0;
            kept |= a.gen[k];
        }
        if (was) {
            a = kept ? a : (struct map_aside){0};
            map_aside_put(m, s, &a);
        }
    }
    if (size > h->size) {
        struct map_head *n = map_head_begin(m);
        n->size = size;
        map_head_flip(m);
    }
    return 0;
}

int map_open(int map_fd, int run_fd, const char *boot, struct fault_fs *fs, uint64_t size,
             struct blk_map **ret, struct err *err)
{
    if (size == 0 || size > BLK_MAP_MAX_SIZE || size % BLK_PAGE != 0) {
        return fail(err, -EINVAL, "BadMap", "a volume of %llu bytes cannot have a map",
                    (unsigned long long)size);
    }
    struct blk_map *m = calloc(1, sizeof(*m));
    AUTO_FREE char *buf = aligned_alloc(MAP_PAGE, MAP_JOURNAL_SIZE);
    if (!m || !buf) {
        free(m);
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a map");
    }
    *m = (struct blk_map){.map_fd = map_fd, .run_fd = run_fd, .fs = fs};
    int rc = read_at(m, buf, MAP_PAGE, 0, err);
    const struct map_super *s = (const void *)buf;
    if (rc == 0 && map_super_newer(s) != 0) {
        rc = fail(
            err, -EINVAL, "NewerFormat",
            "the map of a volume has version %u, which a newer Spinifex wrote and this one "
            "does not know: nothing was changed; install the newer one again",
            map_super_newer(s));
    } else if (rc == 0 && !map_super_check(s)) {
        rc = bad(err, "its first page");
    }
    if (rc == 0) {
        memcpy(m->id, s->id, sizeof(m->id));
        m->flags = s->flags;
        m->has_states = (s->flags & MAP_HAS_STATES) != 0;
        m->is_encrypted = (s->flags & MAP_ENCRYPTED) != 0;
        rc = map_run_attach(m, boot, err);
    }
    rc = rc ? rc : replay(m, buf, err);
    if (rc == 0) {
        rc = m->is_adopted ? adopt(m, size, err) : load(m, buf, size, err);
    }
    if (rc) {
        map_close(m);
        return rc;
    }
    m->source_pages = map_head(m)->source_size / BLK_PAGE;
    map_count_absent(m);
    *ret = m;
    return 0;
}

void map_close(struct blk_map *m)
{
    if (m) {
        map_run_detach(m);
        free(m);
    }
}

/* ---- writing by whole calls ---- */

int map_write_all(struct blk_map *m, struct err *err)
{
    AUTO_FREE char *buf = aligned_alloc(MAP_PAGE, MAP_JOURNAL_SIZE);
    if (!buf) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a map");
    }
    map_sweep(m);
    for (bool is_last = false; !is_last;) {
        unsigned n = map_round(m, buf, true, &is_last);
        if (n == 0) {
            break;
        }
        int rc =
            fault_pwrite(m->fs, m->map_fd, buf, (n + 1) * MAP_PAGE, map_journal_off(m->seq));
        rc = rc ? fail(err, rc, "WriteFailed", "the map of a volume: %s", strerror(-rc))
                : sync_map(m, err);
        rc = rc ? rc : write_pages(m, buf, err);
        if (rc) {
            return rc;
        }
        map_round_done(m, buf);
    }
    return 0;
}

int map_stop(struct blk_map *m, struct err *err)
{
    map_flag_all(m, MAP_K_SET, map_head(m)->cur);
    uint64_t chunks =
        (map_n_blocks(map_head(m)->size) + MAP_CHUNK_BLOCKS - 1) / MAP_CHUNK_BLOCKS;
    /* What is touched is told apart by dirt now; only suspects are marked as regions. */
    for (uint64_t i = 0; i < chunks * 4; i++) {
        uint64_t x = atomic_load(&m->suspect[i]);
        if (atomic_load(&m->touch[i]) != x) {
            map_flag(m, map_no(MAP_K_TOUCH, 0, i / 4 * MAP_CHUNK_BLOCKS));
            atomic_store(&m->touch[i], x);
        }
    }
    struct map_head *h = map_head_begin(m);
    h->flags |= MAP_CLEAN;
    map_head_flip(m);
    int rc = map_write_all(m, err);
    map_run_set_ready(m, false);
    return rc;
}
