/* sigv4.h — Signature Version 4, the server's side: header and presigned query form.
 * Not here: where keys are kept (aws_key_find_fn), streaming bodies (they come with S3 and use
 *           the same parts). SigV4A (ECDSA) is refused.
 * Threads:  the cache of signing keys has its own lock; the rest has no state.
 * Memory:   slices of the result borrow from the request or live in the arena; secrets are
 *           wiped.
 * Errors:   "MissingAuthenticationToken", "IncompleteSignature", "InvalidClientTokenId",
 *           "SignatureDoesNotMatch", "ExpiredToken", "SignatureExpired",
 *           "SignatureNotYetCurrent", "MalformedQueryString": the dispatcher says them as each
 *           protocol does. */
#pragma once
#include "aws/call.h"
#include "aws/http.h"
#include "base/buf.h"

/* What the key store knows about an access key. */
struct aws_key {
    struct aws_principal who;
    struct str secret;        /* borrowed until aws_key_find_fn's arena ends */
    struct str session_token; /* of temporary keys; STR_NONE for long-term ones */
    uint64_t expires_ns;      /* 0 = never */
    bool is_active;
};
/* -ENOENT: no such key (and *err may be left alone); other errors are the store's. */
typedef int (*aws_key_find_fn)(void *ctx, struct arena *a, struct str access_key,
                               struct aws_key *ret, struct err *err);

/* The parts of an Authorization header or of a presigned query. */
struct sigv4_auth {
    bool is_presigned;
    struct str access_key, date, region, service; /* of the credential scope */
    struct str signed_headers;                    /* "host;x-amz-date" */
    struct str signature;                         /* 64 hex digits */
    struct str amz_date;                          /* "20261130T144910Z" */
    struct str session_token;                     /* STR_NONE when absent */
    uint64_t signed_ns, expires_s;                /* expires_s: presigned only */
};
MUST_CHECK int sigv4_parse(struct arena *a, const struct aws_http *rq, struct sigv4_auth *ret,
                           struct err *err);

enum {
    SIGV4_S3 = 1, /* no path normalisation, single encoding: "%2F" stays apart from '/'; '+'
                           of a query is a space; a signed header that is absent is empty */
    SIGV4_S3_SLASH = 2, /* with SIGV4_S3: "%2F" is signed as '/' (some clients do) */
    SIGV4_RAW_PATH = 4, /* with SIGV4_S3: the path is signed as it was sent */
};
/* Appends the canonical request. 'payload_hash' is the last line. */
MUST_CHECK int sigv4_canonical(struct arena *a, const struct aws_http *rq,
                               const struct sigv4_auth *auth, unsigned flags,
                               struct str payload_hash, struct buf *out, struct err *err);
/* "AWS4-HMAC-SHA256\n<date>\n<scope>\n<hash>" */
void sigv4_string_to_sign(const struct sigv4_auth *auth, struct str canonical, struct buf *out);
void sigv4_signing_key(struct str secret, struct str date, struct str region,
                       struct str service, uint8_t out[32]);

struct sigv4_cache; /* signing keys of the last (secret, date, region, service) */
struct sigv4_cache *sigv4_cache_new(size_t n) __attribute__((returns_nonnull));
void sigv4_cache_free(struct sigv4_cache *c); /* wipes; NULL is fine */
void sigv4_cached_key(struct sigv4_cache *c, struct str secret, const struct sigv4_auth *auth,
                      uint8_t out[32]);

#define SIGV4_SKEW_NS (UINT64_C(900) * 1000000000)

struct sigv4_opts {
    aws_key_find_fn find;
    void *find_ctx;
    struct sigv4_cache *cache;
    struct str region;        /* ours */
    struct str global_region; /* another that is good too (IAM and STS are signed for us-east-1
                                 by some clients), or STR_NONE */
    struct str service;       /* "" = any */
    unsigned flags;
    bool may_be_unsigned; /* the body: its integrity is checked by other means */
};
/* Everything: parse, key, scope, time, payload, signature. */
MUST_CHECK int sigv4_verify(struct arena *a, const struct sigv4_opts *o,
                            const struct aws_http *rq, struct sigv4_auth *ret_auth,
                            struct aws_key *ret_key, struct err *err);

/* Signs: for tests and for calls that services make. Gives the Authorization value; 'rq' must
 * carry the headers named. */
struct str sigv4_sign(struct arena *a, const struct aws_http *rq, struct str secret,
                      const struct sigv4_auth *auth, unsigned flags, struct str payload_hash);
