/* drive_int.h — what the parts of drive.h share: the table of members, files, lanes.
 * Not here: what other rooms see (drive.h).
 * Threads:  'lock' guards tables and states; 'persist' is held while drive.json is written, and is
 *           taken first.
 * Memory:   belongs to struct drives; descriptors that were replaced live until it is closed.
 * Errors:   as in drive.h. */
#pragma once
#include "base/buf.h"
#include "base/vec.h"
#include "ostore/drive.h"
#include "ostore/lane.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define DRIVE_FILE     "drive.json"
#define DRIVE_TMP_FILE ".tmp-drive.json"
#define DRIVE_FILE_MAX 65536u
#define DRIVE_ID_SIZE  16u

enum member_state { MEMBER_OK, MEMBER_HEALING, MEMBER_FAULTED, MEMBER_AWAY, MEMBER_STATE_N };

struct member {
    uint8_t id[DRIVE_ID_SIZE];
    enum member_state state;
    uint64_t since; /* generation that the state came with */
};
/* drive.json: the same on all drives but for 'place'. */
struct drive_table {
    uint8_t set_id[DRIVE_ID_SIZE];
    uint64_t generation;
    bool is_new; /* the set is being made: nothing is stored yet */
    unsigned place, n;
    struct member v[DRIVES_MAX];
};

struct drive {
    char *path;
    int root;                     /* under 'lock' */
    atomic_int dirs[DRIVE_DIR_N]; /* -1: not there, or not opened yet */
    atomic_int data_dirs[256];    /* -1: not opened yet */
    _Atomic(enum drive_state) state;
    struct lane *lane, *back_lane; /* of calls that somebody waits for, of long ones */
    atomic_uint epoch;             /* how often it was replaced */
    char why[160];
    atomic_uint_fast64_t read_ns;
    uint64_t total, avail, space_ns; /* space_ns: when it was asked; 0: never */
    uint64_t full_until_ns;
};

struct drives {
    struct fault_fs *fs;
    unsigned n, near_full_pct, full_pct;
    uint64_t stall_ns;
    pthread_mutex_t lock, persist;
    struct drive_table table; /* as it shall be; place is not used */
    uint64_t persisted;       /* generation that all writable drives have */
    atomic_bool is_unsettled; /* table.generation is ahead of it */
    struct drive v[DRIVES_MAX];
    VEC(int) old_fds;
    VEC(struct lane *) old_lanes;
};

/* --- drive_file.c --- */

MUST_CHECK int drive_table_encode(const struct drive_table *t, struct buf *out);
/* -EBADMSG "BadDrive", -ENOTSUP "BadDrive" for a newer version. */
MUST_CHECK int drive_table_decode(struct str text, struct drive_table *ret, struct err *err);
/* -ENOENT: there is none. */
MUST_CHECK int drive_table_read(struct fault_fs *fs, int root, struct drive_table *ret,
                                struct err *err);
/* Durable when it returns 0. */
MUST_CHECK int drive_table_write(struct fault_fs *fs, int root, const struct drive_table *t);
/* Nothing of anybody is in the folder. Negative errno when it cannot be read. */
MUST_CHECK int drive_is_empty(int root, bool *ret);

/* What a sync answered: without room too, what it should have written may be gone, so the drive is
 * not merely full. */
static inline int drive_sync_rc(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT ? -EIO : rc;
}

/* --- drive_state.c --- */

/* Writes the table to all writable drives until all of them have its newest generation. Drives that
 * fail are faulted, but not full ones: they keep an older table, and -ENOSPC says so. Not with
 * 'lock' held. */
int drives_persist(struct drives *d);
/* With 'lock' held: the table says it of this drive, from the next generation on. */
void drives_set_member(struct drives *d, unsigned idx, enum member_state state);
/* Makes and opens log/ and data/, durably. 'dirs' has what was opened also on failure (else -1). */
MUST_CHECK int drive_make_dirs(struct fault_fs *fs, int root, int dirs[DRIVE_DIR_N]);
extern const char *const drive_dir_names[DRIVE_DIR_N];
/* The lane of a drive for jobs that may hang; NULL when it has none. Borrowed. */
struct lane *drives_lane(struct drives *d, unsigned idx, bool is_back);
uint64_t drives_stall_ns(const struct drives *d);
unsigned drives_epoch(const struct drives *d, unsigned idx);
