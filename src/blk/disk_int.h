/* disk_int.h — the insides of a disk; inside disk*.c only.
 * Not here: the contract (disk.h).
 * Threads:  as disk.h.
 * Memory:   the disk owns its layers and descriptors.
 * Errors:   none. */
#pragma once
#include "blk/disk.h"

struct disk_lane {
    struct disk_counters c;
} __attribute__((aligned(128))); /* two lines: the next one is fetched, too */

struct disk {
    struct disk_opts o; /* without the keys */
    struct blk_layer *file, *crypt, *cow, *top;
    struct blk_layer *aside; /* the file of it, or NULL */
    uint64_t size;
    struct disk_lane lanes[DISK_N_LANES];
};
