/* olog.h — the record log: segments on several drives, the same bytes at the same place.
 * Not here: what records mean (record.h, ostore.h), which are dead (compact.h).
 * Format:   docs/formats/object-log.md.
 * Threads:  any thread may call anything. Whoever appends should be one (the committer): a sync
 *           is of all that was appended.
 * Memory:   olog_open() gives, olog_close() takes. Bytes are copied.
 * Errors:   -EIO "LogFailed" when no drive of the log is left; -EUCLEAN "LogDamaged": a record
 *           that was promised is gone (which one is said); -ENOSPC; errno of the drives. */
#pragma once
#include "ostore/drive.h"
#include "ostore/record.h"

struct olog;

struct olog_place { /* where a record's frame begins */
    uint64_t segment;
    uint32_t off;
};
/* A record as it lies in the log. 'head' and 'body' are borrowed during a call-back. */
struct olog_rec {
    struct olog_place at;
    uint32_t size; /* of frame, head and body with padding */
    enum orec_kind kind;
    uint8_t flags;
    uint64_t lsn, time_ns;
    struct str head, body;
};
enum { OLOG_MOVED = 1, OLOG_GROUP = 2, OLOG_GROUP_END = 4 }; /* flags */

/* Each whole record in order; only those of complete groups. Negative stops. */
typedef int (*olog_fn)(void *ctx, const struct olog_rec *r, struct err *err);

struct olog_opts {
    struct drives *drives;
    unsigned n_copies;     /* m + 1 */
    uint32_t segment_size; /* 0 = 64 MiB; tests: from 64 KiB */
    bool is_sync_off;      /* measurements only */
    /* An operator said so: what is lost is done without, and the log takes records again. What is
     * damaged stays in olog_damage(): copy forward what is left of those segments, and remove
     * them. */
    bool is_accepting;
};
/* Finds the end as the format says (torn tail, or damage), repairs copies, replays from
 * 'from_lsn' (0 = all) through 'fn', then begins a new segment. With damage the log opens
 * read-only: olog_is_readonly(). */
MUST_CHECK int olog_open(const struct olog_opts *o, uint64_t from_lsn, olog_fn fn, void *ctx,
                         struct olog **ret, struct err *err);
void olog_close(struct olog *l); /* like olog_idle(); NULL is fine */
bool olog_is_readonly(const struct olog *l);
const char *olog_why(const struct olog *l); /* read-only because; "" */
/* What the start has found; the first OLOG_DAMAGE_MAX of it. */
#define OLOG_DAMAGE_MAX 256u
struct olog_damage {
    uint64_t segment; /* 0: of no one segment */
    char what[120];
};
const struct olog_damage *olog_damage(const struct olog *l, size_t *ret_n);
uint64_t olog_next_lsn(const struct olog *l);
uint64_t olog_synced_lsn(const struct olog *l);

struct olog_new { /* to be appended */
    enum orec_kind kind;
    uint8_t flags;
    uint16_t group;
    uint64_t time_ns;
    struct str head;
    const struct iovec *body;
    int n_body; /* pieces of the body as stored */
    struct olog_place ret_at;
    uint64_t ret_lsn;
};
/* Writes (one pwritev per drive for all of them), not durable yet. Either all are written on at
 * least one drive, or none counts. A drive that fails is faulted and the log goes on with the
 * others in a new segment. */
MUST_CHECK int olog_append(struct olog *l, struct olog_new *v, size_t n, struct err *err);
/* fdatasync on all copies at once. After 0 everything appended is durable on every drive that
 * still counts. */
MUST_CHECK int olog_sync(struct olog *l, struct err *err);

/* Both: one way to each drive and back instead of two. */
MUST_CHECK int olog_commit(struct olog *l, struct olog_new *v, size_t n, struct err *err);

/* Bytes of a record's body as stored: 'off' and 'n' within it. 'copy' 0..: which copy to ask;
 * -ENOENT when there is no such copy. With is_nowait: -EAGAIN when the bytes are not in memory. */
MUST_CHECK int olog_read_body(struct olog *l, struct olog_place at, uint32_t head_size,
                              uint32_t off, void *p, size_t n, unsigned copy, bool is_nowait);
/* A whole record, frame and checksums verified, from the first copy that is good (bad ones are
 * repaired). Into the arena. */
MUST_CHECK int olog_read(struct olog *l, struct arena *a, struct olog_place at,
                         struct olog_rec *ret, struct err *err);

/* After a while without appends (committer): a record that says what was synced, once. Without it
 * the last records could go bad on all drives at once and nobody would know. */
MUST_CHECK int olog_idle(struct olog *l, struct err *err);
/* Bytes (of frames, heads and bodies, each padded to 8) that one olog_append() may have: -E2BIG. */
size_t olog_batch_max(const struct olog *l);

/* A segment that is pinned can be read after it was removed, until it is unpinned as often.
 * -ENOENT: there is no such segment (any more). */
MUST_CHECK int olog_pin(struct olog *l, uint64_t segment);
void olog_unpin(struct olog *l, uint64_t segment);

struct olog_segment {
    uint64_t segment, first_lsn, last_lsn; /* last: 0 while it is the one being written */
    uint64_t size;                         /* bytes used */
    uint32_t drives;                       /* bits: who has a copy */
};
/* A copy of the list, oldest first; free(). */
MUST_CHECK int olog_segments(struct olog *l, struct olog_segment **ret, size_t *ret_n);
/* All whole records of one closed segment, in order. */
MUST_CHECK int olog_walk(struct olog *l, uint64_t segment, olog_fn fn, void *ctx,
                         struct err *err);
/* Removes a closed segment from all drives. Readers that have it open go on. */
MUST_CHECK int olog_remove(struct olog *l, uint64_t segment, struct err *err);

/* Verifies all copies of a segment, repairs what one has and another has not, and makes missing
 * copies (a replaced drive). Counts are added. The segment that is being written is left as it is,
 * but for a new one being begun when it has too few copies: so a drive has healed when all
 * segments that olog_segments() gave, that one too, were verified. */
struct olog_verify {
    uint64_t n_records, n_repaired, n_copied, n_lost;
};
MUST_CHECK int olog_verify(struct olog *l, uint64_t segment, struct olog_verify *io,
                           struct err *err);
