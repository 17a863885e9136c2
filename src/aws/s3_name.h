/* s3_name.h — names, keys, tags, metadata, version ids: text that clients choose, checked.
 * Not here: what exists.
 * Threads:  no state.
 * Memory:   results live in the arena or borrow from the input, as said.
 * Errors:   "InvalidBucketName", "KeyTooLongError", "InvalidArgument", "InvalidTag",
 *           "MetadataTooLarge", "InvalidURI", "InvalidRequest", "NotImplemented". */
#pragma once
#include "aws/api/s3.h"
#include "aws/http.h"
#include "aws/s3_extra.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

enum {
    S3_KEY_MAX = 1024, /* bytes of UTF-8 */
    S3_TAGS_MAX = 10,  /* of an object */
    S3_BUCKET_TAGS_MAX = 50,
    S3_TAG_KEY_MAX = 128, /* code points */
    S3_TAG_VALUE_MAX = 256,
    S3_META_MAX = 2048, /* names and values of x-amz-meta-* */
};

/* Of a new bucket. Existing ones are looked up by any name that s3_bucket_name_ok() knows. */
MUST_CHECK int s3_bucket_name_check(struct str name, struct s3_extra *extra, struct err *err);
bool s3_bucket_name_ok(struct str name);

/* 1..1024 bytes of UTF-8 (control bytes are legal in keys). */
MUST_CHECK int s3_key_check(struct str key, struct err *err);

/* ---- addressing ---- */

/* Bucket and key of a request target. 'path' is as sent ("/bucket/key%20x"); 'host' as sent;
 * 'domains': hosts whose first label is a bucket ("s3.example.com": films.s3.example.com).
 * Both decoded; bucket STR_NONE for "/"; key STR_NONE when there is none. */
struct s3_target {
    struct str bucket, key;
    bool is_virtual_host;
};
MUST_CHECK int s3_target_parse(struct arena *a, struct str path, struct str host,
                               const struct str *domains, size_t n_domains,
                               struct s3_target *ret, struct err *err);

/* x-amz-copy-source: "[/]bucket/key[?versionId=id]", URL-encoded. ARN forms are refused
 * (NotImplemented). */
struct s3_copy_source {
    struct str bucket, key, version_id; /* version_id STR_NONE when absent */
};
MUST_CHECK int s3_copy_source_parse(struct arena *a, struct str header,
                                    struct s3_copy_source *ret, struct s3_extra *extra,
                                    struct err *err);

/* ---- tags ---- */

/* struct s3_tag {key, value} is the generated one. */
struct s3_tags {
    struct s3_tag *v;
    size_t n;
};
/* x-amz-tagging: "k=v&k2=v2", form-encoded. */
MUST_CHECK int s3_tags_parse(struct arena *a, struct str header, struct s3_tags *ret,
                             struct err *err);
/* 'max': S3_TAGS_MAX or S3_BUCKET_TAGS_MAX. */
MUST_CHECK int s3_tags_check(const struct s3_tag *v, size_t n, size_t max,
                             struct s3_extra *extra, struct err *err);

/* ---- metadata ---- */

/* The x-amz-meta-* headers: names in lower case without the prefix, values as stored: RFC 2047
 * words (=?UTF-8?B?..?=, =?UTF-8?Q?..?=) are decoded. Same name twice: joined by ','. */
struct s3_meta {
    struct s3_tag *v;
    size_t n;
};
MUST_CHECK int s3_meta_parse(struct arena *a, const struct http_header *headers,
                             size_t n_headers, struct s3_meta *ret, struct s3_extra *extra,
                             struct err *err);
/* As a header value: bytes outside of printable ASCII go as RFC 2047 words. */
struct str s3_meta_header_value(struct arena *a, struct str value);

/* ---- encoding-type=url ---- */

/* As AWS writes keys in lists: letters, digits and "-_.*" stay, '/' too, a space is '+', every
 * other byte %XX. boto3 reads it back with unquote_plus. */
void s3_url_encode(struct str s, struct buf *out);

/* ---- version ids ---- */

#define S3_VERSION_ID_SIZE 33 /* 32 digits and NUL */
/* 16 bytes as 32 lower-case hex digits; all zero is "null". Returns out. */
const char *s3_version_id_text(const uint8_t id[16], char out[S3_VERSION_ID_SIZE]);
/* InvalidArgument "Invalid version id specified". "null" gives zeros. */
MUST_CHECK int s3_version_id_parse(struct str s, uint8_t ret[16], struct s3_extra *extra,
                                   struct err *err);
