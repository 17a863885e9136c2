#include "blk/blk_cow_int.h"

/* Points in time: the epoch changes, a frozen set begins and ends. */

static uint64_t count_bits(const _Atomic uint64_t *w, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < (n + 63) / 64; i++) {
        sum +=
            (unsigned)__builtin_popcountll(atomic_load_explicit(&w[i], memory_order_relaxed));
    }
    return sum;
}

/* A set of the head becomes one that queues look at. */
static void attach(struct cow *l, unsigned k, uint64_t epoch)
{
    const struct map_frozen *f = &map_head(l->m)->frozen[k];
    struct cow_set *s = &l->sets[k];
    s->is_full = (f->flags & MAP_FULL) != 0;
    s->is_swept = s->is_durable = s->is_ending = s->is_reading = s->is_end_told = false;
    s->n_blocks = map_n_blocks(f->size);
    s->set = l->m->set[f->set];
    s->bitmap = f->set;
    s->n_frozen = s->is_full ? s->n_blocks : count_bits(s->set, s->n_blocks);
    s->n_stored = count_bits(l->m->stored[k], s->n_blocks);
    s->epoch = epoch;
    s->cursor = 0;
    atomic_store(&s->gen, f->gen);
    atomic_fetch_add(&l->n_frozen, 1);
}

void cow_snap_attach(struct cow *l)
{
    const struct map_head *h = map_head(l->m);
    atomic_store(&l->dirty, l->m->set[h->cur]);
    l->is_touch_reduced = true;
    atomic_store(&l->epoch, COW_EPOCHS); /* ours; that of the map counts in the file */
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        if (h->frozen[k].gen) {
            attach(l, k, COW_EPOCHS - 1);
            /* Read from the durable map, or still to be written. */
            l->sets[k].is_durable = !l->m->is_adopted;
        }
    }
}

/* The head that names a new set goes with the sweep that takes the set's pages, and not before
 * what was written before the snapshot has ended: then the FLUSH of that sweep makes it durable. */
bool cow_head_may_go(struct cow *l)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        const struct cow_set *s = &l->sets[k];
        if (atomic_load(&s->gen) && !s->is_durable &&
            (!s->is_swept || !cow_is_drained(l, s->epoch))) {
            return false;
        }
    }
    return true;
}

void cow_snap_swept(struct cow *l)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        l->sets[k].is_swept = true;
    }
}

void cow_snap_durable(struct cow *l, const struct map_head *h)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        struct cow_set *s = &l->sets[k];
        if (s->is_ending && !h->frozen[k].gen) {
            s->is_ending = false;
            s->is_gone = true;
            cow_kick(l);
        } else if (h->frozen[k].gen && atomic_load(&s->gen) == h->frozen[k].gen) {
            s->is_durable = true;
        }
    }
}

/* ---- begin ---- */

static bool is_same_id(const char *a, const char *b)
{
    return strncmp(a, b, BLK_SNAP_ID) == 0;
}

static int find_set(const struct cow *l, const char *snap)
{
    const struct map_head *h = map_head(l->m);
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        if (h->frozen[k].gen && is_same_id(h->frozen[k].snap, snap)) {
            return (int)k;
        }
    }
    return -1;
}

static int free_set(struct cow *l)
{
    const struct map_head *h = map_head(l->m);
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        const struct cow_set *s = &l->sets[k];
        if (!h->frozen[k].gen && !s->is_ending && !s->is_gone && cow_up_is_free(l, k)) {
            return (int)k;
        }
    }
    return -1;
}

static int free_bitmap(const struct cow *l)
{
    const struct map_head *h = map_head(l->m);
    unsigned used = 1u << h->cur;
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        const struct cow_set *s = &l->sets[k];
        if (h->frozen[k].gen || s->is_ending || s->is_gone) {
            used |= 1u << s->bitmap;
        }
    }
    return used == (1u << MAP_N_SETS) - 1 ? -1 : __builtin_ctz(~used);
}

static void on_begun(struct blk_msg *m)
{
    struct cow *l = CONTAINER_OF(m, struct cow, begun);
    l->is_begun_sent = false;
    cow_commit(l, NULL);
}

/* Suspects are as good as dirty: they become it now. */
static void expand_suspects(struct cow *l)
{
    struct blk_map *m = l->m;
    _Atomic uint64_t *dirty = atomic_load(&l->dirty);
    uint64_t n = map_n_blocks(map_head(m)->size);
    for (uint64_t r = 0; r * MAP_REGION_BLOCKS < n; r++) {
        if (!map_bit(m->suspect, map_region_bit(r))) {
            continue;
        }
        uint64_t b = r * MAP_REGION_BLOCKS, end = MIN(b + MAP_REGION_BLOCKS, n);
        for (; b < end; b += 64) {
            uint64_t k = MIN(end - b, UINT64_C(64));
            atomic_fetch_or(&dirty[b / 64], k == 64 ? ~UINT64_C(0) : (UINT64_C(1) << k) - 1);
        }
    }
    /* Only now: who is killed in between finds them as suspects still. */
}

static void forget_suspects(struct cow *l)
{
    for (size_t i = 0; i < (size_t)MAP_MAX_CHUNKS * 4; i++) {
        if (atomic_load_explicit(&l->m->suspect[i], memory_order_relaxed)) {
            atomic_store(&l->m->suspect[i], 0);
        }
    }
}

/* Everything stands still. One store (the flip) makes the new epoch, for whoever comes after us. */
static unsigned begin(struct cow *l, const char *snap, bool is_full)
{
    unsigned k = (unsigned)free_set(l), fresh = (unsigned)free_bitmap(l);
    struct map_head *h = map_head_begin(l->m);
    struct map_frozen *f = &h->frozen[k];
    *f = (struct map_frozen){.size = h->size, .gen = h->next_gen++, .set = h->cur};
    f->flags = is_full ? MAP_FULL : 0;
    memcpy(f->snap, snap, strnlen(snap, BLK_SNAP_ID - 1));
    /* An abort gives the parent back, so a full one remembers it too; it is not told. */
    memcpy(f->parent, h->since, sizeof(f->parent));
    memset(h->since, 0, sizeof(h->since));
    memcpy(h->since, f->snap, sizeof(h->since));
    map_flag_all(l->m, MAP_K_SET, h->cur);
    h->cur = fresh;
    h->epoch++;
    map_head_flip(l->m);
    forget_suspects(l);
    uint64_t epoch = atomic_load(&l->epoch);
    l->sets[k].bitmap = l->frozen_bitmap = f->set;
    atomic_store(&l->dirty, l->m->set[fresh]);
    attach(l, k, epoch);
    atomic_store(&l->epoch, epoch + 1);
    l->is_touch_reduced = false;
    return k;
}

static int may_begin(struct cow *l, const char *snap, struct err *err)
{
    size_t n = strnlen(snap, BLK_SNAP_ID);
    if (n == 0 || n == BLK_SNAP_ID) {
        return fail(err, -EINVAL, "BadSnapshotId", "\"%.*s\" is no id", (int)n, snap);
    }
    for (size_t i = 0; i < n; i++) {
        if (snap[i] <= ' ' || snap[i] > '~') {
            return fail(err, -EINVAL, "BadSnapshotId", "an id with unprintable characters");
        }
    }
    if (atomic_load(&l->fault)) {
        return fail(err, -ESTALE, "VolumeFaulted", "the volume has a fault");
    }
    if (l->n_slots == 0) {
        return fail(err, -ENOTSUP, "NoSnapshots",
                    "the volume was opened without a place aside");
    }
    uint64_t next = (atomic_load(&l->epoch) + 1) % COW_EPOCHS;
    bool is_late = false; /* a write seven epochs old is still under way */
    for (unsigned i = 0; i < COW_QUEUES; i++) {
        is_late |= atomic_load(&l->qs[i].in_flight[next]) != 0;
    }
    if (free_set(l) < 0 || free_bitmap(l) < 0 || l->is_begun_sent || is_late) {
        return fail(err, -EBUSY, "SnapshotsBusy", "too many snapshots are under way");
    }
    return 0;
}

int blk_cow_snap_begin(struct blk_layer *const *v, const char *const *snap, size_t n,
                       bool is_full, unsigned *ret_idx, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc =
            find_set(cow_of(v[i]), snap[i]) >= 0 ? 0 : may_begin(cow_of(v[i]), snap[i], err);
        if (rc) {
            return rc;
        }
    }
    for (size_t i = 0; i < n; i++) {
        atomic_store(&cow_of(v[i])->hold, 1);
    }
    for (size_t i = 0; i < n; i++) {
        cow_quiesce(cow_of(v[i]));
    }
    for (size_t i = 0; i < n; i++) {
        struct cow *l = cow_of(v[i]);
        int there = find_set(l, snap[i]);
        if (there >= 0) {
            ret_idx[i] = (unsigned)there;
            continue;
        }
        expand_suspects(l);
        ret_idx[i] = begin(l, snap[i], is_full);
        l->is_begun_sent = true;
        l->begun.fn = on_begun;
        blk_queue_post(l->o.inner, &l->begun);
    }
    for (size_t i = 0; i < n; i++) {
        atomic_store(&cow_of(v[i])->hold, 0);
    }
    for (size_t i = 0; i < n; i++) {
        struct cow *l = cow_of(v[i]);
        cow_quiesce(l); /* who saw the hold has parked its request by now */
        for (unsigned q = 0; q < COW_QUEUES; q++) {
            struct cow_q *cq = &l->qs[q];
            if (atomic_load(&cq->has_held) && !atomic_exchange(&cq->release_sent, 1)) {
                blk_queue_post(atomic_load(&cq->q), &cq->release);
            }
        }
    }
    return 0;
}

/* Regions in which the ended epoch wrote nothing are not touched any more. Those that are written
 * in the new one stay, whatever happens at this moment: first the permission goes, then everybody
 * is past it, then dirt is looked at. */
void cow_snap_reduce(struct cow *l)
{
    struct blk_map *m = l->m;
    if (l->is_touch_reduced) {
        return;
    }
    l->is_touch_reduced = true;
    const _Atomic uint64_t *was = m->set[l->frozen_bitmap], *now = atomic_load(&l->dirty);
    uint64_t n_regions = (map_head(m)->size + BLK_REGION - 1) / BLK_REGION;
    bool is_any = false;
    for (uint64_t r = 0; r < n_regions; r++) {
        uint64_t bit = map_region_bit(r), b = r * MAP_REGION_BLOCKS, e = b + MAP_REGION_BLOCKS;
        if (map_bit(m->safe, bit) && map_next_bit(was, b, e) == e) {
            map_bit_clear(m->safe, bit);
            is_any = true;
        }
    }
    if (!is_any) {
        return;
    }
    cow_quiesce(l);
    for (uint64_t r = 0; r < n_regions; r++) {
        uint64_t bit = map_region_bit(r), b = r * MAP_REGION_BLOCKS, e = b + MAP_REGION_BLOCKS;
        if (!map_bit(m->touch, bit) || map_bit(m->safe, bit) || map_bit(l->wanted, bit) ||
            map_bit(m->suspect, bit)) {
            continue;
        }
        if (map_next_bit(now, b, e) < e) {
            (void)map_bit_set(m->safe, bit);
        } else {
            map_flag(m, map_no(MAP_K_TOUCH, 0, b));
            map_bit_clear(m->touch, bit);
        }
    }
}

/* ---- end ---- */

static int live_set(struct cow *l, unsigned idx, struct err *err)
{
    if (idx >= BLK_MAX_FROZEN || !map_head(l->m)->frozen[idx].gen) {
        return fail(err, -ENOENT, "NoSuchSnapshot", "no snapshot is under way at place %u",
                    idx);
    }
    return 0;
}

static void let_go(struct cow *l, unsigned idx, struct map_head *h)
{
    struct cow_set *s = &l->sets[idx];
    s->is_ending = true;
    memset(&h->frozen[idx], 0, sizeof(h->frozen[idx]));
    map_head_flip(l->m);
    atomic_store(&s->gen, 0);
    atomic_fetch_sub(&l->n_frozen, 1);
    cow_up_stop(l, idx);
    cow_quiesce(l);
    cow_kick(l); /* writes that waited for a copy need none now */
    cow_commit(l, NULL);
}

int blk_cow_snap_end(struct blk_layer *base, unsigned idx, struct err *err)
{
    struct cow *l = cow_of(base);
    int rc = live_set(l, idx, err);
    if (rc == 0) {
        let_go(l, idx, map_head_begin(l->m));
    }
    return rc;
}

int blk_cow_snap_abort(struct blk_layer *base, unsigned idx, struct err *err)
{
    struct cow *l = cow_of(base);
    int rc = live_set(l, idx, err);
    if (rc) {
        return rc;
    }
    const struct map_frozen f = map_head(l->m)->frozen[idx];
    if (!is_same_id(map_head(l->m)->since, f.snap)) {
        return fail(err, -EBUSY, "NewerSnapshot",
                    "a newer snapshot is an increment of this one");
    }
    /* Blocks that are dirty again have been copied aside or not been written: only the bit that
     * permits to write them without a look must not come back while others still need copies. So
     * they become suspects, by region. */
    const _Atomic uint64_t *set = l->m->set[f.set];
    uint64_t n = map_n_blocks(f.size);
    for (uint64_t b = map_next_bit(set, 0, n); b < n; b = map_next_bit(set, b, n)) {
        uint64_t region = b / MAP_REGION_BLOCKS;
        map_flag(l->m, map_no(MAP_K_TOUCH, 0, b));
        (void)map_bit_set(l->m->suspect, map_region_bit(region));
        (void)map_bit_set(l->m->touch, map_region_bit(region));
        b = (region + 1) * MAP_REGION_BLOCKS;
    }
    struct map_head *h = map_head_begin(l->m);
    memcpy(h->since, f.parent, sizeof(h->since));
    let_go(l, idx, h);
    return 0;
}

/* The head without the set is durable: what it held is given back. */
static void wipe(struct cow *l, unsigned k)
{
    struct cow_set *s = &l->sets[k];
    map_wipe(l->m, MAP_K_SET, s->bitmap);
    map_wipe(l->m, MAP_K_STORED, k);
    map_wipe_open(l->m, k);
    s->is_gone = false;
    s->n_aside = 0;
    cow_aside_drop(l, k);
    cow_commit(l, NULL);
}

void cow_snap_kick(struct cow *l)
{
    bool may_go = cow_head_may_go(l);
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        struct cow_set *s = &l->sets[k];
        /* Not in the middle of a sweep: it may be copying what goes. */
        if (s->is_gone && !l->commit.is_running && cow_up_is_idle(l, k)) {
            wipe(l, k);
        } else if (s->is_gone && !l->is_closing) {
            cow_tick(l);
        }
        if (atomic_load(&s->gen) && !s->is_durable && may_go && !l->commit.is_running &&
            !l->commit.is_wanted) {
            cow_commit(l, NULL);
        }
    }
    cow_up_kick(l);
}

void cow_snap_free(struct cow *l)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        struct cow_set *s = &l->sets[k];
        for (unsigned i = 0; s->slots && i < COW_WINDOW; i++) {
            free(s->slots[i].buf);
        }
        free(s->slots);
        s->slots = NULL;
    }
}

bool cow_snap_is_idle(struct cow *l)
{
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        if (!cow_up_is_idle(l, k)) {
            return false;
        }
    }
    return !l->is_begun_sent;
}

/* ---- questions ---- */

void blk_cow_since(struct blk_layer *base, char ret[BLK_SNAP_ID])
{
    memcpy(ret, map_head(cow_of(base)->m)->since, BLK_SNAP_ID);
}

void blk_cow_frozen(struct blk_layer *base, struct blk_frozen ret[BLK_MAX_FROZEN])
{
    struct cow *l = cow_of(base);
    memset(ret, 0, BLK_MAX_FROZEN * sizeof(*ret));
    for (unsigned k = 0; k < BLK_MAX_FROZEN; k++) {
        const struct map_frozen *f = &map_head(l->m)->frozen[k];
        const struct cow_set *s = &l->sets[k];
        if (!f->gen) {
            continue;
        }
        memcpy(ret[k].snap, f->snap, BLK_SNAP_ID);
        if (!s->is_full) {
            memcpy(ret[k].parent, f->parent, BLK_SNAP_ID);
        }
        ret[k].n_blocks = s->n_frozen;
        ret[k].n_left = s->is_end_told ? 0 : s->n_frozen - MIN(s->n_stored, s->n_frozen);
        ret[k].n_aside = s->n_aside;
        ret[k].is_full = s->is_full;
        ret[k].is_durable = s->is_durable;
    }
}
