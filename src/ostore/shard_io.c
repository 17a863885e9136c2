#include "ostore/shard_int.h"

#include <errno.h>
#include <stdlib.h>

#define STALL_NS       (30 * NS_PER_S)
#define CLOSE_NS       NS_PER_S
#define BUFS_KEPT      16
#define READ_THREADS   8
#define WRITE_THREADS  4
#define UNLINK_THREADS 2 /* of their own: they must not wait for syncs */

/* The threads of one drive for one kind of work; made when there is something to do. Counted:
 * by its struct shards and by each thread, as one that hangs may outlive everything else. */
struct shard_lane {
    atomic_uint refs;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t work, gone;
    struct shard_job *first, *last;
    unsigned n_queued, n_idle, n_threads, max_threads;
    bool is_closing;
    atomic_uint_fast64_t last_done_ns;
};

static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

static int wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns)
{
    struct timespec t = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};
    return pthread_cond_timedwait(c, m, &t);
}

static void *xzalloc(size_t n)
{
    void *p = calloc(1, n);
    if (!p) {
        abort();
    }
    return p;
}

/* --- lanes --- */

static void lane_unref(struct shard_lane *l)
{
    if (atomic_fetch_sub(&l->refs, 1) == 1) {
        pthread_cond_destroy(&l->work);
        pthread_cond_destroy(&l->gone);
        pthread_mutex_destroy(&l->lock);
        free(l);
    }
}

static struct shard_lane *lane_new(unsigned max_threads)
{
    struct shard_lane *l = xzalloc(sizeof(*l));
    atomic_init(&l->refs, 1);
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->work);
    cond_init(&l->gone);
    l->max_threads = max_threads;
    return l;
}

static void *lane_thread(void *ctx)
{
    struct shard_lane *l = ctx;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->first && !l->is_closing) {
            l->n_idle++;
            pthread_cond_wait(&l->work, &l->lock);
            l->n_idle--;
        }
        struct shard_job *j = l->first;
        if (!j) {
            break;
        }
        l->first = j->next;
        l->n_queued--;
        pthread_mutex_unlock(&l->lock);
        atomic_store(&j->started_ns, time_mono_ns());
        j->run(j);
        atomic_store(&l->last_done_ns, time_mono_ns());
        pthread_mutex_lock(&l->lock);
    }
    l->n_threads--;
    pthread_cond_broadcast(&l->gone);
    pthread_mutex_unlock(&l->lock);
    lane_unref(l);
    return NULL;
}

/* With the lock held. A thread that cannot be made is no error while there is another. */
static void add_thread(struct shard_lane *l)
{
    pthread_attr_t attr;
    pthread_t t;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    atomic_fetch_add(&l->refs, 1);
    l->n_threads++;
    if (pthread_create(&t, &attr, lane_thread, l) != 0) {
        l->n_threads--;
        atomic_fetch_sub(&l->refs, 1);
        if (l->n_threads == 0) {
            abort();
        }
    }
    pthread_attr_destroy(&attr);
}

void shard_post(struct shards *s, unsigned drive, enum shard_class c, struct shard_job *j)
{
    struct shard_lane *l = s->lanes[drive][c];
    j->next = NULL;
    j->lane = l;
    j->posted_ns = time_mono_ns();
    atomic_store(&j->started_ns, 0);
    pthread_mutex_lock(&l->lock);
    if (l->first) {
        l->last->next = j;
    } else {
        l->first = j;
    }
    l->last = j;
    l->n_queued++;
    if (l->n_queued > l->n_idle && l->n_threads < l->max_threads) {
        add_thread(l);
    } else {
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}

bool shard_job_is_stalled(const struct shards *s, const struct shard_job *j, uint64_t now_ns)
{
    uint64_t since = atomic_load(&j->started_ns);
    if (since == 0) { /* in line: do those before it get done? */
        since = MAX(j->posted_ns, (uint64_t)atomic_load(&j->lane->last_done_ns));
    }
    return now_ns > since && now_ns - since > s->stall_ns;
}

/* What is in line still runs: jobs own things. */
static void lane_close(struct shard_lane *l)
{
    if (!l) {
        return;
    }
    uint64_t until = time_mono_ns() + CLOSE_NS;
    pthread_mutex_lock(&l->lock);
    l->is_closing = true;
    pthread_cond_broadcast(&l->work);
    while (l->n_threads > 0 && wait_until(&l->gone, &l->lock, until) == 0) {}
    pthread_mutex_unlock(&l->lock);
    lane_unref(l);
}

/* --- waiters --- */

struct shard_waiter *shard_waiter_new(void)
{
    struct shard_waiter *w = xzalloc(sizeof(*w));
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->cond);
    return w;
}

struct shard_waiter *shard_waiter_ref(struct shard_waiter *w)
{
    atomic_fetch_add(&w->refs, 1);
    return w;
}

void shard_waiter_unref(struct shard_waiter *w)
{
    if (w && atomic_fetch_sub(&w->refs, 1) == 1) {
        pthread_cond_destroy(&w->cond);
        pthread_mutex_destroy(&w->lock);
        free(w);
    }
}

void shard_waiter_wait(struct shard_waiter *w, uint64_t until_ns)
{
    (void)wait_until(&w->cond, &w->lock, until_ns);
}

/* --- buffers and files --- */

struct shard_buf *shard_buf_get(struct shards *s, size_t size)
{
    struct shard_buf *b = NULL;
    pthread_mutex_lock(&s->lock);
    for (struct shard_buf **at = &s->bufs; *at; at = &(*at)->next) {
        if ((*at)->size == size) {
            b = *at;
            *at = b->next;
            s->n_bufs--;
            break;
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (b) {
        return b;
    }
    b = xzalloc(sizeof(*b));
    b->size = size;
    b->p = aligned_alloc(4096, size);
    if (!b->p) {
        free(b);
        return NULL;
    }
    return b;
}

static void buf_free(struct shard_buf *b)
{
    free(b->p);
    free(b);
}

void shard_buf_put(struct shards *s, struct shard_buf *b)
{
    if (!b) {
        return;
    }
    bool is_kept = false;
    if (s) {
        struct shard_buf *old = NULL;
        pthread_mutex_lock(&s->lock);
        if (s->n_bufs == BUFS_KEPT) { /* the oldest may be of a size that nobody wants */
            struct shard_buf **at = &s->bufs;
            while ((*at)->next) {
                at = &(*at)->next;
            }
            old = *at;
            *at = NULL;
            s->n_bufs--;
        }
        b->next = s->bufs;
        s->bufs = b;
        s->n_bufs++;
        pthread_mutex_unlock(&s->lock);
        is_kept = true;
        if (old) {
            buf_free(old);
        }
    }
    if (!is_kept) {
        buf_free(b);
    }
}

struct shard_file *shard_file_new(int fd)
{
    struct shard_file *f = xzalloc(sizeof(*f));
    atomic_init(&f->refs, 1);
    f->fd = fd;
    return f;
}

struct shard_file *shard_file_ref(struct shard_file *f)
{
    if (f) {
        atomic_fetch_add(&f->refs, 1);
    }
    return f;
}

void shard_file_unref(struct shard_file *f)
{
    if (f && atomic_fetch_sub(&f->refs, 1) == 1) {
        close(f->fd);
        free(f);
    }
}

/* --- the handle --- */

int shards_open(const struct shards_opts *o, struct shards **ret, struct err *err)
{
    struct shards *s = calloc(1, sizeof(*s));
    if (!s) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for the shards");
    }
    *s = (struct shards){.drives = o->drives,
                         .fs = drives_fs(o->drives),
                         .stall_ns = o->stall_ns ? o->stall_ns : STALL_NS,
                         .slow_ns = o->slow_ns,
                         .on_bad = o->on_bad,
                         .ctx = o->ctx};
    pthread_mutex_init(&s->repair, NULL);
    pthread_mutex_init(&s->lock, NULL);
    for (unsigned i = 0; i < drives_n(s->drives); i++) {
        s->lanes[i][SHARD_READS] = lane_new(READ_THREADS);
        s->lanes[i][SHARD_WRITES] = lane_new(WRITE_THREADS);
        s->lanes[i][SHARD_UNLINKS] = lane_new(UNLINK_THREADS);
    }
    *ret = s;
    return 0;
}

void shards_close(struct shards *s)
{
    if (!s) {
        return;
    }
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        for (unsigned c = 0; c < SHARD_CLASS_N; c++) {
            lane_close(s->lanes[i][c]);
        }
    }
    while (s->bufs) {
        struct shard_buf *b = s->bufs;
        s->bufs = b->next;
        buf_free(b);
    }
    pthread_mutex_destroy(&s->repair);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct drives *shards_drives(struct shards *s)
{
    return s->drives;
}

void shards_stats(struct shards *s, struct shards_stats *ret)
{
    *ret = (struct shards_stats){.n_hedged = atomic_load(&s->n_hedged),
                                 .n_recovered = atomic_load(&s->n_recovered),
                                 .n_lost = atomic_load(&s->n_lost),
                                 .n_failed = atomic_load(&s->n_failed)};
}

struct shard_head shard_head_of(const struct shards *s, const struct orec_body *body,
                                unsigned shard)
{
    struct shard_head h = {
        .k = body->k, .m = body->m, .shard = (uint8_t)shard, .unit = body->unit};
    memcpy(h.set_id, drives_set_id(s->drives), 16);
    memcpy(h.id, body->id, OREC_ID_SIZE);
    return h;
}

int shard_body_check(const struct orec_body *body, struct layout *ret, struct err *err)
{
    int r = layout_init(ret, body->stored_size, body->k, body->m, body->unit, err);
    if (r == 0 && body->stored_size > SHARD_SIZE_MAX) {
        r = fail(err, -EFBIG, "InvalidLayout", "a body too large for shards");
    }
    return r;
}
