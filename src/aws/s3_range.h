/* s3_range.h — Range, x-amz-copy-source-range and partNumber.
 * Not here: where parts lie in an object (the store).
 * Threads:  no state.
 * Memory:   formats into buffers of the caller.
 * Errors:   "InvalidRange" (416), "InvalidArgument", "InvalidPartNumber", "InvalidRequest". */
#pragma once
#include "aws/s3_extra.h"
#include "base/err.h"
#include "base/macro.h"
#include <stdint.h>

#define S3_PART_MAX 10000

struct s3_range {
    bool is_partial;      /* answer 206 with Content-Range; else 200 and everything */
    uint64_t first, size; /* bytes [first, first + size) */
};
/* 'header' STR_NONE, several ranges, other units and malformed ones: everything (as AWS). */
MUST_CHECK int s3_range_parse(struct arena *a, struct str header, uint64_t object_size,
                              struct s3_range *ret, struct s3_extra *extra, struct err *err);
/* "bytes=first-last", both (else InvalidArgument), within the source (else InvalidRange).
 * STR_NONE: everything. */
MUST_CHECK int s3_copy_range_parse(struct str header, uint64_t source_size,
                                   struct s3_range *ret, struct err *err);
/* "bytes 0-9/100" */
#define S3_CONTENT_RANGE_SIZE 80
const char *s3_content_range(const struct s3_range *r, uint64_t object_size,
                             char out[S3_CONTENT_RANGE_SIZE]);
/* partNumber of a query: 1..10000 (InvalidArgument). With a Range header: InvalidRequest. */
MUST_CHECK int s3_part_number(struct str part_number, struct str range, unsigned *ret,
                              struct err *err);
/* partNumber of a read, beyond the number of parts: 416 InvalidPartNumber. An object that is not
 * multipart has one part. */
MUST_CHECK int s3_part_check(struct arena *a, unsigned part_number, unsigned n_parts,
                             struct s3_extra *extra, struct err *err);
