/* s3_auth2.h — who sends an S3 request that is signed with Signature Version 2: what SDKs still
 * write into presigned URLs when nobody tells them otherwise, and old clients into headers.
 * Not here: Version 4 (s3_auth.h), forms (s3_form.h).
 * Weaker than Version 4 in one point: a parameter of the query that is not in a fixed list is not
 *           signed. Those that only choose a page of a list may come so; with any other the
 *           request is refused. The body is not signed, the host neither: the bucket of a
 *           virtual host is part of what is.
 * Threads:  no state.
 * Memory:   slices borrow from the request or live in the arena.
 * Errors:   as s3_auth.h. */
#pragma once
#include "aws/s3_auth.h"

/* Exactly one way to sign, and it is this: all else goes to s3_auth_head(). */
bool s3_auth2_is(const struct aws_http *head);
/* 'vhost_bucket': the bucket that the Host header named, STR_NONE when the path does. Refused as
 * AWS does in its newer regions unless o->flags has S3_FORM_OLD_SIGNATURE (s3_form.h). No
 * signing key for chunks comes of it: payloads with signed chunks are refused. */
MUST_CHECK int s3_auth2_head(struct arena *a, const struct sigv4_opts *o,
                             const struct aws_http *head, struct str vhost_bucket,
                             struct s3_auth *ret, struct s3_extra *extra, struct err *err);
