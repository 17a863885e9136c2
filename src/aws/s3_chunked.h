/* s3_chunked.h — the aws-chunked coding: payload runs out, signatures and sizes checked.
 * Not here: the checksum that a trailer names (s3_sum.h), HTTP's own chunked coding (net/).
 * Contract: payload of a signed chunk is given out before its signature, which comes first but
 *           covers the hash of the whole chunk, can be checked. So nothing that came out may be
 *           committed before s3_chunked_end() returned 0; any failure before is final, and the
 *           object must not come to be.
 * Threads:  belongs to one thread at a time.
 * Memory:   s3_chunked_init()/s3_chunked_done() (wipes the key); runs are slices of the input.
 * Errors:   "SignatureDoesNotMatch", "IncompleteBody", "InvalidChunkSizeError",
 *           "MalformedTrailerError". After an error every call gives it again. */
#pragma once
#include "aws/s3_auth.h"
#include "crypto/digest.h"

enum {
    S3_CHUNK_LINE_MAX = 512,     /* "<size>;chunk-signature=<64>", one trailer */
    S3_CHUNK_MIN = 8192,         /* of all chunks but the last one with data */
    S3_CHUNK_TRAILER_MAX = 1024, /* all trailers together */
};
#define S3_CHUNK_MAX \
    (UINT64_C(5) << 30) /* one chunk may be a whole body (some clients do so) */

struct s3_chunked {
    /* private */
    enum s3_payload kind;
    int state;
    int fail_code;
    const char *fail_name, *fail_msg;
    uint64_t total, expected; /* payload bytes promised so far; x-amz-decoded-content-length */
    uint64_t left;            /* of the chunk */
    bool was_short;           /* a chunk below S3_CHUNK_MIN came: only the last may be */
    bool has_trailer_sig;
    uint8_t n_after;    /* line ends after the end */
    struct digest *sha; /* NULL for unsigned chunks */
    uint8_t key[32];
    char prev_sig[65], chunk_sig[65], trailer_sig[65];
    char date[20];
    char scope[192];
    char line[S3_CHUNK_LINE_MAX];
    size_t n_line;
    char trailers[S3_CHUNK_TRAILER_MAX]; /* canonical: "name:value\n" each */
    size_t n_trailers;
    char announced[S3_CHUNK_TRAILER_MAX]; /* "name\n" each */
    size_t n_announced;
};

/* 'auth' has a chunked payload; what is needed of it is copied. */
MUST_CHECK int s3_chunked_init(struct s3_chunked *c, const struct s3_auth *auth,
                               struct err *err);
void s3_chunked_done(struct s3_chunked *c); /* also of a zeroed one */

/* Takes bytes off the front of *in up to the next run of payload: *ret_run is a slice of it,
 * empty when *in is used up. Bytes after the end are an error. Call until in->n == 0. */
MUST_CHECK int s3_chunked_next(struct s3_chunked *c, struct str *in, struct str *ret_run,
                               struct err *err);
/* The HTTP body is over: 0 when the last chunk, all signatures, all sizes and all announced
 * trailers were there and good. */
MUST_CHECK int s3_chunked_end(struct s3_chunked *c, struct err *err);
bool s3_chunked_is_done(const struct s3_chunked *c); /* the last byte of the coding was seen */
/* After s3_chunked_end(): trailer idx (0, 1, ...), false when there is none such. The name is in
 * lower case. Borrowed until s3_chunked_done(). */
bool s3_chunked_trailer(const struct s3_chunked *c, size_t idx, struct str *ret_name,
                        struct str *ret_value);
