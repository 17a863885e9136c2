#include "ostore/ostore_int.h"
#include "ostore/waiter.h"

#include "base/file.h"
#include "base/log.h"
#include "ostore/heal.h"
#include "ostore/oindex_int.h"
#include "ostore/scrub.h"
#include <errno.h>
#include <stdio.h>

LOG_MODULE("ostore");

#define INLINE_DEFAULT (128u << 10)
#define INLINE_LIMIT   (240u << 10) /* with its trailers it must fit into a record */
#define UNIT_DEFAULT   (128u << 10)
#define MIN_PART       (UINT64_C(5) << 20)

uint64_t ostore_now(struct ostore *s)
{
    return s->now_ns ? s->now_ns(s->now_ctx) : time_wall_ns();
}

void ostore_fail(struct ostore *s, const char *why)
{
    pthread_mutex_lock(&s->why_lock);
    bool was = atomic_load(&s->is_readonly);
    if (!was) {
        (void)snprintf(s->why, sizeof(s->why), "%s", why);
        atomic_store(&s->is_readonly, true);
    }
    pthread_mutex_unlock(&s->why_lock);
    if (!was) {
        log_error("store.readonly", KV_CSTR("why", why));
    }
}

int ostore_may_grow(struct ostore *s, bool is_new_body, struct err *err)
{
    if (atomic_load(&s->is_readonly)) {
        return fail(err, -EROFS, "ReadOnly", "the store takes no changes: %s", s->why);
    }
    enum drives_space space = drives_space(s->drives);
    if (space == SPACE_FULL) {
        compact_poke(s->compact);
        return fail(err, -ENOSPC, "InsufficientStorage", "the drives are full");
    }
    if (is_new_body && space == SPACE_NEAR_FULL) {
        compact_poke(s->compact);
        return fail(err, -EAGAIN, "SlowDown", "the drives are nearly full");
    }
    if (is_new_body && commit_is_stuck(s->commit)) {
        return fail(err, -EAGAIN, "SlowDown", "the index waits for space");
    }
    return 0;
}

/* --- start --- */

struct replay {
    struct ostore *s;
    struct itx *tx;
    uint64_t n, last;
};

static int replay_record(void *ctx, const struct olog_rec *rec, struct err *err)
{
    struct replay *r = ctx;
    struct irec ir = {.kind = rec->kind,
                      .is_moved = rec->flags & OLOG_MOVED,
                      .lsn = rec->lsn,
                      .time_ns = rec->time_ns,
                      .segment = rec->at.segment,
                      .off = rec->at.off,
                      .size = rec->size,
                      .head = rec->head};
    if (index_peek(rec->head, &ir.peek) < 0) {
        return fail(err, -EBADMSG, "BadRecord", "record %llu has a broken head",
                    (unsigned long long)rec->lsn);
    }
    int rc = itx_apply(r->tx, &ir, err);
    if (rc == 0 && !r->tx->is_blind) { /* after a blind replay all are read at once */
        rc = buckets_apply(r->s, &ir, err);
    }
    r->n++;
    r->last = rec->lsn;
    bool is_open = (rec->flags & OLOG_GROUP) && !(rec->flags & OLOG_GROUP_END);
    if (rc == 0 && !is_open && r->tx->n_changes >= (r->tx->is_blind ? 20000u : 4096u)) {
        rc = itx_commit(r->tx, r->last, err);
    }
    return rc;
}

static int open_index(struct ostore *s, bool is_discarded, struct err *err)
{
    struct oindex_opts io = {.path = s->index_path, .cache_size = (size_t)128 << 20};
    int rc = 0;
    if (is_discarded) {
        rc = oindex_destroy(s->index_path, err);
    }
    for (int turn = 0; rc == 0 && turn < 2; turn++) {
        struct err why = ERR_INIT;
        rc = oindex_open(&io, &s->index, turn == 0 ? &why : err);
        if (rc == 0) {
            rc = icounts_load(&s->counts, s->index, turn == 0 ? &why : err);
        }
        bool is_other = rc == 0 && s->counts.state.lsn > 0 &&
                        memcmp(s->counts.state.set_id, drives_set_id(s->drives), 16) != 0;
        if (rc == 0 && !is_other) {
            return 0;
        }
        log_warn("index.discarded",
                 KV_CSTR("why", is_other ? "it is of another store" : why.msg));
        oindex_close(s->index);
        s->index = NULL;
        icounts_done(&s->counts);
        icounts_init(&s->counts);
        rc = oindex_destroy(s->index_path, err);
    }
    return rc < 0 ? rc : fail(err, -EIO, "IndexFailed", "the index cannot be made anew");
}

static int open_log(struct ostore *s, const struct ostore_opts *o, struct itx *tx,
                    struct err *err)
{
    struct olog_opts lo = {.drives = s->drives,
                           .n_copies = o->m + 1,
                           .segment_size = o->segment_size,
                           .is_sync_off = o->is_sync_off,
                           .is_accepting = o->accept_loss != NULL};
    uint64_t from = s->counts.state.lsn ? s->counts.state.lsn + 1 : 0;
    struct replay r = {.s = s, .tx = tx, .last = s->counts.state.lsn};
    memcpy(s->counts.state.set_id, drives_set_id(s->drives), 16);
    tx->is_blind = s->counts.state.is_rebuilding = from == 0;
    int rc = from == 0 ? oindex_bulk(s->index, true, err) : buckets_load(s, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t begin = time_mono_ns();
    tx->bulk = from == 0 ? obulk_new(s->index) : NULL;
    rc = olog_open(&lo, from, replay_record, &r, &s->log, err);
    if (rc < 0) {
        return rc;
    }
    if (olog_next_lsn(s->log) <= s->counts.state.lsn) {
        return fail(err, -ESTALE, "IndexAhead", "the index knows more than the log");
    }
    rc = itx_commit(tx, r.last, err);
    if (rc == 0 && from == 0) {
        rc = itx_end_bulk(tx, err);
    }
    if (rc == 0 && from == 0) {
        rc = index_recount(s->index, &s->counts, err);
    }
    if (rc == 0 && from == 0) {
        /* Not while records come: a bucket's own may have been copied behind its configurations. */
        rc = buckets_load(s, err);
    }
    if (rc == 0 && from == 0) {
        rc = oindex_bulk(s->index, false, err);
    }
    if (rc == 0 && r.n > 0) {
        log_debug("log.replayed", KV_U64("records", r.n),
                  KV_U64("ms", (time_mono_ns() - begin) / NS_PER_MS));
    }
    if (olog_is_readonly(s->log)) {
        ostore_fail(s, olog_why(s->log));
    }
    return rc;
}

/* -1: no drive is there. One that is whole and has an index, else one that is whole: what lies on a
 * drive that was away is old, and the log it should be brought up to date from has been compacted
 * since. */
static int choose_index_drive(struct ostore *s, uint32_t with_index, bool *io_discarded)
{
    int first_ok = -1, first = -1, found = -1;
    for (unsigned i = 0; i < drives_n(s->drives); i++) {
        if (!(drives_writable(s->drives) >> i & 1)) {
            continue; /* an empty folder in the place of a lost drive stays empty */
        }
        bool is_ok = drives_state(s->drives, i) == DRIVE_OK;
        first = first < 0 ? (int)i : first;
        first_ok = first_ok < 0 && is_ok ? (int)i : first_ok;
        if (is_ok && (with_index >> i & 1)) {
            *io_discarded = *io_discarded || found >= 0; /* which of them is right? */
            found = found < 0 ? (int)i : found;
        }
    }
    if (found < 0 && first_ok < 0) {
        *io_discarded = true;
    }
    return found >= 0 ? found : first_ok >= 0 ? first_ok : first;
}

static char *index_path_on(struct ostore *s, unsigned drive)
{
    char *path = NULL;
    if (asprintf(&path, "%s/index", drives_path(s->drives, drive)) < 0) {
        abort();
    }
    return path;
}

/* Only one drive has an index when this is done. */
static int make_index_path(struct ostore *s, const struct ostore_opts *o, bool *io_discarded,
                           struct err *err)
{
    uint32_t with_index = 0;
    if (o->index_path) {
        s->index_path = strdup(o->index_path);
        return file_mkdirs(s->index_path, 0700, err);
    }
    for (unsigned i = 0; i < drives_n(s->drives); i++) {
        bool is_there = drives_writable(s->drives) >> i & 1;
        int dir = is_there ? drives_dir(s->drives, i, DRIVE_INDEX) : -1;
        with_index |= (uint32_t)(dir >= 0 && faccessat(dir, "CURRENT", F_OK, 0) == 0) << i;
    }
    int drive = choose_index_drive(s, with_index, io_discarded);
    if (drive < 0) {
        return fail(err, -ENOENT, "DriveMissing", "no drive is there for the index");
    }
    for (unsigned i = 0; i < drives_n(s->drives); i++) {
        if (i == (unsigned)drive || !(with_index >> i & 1)) {
            continue;
        }
        AUTO_FREE char *old = index_path_on(s, i);
        int rc = oindex_destroy(old, err);
        if (rc < 0) {
            return rc;
        }
        log_info("index.old_removed", KV_CSTR("path", old));
    }
    s->index_path = index_path_on(s, (unsigned)drive);
    return file_mkdirs(s->index_path, 0700, err);
}

static void remove_victim(void *ctx, const struct pin_victim *v)
{
    struct ostore *s = ctx;
    struct err err = ERR_INIT;
    if (!v->is_segment) {
        shard_remove(s->shards, &v->body);
    } else if (olog_remove(s->log, v->segment, &err) < 0 && err.code != -ENOENT) {
        log_warn_rl("segment.stays", KV_U64("segment", v->segment), KV_ERR(&err));
    }
}

static int open_keys(struct ostore *s, struct err *err)
{
    struct body_keys *k = NULL;
    if (!s->keys) {
        return 0;
    }
    int rc = body_keys_open(s->drives, s->keys, &k, err);
    if (rc == 0) {
        pthread_rwlock_wrlock(&s->keys_lock);
        if (!s->body_keys) {
            s->body_keys = steal(&k);
        }
        pthread_rwlock_unlock(&s->keys_lock);
    }
    body_keys_close(k); /* somebody was quicker */
    return rc;
}

static void note_bad(void *ctx, const struct orec_body *body, uint32_t shards)
{
    struct ostore *s = ctx;
    struct heal *h = atomic_load(&s->heal);
    if (h) {
        heal_note_bad(h, body, shards);
    }
}

static int open_parts(struct ostore *s, const struct ostore_opts *o, struct err *err)
{
    struct itx tx;
    struct drives_opts dopts = {.fs = o->fs,
                                .paths = o->drives,
                                .n = o->n_drives,
                                .near_full_pct = o->near_full_pct,
                                .full_pct = o->full_pct};
    int rc = drives_open(&dopts, &s->drives, err);
    bool is_discarded = o->is_index_discarded || o->accept_loss;
    if (rc == 0) {
        rc = make_index_path(s, o, &is_discarded, err);
    }
    if (rc == 0) {
        rc = open_index(s, is_discarded, err);
    }
    if (rc < 0) {
        return rc;
    }
    itx_init(&tx, s->index, &s->counts);
    rc = open_log(s, o, &tx, err);
    struct shards_opts so = {.drives = s->drives, .on_bad = note_bad, .ctx = s};
    if (rc == 0) {
        rc = shards_open(&so, &s->shards, err);
    }
    if (rc == 0) {
        struct err locked = ERR_INIT;
        rc = open_keys(s, &locked);
        rc = rc == -EACCES ? 0 : rc < 0 ? fail(err, rc, locked.name, "%s", locked.msg) : 0;
    }
    if (rc == 0) {
        s->pins = pins_open(remove_victim, s);
        for (size_t i = 0; i < tx.deaths.n; i++) {
            struct pin_victim v = {.body = tx.deaths.v[i].body};
            pins_bury(s->pins, tx.deaths.v[i].pin, &v);
        }
        s->commit = commit_start(s);
        s->put_mem = shares_new(PUT_MEM);
        s->io = iopool_start(o->n_io_threads ? o->n_io_threads : 4);
        s->compact = compact_start(s);
        s->scrub = scrub_start(s);
        rc = scrub_heal_start(s, o, err);
    }
    if (rc == 0 && o->accept_loss) {
        rc = loss_settle(s, o->accept_loss, err);
    }
    if (rc == 0) {
        compact_run(s->compact);
    }
    itx_done(&tx);
    return rc;
}

static int try_open(const struct ostore_opts *o, struct ostore **ret, struct err *err)
{
    struct ostore *s = calloc(1, sizeof(*s));
    if (!s) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the store");
    }
    s->fs = o->fs;
    s->keys = o->keys;
    s->is_sealing = o->is_sealing;
    s->code =
        (struct shard_code){.k = o->k, .m = o->m, .unit = o->unit ? o->unit : UNIT_DEFAULT};
    s->inline_max = MIN(o->inline_max ? o->inline_max : INLINE_DEFAULT, INLINE_LIMIT);
    s->min_part = o->min_part_size == 1 ? 0 : o->min_part_size ? o->min_part_size : MIN_PART;
    s->now_ns = o->now_ns;
    s->now_ctx = o->now_ctx;
    pthread_rwlock_init(&s->keys_lock, NULL);
    pthread_mutex_init(&s->why_lock, NULL);
    pthread_mutex_init(&s->sweep_lock, NULL);
    icounts_init(&s->counts);
    buckets_init(&s->buckets);
    int rc = open_parts(s, o, err);
    if (rc < 0) {
        ostore_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

int ostore_open(const struct ostore_opts *o, struct ostore **ret, struct err *err)
{
    if (o->n_drives < 1 || o->n_drives > DRIVES_MAX || o->k < 1 || o->k + o->m > o->n_drives) {
        return fail(err, -EINVAL, "InvalidLayout",
                    "k + m must be at most the number of drives");
    }
    struct err why = ERR_INIT;
    int rc = try_open(o, ret, &why);
    if (rc == -ESTALE) {
        /* The index knows more than the log, which was taken back with a folder: begin anew. */
        struct ostore_opts again = *o;
        again.is_index_discarded = true;
        err_clear(&why);
        rc = try_open(&again, ret, &why);
    }
    return rc < 0 ? fail(err, rc, why.name, "%s", why.msg) : 0;
}

void ostore_hurry(struct ostore *s)
{
    if (s) {
        atomic_store(&s->is_closing, true);
    }
}

void ostore_close(struct ostore *s)
{
    if (!s) {
        return;
    }
    atomic_store(&s->is_closing, true);
    scrub_stop(s->scrub);
    compact_stop(s->compact);
    commit_stop(s->commit);
    iopool_stop(s->io);
    pins_close(s->pins);
    shards_close(s->shards);
    oindex_close(s->index);
    olog_close(s->log);
    body_keys_close(s->body_keys);
    drives_close(s->drives);
    buckets_done(&s->buckets);
    icounts_done(&s->counts);
    pthread_rwlock_destroy(&s->keys_lock);
    pthread_mutex_destroy(&s->why_lock);
    pthread_mutex_destroy(&s->sweep_lock);
    shares_free(s->put_mem);
    free(s->index_path);
    free(s);
}

/* --- changes --- */

struct change {
    struct cop op;
    struct ochange *c;
};

static void change_end(struct cop *op)
{
    struct change *ch = CONTAINER_OF(op, struct change, op);
    struct ochange *c = ch->c;
    struct ostore *s = op->ctx;
    c->rc = op->rc;
    c->err = op->err;
    if (c->rc == 0 && c->body && (c->kind == OCHANGE_PUT || c->kind == OCHANGE_PART)) {
        if (oput_body(c->body)->is_set && !oput_body(c->body)->is_inline) {
            files_note(s, oput_body(c->body)->id);
        }
        oput_taken(c->body);
        c->body = NULL;
    }
    if (c->kind == OCHANGE_PUT) {
        atomic_fetch_add_explicit(&s->n_put, 1, memory_order_relaxed);
    } else if (c->kind == OCHANGE_DELETE) {
        atomic_fetch_add_explicit(&s->n_delete, 1, memory_order_relaxed);
    }
    free(ch);
    c->done(c);
}

void ochange_start(struct ostore *s, struct ochange *c)
{
    struct change *ch = calloc(1, sizeof(*ch));
    int rc;
    err_clear(&c->err);
    if (!ch) {
        rc = fail(&c->err, -EAGAIN, "SlowDown", "no memory for a change");
    } else {
        ch->op = (struct cop){.kind = COP_CHANGE, .c = c, .done = change_end, .ctx = s};
        ch->c = c;
        rc = commit_push(s->commit, &ch->op, &c->err);
    }
    if (rc < 0) {
        free(ch);
        c->rc = rc;
        c->done(c);
    }
}

static void wake_change(struct ochange *c)
{
    waiter_done(c->ctx);
}

void ochange_wait_all(struct ostore *s, struct ochange *v, size_t n)
{
    struct waiter w = WAITER_INIT(n);
    for (size_t i = 0; i < n; i++) {
        v[i].ctx = &w;
        v[i].done = wake_change;
        ochange_start(s, &v[i]);
    }
    waiter_wait(&w);
}

int ochange_wait(struct ostore *s, struct ochange *c)
{
    void *ctx = c->ctx; /* of the caller */
    ochange_wait_all(s, c, 1);
    c->ctx = ctx;
    c->done = NULL;
    return c->rc;
}

/* --- what an operator asks --- */

void ostore_stats(struct ostore *s, struct ostore_stats *ret)
{
    *ret = (struct ostore_stats){
        .n_put = atomic_load(&s->n_put),
        .n_get = atomic_load(&s->n_get),
        .n_delete = atomic_load(&s->n_delete),
        .n_list = atomic_load(&s->n_list),
        .n_syncs = atomic_load(&s->n_syncs),
        .n_commits = atomic_load(&s->n_commits),
        .next_lsn = olog_next_lsn(s->log),
    };
    pthread_mutex_lock(&s->buckets.lock);
    ret->n_buckets = omap_len(s->buckets.by_name);
    pthread_mutex_unlock(&s->buckets.lock);
    int64_t live = 0;
    pthread_mutex_lock(&s->counts.lock);
    const struct istate *st = &s->counts.state;
    ret->n_objects = (uint64_t)MAX(st->n_objects, (int64_t)0);
    ret->n_versions = (uint64_t)MAX(st->n_versions, (int64_t)0);
    ret->n_uploads = (uint64_t)MAX(st->n_uploads, (int64_t)0);
    ret->n_bytes = (uint64_t)MAX(st->n_bytes, (int64_t)0);
    ret->file_bytes = (uint64_t)MAX(st->file_bytes, (int64_t)0);
    for (size_t i = 0; i < s->counts.segments.v.n; i++) {
        live += s->counts.segments.v.v[i].a;
    }
    pthread_mutex_unlock(&s->counts.lock);
    struct olog_segment *v = NULL;
    size_t n = 0;
    if (olog_segments(s->log, &v, &n) == 0) {
        for (size_t i = 0; i < n; i++) {
            ret->log_bytes += v[i].size;
        }
        ret->n_segments = n;
        free(v);
    }
    ret->log_dead_bytes =
        live >= 0 && ret->log_bytes > (uint64_t)live ? ret->log_bytes - (uint64_t)live : 0;
    pthread_rwlock_rdlock(&s->keys_lock);
    ret->is_locked = s->keys && !s->body_keys;
    pthread_rwlock_unlock(&s->keys_lock);
    pthread_mutex_lock(&s->why_lock);
    ret->is_readonly = atomic_load(&s->is_readonly);
    memcpy(ret->why, s->why, sizeof(ret->why));
    pthread_mutex_unlock(&s->why_lock);
}

struct drives *ostore_drives(struct ostore *s)
{
    return s->drives;
}

int ostore_compact(struct ostore *s, uint64_t *ret_freed, struct err *err)
{
    return compact_turn(s->compact, ret_freed, err);
}

int ostore_unlock(struct ostore *s, struct err *err)
{
    if (!s->keys) {
        return fail(err, -EINVAL, "Locked", "the store was started without keys");
    }
    int rc = keys_is_locked(s->keys) ? keys_unlock(s->keys, err) : 0;
    return rc < 0 ? rc : open_keys(s, err);
}
