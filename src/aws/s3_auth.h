/* s3_auth.h — who sends an S3 request, found from its head alone, before any byte of the body.
 * Not here: POST forms (s3_form.h), the bytes of the body (s3_chunked.h, s3_sum.h), what the
 *           principal may do (policy.h).
 * The one place: a request that s3_auth_head() has not passed must not be dispatched (nor one that
 *           s3_auth2_head() has not, when it is its business). Header form, presigned query
 *           form, and nobody (is_anonymous); everything else is refused.
 * Threads:  no state; the cache of keys (sigv4.h) has a lock of its own.
 * Memory:   slices borrow from the request or live in the arena. s3_auth_done() wipes the key.
 * Errors:   S3's codes: "AccessDenied", "InvalidAccessKeyId", "InvalidToken", "ExpiredToken",
 *           "SignatureDoesNotMatch", "RequestTimeTooSkewed", "AuthorizationHeaderMalformed",
 *           "AuthorizationQueryParametersError", "InvalidArgument", "InvalidRequest",
 *           "MissingSecurityHeader", "XAmzContentSHA256Mismatch", "InvalidURI"; others are the
 *           key store's. */
#pragma once
#include "aws/s3_extra.h"
#include "aws/sigv4.h"

enum s3_payload {
    S3_PAYLOAD_UNSIGNED,         /* UNSIGNED-PAYLOAD, presigned URLs, anonymous */
    S3_PAYLOAD_SHA256,           /* the hash of the body is in 'sha256' */
    S3_PAYLOAD_SIGNED,           /* STREAMING-AWS4-HMAC-SHA256-PAYLOAD */
    S3_PAYLOAD_SIGNED_TRAILER,   /* STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER */
    S3_PAYLOAD_UNSIGNED_TRAILER, /* STREAMING-UNSIGNED-PAYLOAD-TRAILER */
};
/* The body is aws-chunked and goes through s3_chunked.h. Decided by x-amz-content-sha256 only;
 * Content-Encoding does not matter (s3_coding_strip() below). */
static inline bool s3_payload_is_chunked(enum s3_payload p)
{
    return p >= S3_PAYLOAD_SIGNED;
}

struct s3_auth {
    bool is_anonymous; /* no credentials at all: 'who' is empty; AccessDenied where an owner is
                          needed */
    bool is_presigned;
    struct aws_principal who;
    struct str access_key;
    enum s3_payload payload;
    uint8_t sha256[32];           /* S3_PAYLOAD_SHA256 */
    uint8_t signing_key[32];      /* for chunks; s3_auth_done() wipes it */
    char seed_signature[65];      /* of the head, 64 hex digits */
    struct str scope;             /* "20130524/us-east-1/s3/aws4_request" */
    struct str amz_date;          /* "20130524T000000Z" */
    uint64_t signed_ns;           /* when it was signed */
    uint64_t age_ns;              /* now - signed, at least 0: s3:signatureAge */
    uint64_t decoded_length;      /* x-amz-decoded-content-length; chunked payloads only */
    struct aws_str_list trailers; /* names announced by x-amz-trailer, lower case */
    /* The headers of the request and, of presigned URLs, the x-amz-* query parameters that stand
     * in for headers (SDKs hoist them): decode the input from these. */
    const struct http_header *headers;
    size_t n_headers;
};

/* 'head->body' is not looked at. o->service: "s3"; o->flags is ignored (always SIGV4_S3).
 * 'extra' may be NULL. */
MUST_CHECK int s3_auth_head(struct arena *a, const struct sigv4_opts *o,
                            const struct aws_http *head, struct s3_auth *ret,
                            struct s3_extra *extra, struct err *err);
void s3_auth_done(struct s3_auth *auth); /* also of a zeroed one */

/* Key and scope checks that POST forms share: finds the key, checks token, scope and expiry.
 * 'ret_sign_key' is the key for the scope. */
struct s3_auth_scope {
    struct str access_key, date, region, service; /* of the credential */
    struct str session_token;                     /* STR_NONE when absent */
    bool is_header_form;                          /* which code a wrong scope gets */
    bool has_none; /* forms signed in the old way have no scope: only the key is looked at */
};
MUST_CHECK int s3_auth_key(struct arena *a, const struct sigv4_opts *o,
                           const struct s3_auth_scope *scope, uint64_t now_ns,
                           struct aws_key *ret, uint8_t ret_sign_key[32],
                           struct s3_extra *extra, struct err *err);

/* The Content-Encoding to keep: without "aws-chunked"; STR_NONE when nothing is left. */
struct str s3_coding_strip(struct arena *a, struct str content_encoding);
