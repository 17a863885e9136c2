/* s3_lifecycle.h — lifecycle rules: are they valid, and what do they ask for at a given time.
 * Not here: XML, where rules are kept, the worker that walks a bucket.
 * Threads:  no state: (rules, facts of an object, now) -> action.
 * Memory:   plain structs that borrow; texts go into the arena.
 * Errors:   "MalformedXML", "InvalidArgument", "InvalidRequest", "NotImplemented" (transitions). */
#pragma once
#include "aws/s3_name.h"
#include "aws/shape.h"
#include "base/err.h"

enum { S3_LIFE_RULES_MAX = 1000, S3_LIFE_ID_MAX = 255, S3_LIFE_NEWER_MAX = 100 };

struct s3_life_filter {
    struct str prefix; /* STR_NONE when absent */
    const struct s3_tag *tags;
    size_t n_tags;
    struct opt_i64 size_above, size_below; /* ObjectSizeGreaterThan, ObjectSizeLessThan */
    bool is_and;                           /* the elements stood in <And> */
};
struct s3_life_rule {
    struct str id;     /* STR_NONE: one is made by s3_life_check() */
    struct str status; /* "Enabled", "Disabled" */
    struct str prefix; /* the old form, outside of Filter; STR_NONE when absent */
    bool has_filter;
    struct s3_life_filter filter;
    bool has_expiration;
    struct opt_i64 days;
    struct opt_time date;
    struct opt_bool marker; /* ExpiredObjectDeleteMarker */
    bool has_noncurrent;
    struct opt_i64 noncurrent_days, newer_versions;
    bool has_abort;
    struct opt_i64 abort_days;       /* DaysAfterInitiation */
    bool has_transition;             /* Transition or NoncurrentVersionTransition: refused */
    struct opt_time transition_date; /* the first that is no midnight, or any */
};
struct s3_life {
    struct s3_life_rule *rules;
    size_t n_rules;
};
/* Checks, and gives an id to rules that have none (in the arena). */
MUST_CHECK int s3_life_check(struct arena *a, struct s3_life *l, struct err *err);

struct s3_life_object {
    struct str key;
    uint64_t mtime_ns;
    uint64_t size;
    const struct s3_tag *tags;
    size_t n_tags;
    bool is_current, is_marker;
    bool is_only_version;         /* a current marker with nothing behind it */
    bool is_versioned;            /* the bucket's versioning is (or was) on */
    uint64_t noncurrent_since_ns; /* when the next newer version came; !is_current */
    unsigned n_newer_noncurrent;  /* noncurrent versions of the key newer than this one */
};
enum s3_life_action {
    S3_LIFE_KEEP,
    S3_LIFE_EXPIRE,         /* current version: delete (versioned: lay a marker over it) */
    S3_LIFE_DELETE_VERSION, /* remove this version for good */
    S3_LIFE_DELETE_MARKER,  /* remove this delete marker */
};
/* 'ret_rule' (may be NULL, also of s3_life_upload()): which rule says so. */
enum s3_life_action s3_life_object(const struct s3_life *l, const struct s3_life_object *o,
                                   uint64_t now_ns, const struct s3_life_rule **ret_rule);
/* Is an unfinished upload to be aborted? */
bool s3_life_upload(const struct s3_life *l, struct str key, uint64_t begun_ns, uint64_t now_ns,
                    const struct s3_life_rule **ret_rule);
/* When will it be (x-amz-abort-date)? false: never. */
bool s3_life_upload_when(const struct s3_life *l, struct str key, uint64_t begun_ns,
                         uint64_t *ret_ns, const struct s3_life_rule **ret_rule);
/* When does the current version expire? false: never. */
bool s3_life_when(const struct s3_life *l, const struct s3_life_object *o, uint64_t *ret_ns,
                  const struct s3_life_rule **ret_rule);
/* x-amz-expiration: expiry-date="Fri, 21 Dec 2012 00:00:00 GMT", rule-id="x"; STR_NONE: never. */
struct str s3_life_header(struct arena *a, const struct s3_life *l,
                          const struct s3_life_object *o);
