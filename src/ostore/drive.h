/* drive.h — the drives that a store lies on: who they are, how they are, how full.
 * Not here: what is written to them (olog.h, shard.h), putting lost parts back (heal.h).
 * Threads:  a struct drives may be used from any thread. States are one-way but by
 *           drives_replace(): a drive that failed is not trusted again by itself.
 * Memory:   drives_open() gives, drives_close() takes; folder descriptors belong to the drives.
 * Errors:   "DriveMissing", "ForeignDrive", "BadDrive", "TooFewDrives" and errno of the system.
 *
 * A drive is a folder (best: the root of a file system of its own) with drive.json in it, which
 * says the set and the place in it (docs/formats/object-drive.md). An empty folder in an
 * existing set is NOT taken: a file system that is not mounted looks just so. It is "missing"
 * until an operator says "replace". */
#pragma once
#include "base/err.h"
#include "base/fault.h"
#include <stdbool.h>
#include <stdint.h>

#define DRIVES_MAX 24

enum drive_state {
    DRIVE_OK,
    DRIVE_HEALING, /* new or replaced: is written, and read where it has what is asked for */
    DRIVE_MISSING, /* no drive there */
    DRIVE_FAULTED, /* a write or a sync failed, or it does not answer: neither read nor written */
};
enum drive_dir { DRIVE_ROOT, DRIVE_LOG, DRIVE_DATA, DRIVE_INDEX, DRIVE_DIR_N };

struct drives;
struct drives_opts {
    struct fault_fs *fs; /* NULL: the system's */
    const char *const *paths;
    unsigned n;
    /* Of each file system; 0 = 90, 95. One with 32 GiB left is not nearly full, one with 8 GiB
     * not full. */
    unsigned near_full_pct, full_pct;
    uint64_t stall_ns; /* 0 = 30 s: a call that takes longer faults the drive */
};

/* All folders empty: a new set is made. Otherwise every drive that is there must be of one set
 * and at its place. -ENOTUNIQ "ForeignDrive"; a missing one is no error. */
MUST_CHECK int drives_open(const struct drives_opts *o, struct drives **ret, struct err *err);
void drives_close(struct drives *d); /* NULL is fine */
unsigned drives_n(const struct drives *d);
struct fault_fs *drives_fs(const struct drives *d);
const uint8_t *drives_set_id(const struct drives *d); /* 16 bytes */
const char *drives_path(const struct drives *d, unsigned idx);

enum drive_state drives_state(const struct drives *d, unsigned idx);
/* Bits of drives that may be written (OK or HEALING), and read. */
uint32_t drives_writable(const struct drives *d);
uint32_t drives_readable(const struct drives *d);
/* Folder descriptor, borrowed; -1 when the drive is missing. DRIVE_INDEX: of any one drive. */
int drives_dir(const struct drives *d, unsigned idx, enum drive_dir which);
/* The folder data/<2 hex> of a file id's first byte, made at the first use; borrowed. */
MUST_CHECK int drives_data_dir(struct drives *d, unsigned idx, uint8_t first);
/* All of those ahead, with one sync: no write has to make its own. What fails is left to the
 * write that needs it. Blocks. */
MUST_CHECK int drives_make_folders(struct drives *d, unsigned idx);

/* A call on this drive failed: it is not written any more. Logged once. -ENOSPC and -EDQUOT do
 * not fault it: see drives_space(). */
void drives_fault(struct drives *d, unsigned idx, int rc, const char *what);
/* How long a read took: for hedging. drives_slow_ns(): after how long a read of this drive
 * should be asked of others too (a multiple of what is usual for it, 20 ms to 2 s). */
void drives_note_read(struct drives *d, unsigned idx, uint64_t ns);
uint64_t drives_slow_ns(const struct drives *d, unsigned idx);

/* The worst of the writable drives that a new body would need: OK, NEAR_FULL (refuse what would
 * grow the store: "SlowDown"), FULL (-ENOSPC, 507). Cached for a second; drives_note_full():
 * a write just met -ENOSPC. Comes back by itself when space does. */
enum drives_space { SPACE_OK, SPACE_NEAR_FULL, SPACE_FULL };
enum drives_space drives_space(struct drives *d);
void drives_note_full(struct drives *d, unsigned idx);

struct drive_facts {
    enum drive_state state;
    const char *path;
    uint8_t id[16];
    uint64_t total, avail; /* bytes */
    char why[160];         /* what failed */
    uint64_t read_ns;      /* usual time of a read */
};
void drives_facts(struct drives *d, unsigned idx, struct drive_facts *ret);

/* Takes the (empty) folder at this place as a new drive in state HEALING; -ENOTEMPTY, -EBUSY when
 * the old one is well. drives_healed(): everything is on it: OK. Both are durable. */
MUST_CHECK int drives_replace(struct drives *d, unsigned idx, struct err *err);
MUST_CHECK int drives_healed(struct drives *d, unsigned idx, struct err *err);
