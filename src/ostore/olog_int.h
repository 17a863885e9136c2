/* olog_int.h — what the parts of olog.h share: segments, open files, calls on lanes.
 * Not here: what other parts of the room see (olog.h); bytes (olog_frame.h); walking (olog_scan.h).
 * Threads:  'lock' guards the list of segments and the cache of files; 'commit_lock' what is marked
 *           "committer"; 'maker_lock' the maker's orders.
 * Memory:   segment files are counted: a drive that hangs in a call keeps its file alive.
 * Errors:   as in olog.h. */
#pragma once
#include "base/vec.h"
#include "ostore/drive_int.h"
#include "ostore/olog_scan.h"

/* --- files --- */

struct seg_file {
    atomic_uint refs;
    int fd;
};
struct seg_file *seg_file_new(int fd) __attribute__((returns_nonnull)); /* takes fd */
struct seg_file *seg_file_ref(struct seg_file *f);
void seg_file_unref(struct seg_file *f); /* NULL is fine */

struct oseg {
    uint64_t number, first_lsn, last_lsn;
    uint64_t end;    /* of the records */
    uint32_t drives; /* bits: who has a copy */
    unsigned pins;
    bool is_closed, is_finished; /* finished: cut to its end, with its end block */
    bool
        is_suspect; /* found so that a copy may not be whole: looked at before it is finished */
    struct seg_file *kept[DRIVES_MAX]; /* of a removed one that is pinned */
};

#define CACHE_SLOTS 128u
struct cache_slot {
    uint64_t segment;
    unsigned drive;
    struct seg_file *f;
};

/* Bytes of an append, shared by the lanes that write them. */
struct batch {
    atomic_uint refs;
    size_t n, cap;
    uint8_t *p;
};

/* A segment that was made ahead on one drive, without its header. */
struct prepared {
    uint64_t number;
    uint32_t drives;
    struct seg_file *files[DRIVES_MAX];
};

struct olog {
    struct drives *drives;
    struct fault_fs *fs;
    unsigned n_copies;
    uint32_t segment_size;
    bool is_sync_off, is_accepting;
    VEC(struct olog_damage) damage; /* of the start */
    uint8_t log_id[LOG_ID_SIZE];

    pthread_mutex_t lock;
    VEC(struct oseg *) segs; /* by number */
    VEC(struct oseg *) gone; /* removed and pinned */
    struct cache_slot cache[CACHE_SLOTS];

    unsigned epochs[DRIVES_MAX]; /* of the drives that 'segs' speaks of */

    pthread_mutex_t commit_lock;
    /* committer */
    unsigned commit_epochs[DRIVES_MAX]; /* of the drives that 'files' lie on */
    struct oseg *cur;                   /* in segs */
    struct seg_file *files[DRIVES_MAX];
    uint32_t copies; /* drives whose copy of 'cur' is whole */
    uint32_t base_crc;
    uint32_t off;
    uint64_t last_lsn; /* of the last record that counts */
    bool is_switch_due, is_next_set, is_next_asked, has_unsynced, has_nothing_last;
    struct seg_header next; /* of the segment that is being made; kept until it is */
    struct batch *batch;
    atomic_uint_fast64_t next_lsn, synced_lsn;
    atomic_bool is_readonly;
    int readonly_code;
    char why[256];

    pthread_mutex_t
        finish_lock; /* one ends segments at a time: nobody syncs what just failed */
    pthread_mutex_t maker_lock;
    pthread_cond_t maker_cond;
    pthread_t maker;
    bool has_maker, is_stopping, is_making;
    uint64_t prepare_number; /* wanted; 0: nothing */
    struct prepared prepared;
    VEC(uint64_t) finish; /* numbers of closed segments */
};

/* --- olog_file.c --- */

/* Under 'lock'. */
struct oseg *olog_find(struct olog *l, uint64_t segment);
/* The file of a copy, from the cache or opened; counted. */
MUST_CHECK int olog_file(struct olog *l, uint64_t segment, unsigned drive,
                         struct seg_file **ret);
void olog_cache_drop(struct olog *l, uint64_t segment, uint32_t drives);
/* A drive that was replaced has none of the copies that the old one had. */
void olog_refresh(struct olog *l);
/* Bits of drives whose epoch is not as in 'seen', which is brought up to date. */
uint32_t olog_replaced(const struct olog *l, unsigned seen[DRIVES_MAX]);
/* Drives for a segment: OK ones first, turning with its number. At most 'n'; not those in
 * 'avoid'. Returns bits. */
uint32_t olog_choose(struct olog *l, uint64_t segment, unsigned n, uint32_t avoid);

enum io_op {
    IO_WRITE,
    IO_COMMIT /* write and sync */,
    IO_SYNC,
    IO_PREPARE,
    IO_BEGIN,
    IO_FINISH,
    IO_OP_N
};
/* A call on one drive, made by its lane. */
struct io_job {
    struct lane_job job;
    enum io_op op;
    struct fault_fs *fs;
    int dir;
    struct seg_file *file; /* BEGIN and PREPARE: made when NULL */
    struct batch *batch;   /* WRITE */
    uint64_t off;          /* WRITE; FINISH: end */
    uint32_t size;         /* PREPARE, BEGIN */
    uint64_t segment;
    bool is_sync_off;
    uint8_t header[SEG_HEADER]; /* BEGIN; FINISH: the end block */
};
struct io_set { /* the same call on several drives */
    struct io_job *v[DRIVES_MAX];
    int rc[DRIVES_MAX];
};
struct io_job *io_job_new(struct olog *l, unsigned drive, enum io_op op)
    __attribute__((returns_nonnull));
/* Posts to the lane ('is_back': the one for work that may take long). */
void io_post(struct olog *l, struct io_set *s, unsigned drive, struct io_job *j, bool is_back);
/* Waits for all. rc[] is set; jobs stay until io_done(). Drives that failed are faulted, but not
 * full ones.
 * Returns bits of drives that did it. */
uint32_t io_wait(struct olog *l, struct io_set *s);
void io_done(struct io_set *s);
struct batch *batch_new(size_t cap); /* NULL: no memory */
void batch_unref(struct batch *b);

/* --- olog_append.c --- */

/* Closes 'cur' (when there is one) and begins the next segment. Under commit_lock. */
MUST_CHECK int olog_switch(struct olog *l, struct err *err);
/* The segment that is written has fewer copies than it could: it is left. */
MUST_CHECK int olog_leave_poor(struct olog *l, struct err *err);
int olog_fail_readonly(struct olog *l, int code, struct err *err, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* --- olog_maker.c --- */

MUST_CHECK int olog_maker_start(struct olog *l);
void olog_maker_stop(struct olog *l);
void olog_maker_prepare(struct olog *l, uint64_t number);
void olog_maker_finish(struct olog *l, uint64_t number);
/* Takes what was made ahead for this number; files of other numbers are dropped. */
void olog_maker_take(struct olog *l, uint64_t number, struct prepared *ret);
/* Ends a closed segment on all its copies: end block, cut, sync. */
MUST_CHECK int olog_finish(struct olog *l, uint64_t number, struct err *err);

/* --- olog_verify.c --- */

/* Makes all copies of a suspect segment whole and ends them. */
MUST_CHECK int olog_settle(struct olog *l, const struct oseg *seg, struct err *err);
/* A repair of scan_walk(); ctx is the struct olog. Not synced. */
int olog_repair(struct olog *l, struct oscan *s, const struct olog_rec *r, struct err *err);
