#include "blk/blk_file.h"

#include "base/macro.h"
#include "base/time.h"
#include "blk/blk_file_int.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define BUSY_RETRY_NS NS_PER_MS

/* ---- the life of a request ---- */

static void io_done(struct blk_io *io, int res);

static void prep_whole(struct blk_req *r, struct io_uring_sqe *sqe, int fd)
{
    /* One buffer needs no copy of an iovec by the kernel. */
    if (r->op == BLK_READ) {
        if (r->n_iov == 1) {
            io_uring_prep_read(sqe, fd, r->iov->iov_base, (unsigned)r->len, r->off);
        } else {
            io_uring_prep_readv(sqe, fd, r->iov, (unsigned)r->n_iov, r->off);
        }
    } else if (r->n_iov == 1) {
        io_uring_prep_write(sqe, fd, r->iov->iov_base, (unsigned)r->len, r->off);
    } else {
        io_uring_prep_writev(sqe, fd, r->iov, (unsigned)r->n_iov, r->off);
    }
}

static void prep_part(struct blk_req *r, struct io_uring_sqe *sqe)
{
    struct file_io *s = file_io(r);
    struct file *f = s->f;
    uint64_t at = r->off + s->pos;
    int mode = FALLOC_FL_KEEP_SIZE;
    switch (s->step) {
    case STEP_READ:
        io_uring_prep_read(sqe, f->o.fd, r->buf, s->n, at & ~(uint64_t)(f->off_align - 1));
        break;
    case STEP_WRITE:
        io_uring_prep_write(sqe, f->o.fd, r->buf, s->n, at & ~(uint64_t)(f->off_align - 1));
        break;
    case STEP_PUNCH:
        mode |= r->op == BLK_ZEROES && (r->flags & BLK_NO_UNMAP) ? FALLOC_FL_ZERO_RANGE
                                                                 : FALLOC_FL_PUNCH_HOLE;
        io_uring_prep_fallocate(sqe, f->o.fd, mode, 0, 0); /* types differ between versions */
        sqe->off = at;
        sqe->addr = s->n;
        break;
    default: io_uring_prep_fsync(sqe, f->o.fd, IORING_FSYNC_DATASYNC); break;
    }
}

void file_issue(struct blk_req *r)
{
    struct file_io *s = file_io(r);
    struct io_uring_sqe *sqe = blk_queue_sqe(r->q);
    if (!sqe) {
        blk_queue_starve(r->q, r, file_issue);
        return;
    }
    if (s->step == STEP_WHOLE) {
        prep_whole(r, sqe, s->f->o.fd);
    } else {
        prep_part(r, sqe);
    }
    s->io.fn = io_done;
    io_uring_sqe_set_data(sqe, &s->io);
}

void file_over(struct blk_req *r, int rc)
{
    struct file_io *s = file_io(r);
    if (r->buf) {
        blk_buffer_put(r->q, r->buf);
        r->buf = NULL;
    }
    if (s->is_locked) {
        s->is_locked = false;
        blk_lock_give(&s->f->lock, r->off, r->len, s->is_alone);
    }
    if (rc == 0 && (r->flags & BLK_FUA) && (r->op == BLK_WRITE || r->op == BLK_ZEROES)) {
        file_sync(r);
        return;
    }
    blk_done(r, rc);
}

static void retry(void *ctx)
{
    struct blk_req *r = ctx;
    if (file_has_fault(file_io(r)->f)) {
        file_over(r, -ESTALE);
        return;
    }
    file_issue(r);
}

bool file_is_retried(struct blk_req *r, int res, int *ret_rc)
{
    struct file *f = file_io(r)->f;
    *ret_rc = res == -ENOSPC || res == -EDQUOT ? -ENOSPC : -EIO;
    if (res == -EINTR) {
        file_issue(r);
        return true;
    }
    if (res == -EAGAIN) {
        blk_queue_at(r->q, time_mono_ns() + BUSY_RETRY_NS, retry, r);
        return true;
    }
    if (*ret_rc == -ENOSPC && file_waits_when_full(f)) {
        blk_queue_at(r->q, time_mono_ns() + FILE_FULL_RETRY_NS, retry, r);
        return true;
    }
    return false;
}

static void whole_done(struct blk_req *r, int res)
{
    struct file_io *s = file_io(r);
    if (res == (int)r->len) {
        file_over(r, 0);
        return;
    }
    int rc = -EIO; /* 0: the file is shorter than the volume */
    if (res < 0) {
        if (!file_is_retried(r, res, &rc)) {
            file_over(r, rc);
        }
        return;
    }
    s->pos = (uint64_t)res & ~(uint64_t)(s->f->off_align - 1);
    if (s->pos == 0) {
        file_over(r, rc);
        return;
    }
    file_sub(r); /* the rest */
}

static void io_done(struct blk_io *io, int res)
{
    struct blk_req *r = file_req(io);
    switch (file_io(r)->step) {
    case STEP_WHOLE: whole_done(r, res); break;
    case STEP_SYNC: file_sync_done(r, res); break;
    default: file_sub_done(r, res); break;
    }
}

static bool is_aligned(const struct file *f, const struct blk_req *r)
{
    if (((r->off | r->len) & (f->off_align - 1)) != 0) {
        return false;
    }
    uintptr_t bits = 0;
    for (int i = 0; i < r->n_iov; i++) {
        bits |= (uintptr_t)r->iov[i].iov_base | r->iov[i].iov_len;
    }
    return (bits & (f->mem_align - 1)) == 0;
}

static void begin(struct blk_req *r)
{
    const struct file *f = file_io(r)->f;
    if (r->op <= BLK_WRITE && is_aligned(f, r)) {
        file_issue(r);
        return;
    }
    file_sub(r);
}

static void lock_got(struct blk_msg *m)
{
    struct file_io *s = CONTAINER_OF(m, struct file_io, wait.msg);
    s->is_locked = true;
    begin(file_req(&s->io));
}

static void submit(struct blk_layer *l, struct blk_req *r)
{
    struct file *f = (struct file *)(void *)l;
    if (file_has_fault(f)) {
        blk_done(r, -ESTALE);
        return;
    }
    if (r->op != BLK_READ && f->o.is_read_only) {
        blk_done(r, r->op == BLK_FLUSH ? 0 : -EROFS);
        return;
    }
    if (f->o.fs) {
        file_sim(f, r);
        return;
    }
    struct file_io *s = file_io(r);
    s->f = f;
    s->pos = 0;
    s->step = STEP_WHOLE;
    s->is_locked = false;
    r->buf = NULL;
    if (r->op == BLK_FLUSH) {
        file_sync(r);
        return;
    }
    if (r->op != BLK_READ && f->is_locking) {
        s->is_alone = r->op != BLK_DISCARD && ((r->off | r->len) & (f->off_align - 1)) != 0;
        s->is_locked =
            blk_lock_take(&f->lock, &s->wait, r->q, r->off, r->len, s->is_alone, lock_got);
        if (!s->is_locked) {
            return;
        }
    }
    begin(r);
}

/* ---- faults ---- */

void file_fault(struct file *f, int errnum)
{
    if (!__atomic_exchange_n(&f->is_faulted, true, __ATOMIC_ACQ_REL) && f->o.on_fault) {
        f->o.on_fault(f->o.ctx, errnum);
    }
}

void blk_file_fault(struct blk_layer *l, int errnum)
{
    file_fault((struct file *)(void *)l, errnum);
}

void blk_file_give_up(struct blk_layer *l)
{
    struct file *f = (struct file *)(void *)l;
    __atomic_store_n(&f->o.is_full_waited_for, false, __ATOMIC_RELAXED);
}

bool blk_file_is_faulted(const struct blk_layer *l)
{
    return file_has_fault((const struct file *)(const void *)l);
}

void blk_file_stats(const struct blk_layer *l, struct blk_file_stats *ret)
{
    const struct file *f = (const struct file *)(const void *)l;
    *ret = (struct blk_file_stats){
        .n_flushes = __atomic_load_n(&f->n_flushes, __ATOMIC_RELAXED),
        .n_syncs = __atomic_load_n(&f->n_syncs, __ATOMIC_RELAXED),
        .align = f->off_align,
        .is_direct = f->is_direct,
    };
}

/* ---- making ---- */

static bool reads_with(int fd, size_t align)
{
    char *p = NULL;
    if (posix_memalign((void **)&p, 8192, 8192)) {
        return false;
    }
    /* At an odd multiple of 'align', so that a coarser rule shows. */
    ssize_t n = pread(fd, p + align, align, (off_t)align);
    free(p);
    return n >= 0;
}

/* What O_DIRECT wants here: the kernel says it (6.1), or it is tried out. */
static void find_align(struct file *f)
{
    f->off_align = f->mem_align = 1;
    int flags = fcntl(f->o.fd, F_GETFL);
    /* Reading a disk is nothing to note in its file; only the owner may say so. */
    if (flags >= 0 && fcntl(f->o.fd, F_SETFL, flags | O_NOATIME) == 0) {
        flags |= O_NOATIME;
    }
    if (flags >= 0 && !(flags & O_DIRECT) && fcntl(f->o.fd, F_SETFL, flags | O_DIRECT) < 0) {
        return; /* no such thing here: through the page cache */
    }
    unsigned align = 0, mem = 0;
    struct statx x;
    memset(&x, 0, sizeof(x));
    if (statx(f->o.fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 &&
        (x.stx_mask & STATX_DIOALIGN)) {
        align = x.stx_dio_offset_align;
        mem = x.stx_dio_mem_align;
    } else {
        align = reads_with(f->o.fd, 512) ? 512 : reads_with(f->o.fd, 4096) ? 4096 : 0;
        mem = align;
    }
    if (align == 0 || align > BLK_PAGE || mem > BLK_PAGE || !reads_with(f->o.fd, align)) {
        (void)fcntl(f->o.fd, F_SETFL, flags & ~O_DIRECT);
        return;
    }
    f->is_direct = true;
    f->off_align = MAX(align, 1u);
    f->mem_align = MAX(mem, 1u);
}

static int file_size(int fd, uint64_t *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    off_t n = S_ISBLK(st.st_mode) ? lseek(fd, 0, SEEK_END) : st.st_size;
    if (n < 0) {
        return -errno;
    }
    *ret = (uint64_t)n;
    return 0;
}

static void file_free(struct blk_layer *l)
{
    struct file *f = (struct file *)(void *)l;
    blk_lock_done(&f->lock);
    pthread_mutex_destroy(&f->sync_lock);
    free(f);
}

static const struct blk_ops ops = {.name = "file", .submit = submit, .free = file_free};

int blk_file_new(const struct blk_file_opts *o, struct blk_layer **ret, struct err *err)
{
    uint64_t size = 0;
    int rc = file_size(o->fd, &size);
    if (rc) {
        return fail(err, rc, "StatFailed", "the volume's file: %s", strerror(-rc));
    }
    if (size < o->size && !o->may_be_short) {
        return fail(err, -EINVAL, "FileTooShort",
                    "the volume's file has %llu bytes, the volume %llu",
                    (unsigned long long)size, (unsigned long long)o->size);
    }
    struct file *f = calloc(1, sizeof(*f));
    if (!f) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a volume");
    }
    f->layer = (struct blk_layer){.ops = &ops, .size = o->size};
    f->o = *o;
    f->off_align = f->mem_align = 1;
    if (!o->fs) {
        find_align(f);
        f->off_align = MAX(f->off_align, o->min_align);
        f->mem_align = MAX(f->mem_align, o->min_align);
    }
    f->is_locking = f->off_align > BLK_SECTOR;
    blk_lock_init(&f->lock);
    pthread_mutex_init(&f->sync_lock, NULL);
    f->waiting.tail = &f->waiting.head;
    f->under.tail = &f->under.head;
    *ret = &f->layer;
    return 0;
}

void blk_file_grow(struct blk_layer *l, uint64_t size)
{
    __atomic_store_n(&l->size, size, __ATOMIC_RELEASE);
}
