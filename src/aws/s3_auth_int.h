/* s3_auth_int.h — what the parser of S3's credentials gives to its checker.
 * Not here: anything others may use (s3_auth.h).
 * Threads:  no state.
 * Memory:   slices borrow from the request or live in the arena.
 * Errors:   as s3_auth.h. */
#pragma once
#include "aws/s3_auth.h"

enum s3_auth_form { S3_AUTH_NOBODY, S3_AUTH_HEADER, S3_AUTH_QUERY };

/* Which form of credentials there is, and its parts. */
MUST_CHECK int s3_auth_parse(struct arena *a, const struct aws_http *head,
                             enum s3_auth_form *ret_form, struct sigv4_auth *ret,
                             struct s3_extra *extra, struct err *err);
/* A Date or x-amz-date: "20130524T000000Z", or as HTTP and mail write them. */
MUST_CHECK int s3_auth_date(struct str s, uint64_t *ret_ns);
/* "<key>/<date>/<region>/<service>/aws4_request" */
MUST_CHECK int s3_auth_parse_credential(struct str s, struct sigv4_auth *ret);

/* x-amz-content-sha256, x-amz-decoded-content-length, x-amz-trailer. *ret_hash is the last line
 * of the canonical request. */
MUST_CHECK int s3_auth_payload(struct arena *a, const struct aws_http *head,
                               enum s3_auth_form form, struct s3_auth *ret,
                               struct str *ret_hash, struct s3_extra *extra, struct err *err);
/* The headers and the hoisted ones. */
MUST_CHECK int s3_auth_headers(struct arena *a, const struct aws_http *head,
                               enum s3_auth_form form, struct s3_auth *ret,
                               struct s3_extra *extra, struct err *err);
