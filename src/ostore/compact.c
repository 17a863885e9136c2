#include "ostore/ostore_int.h"

#include "base/log.h"
#include <errno.h>
#include <time.h>

LOG_MODULE("ostore.compact");

#define EVERY_NS    (5 * NS_PER_S)
#define RATE        (UINT64_C(32) << 20) /* bytes a second that are looked at, when nobody waits */
#define GROUP_RECS  256u
#define GROUP_BYTES ((size_t)2 << 20)
#define TURN_MAX    8u /* segments before the index is flushed */

struct copy {
    struct cop op;
    struct olog_rec rec;
};
struct compact {
    struct ostore *s;
    struct ticker *ticker;
    pthread_mutex_t turn; /* one at a time */
    atomic_bool is_stopping;
    /* of the turn */
    struct olog_segment *segs;
    size_t n_segs;
    uint64_t cur; /* segment at hand */
    bool is_forced, is_dry;
    uint64_t kept, copied; /* bytes of it that live on */
    struct arena *a;
    VEC(struct copy *) group;
    size_t group_bytes;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    size_t n_open; /* ops that are not answered */
    int rc;
    struct err err;
    uint64_t n_removed;
    struct inums useless; /* segment: a = n_removed when there was nothing to gain */
    struct inums buried;  /* segments that wait for their removal */
};

/* --- what is needed --- */

/* Whether a segment is left, beside the one at hand, that may hold a record which the tombstone is
 * there for: one with an lsn from 'since' to 'origin'. */
static bool is_range_left(const struct compact *c, uint64_t since, uint64_t origin)
{
    for (size_t i = 0; i < c->n_segs; i++) {
        const struct olog_segment *g = &c->segs[i];
        bool ends_after = g->last_lsn == 0 || g->last_lsn >= since;
        if (g->segment != c->cur && g->first_lsn <= origin && ends_after) {
            return true;
        }
    }
    return false;
}

static bool is_tombstone(enum orec_kind kind)
{
    return kind == OREC_GONE || kind == OREC_RENAME || kind == OREC_ABORT ||
           kind == OREC_BUCKET_GONE;
}

static int is_there(struct compact *c, const struct ikey *k, const struct olog_rec *r,
                    struct err *err)
{
    struct arena *a = arena_new((size_t)4 << 20);
    struct str value;
    struct ival v;
    int rc = oindex_get(c->s->index, ikey_str(k), false, a, &value, err);
    if (rc == 0) {
        rc = ival_decode(value, &v, err);
        rc = rc < 0 ? rc : v.segment == r->at.segment && v.off == r->at.off;
    }
    arena_free(a);
    return rc == -ENOENT ? 0 : rc;
}

/* A version can move between the two places while they are looked at: what lives could be taken for
 * dead. In buckets where that can be the committer is asked about every record. */
static bool has_old(const struct compact *c, uint64_t bucket)
{
    pthread_mutex_lock(&c->s->counts.lock);
    const struct inum *n = inums_find(&c->s->counts.buckets, bucket);
    bool is = n && n->has_ids;
    pthread_mutex_unlock(&c->s->counts.lock);
    return is;
}

/* Without the committer, who decides: this is only to spare it most of the dead ones. */
static int is_wanted(struct compact *c, const struct olog_rec *r, const struct ipeek *p,
                     struct err *err)
{
    struct ikey k;
    int rc;
    switch (r->kind) {
    case OREC_COMPLETE: return 1;
    case OREC_PUT:
    case OREC_MARKER:
        if (!c->is_dry && has_old(c, p->bucket)) {
            return 1;
        }
        ikey_object(&k, p->bucket, p->key);
        rc = is_there(c, &k, r, err);
        if (rc != 0) {
            return rc;
        }
        ikey_old(&k, p->bucket, p->key, p->origin ? p->origin : r->lsn);
        return is_there(c, &k, r, err);
    case OREC_UPLOAD: ikey_upload(&k, p->bucket, p->key, p->upload); break;
    case OREC_PART: ikey_part(&k, p->upload, p->part_number); break;
    case OREC_BUCKET: ikey_number(&k, IX_BUCKET, p->bucket); break;
    case OREC_BUCKET_CONF: ikey_conf(&k, p->bucket, p->conf); break;
    default:
        return is_tombstone(r->kind) &&
               is_range_left(c, p->source, p->origin ? p->origin : r->lsn);
    }
    return is_there(c, &k, r, err);
}

/* --- copies, in groups that share a sync --- */

static void copy_done(struct cop *op)
{
    struct compact *c = op->ctx;
    pthread_mutex_lock(&c->lock);
    if (op->rc < 0 && c->rc == 0) {
        c->rc = op->rc;
        c->err = op->err;
    }
    if (--c->n_open == 0) {
        pthread_cond_signal(&c->cond);
    }
    pthread_mutex_unlock(&c->lock);
}

static void pause_ns(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    nanosleep(&ts, NULL);
}

static int flush_group(struct compact *c, struct err *err)
{
    int rc = 0;
    c->n_open = c->group.n;
    for (size_t i = 0; i < c->group.n; i++) {
        struct cop *op = &c->group.v[i]->op;
        op->done = copy_done;
        op->ctx = c;
        while (commit_push(c->s->commit, op, NULL) < 0) {
            pause_ns(NS_PER_MS); /* others first */
            if (atomic_load(&c->is_stopping)) {
                op->rc = -ECANCELED;
                copy_done(op);
                break;
            }
        }
    }
    pthread_mutex_lock(&c->lock);
    while (c->n_open > 0) {
        pthread_cond_wait(&c->cond, &c->lock);
    }
    if (c->rc < 0) {
        rc = fail(err, c->rc, c->err.name ? c->err.name : "Stopped", "%s", c->err.msg);
    }
    pthread_mutex_unlock(&c->lock);
    c->group.n = 0;
    c->group_bytes = 0;
    arena_reset(c->a);
    return rc;
}

static int take_record(void *ctx, const struct olog_rec *r, struct err *err)
{
    struct compact *c = ctx;
    struct ipeek p;
    if (atomic_load(&c->is_stopping)) {
        return -ECANCELED;
    }
    if (r->kind == OREC_NOTHING) {
        return 0;
    }
    if (index_peek(r->head, &p) < 0) {
        return fail(err, -EBADMSG, "BadRecord", "a record has a broken head");
    }
    int rc = is_wanted(c, r, &p, err);
    if (rc <= 0) {
        return rc;
    }
    c->kept += r->size;
    if (c->is_dry) {
        return 0;
    }
    struct copy *copy = arena_alloc(c->a, sizeof(*copy));
    if (!copy) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for copies");
    }
    copy->rec = *r;
    copy->rec.head = arena_str_dup(c->a, r->head);
    copy->rec.body = r->body.n ? arena_str_dup(c->a, r->body) : STR_NONE;
    copy->op = (struct cop){
        .kind = COP_MOVE,
        .src = &copy->rec,
        .is_tombstone_needed = is_tombstone(r->kind) || r->kind == OREC_COMPLETE,
    };
    vec_push(&c->group, copy);
    c->group_bytes += r->size;
    return c->group.n >= GROUP_RECS || c->group_bytes >= GROUP_BYTES ? flush_group(c, err) : 0;
}

/* --- which segments --- */

static uint64_t live_of(struct compact *c, uint64_t segment)
{
    pthread_mutex_lock(&c->s->counts.lock);
    const struct inum *n = inums_find(&c->s->counts.segments, segment);
    int64_t live = n ? n->a : 0;
    pthread_mutex_unlock(&c->s->counts.lock);
    return live > 0 ? (uint64_t)live : 0;
}

/* The closed segment with the smallest part that lives, when it is worth it: always when
 * nothing lives, else while the log is larger than 1.25 of what lives and two segments more. */
static bool choose(struct compact *c, const struct inums *done, struct olog_segment *ret)
{
    uint64_t size = 0, live = 0, largest = 0, best_live = 0;
    const struct olog_segment *best = NULL;
    for (size_t i = 0; i < c->n_segs; i++) {
        const struct olog_segment *g = &c->segs[i];
        uint64_t l = MIN(live_of(c, g->segment), g->size);
        size += g->size;
        live += l;
        largest = MAX(largest, g->size);
        const struct inum *u = inums_find(&c->useless, g->segment);
        struct inums *d = (struct inums *)(uintptr_t)done;
        if (g->last_lsn == 0 || (u && u->a == (int64_t)c->n_removed) ||
            inums_find(d, g->segment) || inums_find(&c->buried, g->segment)) {
            continue;
        }
        if (!best || l * best->size < best_live * g->size) {
            best = g;
            best_live = l;
        }
    }
    if (!best) {
        return false;
    }
    *ret = *best;
    uint64_t dead = best->size - MIN(best_live, best->size);
    return best_live == 0 || (size > live + live / 4 + 2 * largest && dead * 8 > best->size) ||
           (c->is_forced && dead * 4 > best->size);
}

struct drop {
    struct compact *c;
    const struct inums *segments;
};

/* On the committer's thread, the only one that writes the index. */
static int drop_counts(void *ctx, struct err *err)
{
    struct drop *d = ctx;
    struct oindex_batch *b = oindex_batch_new();
    for (size_t i = 0; i < d->segments->v.n; i++) {
        struct ikey k;
        ikey_number(&k, IX_LIVE, d->segments->v.v[i].key);
        oindex_del(b, ikey_str(&k));
        pthread_mutex_lock(&d->c->s->counts.lock);
        inums_drop(&d->c->s->counts.segments, d->segments->v.v[i].key);
        pthread_mutex_unlock(&d->c->s->counts.lock);
    }
    int rc = oindex_apply(d->c->s->index, b, err);
    oindex_batch_free(b);
    return rc;
}

/* Everything that lives in these has been copied, and the copies are synced. */
static int remove_segments(struct compact *c, const struct inums *done, struct err *err)
{
    struct drop d = {.c = c, .segments = done};
    if (done->v.n == 0) {
        return 0;
    }
    int rc = commit_call(c->s->commit, drop_counts, &d, err);
    if (rc == 0) {
        rc = oindex_flush(c->s->index, err); /* it must not name what is removed */
    }
    for (size_t i = 0; i < done->v.n && rc == 0; i++) {
        struct pin_victim v = {.is_segment = true, .segment = done->v.v[i].key};
        uint8_t id[16];
        pin_of_segment(v.segment, id);
        pins_bury(c->s->pins, id, &v);
        inums_drop(&c->useless, v.segment);
        inums_get(&c->buried, v.segment);
        c->n_removed++;
    }
    return rc;
}

static int walk(struct compact *c, const struct olog_segment *g, bool is_dry, struct err *err)
{
    uint64_t begin = time_mono_ns();
    c->cur = g->segment;
    c->is_dry = is_dry;
    c->kept = 0;
    c->rc = 0;
    err_clear(&c->err);
    int rc = olog_walk(c->s->log, g->segment, take_record, c, err);
    if (!is_dry) {
        int rc2 = flush_group(c, rc < 0 ? NULL : err);
        rc = rc < 0 ? rc : rc2;
    }
    uint64_t took = time_mono_ns() - begin, want = g->size * NS_PER_S / RATE;
    bool is_pressed = c->is_forced || drives_space(c->s->drives) != SPACE_OK;
    for (; took < want && !is_pressed && !atomic_load(&c->is_stopping);
         took += 50 * NS_PER_MS) {
        pause_ns(50 * NS_PER_MS);
    }
    return rc;
}

/* Those that are gone need not be remembered. */
static void forget_buried(struct compact *c)
{
    for (size_t i = c->buried.v.n; i-- > 0;) {
        size_t j = 0;
        while (j < c->n_segs && c->segs[j].segment != c->buried.v.v[i].key) {
            j++;
        }
        if (j == c->n_segs) {
            vec_remove(&c->buried.v, i);
        }
    }
}

/* 1: there may be more to do. */
static int one_turn(struct compact *c, uint64_t *freed, struct err *err)
{
    struct inums done = {0};
    struct olog_segment g;
    int rc = olog_segments(c->s->log, &c->segs, &c->n_segs);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for segments");
    }
    forget_buried(c);
    uint64_t gain = 0;
    for (unsigned i = 0; i < TURN_MAX && rc == 0 && choose(c, &done, &g); i++) {
        rc = walk(c, &g, true, err);
        if (rc < 0) {
            break;
        }
        if (c->kept + g.size / 10 > g.size || (c->kept && g.size - c->kept < 4096)) {
            inums_get(&c->useless, g.segment)->a = (int64_t)c->n_removed;
            continue;
        }
        if (c->kept) {
            rc = walk(c, &g, false, err);
        }
        if (rc == 0) {
            inums_get(&done, g.segment);
            gain += g.size - MIN(c->kept, g.size);
        }
    }
    if (done.v.n > 0) {
        struct err why = ERR_INIT;
        int rc2 = remove_segments(c, &done, rc < 0 ? &why : err);
        rc = rc < 0 ? rc : rc2;
        *freed += rc == 0 ? gain : 0;
    }
    bool is_more = done.v.n > 0;
    vec_free(&done.v);
    free(c->segs);
    c->segs = NULL;
    return rc < 0 ? rc : is_more;
}

int compact_turn(struct compact *c, uint64_t *ret_freed, struct err *err)
{
    int rc = 0;
    uint64_t freed = 0;
    pthread_mutex_lock(&c->turn);
    c->is_forced = true;
    do {
        rc = one_turn(c, &freed, err);
        if (rc > 0) {
            pins_settle(c->s->pins);
        }
    } while (rc > 0 && !atomic_load(&c->is_stopping));
    c->is_forced = false;
    pthread_mutex_unlock(&c->turn);
    *ret_freed = freed;
    return rc < 0 ? rc : 0;
}

int compact_give_up(struct compact *c, uint64_t segment, struct err *err)
{
    struct inums done = {0};
    struct err why = ERR_INIT;
    pthread_mutex_lock(&c->turn);
    int rc = olog_segments(c->s->log, &c->segs, &c->n_segs);
    rc = rc < 0 ? fail(err, rc, "OutOfMemory", "no memory for segments") : 0;
    for (size_t i = 0; i < c->n_segs && rc == 0; i++) {
        if (c->segs[i].segment != segment || c->segs[i].last_lsn == 0) {
            continue;
        }
        c->is_forced = true;
        rc = walk(c, &c->segs[i], false, &why);
        c->is_forced = false;
        if (rc == -EUCLEAN) { /* that is why */
            rc = 0;
        }
        rc = rc < 0 ? fail(err, rc, why.name, "%s", why.msg) : 0;
        if (rc == 0) {
            inums_get(&done, segment);
            rc = remove_segments(c, &done, err);
        }
        break;
    }
    vec_free(&done.v);
    free(c->segs);
    c->segs = NULL;
    c->n_segs = 0;
    pthread_mutex_unlock(&c->turn);
    return rc;
}

static void tick(void *ctx)
{
    struct compact *c = ctx;
    struct err err = ERR_INIT;
    uint64_t freed = 0;
    if (atomic_load(&c->is_stopping) || atomic_load(&c->s->is_readonly)) {
        return;
    }
    pthread_mutex_lock(&c->turn);
    int rc = one_turn(c, &freed, &err);
    pthread_mutex_unlock(&c->turn);
    if (rc < 0 && rc != -ECANCELED) {
        log_warn_rl("compact.failed", KV_ERR(&err));
    } else if (rc > 0) {
        log_debug("compact.turn", KV_U64("freed", freed));
        ticker_poke(c->ticker);
    }
}

struct compact *compact_start(struct ostore *s)
{
    struct compact *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->s = s;
    c->a = arena_new((size_t)64 << 20);
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->cond, NULL);
    return c;
}

void compact_run(struct compact *c)
{
    pthread_mutex_lock(&c->turn); /* no turn before the ticker is known */
    c->ticker = ticker_start(tick, c, EVERY_NS);
    pthread_mutex_unlock(&c->turn);
}

void compact_poke(struct compact *c)
{
    if (c && c->ticker) {
        ticker_poke(c->ticker);
    }
}

void compact_stop(struct compact *c)
{
    if (!c) {
        return;
    }
    atomic_store(&c->is_stopping, true);
    ticker_stop(c->ticker);
    vec_free(&c->group);
    vec_free(&c->useless.v);
    vec_free(&c->buried.v);
    arena_free(c->a);
    pthread_mutex_destroy(&c->turn);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->cond);
    free(c);
}
