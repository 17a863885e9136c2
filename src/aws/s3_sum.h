/* s3_sum.h — the checksums of a body: what the client says, what the bytes say, and what a
 * multipart object gets.
 * Not here: where they are kept, chunk signatures (s3_chunked.h).
 * Use:      s3_sum_want_parse() at the head, s3_sum_begin(), s3_sum_add() ..., s3_sum_trailer()
 *           for each trailer, s3_sum_end(). s3_sum_begin() again reuses the contexts.
 * Threads:  a struct s3_sum belongs to one thread at a time.
 * Memory:   {0} is an empty one; s3_sum_done() frees. No allocation after the first use of each
 *           algorithm.
 * Errors:   "InvalidDigest", "BadDigest", "XAmzContentSHA256Mismatch", "InvalidRequest",
 *           "IncompleteBody", "MalformedTrailerError". */
#pragma once
#include "aws/s3_auth.h"
#include "crypto/crc.h"
#include "crypto/digest.h"

/* Values are kept on disk: never renumber. */
enum s3_sum_alg {
    S3_SUM_NONE = 0,
    S3_SUM_CRC32 = 1,
    S3_SUM_CRC32C = 2,
    S3_SUM_CRC64NVME = 3,
    S3_SUM_SHA1 = 4,
    S3_SUM_SHA256 = 5,
    S3_SUM_ALG_N
};
enum s3_sum_type { S3_SUM_TYPE_NONE = 0, S3_SUM_FULL_OBJECT = 1, S3_SUM_COMPOSITE = 2 };

struct s3_sum_value {
    enum s3_sum_alg alg;
    uint8_t v[32]; /* s3_sum_size(alg) bytes */
};

size_t s3_sum_size(enum s3_sum_alg alg);        /* 0 for NONE */
const char *s3_sum_name(enum s3_sum_alg alg);   /* "CRC32C" */
const char *s3_sum_header(enum s3_sum_alg alg); /* "x-amz-checksum-crc32c" */
enum s3_sum_alg s3_sum_by_name(
    struct str name); /* case ignored; NONE when there is none such */
enum s3_sum_alg s3_sum_by_header(struct str name);
const char *s3_sum_type_name(enum s3_sum_type t); /* "FULL_OBJECT", "COMPOSITE", "" */
/* Base64, with "-N" when n_parts > 0. */
#define S3_SUM_TEXT_SIZE 64
const char *s3_sum_text(const struct s3_sum_value *v, unsigned n_parts,
                        char out[S3_SUM_TEXT_SIZE]);
/* -EINVAL: not base64 of so many bytes. */
MUST_CHECK int s3_sum_value_parse(enum s3_sum_alg alg, struct str base64,
                                  struct s3_sum_value *ret);
bool s3_sum_eq(const struct s3_sum_value *a, const struct s3_sum_value *b);

/* ---- one body ---- */

struct s3_sum_want {
    bool has_md5, has_sha256; /* Content-MD5; x-amz-content-sha256 */
    uint8_t md5[16], sha256[32];
    enum s3_sum_alg alg;  /* named by the client, else NONE */
    enum s3_sum_alg keep; /* computed and kept with the object; NONE for config bodies */
    bool is_given;        /* 'value' came in the head */
    bool is_in_trailer;   /* the value must come in the trailer */
    struct s3_sum_value value;
};
enum {
    S3_SUM_NEED_ONE = 1, /* the operation requires a checksum: Content-MD5 or x-amz-checksum-*;
                            none: InvalidRequest (DeleteObjects, most bucket PUTs) */
    S3_SUM_NO_DEFAULT = 2, /* nothing is computed that was not asked (config bodies) */
};
/* 'default_alg' is kept when the client names none: S3_SUM_CRC64NVME for objects. */
MUST_CHECK int s3_sum_want_parse(const struct s3_auth *auth, unsigned flags,
                                 enum s3_sum_alg default_alg, struct s3_sum_want *ret,
                                 struct s3_extra *extra, struct err *err);

/* UploadPart: the part keeps the algorithm of its upload. InvalidRequest when the client names
 * another, unless the upload has the default one because nobody asked. */
MUST_CHECK int s3_sum_want_part(struct s3_sum_want *want, enum s3_sum_alg upload_alg,
                                bool is_default, struct err *err);

struct s3_sum {
    struct s3_sum_want want;
    uint64_t size; /* bytes so far */
    /* private */
    unsigned todo; /* bits by enum s3_sum_alg; bit 0: MD5 */
    uint64_t crc[CRC_ALG_N];
    struct digest *digest[DIGEST_ALG_N];
};
struct s3_sum_result {
    uint64_t size;
    bool has_md5;
    uint8_t md5[16];         /* the ETag */
    struct s3_sum_value sum; /* of want->keep */
};
/* without_md5: the caller has the MD5 from elsewhere or needs none (and the client sent no
 * Content-MD5). */
void s3_sum_begin(struct s3_sum *s, const struct s3_sum_want *want, bool without_md5);
void s3_sum_add(struct s3_sum *s, struct str data);
/* A trailer of an aws-chunked body: checksums are taken, other names are left alone. */
MUST_CHECK int s3_sum_trailer(struct s3_sum *s, struct str name, struct str value,
                              struct err *err);
/* Compares all that was promised. The contexts are ready for s3_sum_begin() after. 'a' is for
 * 'extra'; both may be NULL. */
MUST_CHECK int s3_sum_end(struct s3_sum *s, struct s3_sum_result *ret, struct arena *a,
                          struct s3_extra *extra, struct err *err);
void s3_sum_done(struct s3_sum *s);
/* All at once, for bodies that are in memory. */
MUST_CHECK int s3_sum_check(const struct s3_sum_want *want, struct str body,
                            struct s3_sum_result *ret, struct err *err);

/* ---- multipart ---- */

/* The rule of CreateMultipartUpload: which algorithm and type an upload has, from what was
 * asked (STR_NONE: absent). No algorithm: CRC64NVME, FULL_OBJECT and *ret_is_default. */
MUST_CHECK int s3_sum_upload_type(struct str alg, struct str type, enum s3_sum_alg *ret_alg,
                                  enum s3_sum_type *ret_type, bool *ret_is_default,
                                  struct err *err);

/* Puts the parts together, in their order. {0} is an empty one. */
struct s3_sum_multi {
    enum s3_sum_alg alg;
    enum s3_sum_type type;
    unsigned n_parts;
    uint64_t size, crc;
    bool is_lost; /* a part had no value of 'alg': the object has none */
    struct digest *md5, *composite;
};
void s3_sum_multi_begin(struct s3_sum_multi *m, enum s3_sum_alg alg, enum s3_sum_type type);
void s3_sum_multi_add(struct s3_sum_multi *m, const uint8_t md5[16], uint64_t size,
                      const struct s3_sum_value *sum); /* sum may be NULL */
/* ret_etag: 32 hex digits, '-', number of parts (no quotes). ret_sum->alg is NONE when lost. */
#define S3_ETAG_SIZE 48
void s3_sum_multi_end(struct s3_sum_multi *m, char ret_etag[S3_ETAG_SIZE],
                      struct s3_sum_value *ret_sum);
void s3_sum_multi_done(struct s3_sum_multi *m);
/* Compares what CompleteMultipartUpload was told (x-amz-checksum-*: "base64" or "base64-N") with
 * what came out. */
MUST_CHECK int s3_sum_multi_check(struct str claimed, const struct s3_sum_value *got,
                                  enum s3_sum_type type, unsigned n_parts, struct err *err);
/* 32 hex digits of an MD5 (no quotes). */
void s3_etag(const uint8_t md5[16], char out[S3_ETAG_SIZE]);
