#include "blk/disk.h"

#include "base/macro.h"
#include "base/time.h"
#include "blk/blk_crypt.h"
#include "blk/blk_file.h"
#include "blk/disk_int.h"
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define LOCK_STEP_NS NS_PER_MS

/* Writes of a process that was killed keep the open file, and so its lock, until the last of them
 * ended: who has the lock has the file for himself. A lock of fcntl() would be gone with the
 * process. */
static int lock_file(int fd, uint64_t lock_ns, struct err *err)
{
    uint64_t end = time_mono_ns() + lock_ns;
    for (;;) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return fail(err, -errno, "LockFailed", "locking the volume's file: %m");
        }
        if (time_mono_ns() >= end) {
            return fail(err, -EBUSY, "VolumeInUse", "another process has the volume open");
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_STEP_NS}, NULL);
    }
}

static void unlock_files(const struct disk_opts *o)
{
    if (o->aside_fd >= 0) {
        (void)flock(o->aside_fd, LOCK_UN);
    }
    (void)flock(o->data_fd, LOCK_UN);
}

/* What blocks were copied aside to is written, too, and used again. */
static int lock_files(const struct disk_opts *o, uint64_t lock_ns, struct err *err)
{
    int rc = lock_file(o->data_fd, lock_ns, err);
    if (rc == 0 && o->aside_fd >= 0) {
        rc = lock_file(o->aside_fd, lock_ns, err);
        if (rc) {
            (void)flock(o->data_fd, LOCK_UN);
        }
    }
    return rc;
}

static int file_size(int fd, uint64_t *ret, struct err *err)
{
    struct stat st;
    off_t n = fstat(fd, &st) < 0    ? -1
              : S_ISBLK(st.st_mode) ? lseek(fd, 0, SEEK_END)
                                    : st.st_size;
    if (n < 0) {
        return fail(err, -errno, "StatFailed", "a file of the volume: %m");
    }
    *ret = (uint64_t)n;
    return 0;
}

/* Longer when it is shorter, durably. */
static int extend(int fd, uint64_t size, struct err *err)
{
    uint64_t now = 0;
    int rc = file_size(fd, &now, err);
    if (rc || now >= size) {
        return rc;
    }
    if (ftruncate(fd, (off_t)size) < 0 || fdatasync(fd) < 0) {
        return fail(err, -errno, "ExtendFailed", "making a file of the volume longer: %m");
    }
    return 0;
}

static void on_fault(void *ctx, int errnum)
{
    struct disk *d = ctx;
    if (d->o.on_fault) {
        d->o.on_fault(d->o.ctx, errnum);
    }
}

/* A map that cannot be written: what the file has is not to be relied on. */
static void on_map_fault(void *ctx, int errnum)
{
    struct disk *d = ctx;
    blk_file_fault(d->file, errnum);
}

/* crypt over file, or the file alone. */
static int open_files(struct disk *d, int fd, uint64_t size, bool is_read_only,
                      const uint8_t *key, struct blk_layer **ret, struct err *err)
{
    struct blk_file_opts fo = {.fd = fd,
                               .size = size,
                               .is_read_only = is_read_only,
                               .is_full_waited_for = d->o.is_full_waited_for,
                               .on_fault = on_fault,
                               .ctx = d};
    struct blk_layer *file = NULL;
    int rc = blk_file_new(&fo, &file, err);
    if (rc == 0) {
        *ret = file;
        rc = key ? blk_crypt_new(file, key, ret, err) : 0;
        if (rc) {
            blk_stack_free(file);
            *ret = NULL;
        }
    }
    return rc;
}

static int open_base(struct disk *d, const struct disk_opts *o, struct blk_layer **ret,
                     struct err *err)
{
    uint64_t size = 0;
    if (o->base_fd < 0) {
        return 0;
    }
    int rc = file_size(o->base_fd, &size, err);
    if (rc == 0 && size % BLK_SECTOR) {
        rc = fail(err, -EINVAL, "BadBase", "the base's size is not a multiple of a sector");
    }
    return rc ? rc
              : open_files(d, o->base_fd, size, true, o->has_base_key ? o->base_key : NULL, ret,
                           err);
}

static int open_cow(struct disk *d, const struct disk_opts *o, struct err *err)
{
    struct blk_cow_opts co = {.map_fd = o->map_fd,
                              .run_fd = o->run_fd,
                              .data_fd = o->data_fd,
                              .aside_fd = o->has_key ? -1 : o->aside_fd,
                              .base_map_fd = o->base_map_fd,
                              .supplier = o->supplier,
                              .n_queues = o->n_queues,
                              .inner = o->inner,
                              .boot_id = o->boot_id,
                              .on_fault = on_map_fault,
                              .fault_ctx = d};
    int rc = open_base(d, o, &co.base, err);
    if (rc == 0 && o->aside_fd >= 0) {
        /* Slots, not the volume's offsets: each frozen set may need a copy of a block. */
        uint64_t size = MIN(BLK_MAX_FROZEN * o->size, (uint64_t)BLK_ASIDE_SLOTS * BLK_BLOCK);
        rc = extend(o->aside_fd, size, err);
        if (rc == 0) {
            rc = open_files(d, o->aside_fd, size, false, o->has_key ? o->key : NULL, &co.aside,
                            err);
        }
    }
    if (rc == 0) {
        rc = blk_cow_new(d->top, &co, &d->cow, err);
    }
    if (rc) {
        blk_stack_free(co.base);
        blk_stack_free(co.aside);
        return rc;
    }
    d->top = d->cow;
    d->aside = co.aside && o->has_key ? co.aside->below : co.aside;
    return 0;
}

static int build(struct disk *d, const struct disk_opts *o, struct err *err)
{
    int rc = open_files(d, o->data_fd, o->size, o->is_read_only, o->has_key ? o->key : NULL,
                        &d->top, err);
    if (rc) {
        return rc;
    }
    d->crypt = o->has_key ? d->top : NULL;
    d->file = o->has_key ? d->top->below : d->top;
    if (o->map_fd >= 0) {
        rc = open_cow(d, o, err);
        if (rc) {
            return rc;
        }
    }
    struct blk_layer *top = NULL;
    rc = blk_throttle_new(d->top, &o->limits, &top, err);
    if (rc == 0) {
        d->top = top;
    } else if (d->cow) {
        int rc2 = blk_cow_close(d->cow, NULL); /* it has messages of its own on the way */
        (void)rc2;
    }
    return rc;
}

int disk_open(const struct disk_opts *o, uint64_t lock_ns, struct disk **ret, struct err *err)
{
    if (o->size == 0 || o->size % BLK_SECTOR) {
        return fail(err, -EINVAL, "BadSize", "a volume's size is a multiple of 512 bytes");
    }
    int rc = lock_files(o, lock_ns, err);
    if (rc) {
        return rc;
    }
    struct disk *d = aligned_alloc(128, (sizeof(*d) + 127) / 128 * 128);
    if (!d) {
        unlock_files(o);
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a volume");
    }
    memset(d, 0, sizeof(*d));
    d->o = *o;
    d->o.boot_id = NULL;
    secret_wipe(d->o.key, sizeof(d->o.key));
    secret_wipe(d->o.base_key, sizeof(d->o.base_key));
    d->size = o->size;
    rc = o->map_fd >= 0 && !o->inner
             ? fail(err, -EINVAL, "NoQueue", "a volume with a map needs its owner's queue")
             : build(d, o, err);
    if (rc) {
        blk_stack_free(d->top);
        unlock_files(o); /* the descriptors stay the caller's */
        free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

static void close_all(const struct disk_opts *o)
{
    const int fds[] = {o->map_fd, o->run_fd, o->base_fd, o->base_map_fd};
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    /* A manager may hold a duplicate: the lock goes now, not with the last descriptor. */
    unlock_files(o);
    if (o->aside_fd >= 0) {
        close(o->aside_fd);
    }
    close(o->data_fd);
}

struct last_flush {
    int rc;
    bool is_done;
};

static void flushed(struct blk_req *r, int rc)
{
    *(struct last_flush *)r->ctx = (struct last_flush){rc, true};
}

/* A flush as a guest would send it: data, then maps. */
static int flush(struct disk *d)
{
    struct blk_queue *q = d->o.inner;
    if (!q) {
        return fdatasync(d->o.data_fd) < 0 ? -errno : 0;
    }
    struct last_flush last = {0};
    struct blk_req r = {
        .op = BLK_FLUSH, .flags = BLK_INNER, .done = flushed, .ctx = &last, .q = q};
    blk_submit(d->top, &r);
    while (!last.is_done) {
        int rc = blk_queue_run(q, UINT64_MAX);
        if (rc < 0) {
            abort(); /* the request is on the stack and in the ring: nothing can be said */
        }
    }
    return last.rc;
}

int disk_close(struct disk *d, struct err *err)
{
    int rc = 0;
    if (disk_is_faulted(d)) {
        rc = fail(err, -ESTALE, "VolumeFaulted", "the volume is faulted: nothing is synced");
    } else if (!d->o.is_read_only) {
        rc = flush(d);
        if (rc) {
            blk_file_fault(d->file, -rc);
            (void)fail(err, rc, "SyncFailed", "syncing the volume: %s", strerror(-rc));
        }
    }
    if (d->cow) {
        int rc2 = blk_cow_close(d->cow, err); /* without a good flush: an unclean stop */
        rc = rc ? rc : rc2;
    }
    blk_stack_free(d->top);
    close_all(&d->o);
    free(d);
    return rc;
}

int disk_n_absent(struct disk *d, uint64_t *ret, struct err *err)
{
    struct blk_cow_stats st = {0};
    if (d->cow) {
        blk_cow_stats(d->cow, &st); /* before the sync, which then covers what was filled */
    }
    *ret = st.n_absent_pages;
    if (disk_is_faulted(d)) {
        return fail(err, -ESTALE, "VolumeFaulted", "the volume is faulted");
    }
    int rc = d->cow && st.n_absent_pages == 0 && !d->o.is_read_only ? flush(d) : 0;
    return rc ? fail(err, rc, "SyncFailed", "syncing the volume: %s", strerror(-rc)) : 0;
}

struct blk_layer *disk_top(struct disk *d)
{
    return d->top;
}

struct blk_layer *disk_cow(struct disk *d)
{
    return d->cow;
}

uint64_t disk_size(const struct disk *d)
{
    return __atomic_load_n(&d->size, __ATOMIC_ACQUIRE);
}

static void set_size(struct blk_layer *l, uint64_t size)
{
    if (l) {
        __atomic_store_n(&l->size, size, __ATOMIC_RELEASE);
    }
}

int disk_grow(struct disk *d, uint64_t size, struct err *err)
{
    if (size % BLK_SECTOR || size < disk_size(d)) {
        return fail(err, -EINVAL, "BadSize", "a volume grows by whole sectors");
    }
    if (d->o.is_read_only || disk_is_faulted(d)) {
        return fail(err, d->o.is_read_only ? -EROFS : -ESTALE, "NotWritable",
                    "the volume cannot be changed");
    }
    int rc = extend(d->o.data_fd, size, err);
    if (rc) {
        return rc;
    }
    /* From the bottom up: no layer says more than the one below has. */
    blk_file_grow(d->file, size);
    set_size(d->crypt, size);
    if (d->cow) {
        rc = blk_map_grow(d->cow, size, err);
        if (rc) {
            return rc;
        }
        set_size(d->cow, size);
    }
    set_size(d->top, size);
    __atomic_store_n(&d->size, size, __ATOMIC_RELEASE);
    d->o.size = size;
    return 0;
}

bool disk_is_faulted(const struct disk *d)
{
    return blk_file_is_faulted(d->file);
}

bool disk_is_read_only(const struct disk *d)
{
    return d->o.is_read_only;
}

bool disk_is_encrypted(const struct disk *d)
{
    return d->o.has_key;
}

int disk_data_fd(const struct disk *d)
{
    return d->o.data_fd;
}

void disk_give_up(struct disk *d)
{
    blk_throttle_give_up(d->top);
    blk_file_give_up(d->file);
    if (d->aside) {
        blk_file_give_up(d->aside);
    }
}

void disk_set_limits(struct disk *d, const struct blk_limits *lim)
{
    blk_throttle_set(d->top, lim);
}
