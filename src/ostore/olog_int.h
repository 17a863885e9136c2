/* olog_int.h — what the parts of olog.h share: the format's frames, segments, open files.
 * Not here: what other parts of the room see (olog.h).
 * Threads:  'lock' guards the list of segments and the cache of files. What is marked "committer"
 *           belongs to the one thread that appends. 'maker_lock' guards the maker's orders.
 * Memory:   segment files are counted: a drive that hangs in a call keeps its file alive.
 * Errors:   as in olog.h. */
#pragma once
#include "base/vec.h"
#include "ostore/drive_int.h"
#include "ostore/olog.h"

/* --- the format (docs/formats/object-log.md) --- */

#define SEG_HEADER    4096u
#define SEG_MIN       65536u
#define SEG_DEFAULT   (64u << 20)
#define SEG_MAX       (1u << 30)
#define SEG_NAME_SIZE 32u
#define FRAME_SIZE    64u
#define END_SIZE      64u
#define LOG_ID_SIZE   16u
#define REC_MAX       (FRAME_SIZE + OREC_HEAD_MAX + OREC_BODY_MAX)

struct seg_header {
    uint8_t log_id[LOG_ID_SIZE];
    uint64_t segment, first_lsn, prev_end, prev_lsn, epoch, create_ns;
    uint32_t size; /* of the segment while it is written */
};
/* The block that ends a closed segment. */
struct seg_end {
    uint64_t first_lsn, last_lsn; /* last: first - 1 when there is no record */
    uint64_t end;                 /* where it lies itself */
};
struct frame {
    uint16_t kind, group;
    uint8_t flags;
    uint32_t head_size, body_size, head_crc, body_crc;
    uint64_t lsn, synced_lsn, epoch, time_ns;
};

static inline uint32_t pad8(uint32_t n)
{
    return (n + 7u) & ~7u;
}
static inline uint32_t frame_record_size(const struct frame *f)
{
    return FRAME_SIZE + pad8(f->head_size) + pad8(f->body_size);
}
/* What the CRC of each frame of a segment begins with. */
uint32_t seg_base_crc(const uint8_t log_id[LOG_ID_SIZE], uint64_t segment);
void seg_header_encode(const struct seg_header *h, uint8_t out[SEG_HEADER]);
/* -EBADMSG: no header; -ENOTSUP: of a newer program. */
MUST_CHECK int seg_header_decode(const uint8_t p[SEG_HEADER], struct seg_header *ret);
void seg_end_encode(const struct seg_end *e, uint32_t base_crc, uint8_t out[END_SIZE]);
MUST_CHECK int seg_end_decode(const uint8_t p[END_SIZE], uint32_t base_crc, uint64_t off,
                              struct seg_end *ret);
void frame_encode(const struct frame *f, uint32_t base_crc, uint32_t off,
                  uint8_t out[FRAME_SIZE]);
/* -EBADMSG: no frame of this place; -ENOTSUP: one of a newer program. */
MUST_CHECK int frame_decode(const uint8_t p[FRAME_SIZE], uint32_t base_crc, uint32_t off,
                            struct frame *ret);
void seg_name(uint64_t segment, bool is_tmp, char out[SEG_NAME_SIZE]);
/* -EINVAL: another file. */
MUST_CHECK int seg_name_parse(const char *name, uint64_t *ret, bool *ret_is_tmp);

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
    bool is_closed, is_finished, is_removed; /* finished: cut to its end, with its end block */
    struct seg_file *kept[DRIVES_MAX];       /* of a removed one that is pinned */
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
    bool is_sync_off;
    uint8_t log_id[LOG_ID_SIZE];

    pthread_mutex_t lock;
    VEC(struct oseg *) segs; /* by number */
    VEC(struct oseg *) gone; /* removed and pinned */
    struct cache_slot cache[CACHE_SLOTS];

    /* committer */
    struct oseg *cur; /* in segs */
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
/* Waits for all. rc[] is set; jobs stay until io_done(). Drives that failed are faulted, but not full ones.
 * Returns bits of drives that did it. */
uint32_t io_wait(struct olog *l, struct io_set *s);
void io_done(struct io_set *s);
struct batch *batch_new(size_t cap); /* NULL: no memory */
void batch_unref(struct batch *b);

/* --- olog_scan.c --- */

struct scan_copy;
typedef ssize_t (*scan_read_fn)(struct scan_copy *c, void *p, size_t n, uint64_t off);
struct scan_copy {
    unsigned drive;
    scan_read_fn read;
    void *ctx; /* its own */
    struct seg_file *file;
    uint8_t *buf;
    size_t cap, have;
    uint64_t base; /* offset of buf */
};
struct oscan {
    uint64_t segment;
    uint32_t base_crc;
    uint64_t limit; /* nothing behind it is looked at */
    struct scan_copy c[DRIVES_MAX];
    unsigned n, first; /* first: which copy is asked first */
    uint32_t bad;      /* copies (index) that did not have the record asked for last */
    bool is_all;       /* every copy is looked at, not only the first good one */
};
struct scan_range {
    uint64_t first_lsn;     /* of the segment */
    uint64_t end, last_lsn; /* in: of a closed segment; out: where the log ends */
    bool is_closed;
    /* out */
    uint64_t n_records, n_lost, lost_lsn; /* lost_lsn: the first one */
    uint64_t n_repaired;
    uint32_t repaired; /* copies (index) that were written */
};
/* Of one segment; 'drives' are the copies to read. */
MUST_CHECK int scan_open(struct olog *l, uint64_t segment, uint32_t drives, struct oscan *ret);
void scan_done(struct oscan *s);
/* Bytes of one copy, borrowed until the next call for that copy. -ENODATA: behind the end. */
MUST_CHECK int scan_bytes(struct scan_copy *c, uint64_t off, size_t n, const uint8_t **ret);
/* The whole record at 'off' with this lsn, from the first copy that has it. -EBADMSG: none. */
MUST_CHECK int scan_record(struct oscan *s, uint64_t off, uint64_t lsn, struct olog_rec *ret,
                           struct frame *ret_frame);
typedef int (*scan_repair_fn)(void *ctx, struct oscan *s, const struct olog_rec *r,
                              struct err *err);
/* All whole records of complete groups from 'from_lsn' on go to 'fn' (NULL: nobody). Copies that
 * are bad are given to 'repair' (NULL: left). */
MUST_CHECK int scan_walk(struct oscan *s, struct scan_range *io, uint64_t from_lsn, olog_fn fn,
                         scan_repair_fn repair, void *ctx, struct err *err);

/* --- olog_append.c --- */

/* Closes 'cur' (when there is one) and begins the next segment. */
MUST_CHECK int olog_switch(struct olog *l, struct err *err);
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

/* A repair of scan_walk(); ctx is the struct olog. Not synced. */
int olog_repair(struct olog *l, struct oscan *s, const struct olog_rec *r, struct err *err);
