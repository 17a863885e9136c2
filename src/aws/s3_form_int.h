/* s3_form_int.h — the inside of a form, for the files of s3_form.h.
 * Not here: anything others may use.
 * Threads:  belongs to one thread at a time.
 * Memory:   fields live in the form's arena.
 * Errors:   none. */
#pragma once
#include "aws/s3_form.h"
#include "base/arena.h"
#include "base/buf.h"
#include "crypto/digest.h"

enum s3_form_at {
    S3_FORM_AT_START, /* before the first boundary */
    S3_FORM_AT_MARK,  /* behind a boundary: CR LF or "--" */
    S3_FORM_AT_HEAD,  /* headers of a part */
    S3_FORM_AT_VALUE, /* of a field */
    S3_FORM_AT_FILE,
    S3_FORM_AT_AFTER,
};

struct s3_form {
    struct arena *a;
    enum s3_form_at at;
    char delim[4 + S3_FORM_BOUNDARY_MAX]; /* CR LF "--" boundary */
    size_t n_delim;
    size_t n_match; /* bytes of the delimiter that were seen at the end of the input */
    char mark[2];
    size_t n_mark;
    bool was_final; /* the closing boundary came */
    size_t n_fields_size;
    struct buf part; /* headers or value of the part that is being read */
    struct str name; /* of that part */
    struct s3_form_field fields[S3_FORM_N_FIELDS_MAX];
    size_t n_fields;
    bool has_file;
    struct str filename, file_type;
};

/* The MAC of the old signatures. (s3_form_check.c) */
void s3_hmac_sha1(struct str key, struct str data, uint8_t out[SHA1_SIZE]);
