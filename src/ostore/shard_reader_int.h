/* shard_reader_int.h — a reader of shards: stripes without keys (shard_stripe.c), plain bytes
 *                      of blocks (shard_reader.c). Inside the room only.
 * Not here: the door (shard.h).
 * Threads:  the owner's thread; fetches run on threads of the drives and own what they use.
 * Memory:   a window of at most READ_WINDOW stored bytes and one stripe.
 * Errors:   negative errno. */
#pragma once
#include "ostore/shard_int.h"

#define READ_WINDOW (1u << 20)
_Static_assert(READ_WINDOW % BODY_BLOCK == 0, "windows hold whole blocks");

struct rfile {
    struct shard_file *file; /* NULL: not opened yet */
    uint32_t *table;         /* NULL: not read, or bad */
    bool is_missing;         /* no drive, no file, or it cannot be read: not asked again */
    bool is_last_choice;     /* asked after the others, though it may be well */
};

struct shard_reader {
    struct shards *s;
    const struct orec_body *body;
    struct body_codec *codec; /* NULL: stripes only */
    struct layout l;
    struct rs *rs;
    struct shard_waiter *waiter;
    struct rfile files[RS_UNITS_MAX];
    uint32_t reported; /* shards that on_bad() was told of */
    /* stored bytes from a block's begin */
    struct shard_buf *win; /* READ_WINDOW bytes */
    size_t win_n;
    uint64_t win_off;
    size_t ahead;  /* next window when reading goes on in order */
    uint64_t next; /* plain offset where it would */
    /* the stripe that was made last */
    struct shard_buf *stripe;
    uint64_t stripe_idx; /* UINT64_MAX: none */
    /* the block that was opened last, when it was not wanted whole */
    uint8_t *block;
    uint64_t block_idx; /* UINT64_MAX: none */
};

/* Is the shard's drive readable, and the file not known to be gone? */
bool shard_is_there(const struct shard_reader *r, unsigned shard);
/* Its drive was slow a moment ago, for whichever reader: one that hangs is asked once in a
 * while only. */
bool shard_is_slow(const struct shard_reader *r, unsigned shard);
void shard_note_slow(struct shard_reader *r, unsigned shard);
/* A shard is not as it should be: on_bad() once, when its drive is there. */
void shard_report(struct shard_reader *r, unsigned shard);
/* Opens without waiting for a drive; false: a fetch has to. */
bool shard_open_now(struct shard_reader *r, unsigned shard);
/* After a fetch is done: keeps the open file and table, notes how long it took, marks and
 * reports what is missing. Returns f->rc. */
int shard_adopt(struct shard_reader *r, struct shard_fetch *f);
/* When should others be asked, when is the drive faulted. With the waiter's lock held; the
 * drive is to be faulted by the caller, without it. */
enum shard_patience { SHARD_WAIT, SHARD_ASK_OTHERS, SHARD_GIVE_UP };
enum shard_patience shard_patience(const struct shard_reader *r, const struct shard_fetch *f,
                                   uint64_t now_ns, uint64_t *io_until_ns);
