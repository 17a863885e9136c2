/* disk.h — one volume as the data process has it open: the stack, its health, its counters.
 * Not here: who may have it (ctl.h, viperblock/), rings (vu.h), NBD (nbd.h).
 * Threads:  one owner thread (of this disk), but for what says otherwise; disk_top() and counters
 *           are for all. No state outside of the disk.
 * Memory:   disk_open() gives; it owns the descriptors given to it.
 * Errors:   -EBUSY "VolumeInUse" when the lock was not got in time; as the layers. */
#pragma once
#include "blk/blk_cow.h"
#include "blk/blk_throttle.h"
#include "crypto/secret.h"

struct disk;

struct disk_opts {
    char id[BLK_SNAP_ID];
    uint64_t size;
    int data_fd, map_fd, run_fd, aside_fd, base_fd,
        base_map_fd; /* -1 = none; map_fd -1: no cow layer */
    bool has_key, has_base_key, is_read_only, is_full_waited_for;
    uint8_t key[64], base_key[64];
    struct blk_limits limits;
    struct blk_supplier supplier;
    unsigned n_queues;
    /* The owner thread's queue, run as long as the disk is open; needed when there is a map. It
     * must not be inside one of its call-backs when disk_close() is called. */
    struct blk_queue *inner;
    const char *boot_id; /* as in struct blk_cow_opts; borrowed until disk_open() returns */
    void (*on_fault)(void *ctx, int errnum);
    void *ctx;
};

/* flock(LOCK_EX) on data_fd, the very descriptor used for I/O, and on aside_fd, BEFORE anything is
 * read or replayed: writes of a killed process keep it until they end (seen: up to 0.2 s; waits at
 * most lock_ns). On failure the descriptors stay the caller's. */
MUST_CHECK int disk_open(const struct disk_opts *o, uint64_t lock_ns, struct disk **ret,
                         struct err *err);
MUST_CHECK int disk_close(struct disk *d,
                          struct err *err); /* flushes, clean mark; nothing under way */
struct blk_layer *disk_top(struct disk *d);
struct blk_layer *disk_cow(struct disk *d); /* NULL without a map */
uint64_t disk_size(const struct disk *d);
/* How many pages need the source, also after a power cut. With 0, everything else was synced before
 * it was said: the source may go. Nothing under way in the caller, as for disk_close(). */
MUST_CHECK int disk_n_absent(struct disk *d, uint64_t *ret, struct err *err);
MUST_CHECK int disk_grow(struct disk *d, uint64_t size,
                         struct err *err); /* extends files, layers */
bool disk_is_faulted(const struct disk *d);
bool disk_is_read_only(const struct disk *d);
bool disk_is_encrypted(const struct disk *d);
int disk_data_fd(const struct disk *d); /* borrowed; for SEEK_DATA of plain files */
/* Any thread: what waits for space (is_full_waited_for) gets -ENOSPC within a second, and so does
 * all that comes; what waits for a limit goes on: a disk that has to be closed is held up neither
 * by a full file system nor by what it may do in a second. */
void disk_give_up(struct disk *d);
void disk_set_limits(struct disk *d, const struct blk_limits *lim); /* any thread */

/* Counters; front ends call disk_count() when a request is over. 'queue' is any number; those that
 * are different modulo DISK_N_LANES do not disturb each other. Latency buckets: powers of two of
 * microseconds, 0 = below 1 us ... 23 = 4 s and more. */
#define DISK_N_LATENCY 24u
#define DISK_N_LANES   32u
struct disk_counters {
    uint64_t n_ops[BLK_OP_N], bytes[BLK_OP_N], errors[BLK_OP_N];
    uint64_t latency[BLK_OP_N][DISK_N_LATENCY];
    uint64_t in_flight;
};
void disk_count_start(struct disk *d, unsigned queue);
void disk_count(struct disk *d, unsigned queue, enum blk_op op, uint64_t bytes, uint64_t ns,
                int rc);
void disk_counters(const struct disk *d, struct disk_counters *ret);
