#include "ostore/heal_int.h"

#include "base/log.h"
#include "ostore/shard_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

LOG_MODULE("ostore.heal");

#define LOOK_NS    (5 * NS_PER_S)
#define SAVE_NS    (5 * NS_PER_S)
#define RETRY_NS   (10 * NS_PER_S)
#define RATE       (UINT64_C(64) << 20)
#define QUEUE_MAX  1024
#define ARENA_SIZE ((size_t)4 << 20)

struct heal {
    struct heal_opts o;
    struct drives *drives;
    pthread_t thread;
    struct arena *arena; /* of the body at hand */
    uint64_t due_ns;     /* throttle: when what was done so far should have taken until */
    uint64_t retry_ns;   /* no pass before */
    uint64_t away_since_ns[DRIVES_MAX];
    uint32_t moved_off;   /* drives whose shards were moved as far as they could be */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t cond;
    bool is_stopping, is_woken, is_eager; /* eager: a pass that failed is tried at once */
    struct orec_body *queue;              /* a ring of QUEUE_MAX */
    unsigned first;
    struct heal_status status;
};

/* --- time --- */

static bool is_stopping(struct heal *h)
{
    pthread_mutex_lock(&h->lock);
    bool is = h->is_stopping;
    pthread_mutex_unlock(&h->lock);
    return is;
}

/* struct shard_verify.pace: not faster than the rate; false when it shall end. */
static bool pace(void *ctx, uint64_t n_bytes)
{
    struct heal *h = ctx;
    uint64_t now = time_mono_ns();
    /* What was not used is not saved up: no bursts. */
    h->due_ns = MAX(h->due_ns, now) +
                (uint64_t)((double)n_bytes / (double)h->o.bytes_per_s * (double)NS_PER_S);
    pthread_mutex_lock(&h->lock);
    h->status.n_bytes += n_bytes;
    while (!h->is_stopping && time_mono_ns() < h->due_ns) {
        struct timespec t = {(time_t)(h->due_ns / NS_PER_S), (long)(h->due_ns % NS_PER_S)};
        (void)pthread_cond_timedwait(&h->cond, &h->lock, &t);
    }
    bool is_going = !h->is_stopping;
    pthread_mutex_unlock(&h->lock);
    return is_going;
}

/* --- one body --- */

/* The shards in 'mask', one after the other. 0 also when the body is lost: then it was told. */
static int heal_shards(struct heal *h, struct heal_body *b, uint32_t mask, unsigned flags,
                       struct err *err)
{
    for (unsigned i = 0; i < (unsigned)b->body.k + b->body.m; i++) {
        if (!(mask >> i & 1)) {
            continue;
        }
        struct shard_verify v = {.pace = pace, .ctx = h};
        struct err why = ERR_INIT;
        bool is_moved = false;
        int rc = shard_verify(h->o.shards, &b->body, SHARD_REPAIR | flags | SHARD_ONLY(i), &v,
                              &is_moved, &why);
        if (rc == 0 && is_moved) {
            rc = h->o.moved(h->o.ctx, b, &why);
            if (rc < 0) {
                shard_unlink(h->o.shards, &b->body, 1u << i, false);
            }
            if (rc == -ENOENT) {
                return 0; /* it was deleted */
            }
        }
        pthread_mutex_lock(&h->lock);
        h->status.n_rebuilt += v.n_rebuilt;
        h->status.n_moved += is_moved && rc == 0;
        bool is_lost = rc == -EIO && str_eqc(STR("BodyLost"), why.name);
        h->status.n_lost += is_lost;
        pthread_mutex_unlock(&h->lock);
        if (is_lost) {
            if (h->o.lost) {
                h->o.lost(h->o.ctx, b, &why);
            }
            return 0;
        }
        if (rc < 0) {
            return fail(err, rc, why.name ? why.name : "HealFailed", "%s", why.msg);
        }
    }
    return 0;
}

/* --- bad bodies --- */

static bool next_bad(struct heal *h, struct orec_body *ret)
{
    pthread_mutex_lock(&h->lock);
    bool is = h->status.n_queued > 0 && !h->is_stopping;
    if (is) {
        *ret = h->queue[h->first];
        h->first = (h->first + 1) % QUEUE_MAX;
        h->status.n_queued--;
    }
    pthread_mutex_unlock(&h->lock);
    return is;
}

/* They may have been deleted since: what fails is nobody's loss here. */
static void heal_bad(struct heal *h)
{
    struct orec_body b;
    while (next_bad(h, &b)) {
        struct shard_verify v = {.pace = pace, .ctx = h};
        struct err err = ERR_INIT;
        int rc = shard_verify(h->o.shards, &b, SHARD_REPAIR, &v, NULL, &err);
        if (rc < 0) {
            log_debug("body.not_repaired", KV_ERR(&err));
        }
        pthread_mutex_lock(&h->lock);
        h->status.n_rebuilt += v.n_rebuilt;
        pthread_mutex_unlock(&h->lock);
    }
}

void heal_note_bad(struct heal *h, const struct orec_body *body, uint32_t shards)
{
    pthread_mutex_lock(&h->lock);
    bool is_known = shards == 0;
    for (unsigned i = 0; i < h->status.n_queued && !is_known; i++) {
        const struct orec_body *b = &h->queue[(h->first + i) % QUEUE_MAX];
        is_known = memcmp(b->id, body->id, OREC_ID_SIZE) == 0;
    }
    if (!is_known && h->status.n_queued == QUEUE_MAX) {
        h->status.n_dropped++;
    } else if (!is_known) {
        struct orec_body *b = &h->queue[(h->first + h->status.n_queued++) % QUEUE_MAX];
        *b = *body;
        b->wrapped_key = STR_NONE; /* borrowed, and not needed */
        h->is_woken = true;
        pthread_cond_broadcast(&h->cond);
    }
    pthread_mutex_unlock(&h->lock);
}

/* --- passes --- */

static uint32_t shards_on(const struct orec_body *b, uint32_t drives)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < (unsigned)b->k + b->m; i++) {
        mask |= (uint32_t)(drives >> b->drive[i] & 1) << i;
    }
    return mask;
}

/* Every body behind the cursor; 'drive' < DRIVES_MAX: the cursor is kept on it, and the pass
 * ends when it does not heal any more. */
static int walk(struct heal *h, struct heal_cursor *c, unsigned drive, uint32_t drives,
                unsigned flags, struct err *err)
{
    uint64_t saved_ns = time_mono_ns();
    for (;;) {
        if (is_stopping(h)) {
            if (drive < DRIVES_MAX) {
                heal_place_write(h->drives, drive, c);
            }
            return -ECANCELED;
        }
        struct heal_body b = {.lsn = 0};
        struct heal_cursor was = *c;
        arena_reset(h->arena);
        int rc = h->o.next(h->o.ctx, c, h->arena, &b, err);
        if (rc <= 0) {
            return rc;
        }
        uint32_t mask = shards_on(&b.body, drives);
        rc = mask ? heal_shards(h, &b, mask, flags, err) : 0;
        if (rc < 0) { /* this one again, next time */
            *c = was;
            if (drive < DRIVES_MAX && drives_state(h->drives, drive) == DRIVE_HEALING) {
                heal_place_write(h->drives, drive, c);
            }
            return rc;
        }
        pthread_mutex_lock(&h->lock);
        h->status.n_bodies++;
        pthread_mutex_unlock(&h->lock);
        if (drive < DRIVES_MAX) {
            if (drives_state(h->drives, drive) != DRIVE_HEALING) {
                return fail(err, -EIO, "DriveFaulted", "%s failed while it was healed",
                            drives_path(h->drives, drive));
            }
            if (time_mono_ns() - saved_ns > SAVE_NS) {
                heal_place_write(h->drives, drive, c);
                saved_ns = time_mono_ns();
            }
        }
        heal_bad(h);
    }
}

static void begin_pass(struct heal *h, unsigned drive)
{
    pthread_mutex_lock(&h->lock);
    h->status.drive = drive;
    h->status.n_bodies = 0;
    pthread_mutex_unlock(&h->lock);
}

static void end_pass(struct heal *h, int rc, const struct err *err)
{
    if (h->o.over) {
        h->o.over(h->o.ctx);
    }
    pthread_mutex_lock(&h->lock);
    h->status.drive = DRIVES_MAX;
    if (rc != -ECANCELED) {
        (void)snprintf(h->status.why, sizeof(h->status.why), "%.190s", rc < 0 ? err->msg : "");
    }
    pthread_mutex_unlock(&h->lock);
    if (rc < 0 && rc != -ECANCELED) {
        h->retry_ns = time_mono_ns() + h->o.retry_ns;
        log_debug("heal.failed", KV_ERR(err));
    }
}

static int base(struct heal *h, unsigned drive, struct err *err)
{
    return h->o.base ? h->o.base(h->o.ctx, 1u << drive, err) : 0;
}

/* Everything that belongs on this drive. New bodies and records go there from the start;
 * 'base' comes again at the end for what was closed meanwhile. */
static void heal_drive(struct heal *h, unsigned drive)
{
    struct heal_cursor c;
    struct err err = ERR_INIT;
    begin_pass(h, drive);
    heal_place_read(h->drives, drive, &c);
    int rc = base(h, drive, &err);
    rc = rc < 0 ? rc : walk(h, &c, drive, 1u << drive, 0, &err);
    rc = rc < 0 ? rc : base(h, drive, &err);
    if (rc == 0) {
        heal_place_remove(h->drives, drive);
        rc = drives_healed(h->drives, drive, &err);
    }
    if (rc < 0 && !err.code) {
        (void)fail(&err, rc, "HealFailed", "a drive could not be healed (%d)", rc);
    }
    end_pass(h, rc, &err);
}

/* Drives that are away for too long: bits. */
static uint32_t given_up(struct heal *h)
{
    uint32_t bits = 0;
    uint64_t now = time_mono_ns();
    for (unsigned i = 0; i < drives_n(h->drives); i++) {
        if (drives_writable(h->drives) >> i & 1) {
            h->away_since_ns[i] = 0;
            h->moved_off &= ~(1u << i);
        } else if (h->away_since_ns[i] == 0) {
            h->away_since_ns[i] = now;
        } else if (h->o.move_after_ns && now - h->away_since_ns[i] >= h->o.move_after_ns) {
            bits |= 1u << i;
        }
    }
    return bits & ~h->moved_off;
}

static void move_off(struct heal *h, uint32_t drives)
{
    struct heal_cursor c = {.n = 0};
    struct err err = ERR_INIT;
    begin_pass(h, (unsigned)__builtin_ctz(drives));
    int rc = walk(h, &c, DRIVES_MAX, drives, SHARD_MOVE, &err);
    if (rc == 0) {
        h->moved_off |= drives;
    } else if (!err.code) {
        (void)fail(&err, rc, "HealFailed", "bodies could not be moved (%d)", rc);
    }
    end_pass(h, rc, &err);
}

static bool are_all_well(struct heal *h)
{
    for (unsigned i = 0; i < drives_n(h->drives); i++) {
        if (drives_state(h->drives, i) != DRIVE_OK) {
            return false;
        }
    }
    return true;
}

/* One that cannot be read is left: a scrub says so. */
static int recode_all(struct heal *h, struct err *err)
{
    struct heal_cursor c = {.n = 0};
    for (;;) {
        struct heal_body b = {.lsn = 0};
        if (is_stopping(h)) {
            return -ECANCELED;
        }
        arena_reset(h->arena);
        int rc = h->o.next(h->o.ctx, &c, h->arena, &b, err);
        if (rc <= 0) {
            return rc;
        }
        struct err why = ERR_INIT;
        rc = h->o.recode(h->o.ctx, &b, pace, h, &why);
        pthread_mutex_lock(&h->lock);
        h->status.n_bodies++;
        h->status.n_recoded += rc == 0;
        pthread_mutex_unlock(&h->lock);
        bool is_lost = rc == -EIO && str_eqc(STR("BodyLost"), why.name);
        if (rc < 0 && rc != -ENOENT && !is_lost) {
            return fail(err, rc, why.name ? why.name : "HealFailed", "%s", why.msg);
        }
        heal_bad(h);
    }
}

static void recode(struct heal *h)
{
    struct err err = ERR_INIT;
    begin_pass(h, DRIVES_MAX);
    int rc = recode_all(h, &err);
    if (rc < 0) {
        h->o.still_weak(h->o.ctx);
    }
    end_pass(h, rc, &err);
}

static void wait_for_work(struct heal *h)
{
    uint64_t until = time_mono_ns() + MIN(LOOK_NS, h->o.retry_ns);
    struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    pthread_mutex_lock(&h->lock);
    int rc = 0;
    while (!h->is_stopping && !h->is_woken && rc == 0) {
        rc = pthread_cond_timedwait(&h->cond, &h->lock, &t);
    }
    h->is_woken = false;
    h->retry_ns = h->is_eager ? 0 : h->retry_ns;
    h->is_eager = false;
    pthread_mutex_unlock(&h->lock);
}

static void *run(void *ctx)
{
    struct heal *h = ctx;
    while (!is_stopping(h)) {
        heal_bad(h);
        for (unsigned i = 0; i < drives_n(h->drives); i++) {
            bool is_due = time_mono_ns() >= h->retry_ns && !is_stopping(h);
            if (is_due && drives_state(h->drives, i) == DRIVE_HEALING) {
                heal_drive(h, i);
            }
        }
        uint32_t away = given_up(h);
        if (away && time_mono_ns() >= h->retry_ns && !is_stopping(h)) {
            move_off(h, away);
        }
        if (h->o.recode && time_mono_ns() >= h->retry_ns && !is_stopping(h) &&
            are_all_well(h) && h->o.has_weak(h->o.ctx)) {
            recode(h);
        }
        wait_for_work(h);
    }
    return NULL;
}

/* --- the door --- */

int heal_start(const struct heal_opts *o, struct heal **ret, struct err *err)
{
    struct heal *h = calloc(1, sizeof(*h));
    struct orec_body *queue = calloc(QUEUE_MAX, sizeof(*queue));
    if (!h || !queue) {
        free(h);
        free(queue);
        return fail(err, -ENOMEM, "NoMemory", "no memory for healing");
    }
    h->o = *o;
    h->o.bytes_per_s = o->bytes_per_s ? o->bytes_per_s : RATE;
    h->o.retry_ns = o->retry_ns ? o->retry_ns : RETRY_NS;
    h->drives = shards_drives(o->shards);
    h->arena = arena_new(ARENA_SIZE);
    h->queue = queue;
    h->status.drive = DRIVES_MAX;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->cond, &attr);
    pthread_condattr_destroy(&attr);
    int rc = pthread_create(&h->thread, NULL, run, h);
    if (rc != 0) {
        pthread_cond_destroy(&h->cond);
        pthread_mutex_destroy(&h->lock);
        arena_free(h->arena);
        free(queue);
        free(h);
        return fail(err, -rc, "NoThread", "no thread for healing");
    }
    *ret = h;
    return 0;
}

void heal_stop(struct heal *h)
{
    if (!h) {
        return;
    }
    pthread_mutex_lock(&h->lock);
    h->is_stopping = true;
    pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->lock);
    (void)pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->cond);
    pthread_mutex_destroy(&h->lock);
    arena_free(h->arena);
    free(h->queue);
    free(h);
}

void heal_wake(struct heal *h)
{
    pthread_mutex_lock(&h->lock);
    h->is_woken = h->is_eager = true;
    pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->lock);
}

void heal_status(struct heal *h, struct heal_status *ret)
{
    pthread_mutex_lock(&h->lock);
    *ret = h->status;
    pthread_mutex_unlock(&h->lock);
    ret->healing = 0;
    for (unsigned i = 0; i < drives_n(h->drives); i++) {
        ret->healing |= (uint32_t)(drives_state(h->drives, i) == DRIVE_HEALING) << i;
    }
}
