#include "ostore/ostore_int.h"

#include "ostore/recode.h"

#include <assert.h>
#include <errno.h>

#define CHUNK_SIZE ((size_t)128 << 10)
#define HELD_MAX \
    ((size_t)1 << 20) /* OPUT_WAIT from here; one more piece of 1 MiB may have come */
#define HELD_LOW  (HELD_MAX / 2)
#define LARGE_MEM ((int64_t)2 << 20)
#define SMALL_MEM ((int64_t)32 << 10) /* at least */
#define PIECE_MAX ((size_t)1 << 20)

/* --- threads for large bodies --- */

struct job {
    struct job *next;
    void (*run)(struct job *j);
};
struct jobs {
    struct job *head, **tail;
};
struct iopool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct jobs first, background; /* what may wait comes last */
    bool is_stopping;
    unsigned n;
    pthread_t threads[64];
};

static struct job *job_pop(struct jobs *q)
{
    struct job *j = q->head;
    if (j) {
        q->head = j->next;
        q->tail = q->head ? q->tail : &q->head;
    }
    return j;
}

static void *io_run(void *arg)
{
    struct iopool *p = arg;
    unsigned turn = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        /* Every eighth job may be one that yields: they go on, slowly. */
        struct job *j = ++turn % 8 == 0 ? job_pop(&p->background) : NULL;
        j = j ? j : job_pop(&p->first);
        j = j ? j : job_pop(&p->background);
        if (!j) {
            if (p->is_stopping) {
                break;
            }
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        j->run(j);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct iopool *iopool_start(unsigned n_threads)
{
    struct iopool *p = calloc(1, sizeof(*p));
    if (!p) {
        abort();
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->first.tail = &p->first.head;
    p->background.tail = &p->background.head;
    p->n = MIN(n_threads, (unsigned)ARRAY_LEN(p->threads));
    for (unsigned i = 0; i < p->n; i++) {
        if (pthread_create(&p->threads[i], NULL, io_run, p) != 0) {
            abort();
        }
    }
    return p;
}

void iopool_stop(struct iopool *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n; i++) {
        pthread_join(p->threads[i], NULL);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    free(p);
}

static void io_submit(struct iopool *p, struct job *j, bool is_background)
{
    struct jobs *q = is_background ? &p->background : &p->first;
    pthread_mutex_lock(&p->lock);
    j->next = NULL;
    *q->tail = j;
    q->tail = &j->next;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

/* --- one body --- */

struct chunk {
    struct chunk *next;
    size_t n;
    char p[];
};

struct oput {
    struct job job;
    struct ostore *s;
    struct oput_opts o;
    uint64_t size;
    struct share_hold mem; /* what it may hold */
    /* small: all bytes in one piece */
    char *small;
    size_t cap;
    bool is_large;
    struct arena *a; /* the wrapped key */
    struct orec_body body;
    uint8_t *stored; /* small, finished: as it goes into the log */
    /* large: under 'lock' */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct chunk *head, **tail;
    size_t held; /* bytes that are not written yet */
    bool is_running, is_in_call, is_waiting, is_finishing, is_done;
    bool is_quiet; /* no call-back any more: oput_free() has begun */
    bool is_freed; /* the job owns it now */
    int rc;
    struct err err;
    void (*done)(void *ctx, int rc, const struct err *err);
    void *done_ctx;
    /* of the running job */
    struct body_codec codec;
    struct shard_writer *writer;
    bool is_codec;
    size_t n_seen; /* bytes of the first chunks that on_bytes saw while the body was small */
};

static void large_run(struct job *j);

int oput_new(struct ostore *s, const struct oput_opts *o, struct oput **ret, struct err *err)
{
    int rc = ostore_may_grow(s, true, err);
    if (rc < 0) {
        return rc;
    }
    bool is_large = o->size > (int64_t)s->inline_max;
    int64_t mem = is_large ? LARGE_MEM : o->size >= 0 ? o->size + 4096 : (int64_t)s->inline_max;
    const struct str owners[SHARE_OWNERS] = {o->account, o->address};
    struct share_hold hold = {0};
    if (share_take(s->put_mem, &hold, owners, (uint64_t)MAX(mem, SMALL_MEM)) < 0) {
        return fail(err, -EAGAIN, "SlowDown", "Please reduce your request rate.");
    }
    struct oput *p = calloc(1, sizeof(*p));
    if (!p) {
        share_give(s->put_mem, &hold);
        return fail(err, -EAGAIN, "SlowDown", "no memory for an upload");
    }
    p->s = s;
    p->o = *o;
    p->mem = hold;
    p->o.account = p->o.address = STR_NONE; /* borrowed no longer */
    p->is_large = is_large;
    p->tail = &p->head;
    p->job.run = large_run;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->idle, NULL);
    *ret = p;
    return 0;
}

uint64_t oput_size(const struct oput *p)
{
    return p->size;
}

/* Frees everything; nothing runs for it any more. */
static void destroy(struct oput *p)
{
    shard_writer_free(p->writer);
    if (p->is_codec) {
        body_codec_done(&p->codec);
    }
    while (p->head) {
        struct chunk *c = p->head;
        p->head = c->next;
        free(c);
    }
    share_give(p->s->put_mem, &p->mem);
    arena_free(p->a);
    free(p->small);
    free(p->stored);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->idle);
    free(p);
}

/* With its files. May wait for drives. */
static void give_up(struct oput *p)
{
    /* A change that failed is in no log, and nothing will name the files. But a store that had
     * to stop taking changes does not know: the next start may find the record. Then the sweep
     * decides. */
    if (p->is_done && p->is_large && p->rc == 0 && !atomic_load(&p->s->is_readonly)) {
        shard_remove(p->s->shards, &p->body);
    }
    destroy(p);
}

void oput_free(struct oput *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->is_quiet = true;
    while (p->is_in_call) {
        pthread_cond_wait(&p->idle, &p->lock); /* as long as on_bytes takes */
    }
    bool is_running = p->is_running;
    bool has_files = !is_running && p->is_large && (p->writer || p->is_done);
    p->is_running = is_running || has_files;
    p->is_freed = true; /* not before: a job that sees it frees what is waited on here */
    pthread_mutex_unlock(&p->lock);
    if (is_running) {
        return; /* the job frees it when it sees that */
    }
    if (has_files) { /* its drives are waited for elsewhere */
        io_submit(p->s->io, &p->job, true);
        return;
    }
    destroy(p);
}

void oput_taken(struct oput *p)
{
    destroy(p);
}

const struct orec_body *oput_body(const struct oput *p)
{
    return &p->body;
}

struct str oput_inline(const struct oput *p)
{
    return p->stored ? str_n((const char *)p->stored, p->body.stored_size) : STR_NONE;
}

static int new_codec(struct oput *p, struct err *err)
{
    p->a = arena_new(4096);
    pthread_rwlock_rdlock(&p->s->keys_lock);
    int rc;
    if (p->s->is_sealing && !p->s->body_keys) {
        rc = fail(err, -EACCES, "Locked", "the store is locked");
    } else {
        rc = body_codec_new(&p->codec, p->s->is_sealing ? p->s->body_keys : NULL, p->a,
                            &p->body, err);
    }
    pthread_rwlock_unlock(&p->s->keys_lock);
    p->is_codec = rc == 0;
    return rc;
}

/* --- small bodies --- */

static int add_small(struct oput *p, struct str bytes, struct err *err)
{
    if (p->size + bytes.n > p->cap) {
        size_t cap = p->o.size >= 0 ? (size_t)p->o.size : MAX(p->cap * 2, (size_t)8192);
        cap = MAX(cap, (size_t)p->size + bytes.n);
        char *n = realloc(p->small, cap);
        if (!n) {
            return fail(err, -EAGAIN, "SlowDown", "no memory for an upload");
        }
        p->small = n;
        p->cap = cap;
    }
    memcpy(p->small + p->size, bytes.p, bytes.n);
    p->size += bytes.n;
    if (p->o.on_bytes) {
        p->o.on_bytes(p->o.ctx, bytes);
    }
    return OPUT_MORE;
}

static int finish_small(struct oput *p, struct err *err)
{
    if (p->size == 0) {
        return 0; /* nothing to store: the record says so */
    }
    int rc = new_codec(p, err);
    if (rc < 0) {
        return rc;
    }
    p->body.is_inline = true;
    p->body.stored_size = body_stored_size(p->size);
    p->stored = malloc(p->body.stored_size);
    if (!p->stored) {
        return fail(err, -EAGAIN, "SlowDown", "no memory for an upload");
    }
    uint8_t *out = p->stored;
    for (uint64_t off = 0, block = 0; off < p->size; block++) {
        size_t n = (size_t)MIN(p->size - off, (uint64_t)BODY_PLAIN);
        body_seal(&p->codec, block, p->small + off, n, out);
        out += n + BODY_TRAILER;
        off += n;
    }
    free(p->small);
    p->small = NULL;
    return 0;
}

/* --- large bodies --- */

static int enqueue(struct oput *p, struct str bytes, struct err *err)
{
    struct chunk *head = NULL, **tail = &head;
    for (size_t at = 0; at < bytes.n;) {
        size_t n = MIN(bytes.n - at, CHUNK_SIZE);
        struct chunk *c = malloc(sizeof(*c) + n);
        if (!c) {
            while (head) {
                c = head->next;
                free(head);
                head = c;
            }
            return fail(err, -EAGAIN, "SlowDown", "no memory for an upload");
        }
        memcpy(c->p, bytes.p + at, n);
        c->n = n;
        c->next = NULL;
        *tail = c;
        tail = &c->next;
        at += n;
    }
    pthread_mutex_lock(&p->lock);
    if (head) {
        *p->tail = head;
        p->tail = tail;
        p->held += bytes.n;
    }
    int rc = p->rc < 0             ? fail(err, p->rc, p->err.name, "%s", p->err.msg)
             : p->held >= HELD_MAX ? OPUT_WAIT
                                   : OPUT_MORE;
    p->is_waiting = rc == OPUT_WAIT;
    bool is_start = !p->is_running && rc >= 0 && p->head;
    p->is_running |= is_start;
    pthread_mutex_unlock(&p->lock);
    if (is_start) {
        io_submit(p->s->io, &p->job, p->o.is_background);
    }
    return rc;
}

/* A body of unknown size outgrew its place in the log. */
static int spill(struct oput *p, struct err *err)
{
    if (share_more(p->s->put_mem, &p->mem,
                   (uint64_t)LARGE_MEM - MIN(p->mem.n, (uint64_t)LARGE_MEM)) < 0) {
        return fail(err, -EAGAIN, "SlowDown", "Please reduce your request rate.");
    }
    p->is_large = true;
    p->n_seen = (size_t)p->size;
    int rc = enqueue(p, str_n(p->small, (size_t)p->size), err);
    free(p->small);
    p->small = NULL;
    p->cap = 0;
    return rc;
}

static int check_add(struct oput *p, struct str bytes, struct err *err)
{
    assert(bytes.n <= PIECE_MAX && !p->is_finishing);
    if (p->o.size >= 0 && p->size + bytes.n > (uint64_t)p->o.size) {
        return fail(err, -EINVAL, "IncompleteBody", "more bytes came than were announced");
    }
    return 0;
}

int oput_add(struct oput *p, struct str bytes, struct err *err)
{
    int rc = check_add(p, bytes, err);
    if (rc < 0 || bytes.n == 0) {
        return rc;
    }
    if (!p->is_large && p->size + bytes.n <= p->s->inline_max) {
        return add_small(p, bytes, err);
    }
    if (!p->is_large) {
        rc = spill(p, err);
        if (rc < 0) {
            return rc;
        }
    }
    p->size += bytes.n;
    return enqueue(p, bytes, err);
}

int oput_add_wait(struct oput *p, struct str bytes, struct err *err)
{
    int rc = 0;
    for (size_t at = 0; at < bytes.n && rc >= 0;) {
        size_t n = MIN(bytes.n - at, CHUNK_SIZE);
        rc = oput_add(p, str_n(bytes.p + at, n), err);
        at += n;
        if (rc != OPUT_WAIT) {
            continue;
        }
        pthread_mutex_lock(&p->lock);
        while (p->held > HELD_LOW && p->rc == 0) {
            pthread_cond_wait(&p->idle, &p->lock);
        }
        p->is_waiting = false;
        pthread_mutex_unlock(&p->lock);
    }
    return rc < 0 ? rc : 0;
}

void oput_finish(struct oput *p, void (*done)(void *ctx, int rc, const struct err *err),
                 void *ctx)
{
    struct err err = ERR_INIT;
    assert(!p->is_finishing);
    if (p->o.size >= 0 && p->size != (uint64_t)p->o.size) {
        /* Not "finishing": a job that runs would end the body, and call 'done' again. */
        int rc =
            fail(&err, -EINVAL, "IncompleteBody",
                 "You did not provide the number of bytes specified by the Content-Length");
        done(ctx, rc, &err);
        return;
    }
    if (!p->is_large) {
        p->is_finishing = true;
        int rc = finish_small(p, &err);
        done(ctx, rc, &err);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->is_finishing = true;
    p->done = done;
    p->done_ctx = ctx;
    bool is_start = !p->is_running;
    p->is_running = true;
    pthread_mutex_unlock(&p->lock);
    if (is_start) {
        io_submit(p->s->io, &p->job, p->o.is_background);
    }
}

/* On a thread of the pool: hashes and writes one chunk. */
static int write_chunk(struct oput *p, const struct chunk *c, struct err *err)
{
    size_t seen = MIN(p->n_seen, c->n);
    p->n_seen -= seen;
    if (seen < c->n && p->o.on_bytes) {
        pthread_mutex_lock(&p->lock);
        bool is_quiet = p->is_quiet;
        p->is_in_call = !is_quiet;
        pthread_mutex_unlock(&p->lock);
        if (is_quiet) {
            return -ECANCELED;
        }
        p->o.on_bytes(p->o.ctx, str_n(c->p + seen, c->n - seen));
        pthread_mutex_lock(&p->lock);
        p->is_in_call = false;
        pthread_cond_broadcast(&p->idle);
        pthread_mutex_unlock(&p->lock);
    }
    if (!p->writer) {
        int rc = new_codec(p, err);
        if (rc == 0) {
            rc = shard_writer_new(p->s->shards, &p->s->code, &p->codec, &p->body, &p->writer,
                                  err);
            if (rc == 0 && recode_is_weak(p->s, &p->body)) {
                atomic_store(&p->s->has_weak, true);
            }
        }
        if (rc < 0) {
            return rc;
        }
    }
    return shard_writer_add(p->writer, c->p, c->n, err);
}

static void large_failed(struct oput *p, int rc, const struct err *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->rc == 0) {
        p->rc = rc == -ENOSPC || rc == -EDQUOT ? -ENOSPC : rc;
        p->err = *err;
        if (p->rc == -ENOSPC) {
            p->err.name = "InsufficientStorage";
        }
    }
    pthread_mutex_unlock(&p->lock);
}

/* Under the lock, which it gives up during the call. */
static void call_ready(struct oput *p)
{
    if (!p->is_waiting || (p->held > HELD_LOW && p->rc == 0) || p->is_quiet) {
        return;
    }
    p->is_waiting = false;
    if (!p->o.on_ready) {
        return;
    }
    p->is_in_call = true;
    pthread_mutex_unlock(&p->lock);
    p->o.on_ready(p->o.ctx);
    pthread_mutex_lock(&p->lock);
    p->is_in_call = false;
    pthread_cond_broadcast(&p->idle);
}

static void large_end(struct oput *p)
{
    struct err err = ERR_INIT;
    int rc = p->rc;
    if (rc == 0) {
        rc = shard_writer_finish(p->writer, &p->body, &err);
        if (rc < 0) {
            large_failed(p, rc, &err);
        }
    }
    pthread_mutex_lock(&p->lock);
    p->is_done = true;
    p->is_running = false;
    void (*done)(void *ctx, int rc, const struct err *err) = p->done;
    void *ctx = p->done_ctx;
    rc = p->rc;
    err = p->err;
    pthread_mutex_unlock(&p->lock);
    done(ctx, rc, &err); /* the body may be gone when it returns */
}

/* Takes chunks until there are none; one job of a body at a time. */
static void large_run(struct job *j)
{
    struct oput *p = CONTAINER_OF(j, struct oput, job);
    pthread_mutex_lock(&p->lock);
    while (p->head && !p->is_freed) {
        struct chunk *c = p->head;
        p->head = c->next;
        p->tail = p->head ? p->tail : &p->head;
        bool is_good = p->rc == 0;
        pthread_mutex_unlock(&p->lock);
        struct err err = ERR_INIT;
        int rc = is_good ? write_chunk(p, c, &err) : 0;
        if (rc < 0) {
            large_failed(p, rc, &err);
        }
        pthread_mutex_lock(&p->lock);
        p->held -= c->n;
        free(c);
        pthread_cond_broadcast(&p->idle);
        call_ready(p);
    }
    if (p->is_freed) {
        pthread_mutex_unlock(&p->lock);
        give_up(p);
        return;
    }
    if (p->is_finishing) {
        pthread_mutex_unlock(&p->lock);
        large_end(p);
        return;
    }
    p->is_running = false;
    pthread_mutex_unlock(&p->lock);
}
