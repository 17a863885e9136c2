/* ctl.h — what the manager (spx-viperblock) and a data process (spx-viperblock-data) say to each
 *         other: fixed structs, one per packet of a SOCK_SEQPACKET socket, descriptors beside them.
 * Not here: doing it (viperblock/data_*.c; viperblock/proc.c).
 * Threads:  no state.
 * Memory:   descriptors that ctl_recv() returns are the caller's; those of a message that is
 *           refused are closed by it.
 * Errors:   negative errno, see the calls.
 * Format:   docs/formats/block-ctl.md. Native byte order: both ends are on one machine. The version
 *           moves when a struct changes; a manager knows older data processes (an upgrade leaves
 *           them running).
 * Believed: the data process may have been taken over by a guest. The manager checks each message
 *           (ctl_check()), copies out of shared memory before it looks, and does for a process only
 *           what concerns volumes that it was given. */
#pragma once
#include "base/err.h"
#include "blk/blk_cow.h"
#include "blk/disk.h"
#include <stdint.h>

#define CTL_MAGIC       0x31564253u
#define CTL_VERSION     1u
#define CTL_MAX_DISKS   40u /* of one process: 16 of a guest, and tools */
/* Of BLK_BLOCK bytes, in the memory that the process shares (WELCOME). */
#define CTL_N_SLOTS     16u
#define CTL_TEXT        160u
#define CTL_MAX_FDS     8u
#define CTL_MAX_QUEUES  64u
#define CTL_MAX_SIZE    (UINT64_C(64) << 40) /* of a disk */
#define CTL_MAX_POLL_NS UINT64_C(1000000)

enum ctl_open_flag { /* the first five: a descriptor comes with the message, in this order */
                     CTL_OPEN_MAP = 1,
                     CTL_OPEN_RUN = 2,
                     CTL_OPEN_ASIDE = 4,
                     CTL_OPEN_BASE = 8,
                     CTL_OPEN_BASE_MAP = 16,
                     CTL_OPEN_KEY = 32,
                     CTL_OPEN_BASE_KEY = 64,
                     CTL_OPEN_SOURCE = 128,
                     CTL_OPEN_READ_ONLY = 256,
                     CTL_OPEN_WAIT_WHEN_FULL = 512,
                     CTL_OPEN_ALL = 1023
};
/* rc of FETCHED that is no error. */
enum { CTL_FETCHED_DATA, CTL_FETCHED_ZEROS, CTL_FETCHED_IN_BASE };

enum ctl_op {
    /* manager -> data. Each is answered by RESULT with the same seq, but for FETCHED and STORED.
     * Those of one disk are done in their order; of different disks, in any. */
    CTL_OPEN = 1, /* struct ctl_open + descriptors: data, then those that flags name */
    CTL_CLOSE, /* disk: flush, clean mark, lock given up. -EBUSY while a frontend is connected
                    * and arg == 0; arg 1 = cut it off */
    CTL_SERVE_VU,  /* disk; fd: listening socket; uid, n_queues, serial (VU_SERIAL), poll_ns */
    CTL_SERVE_NBD, /* disk; fd: listening socket; uid; arg 1 = read-only */
    CTL_UNSERVE,   /* disk; arg 0 = vhost-user, 1 = NBD */
    CTL_LIMITS,    /* disk; limits */
    CTL_GROW,      /* disk; arg = size: files are extended, the guest is told */
    CTL_SNAP,      /* n disks at one point in time; arg 1 = full. RESULT.value = ns held */
    CTL_SNAP_READ, /* disk, snap: begin or go on uploading. -ENOENT: no such snapshot */
    CTL_SNAP_END,  /* disk, snap: the manifest is durable. -ENOENT as above */
    CTL_FETCHED,   /* answer to FETCH: disk, block, slot, rc: 0 = the slot holds it, 1 = zeros,
                    * 2 = in the base now, -EIO, -EAGAIN */
    CTL_STORED,    /* answer to UPLOAD: disk, snap, block, slot, rc (0, -EAGAIN) */
    CTL_FILL,      /* disk; arg = bytes per second */
    CTL_STATE,     /* send DISK_STATE of all disks now */
    CTL_GIVE, /* disk: RESULT carries duplicates of its listening sockets (a new manager asks):
                    * value bit 0 = vhost-user, bit 1 = NBD, in this order */
    CTL_QUIT, /* closes everything cleanly and exits */
    CTL_SNAP_ABORT, /* disk, snap: given up, its blocks are dirty again. -ENOENT as above; -EBUSY: a
                     * newer one stands on it */
    CTL_ABSENT,     /* disk: RESULT.value = disk_n_absent() */
    /* data -> manager */
    CTL_WELCOME = 64, /* first, after each connect: pid, version; fd: memfd of CTL_N_SLOTS *
                       * BLK_BLOCK, made for this connection */
    CTL_RESULT,       /* seq, rc, value, text */
    CTL_FETCH,        /* disk, block, slot to put it in; arg 1 = background */
    CTL_UPLOAD,       /* disk, snap, block, slot that holds it */
    CTL_SNAP_DONE,  /* disk, snap: all blocks are stored. Again after each connect, until END */
    CTL_DISK_STATE, /* struct ctl_state; on change, and what only counts once a second */
};

struct ctl_head {
    uint32_t magic;
    uint16_t version, op;
    uint32_t seq, size; /* of the whole message */
    uint32_t disk;      /* number of the disk in the process, chosen by the manager at OPEN */
    uint32_t slot;
    int32_t rc;
    uint32_t arg32;
    uint64_t block, arg;
    char snap[BLK_SNAP_ID];
};

struct ctl_open {
    struct ctl_head h;
    char id[BLK_SNAP_ID];
    uint64_t size;
    uint32_t flags;                /* enum ctl_open_flag */
    uint32_t n_queues;             /* of the guest; those of NBD come on top */
    uint8_t key[64], base_key[64]; /* wiped by both sides after use */
    struct blk_limits limits;
};

struct ctl_serve {
    struct ctl_head h;
    uint32_t uid, n_queues;
    char serial[24];
    uint64_t poll_ns;
};

struct ctl_snap {
    struct ctl_head h;
    uint32_t n, pad;
    struct {
        uint32_t disk, pad;
        char snap[BLK_SNAP_ID];
    } v[CTL_MAX_DISKS];
};

struct ctl_limits {
    struct ctl_head h;
    struct blk_limits limits;
};

struct ctl_result {
    struct ctl_head h;
    uint64_t value;
    char name[48], text[CTL_TEXT]; /* printable, NUL-terminated */
};

struct ctl_welcome {
    struct ctl_head h;
    uint32_t pid, n_disks;
};

struct ctl_state {
    struct ctl_head h;
    char id[BLK_SNAP_ID];
    uint64_t size;
    uint32_t is_faulted, is_vu_connected, n_nbd, n_rings;
    uint64_t n_ring_faults, n_resubmitted;
    struct disk_counters counters;
    struct blk_cow_stats cow;
    struct blk_frozen frozen[BLK_MAX_FROZEN];
};

union ctl_msg {
    struct ctl_head h;
    struct ctl_open open;
    struct ctl_serve serve;
    struct ctl_snap snap;
    struct ctl_limits limits;
    struct ctl_result result;
    struct ctl_welcome welcome;
    struct ctl_state state;
};

/* Sends one message and descriptors; never blocks. The head's magic, version and size are set.
 * -EAGAIN: the socket is full; -EPIPE: the other end is gone. */
MUST_CHECK int ctl_send(int sock, union ctl_msg *m, const int *fds, size_t n_fds);
/* One message; descriptors are given (close-on-exec); never blocks. -EAGAIN, -EPIPE (end),
 * -EPROTO: not what ctl_check() allows. */
MUST_CHECK int ctl_recv(int sock, bool is_from_data, union ctl_msg *ret, int fds[CTL_MAX_FDS],
                        size_t *ret_n_fds);
/* Magic, version, op, exact size, ranges, texts that end, number of descriptors; -EPROTO. */
MUST_CHECK int ctl_check(const union ctl_msg *m, size_t n, size_t n_fds, bool is_from_data);
