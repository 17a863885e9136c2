/* record.h — the records of the log: what one says, as a structure and as bytes.
 * Not here: where records lie (olog.h), what they mean together (ostore.h).
 * Format:   docs/formats/object-log.md, "Head". The same head bytes are the values of the index.
 * Threads:  plain values.
 * Memory:   decoding borrows from the bytes; lists live in the arena.
 * Errors:   -EBADMSG "BadRecord" for bytes that break the format, -ENOTSUP "UnknownRecord" for a
 *           needed field of a type that this program does not know. Never aborts on any bytes. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define OREC_HEAD_MAX  (1u << 20)
#define OREC_BODY_MAX  (256u << 10)
#define OREC_KEY_MAX   1024u
#define OREC_PARTS_MAX 10000u
#define OREC_ID_SIZE   16u

enum orec_kind {
    OREC_NOTHING = 0,
    OREC_PUT = 1,
    OREC_MARKER = 2, /* delete marker */
    OREC_TAGS = 3,   /* tags of a version replaced */
    OREC_GONE = 4,   /* a version is gone for good */
    OREC_RENAME = 5,
    OREC_UPLOAD = 16, /* multipart upload begun */
    OREC_PART = 17,
    OREC_COMPLETE = 18,
    OREC_ABORT = 19,
    OREC_BUCKET = 32,
    OREC_BUCKET_CONF = 33,
    OREC_BUCKET_GONE = 34,
    OREC_FILE_MOVED = 48, /* shards of a body are on other drives now */
};

struct orec_pair { /* metadata, tags */
    struct str name, value;
};
struct orec_pairs {
    struct orec_pair *v;
    size_t n;
};

enum orec_sum_alg { /* part of the format */
                    OSUM_NONE,
                    OSUM_CRC32,
                    OSUM_CRC32C,
                    OSUM_CRC64NVME,
                    OSUM_SHA1,
                    OSUM_SHA256
};
struct orec_sum {
    enum orec_sum_alg alg;
    bool is_composite;
    struct str
        value; /* raw bytes, as long as the algorithm says; composite: without the "-N" */
};

/* Where and how the bytes of one body are stored. */
struct orec_body {
    bool is_set, is_inline, is_sealed;
    uint8_t id[OREC_ID_SIZE]; /* random; names the files of a body that is not inline */
    uint32_t block_size;      /* as stored, trailer included: 16384 */
    uint64_t stored_size;     /* bytes of all blocks with their trailers */
    uint8_t k, m;             /* of the file */
    uint32_t unit;
    uint8_t drive[24];      /* of each of the k + m shards */
    struct str wrapped_key; /* of a sealed body: RFC 3394 under the key 'key_id' */
    uint32_t key_id;
};

struct orec_part { /* of a completed upload: refers to a part's record by its (origin) lsn */
    uint32_t number;
    uint64_t size, lsn;
    struct orec_sum sum;
};

struct orec {
    enum orec_kind kind;
    uint64_t lsn, origin_lsn; /* origin: of the first copy; == lsn when not moved */
    uint64_t time_ns;         /* wall clock: LastModified */
    uint64_t bucket;          /* number */
    struct str key;
    uint8_t version[OREC_ID_SIZE]; /* zeros: the null version */
    uint8_t upload[OREC_ID_SIZE];
    bool is_conf_removed;
    uint32_t part_number;
    uint64_t size;   /* of the object or part, plain */
    struct str etag; /* hex text without quotes: "9b2c...", or "...-N" */
    struct orec_sum sum;
    struct orec_pairs system; /* names in lower case: "content-type", "cache-control", ... */
    struct orec_pairs meta;   /* user metadata, names without "x-amz-meta-" */
    struct orec_pairs tags;
    struct str storage_class;      /* "" = STANDARD */
    struct str account, principal; /* who wrote it */
    struct orec_body body;
    const struct orec_part *parts;
    size_t n_parts;
    struct str bucket_name, region; /* OREC_BUCKET */
    uint16_t conf;                  /* OREC_BUCKET_CONF: enum obucket_conf (ostore.h) */
    struct str conf_bytes;
    struct str new_key;  /* OREC_RENAME */
    uint64_t source_lsn; /* RENAME, FILE_MOVED, TAGS: of what it is about */
    struct str unknown;  /* fields kept as they were, for copying forward */
};

/* Appends the head. -E2BIG when it would pass OREC_HEAD_MAX. */
MUST_CHECK int orec_encode(const struct orec *r, struct buf *out, struct err *err);
/* 'kind' decides which fields must be there. Frame values (lsn, time) are the caller's to set. */
MUST_CHECK int orec_decode(struct arena *a, enum orec_kind kind, struct str head,
                           struct orec *ret, struct err *err);
