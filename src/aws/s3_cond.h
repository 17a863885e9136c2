/* s3_cond.h — conditional requests: reads, copy sources, writes, deletes.
 * Not here: making a conditional write atomic (the store asks s3_cond_write_check() under its
 *           commit).
 * Threads:  no state.
 * Memory:   a parsed condition borrows from the request.
 * Errors:   "PreconditionFailed" (412, extra Condition), "NoSuchKey" (404: If-Match on what is
 *           not there), "NotImplemented" (501), "InvalidArgument". */
#pragma once
#include "aws/http.h"
#include "aws/s3_extra.h"
#include "aws/shape.h"
#include "base/err.h"

struct s3_cond {
    struct str if_match, if_none_match;               /* as sent; STR_NONE when absent */
    struct opt_time modified_since, unmodified_since; /* dates that cannot be read are absent */
};
/* If-Match ... of GET and HEAD. */
void s3_cond_parse(const struct http_header *headers, size_t n_headers, struct s3_cond *ret);
/* x-amz-copy-source-if-match ... */
void s3_cond_parse_copy(const struct http_header *headers, size_t n_headers,
                        struct s3_cond *ret);

/* Is 'etag' (no quotes) in the list? Entries may be quoted, weak (W/: compared weakly), bare or
 * "*". */
bool s3_etag_in(struct str list, struct str etag);
/* Drops W/ and quotes of one entity tag. */
struct str s3_etag_bare(struct str etag);

/* 0: go on; 1: answer 304 (with ETag and Last-Modified, no body, no checksum header); negative:
 * 412. Precedence of RFC 9110 section 13.2.2: a true If-Match beats If-Unmodified-Since,
 * If-None-Match beats If-Modified-Since. Times have whole seconds. */
MUST_CHECK int s3_cond_read(const struct s3_cond *c, struct str etag, uint64_t mtime_ns,
                            uint64_t now_ns, struct s3_extra *extra, struct err *err);
/* The same for copy sources: every failure is 412. */
MUST_CHECK int s3_cond_copy(const struct s3_cond *c, struct str etag, uint64_t mtime_ns,
                            uint64_t now_ns, struct s3_extra *extra, struct err *err);

/* ---- writes ---- */

struct s3_cond_write {
    enum s3_cond_kind {
        S3_COND_NONE,
        S3_COND_ABSENT, /* If-None-Match: * */
        S3_COND_EXISTS, /* If-Match: * */
        S3_COND_ETAG,   /* If-Match: <etags> */
        S3_COND_OTHER,  /* If-None-Match: <etags> */
    } kind;
    struct str etag;             /* the list as sent */
    struct opt_i64 match_size;   /* x-amz-if-match-size, deletes */
    struct opt_time match_mtime; /* x-amz-if-match-last-modified-time, deletes */
};
/* PutObject, CompleteMultipartUpload, CopyObject. AWS has If-None-Match: * and If-Match: <etag>
 * only; the other two are what RFC 9110 says of them. Dates: 501 NotImplemented, as AWS. */
MUST_CHECK int s3_cond_write_parse(const struct http_header *headers, size_t n_headers,
                                   struct s3_cond_write *ret, struct err *err);
MUST_CHECK int s3_cond_delete_parse(const struct http_header *headers, size_t n_headers,
                                    struct s3_cond_write *ret, struct err *err);
/* DeleteObjects gives these per key. */
MUST_CHECK int s3_cond_delete_make(struct str etag, struct opt_time mtime, struct opt_i64 size,
                                   struct s3_cond_write *ret, struct err *err);

/* The current version; exists = false: nothing, or a delete marker. */
struct s3_cond_now {
    bool exists;
    struct str etag; /* no quotes */
    uint64_t mtime_ns, size;
};
MUST_CHECK int s3_cond_write_check(const struct s3_cond_write *w, const struct s3_cond_now *now,
                                   struct s3_extra *extra, struct err *err);
/* Deletes: what is not there needs no delete, so that a retried one succeeds. */
MUST_CHECK int s3_cond_delete_check(const struct s3_cond_write *w,
                                    const struct s3_cond_now *now, struct s3_extra *extra,
                                    struct err *err);
