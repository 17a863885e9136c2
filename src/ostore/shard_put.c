#include "ostore/shard_writer_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* Write-back begins when this much of a file is there, so that the sync at the end is short. */
#define FLUSH_SIZE        (UINT64_C(4) << 20)
#define LOOK_NS           (NS_PER_S / 4)
/* Place in the body from which on units are not kept in the page cache. */
#define PAST_CACHE_DATA   (UINT64_C(64) << 20)
#define PAST_CACHE_PARITY (UINT64_C(4) << 20)

/* --- on the drive --- */

static int open_file(struct wfile *f, unsigned shard)
{
    struct shard_writer *w = f->w;
    char name[SHARD_NAME_SIZE];
    shard_name(w->body.id, shard, w->is_repair, name);
    int dir = drives_data_dir(w->drives, w->body.drive[shard], w->body.id[0]);
    int flags = O_WRONLY | O_CREAT | (w->is_repair ? O_TRUNC : O_EXCL);
    int fd = dir < 0 ? dir : fault_open(w->fs, dir, name, flags, 0600);
    if (fd < 0) {
        return fd;
    }
    f->file = shard_file_new(fd);
    return 0;
}

/* Durable, and with its name. */
static int sync_file(struct wfile *f, unsigned shard)
{
    struct shard_writer *w = f->w;
    int dir = drives_data_dir(w->drives, w->body.drive[shard], w->body.id[0]);
    int r = dir < 0 ? dir : fault_fdatasync(w->fs, f->file->fd);
    if (r == 0 && w->is_repair) {
        char tmp[SHARD_NAME_SIZE], name[SHARD_NAME_SIZE];
        shard_name(w->body.id, shard, true, tmp);
        shard_name(w->body.id, shard, false, name);
        r = fault_rename(w->fs, dir, tmp, name);
    }
    return r < 0 ? r : fault_sync_dir(w->fs, dir);
}

/* Of a large body the bytes go past the page cache: copying them there costs more than sealing
 * them, and nobody reads parity from it. What is read again soon is likely a smaller body. */
static bool is_past_cache(const struct wfile *f, unsigned shard, const struct wjob *j)
{
    const struct shard_writer *w = f->w;
    uint64_t from = shard < w->body.k ? PAST_CACHE_DATA : PAST_CACHE_PARITY;
    return !w->fs && !w->is_direct && !f->is_cached && f->file && !j->is_last &&
           j->unit.iov_len == w->body.unit && j->off * w->body.k >= from;
}

static void set_past_cache(struct wfile *f, bool is_on)
{
    if (f->is_past_cache == is_on) {
        return;
    }
    if (fcntl(f->file->fd, F_SETFL, is_on ? O_DIRECT : 0) < 0) {
        f->is_cached = true; /* a file system that cannot */
        return;
    }
    f->is_past_cache = is_on;
}

static int write_unit(struct wfile *f, const struct iovec *iov, int n, uint64_t at)
{
    int r = fault_pwritev(f->w->fs, f->file->fd, iov, n, at);
    if (r == -EINVAL && f->is_past_cache) { /* a drive that wants other alignments */
        f->is_cached = true;
        set_past_cache(f, false);
        r = fault_pwritev(f->w->fs, f->file->fd, iov, n, at);
    }
    return r;
}

/* Units that follow each other, in one call; header in front and footer behind where they
 * belong. */
static int write_run(struct wfile *f, unsigned shard, struct wjob *const *v, unsigned n_jobs,
                     bool is_past)
{
    static const uint8_t zeros[SHARD_HEAD_SIZE - SHARD_HEAD_USED];
    struct iovec iov[WSTRIPES_MAX + 4];
    int n = 0;
    uint64_t at = SHARD_HEAD_SIZE + v[0]->off, end = 0;
    if (f->file) {
        set_past_cache(f, is_past);
    } else {
        int r = open_file(f, shard);
        if (r < 0) {
            return r;
        }
        at = 0;
        iov[n++] = (struct iovec){f->head, sizeof(f->head)};
        memcpy(&iov[n].iov_base, &(const void *){zeros}, sizeof(void *)); /* only read */
        iov[n++].iov_len = sizeof(zeros);
    }
    for (unsigned i = 0; i < n_jobs; i++) {
        if (v[i]->unit.iov_len) {
            iov[n++] = v[i]->unit;
        }
        end = v[i]->off + v[i]->unit.iov_len;
    }
    if (v[n_jobs - 1]->is_last) {
        if (f->n_units) {
            iov[n++] = (struct iovec){f->table, 4 * (size_t)f->n_units};
        }
        iov[n++] = (struct iovec){f->foot, sizeof(f->foot)};
    }
    int r = n ? write_unit(f, iov, n, at) : 0;
    if (r == 0 && !f->w->fs && !f->is_past_cache && end - f->flushed >= FLUSH_SIZE) {
        (void)sync_file_range(f->file->fd, (off_t)f->flushed, (off_t)(end - f->flushed),
                              SYNC_FILE_RANGE_WRITE); /* a hint */
        f->flushed = end;
    }
    return r;
}

static int perform(struct wfile *f, unsigned shard, struct wjob *const *v, unsigned n)
{
    for (unsigned i = 0; i < n;) {
        bool is_past = is_past_cache(f, shard, v[i]);
        unsigned end = i + 1;
        while (end < n && is_past_cache(f, shard, v[end]) == is_past) {
            end++;
        }
        int r = write_run(f, shard, v + i, end - i, is_past);
        if (r < 0) {
            return r;
        }
        i = end;
    }
    return v[n - 1]->is_last ? sync_file(f, shard) : 0;
}

/* --- jobs --- */

static void stripe_free(struct shards *s, struct wstripe *st)
{
    if (st) {
        shard_buf_put(s, st->buf);
        free(st);
    }
}

/* With the lock held: the job is out of the way. */
static void job_done(struct wfile *f, struct wjob *j)
{
    struct wstripe *st = j->stripe;
    f->first = j->next;
    if (--st->n_pending == 0) {
        if (st->is_left) {
            stripe_free(NULL, st);
        } else if (!f->is_left) {
            pthread_cond_signal(&f->w->waiter->cond);
        }
    }
}

static void run(struct shard_job *sj)
{
    struct wfile *f = CONTAINER_OF(sj, struct wfile, job);
    struct shard_writer *w = f->w;
    unsigned shard = (unsigned)(f - w->files);
    pthread_mutex_lock(&w->waiter->lock);
    while (f->first) {
        struct wjob *v[WSTRIPES_MAX];
        unsigned n = 0;
        for (struct wjob *j = f->first; j && n < WSTRIPES_MAX; j = j->next) {
            v[n++] = j;
        }
        bool is_skipped = f->is_failed || f->is_left;
        pthread_mutex_unlock(&w->waiter->lock);
        atomic_store(&f->job.started_ns, time_mono_ns());
        int r = is_skipped ? 0 : perform(f, shard, v, n);
        pthread_mutex_lock(&w->waiter->lock);
        if (r < 0 && !f->is_failed) {
            f->is_failed = true;
            f->rc = r;
        }
        for (unsigned i = 0; i < n; i++) {
            job_done(f, v[i]);
        }
    }
    f->is_running = false;
    pthread_cond_signal(&w->waiter->cond);
    pthread_mutex_unlock(&w->waiter->lock);
    shard_writer_unref(w);
}

/* --- the owner's side --- */

static unsigned n_shards(const struct shard_writer *w)
{
    return (unsigned)w->body.k + w->body.m;
}

/* What failed since the last look: drives are faulted, outside of the lock. Then: is enough
 * left? */
static int look(struct shard_writer *w, struct err *err)
{
    unsigned n_live = 0;
    int code = 0;
    for (unsigned i = 0; i < n_shards(w); i++) {
        struct wfile *f = &w->files[i];
        if (!(w->mask >> i & 1)) {
            continue;
        }
        pthread_mutex_lock(&w->waiter->lock);
        int r = f->is_failed || f->is_left ? f->rc : 0;
        pthread_mutex_unlock(&w->waiter->lock);
        n_live += r == 0;
        code = code == 0 || r == -ENOSPC || r == -EDQUOT ? r < 0 ? r : code : code;
        if (r < 0 && !(w->reported >> i & 1)) {
            w->reported |= 1u << i;
            atomic_fetch_add(&w->s->n_failed, 1);
            drives_fault(w->drives, w->body.drive[i], r, "writing a shard");
        }
    }
    if (code == -ENOSPC || code == -EDQUOT) {
        return fail(err, -ENOSPC, "DriveFull", "a drive has no room for a body");
    }
    if (n_live < (w->is_repair ? 1 : w->body.k)) {
        return fail(err, code, "TooFewDrives", "only %u of %u shards can be written", n_live,
                    n_shards(w));
    }
    return 0;
}

/* With the lock held: files whose drives do not answer are left to their threads. */
static void leave_stalled(struct shard_writer *w)
{
    uint64_t now = time_mono_ns();
    for (unsigned i = 0; i < n_shards(w); i++) {
        struct wfile *f = &w->files[i];
        if (f->is_running && !f->is_left && shard_job_is_stalled(w->s, &f->job, now)) {
            f->is_left = true;
            f->rc = f->rc < 0 ? f->rc : -ETIMEDOUT;
        }
    }
    /* A stripe that only such files still have is theirs. */
    for (unsigned i = 0; i < WSTRIPES_MAX; i++) {
        struct wstripe *st = w->stripes[i];
        unsigned n_left = 0;
        for (unsigned k = 0; st && k < n_shards(w); k++) {
            for (const struct wjob *j = w->files[k].is_left ? w->files[k].first : NULL; j;
                 j = j->next) {
                n_left += j->stripe == st;
            }
        }
        if (st && st->n_pending > 0 && n_left == st->n_pending) {
            st->is_left = true;
            w->stripes[i] = NULL;
        }
    }
}

int shard_writer_stripe(struct shard_writer *w, struct wstripe **ret, struct err *err)
{
    struct wstripe **slot = NULL;
    pthread_mutex_lock(&w->waiter->lock);
    for (;;) {
        for (unsigned i = 0; i < WSTRIPES_MAX; i++) { /* used ones first: they are warm */
            struct wstripe *st = w->stripes[i];
            if (st && st->n_pending == 0 && !st->is_held) {
                pthread_mutex_unlock(&w->waiter->lock);
                *ret = st;
                return 0;
            }
            slot = st || slot ? slot : &w->stripes[i];
        }
        if (slot) {
            break;
        }
        shard_waiter_wait(w->waiter, time_mono_ns() + LOOK_NS);
        leave_stalled(w);
    }
    pthread_mutex_unlock(&w->waiter->lock);
    struct wstripe *st = calloc(1, sizeof(*st));
    struct shard_buf *buf =
        st ? shard_buf_get(w->s, w->stripe_max + (size_t)w->body.m * w->body.unit) : NULL;
    if (!buf) {
        free(st);
        return fail(err, -ENOMEM, "NoMemory", "no memory for a stripe");
    }
    st->buf = buf;
    *slot = *ret = st;
    return 0;
}

static int write_direct(struct shard_writer *w, struct wstripe *st, struct err *err)
{
    struct wfile *f = &w->files[0];
    struct wjob *j = &st->jobs[0];
    st->is_held = false;
    f->rc = perform(f, 0, &j, 1);
    f->is_failed = f->rc < 0;
    return f->is_failed ? look(w, err) : 0;
}

/* With the lock held: a stripe's units behind what their files have to do. */
static void queue(struct shard_writer *w, struct wstripe *st)
{
    st->is_held = false;
    for (unsigned i = 0; i < n_shards(w); i++) {
        struct wfile *f = &w->files[i];
        struct wjob *j = &st->jobs[i];
        bool is_empty = j->unit.iov_len == 0 && !j->is_last;
        if (!(w->mask >> i & 1) || f->is_failed || f->is_left || is_empty) {
            continue;
        }
        j->stripe = st;
        j->next = NULL;
        st->n_pending++;
        if (f->first) {
            f->last->next = j;
        } else {
            f->first = j;
        }
        f->last = j;
    }
}

int shard_writer_post(struct shard_writer *w, struct err *err)
{
    unsigned n = w->n_held;
    w->n_held = 0;
    if (w->is_direct) {
        return write_direct(w, w->held[0], err);
    }
    uint32_t started = 0;
    pthread_mutex_lock(&w->waiter->lock);
    for (unsigned i = 0; i < n; i++) {
        queue(w, w->held[i]);
    }
    for (unsigned i = 0; i < n_shards(w); i++) {
        struct wfile *f = &w->files[i];
        if (f->first && !f->is_running) {
            f->is_running = true;
            started |= 1u << i;
        }
    }
    pthread_mutex_unlock(&w->waiter->lock);
    for (unsigned i = 0; i < n_shards(w); i++) {
        if (started >> i & 1) {
            atomic_fetch_add(&w->refs, 1);
            w->files[i].job.run = run;
            shard_post(w->s, w->body.drive[i], SHARD_WRITES, &w->files[i].job);
        }
    }
    return look(w, err);
}

/* Until no file has work but those that are left. */
static void wait_idle(struct shard_writer *w)
{
    pthread_mutex_lock(&w->waiter->lock);
    for (;;) {
        bool is_busy = false;
        for (unsigned i = 0; i < n_shards(w); i++) {
            is_busy |= w->files[i].is_running && !w->files[i].is_left;
        }
        if (!is_busy) {
            break;
        }
        shard_waiter_wait(w->waiter, time_mono_ns() + LOOK_NS);
        leave_stalled(w);
    }
    pthread_mutex_unlock(&w->waiter->lock);
}

int shard_writer_wait(struct shard_writer *w, struct err *err)
{
    wait_idle(w);
    return look(w, err);
}

void shard_writer_stop(struct shard_writer *w)
{
    if (!w->is_finished) {
        pthread_mutex_lock(&w->waiter->lock);
        for (unsigned i = 0; i < n_shards(w); i++) { /* what is in line is not worth doing */
            struct wfile *f = &w->files[i];
            f->rc = f->is_failed || f->is_left ? f->rc : -ECANCELED;
            f->is_failed = true;
        }
        pthread_mutex_unlock(&w->waiter->lock);
    }
    wait_idle(w);
    uint32_t unwanted = 0;
    for (unsigned i = 0; i < n_shards(w); i++) {
        const struct wfile *f = &w->files[i];
        if (w->mask >> i & 1 && !f->is_left) { /* else its thread may still be at it */
            bool is_unwanted = f->file && (!w->is_finished || f->is_failed);
            unwanted |= (uint32_t)is_unwanted << i;
        }
    }
    if (unwanted) {
        shard_unlink(w->s, &w->body, unwanted, w->is_repair);
    }
    for (unsigned i = 0; i < WSTRIPES_MAX; i++) {
        struct wstripe *st = w->stripes[i];
        w->stripes[i] = NULL;
        pthread_mutex_lock(&w->waiter->lock);
        bool is_free = st && st->n_pending == 0;
        if (st && !is_free) {
            st->is_left = true;
        }
        pthread_mutex_unlock(&w->waiter->lock);
        if (is_free) {
            stripe_free(w->s, st);
        }
    }
}
