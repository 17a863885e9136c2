/* s3_form.h — browser uploads: multipart/form-data as a stream, its signature and its policy.
 * Not here: storing the file, CORS (s3_cors.h).
 * Use:      s3_form_new() at the head; s3_form_next() with body bytes until s3_form_state() is
 *           S3_FORM_FILE; then s3_form_auth() and s3_form_check(), and only then storage; then on
 *           with s3_form_next(), whose runs are the file; s3_form_end().
 * Threads:  belongs to one thread at a time.
 * Memory:   s3_form_new() gives; fields are borrowed until s3_form_free(); runs are slices of
 *           the input or of a small buffer of the form (until the next call).
 * Errors:   "MalformedPOSTRequest", "InvalidArgument", "InvalidPolicyDocument", "AccessDenied",
 *           "EntityTooLarge", "EntityTooSmall", "MaxPostPreDataLengthExceededError",
 *           "IncorrectNumberOfFilesInPostRequest", "UserKeyMustBeSpecified", and those of
 *           s3_auth.h. */
#pragma once
#include "aws/s3_auth.h"
#include "aws/s3_extra.h"
#include "aws/sigv4.h"

enum {
    S3_FORM_FIELDS_MAX = 20 << 10, /* names, values and headers of parts before the file */
    S3_FORM_N_FIELDS_MAX = 256,
    S3_FORM_BOUNDARY_MAX = 70, /* RFC 2046 section 5.1.1 */
};

struct s3_form;
/* 'content_type' of the request: multipart/form-data with a boundary, else
 * "PreconditionFailed" 412 as AWS ("Bucket POST must be of the enclosure-type
 * multipart/form-data"). */
MUST_CHECK int s3_form_new(struct str content_type, struct s3_form **ret, struct err *err);
void s3_form_free(struct s3_form *f); /* NULL is fine */
DEFINE_CLEANUP(struct s3_form *, s3_form_free);

enum s3_form_state {
    S3_FORM_FIELDS, /* no file yet */
    S3_FORM_FILE,   /* the fields are complete, file bytes come */
    S3_FORM_AFTER,  /* the file is complete; what comes is thrown away */
};
enum s3_form_state s3_form_state(const struct s3_form *f);
/* Takes bytes off the front of *in. Stops when the file begins, with an empty run; later gives
 * runs of the file. An empty run with in->n > 0 happens only when the state has become FILE or
 * the run was of no payload: go on calling until in->n == 0. */
MUST_CHECK int s3_form_next(struct s3_form *f, struct str *in, struct str *ret_run,
                            struct err *err);
/* The HTTP body is over. */
MUST_CHECK int s3_form_end(struct s3_form *f, struct err *err);

/* Names ignore case. STR_NONE when absent. */
struct str s3_form_get(const struct s3_form *f, const char *name);
size_t s3_form_n_fields(const struct s3_form *f);
/* Of field idx, in order; the file is not among them. */
struct str s3_form_name(const struct s3_form *f, size_t idx);
struct str s3_form_value(const struct s3_form *f, size_t idx);
struct str s3_form_filename(const struct s3_form *f);  /* last part of the path, may be "" */
struct str s3_form_file_type(const struct s3_form *f); /* Content-Type of the file's part */

/* Who sends it: x-amz-algorithm, x-amz-credential, x-amz-date, x-amz-signature over the policy
 * (as base64). No policy: anonymous. The old form (AWSAccessKeyId and signature: HMAC-SHA1 over
 * the policy) is refused, unless o->flags has S3_FORM_OLD_SIGNATURE: many forms in use and the
 * public test suite sign so, and the policy is what limits them either way. */
#define S3_FORM_OLD_SIGNATURE 64u
MUST_CHECK int s3_form_auth(struct arena *a, const struct sigv4_opts *o,
                            const struct s3_form *f, uint64_t now_ns, struct s3_auth *ret,
                            struct s3_extra *extra, struct err *err);

struct s3_form_upload {
    struct str key;              /* ${filename} is put in */
    uint64_t min_size, max_size; /* content-length-range; 0 and UINT64_MAX without */
    bool has_range;
    struct str tagging_xml; /* the field "tagging": <Tagging>..., STR_NONE */
    struct str redirect;    /* success_action_redirect (or redirect), STR_NONE */
    int success_status;     /* 200, 201 or 204 */
    /* The fields as headers, for the decoder of PutObject: Content-Type, Cache-Control,
     * x-amz-meta-*, x-amz-storage-class, ...; acl as x-amz-acl. */
    const struct http_header *headers;
    size_t n_headers;
};
/* The key and, when there is one, the policy: all conditions hold, every field that needs one is
 * covered, not expired. */
MUST_CHECK int s3_form_check(struct arena *a, const struct s3_form *f, struct str bucket,
                             uint64_t now_ns, struct s3_form_upload *ret,
                             struct s3_extra *extra, struct err *err);
/* While the file streams (is_end = false) and at its end. */
MUST_CHECK int s3_form_size_check(struct arena *a, const struct s3_form_upload *u,
                                  uint64_t size, bool is_end, struct s3_extra *extra,
                                  struct err *err);
/* The redirect with bucket, key and etag added. */
struct str s3_form_redirect(struct arena *a, const struct s3_form_upload *u, struct str bucket,
                            struct str etag);

/* ---- the policy alone ---- */

struct s3_form_field {
    struct str name, value;
};
struct s3_form_policy_in {
    struct str json; /* decoded */
    struct str bucket;
    const struct s3_form_field *fields;
    size_t n_fields;
    uint64_t now_ns;
};
MUST_CHECK int s3_form_policy(const struct s3_form_policy_in *in, struct s3_form_upload *ret,
                              struct err *err);
