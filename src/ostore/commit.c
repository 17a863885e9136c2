#include "ostore/ostore_int.h"

#include "base/bytes.h"
#include "base/log.h"
#include "crypto/digest.h"
#include "ostore/waiter.h"
#include <assert.h>
#include <errno.h>
#include <time.h>

LOG_MODULE("ostore.commit");

#define QUEUE_MAX   8192u
#define BATCH_RECS  1024u
#define BATCH_BYTES (8u << 20)
#define HEADS_MAX   ((size_t)64 << 20)
#define ARENA_MAX   ((size_t)256 << 20)
#define STUCK_NS    (200 * NS_PER_MS)
#define IDLE_NS     NS_PER_S

struct call {
    struct call *next;
    int (*fn)(void *ctx, struct err *err);
    void *ctx;
    int rc;
    struct err err;
    bool is_done;
};

struct commit {
    struct ostore *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, room; /* for the thread; for commit_wait(), commit_call() */
    struct cop *head, **tail;
    size_t n;
    struct call *calls;
    bool is_stopping, is_active; /* active: something happened since olog_idle() */
    atomic_bool is_stuck;
    struct cbatch b;
    struct olog_new *v; /* as olog_append() wants them */
    size_t v_cap;
};

/* --- building a batch --- */

static uint16_t group_of(const struct orec *r)
{
    uint8_t hash[SHA256_SIZE];
    char bytes[8 + OREC_KEY_MAX];
    put_u64(bytes, r->bucket);
    if (r->key.n) {
        memcpy(bytes + 8, r->key.p, r->key.n);
    }
    sha256(str_n(bytes, 8 + r->key.n), hash);
    return hash[0];
}

int cbatch_add(struct cbatch *b, struct orec *r, unsigned flags, struct str body,
               struct err *err)
{
    size_t at = b->bytes.n, idx = b->recs.n;
    r->lsn = 0;
    int rc = orec_encode(r, &b->bytes, err);
    if (rc < 0) {
        return rc;
    }
    r->lsn = b->first_lsn + idx;
    size_t n = b->bytes.n - at;
    struct crec c = {
        .n = {.kind = r->kind,
              .flags = (uint8_t)flags,
              .group = group_of(r),
              .time_ns = r->time_ns},
        .head_off = at,
        .head_size = n,
        .body = {.iov_base = (void *)(uintptr_t)body.p, .iov_len = body.n},
    };
    vec_push(&b->recs, c);
    struct irec ir = {
        .kind = r->kind,
        .is_moved = flags & OLOG_MOVED,
        .lsn = r->lsn,
        .time_ns = r->time_ns,
        .segment = ITX_PENDING,
        .off = (uint32_t)idx,
        .size = (uint32_t)(64 + ((n + 7) & ~(size_t)7) + ((body.n + 7) & ~(size_t)7)),
        .head = str_n(b->bytes.p + at, n),
    };
    vec_push(&b->tx.recs, (struct itx_rec){.size = ir.size});
    b->body_bytes += body.n;
    rc = index_peek(ir.head, &ir.peek);
    if (rc == 0) {
        rc = itx_apply(&b->tx, &ir, err);
    }
    if (rc < 0) {
        b->is_broken = true;
        return fail(err, rc, "IndexFailed", "a change could not be prepared");
    }
    if (r->kind >= OREC_BUCKET && r->kind <= OREC_BUCKET_GONE) {
        char *copy = arena_xalloc(b->a, n);
        memcpy(copy, ir.head.p, n);
        ir.head = str_n(copy, n);
        if (index_peek(ir.head, &ir.peek) == 0) {
            vec_push(&b->bucket_recs, ir);
        }
    }
    return 0;
}

int cbatch_body(struct cbatch *b, const struct ival *v, struct str *ret, struct err *err)
{
    struct ipeek p;
    *ret = STR_NONE;
    if (index_peek(v->head, &p) < 0) {
        return fail(err, -EUCLEAN, "IndexDamaged", "the head of a value is broken");
    }
    if (p.is_file || p.stored_size == 0) {
        return 0;
    }
    if (v->segment == ITX_PENDING) {
        return -EINPROGRESS;
    }
    struct olog_rec r;
    int rc = olog_read(b->s->log, b->a, (struct olog_place){v->segment, v->off}, &r, err);
    if (rc == 0) {
        *ret = r.body;
    }
    return rc;
}

static void batch_reset(struct cbatch *b)
{
    itx_reset(&b->tx);
    b->recs.n = 0;
    b->bucket_recs.n = 0;
    buf_clear(&b->bytes);
    arena_reset(b->a);
    b->body_bytes = 0;
    b->is_exclusive = b->is_broken = false;
    b->first_lsn = olog_next_lsn(b->s->log);
}

/* --- the queue --- */

static void enqueue(struct commit *m, struct cop *op)
{
    op->next = NULL;
    *m->tail = op;
    m->tail = &op->next;
    m->n++;
    pthread_cond_signal(&m->wake);
}

int commit_push(struct commit *m, struct cop *op, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&m->lock);
    if (m->n >= QUEUE_MAX || m->is_stopping || atomic_load(&m->is_stuck)) {
        rc = -EAGAIN;
    } else {
        enqueue(m, op);
    }
    pthread_mutex_unlock(&m->lock);
    return rc < 0 ? fail(err, rc, "SlowDown", "too many changes at once") : 0;
}

static void wake_waiter(struct cop *op)
{
    waiter_done(op->ctx);
}

int commit_wait(struct commit *m, struct cop *op)
{
    struct waiter w = WAITER_INIT(1);
    op->done = wake_waiter;
    op->ctx = &w;
    pthread_mutex_lock(&m->lock);
    while (m->n >= QUEUE_MAX && !m->is_stopping) {
        pthread_cond_wait(&m->room, &m->lock);
    }
    bool is_in = !m->is_stopping;
    if (is_in) {
        enqueue(m, op);
    }
    pthread_mutex_unlock(&m->lock);
    if (!is_in) {
        return op->rc = fail(&op->err, -EAGAIN, "SlowDown", "the store is being closed");
    }
    waiter_wait(&w);
    return op->rc;
}

int commit_call(struct commit *m, int (*fn)(void *ctx, struct err *err), void *ctx,
                struct err *err)
{
    struct call c = {.fn = fn, .ctx = ctx};
    pthread_mutex_lock(&m->lock);
    if (m->is_stopping) {
        pthread_mutex_unlock(&m->lock);
        return fail(err, -EAGAIN, "SlowDown", "the store is being closed");
    }
    c.next = m->calls;
    m->calls = &c;
    pthread_cond_signal(&m->wake);
    while (!c.is_done) {
        pthread_cond_wait(&m->room, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return c.rc < 0 ? fail(err, c.rc, c.err.name, "%s", c.err.msg) : c.rc;
}

bool commit_is_stuck(const struct commit *m)
{
    return atomic_load(&m->is_stuck);
}

/* --- one batch --- */

static void answer(struct cop *op)
{
    op->done(op);
}

/* Takes ops and evaluates them until the batch is full or one must wait for the next. Returns
 * the list of those in the batch. */
static struct cop *build(struct commit *m, struct cop **list)
{
    struct cbatch *b = &m->b;
    struct cop *in = NULL, **tail = &in;
    size_t max = MIN(olog_batch_max(m->s->log) / 2, (size_t)BATCH_BYTES);
    while (*list && b->recs.n < BATCH_RECS && b->body_bytes + b->bytes.n < max &&
           !b->is_exclusive && !b->is_broken) {
        struct cop *op = *list;
        if ((op->kind == COP_BUCKET || op->is_tried) && in) {
            break;
        }
        size_t n = b->recs.n;
        b->is_exclusive = op->kind == COP_BUCKET;
        err_clear(&op->err);
        int rc = commit_eval(b, op, &op->err);
        if (rc == -EINPROGRESS) {
            break; /* it needs what is being written: nothing of it was added */
        }
        *list = op->next;
        op->next = NULL;
        op->rc = rc;
        op->has_record = b->recs.n > n;
        *tail = op;
        tail = &op->next;
        if (op->is_tried) {
            break; /* alone this time */
        }
    }
    return in;
}

static int write_log(struct commit *m, struct err *err)
{
    struct cbatch *b = &m->b;
    struct ostore *s = m->s;
    if (b->recs.n > m->v_cap) {
        free(m->v);
        m->v_cap = MAX(b->recs.n, (size_t)BATCH_RECS);
        m->v = calloc(m->v_cap, sizeof(*m->v));
        if (!m->v) {
            m->v_cap = 0;
            return fail(err, -ENOMEM, "SlowDown", "no memory for a batch");
        }
    }
    for (size_t i = 0; i < b->recs.n; i++) {
        struct crec *c = &b->recs.v[i];
        m->v[i] = c->n;
        m->v[i].head = str_n(b->bytes.p + c->head_off, c->head_size);
        m->v[i].body = c->body.iov_len ? &c->body : NULL;
        m->v[i].n_body = c->body.iov_len ? 1 : 0;
    }
    int rc = olog_commit(s->log, m->v, b->recs.n, err);
    if (rc < 0) {
        if (olog_is_readonly(s->log)) {
            ostore_fail(s, olog_why(s->log));
        }
        return rc;
    }
    atomic_fetch_add(&s->n_syncs, 1);
    for (size_t i = 0; i < b->recs.n; i++) {
        assert(m->v[i].ret_lsn == b->first_lsn + i); /* ids and parts name it already */
        itx_place(&b->tx, i, m->v[i].ret_at);
        for (size_t j = 0; j < b->bucket_recs.n; j++) {
            if (b->bucket_recs.v[j].off == i && b->bucket_recs.v[j].segment == ITX_PENDING) {
                b->bucket_recs.v[j].segment = m->v[i].ret_at.segment;
            }
        }
    }
    return 0;
}

/* The records are durable: the index must show them before anything else happens. It is tried
 * until it works; after a restart the log would be replayed instead. */
static int write_index(struct commit *m, struct err *err)
{
    struct cbatch *b = &m->b;
    uint64_t lsn = b->first_lsn + b->recs.n - 1;
    int rc = itx_commit(&b->tx, lsn, err);
    while (rc < 0) {
        log_warn_rl("index.stuck", KV_CSTR("error", err ? err->msg : ""));
        atomic_store(&m->is_stuck, true);
        struct timespec ts = {.tv_nsec = STUCK_NS};
        nanosleep(&ts, NULL);
        pthread_mutex_lock(&m->lock);
        bool is_stopping = m->is_stopping || atomic_load(&m->s->is_closing);
        pthread_mutex_unlock(&m->lock);
        if (rc == -EUCLEAN || is_stopping) {
            ostore_fail(m->s, "the index could not be written");
            atomic_store(&m->is_stuck, false);
            return rc;
        }
        err_clear(err);
        rc = itx_commit(&b->tx, lsn, err);
    }
    atomic_store(&m->is_stuck, false);
    return 0;
}

static void bury(struct commit *m)
{
    struct cbatch *b = &m->b;
    for (size_t i = 0; i < b->tx.deaths.n; i++) {
        struct pin_victim v = {.body = b->tx.deaths.v[i].body};
        pins_bury(m->s->pins, b->tx.deaths.v[i].pin, &v);
    }
    for (size_t i = 0; i < b->bucket_recs.n; i++) {
        struct err err = ERR_INIT;
        if (buckets_apply(m->s, &b->bucket_recs.v[i], &err) < 0) {
            log_warn("bucket.failed", KV_ERR(&err));
        }
    }
}

/* 0 or the failure of all that have records. */
static int finish(struct commit *m, struct err *err)
{
    struct cbatch *b = &m->b;
    if (b->is_broken) {
        return fail(err, -EIO, "IndexFailed", "the index could not be read");
    }
    if (b->recs.n == 0) {
        return 0;
    }
    int rc = write_log(m, err);
    if (rc == 0) {
        rc = write_index(m, err);
    }
    if (rc == 0) {
        bury(m);
        atomic_fetch_add(&m->s->n_commits, b->recs.n);
    } else if (rc == -ENOSPC) {
        err_clear(err);
        fail(err, rc, "InsufficientStorage", "there is no space left");
    }
    return rc;
}

/* Ops that only give back what others took are tried alone when the disk is full. */
static bool frees_space(const struct cop *op)
{
    return op->kind != COP_CHANGE || op->c->kind == OCHANGE_DELETE ||
           op->c->kind == OCHANGE_ABORT;
}

static void run_list(struct commit *m, struct cop *list)
{
    while (list) {
        struct err err = ERR_INIT;
        batch_reset(&m->b);
        struct cop *in = build(m, &list);
        assert(in); /* the first op of an empty batch never waits */
        int rc = finish(m, &err);
        struct cop *again = NULL, **tail = &again;
        while (in) {
            struct cop *op = in;
            in = op->next;
            op->next = NULL;
            bool is_worth = rc == -E2BIG || (rc == -ENOSPC && frees_space(op));
            if (is_worth && !op->is_tried && op->has_record) {
                op->is_tried = true;
                *tail = op;
                tail = &op->next;
                continue;
            }
            if (rc < 0 && (op->has_record || m->b.is_broken)) {
                op->rc = rc;
                op->err = err;
            }
            answer(op);
        }
        *tail = list;
        list = again;
    }
}

/* Under the lock. After a second without work the log says what was synced. */
static void wait_for_work(struct commit *m)
{
    if (!m->is_active) {
        pthread_cond_wait(&m->wake, &m->lock);
        return;
    }
    uint64_t end = time_mono_ns() + IDLE_NS;
    struct timespec ts = {.tv_sec = (time_t)(end / NS_PER_S),
                          .tv_nsec = (long)(end % NS_PER_S)};
    if (pthread_cond_timedwait(&m->wake, &m->lock, &ts) != ETIMEDOUT) {
        return;
    }
    m->is_active = false;
    pthread_mutex_unlock(&m->lock);
    struct err err = ERR_INIT;
    if (olog_idle(m->s->log, &err) < 0) {
        log_debug("log.idle", KV_ERR(&err));
    }
    pthread_mutex_lock(&m->lock);
}

static void *run(void *arg)
{
    struct commit *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->head && !m->calls && !m->is_stopping) {
            wait_for_work(m);
        }
        struct cop *list = m->head;
        struct call *calls = m->calls;
        if (!list && !calls) {
            break;
        }
        m->head = NULL;
        m->tail = &m->head;
        m->n = 0;
        m->calls = NULL;
        m->is_active = true;
        pthread_cond_broadcast(&m->room);
        pthread_mutex_unlock(&m->lock);
        run_list(m, list);
        for (struct call *c = calls; c; c = c->next) {
            c->rc = c->fn(c->ctx, &c->err);
        }
        pthread_mutex_lock(&m->lock);
        while (calls) {
            struct call *next = calls->next; /* it is gone once it is done */
            calls->is_done = true;
            calls = next;
        }
        pthread_cond_broadcast(&m->room);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

struct commit *commit_start(struct ostore *s)
{
    struct commit *m = calloc(1, sizeof(*m));
    if (!m) {
        abort();
    }
    m->s = s;
    m->tail = &m->head;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&m->room, NULL);
    m->b.s = s;
    itx_init(&m->b.tx, s->index, &s->counts);
    buf_init(&m->b.bytes, HEADS_MAX);
    m->b.a = arena_new(ARENA_MAX);
    if (pthread_create(&m->thread, NULL, run, m) != 0) {
        abort();
    }
    return m;
}

void commit_stop(struct commit *m)
{
    if (!m) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    m->is_stopping = true;
    pthread_cond_signal(&m->wake);
    pthread_cond_broadcast(&m->room);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    itx_done(&m->b.tx);
    buf_done(&m->b.bytes);
    arena_free(m->b.a);
    vec_free(&m->b.recs);
    vec_free(&m->b.bucket_recs);
    free(m->v);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->room);
    free(m);
}
