#include "ostore/scrub.h"

#include "base/log.h"
#include "ostore/heal.h"
#include "ostore/oindex_int.h"
#include "ostore/recode.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>

LOG_MODULE("ostore.scrub");

#define EVERY_NS      (7 * 24 * 3600 * NS_PER_S) /* a pass by itself */
#define MOVE_AFTER_NS (24 * 3600 * NS_PER_S)
#define TICK_NS       (60 * NS_PER_S)
#define RATE          (UINT64_C(16) << 20) /* bytes a second, of a pass by itself */
#define SWEEP_AGE     (600 * NS_PER_S)
#define STATE_KEY     "S"
#define STATE_HEAD    48u

enum { PHASE_NONE, PHASE_LOG, PHASE_BODIES };

struct scrub {
    struct ostore *s;
    struct ticker *ticker;
    struct heal *heal;
    atomic_bool is_stopping, is_wanted, is_repair;
    pthread_mutex_t lock;
    struct ostore_scrub status;
    bool is_swept; /* since the start */
    bool makes_folders;
    uint32_t has_folders; /* drives */
    /* of the pass */
    unsigned phase;
    uint64_t segment; /* verified up to here */
    struct heal_cursor cursor;
    /* of healing: the body that heal has now */
    struct file_place last;
    char last_name[32 + 3 * OREC_KEY_MAX];
};

static void pause_for(struct scrub *c, uint64_t bytes, uint64_t took_ns)
{
    uint64_t want = bytes * NS_PER_S / RATE;
    while (took_ns < want && !atomic_load(&c->is_stopping) && !atomic_load(&c->is_wanted)) {
        struct timespec ts = {.tv_nsec = (long)(20 * NS_PER_MS)};
        nanosleep(&ts, NULL);
        took_ns += 20 * NS_PER_MS;
    }
}

/* --- where a pass is, kept in the index --- */

struct save {
    struct scrub *c;
    char head[STATE_HEAD];
};

static int save_state(void *ctx, struct err *err)
{
    struct save *sv = ctx;
    struct oindex_batch *b = oindex_batch_new();
    oindex_put2(b, STR(STATE_KEY), str_n(sv->head, sizeof(sv->head)),
                str_n((const char *)sv->c->cursor.p, sv->c->cursor.n));
    int rc = oindex_apply(sv->c->s->index, b, err);
    oindex_batch_free(b);
    return rc;
}

static void remember(struct scrub *c)
{
    struct save sv = {.c = c};
    struct err err = ERR_INIT;
    uint64_t v[6] = {c->phase, c->segment};
    pthread_mutex_lock(&c->lock);
    v[2] = c->status.started_ns;
    v[3] = c->status.ended_ns;
    v[4] = c->status.n_bytes;
    v[5] = c->status.n_objects;
    pthread_mutex_unlock(&c->lock);
    memcpy(sv.head, v, sizeof(v));
    if (commit_call(c->s->commit, save_state, &sv, &err) < 0) {
        log_debug("scrub.forgets", KV_ERR(&err));
    }
}

static void recall(struct scrub *c)
{
    struct arena *a = arena_new(16384);
    struct str value;
    uint64_t v[6];
    if (oindex_get(c->s->index, STR(STATE_KEY), false, a, &value, NULL) == 0 &&
        value.n >= STATE_HEAD && value.n - STATE_HEAD <= HEAL_CURSOR_MAX) {
        memcpy(v, value.p, sizeof(v));
        c->phase = v[0] <= PHASE_BODIES ? (unsigned)v[0] : PHASE_NONE;
        c->segment = v[1];
        c->status.started_ns = v[2];
        c->status.ended_ns = v[3];
        c->status.n_bytes = v[4];
        c->status.n_objects = v[5];
        c->cursor.n = value.n - STATE_HEAD;
        memcpy(c->cursor.p, value.p + STATE_HEAD, c->cursor.n);
    }
    arena_free(a);
}

/* --- a pass --- */

static int verify_log(struct scrub *c, struct err *err)
{
    struct olog_segment *v = NULL;
    size_t n = 0;
    int rc = olog_segments(c->s->log, &v, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (v[i].segment <= c->segment || v[i].last_lsn == 0) {
            continue;
        }
        if (atomic_load(&c->is_stopping)) {
            rc = -ECANCELED;
            break;
        }
        struct olog_verify r = {0};
        uint64_t begin = time_mono_ns();
        int rc2 = olog_verify(c->s->log, v[i].segment, &r, err);
        if (rc2 < 0 && rc2 != -ENOENT) { /* compaction may have taken it */
            log_warn("scrub.segment", KV_U64("segment", v[i].segment),
                     KV_CSTR("why", err ? err->msg : ""));
            err_clear(err);
        }
        pthread_mutex_lock(&c->lock);
        c->status.n_objects += r.n_records;
        c->status.n_bytes += v[i].size;
        c->status.n_bad += r.n_repaired + r.n_lost;
        c->status.n_repaired += r.n_repaired;
        c->status.n_lost += r.n_lost;
        if (r.n_lost) {
            (void)snprintf(c->status.last_lost, sizeof(c->status.last_lost), "log segment %llu",
                           (unsigned long long)v[i].segment);
        }
        pthread_mutex_unlock(&c->lock);
        c->segment = v[i].segment;
        remember(c);
        pause_for(c, v[i].size, time_mono_ns() - begin);
    }
    free(v);
    return rc;
}

/* Pins what the cursor came to, so that its files stay while they are looked at. */
static int next_body(struct scrub *c, struct heal_cursor *io, struct arena *a,
                     struct file_place *ret, struct err *err)
{
    uint64_t epoch = pins_enter(c->s->pins);
    int rc = files_next(c->s, io, a, ret, err);
    if (rc > 0) {
        pins_hold(c->s->pins, ret->pin);
    }
    pins_leave(c->s->pins, epoch);
    return rc;
}

static int verify_body(struct scrub *c, struct file_place *f, struct err *err)
{
    struct shard_verify r = {0};
    bool is_moved = false;
    uint64_t begin = time_mono_ns();
    unsigned flags = atomic_load(&c->is_repair) ? SHARD_REPAIR : 0;
    int rc = shard_verify(c->s->shards, &f->body, flags, &r, &is_moved, err);
    if (rc == 0 && is_moved) {
        rc = files_moved(c->s, f, err);
    }
    pthread_mutex_lock(&c->lock);
    c->status.n_objects++;
    c->status.n_bytes += r.n_bytes;
    c->status.n_bad += r.n_bad;
    c->status.n_repaired += r.n_rebuilt;
    if (r.n_lost > 0) {
        c->status.n_lost++;
        (void)snprintf(c->status.last_lost, sizeof(c->status.last_lost), "%.*s",
                       STR_ARG(f->name));
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0) {
        log_warn_rl("scrub.body", KV_STR("object", f->name),
                    KV_CSTR("why", err ? err->msg : ""));
        err_clear(err);
    }
    pause_for(c, r.n_bytes, time_mono_ns() - begin);
    return 0; /* the next one may be well */
}

static int verify_bodies(struct scrub *c, struct err *err)
{
    struct arena *a = arena_new((size_t)8 << 20);
    int rc = 1;
    for (unsigned n = 1; rc > 0; n++) {
        struct file_place f;
        if (atomic_load(&c->is_stopping)) {
            rc = -ECANCELED;
            break;
        }
        arena_reset(a);
        rc = next_body(c, &c->cursor, a, &f, err);
        if (rc > 0) {
            int rc2 = verify_body(c, &f, err);
            pins_drop(c->s->pins, f.pin);
            rc = rc2 < 0 ? rc2 : rc;
        }
        if (n % 64 == 0) {
            remember(c);
        }
    }
    arena_free(a);
    return rc;
}

static void pass(struct scrub *c)
{
    struct err err = ERR_INIT;
    int rc = 0;
    if (c->phase == PHASE_NONE) {
        c->phase = PHASE_LOG;
        c->segment = 0;
        c->cursor.n = 0;
        pthread_mutex_lock(&c->lock);
        c->status = (struct ostore_scrub){.is_running = true, .started_ns = ostore_now(c->s)};
        pthread_mutex_unlock(&c->lock);
    }
    pthread_mutex_lock(&c->lock);
    c->status.is_running = true;
    pthread_mutex_unlock(&c->lock);
    if (c->phase == PHASE_LOG) {
        rc = verify_log(c, &err);
        if (rc == 0) {
            c->phase = PHASE_BODIES;
        }
    }
    if (rc == 0) {
        rc = verify_bodies(c, &err);
    }
    uint64_t n = 0;
    if (rc == 0 && atomic_load(&c->is_repair)) {
        rc = files_sweep(c->s, 0, &n, &err);
    }
    pthread_mutex_lock(&c->lock);
    c->status.n_orphans += n;
    c->status.is_running = rc == -ECANCELED;
    if (rc == 0) {
        c->phase = PHASE_NONE;
        c->status.ended_ns = ostore_now(c->s);
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0 && rc != -ECANCELED) {
        log_warn_rl("scrub.failed", KV_ERR(&err));
    }
    remember(c);
}

/* Of drives that came, too: one that was replaced is healing first. */
static void make_folders(struct scrub *c)
{
    for (unsigned i = 0; i < drives_n(c->s->drives) && c->makes_folders; i++) {
        enum drive_state state = drives_state(c->s->drives, i);
        bool is_there = state == DRIVE_OK || state == DRIVE_HEALING;
        if (!is_there) {
            c->has_folders &= ~(1u << i);
        } else if (!(c->has_folders >> i & 1) && drives_make_folders(c->s->drives, i) == 0) {
            c->has_folders |= 1u << i;
        }
    }
}

static void tick(void *ctx)
{
    struct scrub *c = ctx;
    struct err err = ERR_INIT;
    uint64_t n = 0;
    if (atomic_load(&c->is_stopping)) {
        return;
    }
    make_folders(c);
    if (!c->is_swept && !atomic_load(&c->s->is_readonly)) {
        c->is_swept = true; /* what a crash left */
        int rc = files_sweep(c->s, SWEEP_AGE, &n, &err);
        if (rc < 0 && rc != -ECANCELED) {
            log_warn("sweep.failed", KV_ERR(&err));
        } else if (n > 0) {
            log_debug("sweep.removed", KV_U64("files", n));
        }
    }
    pthread_mutex_lock(&c->lock);
    bool is_due = ostore_now(c->s) > c->status.ended_ns + EVERY_NS || c->phase != PHASE_NONE;
    pthread_mutex_unlock(&c->lock);
    bool is_asked = atomic_load(&c->is_wanted);
    if (is_asked) {
        c->phase = PHASE_NONE; /* all of it, from the beginning */
    } else if (is_due) {
        atomic_store(&c->is_repair, !atomic_load(&c->s->is_readonly));
    }
    if (is_asked || is_due) {
        pass(c);
    }
    if (is_asked) { /* else somebody asked meanwhile: the next turn is for that */
        atomic_store(&c->is_wanted, false);
    }
}

int ostore_scrub_start(struct ostore *s, bool is_repair, struct err *err)
{
    struct scrub *c = s->scrub;
    bool was = false;
    if (!atomic_compare_exchange_strong(&c->is_wanted, &was, true)) {
        return fail(err, -EBUSY, "ScrubRuns", "a scrub is running");
    }
    atomic_store(&c->is_repair, is_repair && !atomic_load(&s->is_readonly));
    pthread_mutex_lock(&c->lock);
    c->status = (struct ostore_scrub){.is_running = true, .started_ns = ostore_now(s)};
    pthread_mutex_unlock(&c->lock);
    ticker_poke(c->ticker);
    return 0;
}

void ostore_scrub_status(struct ostore *s, struct ostore_scrub *ret)
{
    pthread_mutex_lock(&s->scrub->lock);
    *ret = s->scrub->status;
    pthread_mutex_unlock(&s->scrub->lock);
    ret->is_running |= atomic_load(&s->scrub->is_wanted);
}

/* --- healing --- */

static int heal_base(void *ctx, uint32_t which, struct err *err)
{
    struct scrub *c = ctx;
    struct olog_segment *v = NULL;
    size_t n = 0;
    int rc = olog_segments(c->s->log, &v, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct olog_verify r = {0};
        /* The one being written too: it is left for another when it has too few copies. */
        rc = olog_verify(c->s->log, v[i].segment, &r, err);
        rc = rc == -ENOENT ? 0 : rc;
        if (atomic_load(&c->is_stopping)) {
            rc = -ECANCELED;
        }
    }
    free(v);
    pthread_rwlock_rdlock(&c->s->keys_lock);
    if (rc == 0 && c->s->body_keys) {
        rc = body_keys_spread(c->s->body_keys, err);
    }
    pthread_rwlock_unlock(&c->s->keys_lock);
    return rc;
}

static void let_go(struct scrub *c)
{
    files_at_work(c->s, NULL);
    if (c->last.is_set) {
        pins_drop(c->s->pins, c->last.pin);
        c->last.is_set = false;
    }
}

static int heal_next(void *ctx, struct heal_cursor *io, struct arena *a, struct heal_body *ret,
                     struct err *err)
{
    struct scrub *c = ctx;
    let_go(c);
    int rc = next_body(c, io, a, &c->last, err);
    c->last.is_set = rc > 0;
    files_at_work(c->s, rc > 0 ? c->last.body.id : NULL);
    if (rc > 0) {
        *ret =
            (struct heal_body){.body = c->last.body, .lsn = c->last.lsn, .name = c->last.name};
    }
    return rc;
}

static void heal_over(void *ctx)
{
    let_go(ctx);
}

/* Bodies that a reader reported are not at the cursor: their place is not known, -ENOENT. */
static int heal_moved(void *ctx, const struct heal_body *b, struct err *err)
{
    struct scrub *c = ctx;
    if (!c->last.is_set || memcmp(c->last.body.id, b->body.id, OREC_ID_SIZE) != 0) {
        return -ENOENT;
    }
    memcpy(c->last.body.drive, b->body.drive, sizeof(b->body.drive));
    return files_moved(c->s, &c->last, err);
}

/* All bodies with the full code are no news; one that is written meanwhile says so itself. */
static bool heal_has_weak(void *ctx)
{
    struct scrub *c = ctx;
    return atomic_exchange(&c->s->has_weak, false);
}

static void heal_still_weak(void *ctx)
{
    struct scrub *c = ctx;
    atomic_store(&c->s->has_weak, true);
}

static int heal_recode(void *ctx, const struct heal_body *b,
                       bool (*pace)(void *ctx, uint64_t n_bytes), void *pace_ctx,
                       struct err *err)
{
    struct scrub *c = ctx;
    return recode_is_weak(c->s, &b->body) ? recode_body(c->s, &c->last, pace, pace_ctx, err)
                                          : -ENOENT;
}

static void heal_lost(void *ctx, const struct heal_body *b, const struct err *err)
{
    struct scrub *c = ctx;
    pthread_mutex_lock(&c->lock);
    c->status.n_lost++;
    (void)snprintf(c->status.last_lost, sizeof(c->status.last_lost), "%.*s", STR_ARG(b->name));
    pthread_mutex_unlock(&c->lock);
    log_warn_rl("body.lost", KV_STR("object", b->name), KV_ERR(err));
}

int scrub_heal_start(struct ostore *s, const struct ostore_opts *opts, struct err *err)
{
    struct heal_opts o = {.shards = s->shards,
                          .move_after_ns =
                              opts->move_after_ns ? opts->move_after_ns : MOVE_AFTER_NS,
                          .retry_ns = opts->heal_look_ns,
                          .ctx = s->scrub,
                          .base = heal_base,
                          .next = heal_next,
                          .over = heal_over,
                          .moved = heal_moved,
                          .has_weak = heal_has_weak,
                          .still_weak = heal_still_weak,
                          .recode = heal_recode,
                          .lost = heal_lost};
    int rc = heal_start(&o, &s->scrub->heal, err);
    if (rc == 0) {
        atomic_store(&s->heal, s->scrub->heal);
        s->scrub->makes_folders = opts->makes_folders;
        s->scrub->ticker = ticker_start(tick, s->scrub, TICK_NS);
    }
    return rc;
}

int ostore_drive_replace(struct ostore *s, unsigned idx, struct err *err)
{
    int rc = idx < drives_n(s->drives)
                 ? drives_replace(s->drives, idx, err)
                 : fail(err, -EINVAL, "BadDrive", "there is no such drive");
    if (rc == 0) {
        heal_wake(s->scrub->heal);
    }
    return rc;
}

struct scrub *scrub_start(struct ostore *s)
{
    struct scrub *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->s = s;
    pthread_mutex_init(&c->lock, NULL);
    c->status.ended_ns = ostore_now(s); /* the first pass by itself: a week from now */
    recall(c);
    return c;
}

void scrub_stop(struct scrub *c)
{
    if (!c) {
        return;
    }
    atomic_store(&c->is_stopping, true);
    ticker_stop(c->ticker);
    atomic_store(&c->s->heal, NULL);
    heal_stop(c->heal);
    let_go(c);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
