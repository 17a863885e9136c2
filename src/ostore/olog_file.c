#include "ostore/olog_int.h"

#include "base/time.h"
#include <errno.h>
#include <fcntl.h>

/* --- counted files --- */

struct seg_file *seg_file_new(int fd)
{
    struct seg_file *f = malloc(sizeof(*f));
    if (!f) {
        abort();
    }
    atomic_init(&f->refs, 1);
    f->fd = fd;
    return f;
}

struct seg_file *seg_file_ref(struct seg_file *f)
{
    atomic_fetch_add(&f->refs, 1);
    return f;
}

void seg_file_unref(struct seg_file *f)
{
    if (f && atomic_fetch_sub(&f->refs, 1) == 1) {
        if (f->fd >= 0) {
            close(f->fd);
        }
        free(f);
    }
}

static size_t slot_of(uint64_t segment, unsigned drive)
{
    return (size_t)((segment * 7 + drive) % CACHE_SLOTS);
}

struct oseg *olog_find(struct olog *l, uint64_t segment)
{
    size_t lo = 0, hi = l->segs.n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (l->segs.v[mid]->number < segment) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < l->segs.n && l->segs.v[lo]->number == segment ? l->segs.v[lo] : NULL;
}

int olog_file(struct olog *l, uint64_t segment, unsigned drive, struct seg_file **ret)
{
    struct cache_slot *slot = &l->cache[slot_of(segment, drive)];
    pthread_mutex_lock(&l->lock);
    bool is_there = slot->f && slot->segment == segment && slot->drive == drive;
    struct seg_file *f = is_there ? seg_file_ref(slot->f) : NULL;
    pthread_mutex_unlock(&l->lock);
    if (f) {
        *ret = f;
        return 0;
    }
    char name[SEG_NAME_SIZE];
    seg_name(segment, false, name);
    int dir = drives_dir(l->drives, drive, DRIVE_LOG);
    int fd = dir < 0 ? -ENODEV : fault_open(l->fs, dir, name, O_RDWR, 0);
    if (fd < 0) {
        return fd;
    }
    f = seg_file_new(fd);
    pthread_mutex_lock(&l->lock);
    struct seg_file *old = slot->f;
    *slot = (struct cache_slot){segment, drive, seg_file_ref(f)};
    pthread_mutex_unlock(&l->lock);
    seg_file_unref(old);
    *ret = f;
    return 0;
}

void olog_cache_drop(struct olog *l, uint64_t segment, uint32_t drives)
{
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        struct cache_slot *slot = &l->cache[slot_of(segment, i)];
        pthread_mutex_lock(&l->lock);
        bool is_hit = slot->f && slot->segment == segment && slot->drive == i;
        struct seg_file *f = is_hit && (drives & 1u << i) ? steal(&slot->f) : NULL;
        pthread_mutex_unlock(&l->lock);
        seg_file_unref(f);
    }
}

uint32_t olog_replaced(const struct olog *l, unsigned seen[DRIVES_MAX])
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < drives_n(l->drives); i++) {
        unsigned now = drives_epoch(l->drives, i);
        bits |= now != seen[i] ? 1u << i : 0;
        seen[i] = now;
    }
    return bits;
}

void olog_refresh(struct olog *l)
{
    struct seg_file *old[CACHE_SLOTS];
    size_t n = 0;
    pthread_mutex_lock(&l->lock);
    uint32_t bits = olog_replaced(l, l->epochs);
    for (size_t i = 0; i < l->segs.n && bits; i++) {
        l->segs.v[i]->drives &= ~bits;
    }
    for (size_t i = 0; i < CACHE_SLOTS && bits; i++) {
        if (l->cache[i].f && (bits & 1u << l->cache[i].drive)) {
            old[n++] = steal(&l->cache[i].f);
        }
    }
    pthread_mutex_unlock(&l->lock);
    while (n > 0) {
        seg_file_unref(old[--n]);
    }
}

uint32_t olog_choose(struct olog *l, uint64_t segment, unsigned n, uint32_t avoid)
{
    uint32_t chosen = 0, may = drives_writable(l->drives) & ~avoid;
    unsigned n_drives = drives_n(l->drives), n_chosen = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned k = 0; k < n_drives && n_chosen < n; k++) {
            unsigned i = (unsigned)((segment + k) % n_drives);
            bool is_ok = drives_state(l->drives, i) == DRIVE_OK;
            if ((may & 1u << i) && !(chosen & 1u << i) && (is_ok || turn == 1)) {
                chosen |= 1u << i;
                n_chosen++;
            }
        }
    }
    return chosen;
}

/* --- batches --- */

struct batch *batch_new(size_t cap)
{
    struct batch *b = calloc(1, sizeof(*b));
    uint8_t *p = b ? malloc(cap) : NULL;
    if (!p) {
        free(b);
        return NULL;
    }
    atomic_init(&b->refs, 1);
    b->cap = cap;
    b->p = p;
    return b;
}

void batch_unref(struct batch *b)
{
    if (b && atomic_fetch_sub(&b->refs, 1) == 1) {
        free(b->p);
        free(b);
    }
}

/* --- calls on lanes --- */

static int do_sync(const struct io_job *j)
{
    return j->is_sync_off ? 0 : drive_sync_rc(fault_fdatasync(j->fs, j->file->fd));
}

/* Space that is written, not only reserved: a sync of bytes in it changes no metadata. */
static int fill(const struct io_job *j)
{
    static const uint8_t zeros[1u << 20];
    int rc = fault_allocate(j->fs, j->file->fd, 0, j->size, true);
    if (rc == -EOPNOTSUPP) {
        rc = 0;
    }
    for (uint64_t off = 0; off < j->size && rc == 0; off += sizeof(zeros)) {
        rc = fault_pwrite(j->fs, j->file->fd, zeros, MIN(sizeof(zeros), j->size - off), off);
    }
    return rc == 0 ? do_sync(j) : rc;
}

static int prepare(struct io_job *j)
{
    char tmp[SEG_NAME_SIZE];
    seg_name(j->segment, true, tmp);
    int fd = fault_open(j->fs, j->dir, tmp, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return fd;
    }
    j->file = seg_file_new(fd);
    int rc = fill(j);
    if (rc < 0) { /* its space is given back */
        (void)!fault_unlink(j->fs, j->dir, tmp);
    }
    return rc;
}

static int begin(struct io_job *j)
{
    char name[SEG_NAME_SIZE], tmp[SEG_NAME_SIZE];
    seg_name(j->segment, false, name);
    seg_name(j->segment, true, tmp);
    int rc = j->file ? 0 : prepare(j);
    rc = rc == 0 ? fault_pwrite(j->fs, j->file->fd, j->header, SEG_HEADER, 0) : rc;
    rc = rc == 0 ? do_sync(j) : rc;
    rc = rc == 0 ? fault_rename(j->fs, j->dir, tmp, name) : rc;
    return rc == 0 ? drive_sync_rc(fault_sync_dir(j->fs, j->dir)) : rc;
}

static int finish(const struct io_job *j)
{
    int rc = fault_pwrite(j->fs, j->file->fd, j->header, END_SIZE, j->off);
    rc = rc == 0 ? fault_truncate(j->fs, j->file->fd, j->off + END_SIZE) : rc;
    return rc == 0 ? do_sync(j) : rc;
}

static int io_run(struct lane_job *job)
{
    struct io_job *j = CONTAINER_OF(job, struct io_job, job);
    int rc;
    switch (j->op) {
    case IO_COMMIT:
        rc = fault_pwrite(j->fs, j->file->fd, j->batch->p, j->batch->n, j->off);
        return rc == 0 ? do_sync(j) : rc;
    case IO_WRITE: return fault_pwrite(j->fs, j->file->fd, j->batch->p, j->batch->n, j->off);
    case IO_SYNC: return do_sync(j);
    case IO_PREPARE: return prepare(j);
    case IO_BEGIN: return begin(j);
    default: return finish(j);
    }
}

static void io_free(struct lane_job *job)
{
    struct io_job *j = CONTAINER_OF(job, struct io_job, job);
    seg_file_unref(j->file);
    batch_unref(j->batch);
    free(j);
}

struct io_job *io_job_new(struct olog *l, unsigned drive, enum io_op op)
{
    struct io_job *j = malloc(sizeof(*j));
    if (!j) {
        abort();
    }
    memset(j, 0, offsetof(struct io_job, header));
    lane_job_init(&j->job, io_run, io_free);
    j->op = op;
    j->fs = l->fs;
    j->dir = drives_dir(l->drives, drive, DRIVE_LOG);
    j->is_sync_off = l->is_sync_off;
    return j;
}

void io_post(struct olog *l, struct io_set *s, unsigned drive, struct io_job *j, bool is_back)
{
    struct lane *lane = drives_lane(l->drives, drive, is_back);
    s->v[drive] = j;
    s->rc[drive] = 0;
    if (lane) {
        lane_post(lane, &j->job);
    } else {
        s->rc[drive] = -ENODEV;
    }
}

uint32_t io_wait(struct olog *l, struct io_set *s)
{
    static const char *const what[IO_OP_N] = {
        [IO_WRITE] = "writing the log",         [IO_COMMIT] = "writing and syncing the log",
        [IO_SYNC] = "syncing the log",          [IO_PREPARE] = "making a log segment",
        [IO_BEGIN] = "beginning a log segment", [IO_FINISH] = "ending a log segment"};
    uint32_t good = 0;
    uint64_t deadline = time_mono_ns() + drives_stall_ns(l->drives);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (s->v[i] && s->rc[i] == 0) {
            s->rc[i] = lane_wait(&s->v[i]->job, deadline);
        }
    }
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (s->v[i] && s->rc[i] == 0) {
            good |= 1u << i;
        } else if (s->v[i]) {
            drives_fault(l->drives, i, s->rc[i], what[s->v[i]->op]);
        }
    }
    return good;
}

void io_done(struct io_set *s)
{
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (s->v[i]) {
            lane_job_unref(&s->v[i]->job);
            s->v[i] = NULL;
        }
    }
}
