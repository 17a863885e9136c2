/* index.h — what is in the index: its keys, and values that say where a record lies and hold
 * its head.
 * Not here: RocksDB (oindex.h), changes of the index by records (index_tx.h).
 * Format:   docs/formats/object-index.md.
 * Threads:  plain values.
 * Memory:   keys live in their struct; decoded values borrow from the bytes.
 * Errors:   -EBADMSG "IndexDamaged" for bytes that are no value. */
#pragma once
#include "ostore/olog.h"
#include "ostore/record.h"

/* Kinds of keys: the first byte. */
enum {
    IX_STATE = 'A',     /* one key: position in the log, totals */
    IX_BUCKET = 'B',    /* number */
    IX_CONF = 'C',      /* number, which */
    IX_COUNTS = 'K',    /* number: objects and bytes of a bucket */
    IX_LIVE = 'L',      /* segment: bytes of live records in it */
    IX_OLD = 'N',       /* bucket, key, inverted origin lsn: a version that is not the latest */
    IX_OBJECT = 'O',    /* bucket, key: the latest version */
    IX_PART = 'P',      /* upload id, part number */
    IX_UPLOAD = 'U',    /* bucket, key, order, upload id */
    IX_COMPLETED = 'W', /* upload id: which version it became */
};

#define IKEY_MAX (1 + 8 + 2 * OREC_KEY_MAX + 2 + 8 + OREC_ID_SIZE + 8)
struct ikey {
    size_t n;
    char p[IKEY_MAX];
};
static inline struct str ikey_str(const struct ikey *k)
{
    return str_n(k->p, k->n);
}

void ikey_state(struct ikey *k);
void ikey_number(struct ikey *k, char kind, uint64_t number); /* BUCKET, COUNTS, LIVE */
void ikey_conf(struct ikey *k, uint64_t bucket, uint16_t which);
void ikey_object(struct ikey *k, uint64_t bucket, struct str key);
/* What the keys of all old versions (uploads) of one key begin with. */
void ikey_of(struct ikey *k, char kind, uint64_t bucket, struct str key);
void ikey_old(struct ikey *k, uint64_t bucket, struct str key, uint64_t origin);
void ikey_upload(struct ikey *k, uint64_t bucket, struct str key, const uint8_t id[16]);
void ikey_part(struct ikey *k, const uint8_t upload[16], uint32_t number);
void ikey_parts(struct ikey *k, const uint8_t upload[16]); /* what they begin with */
void ikey_completed(struct ikey *k, const uint8_t upload[16]);
/* Escaped key with 'kind' and bucket in front, without the end mark: keys that begin with
 * 'prefix'. */
void ikey_prefix(struct ikey *k, char kind, uint64_t bucket, struct str prefix);
/* The first key behind all that begin with this one; false when there is none (all 0xff). */
bool ikey_after(struct ikey *k);

/* The key of the object in an IX_OBJECT key (borrowed). */
struct str ikey_object_key(struct str k);
/* Undoes the escapes of an IX_OLD or IX_UPLOAD key into 'buf' of OREC_KEY_MAX bytes; *ret_rest:
 * what follows the key. -EBADMSG. */
MUST_CHECK int ikey_unescape(struct str k, char *buf, struct str *ret_key,
                             struct str *ret_rest);
uint64_t ikey_be64(const char *p);

/* Ids of versions and uploads carry the lsn that they were made with, mixed with random bytes. */
void index_make_id(uint64_t lsn, uint8_t ret[16]);
uint64_t index_id_lsn(const uint8_t id[16]);
bool index_is_null(const uint8_t version[16]); /* zeros */

/* A value: which record, where it is, and its head. */
struct ival {
    enum orec_kind kind;
    uint32_t off, size; /* frame in its segment; of frame, head and body */
    uint64_t segment, lsn, origin, time_ns;
    uint64_t since;       /* the oldest record that a tombstone of it must cover */
    uint64_t null_origin; /* IX_OBJECT: of the null version when that is an old one, else 0 */
    struct str head;
};
#define IVAL_HEAD 64u
void ival_encode(const struct ival *v, char out[IVAL_HEAD]);
MUST_CHECK int ival_decode(struct str value, struct ival *ret, struct err *err);
/* The record of a value, with lsn, origin and time set. Borrows from the value. */
MUST_CHECK int ival_rec(const struct ival *v, struct arena *a, struct orec *ret,
                        struct err *err);

/* Members of a head that the index itself needs, without decoding all of it. */
struct ipeek {
    uint64_t bucket, origin, size, source, stored_size;
    struct str key, new_key, etag;
    const uint8_t *version, *upload; /* zeros when absent */
    uint32_t part_number;
    uint16_t conf;
    bool is_file;
};
MUST_CHECK int index_peek(struct str head, struct ipeek *ret);

/* Where upload ids of completed uploads lead. */
struct icompleted {
    uint64_t origin, bucket;
    uint8_t version[16];
    struct str key;
};
#define ICOMPLETED_HEAD 32u
void icompleted_encode(const struct icompleted *c, char out[ICOMPLETED_HEAD]);
MUST_CHECK int icompleted_decode(struct str value, struct icompleted *ret);

/* The state key. */
struct istate {
    uint64_t lsn; /* all records up to here are applied */
    int64_t n_versions, n_uploads, n_bytes, file_bytes, n_objects;
    uint8_t set_id[16]; /* of the drives: an index of others is none */
    bool is_rebuilding; /* a replay of everything did not end: begin anew */
};
#define ISTATE_SIZE 80u
void istate_encode(const struct istate *s, char out[ISTATE_SIZE]);
MUST_CHECK int istate_decode(struct str value, struct istate *ret);
