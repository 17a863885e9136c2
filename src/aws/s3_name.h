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

/* ---- copy source ---- */

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
/* 'max': S3_TAGS_MAX or S3_BUCKET_TAGS_MAX. Letters and digits of any script, space and
 * "+-=._:/@". */
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

/* May it be the name of a header? RFC 9110 section 5.6.2: names that come from a query or a form
 * have met no server's check. */
bool s3_is_token(struct str s);

/* ---- encoding-type=url ---- */

/* Keys in lists: letters, digits and "-_.~" stay, '/' too, every other byte becomes %XX. A space is
 * "%20", which both kinds of decoders read (boto3: unquote_plus; others: plain percent). */
void s3_url_encode(struct str s, struct buf *out);

/* ---- version ids ---- */

#define S3_VERSION_ID_SIZE 33 /* 32 digits and NUL */
/* 16 bytes as 32 lower-case hex digits; all zero is "null". Returns out. */
const char *s3_version_id_text(const uint8_t id[16], char out[S3_VERSION_ID_SIZE]);
/* InvalidArgument "Invalid version id specified". "null" gives zeros. */
MUST_CHECK int s3_version_id_parse(struct str s, uint8_t ret[16], struct s3_extra *extra,
                                   struct err *err);
